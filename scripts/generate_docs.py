"""Write what is made from the code: the reference under docs/, the man page, the list in help.

With --check nothing is written; the exit status is 1 when a file is missing, stale or left over.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import man_page
from reference import api, journal, json_page

from lockstitch.cli import COMMANDS, command, explain
from lockstitch.cli import help as manual
from lockstitch.cli.parser import COMMON

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lockstitch.cli.parser import Command, Option

DOCS = Path(__file__).parent.parent / "docs"
# Every file that matches is generated: one that nothing makes any more is removed.
GENERATED = ("cli.md", "lockstitch.1", "rules/*.md", "reference/**/*.md", "schemas/*.json")
RULES_INTRO = """# Rules

Every finding has one of these codes, and a code never changes its meaning.
`lockstitch explain CODE` prints the same page.
Generated from the rules themselves by `make docs`.
"""
CLI_INTRO = f"""# Command line

{manual.ABOUT}

Exit status: {manual.EXIT_STATUS}

`lockstitch COMMAND --help` prints the same.
Generated from the commands themselves by `make docs`.
"""


MAN_PAGE = DOCS / "lockstitch.1"


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
    rules = explain.all_rules()
    written = {DOCS / "rules" / f"{rule.code}.md": explain.rule_page(rule) for rule in rules}
    table = explain.rule_table(rules, link="[{code}]({code}.md)")
    written[DOCS / "rules" / "README.md"] = f"{RULES_INTRO}\n{table}"
    commands = [command(name) for name in COMMANDS]
    shared = f"## Options of every command\n\n{options(COMMON)}\n"
    written[DOCS / "cli.md"] = "\n".join([CLI_INTRO, shared, *map(usage, commands)])
    written[MAN_PAGE] = man_page.page(commands)
    return written | reference()


def reference() -> dict[Path, str]:
    """The pages on what programs use: public names, JSON documents, events and tables."""
    folder = DOCS / "reference"
    written = {
        folder / path: text for name in api.documented() for path, text in api.pages(name).items()
    }
    written[folder / "json.md"] = json_page.page()
    written[folder / "events.md"] = journal.events_page()
    written[folder / "sql.md"] = journal.sql_page()
    schemas = {DOCS / "schemas" / name: text for name, text in json_page.schemas().items()}
    return written | schemas


def usage(declared: Command) -> str:
    """One command as a section of Markdown."""
    operand = declared.operand
    return "\n".join(
        [
            f"## lockstitch {declared.name}\n",
            f"{declared.summary}\n",
            f"{explain.split_sentences(declared.details)}\n",
            options(declared.options, f"| `{operand.usage}` | {operand.help} |"),
            "\n```sh",
            *declared.examples,
            "```\n",
        ]
    )


def options(declared: Iterable[Option], *rows: str) -> str:
    """Options as a table of Markdown, behind other rows of it."""
    listed = [f"| `{option.usage}` | {option.help} |" for option in declared]
    return "\n".join(["| Argument | Meaning |\n|---|---|", *rows, *listed])


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
