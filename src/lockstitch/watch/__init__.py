"""Sessions checked while their programs write them: only what was appended is read."""
