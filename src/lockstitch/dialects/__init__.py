"""One package per wire format: it holds everything that knows the format's spelling.

``profiles`` finds a dialect by its name; the names are here.
"""

ANTHROPIC = "anthropic"
OPENAI_CHAT = "openai-chat"
OPENAI_RESPONSES = "openai-responses"
GEMINI = "gemini"
BEDROCK = "bedrock"
LANGCHAIN = "langchain"
