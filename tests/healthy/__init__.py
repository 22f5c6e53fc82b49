"""Histories from real traffic that must be left exactly as they are."""
