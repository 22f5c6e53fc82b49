"""``--record URL``: every conversation that goes through the proxy becomes a session in a store."""
