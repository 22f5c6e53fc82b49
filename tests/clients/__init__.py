"""Sessions of the real clients: broken here, mended by the command, resumed by the clients.

``LOCKSTITCH_CLIENTS=all`` (``make clients``) takes every version and every kind of file, and
a client that cannot be installed is then a failure. Without it a slice is run, and what cannot
be installed is skipped with a warning. ``LOCKSTITCH_CLIENTS_CACHE`` moves the packages.
"""
