"""The JSON documents of the commands as a page, and as JSON schemas."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from reference.documents import DOCUMENTS
from reference.markdown import table

INTRO = """# JSON documents

Every command that has `--json` prints one document on standard output, and everything else on
standard error. `provider --json` prints one document a line. `show` and `export` print no such
document: what they print is the session itself.

`version` is 1. Fields may be added to any document, so a program should ignore those it does not
know. A field is removed, or changes its meaning, only with another `version`.

A *place* is a line number or a row, then the path inside it: `12.message.content.0`,
`part.prt_01.state`, `messages.4.content.0`. No document contains message content unless its
description says so.

Each document has a JSON schema, for a validator or a code generator.
Generated from the code by `make docs`; tests compare it with what the commands really print."""
_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false"}


def schemas() -> dict[str, str]:
    """The JSON schema of every document, by the name of its file."""
    return {
        f"{_slug(kind.__name__)}.json": _encoded(_open(msgspec.json.schema(kind)), kind)
        for kinds in DOCUMENTS.values()
        for kind in kinds
    }


def _encoded(schema: Any, kind: type) -> str:
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": kind.__name__}
    return json.dumps(whole | schema, indent=2, ensure_ascii=False) + "\n"


def _open(schema: Any) -> Any:
    """Let a schema pass fields that it does not know: later versions may add some."""
    if isinstance(schema, dict):
        return {k: _open(v) for k, v in schema.items() if k != "additionalProperties"}
    return [_open(one) for one in schema] if isinstance(schema, list) else schema


def page() -> str:
    """Write the page."""
    kinds = [kind for kinds in DOCUMENTS.values() for kind in kinds]
    _, parts = msgspec.json.schema_components(kinds, ref_template="{name}")
    documents = {kind.__name__ for kind in kinds}
    shared = sorted(set(parts) - documents)
    sections = [INTRO]
    described: set[str] = set()
    for command, printed in DOCUMENTS.items():
        sections.append(f"## {command}")
        for name in (kind.__name__ for kind in printed):
            again = f"[{name}](#{name.lower()}), as above."
            sections.append(again if name in described else _section(parts[name], name, 3))
            described.add(name)
    sections.append("## Parts of documents")
    sections += [_section(parts[name], name, 3) for name in shared]
    return "\n\n".join(sections) + "\n"


def _section(schema: dict[str, Any], name: str, level: int) -> str:
    is_document = "version" in schema["properties"]
    link = f"\n\n[JSON schema](../schemas/{_slug(name)}.json)" if is_document else ""
    required = set(schema.get("required", ()))
    rows = [
        [
            f"`{field}`" + ("" if field in required else " (optional)"),
            _kind(of),
            of.get("description", "The version of the document." if field == "version" else ""),
        ]
        for field, of in schema["properties"].items()
    ]
    head = f"{'#' * level} {name}\n\n{schema['description']}{link}"
    return f"{head}\n\n{table(['Field', 'Type', 'Meaning'], rows)}"


def _kind(of: dict[str, Any]) -> str:
    if "$ref" in of:
        return f"[{of['$ref']}](#{of['$ref'].lower()})"
    if "enum" in of:
        return ", ".join(f"`{json.dumps(value)}`" for value in of["enum"])
    if "anyOf" in of:
        return " or ".join(_kind(one) for one in of["anyOf"])
    if of.get("type") == "array":
        return f"list of {_kind(of.get('items', {})) or 'values'}"
    if of.get("type") == "null":
        return "null"
    return _TYPES.get(of.get("type", ""), "any value")


def _slug(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
