"""Rules and findings, and a request as the rules look at it.

Findings are also counted in words here, ``2 tool calls without results``: a person with a broken
session does not know the codes, and a list of sessions uses these words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from lockstitch.conversation.pairing import pair_messages
from lockstitch.conversation.parts import Message, Part, Path, Place, Placed, sort_parts
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.profiles import DIALECTS, Profile, Traits

# error: the provider refuses it, or a resume of it loses something. warning: its own program can
# handle it, but another version or another reader cannot. note: nothing is sent differently because
# of it.
ERROR = "error"
WARNING = "warning"
NOTE = "note"
_LONGEST_ID = 64


class Rule(Struct, frozen=True, kw_only=True):
    """One thing that a request or a store must satisfy, with all that people may want to know.

    A rule on requests names ``dialects``, a rule on stored sessions ``formats``. ``errors`` maps
    who reports it to the provider's own text; ``known`` notes the versions.
    """

    code: str
    name: str
    severity: str = ERROR
    dialects: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    fixable: bool = True
    lossy: bool = False
    summary: str
    help: str
    what: str
    cause: str
    repair: str
    failures: tuple[str, ...] = ()
    known: str = ""


class Finding(Placed, frozen=True, kw_only=True):
    """One place where a rule is broken. It never contains message content."""

    code: str
    name: str
    severity: str
    place: str
    message: str
    error: str | None = None
    fixable: bool = True
    lossy: bool = False
    help: str = ""


def is_broken(findings: Iterable[Finding]) -> bool:
    """Whether any finding is more than a note."""
    return any(finding.severity != NOTE for finding in findings)


Find = Callable[["Case"], Iterator[Finding]]


def rule(
    *,
    counted: tuple[str, str] = ("", ""),
    errors: Mapping[str, str] = MappingProxyType({}),
    formats: tuple[str, ...] = (),
    dialects: tuple[str, ...] = (),
    **fields: Any,
) -> Rule:
    """Register a rule in the catalogue; one that names neither dialects nor formats is for all.

    ``counted`` are the words for one and for several findings, if they are not just its name.
    """
    dialects = dialects or (() if formats else DIALECTS)
    entry = Rule(errors=tuple(errors.items()), formats=formats, dialects=dialects, **fields)
    if entry.code in RULES:
        raise ValueError(f"{entry.code} is already the code of {RULES[entry.code].name}")
    RULES[entry.code] = entry
    one = entry.name.replace("-", " ")
    COUNTED[entry.code] = counted if any(counted) else (one, f"{one}s")
    _SAID[entry.code] = errors
    return entry


Sign = str | tuple[str, str]


class Finder(Struct, frozen=True):
    """A function that finds violations, and the signs without which there are none."""

    find: Find
    dialects: frozenset[str]
    having: frozenset[Sign]
    when: Callable[[Case], Any] | None


RULES: dict[str, Rule] = {}
COUNTED: dict[str, tuple[str, str]] = {}
_SAID: dict[str, Mapping[str, str]] = {}
FINDERS: list[Finder] = []


def finder(
    *rules: Rule, having: Iterable[Sign] = (), when: Callable[[Case], Any] | None = None
) -> Callable[[Find], Find]:
    """Register a function that finds violations of these rules, in the dialects of the rules.

    It runs only on a case with one of the signs in ``having`` (a kind of part, a role, a kind in a
    message of a role, a flaw; without any, on all cases), and only if ``when`` agrees.
    """
    dialects = frozenset(name.partition(":")[0] for one in rules for name in one.dialects)

    def register(find: Find) -> Find:
        FINDERS.append(Finder(find, dialects, frozenset(having), when))
        return find

    return register


_WORD = re.compile(r"[\w./+-]{1,32}")


def word(value: object) -> str:
    """Return a role, a label or a field if it is one short word, else the name of its type."""
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value
    return f"<{type(value).__name__}>"


def label(part: Part) -> str:
    """Return a name for a call or result: its id, or its tool if the format has no ids."""
    return shown(part.id if part.id is not None or part.name is None else part.name)


def shown(value: object) -> str:
    """Return an id for use in a message: printable, and never longer than an id should be."""
    text = value if isinstance(value, str) else repr(value)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _LONGEST_ID else f"{text[: _LONGEST_ID - 1]}…"


_ORDER = {ERROR: 0, WARNING: 1, NOTE: 2}


def grouped(findings: Iterable[Finding]) -> list[tuple[str, list[Finding]]]:
    """Group findings that read the same, the worst first; return each group with its words."""
    groups: dict[tuple[str, tuple[str, str]], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, COUNTED[finding.code]), []).append(finding)
    ranked = sorted(groups.items(), key=lambda item: _ORDER[item[0][0]])
    return [
        (f"{len(group)} {one if len(group) == 1 else many}", group)
        for (_, (one, many)), group in ranked
    ]


def several(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 line``, ``12 lines``."""
    return f"{count} {noun}{'s' * (count != 1)}"


