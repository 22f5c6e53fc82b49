"""Find the secrets of one text: by their formats, by their names or places, and by their look."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from lockstitch.redaction import texts
from lockstitch.redaction.places import GATED_MARKS, KNOWN_MARKS, PERSONAL_MARKS, PLACE_MARKS, Marks
from lockstitch.redaction.secrets import SecretSpan, find_in_run, find_named, fits
from lockstitch.redaction.texts import (
    SHORTEST_RUN,
    character_table,
    find_stretches,
    is_id,
    is_random,
)

PLACEHOLDER = re.compile(r"\[redacted:([a-z0-9-]{1,40}):(\d{1,9})\]")
# No key without a known format or a name is longer; anything longer is data.
LONGEST_TOKEN = 256
SHORTEST_TOKEN = 32
SHORTEST = 8
# How many times a text may be encoded within another one.
DEPTH = 3


class Layers(NamedTuple):
    """What to search for besides secrets of a known format.

    Secrets marked by a name or a place, texts that look random, and personal data.
    """

    named: bool = True
    random: bool = True
    personal: bool = False


SECRETS = Layers()
KNOWN = Layers(named=False, random=False)

# A run of nothing else is a name or a separator line, never a key.
_NO_KEY = b"abcdefghijklmnopqrstuvwxyz_-"
_NAME_LIKE = character_table(b"_-")
_BASE64_LIKE = character_table(b"_-+/=")


def find_spans(
    text: str, kind: str | None = None, layers: Layers = SECRETS, *, lead: str = ""
) -> list[SecretSpan]:
    """Find the secrets in a text, in order; none overlaps another one or a placeholder.

    ``kind`` is the kind of secret that the field of this text holds, if any; ``lead`` is the text
    in front of it. ``layers`` says what to search for.
    """
    if lead:
        size = len(lead)
        found = find_spans(lead + text, None, layers)
        inside = [
            SecretSpan(max(a, size) - size, b - size, what) for a, b, what in found if b > size
        ]
        return inside or find_spans(text, kind, layers)
    text = _neutral(text)
    if kind is not None and fits(kind, text):
        return _without_overlaps(
            text, _find_known(text, *_bytes(text)), [SecretSpan(0, len(text), kind)]
        )
    if len(text) < SHORTEST:
        return []
    data, low = _bytes(text)
    return _without_overlaps(
        text,
        _find_known(text, data, low),
        [*find_named(text, low), *_find_by_place(text, low)] if layers.named else (),
        _find_random(text, data) if layers.random else (),
        _find_marked(text, low, PERSONAL_MARKS) if layers.personal else (),
    )


def find_hidden(
    text: str, layers: Layers = SECRETS, depth: int = DEPTH
) -> Iterator[tuple[int, int]]:
    """Yield the places of secrets that can be read only after a text is decoded."""
    for view in texts.find_views(text):
        for start, end, _kind in find_spans(view.text, None, layers):
            yield view.place(start, end)
        for start, end in _find_hidden_runs(view.text, layers, depth):
            yield view.place(start, end)
    yield from _find_hidden_runs(text, layers, depth)


def _find_hidden_runs(text: str, layers: Layers, depth: int) -> Iterator[tuple[int, int]]:
    for run in texts.find_runs(text) if depth else ():
        if find_spans(run.text, None, layers) or any(find_hidden(run.text, layers, depth - 1)):
            yield run.start, run.end


# Separates texts that are searched together: no secret extends across it.
_SEAM = "\n\0\0\0\0\0\n"
_BATCH = 1 << 17


def suspicious(texts: Iterable[str], layers: Layers = SECRETS) -> set[str]:
    """Return those of many texts that may contain a secret; the others contain none."""
    suspects: set[str] = set()
    for batch in _batches(texts):
        together = _SEAM.join(batch)
        found = [span[:2] for span in find_spans(together, None, layers)]
        found += find_hidden(together, layers)
        if found:
            ends = list(accumulate(len(text) + len(_SEAM) for text in batch))
            for start, end in found:
                suspects.update(batch[bisect_right(ends, start) : bisect_right(ends, end - 1) + 1])
    return suspects


def holding(texts: Iterable[str], secrets: Iterable[str]) -> set[str]:
    """Return those of many texts that contain one of these secrets."""
    found: set[str] = set()
    for batch in _batches(texts):
        together = _SEAM.join(batch)
        for secret in secrets:
            if secret in together:
                found.update(text for text in batch if secret in text)
    return found


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size > _BATCH:
            yield batch
            batch, size = [], 0
    yield batch


def _neutral(text: str) -> str:
    """Return a text without the letters of its escapes, so that no word begins with one."""
    if "\\" in text:
        for letter in "nt":
            text = text.replace(f"\\{letter}", "\\ ")
    return text


def _bytes(text: str) -> tuple[bytes, bytes]:
    """Return one byte for each character, as written and in lower case; places stay the same."""
    data = text.encode("latin-1", "replace")
    return data, data.lower()


def _find_known(text: str, data: bytes, low: bytes) -> Iterator[SecretSpan]:
    for start, end in find_stretches(data, _NAME_LIKE, SHORTEST_RUN):
        if data[start:end].strip(_NO_KEY):
            yield from find_in_run(text, start, end)
    yield from _find_marked(text, low, KNOWN_MARKS)


def _find_by_place(text: str, low: bytes) -> Iterator[SecretSpan]:
    yield from _find_marked(text, low, PLACE_MARKS)
    for signs, marks in GATED_MARKS:
        if any(sign in low for sign in signs):
            yield from _find_marked(text, low, marks)


def _find_marked(text: str, low: bytes, marks: Marks) -> Iterator[SecretSpan]:
    for mark, find in marks:
        if not isinstance(mark, bytes):
            for found in mark.finditer(low):
                yield from find(text, found.start())
            continue
        at = low.find(mark)
        while at >= 0:
            behind = at + len(mark)
            for span in find(text, at):
                yield span
                behind = max(behind, span.end)
            at = low.find(mark, behind)


_CHECKSUM = re.compile(
    r"(?i:sha\d{1,3}|h1|md5|integrity|checksum|digest|etag|hash|base64)\W{1,4}$|\?[bB]\?$"
)
# The first bytes of pictures, fonts, archives and certificates; numbers; zeros in base64; UUIDs.
_DATA = re.compile(
    r"(?:iVBOR|/9j/|R0lGOD|UklGR|JVBER|MII|PHN2Z|d09G|H4sI|UEsDB|T2dnU|SUQz|0x[0-9a-fA-F]+$)"
    r"|.*AAA|.*[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}"
)
_MIXED = re.compile(rb"(?=[^a-z]*+[a-z])(?=[^A-Z]*+[A-Z])[^0-9]*+[0-9]")
_TOKEN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_+/-]*[A-Za-z0-9])?={0,2}")
_SLASHES = 16
_STEP = re.compile(r"[^/]+")
_LINE, _SHORTEST_LINE = 76, 60
_LINE_BEFORE = re.compile(r"(?:(?:^|\n)[ \t]*+[A-Za-z0-9+/]{60,76}|-----)(?:\r?\n|\\n)[ \t]*+$")
_LINE_BEHIND = re.compile(
    r"\r?\n[ \t]*+(?:[A-Za-z0-9+/]{40,76}+={0,2}|[A-Za-z0-9+/]{2,76}+={1,2})\s"
)


def _find_random(text: str, data: bytes) -> Iterator[SecretSpan]:
    """Find long tokens that no person typed, unless they are known to be harmless."""
    for start, end in find_stretches(data, _BASE64_LIKE, SHORTEST_TOKEN):
        is_worth_it = _MIXED.match(data, start, end) and not _is_wrapped(text, start, end)
        at = start if is_worth_it else end
        while at < end and (token := _TOKEN.search(text, at, end)):
            if SHORTEST_TOKEN <= len(token[0]) <= LONGEST_TOKEN:
                yield from _judge_token(text, token)
            at = token.end()


def _judge_token(text: str, token: re.Match[str]) -> Iterator[SecretSpan]:
    if _is_harmless(text, token.start(), token[0]):
        return
    # In base64 one character in 64 is a slash, in a path one in ten.
    if token[0].count("/") * _SLASHES <= len(token[0]) and is_random(token[0]):
        yield SecretSpan(*token.span(), "secret")
        return
    for step in _STEP.finditer(text, *token.span()):
        if len(step[0]) >= SHORTEST_TOKEN and is_random(step[0]):
            yield SecretSpan(*step.span(), "secret")


def _is_harmless(text: str, start: int, token: str) -> bool:
    """Whether a token is an id, a picture or a checksum."""
    before = text[max(0, start - 16) : start]
    if is_id(token) or _DATA.match(token) or _CHECKSUM.search(before):
        return True
    # base64 of a text is searched after decoding, but a name and a password have a colon
    run = texts.decode_whole(token)
    return run is not None and ":" not in run.text


def _is_wrapped(text: str, start: int, end: int) -> bool:
    """Whether this is a line of a longer base64 text: there is a full line before or after it."""
    if _LINE_BEFORE.search(text[max(0, start - 2 * _LINE) : start]):
        return True
    return end - start >= _SHORTEST_LINE and _LINE_BEHIND.match(text, end) is not None


def _without_overlaps(
    text: str,
    known: Iterable[SecretSpan],
    named: Iterable[SecretSpan] = (),
    *others: Iterable[SecretSpan],
) -> list[SecretSpan]:
    """Let each layer have only what the earlier layers left.

    If a secret found by its name contains one of a known format, only the rest of it is taken, so
    that the latter has the same placeholder everywhere.
    """
    layers = [list(known), list(named), *map(list, others)]
    if not any(layers):
        return []
    taken = bytearray(len(text))
    for done in PLACEHOLDER.finditer(text) if "[redacted:" in text else ():
        _take(taken, *done.span())
    chosen: list[SecretSpan] = []
    for layer in layers:
        for span in sorted(layer, key=lambda span: (span.start, -span.end)):
            for start, end in _left_of(taken, span, in_pieces=layer is layers[1]):
                _take(taken, start, end)
                chosen.append(SecretSpan(start, end, span.kind))
    return sorted(chosen)


def _take(taken: bytearray, start: int, end: int) -> None:
    taken[start:end] = b"\1" * (end - start)


def _left_of(taken: bytearray, span: SecretSpan, *, in_pieces: bool) -> Iterator[tuple[int, int]]:
    at, end = span.start, span.end
    if taken.find(1, at, end) < 0:
        yield at, end
        return
    while in_pieces and 0 <= at < end:
        stop = taken.find(1, at, end)
        stop = end if stop < 0 else stop
        if stop - at >= SHORTEST:
            yield at, stop
        at = taken.find(0, stop, end)
