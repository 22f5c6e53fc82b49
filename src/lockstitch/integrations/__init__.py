"""Integrations with frameworks: one module or package for each, and each is an extra."""
