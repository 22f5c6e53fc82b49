"""A healed conversation back into bytes, in which every untouched message keeps its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lockstitch.cli.reading import as_text
from lockstitch.conversation.json_text import dump, member_spans, replace_items

if TYPE_CHECKING:
    from lockstitch.cli.reading import Document

_LINE = re.compile(r"^[^\n]*[^\s][^\n]*$", re.MULTILINE)


def encode(document: Document, healed: Any) -> bytes:
    """The bytes of the healed value: the document's own wherever nothing was changed."""
    if healed is document.value:
        return document.data
    text = as_text(document.data)
    if document.lines:
        spans = [match.span() for match in _LINE.finditer(text)]
        woven = replace_items(text, spans, document.value, healed)
    elif isinstance(healed, dict):
        woven = _weave_body(text, document.value, healed)
    else:
        woven = replace_items(text, member_spans(text), document.value, healed)
    return woven.encode("utf-8", "surrogatepass")


def _weave_body(text: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    spans = member_spans(text)
    if len(spans) != len(old) or new.keys() != old.keys():
        return dump(new, indent=2 if "\n" in text.strip() else None)
    for key, (start, end) in reversed(list(zip(old, spans, strict=True))):
        if new[key] is old[key]:
            continue
        part = text[start:end]
        both_lists = isinstance(new[key], list) and isinstance(old[key], list)
        part = (
            replace_items(part, member_spans(part), old[key], new[key])
            if both_lists
            else dump(new[key])
        )
        text = text[:start] + part + text[end:]
    return text
