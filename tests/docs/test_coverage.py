"""Everything that a person or a program can use is documented: a name that is not, fails here."""

from __future__ import annotations

import inspect
import json
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest

import lockstitch
from lockstitch.cli import COMMANDS, command
from lockstitch.cli.demo import Act
from lockstitch.journal import events
from lockstitch.provider.service import RequestEntry
from lockstitch.stores.postgres import schema
from tests.docs.pages import DOCS, ROOT
from tests.inprocess import command as run
from tests.sessions import claude

sys.path.insert(0, str(ROOT / "scripts"))

from reference import api, documents

# Commands that go on until they are ended: their own tests know what they print.
SERVING = {"proxy", "ui", "watch"}
# What these print is a struct of ours: its fields are compared instead.
PRINTED_AS = {"provider": (RequestEntry, documents.Request), "demo": (Act, documents.Act)}


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def headings(text: str) -> set[str]:
    return set(re.findall(r"^#+ (.+)$", text, re.MULTILINE))


# The command line


def undocumented_options(help_text: str, section: str) -> set[str]:
    """The options that help shows and a page does not."""
    flags = set(re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", help_text, re.IGNORECASE))
    return {flag for flag in flags if flag not in section}


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (?:lockstitch )?(.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    found = sections(page("cli.md"))
    help_text = run(name, "--help").stdout.decode()
    assert help_text
    text = found[name] + found["Options of every command"]
    declared = {flag for option in command(name).options for flag in option.flags}
    assert undocumented_options(" ".join(declared), text) == set()
    usage = help_text.partition("\nExamples")[0]
    assert undocumented_options(usage, text + page("cli.md").partition("##")[0]) == set()


def test_the_options_of_the_command_itself_are_documented() -> None:
    help_text = run("--help").stdout.decode()
    assert undocumented_options(help_text, page("cli.md")) == set()


def test_a_missing_option_is_noticed() -> None:
    assert undocumented_options("-y, --yes  --planted X", "`--yes, -y`") == {"--planted"}


# Public names


def undocumented_names(module: Any, text: str) -> set[str]:
    """The public names, methods and fields of a module that a page does not have."""
    known = headings(text)
    wanted = set(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value):
            wanted |= {f"{name}.{member}" for member, _ in api.members_of(value)}
            wanted |= {f"`{field}`" for field, _, _ in api.fields_of(value)}
    return {one for one in wanted if one not in known and f"| {one} |" not in text}


def pages_of(name: str) -> str:
    """The page of a module, and those of its classes."""
    index = DOCS / "reference" / api.MODULES[name][0]
    return "\n".join(
        path.read_text("utf-8") for path in [index, *index.with_suffix("").glob("*.md")]
    )


@pytest.mark.parametrize("name", api.documented())
def test_every_public_name_and_method_is_documented(name: str) -> None:
    module = api.documented()[name]
    text = pages_of(name)
    assert undocumented_names(module, text) == set()
    others = {one.__name__ for one in api.returned_by(module)}
    assert others - headings(text) == set(), "types that are returned"


def test_a_missing_name_or_method_is_noticed() -> None:
    class Planted(lockstitch.Reader):
        """A class with one method more."""

        __module__ = "lockstitch.planted"

        def grow(self) -> None:
            """Grow."""

    module = SimpleNamespace(__all__=["Reader", "Planted"], Reader=Planted, Planted=Planted)
    missing = undocumented_names(module, pages_of("lockstitch"))
    assert {"Planted", "Planted.grow", "Reader.grow"} <= missing
    assert "Reader.request" not in missing


def test_every_package_of_the_reference_is_there() -> None:
    assert {"lockstitch", "lockstitch.sessions", "lockstitch.stored"} <= set(api.documented())
    assert all(isinstance(module, ModuleType) for module in api.documented().values())


# Rules, events, tables


def test_every_rule_is_documented() -> None:
    index = page("rules/README.md")
    for code, rule in lockstitch.RULES.items():
        assert f"[{code}]({code}.md) | {rule.name}" in index
        assert page(f"rules/{code}.md").startswith(f"# {code} {rule.name}\n")


def undocumented_events(kinds: Iterable[type], text: str) -> set[str]:
    found = sections(text)
    missing = {kind.__name__ for kind in kinds if kind.__name__ not in found}
    shared = found["Event"]
    for kind in kinds:
        text = found.get(kind.__name__, "") + shared
        fields = {field for field, _, _ in api.fields_of(kind)}
        missing |= {f"{kind.__name__}.{field}" for field in fields if f"| `{field}` |" not in text}
    return missing


def test_every_event_is_documented() -> None:
    kinds = (*get_args(events.AnyEvent), events.Unknown, events.Event)
    assert undocumented_events(kinds, page("reference/events.md")) == set()


def test_a_missing_event_is_noticed() -> None:
    class Planted(events.Event, frozen=True, kw_only=True):
        """An event that nobody wrote about."""

        colour: str = ""

    missing = undocumented_events([Planted], page("reference/events.md"))
    assert missing == {"Planted", "Planted.colour"}


def test_every_table_and_column_is_documented(tmp_path: Path) -> None:
    text = page("reference/sql.md")
    with lockstitch.open(f"sqlite:///{tmp_path}/a.db"):
        pass
    base = sqlite3.connect(tmp_path / "a.db")
    rows = base.execute(
        "select m.name, x.name from sqlite_master m, pragma_table_xinfo(m.name) x"
        " where m.type = 'table' and m.name not like 'sqlite%'"
    ).fetchall()
    base.close()
    assert rows
    for table, column in rows:
        assert re.search(rf"table {table} ", text), table
        assert re.search(rf"\b{column}\b", text), column
    for table in schema.TABLES:
        assert f"lockstitch.{table} " in text


# JSON


def undocumented(name: str, printed: Any) -> str:
    """What is wrong with a document, by the classes that describe it; "" if nothing is."""
    problems = []
    for kind in (*documents.DOCUMENTS[name], documents.Failed):
        try:
            msgspec.convert(printed, kind)
        except msgspec.ValidationError as error:
            problems.append(f"{kind.__name__}: {error}")
        else:
            return ""
    return f"describe it in scripts/reference/documents.py: {problems}"


def test_every_command_with_json_has_a_document() -> None:
    takers = {
        name
        for name in COMMANDS
        if any("--json" in option.flags for option in command(name).options)
    }
    assert takers - set(documents.DOCUMENTS) == set()
    assert set(documents.DOCUMENTS) - takers == {"every command"}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What the commands print with --json on small sessions, by command."""
    folder = tmp_path_factory.mktemp("json")
    _fill(folder)
    found: dict[str, list[Any]] = {}
    for words in map(str.split, SCENARIO.strip().splitlines()):
        if words[0] not in COMMANDS:
            continue
        done = run(*words, "--json", cwd=folder)
        assert done.returncode in (0, 1, 2), done.stderr
        found.setdefault(words[0], []).append(json.loads(done.stdout))
    return found


SCENARIO = """
scan .
check session.jsonl request.json nothing.json sqlite:///agent.db unknown.json
check session.jsonl request.json --statistics
repair session.jsonl nothing.json
repair session.jsonl --yes
undo --list session.jsonl
backups session.jsonl
undo session.jsonl --yes
undo nothing.jsonl --yes
heal request.json
compact session.jsonl --budget 200 --yes
compact sqlite:///agent.db --session ticket-42 --diff
checkpoints sqlite:///agent.db --session ticket-42
fork sqlite:///agent.db copy --session ticket-42
rewind sqlite:///agent.db --session ticket-42 --to 1 --yes
search test sqlite:///agent.db
search test session.jsonl nothing.jsonl
migrate sqlite:///agent.db jsonl:///lines
migrate sqlite:///agent.db jsonl:///lines
import session.jsonl sqlite:///agent.db
import request.json sqlite:///agent.db
retain sqlite:///agent.db --keep 1 --yes
delete sqlite:///agent.db --session copy --reason asked --yes
retain sqlite:///agent.db --audit
retain sqlite:///agent.db --older-than 90d --dry-run
vacuum sqlite:///agent.db
explain LS101
explain
explain LS000
"""


def _fill(folder: Path) -> None:
    """Make the sessions of the scenario: files, a list, and a store."""
    (folder / "session.jsonl").write_text(claude.broken(), "utf-8")
    call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
    messages = [
        {"role": "user", "content": "Fix the test"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "?"}]},
    ]
    (folder / "request.json").write_text(json.dumps({"messages": messages}), "utf-8")
    (folder / "unknown.json").write_text('{"colour": "red"}', "utf-8")
    with lockstitch.open(f"sqlite:///{folder}/agent.db") as store:
        for name in ("ticket-42", "ticket-43"):
            with store.session(name) as session:
                session.say("Fix the test")
                session.record({"role": "assistant", "content": [call]}, "anthropic")
                session.checkpoint("here")


def _fields(kind: type[msgspec.Struct]) -> Iterator[str]:
    yield from kind.__struct_fields__


def test_every_json_field_is_documented(printed: dict[str, list[Any]]) -> None:
    wrong = [
        (name, problem)
        for name, found in printed.items()
        for one in found
        if (problem := undocumented(name, one))
    ]
    assert wrong == []


def test_every_document_was_printed(printed: dict[str, list[Any]]) -> None:
    missing = set(documents.DOCUMENTS) - set(printed) - {"every command"}
    assert missing - SERVING == set(PRINTED_AS)


@pytest.mark.parametrize("name", PRINTED_AS)
def test_the_structs_that_are_printed_are_documented(name: str) -> None:
    printed, described = PRINTED_AS[name]
    assert set(_fields(printed)) == set(_fields(described))


def test_a_missing_field_is_noticed(printed: dict[str, list[Any]]) -> None:
    [document, *_] = printed["check"]
    assert undocumented("check", document) == ""
    first, *rest = document["sessions"]
    planted = {**document, "sessions": [{**first, "planted": 1}, *rest]}
    assert "planted" in undocumented("check", planted)


def test_the_page_and_the_schemas_name_every_field() -> None:
    text = page("reference/json.md")
    for kinds in documents.DOCUMENTS.values():
        for kind in kinds:
            assert f"### {kind.__name__}\n" in text
            for field in msgspec.structs.fields(kind):
                assert f"| `{field.encode_name}`" in text


def test_what_is_printed_fits_the_published_schemas(printed: dict[str, list[Any]]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    folder = DOCS / "schemas"
    published = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    by_title = {one["title"]: one for one in published}
    for name, found in printed.items():
        kinds = (*documents.DOCUMENTS[name], documents.Failed)
        checkers = [jsonschema.Draft202012Validator(by_title[kind.__name__]) for kind in kinds]
        assert all(any(check.is_valid(one) for check in checkers) for one in found), name
