"""The agents that ``lockstitch demo`` kills: one with a session, one with a list of messages."""
