"""Gemini CLI: ``~/.gemini/tmp/<project>/chats/session-<time>-<id>.jsonl``, once ``.json``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from lockstitch.dialects import GEMINI
from lockstitch.dialects.base import text_of_blocks
from lockstitch.errors import LockstitchError
from lockstitch.files import read
from lockstitch.files.os_files import SessionUser, working_in_folder
from lockstitch.formats.gemini_cli.write_back import (
    USER,
    Chat,
    GeminiWriteBack,
    is_header,
    is_message,
    is_prompt,
    responses_in,
)
from lockstitch.formats.interface import (
    DOCUMENT,
    LINES,
    LOST,
    Aside,
    Context,
    Format,
    Glimpse,
    History,
    SourcedMessage,
    Transcript,
    new_finding,
)
from lockstitch.formats.records import Record, as_dict, as_str
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, RULES, Finding
from lockstitch.rules.rule import several

_KINDS = ("user", "gemini", "info", "error", "warning")


class GeminiCli(Format):
    """A log of messages; calls and their results stand in the message of the model."""

    name = "gemini-cli"
    title = "Gemini CLI"
    dialect = GEMINI
    kinds = (LINES, DOCUMENT)
    lists = (("messages",),)
    places = (
        ".gemini/tmp/*/chats/session-*.jsonl",
        ".gemini/tmp/*/chats/session-*.json",
        ".gemini/tmp/*/chats/*/*.jsonl",
    )
    programs = ("gemini", "gemini-cli")
    resume = ("gemini", "--resume", "{id}")
    is_local = True

    def claims(self, name: str, head: Sequence[Any]) -> bool:
        values = [value for value in head if type(value) is dict]
        if any(is_header(value) for value in values):
            return True
        known = [value for value in values if self.is_record(value)]
        spoken = any(value.get("type") in ("user", "gemini") for value in known)
        return name.startswith("session-") and spoken and 2 * len(known) > len(values)

    def is_record(self, value: dict[str, Any]) -> bool:
        if is_header(value) or "$set" in value or "$rewindTo" in value:
            return True
        kind = value.get("type")
        return is_message(value) and type(kind) is str and kind in _KINDS and "content" in value

    def glimpse(
        self, path: str, head: Sequence[dict[str, Any]], tail: Sequence[dict[str, Any]]
    ) -> Glimpse:
        lines = [*head, *tail]
        messages = [m for value in lines for m in _messages_in(value)]
        heads = [value for value in lines if is_header(value)]
        about_it = [one for value in lines for one in (value, as_dict(value.get("$set")))]
        titles = [as_str(one.get("summary")) for one in about_it]
        prompts = (value.get("content") for value in messages if is_prompt(value))
        about: dict[str, Any] = heads[0] if heads else {}
        return Glimpse(
            title=next(filter(None, reversed(titles)), ""),
            prompt=text_of_blocks(next(prompts, "")),
            session=as_str(about.get("sessionId")),
            project=_root_of(path),
            is_aside=about.get("kind") == "subagent",
        )

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        chat = Chat(records)
        hidden = [message.value for lost in chat.lost.values() for message in lost]
        transcript = Transcript(
            context,
            records,
            chat.history,
            session=as_str(chat.about.get("sessionId")) or context.name.rpartition(".")[0],
            turns=chat.turns(),
            left=sum(map(is_prompt, hidden)),
            notes=[*_notes(chat)],
            state=chat,
        )
        transcript.findings = [*_findings(chat)]
        return transcript

    def asides(self, transcript: Transcript) -> list[Aside]:
        return [*_asides(transcript.state)]

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        """Remove empty records, and rewinds to nowhere, which hide everything before them."""
        chat: Chat = transcript.state
        gone = dict.fromkeys(chat.lost, "LS704") | dict.fromkeys(_empty(chat), "LS610")
        for number, code in sorted(gone.items()):
            record = chat.records[number]
            text = (
                ("a rewind to a missing message was removed")
                if code == "LS704"
                else "holds nothing"
            )
            ledger.note(RULES[code], "removed", record.place, text)
            ledger.set_aside(RULES[code], record.place, record.value)
        return [record for number, record in enumerate(chat.records) if number not in gone]

    def users(self, path: str, session: str | None, project: str | None) -> Iterable[SessionUser]:
        return working_in_folder(self.programs, path, lambda folder: _is_project(path, folder))

    def belongs(self, path: str, folder: str) -> bool:
        return Path(path).name.startswith("session-") and _is_project(path, folder)

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        return GeminiWriteBack(transcript, ledger).write_back(repaired)


def _messages_in(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages in a record: itself, or those of a document."""
    found = value.get("messages")
    return [one for one in found if type(one) is dict] if type(found) is list else [value]


