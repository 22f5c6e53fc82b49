"""What ``lockstitch demo`` shows: an agent killed in mid-tool, with a list and with a session.

``agent`` is the example agent, ``plain`` the same one with a list of messages in a file, and
``stage`` starts them, kills them and looks at what the provider was sent.
"""
