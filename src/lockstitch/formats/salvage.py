"""What can still be read of JSON that was cut off or damaged: the texts that were said in it."""

from __future__ import annotations

import json
import re

_TEXT = re.compile(r'"text"\s*:\s*"((?:[^"\\]|\\.)*)("?)', re.DOTALL)
_LOST = "[lockstitch] What was stored here could not be read; it is kept in the backup."
_RESCUED = "[lockstitch] What was stored here was damaged; this could be read of it:"


def substitute(raw: str) -> str:
    """Give the text that stands in for an unreadable value, with what could be read of it."""
    texts = [unescaped(match[1]) for match in _TEXT.finditer(raw)]
    found = "\n".join(text for text in texts if text.strip())
    return f"{_RESCUED}\n{found}" if found else _LOST


def unescaped(text: str) -> str:
    """Return what a JSON string says, by its inside; at its end an escape may be cut off."""
    for cut in range(min(len(text), 6) + 1):
        try:
            found: str = json.loads(f'"{text[: len(text) - cut]}"', strict=False)
        except ValueError:
            continue
        return found.encode("utf-8", "replace").decode()
    return ""
