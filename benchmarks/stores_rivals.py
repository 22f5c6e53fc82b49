"""One conversation in every store, each event durable as it happens where the store can do that.

Every class here has ``turn``, ``load`` (a new reader gets all messages), ``size`` (bytes on disk
when it is closed) and ``durable``, what an acknowledged event has been through.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stores_workload import Turn, chat, entry, events, lines

import lockstitch
from lockstitch.stores.base import Backend
from lockstitch.stores.opening import open_backend

NAME = "ticket-42"


def size_of(path: Path) -> int:
    """Bytes of a file and those that belong to it, or of everything in a folder."""
    if path.is_dir():
        return sum(inner.stat().st_size for inner in path.rglob("*") if inner.is_file())
    return sum(inner.stat().st_size for inner in path.parent.glob(f"{path.name}*"))


class Rival:
    """One store with one conversation."""

    durable = "each event"

    def turn(self, turn: Turn) -> None:
        """Keep a turn's five events, one by one."""
        raise NotImplementedError

    def load(self) -> int:
        """Open the conversation anew; gives the number of its messages."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of it."""

    def size(self) -> int:
        """Bytes on disk, after ``close``."""
        raise NotImplementedError


class Journal(Rival):
    """Lockstitch, the five events appended as facts."""

    def __init__(self, url: str, size: Callable[[], int]) -> None:
        self.url = url
        self.backend: Backend = open_backend(url)
        self.lease = self.backend.acquire(NAME)
        self.after = 0
        self._size = size

    def turn(self, turn: Turn) -> None:
        for event in events(turn, self.after):
            head = self.backend.append(self.lease, [entry(event, self.after + 1)], self.after)
            self.after = head.seq

    def load(self) -> int:
        with lockstitch.open(self.url) as store:
            return len(store.read(NAME).request("openai-chat"))

    def close(self) -> None:
        self.backend.close()

    def size(self) -> int:
        return self._size()


class Sessions(Journal):
    """Lockstitch as people use it: say, record, run_tools; starts of tools are durable, too."""

    durable = "each event and each start"

    def __init__(self, url: str, size: Callable[[], int]) -> None:
        self.url = url
        self.store = lockstitch.open(url)
        self.session = self.store.session(NAME)
        self._size = size

    def turn(self, turn: Turn) -> None:
        results = dict(zip(turn.commands, turn.results, strict=True))
        self.session.say(turn.prompt)
        self.session.record(chat(turn)[1], "openai-chat")
        self.session.run_tools({"bash": lambda command: results[command]})

    def close(self) -> None:
        self.session.close()
        self.store.close()


class RawLines(Rival):
    """A file of lines, one write and one fdatasync each."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "raw.jsonl"
        self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def turn(self, turn: Turn) -> None:
        for line in lines(turn):
            os.write(self.file, line)
            os.fdatasync(self.file)

    def load(self) -> int:
        return len([json.loads(line) for line in self.path.read_bytes().splitlines()])

    def close(self) -> None:
        os.close(self.file)

    def size(self) -> int:
        return size_of(self.path)


class RawSqlite(Rival):
    """A table of messages, WAL, synchronous=FULL, one row a commit."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "raw.db"
        self.connection = raw_connection(self.path)

    def turn(self, turn: Turn) -> None:
        for line in lines(turn):
            self.connection.execute("insert into messages (session, body) values (1, ?)", (line,))

    def load(self) -> int:
        connection = sqlite3.connect(self.path)
        rows = connection.execute("select body from messages where session = 1 order by number")
        messages = [json.loads(body) for (body,) in rows]
        connection.close()
        return len(messages)

    def close(self) -> None:
        self.connection.close()

    def size(self) -> int:
        return size_of(self.path)


def raw_connection(path: Path) -> sqlite3.Connection:
    """A connection as careful people set it up by hand."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=120, check_same_thread=False)
    connection.execute("pragma journal_mode=wal").fetchone()
    connection.execute("pragma synchronous=full")
    connection.execute(
        "create table if not exists messages"
        " (number integer primary key, session integer, body blob)"
    )
    return connection


class AgentsSqlite(Rival):
    """``SQLiteSession`` of the OpenAI Agents SDK, one ``add_items`` an event."""

    def __init__(self, folder: Path) -> None:
        from agents import SQLiteSession  # noqa: PLC0415

        self.path = folder / "agents.db"
        self.kind = SQLiteSession
        self.loop = asyncio.new_event_loop()
        self.session = SQLiteSession(NAME, self.path)

    def turn(self, turn: Turn) -> None:
        for items in _items(turn):
            self.loop.run_until_complete(self.session.add_items(items))

    def load(self) -> int:
        session = self.kind(NAME, self.path)
        items = self.loop.run_until_complete(session.get_items())
        session.close()
        return len(items)

    def close(self) -> None:
        self.session.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def size(self) -> int:
        return size_of(self.path)


def _items(turn: Turn) -> list[list[Any]]:
    """A turn's five events as items of the Responses API."""
    calls = [
        {
            "type": "function_call",
            "call_id": name,
            "name": "bash",
            "arguments": json.dumps({"command": command}),
        }
        for name, command in zip(turn.ids, turn.commands, strict=True)
    ]
    outputs = [
        [{"type": "function_call_output", "call_id": name, "output": text}]
        for name, text in zip(turn.ids, turn.results, strict=True)
    ]
    spoken = {"role": "assistant", "content": turn.thought}
    return [[{"role": "user", "content": turn.prompt}], [spoken, *calls], *outputs]


