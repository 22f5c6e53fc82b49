"""Compaction: what is sent of a session that grew too long."""
