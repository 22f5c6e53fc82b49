"""The public names of a module as a page: signatures, docstrings, fields, methods."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import msgspec

import lockstitch
from reference.markdown import prose, table

# The modules of the reference: the page, its title, and what it is for.
MODULES = {
    "lockstitch": (
        "lockstitch.md",
        "The library",
        "What `import lockstitch` gives. Everything here can be imported from `lockstitch`. "
        "[Lists and requests](../library.md) and [Sessions that cannot break](../journal.md) "
        "show how it is used.",
    ),
    "lockstitch.journal": (
        "journal.md",
        "What a journal holds",
        "The types of event, and the state that the events of a session add up to. "
        "[Events](events.md) says how each of them is written.",
    ),
    "lockstitch.sessions": (
        "sessions.md",
        "Sessions of other programs",
        "What the commands `scan`, `check`, `repair`, `undo`, `compact` and `search` do to the "
        "sessions of other programs, from Python. [Sessions on disk](../sessions.md) shows how it "
        "is used.",
    ),
    "lockstitch.stored": (
        "stored.md",
        "Stores from outside",
        "What the commands do with a Lockstitch store that none of your programs has open. "
        "A target is the address of a store or its path. An agent itself uses `lockstitch.open`.",
    ),
    "lockstitch.integrations.langgraph": (
        "langgraph.md",
        "LangGraph",
        "Checkpointers, middleware and repair for LangGraph. Needs "
        "`pip install 'lockstitch[langgraph]'`. [LangGraph](../langgraph.md) shows how it is used.",
    ),
    "lockstitch.testing": (
        "testing.md",
        "For your own tests",
        "Tools for the tests of your agent.",
    ),
}
# Names that are neither functions nor classes say nothing about themselves.
CONSTANTS = {
    "RULES": "Every rule by its code.",
    "__version__": "The version of this package, as text.",
    "BUDGET": "The number of tokens that a compaction aims at by default.",
    "COPY": "The end of an error message: what to do instead, on the command line.",
    "DAMAGED": "The code of a finding for damaged records.",
    "LANGCHAIN": "The dialect of LangGraph threads in a store.",
}
_Member = property | Any


def documented() -> dict[str, ModuleType]:
    """The modules of the reference that exist here, by name."""
    return {name: import_module(name) for name in MODULES if find_spec(name)}


def pages(name: str) -> dict[str, str]:
    """Write the page of a module and one for each of its classes, by path under reference/."""
    module = import_module(name)
    file, title, intro = MODULES[name]
    folder = file.removesuffix(".md")
    names = names_of(module)
    others = sorted(returned_by(module), key=lambda one: one.__name__)
    parts = [
        f"# {title}: `{name}`",
        # The links of an introduction are those of a page in docs/reference.
        prose(intro),
        "Generated from the code by `make docs`.",
        _overview(module, names, folder),
    ]
    if others:
        rows = [
            [f"[`{one.__name__}`]({folder}/{one.__name__}.md)", _first_sentence(one.__doc__)]
            for one in others
        ]
        lead = (
            "## Internal types\n\nFunctions and methods also return these, for whoever adds a "
            "format or a store. They are internal, and may change in any version."
        )
        parts.append(f"{lead}\n\n{table(['Name', 'What it is'], rows)}")
    classes = {one: getattr(module, one) for one in names if inspect.isclass(getattr(module, one))}
    parts += [entry(one, getattr(module, one)) for one in names if one not in classes]
    written = {file: "\n\n".join(parts) + "\n"}
    for one, value in classes.items():
        written[f"{folder}/{one}.md"] = _class_page(one, value, name, folder)
    for value in others:
        written[f"{folder}/{value.__name__}.md"] = _class_page(
            value.__name__, value, value.__module__, folder
        )
    return written


def _class_page(name: str, value: type, home: str, folder: str) -> str:
    """Write the page of one class: where it is imported from, and all that belongs to it."""
    back = f"Part of [the reference](../{folder}.md). Generated from the code by `make docs`."
    code = f"```python\nfrom {home} import {name}\n```"
    return "\n\n".join([f"# {name}", code, *_class(name, value), back]) + "\n"


def _first_sentence(doc: str | None) -> str:
    return prose(doc).partition("\n")[0]


def _overview(module: ModuleType, names: list[str], folder: str) -> str:
    """List the names with the first sentence of each; a class has a page of its own."""
    rows = []
    for name in names:
        value = getattr(module, name)
        is_made = inspect.isroutine(value) or inspect.isclass(value)
        about = _first_sentence(value.__doc__) if is_made else CONSTANTS[name]
        link = f"{folder}/{name}.md" if inspect.isclass(value) else f"#{name.lower().strip('_')}"
        rows.append([f"[`{name}`]({link})", about])
    return table(["Name", "What it is"], rows)


def names_of(module: ModuleType) -> list[str]:
    """The public names of a module: functions first, then classes, then errors, then values."""
    return sorted(module.__all__, key=lambda one: (_rank(getattr(module, one)), one.lower()))


def _rank(value: object) -> int:
    if inspect.isroutine(value):
        return 0
    if not inspect.isclass(value):
        return 3
    return 2 if issubclass(value, Exception) else 1


def entry(name: str, value: Any) -> str:
    """Write one function or constant."""
    if inspect.isroutine(value):
        code = f"```python\n{signature(name, value)}\n```"
        return "\n\n".join([f"## {name}", code, prose(value.__doc__)])
    return "\n\n".join([f"## {name}", CONSTANTS[name]])


def _class(public: str, value: type) -> Iterator[str]:
    bases = [base.__name__ for base in value.__bases__ if base not in (object, msgspec.Struct)]
    if issubclass(value, Exception):
        yield f"Is a {' and a '.join(f'`{base}`' for base in bases)}."
    yield prose(value.__doc__)
    rows = [[f"`{name}`", f"`{kind}`", default] for name, kind, default in fields_of(value)]
    if rows:
        yield table(["Field", "Type", "Default"], rows)
    for name, member in members_of(value):
        yield f"## {public}.{name}\n\n{_member(name, member, value)}"


def _member(name: str, member: _Member, owner: type) -> str:
    if isinstance(member, property) or not inspect.isfunction(member):
        getter = member.fget if isinstance(member, property) else getattr(member, "func", None)
        kind = ""
        if getter is not None:
            returns = getter.__annotations__.get("return", "")
            kind = _annotation(returns, sys.modules[getter.__module__])
        return f"```python\n{name}: {kind}\n```\n\n{prose(getattr(getter, '__doc__', ''))}"
    described = _contract(name, owner) or "As LangGraph's `BaseCheckpointSaver` has it."
    return f"```python\n{signature(name, member)}\n```\n\n{described}"


def _contract(name: str, owner: type) -> str:
    """Return what we say of a method, on its class or on a base of ours; never another's words."""
    for base in owner.__mro__:
        doc = getattr(vars(base).get(name), "__doc__", None)
        if doc and base.__module__.partition(".")[0] == "lockstitch":
            return prose(doc)
    return ""


