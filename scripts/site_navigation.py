"""The order of the pages of the documentation site; mkdocs calls ``on_config``.

A page that is not listed here fails the build, and so does a listed one that is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

Entry = dict[str, Any]

NAVIGATION: list[Entry] = [
    {"Start": "index.md"},
    {"Tutorial": "tutorial.md"},
    {
        "How to": [
            {"A dead session, back in a minute": "pick.md"},
            {"My Claude Code session is dead": "howto/claude-code.md"},
            {"My LangGraph app": "howto/langgraph.md"},
            {"My own agent loop": "howto/agent-loop.md"},
            {"A fleet on PostgreSQL": "howto/postgresql.md"},
            {"A proxy for a team": "proxy.md"},
            {"Record what a client does": "recording.md"},
            {"Start a client safely": "run.md"},
            {"Watch sessions": "watch.md"},
            {"Look at sessions in a browser": "inspector.md"},
            {"Test against a strict provider": "provider.md"},
            {"Check sessions automatically": "automation.md"},
        ]
    },
    {
        "In depth": [
            {"Sessions on disk": "sessions.md"},
            {"Sessions that cannot break": "journal.md"},
            {"LangGraph": "langgraph.md"},
            {"Lists and requests": "library.md"},
        ]
    },
    {
        "Operations": [
            {"Running it": "operations.md"},
            {"Capacity": "capacity.md"},
        ]
    },
    {
        "Reference": [
            {"Command line": "cli.md"},
            {"lockstitch": ["reference/lockstitch.md"]},
            {"lockstitch.journal": ["reference/journal.md"]},
            {"lockstitch.sessions": ["reference/sessions.md"]},
            {"lockstitch.stored": ["reference/stored.md"]},
            {"lockstitch.integrations.langgraph": ["reference/langgraph.md"]},
            {"lockstitch.testing": ["reference/testing.md"]},
            {"JSON documents": "reference/json.md"},
            {"Events of the journal": "reference/events.md"},
            {"Tables of the stores": "reference/sql.md"},
            {"Rules": ["rules/README.md"]},
        ]
    },
    {
        "Explanation": [
            {"Why sessions break": "explanation/why-sessions-break.md"},
            {"What is on disk after a crash": "explanation/on-disk.md"},
            {"How pairing works": "pairing.md"},
            {"How this is tested": "testing.md"},
            {"Threat model": "security.md"},
        ]
    },
]


def on_config(config: Any) -> Any:
    """Give mkdocs the pages, every rule and every class among them."""
    docs = Path(config["docs_dir"])
    config["nav"] = [_with_generated(entry, docs) for entry in NAVIGATION]
    return config


def _with_generated(entry: Entry, docs: Path) -> Entry:
    """Add the pages that are generated one a rule, or one a class, behind their index."""
    [(title, value)] = entry.items()
    if isinstance(value, str):
        return entry
    if isinstance(value[0], str):
        index = docs / value[0]
        folder = index.parent if index.stem == "README" else index.with_suffix("")
        pages = sorted(path for path in folder.glob("*.md") if path != index)
        return {title: [*value, *({path.stem: str(path.relative_to(docs))} for path in pages)]}
    return {title: [_with_generated(one, docs) for one in value]}
