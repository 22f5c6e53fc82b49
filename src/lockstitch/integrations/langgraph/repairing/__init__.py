"""Checkpoints made valid: reconcile, the middleware and the hook."""
