"""Every rule from both sides: the smallest list that breaks it, and the smallest that does not."""
