"""Threads of LangGraph's own savers, copied into a store that ``Saver`` serves."""