class StrandsFiles(Rival):
    """``FileSessionManager`` of strands, one file a message."""

    durable = "no: no fsync"

    def __init__(self, folder: Path) -> None:
        from strands.session.file_session_manager import FileSessionManager  # noqa: PLC0415
        from strands.types.session import SessionAgent, SessionMessage  # noqa: PLC0415

        self.folder = folder / "strands"
        self.kind, self.message = FileSessionManager, SessionMessage
        self.manager = FileSessionManager(NAME, storage_dir=str(self.folder))
        self.manager.create_agent(NAME, SessionAgent("a", {}, {}))
        self.count = 0

    def turn(self, turn: Turn) -> None:
        for message in _blocks(turn):
            self.manager.create_message(NAME, "a", self.message(message, self.count))
            self.count += 1

    def load(self) -> int:
        manager = self.kind(NAME, storage_dir=str(self.folder))
        return len([found.to_message() for found in manager.list_messages(NAME, "a")])

    def size(self) -> int:
        return size_of(self.folder)


def _blocks(turn: Turn) -> list[Any]:
    """A turn's five events in Bedrock's spelling."""
    calls = [
        {"toolUse": {"toolUseId": name, "name": "bash", "input": {"command": command}}}
        for name, command in zip(turn.ids, turn.commands, strict=True)
    ]
    return [
        {"role": "user", "content": [{"text": turn.prompt}]},
        {"role": "assistant", "content": [{"text": turn.thought}, *calls]},
        *(
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": name, "content": [{"text": text}]}}],
            }
            for name, text in zip(turn.ids, turn.results, strict=True)
        ),
    ]


class LangGraph(Rival):
    """A graph of two nodes over messages, one ``invoke`` a turn, durability ``sync``."""

    durable = "each step"

    def __init__(
        self,
        saver: Any,
        close: Callable[[], None],
        size: Callable[[], int],
        durability: str = "sync",
        delta: bool = False,
    ) -> None:
        from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # noqa: PLC0415

        self.ai, self.human, self.tool = AIMessage, HumanMessage, ToolMessage
        self._close, self._size, self.durability = close, size, durability
        self.config = {"configurable": {"thread_id": NAME}}
        self.now: Turn | None = None
        self.graph = self._compiled(saver, delta)

    def _compiled(self, saver: Any, delta: bool) -> Any:
        from langgraph.graph import END, START, MessagesState, StateGraph  # noqa: PLC0415

        graph: Any = StateGraph(_delta_state() if delta else MessagesState)
        graph.add_node("model", lambda _state: {"messages": [self._reply()]})
        graph.add_node("tools", lambda _state: {"messages": self._results()})
        graph.add_edge(START, "model")
        graph.add_edge("model", "tools")
        graph.add_edge("tools", END)
        return graph.compile(checkpointer=saver)

    def _reply(self) -> Any:
        assert self.now is not None  # noqa: S101
        calls = [
            {"name": "bash", "args": {"command": command}, "id": name}
            for name, command in zip(self.now.ids, self.now.commands, strict=True)
        ]
        return self.ai(content=self.now.thought, tool_calls=calls)

    def _results(self) -> list[Any]:
        assert self.now is not None  # noqa: S101
        pairs = zip(self.now.ids, self.now.results, strict=True)
        return [self.tool(content=text, tool_call_id=name) for name, text in pairs]

    def turn(self, turn: Turn) -> None:
        self.now = turn
        said = {"messages": [self.human(content=turn.prompt)]}
        self.graph.invoke(said, self.config, durability=self.durability)

    def load(self) -> int:
        return len(self.graph.get_state(self.config).values["messages"])

    def close(self) -> None:
        self._close()

    def size(self) -> int:
        return self._size()


def _delta_state() -> Any:
    """A state whose messages are a ``DeltaChannel``, which is a beta of LangGraph."""
    from typing import Annotated, TypedDict  # noqa: PLC0415

    from langgraph.channels.delta import DeltaChannel  # noqa: PLC0415
    from langgraph.graph.message import _messages_delta_reducer  # noqa: PLC0415

    channel = DeltaChannel(_messages_delta_reducer)
    return TypedDict("DeltaState", {"messages": Annotated[list, channel]})


def langgraph_sqlite(folder: Path, **options: Any) -> Rival:
    """A graph with ``SqliteSaver``, as its documentation sets it up."""
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415

    path = Path(tempfile.mkdtemp(prefix="langgraph-", dir=folder)) / "langgraph.db"
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    return LangGraph(saver, connection.close, lambda: size_of(path), **options)


def langgraph_postgres(dsn: str, size: Callable[[], int], **options: Any) -> Rival:
    """A graph with ``PostgresSaver``, as its documentation sets it up."""
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415
    from psycopg import connect  # noqa: PLC0415
    from psycopg.rows import dict_row  # noqa: PLC0415

    connection = connect(dsn, autocommit=True, prepare_threshold=0, row_factory=dict_row)
    saver = PostgresSaver(connection)
    saver.setup()
    return LangGraph(saver, connection.close, size, **options)
