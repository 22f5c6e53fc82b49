"""Looking into messages of any form as text."""

from __future__ import annotations

import json
from typing import Any


def dump(value: Any) -> str:
    """*value* as ASCII JSON text, objects of LangChain and msgspec included."""
    return json.dumps(value, default=_plain, ensure_ascii=True)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if hasattr(value, "__struct_fields__"):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return repr(value)
