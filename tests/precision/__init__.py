"""How right Lockstitch is on real sessions, by what real clients send before and after a repair.

``python -m tests.precision FOLDER`` (or ``make precision FOLDER=…``) is the command. Nothing here
asks Lockstitch whether a session is healthy: requests are judged by the oracles of this project,
which share no code with it, and by comparing them.
"""