def fields_of(value: type) -> list[tuple[str, str, str]]:
    """Return the fields of a struct, a dataclass or a typed dictionary: name, type and default."""
    if issubclass(value, msgspec.Struct):
        names, defaults = value.__struct_fields__, value.__struct_defaults__
        filled = [msgspec.NODEFAULT] * (len(names) - len(defaults)) + [*defaults]
        return [
            (name, _shown(value, name), _default(default, getattr(default, "factory", None)))
            for name, default in zip(names, filled, strict=True)
        ]
    if typing.is_typeddict(value):
        return [(name, _shown(value, name), "left out") for name in value.__annotations__]
    if dataclasses.is_dataclass(value):
        return [
            (one.name, _shown(value, one.name), _default(one.default, one.default_factory))
            for one in dataclasses.fields(value)
            if not one.name.startswith("_")
        ]
    return []


def _shown(value: type, name: str) -> str:
    for base in value.__mro__:
        if name in getattr(base, "__annotations__", {}):
            return _annotation(base.__annotations__[name], sys.modules[base.__module__])
    return ""


def _default(default: Any, factory: Any) -> str:
    if factory is not None and factory is not dataclasses.MISSING:
        return f"`{_value(factory())}`"
    is_missing = default is msgspec.NODEFAULT or default is dataclasses.MISSING
    return "" if is_missing else f"`{_value(default)}`"


def _value(default: Any) -> str:
    """Write a default so that it is the same in every run."""
    if isinstance(default, msgspec.Raw):
        return bytes(default).decode()
    if inspect.isroutine(default):
        return default.__qualname__
    return "…" if " at 0x" in repr(default) else repr(default)


def members_of(value: type) -> Iterator[tuple[str, _Member]]:
    """The public methods and properties of a class, its own and those of our bases, in order.

    One whose docstring begins with ``Internal:`` is for other modules of the package only.
    """
    fields = {name for name, _, _ in fields_of(value)}
    seen = set(fields)
    for base in value.__mro__:
        if not base.__module__.startswith("lockstitch"):
            continue
        for name, member in vars(base).items():
            made = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            is_method = inspect.isfunction(made) or isinstance(made, property)
            is_cached = type(made).__name__ == "cached_property"
            is_internal = name.startswith("_") or (made.__doc__ or "").startswith("Internal:")
            if not is_internal and name not in seen and (is_method or is_cached):
                seen.add(name)
                yield name, made


