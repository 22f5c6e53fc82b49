"""Sessions, and what goes into them."""
