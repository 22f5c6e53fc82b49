"""Databases of opencode, goose and the OpenAI Agents SDK, with the tables that they create."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any

from tests.oracles.openai_responses import problems as refused_items

from .stored import Json, Marks, Stored, counted

OPENCODE = """
create table project (id text primary key, worktree text not null, vcs text, name text,
  time_created integer not null, time_updated integer not null, sandboxes text not null);
create table session (id text primary key, project_id text not null references project(id)
  on delete cascade, parent_id text, slug text not null, directory text not null,
  title text not null, version text not null, share_url text, revert text, permission text,
  time_created integer not null, time_updated integer not null, time_compacting integer,
  time_archived integer);
create table message (id text primary key, session_id text not null references session(id)
  on delete cascade, time_created integer not null, time_updated integer not null,
  data text not null);
create table part (id text primary key, message_id text not null references message(id)
  on delete cascade, session_id text not null, time_created integer not null,
  time_updated integer not null, data text not null);
create index message_session_time_created_id_idx on message (session_id, time_created, id);
create index part_message_id_id_idx on part (message_id, id);
create table event (id text primary key, aggregate_id text not null, seq integer not null,
  type text not null, data text not null);
create table event_sequence (aggregate_id text primary key, seq integer not null, owner_id text);
"""
GOOSE = """
create table schema_version (version integer primary key,
  applied_at timestamp default current_timestamp);
create table sessions (id text primary key, name text not null default '',
  description text not null default '', session_type text not null default 'user',
  working_dir text not null, created_at timestamp default current_timestamp,
  updated_at timestamp default current_timestamp, extension_data text default '{}',
  total_tokens integer, provider_name text, model_config_json text);
create table messages (id integer primary key autoincrement, message_id text,
  session_id text not null references sessions(id), role text not null,
  content_json text not null, created_timestamp integer not null,
  timestamp timestamp default current_timestamp, tokens integer, metadata_json text);
create index idx_messages_session on messages(session_id);
"""
AGENTS = """
create table agent_sessions (session_id text primary key,
  created_at timestamp default current_timestamp, updated_at timestamp default current_timestamp);
create table agent_messages (id integer primary key autoincrement, session_id text not null,
  message_data text not null, created_at timestamp default current_timestamp,
  foreign key (session_id) references agent_sessions (session_id) on delete cascade);
create index idx_agent_messages_session_id on agent_messages (session_id, id);
"""
NOON = 1_788_256_800_000


def rows(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, and the tables themselves."""
    with _copied(path) as base:
        schema = base.execute("select name, sql from sqlite_master order by name").fetchall()
        names = base.execute("select name from sqlite_master where type = 'table'").fetchall()
        found = {
            name: base.execute(f"select rowid, * from {name} order by rowid").fetchall()  # noqa: S608
            for (name,) in names
        }
    return {"": schema, **found}


def _created(path: Path, schema: str) -> sqlite3.Connection:
    base = sqlite3.connect(path)
    base.execute("pragma journal_mode = wal")
    base.executescript(schema)
    return base


def _query(path: Path, question: str, *given: Any) -> list[tuple[Any, ...]]:
    with _copied(path) as base:
        return base.execute(question, given).fetchall()


@contextmanager
def _copied(path: Path) -> Iterator[sqlite3.Connection]:
    """A copy of a database that nobody has open: even looking leaves files beside the original."""
    with TemporaryDirectory() as folder:
        for part in path.parent.glob(f"{path.name}*"):
            copy(part, folder)
        with closing(sqlite3.connect(Path(folder, path.name))) as base:
            yield base


# opencode


