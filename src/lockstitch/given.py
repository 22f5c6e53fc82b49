"""What a caller gave: a list or a body, of plain data or SDK objects, and for whom it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from lockstitch.dialects.fast import narrow
from lockstitch.dialects.profiles import Profile, profile_named, traits_of
from lockstitch.dialects.registry import dialect_of, new_dialect
from lockstitch.errors import UsageError
from lockstitch.kinds import Freeze, is_plain, thaw
from lockstitch.model.handed import Messages
from lockstitch.model.stretches import Excerpt
from lockstitch.repair.engine import Outcome
from lockstitch.rules import Case, Request


class Given:
    """One call's input, opened: the raw list, the body around it, and the receiver.

    Where a quick walk can tell, ``excerpt`` holds the part of the list that needs a look; an
    excerpt of nothing proves that the list is fine. ``clean`` says that it is known to hold no
    text that cannot be sent, and not to be large.
    """

    def __init__(  # noqa: PLR0913 - the last ones by keyword
        self,
        value: Any,
        dialect: str | None,
        model: str | None,
        waiting: Iterable[str],
        *,
        stored: bool = False,
        clean: bool = False,
    ) -> None:
        self.value = value
        self.clean = clean
        self.stored = stored
        self.plain: Any = list(value) if type(value) is Messages else value
        self.freeze: Freeze = _as_it_is
        self.waiting = _ids_of(waiting)
        self.excerpt: Excerpt | None = None
        if dialect is not None:
            self.excerpt = self._excerpt(profile_named(dialect), model)
        if self.excerpt is None and not is_plain(self.plain):
            self.plain, self.freeze = thaw(value)
        self.profile = profile_named(dialect or dialect_of(self.plain))
        self.body, self.raw = _opened(self.plain, self.profile.list_key)
        self.model = model if model is not None else _model_in(self.body)
        self.traits = traits_of(self.model)
        if dialect is None and self.freeze is _as_it_is:
            self.excerpt = self._excerpt(self.profile, model)

    def _excerpt(self, profile: Profile, model: str | None) -> Excerpt | None:
        """Narrow a list down, where no rule on the whole request needs to see all of it."""
        value = self.plain
        body = value if type(value) is dict else None
        raw = value.get(profile.list_key) if body is not None else value
        if (
            self.waiting
            or type(raw) is not list
            or (body is not None and _lacks_tools(body, profile))
        ):
            return None
        ends = not self.stored and (body is not None or model is not None)
        dialect = new_dialect(profile.dialect)
        found = narrow(dialect, profile, raw, with_ends=ends, clean=self.clean)
        if found is None or not is_plain([raw[number] for number in found.numbers]):
            return None
        return found

    @property
    def is_proven(self) -> bool:
        """Tell whether it is proven already that nothing is wrong."""
        return self.excerpt is not None and not self.excerpt.numbers

    @property
    def unchanged(self) -> Any:
        """What was given; an iterator, which is spent by now, comes back as its items."""
        return self.value if self.freeze is _as_it_is else self.freeze(self.plain)

    @property
    def looked_at(self) -> Sequence[Any]:
        """The raw messages that need a look."""
        if self.excerpt is None:
            return self.raw
        return [self.raw[number] for number in self.excerpt.numbers]

    def case(self) -> Case:
        """View what needs a look, for the rules."""
        dialect = new_dialect(self.profile.dialect)
        request = Request(
            dialect,
            self.profile,
            self.traits,
            self.body,
            self.waiting,
            self.model,
            stored=self.stored,
        )
        if self.excerpt is not None:
            request = structs.replace(request, numbers=self.excerpt.numbers, ids=self.excerpt.ids)
        return Case(request, dialect.read(self.looked_at))

    def whole(self, outcome: Outcome) -> list[Any] | None:
        """Put what was left out back into a repaired list; None if its seams did not survive."""
        if self.excerpt is None:
            return outcome.messages
        numbers = self.excerpt.numbers
        origins = [numbers[origin] if origin >= 0 else -1 for origin in outcome.origins]
        return self.excerpt.spliced(self.raw, outcome.messages, origins)

    def wrapped(self, messages: list[Any], body: dict[str, Any] | None) -> Any:
        """Put a healed list back where it came from."""
        return messages if body is None else {**body, self.profile.list_key: messages}


def _ids_of(waiting: Iterable[str]) -> frozenset[str]:
    if isinstance(waiting, str) or not isinstance(waiting, Iterable):
        raise UsageError("waiting takes a collection of call ids, such as {'toolu_1'}")
    return frozenset(waiting)


def _lacks_tools(body: dict[str, Any], profile: Profile) -> bool:
    """Without tools a call anywhere counts, so that all of the list has to be seen."""
    return profile.tools_needed and not body.get("tools")


def _as_it_is(value: Any) -> Any:
    return value


def _opened(value: Any, list_key: str) -> tuple[dict[str, Any] | None, Sequence[Any]]:
    if isinstance(value, list):
        return None, value
    if isinstance(value, dict) and isinstance(value.get(list_key), list):
        return value, value[list_key]
    if isinstance(value, dict) and isinstance(value.get(list_key), str):
        return value, []
    raise UsageError(
        f"expected a list of messages or a request body with a list under {list_key!r}, "
        f"got {type(value).__name__}"
    )


def _model_in(body: dict[str, Any] | None) -> str | None:
    model = (body or {}).get("model") or (body or {}).get("modelId")
    return model if isinstance(model, str) else None
