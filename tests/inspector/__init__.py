"""The page in a real browser: what it shows, what it does, and whom it refuses."""
