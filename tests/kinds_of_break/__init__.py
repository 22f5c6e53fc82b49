"""The known kinds of break, written once and rendered into every dialect."""
