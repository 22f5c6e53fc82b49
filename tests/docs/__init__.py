"""Documentation and examples that cannot go stale."""
