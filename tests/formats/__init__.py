"""Session files of other programs, whole and broken, and what a repair makes of them."""
