"""Threads of LangGraph's own savers, moved into a store of ours."""
