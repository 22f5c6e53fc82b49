"""Values on their way from one saver to another: built where that is harmless, carried where not.

A value that names a class outside LangGraph's list of safe ones is never imported. It stays the
bytes that were stored, wherever in a state it stands, and is written as these bytes again; so is
a value in a form that only a serialiser of the application's own can read (encrypted, pickled).
"""

from __future__ import annotations

from typing import Any

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from msgspec import Struct

from lockstitch.errors import Unreadable
from lockstitch.integrations.langgraph.saving.serde import SafeSerializer, names_in
from lockstitch.journal.checkpoints import Opaque

_MSGPACK = "msgpack"
_OPTION = ormsgpack.OPT_NON_STR_KEYS


class Carried(Struct, frozen=True):
    """A part of a value that is not built here: its kind in msgpack, and its bytes."""

    code: int
    data: bytes


class CarryingSerializer(SafeSerializer):
    """Reads any stored value and writes it again, and never imports what it names.

    Equal bytes are read as the very same object, so that whoever stores them again knows it.
    ``names`` are the classes that were carried, ``tags`` the forms that are not known here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: set[tuple[str, ...]] = set()
        self.tags: set[str] = set()
        self._built_before: dict[tuple[int, bytes], Any] = {}
        self._carried = 0

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read a value, as far as that is harmless."""
        tag, raw = data
        if tag != _MSGPACK:
            try:
                return super().loads_typed(data)
            except Unreadable:
                self.tags.add(tag)
                return Opaque(tag, bytes(raw))
        before = self._carried
        try:
            value = ormsgpack.unpackb(raw, ext_hook=self._part, option=_OPTION)
        except ValueError:
            # Damaged: nobody can read it, here or there.
            return Opaque(tag, bytes(raw))
        if self._carried > before:
            self.names.update(name for name in names_in(raw) if not self._is_allowed(name))
        return value

    def _part(self, code: int, data: bytes) -> Any:
        found = self._built_before.get((code, data))
        if found is None:
            found = self._built_before[code, data] = self._read(code, data)
        self._carried += type(found) is Carried
        return found

    def _read(self, code: int, data: bytes) -> Any:
        before = self._carried
        inner = ormsgpack.unpackb(data, ext_hook=self._part, option=_OPTION)
        if self._carried > before:
            return Carried(code, data)
        try:
            return self._built(code, inner)
        except Unreadable:
            return Carried(code, data)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write a value; what was carried is written as it was."""
        if isinstance(obj, Opaque):
            return obj.tag, obj.data
        if obj is None or isinstance(obj, bytes | bytearray):
            return super().dumps_typed(obj)
        return _MSGPACK, ormsgpack.packb(obj, default=_packed, option=jsonplus._option)  # noqa: SLF001


def _packed(obj: Any) -> Any:
    if isinstance(obj, Carried):
        return ormsgpack.Ext(obj.code, obj.data)
    return jsonplus._msgpack_default(obj)  # noqa: SLF001
