"""One package a wire format: everything that knows its spelling, and nothing else does.

``profiles`` finds a dialect by its name; these are the names.
"""

ANTHROPIC = "anthropic"
OPENAI_CHAT = "openai-chat"
OPENAI_RESPONSES = "openai-responses"
GEMINI = "gemini"
BEDROCK = "bedrock"
LANGCHAIN = "langchain"
