"""LangGraph's own tests, from a checkout of its repository, with our checkpointers in its place."""
