"""A guard before any checkpointer: its claims, its runs, its forks."""
