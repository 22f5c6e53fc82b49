"""Compaction: where to cut a conversation, what to keep, and how to summarize the rest."""
