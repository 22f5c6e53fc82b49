"""Writes a repaired history back into the records of its store: what all formats share.

Messages that keep their order stay where they are, and new or moved ones go after the message they
follow (``keep_in_order``, ``lay_records``). A format says how a message becomes its record. A
format that stores the messages of a dialect unchanged needs only ``place_messages``.

If records name their parents, a walk from a leaf to its root never loops. If a parent is missing,
or the walk passed it already, the walk continues at the previous record in the file if the program
would do so; either way it reports the broken link. ``TreeRepair`` is one round of repairs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

from lockstitch.conversation.json_text import dump_like
from lockstitch.conversation.json_text import replace_list as json_text_replace_list
from lockstitch.conversation.parts import Path
from lockstitch.formats.interface import NEW, History, SourcedMessage, Transcript, parts_of
from lockstitch.formats.records import Record, amend_record, new_record, record_bytes, with_value
from lockstitch.repair.draft import Ledger
from lockstitch.rules import RULES

Make = Callable[[Any, Record], Record]


class MessageHome(Struct, frozen=True):
    """Where a message stands: the number of a record, and the path to the message in it.

    ``listed`` says that the path leads into a list, whose elements may come and go. ``bound`` says
    that the record has another meaning, too, and stays if the message goes.
    """

    number: int
    path: Path = ()
    listed: bool = False
    bound: bool = False


def enter_message(history: History, message: dict[str, Any], home: MessageHome) -> None:
    """Add a message to a history, with the places of its parts."""
    parts = parts_of(message)
    whole = len(parts) == 1 and parts[0] is message
    steps: list[Path] = [()] if whole else [("content", n) for n in range(len(parts))]
    history.add(message, [home.number] * len(parts), [(*home.path, *step) for step in steps])


def longest_kept_run(origins: Sequence[int]) -> set[int]:
    """Return the positions of the longest rising run of origins, which keeps its order."""
    tails: list[int] = []
    ends: list[int] = []
    before = [NEW] * len(origins)
    for position, origin in enumerate(origins):
        if origin < 0:
            continue
        length = bisect_left(tails, origin)
        before[position] = ends[length - 1] if length else NEW
        tails[length : length + 1] = [origin]
        ends[length : length + 1] = [position]
    kept: set[int] = set()
    at = ends[-1] if ends else NEW
    while at != NEW:
        kept.add(at)
        at = before[at]
    return kept


T = TypeVar("T")


def keep_in_order(
    numbers: Sequence[int], units: Sequence[T]
) -> tuple[dict[int, T], dict[int, list[T]]]:
    """Return the units that stay in their records, and those that go after each record.

    ``numbers`` gives the old record of each unit of the new conversation, ``NEW`` for none. A new
    or moved unit follows the last unit before it that stays, or goes in front (``NEW``).
    """
    stay = longest_kept_run(numbers)
    kept: dict[int, T] = {}
    behind: dict[int, list[T]] = {}
    anchor = NEW
    for position, unit in enumerate(units):
        if position in stay:
            anchor = numbers[position]
            kept[anchor] = unit
        else:
            behind.setdefault(anchor, []).append(unit)
    return kept, behind


def group_unsent(
    order: Iterable[int], spoken: Collection[int], kept: Collection[int]
) -> dict[int, list[int]]:
    """Return the records of a chain that are not spoken, by the kept one that they follow."""
    behind: dict[int, list[int]] = {}
    anchor = NEW
    for number in order:
        if number not in spoken:
            behind.setdefault(anchor, []).append(number)
        elif number in kept:
            anchor = number
    return behind


def lay_records(
    records: Sequence[Record],
    kept: Mapping[int, Record],
    behind: Mapping[int, Sequence[tuple[int, Record]]],
    left_out: Collection[int],
    front: int = 0,
) -> Iterator[tuple[int, Record]]:
    """Lay a conversation out over the records of its file; yield each with its number.

    ``behind`` has new and moved records, by the number of the record that they follow; those that
    follow none go before the record ``front``. Other records stay unless ``left_out``.
    """
    # a moved record may have been the last one, without a line end
    added = {
        anchor: [(n, structs.replace(one, ending=one.ending or b"\n")) for n, one in lines]
        for anchor, lines in behind.items()
    }
    for number, record in enumerate(records):
        if number == front:
            yield from added.get(NEW, ())
        if number in kept:
            yield number, kept[number]
        elif number not in left_out:
            yield number, record
        yield from added.get(number, ())
    if front == len(records):
        yield from added.get(NEW, ())


def adopt_orphans(  # noqa: PLR0913, PLR0917 - the records, and how they name their parents
    data: bytes,
    laid: Iterable[tuple[int, Record]],
    link: str,
    by_id: Mapping[str, TreeNode],
    gone: Collection[int],
    heir: Callable[[int], str | None],
) -> Iterator[tuple[int, Record]]:
    """Link records whose parent is removed to its heir, the id of a record before it."""
    for number, record in laid:
        name = record.value.get(link) if record.is_record else None
        parent = by_id.get(name) if type(name) is str else None
        if parent is not None and parent.number in gone:
            yield number, amend_record(data, record, (link,), heir(parent.number))
        else:
            yield number, record


class Earlier(Generic[T]):
    """Finds the last of some records, in the order given, that stood before another one."""

    def __init__(self, numbers: Iterable[int], values: Mapping[int, T]) -> None:
        order = list(numbers)
        old = sorted((number, place) for place, number in enumerate(order))
        self.order, self.values = order, values
        self.numbers = [number for number, _ in old]
        self.places = list(accumulate((place for _, place in old), max))

    def than(self, number: int) -> T | None:
        """Return what became of that record; None if there is none."""
        at = bisect_left(self.numbers, number)
        return self.values[self.order[self.places[at - 1]]] if at else None


def place_messages(
    transcript: Transcript,
    homes: Sequence[MessageHome],
    repaired: Sequence[SourcedMessage],
    make: Make,
) -> list[Record]:
    """Return the records with the repaired messages; ``make`` makes the record of a new one."""
    return _MessagePlacement(transcript, homes, repaired, make).records()


class _MessagePlacement:
    """Which message stays where, and what follows it, by the numbers of the old messages."""

    def __init__(
        self,
        transcript: Transcript,
        homes: Sequence[MessageHome],
        repaired: Sequence[SourcedMessage],
        make: Make,
    ) -> None:
        self.data = transcript.context.data
        self.source = transcript.records
        self.old = transcript.history.messages
        self.homes = homes
        self.make = make
        origins = [sourced.origin for sourced in repaired]
        self.kept, self.behind = keep_in_order(origins, repaired)

    def records(self) -> list[Record]:
        at: dict[int, list[int]] = {}
        for origin, home in enumerate(self.homes):
            at.setdefault(home.number, []).append(origin)
        out: list[Record] = []
        first = self.homes[0].number if self.homes else NEW
        for number, record in enumerate(self.source):
            if number == first and not self.homes[0].listed:
                out += self._lines_behind(NEW, record)
            origins = at.get(number, [])
            if not origins:
                out.append(record)
                continue
            origin = origins[0]
            home = self.homes[origin]
            if home.listed:
                out.append(self._list(record, origins))
                continue
            if origin in self.kept:
                message = self.kept[origin].message
                out.append(self._with(record, home, message, self.old[origin]))
            elif home.bound:
                out.append(record)
            out += self._lines_behind(origin, record)
        return out

    def _lines_behind(self, anchor: int, near: Record) -> Iterator[Record]:
        """Yield the lines that follow a message: those that moved there, and new ones."""
        for sourced in self.behind.get(anchor, ()):
            origin = sourced.origin
            home = self.homes[origin] if origin >= 0 else None
            if home is None or home.listed or home.bound or origin in self.kept:
                yield self.make(sourced.message, near)
            else:
                old = self.source[home.number]
                moved = self._with(old, home, sourced.message, self.old[origin])
                yield structs.replace(moved, ending=moved.ending or b"\n")

    def _with(self, record: Record, home: MessageHome, new: Any, old: Any) -> Record:
        if new is old or home.bound:
            return record
        if home.path:
            return amend_record(self.data, record, home.path, new)
        text = record_bytes(self.data, record).decode("utf-8", "surrogatepass")
        amended = (*record.amended, ())
        return structs.replace(
            record, value=new, fresh=dump_like(text, new).encode(), amended=amended
        )

    def _list(self, record: Record, origins: Sequence[int]) -> Record:
        path = self.homes[origins[0]].path[:-1]
        old = value_at(record.value, path)
        by_place = {self.homes[origin].path[-1]: origin for origin in origins}
        new: list[Any] = []
        if origins[0] == 0:
            new += (sourced.message for sourced in self.behind.get(NEW, ()))
        for place, element in enumerate(old):
            origin = by_place.get(place, NEW)
            if origin == NEW:
                new.append(element)
                continue
            new += [self.kept[origin].message] if origin in self.kept else []
            new += (sourced.message for sourced in self.behind.get(origin, ()))
        return replace_list(self.data, record, path, new)


def value_at(value: Any, path: Path) -> Any:
    """Return the value at a path."""
    for step in path:
        value = value[step]
    return value


def replace_list(data: bytes, record: Record, path: Path, new: list[Any]) -> Record:
    """Return a record with another list at a path; elements in both keep their bytes."""
    old = value_at(record.value, path)
    if [*map(id, old)] == [*map(id, new)]:
        return record
    text = record_bytes(data, record).decode("utf-8", "surrogatepass")
    fresh = json_text_replace_list(text, path, old, new).encode()
    changed, amended = with_value(record.value, path, new), (*record.amended, path)
    return structs.replace(record, value=changed, fresh=fresh, amended=amended)


DANGLING = "dangling"
CYCLE = "cycle"


class TreeNode(Struct, gc=False):
    """A record in the tree: its number among the records, its id and the id of its parent.

    ``aside`` marks records outside the main conversation, such as a sub-agent's.
    """

    number: int
    id: str
    parent: str | None
    aside: bool = False


class BrokenLink(Struct, frozen=True):
    """A link that leads nowhere: the number of the record, why, and where the walk continued.

    ``onward`` is None if the walk ended.
    """

    number: int
    why: str
    onward: int | None


class TreeWalk(Struct):
    """The numbers of the records from root to leaf, and the broken links on the way."""

    path: list[int]
    breaks: list[BrokenLink]


class RecordTree:
    """The tree of a file's records.

    ``bridges`` says whether the program continues from a record whose parent cannot be reached to
    the previous record in the file.
    """

    def __init__(
        self,
        nodes: Sequence[TreeNode],
        bridges: Callable[[TreeNode, TreeNode], bool] = lambda _node, _before: True,
    ) -> None:
        self.nodes = nodes
        self.bridges = bridges
        # Parents that the program uses instead of those in the records, by number.
        self.detours: dict[int, str] = {}
        self.by_id: dict[str, TreeNode] = {}
        self.children: dict[str, list[TreeNode]] = {}
        self.repeats: list[TreeNode] = []
        # Whether every parent comes before its children, so that no link is missing or circular.
        self.is_ordered = True
        for node in nodes:
            if node.parent is not None and node.parent not in self.by_id:
                self.is_ordered = False
            if self.by_id.setdefault(node.id, node) is not node:
                self.repeats.append(node)
            if node.parent is not None:
                self.children.setdefault(node.parent, []).append(node)
        self.by_number = {node.number: node for node in nodes}
        self._order = [node.number for node in nodes]
        # The positions of the records of the main conversation.
        self._main = [at for at, node in enumerate(nodes) if not node.aside]

    def parent_of(self, node: TreeNode) -> TreeNode | None:
        """Return the parent of a record, None if that is not in the file."""
        return self.by_id.get(node.parent) if node.parent else None

    def walk(self, start: TreeNode) -> TreeWalk:
        """Walk from a record to its root."""
        path: list[int] = []
        breaks: list[BrokenLink] = []
        seen: set[int] = set()
        # Remember which stretches were passed already, so that no record is looked at twice however
        # many links are broken.
        passed: dict[int, int] = {}
        node: TreeNode | None = start
        while node is not None:
            path.append(node.number)
            seen.add(node.number)
            name = self.detours.get(node.number, node.parent)
            parent = None if name is None else self.by_id.get(name)
            if name is not None and (parent is None or parent.number in seen):
                why = DANGLING if parent is None else CYCLE
                at = bisect_left(self._main, self.position(node.number)) - 1
                looked: list[int] = []
                while at >= 0 and self.nodes[self._main[at]].number in seen:
                    looked.append(at)
                    at = passed.get(at, at - 1)
                passed.update(dict.fromkeys(looked, at))
                parent = self.nodes[self._main[at]] if at >= 0 else None
                if parent is not None and not self.bridges(node, parent):
                    parent = None
                breaks.append(BrokenLink(node.number, why, parent.number if parent else None))
            node = parent
        return TreeWalk(path[::-1], breaks)

    def before(self, number: int, gone: set[int]) -> TreeNode | None:
        """Return the nearest earlier record of the main conversation that is not in ``gone``."""
        for at in range(bisect_left(self._main, self.position(number)) - 1, -1, -1):
            node = self.nodes[self._main[at]]
            if node.number not in gone:
                return node
        return None

    def position(self, number: int) -> int:
        """Return a record's position among the nodes."""
        return bisect_left(self._order, number)

    def dangling(self) -> list[TreeNode]:
        """Return the records whose parent is not in the file."""
        return [node for node in self.nodes if node.parent and node.parent not in self.by_id]

    def circles(self, known: Mapping[str, TreeNode] | None = None) -> list[list[TreeNode]]:
        """Return the circles of parents, each from the record at which its walk entered it.

        ``known`` says which record an id means, if that is not the first one in the file.
        """
        known = self.by_id if known is None else known
        done: set[int] = set()
        found: list[list[TreeNode]] = []
        for start in known.values():
            trail: dict[int, TreeNode] = {}
            at: TreeNode | None = start
            while at is not None and at.number not in done and at.number not in trail:
                trail[at.number] = at
                at = known.get(at.parent) if at.parent else None
            if at is not None and at.number in trail:
                path = [*trail.values()]
                found.append(path[path.index(at) :])
            done.update(trail)  # |= with its keys would copy all that is done
        return found

    def descendants(self, number: int) -> list[int]:
        """Return a record and its descendants, without those that are aside, in file order."""
        todo = [self.by_number[number]]
        found: set[int] = set()
        # Records of one id have the same children.
        opened: set[str] = set()
        while todo:
            node = todo.pop()
            found.add(node.number)
            if node.id not in opened:
                opened.add(node.id)
                todo += [child for child in self.children.get(node.id, ()) if not child.aside]
        return sorted(found)

    def top_of(
        self,
        node: TreeNode,
        reached: set[int] | frozenset[int] = frozenset(),
        tops: dict[int, int] | None = None,
    ) -> int:
        """Climb to the first record of a piece, below those reached; ``tops`` caches the result."""
        tops = {} if tops is None else tops
        climbed: dict[int, None] = {}
        at: TreeNode | None = node
        top = node.number
        while at is not None and at.number not in reached and at.number not in climbed:
            top = tops.get(at.number, at.number)
            climbed[at.number] = None
            if at.number in tops:
                break
            at = self.parent_of(at)
        tops.update(dict.fromkeys(climbed, top))
        return top


