"""The commands on session files, as a person or a script would run them."""