def _root_of(path: str) -> str | None:
    """Return the working directory of the chats that a file is among, if it is recorded there."""
    folders = (place.parent for place in Path(path).parents if place.name == "chats")
    return next(filter(None, map(_root, folders)), None)


def _is_project(path: str, folder: str) -> bool:
    """Whether a file is among the chats of a working directory, by digest or by recorded name."""
    digest = sha256(os.fsencode(folder)).hexdigest()
    places = [place for place in Path(os.path.realpath(path)).parents if place.name == "chats"]
    return any(digest == place.parent.name or _root(place.parent) == folder for place in places)


def _root(place: Path) -> str:
    try:
        return read.read_file(place / ".project_root").decode("utf-8").strip()
    except (LockstitchError, ValueError):
        return ""


def _findings(chat: Chat) -> Iterator[Finding]:
    if not is_header(chat.about):
        place = next((r.place for r in chat.records if r.value is not None), "1")
        text = "no record says which session this is: Gemini CLI starts with an empty one"
        yield new_finding("LS610", place, text, ERROR, fixable=False)
    for number in _empty(chat):
        yield new_finding("LS610", chat.records[number].place, "this record holds nothing")
    for number, hidden in chat.lost.items():
        text = f"a rewind to a message that does not exist hides the {len(hidden)} before it"
        yield new_finding("LS704", chat.records[number].place, text)


def _asides(chat: Chat) -> Iterator[Aside]:
    """Yield the messages that a rewind to nowhere hides, as they stood before it."""
    for number, hidden in chat.lost.items():
        hidden_history = Chat([Record("", message.value) for message in hidden]).history
        homes = [[number] * len(row) for row in hidden_history.sources]
        history = History(
            hidden_history.dialect, hidden_history.messages, homes, hidden_history.paths
        )
        reason = "hidden by a rewind to a message that does not exist"
        yield Aside(LOST, number, number - 1, history, reason)


def _empty(chat: Chat) -> list[int]:
    return [n for n, record in enumerate(chat.records) if record.is_record and not record.value]


def _notes(chat: Chat) -> Iterator[str]:
    values = [message.value for message in chat.messages.values()]
    lists = [calls for value in values if type(calls := value.get("toolCalls")) is list]
    calls = [call for calls in lists for call in calls if type(call) is dict]
    # The ids of calls that hold their result; results may also be repeated in user messages.
    held = {call["id"] for call in calls if call.get("result") and type(call.get("id")) is str}
    twice = 0
    for value in values:
        parts = responses_in(value) if value.get("type") == USER else ()
        answers = [part["functionResponse"] for part in parts]
        ids = (answer.get("id") for answer in answers if type(answer) is dict)
        twice += any(type(name) is str and name in held for name in ids)
    if twice:
        yield (
            f"{several(twice, 'message')} of the user repeat results that their calls already "
            "hold: a bug of Gemini CLI, whose resume sends both and is refused"
        )
    if chat.about.get("kind") == "subagent":
        yield "is a sub-agent's chat"
