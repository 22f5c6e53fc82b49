"""The command line, mostly as real processes."""
