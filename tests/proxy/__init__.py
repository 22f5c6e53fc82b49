"""The proxy: what goes through it, what it changes, and what it withstands."""
