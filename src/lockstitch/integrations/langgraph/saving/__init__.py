"""Our own checkpointer: threads kept as journals."""
