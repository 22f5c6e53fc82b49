"""Claude Code's sessions: ``~/.claude/projects/<project>/<session>.jsonl``."""
