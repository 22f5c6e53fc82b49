"""Findings to plan to edits: the one repair engine."""