def signature(name: str, function: Any) -> str:
    """Write a signature as in the source, a parameter a line if it is long."""
    found = inspect.signature(function)
    home = sys.modules[function.__module__]
    returns = found.return_annotation
    parts: list[str] = []
    star = False
    for one in found.parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        parts.append(_parameter(one, home))
    arrow = "" if returns is inspect.Signature.empty else f" -> {_annotation(returns, home)}"
    lead = "async def" if inspect.iscoroutinefunction(function) else "def"
    line = f"{lead} {name}({', '.join(parts)}){arrow}"
    if len(line) <= 96:  # noqa: PLR2004 - the width of a page
        return line
    return "\n".join([f"{lead} {name}(", *(f"    {part}," for part in parts), f"){arrow}"])


def _parameter(one: inspect.Parameter, home: ModuleType) -> str:
    stars = "**" if one.kind is one.VAR_KEYWORD else "*" * (one.kind is one.VAR_POSITIONAL)
    kind = "" if one.annotation is one.empty else f": {_annotation(one.annotation, home)}"
    if one.default is one.empty:
        return f"{stars}{one.name}{kind}"
    return f"{one.name}{kind}{' = ' if kind else '='}{_value(one.default)}"


def _annotation(annotation: Any, home: ModuleType) -> str:
    """Write a type in names that can be looked up: public ones, and no aliases of a module."""
    annotation = getattr(annotation, "__forward_arg__", annotation)
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:lockstitch|typing|collections)\.(?:[a-z_]+\.)*(?=[A-Z])", "", text)
    text = text.replace("'", '"')

    def spelled(found: re.Match[str]) -> str:
        name = found.group()
        value = _meaning(name, home)
        if inspect.isclass(value):
            return _public_names().get(value, name)
        return name if typing.get_origin(value) is None else _annotation(value, home)

    return re.sub(r'(?<![."\w])[A-Z]\w+(?!")\b', spelled, text)


def _meaning(name: str, home: ModuleType) -> Any:
    """Return what a name stands for in a module, also where only a type checker imports it."""
    if name in vars(home):
        return vars(home)[name]
    source, original = _imports_of(home).get(name, ("", ""))
    if not source.startswith("lockstitch"):
        return None
    return getattr(import_module(source), original, None)


@cache
def _imports_of(home: ModuleType) -> dict[str, tuple[str, str]]:
    return {
        one.asname or one.name: (node.module or "", one.name)
        for node in ast.walk(ast.parse(inspect.getsource(home)))
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }


@cache
def _public_names() -> dict[type, str]:
    """Return the name under which each class of ours can be imported."""
    values = [(getattr(one, name), name) for one in documented().values() for name in one.__all__]
    return {value: name for value, name in values if inspect.isclass(value)}


def returned_by(module: ModuleType) -> set[type]:
    """The classes of ours that functions and methods of a module return and no module exports."""
    found: set[type] = set()
    for name in module.__all__:
        found |= _returned(getattr(module, name))
    return found - exported()


def exported() -> set[type]:
    """The classes that can be imported from a module of the reference."""
    values = (getattr(one, name) for one in documented().values() for name in one.__all__)
    return {value for value in values if inspect.isclass(value)}


def _returned(value: Any) -> set[type]:
    if inspect.isroutine(value):
        return classes_in(hints_of(value).get("return"))
    found: set[type] = set()
    if inspect.isclass(value):
        for _, member in members_of(value):
            getter = (
                member.fget if isinstance(member, property) else getattr(member, "func", member)
            )
            found |= classes_in(hints_of(getter).get("return"))
        for name, kind in hints_of(value).items():
            found |= set() if name.startswith("_") else classes_in(kind)
    return found


class _Foreign:
    """Stands for a type that only a type checker imports, and that is not of ours."""

    def __class_getitem__(cls, _: Any) -> type:
        return cls


class _Names(dict[str, Any]):
    """What names in annotations stand for; those of ours are exported by a module of these."""

    def __missing__(self, name: str) -> type:
        return _Foreign


def hints_of(value: Any) -> dict[str, Any]:
    """Return the types of a function's parameters and its result, or of a class's fields."""
    home = vars(sys.modules.get(getattr(value, "__module__", ""), lockstitch))
    names = _Names(
        {name: getattr(one, name) for one in documented().values() for name in one.__all__}
    )
    names.update(vars(builtins) | home)
    return typing.get_type_hints(value, home, names)


def classes_in(annotation: object) -> set[type]:
    """Return the classes of ours that an annotation names."""
    found = {annotation} if inspect.isclass(annotation) else set()
    for inner in typing.get_args(annotation):
        # The parameters of a callable are in a list.
        for one in inner if isinstance(inner, list) else [inner]:
            found |= classes_in(one)
    return {one for one in found if one.__module__.startswith("lockstitch.")}
