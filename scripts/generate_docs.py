"""Write the reference under docs/ from the code: commands, public names, rules, JSON, events, SQL.

With --check nothing is written; the exit status is 1 when a file is missing, stale or left over.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from reference import api, journal, json_page

from lockstitch.cli import COMMANDS, command, explain, manual

if TYPE_CHECKING:
    from lockstitch.cli.arguments import Command, Option

DOCS = Path(__file__).parent.parent / "docs"
# Every file that matches is generated: one that nothing makes any more is removed.
GENERATED = ("cli.md", "rules/*.md", "reference/*.md", "schemas/*.json")
RULES_INTRO = """# Rules

Every finding has one of these codes, and a code never changes its meaning.
`lockstitch explain CODE` prints the same page.
Generated from the rules themselves by `make docs`.
"""
CLI_INTRO = f"""# Command line

{manual.ABOUT}

`lockstitch COMMAND --help` prints the same.
Generated from the commands themselves by `make docs`.
"""


def main() -> int:
    """Write the files, or with --check say which ones would change."""
    wanted = pages()
    found = {path for pattern in GENERATED for path in DOCS.glob(pattern)}
    stale = sorted(path for path in found | wanted.keys() if current(path) != wanted.get(path))
    for path in stale:
        print(f"{'stale' if '--check' in sys.argv else 'writing'}: {path.relative_to(DOCS.parent)}")
    if "--check" in sys.argv:
        return 1 if stale else 0
    for path in stale:
        replace(path, wanted.get(path))
    return 0


def pages() -> dict[Path, str]:
    """Every generated file with its content."""
    rules = explain.catalogue()
    written = {DOCS / "rules" / f"{rule.code}.md": explain.page(rule) for rule in rules}
    table = explain.index(rules, link="[{code}]({code}.md)")
    written[DOCS / "rules" / "README.md"] = f"{RULES_INTRO}\n{table}"
    commands = [usage(command(name)) for name in COMMANDS]
    written[DOCS / "cli.md"] = "\n".join([CLI_INTRO, *commands])
    return written | reference()


def reference() -> dict[Path, str]:
    """The pages on what programs use: public names, JSON documents, events and tables."""
    folder = DOCS / "reference"
    written = {folder / api.MODULES[name][0]: api.page(name) for name in api.documented()}
    written[folder / "json.md"] = json_page.page()
    written[folder / "events.md"] = journal.events_page()
    written[folder / "sql.md"] = journal.sql_page()
    schemas = {DOCS / "schemas" / name: text for name, text in json_page.schemas().items()}
    return written | schemas


def _value_of(option: Option) -> str:
    if option.implied:
        return f"[={option.metavar}]"
    return f" {option.metavar}" if option.metavar else ""


def usage(declared: Command) -> str:
    """One command as a section of Markdown."""
    dots = "..." if declared.operand.many else ""
    rows = [f"| `[{declared.operand.metavar}]{dots}` | {declared.operand.help} |"]
    rows += [
        f"| `{', '.join(option.flags)}{_value_of(option)}` | {option.help} |"
        for option in declared.options
    ]
    return "\n".join(
        [
            f"## lockstitch {declared.name}\n",
            f"{declared.summary}\n",
            f"{explain.sentences(declared.details)}\n",
            "| Argument | Meaning |\n|---|---|",
            *rows,
            "\n```sh",
            *declared.examples,
            "```\n",
        ]
    )


def current(path: Path) -> str | None:
    """What the file holds now; None when there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else None


def replace(path: Path, content: str | None) -> None:
    """Write the file, or remove one that nothing generates any more."""
    if content is None:
        path.unlink()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
