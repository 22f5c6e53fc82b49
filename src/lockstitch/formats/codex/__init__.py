"""Codex's sessions: ``~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl``."""
