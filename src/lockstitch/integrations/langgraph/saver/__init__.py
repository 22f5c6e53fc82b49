"""The project's own checkpointer for LangGraph."""
