"""Less of a conversation is sent: where to cut, what to keep, how to say the rest."""
