"""A summary without a model: what was asked, done, touched and left open, taken from the words.

It says nothing that is not in the conversation. When there is little room, the user's requests
go last: first the details of what was done, then the beginnings of long texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from lockstitch.compaction.telling import Told, shortened

_PATH_KEYS = re.compile(r"(?:^|_)(?:path|file|filename|file_path|notebook_path|target_file)$")
_PATHS = re.compile(r"(?<![\w/.~-])(?:~?\.{0,2}/)?(?:[\w.@-]+/)+[\w.@-]+\.\w{1,8}\b")
_QUESTION = re.compile(r"[^.!?\n]{8,}\?")
_MOST_FILES = 60
_MOST_TOOLS = 20
_LONGEST_PATH = 300
NOTHING_SAID = "Nothing was said that can be told in words."
_MOST_ERRORS = 5
_FEWEST = 20
# From here on down nothing but the user's requests is told at any length.
_LEAN = 100
# About as long as the note that something was left out.
_NOTE = 30
_ALL = 1 << 30
# How much is told of an old request, of a newer one, and of anything else: from plenty of room to
# hardly any.
_LENGTHS = (
    (_ALL, _ALL, 2000),
    (_ALL, _ALL, 400),
    (_ALL, _ALL, 100),
    (_ALL, _ALL, 40),
    (800, _ALL, 100),
    (200, _ALL, 100),
    (200, 2000, 100),
    (100, 800, 100),
    (100, 400, 40),
    (100, 200, 40),
    (40, 100, 40),
    (40, 40, 40),
)

Count = Callable[[str], int]


def digest(
    lines: Sequence[Told], previous: str, room: int, count: Count, most: int | None = None
) -> str:
    """Sum up lines in ``room`` tokens at most, as ``count`` counts them.

    ``previous`` is the summary of what came before these lines. The user's requests word for word
    may take it to ``most`` tokens.
    """
    for lengths in _LENGTHS:
        text = _written(lines, previous, *lengths)
        is_lean = lengths[2] <= _LEAN and lengths[0] == _ALL
        if count(text) <= (max(room, most or 0) if is_lean else room):
            return text
    return _cut(_written(lines, previous, *_LENGTHS[-1]), room, count)


def _cut(text: str, room: int, count: Count) -> str:
    """Give as much of a text as there is room for, its middle left out."""
    length = len(text)
    while length > 1 and count(shortened(text, length)) > room:
        length = length * 3 // 4
    return shortened(text, length)


def _written(lines: Sequence[Told], previous: str, old: int, new: int, length: int) -> str:
    users = _by(lines, "user")
    sections = (
        ("Summary of what came before", [shortened(previous, new * 4)] if previous else []),
        ("What the user asked, in order", _recent([line.text for line in users], old, new)),
        (
            "What was answered at the end of each turn",
            _recent(_conclusions(lines), length // 2, length),
        ),
        ("Tools that were used", _tools(lines)),
        ("Files that were touched", _files(lines, length)),
        ("The last errors", _errors(lines, length)),
        ("Questions that were left open", _questions(lines, length)),
    )
    if not any(entries for _, entries in sections):
        return NOTHING_SAID
    return "\n\n".join(
        f"## {title}\n" + "\n".join(f"- {entry}" for entry in entries)
        for title, entries in sections
        if entries
    )


def _by(lines: Iterable[Told], who: str) -> list[Told]:
    return [line for line in lines if line.who == who]


def _said(line: Told, length: int) -> str:
    return shortened(line.text.strip(), length)


def _recent(texts: Sequence[str], old: int, new: int) -> list[str]:
    """Shorten texts, the older half more; of very many the oldest are only counted."""
    most = max(new, _FEWEST)
    kept = texts[-most:]
    half = len(kept) // 2
    lengths = [old] * half + [new] * (len(kept) - half)
    told = [_brief(text.strip(), size) for text, size in zip(kept, lengths, strict=True)]
    return [f"({len(texts) - most} earlier ones)", *told] if len(texts) > most else told


def _brief(text: str, length: int) -> str:
    """Shorten a text, unless the note of it would be as long as what it stands for."""
    return text if len(text) <= length + _NOTE else shortened(text, length)


def _conclusions(lines: Sequence[Told]) -> list[str]:
    """Give the last words of the assistant before each of the user's."""
    last: list[str] = []
    words = ""
    for line in lines:
        if line.who == "user" and words:
            last.append(words)
            words = ""
        elif line.who == "assistant":
            words = line.text
    return [*last, words] if words else last


def _tools(lines: Iterable[Told]) -> list[str]:
    """Count calls by the tool's name."""
    names = Counter(line.name or "(unnamed)" for line in _by(lines, "call"))
    told = (f"{shortened(name, 80)} ({count})" for name, count in names.most_common(_MOST_TOOLS))
    return [", ".join(told)] if names else []


def _files(lines: Iterable[Told], length: int) -> list[str]:
    """Name the files that calls had for arguments, the latest last."""
    found: dict[str, None] = {}
    for line in _by(lines, "call"):
        arguments = line.arguments if isinstance(line.arguments, dict) else {}
        for key, value in arguments.items():
            named = [value] if isinstance(value, str) and _PATH_KEYS.search(str(key)) else []
            for path in named or (_PATHS.findall(value) if isinstance(value, str) else []):
                found.pop(path, None)
                found[path] = None
    most = min(_MOST_FILES, max(length // 4, _FEWEST // 2))
    return [path for path in list(found)[-most:] if len(path) < _LONGEST_PATH]


def _errors(lines: Iterable[Told], length: int) -> list[str]:
    failed = [line for line in lines if line.who == "result" and line.failed]
    return [f"{line.name}: {_said(line, length // 2)}" for line in failed[-_MOST_ERRORS:]]


def _questions(lines: Sequence[Told], length: int) -> list[str]:
    """Give the questions in the last words, whoever said them."""
    spoken = [line for line in lines if line.who in ("user", "assistant")][-1:]
    found = (match[0].strip() for line in spoken for match in _QUESTION.finditer(line.text))
    return [shortened(question, length) for question in found][-3:]
