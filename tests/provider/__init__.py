"""The strict provider: real HTTP on loopback, with the vendors' own clients."""
