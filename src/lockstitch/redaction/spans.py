"""Where the secrets of one text are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from lockstitch.redaction import formats, names
from lockstitch.redaction.formats import SHORTEST_RUN, Span
from lockstitch.redaction.shapes import LONGEST_TOKEN, is_random

PLACEHOLDER = re.compile(r"\[redacted:([a-z0-9-]{1,40}):(\d{1,9})\]")
SHORTEST = 8
SHORTEST_TOKEN = 32

Finder = Callable[[str, int], Iterator[Span]]
# A word that must be in the text (in small letters) for each kind, and who looks there.
_MARKS: tuple[tuple[bytes, Finder], ...] = (
    (b"eyj", formats.jwt),
    (b"-----begin", formats.private_key),
    (b"hooks.slack.com", formats.slack_hook),
    (b"/webhooks/", formats.webhook),
    (b"://", formats.password_in_url),
)
_NAMES: tuple[tuple[bytes, Finder], ...] = (
    (b"secret", names.named),
    (b"token", names.named),
    (b"key", names.named),
    (b"pass", names.named),
    (b"pwd", names.named),
    (b"credential", names.named),
    (b"authorization", names.authorization),
    (b"bearer", names.bearer),
    (b" -u ", names.user_option),
)


def _table(more: str) -> bytes:
    """A map of all characters of a token to "a" and of everything else to a space."""
    return bytes(
        ord("a") if code < 128 and (chr(code).isalnum() or chr(code) in more) else ord(" ")  # noqa: PLR2004 - ASCII
        for code in range(256)
    )


_NAMES_ONLY = _table("_-")
_WITH_BASE64 = _table("_-+/=")


def spans(text: str, *, formats_only: bool = False) -> list[Span]:
    """Find the secrets in a text: in order, none touching another or a placeholder."""
    if len(text) < SHORTEST:
        return []
    # One byte a character, so that places in the bytes are places in the text.
    data = text.encode("latin-1", "replace")
    found = [*_marked(text, data.lower(), _MARKS if formats_only else _MARKS + _NAMES)]
    for start, end in _runs(data.translate(_NAMES_ONLY), SHORTEST_RUN):
        found += formats.in_run(text, start, end)
    if not formats_only:
        for start, end in _runs(data.translate(_WITH_BASE64), SHORTEST_TOKEN):
            found += _random(text, start, end)
    return _united(text, found) if found else found


def _marked(text: str, low: bytes, marks: tuple[tuple[bytes, Finder], ...]) -> Iterator[Span]:
    for mark, find in marks:
        at = low.find(mark)
        while at >= 0:
            end = at + 1
            for span in find(text, at):
                yield span
                end = max(end, span.end)
            at = low.find(mark, end)


def _runs(mapped: bytes, shortest: int) -> Iterator[tuple[int, int]]:
    needle = b"a" * shortest
    start = mapped.find(needle)
    while start >= 0:
        end = mapped.find(b" ", start)
        end = len(mapped) if end < 0 else end
        yield start, end
        start = mapped.find(needle, end)


_CHECKSUM = re.compile(r"(?i:sha\d{1,3}|h1|md5|integrity|checksum|digest|etag|hash|base64)\W{1,4}$")
_DATA = re.compile(r"iVBOR|/9j/|R0lGOD|UklGR|JVBER|AAAA|MII|PHN2Z|d09G|H4sI|UEsDB|T2dnU|SUQz")
_WRAPPED = (60, 64, 70, 72, 76)
_STEPS = re.compile(r"[^/]*[aeiouAEIOU][^/]*[a-z][^/]*")


def _random(text: str, start: int, end: int) -> Iterator[Span]:
    """Give a long token that no person typed, unless it is known to be something harmless."""
    while start < end and text[start] in "=/+-_":
        start += 1
    token = text[start:end].rstrip("-_/")
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN or "=" in token.rstrip("="):
        for piece in re.finditer(r"[^=]+", token) if len(token) <= LONGEST_TOKEN * 4 else ():
            if piece[0] != token.rstrip("="):
                yield from _random(text, start + piece.start(), start + piece.end())
        return
    if _is_harmless(text, start, token):
        return
    if "/" in token and "+" not in token:
        for step in re.finditer(r"[^/]+", token):
            if len(step[0]) >= SHORTEST_TOKEN and is_random(step[0]):
                yield Span(start + step.start(), start + step.end(), "secret")
    elif is_random(token):
        yield Span(start, start + len(token), "secret")


def _is_harmless(text: str, start: int, token: str) -> bool:
    if names.is_id(token) or _DATA.match(token):
        return True
    if _CHECKSUM.search(text[max(0, start - 16) : start]):
        return True
    return len(token) in _WRAPPED and _is_wrapped(text, start, len(token))


def _is_wrapped(text: str, start: int, length: int) -> bool:
    """Tell whether this is a line of a longer base64 text: a full line stands beside it."""
    beside = (text[start + length + 1 : start + 2 * length + 1], text[start - length - 1 : start - 1])
    return any(len(line) > length // 2 and line.split(None, 1)[0] == line for line in beside)


def _united(text: str, found: list[Span]) -> list[Span]:
    """Join what overlaps, the first and longest kind winning, and leave placeholders alone."""
    done = [match.span() for match in PLACEHOLDER.finditer(text)] if "[redacted:" in text else []
    united: list[Span] = []
    for span in sorted(found, key=lambda span: (span.start, -span.end)):
        if span.start == span.end or any(s < span.end and span.start < e for s, e in done):
            continue
        if united and span.start < united[-1].end:
            last = united[-1]
            united[-1] = Span(last.start, max(last.end, span.end), last.kind)
        else:
            united.append(span)
    return united
