"""Bodies that came compressed: read within limits, and replies read as they arrive."""

from __future__ import annotations

import importlib
import zlib
from typing import Any, Protocol

_GZIP = 16 + zlib.MAX_WBITS
_EITHER = 32 + zlib.MAX_WBITS
_STEP = 1 << 20


class Undecodable(ValueError):
    """A body is not in the encoding that it claims, or in one that is not known here."""


class TooLarge(ValueError):
    """A body is larger than is taken once it is decoded."""


class Reader(Protocol):
    """Decodes a body in pieces."""

    def read(self, chunk: bytes) -> bytes:
        """Return what a chunk adds; raises Undecodable."""


def decoded(data: bytes, encoding: str, most: int) -> bytes:
    """Return a body without its encoding; never more than ``most`` bytes are made."""
    for name in reversed(_names(encoding)):
        data = _undone(data, name, most)
    return data


def is_plain(encoding: str) -> bool:
    """Whether a ``Content-Encoding`` says that there is none."""
    return not _names(encoding)


def readable() -> tuple[str, ...]:
    """Return the encodings beyond the usual that can be undone here."""
    return ("zstd",) if _zstandard() is not None else ()


def _names(encoding: str) -> list[str]:
    words = (word.strip().lower() for word in encoding.split(","))
    return [word for word in words if word not in ("", "identity")]


def _undone(data: bytes, name: str, most: int) -> bytes:
    reader = _reader(name)
    out: list[bytes] = []
    size = 0
    for piece in reader.pieces(data):
        size += len(piece)
        if size > most:
            raise TooLarge(f"the body has more than {most} bytes once it is decoded")
        out.append(piece)
    if not reader.is_done:
        raise Undecodable(f"the body ends before its {name} encoding does")
    return b"".join(out)


class _Zlib:
    """Undoes gzip and deflate, the latter with or without the header that it should have."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.decoder = zlib.decompressobj(_GZIP if name == "gzip" else zlib.MAX_WBITS)
        self.has_begun = False
        self.rest = b""

    @property
    def is_done(self) -> bool:
        return bool(self.decoder.eof)

    def pieces(self, data: bytes) -> Any:
        """Return what the data holds, in pieces of a bounded size."""
        if self.name == "deflate" and not self.has_begun and data and data[0] & 0x0F != 8:  # noqa: PLR2004
            self.decoder = zlib.decompressobj(-zlib.MAX_WBITS)
        self.has_begun = self.has_begun or bool(data)
        try:
            while data:
                yield self.decoder.decompress(data, _STEP)
                data = self.decoder.unconsumed_tail
                if not data and self.decoder.eof and self.decoder.unused_data:
                    # a gzip file may be several, one behind the other
                    data = self.decoder.unused_data
                    self.decoder = zlib.decompressobj(_GZIP)
        except zlib.error:
            raise Undecodable(f"the body is not {self.name}") from None


class _Zstd:
    """Undoes zstd, with the package that can."""

    def __init__(self, package: Any) -> None:
        self.error = package.ZstdError
        self.decoder = package.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        self.is_done = False

    def pieces(self, data: bytes) -> Any:
        """Return what the data holds, in pieces."""
        # a block of a few bytes can stand for 128 KB, so that few are read at a time
        step = 512
        try:
            for at in range(0, len(data), step):
                yield self.decoder.decompress(data[at : at + step])
        except self.error:
            raise Undecodable("the body is not zstd") from None
        self.is_done = bool(getattr(self.decoder, "eof", True))


def _reader(name: str) -> _Zlib | _Zstd:
    if name in ("gzip", "x-gzip"):
        return _Zlib("gzip")
    if name == "deflate":
        return _Zlib("deflate")
    package = _zstandard() if name == "zstd" else None
    if package is None:
        raise Undecodable("the body is in an encoding that is not known here")
    return _Zstd(package)


def _zstandard() -> Any:
    try:
        return importlib.import_module("zstandard")
    except ModuleNotFoundError:
        return None


class Reply:
    """A reply's body, decoded as it arrives; what cannot be decoded is given as nothing."""

    def __init__(self, encoding: str) -> None:
        self.readers: list[_Zlib | _Zstd] = []
        self.is_lost = False
        try:
            self.readers = [_reader(name) for name in reversed(_names(encoding))]
        except Undecodable:
            self.is_lost = True

    def read(self, chunk: bytes) -> bytes:
        """Return what a chunk adds."""
        if self.is_lost:
            return b""
        try:
            for reader in self.readers:
                chunk = b"".join(reader.pieces(chunk))
        except Undecodable:
            self.is_lost = True
            return b""
        return chunk
