"""Promises about healing, tried on generated conversations."""
