"""A proxy between any client and its provider: it heals requests in flight and records them."""
