"""The shape of the source itself: who may import whom, whose words stand where, what is public."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lockstitch
from lockstitch.formats.interface import NAMES
from tests.together import Together

SOURCE = Path(lockstitch.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
# A room imports from the floors below it, never from above and never from its own floor.
# Imports inside functions count.
FLOORS = (
    {"errors"},
    {"conversation"},
    {"dialects"},
    {"rules"},
    {"repair"},
    {"heal"},
    {"files", "journal", "redaction"},
    {"compaction", "stores"},
    {"session"},
    {""},
    {"formats"},
    {"sources"},
    {"sessions", "stored"},
    {"provider", "transcript"},
    {"inspector", "integrations", "proxy", "testing", "watch"},
    {"launch"},
    {"demo"},
    {"cli"},
    {"__main__"},
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# No module stands at the root of the package but these.
ROOT = {"__init__", "__main__", "errors", "heal", "testing"}
PUBLIC = [
    "Abort",
    "About",
    "AmbiguousDialect",
    "AsyncReader",
    "AsyncSession",
    "AsyncStream",
    "Audited",
    "Busy",
    "Call",
    "Change",
    "Checkpoint",
    "Closed",
    "CompactOptions",
    "Compaction",
    "Conflict",
    "Copy",
    "Cost",
    "CurrentCall",
    "Damaged",
    "Deleted",
    "Edit",
    "Event",
    "Fact",
    "Fenced",
    "Finding",
    "Following",
    "Head",
    "Held",
    "Later",
    "Listed",
    "LockstitchError",
    "Match",
    "Moved",
    "Note",
    "Opening",
    "Place",
    "Plan",
    "Quarantined",
    "RULES",
    "Reader",
    "Recovered",
    "Removal",
    "RepairedMessage",
    "RepairedPart",
    "Result",
    "Retention",
    "Rule",
    "Salvage",
    "Salvaged",
    "Session",
    "Spared",
    "Spent",
    "Store",
    "Stream",
    "Taken",
    "Tokens",
    "Tool",
    "Turn",
    "Unhealed",
    "Unmet",
    "Unreadable",
    "Unsure",
    "Usage",
    "UsageError",
    "__version__",
    "check",
    "current_call",
    "detect",
    "explain",
    "handle_sigterm",
    "heal",
    "open",
    "plan",
]
# What the codebases we look up to keep to (p99 of a function is 60 to 90 lines there).
LONGEST_FUNCTION = 90
LONGEST_MODULE = 700
COMMENTS = (0.01, 0.06)
# Only a dialect's own package, and the rules, know a wire format by its name. Elsewhere the name is
# a constant of `lockstitch.dialects`, which says who depends on it.
DIALECTS = {"anthropic", "openai-chat", "openai-responses", "gemini", "bedrock", "langchain"}
KNOW_DIALECTS = {"dialects", "rules"}
# Something else of the same name: a vendor, a program, a package, a service, a record's type; and
# the example that people copy from `demo`.
SAME_WORD = {
    "lockstitch.demo.agent",
    "lockstitch.formats.gemini_cli",
    "lockstitch.formats.gemini_cli.write_back",
    "lockstitch.formats.opencode.history",
    "lockstitch.integrations.langgraph",
    "lockstitch.launch",
}
# Only a program's package knows the program. Rules say for which programs they hold, and `launch`
# is about starting programs.
PROGRAMS = {*NAMES} - {"langgraph", "list", "requests"}
KNOW_PROGRAMS = {"formats", "rules", "launch"}
# Whose words a placeholder is, and which package is loaded for a format.
NAME_PROGRAMS = {"lockstitch.dialects.placeholders"}

each = Together()


def name_of(path: Path) -> str:
    """The dotted name of a module: ``lockstitch.rules.rule``."""
    steps = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(steps[:-1] if steps[-1] == "__init__" else steps)


MODULES = {name_of(path): path for path in FILES}


def room_of(module: str) -> str:
    """The package or top module of ours that a module belongs to; "" for the package itself."""
    steps = module.split(".")
    return steps[1] if len(steps) > 1 else ""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _for_types_only(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def statements(node: ast.AST, *, later: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports below a node; with ``later`` those for types and inside functions, too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif later or not (_for_types_only(child) or isinstance(child, ast.FunctionDef)):
            yield from statements(child, later=later)


def imported(path: Path, *, later: bool = True) -> set[str]:
    """The modules a module imports; a name taken from a package counts as the module it is."""
    found: set[str] = set()
    for node in statements(tree_of(path), later=later):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
            continue
        assert not node.level, f"{path}: relative imports hide the direction"
        module = node.module or ""
        inner = {f"{module}.{alias.name}" for alias in node.names}
        modules = inner & set(MODULES)
        found |= modules
        if modules != inner:
            found.add(module)
    return found


def ours(modules: set[str]) -> set[str]:
    return {module for module in modules if module.split(".")[0] == "lockstitch"}


def foreign(modules: set[str]) -> set[str]:
    """The third-party packages among some modules."""
    roots = {module.split(".")[0] for module in modules}
    return roots - set(sys.stdlib_module_names) - {"lockstitch"}


@each.check
def nothing_is_imported_from_above(module: str) -> None:
    room = room_of(module)
    others = {name for name in ours(imported(MODULES[module])) if room_of(name) != room}
    assert {name for name in others if FLOOR[room_of(name)] >= FLOOR[room]} == set()


@each.check
def only_the_command_line_imports_the_command_line(module: str) -> None:
    if room_of(module) not in ("cli", "__main__"):
        assert not any(room_of(name) == "cli" for name in imported(MODULES[module]))


@each.check
def third_parties_are_few(module: str) -> None:
    extra = {
        "inspector": {"aiohttp"},
        "provider": {"aiohttp", "pytest"},
        "proxy": {"aiohttp", "yarl", "zstandard"},
        "testing": {"pytest"},
        "watch": {"watchfiles"},
        "compaction": {"anyio"},
        "session": {"anyio"},
        "files": {"zstandard"},
        "formats": {"psycopg"},
        "integrations": {"anyio", "langchain", "langchain_core", "langgraph", "ormsgpack"},
        "stores": {"psycopg"},
    }
    allowed = {"msgspec"} | extra.get(room_of(module), set())
    assert foreign(imported(MODULES[module])) <= allowed


def test_no_module_needs_itself() -> None:
    needs = {name: ours(imported(path)) - {name} for name, path in MODULES.items()}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(f"these modules import each other in a circle: {error.args[1]}")


def test_only_a_few_modules_stand_at_the_root() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == ROOT


def test_no_class_name_is_used_twice() -> None:
    places = defaultdict(list)
    for module, path in MODULES.items():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(f"{module}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def constants(path: Path) -> set[str]:
    """The texts in a module's code."""
    nodes = ast.walk(tree_of(path))
    return {one.value for one in nodes if isinstance(one, ast.Constant) and type(one.value) is str}