class TreeRepair:
    """One round of repairs on a session's records: the changes, by the numbers of the records.

    A program's repair has one step for each kind of fault, in the order of ``steps``. The first
    step that changes anything ends the round, since the records have to be parsed again before the
    next fault can be judged. ``link`` is the key under which a record names its parent.
    """

    link = ""
    steps: tuple[Callable[[Any], None], ...] = ()

    def __init__(
        self, transcript: Transcript, ledger: Ledger, tree: RecordTree | None = None
    ) -> None:
        self.data = transcript.context.data
        self.records = transcript.records
        self.tree = tree
        self.ledger = ledger
        self.values: dict[int, Record] = {}
        self.gone: set[int] = set()
        # The records that move to before a record, and the order of all if that changes.
        self.moves: dict[int, list[int]] = {}
        self.order: list[int] = []
        self.head: list[Record] = []

    def run(self) -> list[Record]:
        """Take the first step that changes anything; return the same records if none does."""
        for step in self.steps:
            step(self)
            if self.values or self.gone or self.moves or self.order or self.head:
                break
        moved = {number for numbers in self.moves.values() for number in numbers}
        order: list[int] = []
        for number in self.order or range(len(self.records)):
            # other records may move along in front of a moved one
            todo = [] if number in moved else [(number, False)]
            while todo:
                at, is_reached = todo.pop()
                if not is_reached and at in self.moves:
                    todo.append((at, True))
                    todo += [(ahead, False) for ahead in reversed(self.moves[at])]
                elif at not in self.gone:
                    order.append(at)
        return [*self.head, *(self.values.get(n, self.records[n]) for n in order)]

    def set(self, number: int, path: tuple[str | int, ...], value: Any) -> None:
        """Set the value at a path of a record."""
        record = self.values.get(number, self.records[number])
        self.values[number] = amend_record(self.data, record, path, value)

    def note(self, code: str, action: str, number: int, text: str) -> None:
        """Record what is done to a record."""
        self.ledger.note(RULES[code], action, self.records[number].place, text)

    def remove(self, code: str, number: int, text: str, value: Any) -> None:
        """Remove a record, and keep its value in quarantine."""
        self.gone.add(number)
        self.note(code, "removed", number, text)
        self.ledger.set_aside(RULES[code], self.records[number].place, value)

    def put_head_first(
        self, number: int, own: int, rebuild: Callable[[], Any], kind: str, title: str
    ) -> None:
        """Put the head of the session at the start: moved there, or rebuilt if it is lost.

        ``number`` is the record that stands there now, ``own`` the head itself, -1 for none.
        ``kind`` is the type of a head: a damaged head that is rebuilt is removed.
        """
        if own >= 0:
            self.note("LS610", "moved", own, f"{title} was moved to the start of the file")
            self.order = [own, *(n for n in range(len(self.records)) if n != own)]
            return
        made = rebuild()
        if made is None:
            return
        self.note("LS610", "inserted", number, f"{title} was rebuilt")
        self.head = [new_record("", made)]
        old = self.records[number]
        if old.is_record and old.value.get("type") == kind:
            self.gone.add(number)
            self.ledger.set_aside(RULES["LS610"], old.place, old.value)

    def move_children(self, name: str, parent: str | None) -> None:
        """Link all children of the records with one id to another record."""
        for child in self.tree.children.get(name, ()) if self.tree else ():
            self.set(child.number, (self.link,), parent)

    def relink(self, code: str, number: int, parent: int | None, name: str | None = None) -> None:
        """Link a record to another one, or to none; ``name`` is the parent's id if it is new."""
        where = "no record"
        if parent is not None:
            where = f"line {self.records[parent].place}"
            name = name or (self.tree.by_number[parent].id if self.tree else None)
        self.set(number, (self.link,), name)
        self.note(code, "linked", number, f"the parent of the record is now {where}")
