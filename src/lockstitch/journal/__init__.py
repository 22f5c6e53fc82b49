"""The journal of a session: facts in order, what they add up to, and the request they make."""
