"""Secrets are gone, and nothing else is."""
