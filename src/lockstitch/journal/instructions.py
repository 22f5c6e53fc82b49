"""What a model is told before the conversation: the system's and the developer's words.

They are facts of the session: the last one of a role counts, a rewind takes it back, and no
summary stands for it. Some dialects have them at the head of the messages, in others they are a
parameter of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from lockstitch.dialects.profiles import profile_named
from lockstitch.journal.events import Event, Role
from lockstitch.journal.state import View

ROLES: tuple[Role, ...] = get_args(Role)
Read = Callable[[Event], str]


def texts_in(view: View, read: Read) -> dict[Role, str]:
    """Return the instructions in force, by their role; ``read`` gives an event's text."""
    found = {role: read(view.instructions[role]) for role in ROLES if role in view.instructions}
    return {role: text for role, text in found.items() if text}


def leading(texts: dict[Role, str], dialect: str) -> list[Any]:
    """Return the messages that stand before all others; none where instructions go elsewhere."""
    name = profile_named(dialect).dialect
    if name == "langchain":
        return [{"type": "system", "content": text} for text in _joined(texts)]
    if name == "openai-chat":
        return [{"role": _role(role, dialect), "content": text} for role, text in texts.items()]
    if name == "openai-responses":
        return [
            {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
            for role, text in texts.items()
        ]
    return []


def _role(role: Role, dialect: str) -> str:
    """Only OpenAI's own service knows developers."""
    return "system" if ":" in dialect else role


def _joined(texts: dict[Role, str]) -> list[str]:
    return ["\n\n".join(texts.values())] if texts else []


def beside(texts: dict[Role, str], dialect: str) -> Any:
    """Return the value of the parameter that stands beside the messages; None where there is none.

    A text for Anthropic (``system``) and Gemini (``system_instruction``), blocks for Bedrock
    (``system``).
    """
    name = profile_named(dialect).dialect
    if not texts or name not in {"anthropic", "gemini", "bedrock"}:
        return None
    [text] = _joined(texts)
    return [{"text": text}] if name == "bedrock" else text
