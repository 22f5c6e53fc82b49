"""What shows a conversation has to be able to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

from lockstitch.rules import Finding
from lockstitch.transcript.pieces import Note

T_co = TypeVar("T_co", covariant=True)


class Layout(Protocol[T_co]):
    """The pieces of a conversation, each as whatever it is shown with: a row, an element.

    What closes a call (``result``, ``no_result``, ``closed``) comes right behind it, unless
    ``stray`` said that a result stands under no call; a ``mark`` is for what came before it.
    """

    def turn(self, number: int, place: str) -> Iterator[T_co]:
        """Head a turn."""

    def left_out(self, what: str) -> Iterator[T_co]:
        """Say what of the history is not shown."""

    def said(self, text: str, role: str) -> Iterator[T_co]:
        """Give words, and who said them."""

    def note(self, note: Note) -> Iterator[T_co]:
        """Return what stands beside the conversation."""

    def call(self, name: str, arguments: dict[str, Any] | str, by: str = "") -> Iterator[T_co]:
        """Give a call."""

    def result(
        self,
        title: str,
        text: str,
        pictures: Sequence[str] = (),
        where: str = "",
        *,
        failed: bool = False,
    ) -> Iterator[T_co]:
        """Close a call with what came back, or give a result that stands alone."""

    def stray(self) -> Iterator[T_co]:
        """Set a result apart that stands under no call."""

    def named(self, name: str) -> str:
        """Give a name from the conversation, fit to stand in a title."""

    def broken(self, title: str, found: Sequence[Finding]) -> str:
        """Give a title with the mark of something broken, and the code if one was found."""

    def no_result(self, found: Sequence[Finding], call: str | None) -> Iterator[T_co]:
        """Close a call that nothing came back for."""

    def closed(self, word: str) -> Iterator[T_co]:
        """Close a call with what is known instead of a result."""

    def checkpoint(self, text: str) -> Iterator[T_co]:
        """Mark a place to go back to."""

    def mark(self, found: Finding, indent: str) -> Iterator[T_co]:
        """Mark a broken place."""
