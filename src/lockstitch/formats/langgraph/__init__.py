"""LangGraph's checkpoint databases, read structurally: nothing is imported by name or unpickled."""
