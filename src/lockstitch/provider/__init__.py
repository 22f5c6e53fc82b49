"""A strict provider on this machine: it refuses what the real ones refuse, in their own words.

``replies``, ``judge`` and the ``wire`` modules are pure; ``server`` is the only one with sockets.
"""
