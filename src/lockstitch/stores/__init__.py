"""Where journals are kept: SQLite, PostgreSQL, files of lines, memory; all of one shape."""