@each.check
def only_dialects_know_their_names(module: str) -> None:
    if room_of(module) not in KNOW_DIALECTS and module not in SAME_WORD:
        assert constants(MODULES[module]) & DIALECTS == set()


@each.check
def only_formats_know_their_programs(module: str) -> None:
    if room_of(module) not in KNOW_PROGRAMS and module not in NAME_PROGRAMS:
        assert constants(MODULES[module]) & PROGRAMS == set()


def loaded(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after a statement."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"],
        capture_output=True,
        check=True,
        text=True,
        timeout=600,
    )
    return set(done.stdout.split())


def test_the_library_loads_no_third_party_but_msgspec() -> None:
    found = loaded("import lockstitch")
    assert {"lockstitch.heal", "msgspec"} <= found
    # What msgspec loads itself, and what the environment loads at every start, is not ours.
    assert foreign(found) <= foreign(loaded("import msgspec"))


def test_the_library_does_not_load_the_command_line() -> None:
    assert not any(name.startswith("lockstitch.cli") for name in loaded("import lockstitch"))


def test_the_command_line_loads_no_third_party_but_msgspec() -> None:
    found = loaded("from lockstitch.cli import check, demo, explain, heal, parser, repair, scan")
    assert {"lockstitch.cli.heal", "argparse"} <= found
    assert foreign(found) <= foreign(loaded("import msgspec"))


def test_the_public_names_are_these() -> None:
    assert sorted(lockstitch.__all__) == PUBLIC
    assert all(hasattr(lockstitch, name) for name in PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_explained(name: str) -> None:
    value = getattr(lockstitch, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        # Own words: a class without a docstring would show its base's.
        assert (value.__doc__ or "").strip()
        assert inspect.isfunction(value) or "__doc__" in vars(value)


@pytest.mark.parametrize("name", [name for name in PUBLIC if name[0].isupper()])
def test_every_public_method_is_explained(name: str) -> None:
    value = getattr(lockstitch, name)
    members = vars(value) if inspect.isclass(value) else {}
    bare = [
        member
        for member, what in members.items()
        if not member.startswith("_")
        and (inspect.isfunction(what) or isinstance(what, property))
        and not what.__doc__
    ]
    assert bare == []


@each.check
def every_module_is_explained(module: str) -> None:
    path = MODULES[module]
    assert ast.get_docstring(tree_of(path))


@each.check
def no_module_is_too_long(module: str) -> None:
    assert len(MODULES[module].read_text("utf-8").splitlines()) <= LONGEST_MODULE


@each.check
def no_function_is_too_long(module: str) -> None:
    long = {
        node.name: lines
        for node in ast.walk(tree_of(MODULES[module]))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION
    }
    assert long == {}


@pytest.mark.parametrize("module", MODULES)
def test_every_module(module: str) -> None:
    each.made(module)


def test_comments_are_few() -> None:
    lines = [line.strip() for path in FILES for line in path.read_text("utf-8").splitlines()]
    comments = sum(line.startswith("#") for line in lines)
    least, most = COMMENTS
    assert least < comments / len(lines) < most
