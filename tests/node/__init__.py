"""Threads of the real LangGraph.js: broken there, mended by the command, continued there."""
