"""The images of rows in a backup: what they were before a repair and after it, as JSON values."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from msgspec import Struct

from lockstitch.formats.tables import Columns
from lockstitch.formats.untrusted import text_of

_LONG = 1 << 12

Images = dict[str, Any]


class Digest(Struct, frozen=True):
    """What stands in the image of a row that a repair adds for a value that is long.

    Nothing has to bring it back; an undo only has to know that it is still there.
    """

    hex: str


class Change(Struct, frozen=True):
    """One row before and after: None before is a new row, None after one that goes."""

    table: str
    before: Columns | None
    after: Columns | None


def digest_of(value: Any) -> Digest | None:
    """Return the digest of a blob; None for any other value."""
    return Digest(blake2b(value).hexdigest()) if type(value) is bytes else None


def image_of(change: Change) -> dict[str, Any]:
    """Return a change as JSON values; long blobs of a new row are digests in it."""
    after = change.after
    if change.before is None and after is not None:
        after = {name: _brief(value) for name, value in after.items()}
    sides = {"before": change.before, "after": after}
    return {"table": change.table, **{k: _plain(v) for k, v in sides.items()}}


def _brief(value: Any) -> Any:
    return digest_of(value) if type(value) is bytes and len(value) > _LONG else value


def _plain(columns: Columns | None) -> Columns | None:
    """Write columns as JSON values: what JSON cannot hold becomes its bytes in hexadecimal."""
    if columns is None:
        return None
    return {name: _plain_value(value) for name, value in columns.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Digest):
        return {"digest": value.hex}
    if type(value) is bytes:
        return {"blob": value.hex()}
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return {"text": value.encode("utf-8", "surrogateescape").hex()}
    return {"real": value.hex()} if type(value) is float else value


def change_of(image: dict[str, Any]) -> Change:
    """Return the change that JSON values stand for."""
    return Change(image["table"], _columns(image["before"]), _columns(image["after"]))


def _columns(image: Columns | None) -> Columns | None:
    if image is None:
        return None
    return {name: _value(value) for name, value in image.items()}


def _value(value: Any) -> Any:
    if type(value) is not dict:
        return value
    [(kind, text)] = value.items()
    if kind == "digest":
        return Digest(text)
    if kind == "real":
        return float.fromhex(text)
    raw = bytes.fromhex(text)
    return raw if kind == "blob" else text_of(raw)
