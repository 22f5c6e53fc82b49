"""How other programs keep sessions: one module or package per format, all of one shape."""
