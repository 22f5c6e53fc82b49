"""How other programs keep sessions: one module a format, all of one shape."""
