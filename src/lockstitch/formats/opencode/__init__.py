"""OpenCode's sessions: rows of a database, and the documents that it exports."""
