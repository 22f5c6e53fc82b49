"""Sessions of pi, and of OpenClaw, which keeps pi's records in a database."""
