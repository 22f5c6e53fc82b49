"""Messages, parts and places; which result answers which call; SDK objects as plain data."""