class OpencodeBook(Marks):
    """A session of opencode under construction; a call and its result are one part."""

    def __init__(self, name: str) -> None:
        super().__init__(f"opencode_{name}")
        self.session = f"ses_{counted(12, name)}ffe{counted(11, name, 'x')}"
        self.messages: list[tuple[str, Json]] = []
        self.parts: list[tuple[str, str, Json]] = []
        self.events: list[Json] = []

    def message(self, role: str, *parts: Json, done: bool = True) -> None:
        number = len(self.messages)
        own = f"msg_{number:04d}{counted(20, self.session, number)}"
        data: Json = {"role": role, "time": {"created": NOON + number}}
        if role == "assistant":
            data |= {"modelID": "claude-sonnet-4-5", "providerID": "anthropic", "cost": 0}
            data["parentID"] = self.messages[-1][0]
            if done:
                data["time"]["completed"] = NOON + number
                data["finish"] = "stop"
        self.messages.append((own, data))
        for part in parts:
            count = len(self.parts)
            self.parts.append((f"prt_{count:04d}{counted(20, own, count)}", own, part))

    def text(self, words: str) -> Json:
        return {"type": "text", "text": self.words(words)}

    def tool(self, words: str, output: str | None, metadata: str | None = None) -> Json:
        state: Json = {"status": "running", "input": {"command": self.words(f"echo {words}")}}
        state["time"] = {"start": NOON}
        if output is not None:
            state |= {"status": "completed", "output": self.words(output), "title": "echo"}
            state["time"]["end"] = NOON + 1
        if metadata is not None:
            state["metadata"] = {"output": self.words(metadata), "exit": 0}
        key = f"toolu_{counted(20, self.session, self.last)}"
        return {"type": "tool", "callID": key, "tool": "bash", "state": state}

    def work(self, ask: str, words: str) -> None:
        self.message("user", self.text(ask))
        tool = self.tool(words, "exit status 0")
        self.message("assistant", {"type": "step-start"}, self.text("I look."), tool)
        self.message("assistant", self.text("Done."))

    def write(self, path: Path) -> None:
        with closing(_created(path, OPENCODE)) as base, base:
            base.execute(
                "insert into project values ('p', '/home/ada/project', 'git', null, 1, 1, '[]')"
            )
            row = (self.session, "p", "slug", "/home/ada/project", "Work", "1.18.33", NOON, NOON)
            base.execute(
                "insert into session (id, project_id, slug, directory, title, version,"
                " time_created, time_updated) values (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            for number, (own, data) in enumerate(self.messages):
                when = NOON + number
                base.execute(
                    "insert into message values (?, ?, ?, ?, ?)",
                    (own, self.session, when, when, json.dumps(data)),
                )
            for number, (own, message, data) in enumerate(self.parts):
                when = NOON + number
                base.execute(
                    "insert into part values (?, ?, ?, ?, ?, ?)",
                    (own, message, self.session, when, when, json.dumps(data)),
                )

    def stored(self, name: str, **fields: Any) -> Stored:
        folder = f"{name}/.local/share/opencode"
        return _of_base(self, name, "opencode", f"{folder}/opencode.db", _opencode, **fields)


def _opencode(path: Path) -> tuple[list[str], Any]:
    """What is wrong, and what a resume sends."""
    messages = _query(path, "select id, data from message order by time_created, id")
    parts = _query(path, "select message_id, data from part order by message_id, id")
    decoded = [(message, json.loads(data)) for message, data in parts]
    wrong = [
        f"a part is {data['state']['status']}"
        for _, data in decoded
        if data["type"] == "tool" and data["state"]["status"] in {"pending", "running"}
    ]
    for own, data in messages:
        info = json.loads(data)
        if info["role"] == "assistant" and "completed" not in info["time"]:
            wrong.append(f"{own} never ended")
    sent = [
        [part["text"]] if part["type"] == "text" else _tool_texts(part)
        for _, part in decoded
        if part["type"] in {"text", "tool"}
    ]
    return wrong, sent


def _tool_texts(part: Json) -> list[Any]:
    state = part["state"]
    return [state["input"], state.get("output"), state.get("error")]


def _opencode_cases() -> Iterator[Stored]:
    book = OpencodeBook("healthy")
    book.work("Read the settings.", "settings")
    yield book.stored("healthy", healthy=True)
    book = OpencodeBook("left_running")
    book.work("Read the settings.", "settings")
    book.message("user", book.text("Run the build."))
    book.message("assistant", book.text("I build it."), book.tool("build", None), done=False)
    book.work("Are you there?", "status")
    yield book.stored("left_running")
    book = OpencodeBook("output_in_metadata")
    book.message("user", book.text("Run the build."))
    tool = book.tool("build", None, metadata="built")
    book.message("assistant", book.text("I build it."), tool, done=False)
    yield book.stored("output_in_metadata")


# goose


class GooseBook(Marks):
    """A session of goose under construction."""

    def __init__(self, name: str) -> None:
        super().__init__(f"goose_{name}")
        self.session = f"20260901_{int(counted(4, name), 16)}"
        self.rows: list[tuple[str, str, str]] = []

    def message(self, role: str, *content: Json, seen: bool = True) -> None:
        metadata = json.dumps({"userVisible": True, "agentVisible": seen})
        self.rows.append((role, json.dumps(list(content)), metadata))

    def text(self, words: str) -> Json:
        return {"type": "text", "text": self.words(words)}

    def request(self, words: str) -> Json:
        call = {"name": "developer__shell", "arguments": {"command": self.words(f"echo {words}")}}
        key = f"toolu_{counted(20, self.session, self.last)}"
        return {"type": "toolRequest", "id": key, "toolCall": {"status": "success", "value": call}}

    def response(self, key: str, words: str) -> Json:
        value = {"content": [{"type": "text", "text": self.words(words)}], "isError": False}
        result = {"status": "success", "value": value}
        return {"type": "toolResponse", "id": key, "toolResult": result}

    def work(self, ask: str, words: str) -> None:
        self.message("user", self.text(ask))
        request = self.request(words)
        self.message("assistant", self.text("I look."), request)
        self.message("user", self.response(request["id"], "exit status 0"))
        self.message("assistant", self.text("Done."))

    def write(self, path: Path) -> None:
        with closing(_created(path, GOOSE)) as base, base:
            base.execute("insert into schema_version (version) values (7)")
            row = (self.session, "Work", "/home/ada/project")
            base.execute("insert into sessions (id, name, working_dir) values (?, ?, ?)", row)
            for number, (role, content, metadata) in enumerate(self.rows):
                key = f"msg_{counted(12, self.session, number)}"
                base.execute(
                    "insert into messages (message_id, session_id, role, content_json,"
                    " created_timestamp, metadata_json) values (?, ?, ?, ?, ?, ?)",
                    (key, self.session, role, content, NOON // 1000 + number, metadata),
                )

    def stored(self, name: str, **fields: Any) -> Stored:
        folder = f"{name}/.local/share/goose/sessions"
        return _of_base(self, name, "goose", f"{folder}/sessions.db", _goose, **fields)


def _goose(path: Path) -> tuple[list[str], Any]:
    found = _query(
        path,
        "select role, content_json, metadata_json from messages order by created_timestamp, id",
    )
    wrong, sent = [], []
    for role, content, metadata in found:
        try:
            items = json.loads(content)
        except ValueError:
            wrong.append("a row can not be read")
            continue
        if json.loads(metadata or "{}").get("agentVisible", True):
            sent.append((role, items))
    return wrong + list(_goose_pairs(sent)), sent


def _goose_pairs(sent: list[tuple[str, list[Json]]]) -> Iterator[str]:
    waiting: set[str] = set()
    for role, items in sent:
        answers = [item["id"] for item in items if item["type"] == "toolResponse"]
        if set(answers) - waiting or len(set(answers)) < len(answers):
            yield "a response without its request"
        waiting -= set(answers)
        if waiting:
            yield "a request without its response"
        if not items:
            yield "an empty message"
        waiting = {item["id"] for item in items if item["type"] == "toolRequest"}
        if waiting and role != "assistant":
            yield "a request of the user"
    if waiting:
        yield "a request without its response at the end"


def _goose_cases() -> Iterator[Stored]:
    book = GooseBook("healthy")
    hidden = book.request("old")
    book.message("user", book.text("Old."), seen=False)
    book.message("assistant", hidden, seen=False)
    old = tuple(book.made)
    book.work("Read the settings.", "settings")
    yield book.stored("healthy", aside=old, healthy=True)
    book = GooseBook("open_request")
    book.work("Read the settings.", "settings")
    book.message("user", book.text("Run the build."))
    book.message("assistant", book.text("I build it."), book.request("build"))
    book.work("Are you there?", "status")
    yield book.stored("open_request")
    book = GooseBook("open_request_at_tail")
    book.message("user", book.text("Run the build."))
    book.message("assistant", book.text("I build it."), book.request("build"))
    yield book.stored("open_request_at_tail")
    book = GooseBook("orphan_response")
    book.work("Read the settings.", "settings")
    book.message("user", book.response("toolu_nobodymadethis", "late output"))
    book.message("assistant", book.text("I see."))
    yield book.stored("orphan_response")
    book = GooseBook("unreadable_row")
    book.work("Read the settings.", "settings")
    book.message("user", book.text("Tell me more."))
    lost = book.last
    role, content, metadata = book.rows[-1]
    book.rows[-1] = (role, content[:-3], metadata)
    book.message("assistant", book.text("This is more."))
    yield book.stored("unreadable_row", spare=(lost,))


# OpenAI Agents SDK


class AgentsBook(Marks):
    """A session of the OpenAI Agents SDK under construction."""

    def __init__(self, name: str) -> None:
        super().__init__(f"agents_{name}")
        self.session = f"ticket-{counted(4, name)}"
        self.items: list[str] = []

    def add(self, item: Json) -> None:
        self.items.append(json.dumps(item))

    def ask(self, words: str) -> None:
        self.add({"role": "user", "content": self.words(words)})

    def say(self, words: str) -> None:
        own = f"msg_{counted(40, self.session, len(self.items))}"
        content = [{"type": "output_text", "text": self.words(words), "annotations": []}]
        message = {"id": own, "type": "message", "role": "assistant", "status": "completed"}
        self.add({**message, "content": content})

    def call(self, words: str) -> str:
        arguments = json.dumps({"command": self.words(f"echo {words}")})
        key = f"call_{counted(20, self.session, self.last)}"
        own = f"fc_{counted(40, self.session, self.last)}"
        call = {"id": own, "type": "function_call", "call_id": key, "name": "shell"}
        self.add({**call, "arguments": arguments})
        return key

    def answer(self, key: str, words: str) -> None:
        output = self.words(words)
        self.add({"type": "function_call_output", "call_id": key, "output": output})

    def work(self, ask: str, words: str) -> None:
        self.ask(ask)
        self.answer(self.call(words), "exit status 0")
        self.say("Done.")

    def write(self, path: Path) -> None:
        with closing(_created(path, AGENTS)) as base, base:
            insert = "insert into agent_sessions (session_id) values (?)"
            base.execute(insert, (self.session,))
            for item in self.items:
                base.execute(
                    "insert into agent_messages (session_id, message_data) values (?, ?)",
                    (self.session, item),
                )

    def stored(self, name: str, **fields: Any) -> Stored:
        return _of_base(self, name, "openai-agents", f"{name}/project/agents.db", _items, **fields)


def _items(path: Path) -> tuple[list[str], Any]:
    wrong, sent = [], []
    for (text,) in _query(path, "select message_data from agent_messages order by id"):
        try:
            sent.append(json.loads(text))
        except ValueError:
            wrong.append("a row can not be read")
    return wrong + refused_items(sent), sent


def _agents_cases() -> Iterator[Stored]:
    book = AgentsBook("healthy")
    book.work("Read the settings.", "settings")
    yield book.stored("healthy", healthy=True)
    book = AgentsBook("open_call")
    book.ask("Run the build.")
    book.call("build")
    book.work("Are you there?", "status")
    yield book.stored("open_call")
    book = AgentsBook("orphan_output")
    book.ask("Run the build.")
    book.answer("call_nobodymadethis", "late output")
    book.say("I see.")
    yield book.stored("orphan_output")
    book = AgentsBook("doubled_output")
    book.ask("Read the settings.")
    book.answer(book.call("settings"), "port = 8080")
    book.items.append(book.items[-1])
    book.say("The port is 8080.")
    yield book.stored("doubled_output")
    book = AgentsBook("unreadable_row")
    book.work("Read the settings.", "settings")
    book.ask("Tell me more.")
    lost = book.last
    book.items[-1] = book.items[-1][:-2]
    book.say("This is more.")
    yield book.stored("unreadable_row", spare=(lost,))


def _of_base(
    book: OpencodeBook | GooseBook | AgentsBook,
    name: str,
    form: str,
    path: str,
    read: Callable[[Path], tuple[list[str], Any]],
    **fields: Any,
) -> Stored:
    spare, aside = fields.get("spare", ()), fields.get("aside", ())
    return Stored(
        name=name,
        format=form,
        path=path,
        session=book.session,
        write=book.write,
        state=rows,
        problems=lambda target: read(target)[0],
        sent=lambda target: read(target)[1],
        history=tuple(mark for mark in book.made if mark not in {*spare, *aside}),
        **fields,
    )


def _all() -> Iterable[Stored]:
    yield from _opencode_cases()
    yield from _goose_cases()
    yield from _agents_cases()


CASES: list[Stored] = list(_all())
