"""Gemini CLI's sessions: one JSON document or lines of JSON a chat."""