# What only the provider can count, such as a column; "<nil>" is literal text.
_UNFILLED = re.compile(r"<(?!nil>)\w+>")


class RequestContext(Struct, frozen=True):
    """The surroundings of a list of messages: its format, its receiver and the rest of the body.

    ``waiting`` names the calls that wait on purpose. If the list is an excerpt, ``numbers`` has the
    original indices, and ``ids`` the ids of the whole list. ``stored`` says that the list is kept
    for later, even if the model is known: it need not end like a request.
    """

    dialect: Dialect
    profile: Profile
    traits: Traits
    body: dict[str, Any] | None = None
    waiting: frozenset[str] = frozenset()
    model: str | None = None
    numbers: Sequence[int] | None = None
    ids: frozenset[str] = frozenset()
    stored: bool = False


class Case:
    """A request as the rules look at it: its messages, their parts by kind, and its paired calls.

    ``size`` is the size of the messages as JSON, -1 if a text in them may not be encodable.
    ``is_request`` says that this is about to be sent and not merely stored: rules on how a request
    must end apply only then.
    """

    def __init__(self, request: RequestContext, messages: list[Message], size: int) -> None:
        self.request = request
        self.messages = messages
        self.size = size
        self.dialect = request.dialect
        self.profile = request.profile
        self.traits = request.traits
        self.body = request.body
        self.waiting = request.waiting
        self.model = request.model
        self.is_request = not request.stored and (request.body is not None or request.traits.known)
        self.parts = sort_parts(messages)
        self.paired = pair_messages(messages, self.profile.layout, self.dialect)

    @cached_property
    def leans_on_stored_state(self) -> bool:
        """Whether a part of the conversation is stored at the provider, where it cannot be seen."""
        body = self.body or {}
        if body.get("previous_response_id") or body.get("conversation"):
            return True
        if self.profile.dialect != "openai-responses":
            return False
        return any(part.flavor == "item_reference" and not part.at for part in self.parts.rest)

    def number(self, index: int) -> int:
        """Return a message's index in the whole list, of which this may be an excerpt."""
        numbers = self.request.numbers
        return index if numbers is None or not 0 <= index < len(numbers) else numbers[index]

    def place(self, what: Part | Message | Place) -> Place:
        """Return the place of a part or a message; a new message has the place of its parts.

        One without parts from the list comes after all others.
        """
        if isinstance(what, Part):
            return self.place_at(what.home, what.at)
        if isinstance(what, Place):
            return what
        homes = [what.index, *(part.home for part in what.parts)]
        return self.place_at(next((home for home in homes if home >= 0), len(self.messages)))

    def place_at(self, index: int, at: Path = ()) -> Place:
        """Return the place of a message, or of something in it."""
        key, numbers = self.profile.list_key, self.request.numbers
        if index < 0:
            return Place.in_list(key, index, at)
        number = index if numbers is None or index >= len(numbers) else numbers[index]
        return Place((key, number, *at), number)

    def find(  # noqa: PLR0913 - all but three by keyword, each with a default
        self,
        rule: Rule,
        what: Part | Message | Place,
        message: str,
        *,
        wording: str = "",
        severity: str = "",
        fixable: bool | None = None,
        lossy: bool | None = None,
        **fills: object,
    ) -> Finding:
        """Return a finding on a part, a message or a place, with the error that the provider gives.

        ``wording`` selects one of several texts that a provider has for a rule. Severity, and
        whether the finding can be repaired and whether that loses anything, come from the rule,
        unless this place is known to differ.
        """
        place = self.place(what)
        said = _SAID[rule.code]
        who: tuple[str, ...] = (self.profile.full_name, self.profile.dialect)
        if wording:
            who = (*(f"{name} ({wording})" for name in who), *who)
        text = next((said[name] for name in who if name in said), None)
        if text is not None and "<" in text:
            # fill in what the provider's error text would name here
            numbers = [str(step) for step in place.steps if type(step) is int]
            known = {**dict(zip(("N", "M", "K"), numbers, strict=False)), "place": place, **fills}
            for key, value in known.items():
                mark = f"<{key}>"
                if mark in text:
                    text = text.replace(mark, shown(str(value) if value is place else value))
            if "<" in text:
                text = _UNFILLED.sub("…", text)
        return Finding(
            code=rule.code,
            name=rule.name,
            severity=severity or rule.severity,
            place=place,  # type: ignore[arg-type]  # its text is made in Placed
            message=message,
            error=text,
            fixable=rule.fixable if fixable is None else fixable,
            lossy=rule.lossy if lossy is None else lossy,
            help=rule.help,
        )


def examine(case: Case) -> list[Finding]:
    """Run every rule that applies to a case; return the findings in the order of their places."""
    dialect, signs = case.profile.dialect, case.parts.signs
    findings = [
        finding
        for one in FINDERS
        if dialect in one.dialects
        and (not one.having or not one.having.isdisjoint(signs))
        and (one.when is None or one.when(case))
        for finding in one.find(case)
    ]
    return sorted(findings, key=lambda finding: (finding.at.order, finding.code))
