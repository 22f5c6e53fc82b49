"""The conversations, in a form that belongs to no provider.

Every text carries a mark of its own (``MARK-07-b``), so that what is lost is counted, not guessed.
The numbers are those under which these breaks were first catalogued; the gaps concern files.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PLACEHOLDER = (
    "[Tool call interrupted: the session ended before this call's result was recorded, "
    "so its outcome is unknown.]"
)


@dataclass(frozen=True, slots=True)
class Ask:
    """The user says something."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """The model calls a tool; *mark* is its argument."""

    id: str
    mark: str
    name: str = "read_file"
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Say:
    """The model says something and calls tools."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """A tool's result."""

    id: str
    text: str
    name: str = "read_file"


@dataclass(frozen=True, slots=True)
class Done:
    """Results that arrive together."""

    results: tuple[Result, ...]


Turn = Ask | Say | Done


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation and what must be true of it once it is healed.

    ``belongs`` maps the mark of a result to the mark of the call that it answers.
    ``text`` are the marks that have no call to answer and must survive outside of results.
    ``spare`` are the marks that may end in quarantine instead of the messages.
    """

    name: str
    turns: tuple[Turn, ...]
    kept: tuple[str, ...]
    belongs: dict[str, str] = field(default_factory=dict)
    text: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()


class _Marks:
    """Marks of one conversation: ``m.a`` is ``MARK-07-a``."""

    def __init__(self, number: str) -> None:
        self.number = number

    def __getattr__(self, letter: str) -> str:
        return f"MARK-{self.number}-{letter}"

    def all(self, letters: str) -> tuple[str, ...]:
        return tuple(f"MARK-{self.number}-{letter}" for letter in letters)


def _id(number: int) -> str:
    """A call id that every provider accepts."""
    return f"call{number:05d}"


ONE, TWO, THREE = _id(1), _id(2), _id(3)


def _healthy() -> Conversation:
    m = _Marks("00")
    turns = (
        Ask(m.a),
        Say(m.b, (Call(ONE, m.c), Call(TWO, m.d, "grep"))),
        Done((Result(ONE, m.e), Result(TWO, m.f, "grep"))),
        Say(m.g),
        Ask(m.h),
        Say(m.i, (Call(THREE, m.j),)),
        Done((Result(THREE, m.k),)),
        Say(m.l),
        Ask(m.m),
    )
    belongs = {m.e: m.c, m.f: m.d, m.k: m.j}
    return Conversation("00_healthy", turns, m.all("abcdefghijklm"), belongs)


def _orphan_call_at_tail() -> Conversation:
    m = _Marks("01")
    turns = (Ask(m.a), Say(m.b, (Call(ONE, m.c),)))
    return Conversation("01_orphan_call_at_tail", turns, m.all("abc"))


def _orphan_call_in_middle() -> Conversation:
    m = _Marks("02")
    turns = (Ask(m.a), Say(m.b, (Call(ONE, m.c),)), Ask(m.d), Say(m.e), Ask(m.f))
    return Conversation("02_orphan_call_in_middle", turns, m.all("abcdef"))


def _orphan_result() -> Conversation:
    m = _Marks("03")
    turns = (Ask(m.a), Say(m.b), Done((Result(ONE, m.c),)), Say(m.d), Ask(m.e))
    return Conversation("03_orphan_result", turns, m.all("abcde"), text=(m.c,))


def _duplicated_result() -> Conversation:
    m = _Marks("04")
    done = Done((Result(ONE, m.d),))
    turns = (Ask(m.a), Say(m.b, (Call(ONE, m.c),)), done, done, Say(m.e), Ask(m.f))
    return Conversation("04_duplicated_result", turns, m.all("abcdef"), {m.d: m.c})


def _separated_by_user() -> Conversation:
    m = _Marks("05")
    turns = (Ask(m.a), Say(m.b, (Call(ONE, m.c),)), Ask(m.d), Done((Result(ONE, m.e),)), Say(m.f))
    return Conversation("05_separated_by_user", turns, m.all("abcdef"), {m.e: m.c})


def _two_of_three() -> Conversation:
    m = _Marks("07")
    calls = (Call(ONE, m.c), Call(TWO, m.d, "grep"), Call(THREE, m.e, "list_files"))
    done = Done((Result(ONE, m.f), Result(THREE, m.g, "list_files")))
    turns = (Ask(m.a), Say(m.b, calls), done, Say(m.h), Ask(m.i))
    return Conversation("07_two_of_three", turns, m.all("abcdefghi"), {m.f: m.c, m.g: m.e})


def _id_reused() -> Conversation:
    m = _Marks("08")
    turns = (
        Ask(m.a),
        Say(m.b, (Call(ONE, m.c),)),
        Done((Result(ONE, m.d),)),
        Say(m.e),
        Ask(m.f),
        Say(m.g, (Call(ONE, m.h),)),
        Done((Result(ONE, m.i),)),
        Say(m.j),
    )
    return Conversation("08_id_reused", turns, m.all("abcdefghij"), {m.d: m.c, m.i: m.h})


def _cut_arguments() -> Conversation:
    m = _Marks("09")
    turns = (Ask(m.a), Say(m.b, (Call(ONE, m.c, cut=True),)), Ask(m.d))
    return Conversation("09_cut_arguments", turns, m.all("abd"), spare=(m.c,))


def _id_reused_second_open() -> Conversation:
    m = _Marks("12")
    turns = (
        Ask(m.a),
        Say(m.b, (Call(ONE, m.c),)),
        Done((Result(ONE, m.d),)),
        Say(m.e),
        Ask(m.f),
        Say(m.g, (Call(ONE, m.h),)),
        Ask(m.i),
    )
    return Conversation("12_id_reused_second_open", turns, m.all("abcdefghi"), {m.d: m.c})


def _placeholder_then_real() -> Conversation:
    m = _Marks("13")
    turns = (
        Ask(m.a),
        Say(m.b, (Call(ONE, m.c),)),
        Done((Result(ONE, PLACEHOLDER),)),
        Say(m.d),
        Ask(m.e),
        Done((Result(ONE, m.f),)),
        Say(m.g),
    )
    return Conversation("13_placeholder_then_real", turns, m.all("abcdefg"), {m.f: m.c})


def _interleaved() -> Conversation:
    m = _Marks("14")
    calls = (Call(ONE, m.c), Call(TWO, m.d, "grep"), Call(THREE, m.e, "list_files"))
    turns = (
        Ask(m.a),
        Say(m.b, calls),
        Ask(m.f),
        Done((Result(ONE, m.g),)),
        Ask(m.h),
        Done((Result(THREE, m.i, "list_files"),)),
        Say(m.j),
    )
    return Conversation("14_interleaved", turns, m.all("abcdefghij"), {m.g: m.c, m.i: m.e})


def _result_before_call() -> Conversation:
    m = _Marks("15")
    turns = (Ask(m.a), Done((Result(ONE, m.b),)), Say(m.c, (Call(ONE, m.d),)), Ask(m.e))
    return Conversation("15_result_before_call", turns, m.all("abcde"), {m.b: m.d})


def _one_turn_late() -> Conversation:
    m = _Marks("16")
    turns = (
        Ask(m.a),
        Say(m.b, (Call(ONE, m.c),)),
        Ask(m.d),
        Say(m.e),
        Done((Result(ONE, m.f),)),
        Say(m.g),
        Ask(m.h),
    )
    return Conversation("16_one_turn_late", turns, m.all("abcdefgh"), {m.f: m.c})


def _unsendable_text() -> Conversation:
    m = _Marks("17")
    turns = (
        Ask(f"{m.a} \x00 in the middle"),
        Say(f"{m.b} half an emoji \ud83d", (Call(ONE, f"{m.c}\x00"),)),
        Done((Result(ONE, f"\udc00\ud800 {m.d}\x00\x00"),)),
        Say(m.e),
    )
    return Conversation("17_unsendable_text", turns, m.all("abcde"), {m.d: m.c})


HEALTHY = _healthy()
BROKEN = (
    _orphan_call_at_tail(),
    _orphan_call_in_middle(),
    _orphan_result(),
    _duplicated_result(),
    _separated_by_user(),
    _two_of_three(),
    _id_reused(),
    _cut_arguments(),
    _id_reused_second_open(),
    _placeholder_then_real(),
    _interleaved(),
    _result_before_call(),
    _one_turn_late(),
    _unsendable_text(),
)
