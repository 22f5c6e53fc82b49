"""Files that their program has packed with Zstandard, such as old rollouts of Codex.

The standard library of the Pythons that are supported knows no Zstandard, so that reading them
needs the extra ``zstd``. A file may say of itself that it is small and unpack to anything: it is
unpacked in small steps, up to a limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from lockstitch import inputs
from lockstitch.errors import Unreadable, UsageError

if TYPE_CHECKING:
    from types import ModuleType

MAGIC = b"\x28\xb5\x2f\xfd"
SUFFIX = ".zst"
# A byte unpacks to 32 KiB at most, so that one step takes 32 MiB at most.
_STEP = 1 << 10
_WINDOW = 1 << 27
# The level at which Codex packs.
_LEVEL = 3
_MISSING = "is packed with Zstandard, which needs: pip install 'lockstitch[zstd]'"


class Unpacked(Struct, frozen=True):
    """What was packed; not ``whole`` if the file breaks off, or is damaged behind this."""

    data: bytes
    whole: bool


def is_packed(path: str) -> bool:
    """Whether a file is a packed one, by its name."""
    return path.endswith(SUFFIX)


def plain_name(path: str) -> str:
    """Return the name that a file has when it is not packed."""
    return path.removesuffix(SUFFIX)


def is_hidden(path: str) -> bool:
    """Whether the same file stands beside it unpacked, which its program reads in its place."""
    return is_packed(path) and os.path.lexists(plain_name(path))


def unpack(data: bytes, limit: int | None = None) -> Unpacked:
    """Return what was packed; raises Unreadable if it is over the limit, that of any input."""
    library = _library()
    limit = inputs.unpacked_budget(len(data)) if limit is None else limit
    pieces: list[bytes] = []
    size = 0
    whole = False
    try:
        for piece, ended in _steps(library, (data,)):
            pieces.append(piece)
            size += len(piece)
            whole = ended
            if size > limit:
                raise Unreadable(
                    f"is over the limit of {limit} bytes once it is unpacked: "
                    f"{inputs.VARIABLE} sets another limit"
                )
    except library.ZstdError:
        whole = False
    return Unpacked(b"".join(pieces), whole)


def unpacked_head(path: str, size: int) -> bytes:
    """Return the beginning of what was packed."""
    library = _library()
    found = b""
    with inputs.opened(path) as handle, inputs.told():
        try:
            for piece, _ in _steps(library, iter(lambda: os.read(handle, _STEP), b"")):
                found += piece
                if len(found) >= size:
                    break
        except library.ZstdError:
            pass
    return found[:size]


def pack(data: bytes) -> bytes:
    """Pack data as Codex does."""
    packed: bytes = _library().ZstdCompressor(level=_LEVEL).compress(data)
    return packed


def _steps(library: ModuleType, chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Unpack frame after frame, and say at each step whether a frame has just ended."""
    unpacker = library.ZstdDecompressor(max_window_size=_WINDOW)
    frame = None
    for chunk in chunks:
        for at in range(0, len(chunk), _STEP):
            rest = chunk[at : at + _STEP]
            while rest:
                frame = frame or unpacker.decompressobj()
                piece = frame.decompress(rest)
                rest = frame.unused_data if frame.eof else b""
                yield piece, frame.eof and not rest
                frame = None if frame.eof else frame


def _library() -> ModuleType:
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise UsageError(_MISSING) from None
    return zstandard
