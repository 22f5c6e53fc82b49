"""Lists of one dialect rendered in another."""
