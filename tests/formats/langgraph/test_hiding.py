"""Whatever LangGraph runs when it loads a thread is told, wherever it is, and nothing runs it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from msgspec.msgpack import Ext, encode

from lockstitch.formats.langgraph.safety import called_names, may_call, unsafe_names
from tests.postgres_server import shared

from . import hiding
from .graphs import saving

Run = Callable[..., tuple[int, str]]
# As lenient as LangGraph can be told to be.
LENIENT = JsonPlusSerializer(pickle_fallback=True, allowed_json_modules=True)
FORMS = list(hiding.forms(Path("x")))
WHOLE = {"sqlite": "an older checkpoint as a whole", "postgres": "a channel of an older checkpoint"}
PLACES = {"sqlite": hiding.SQLITE, "postgres": hiding.POSTGRES}
CASES = list(
    dict.fromkeys(
        (
            *(("sqlite", place, "msgpack") for place in hiding.SQLITE),
            *(("postgres", place, "msgpack") for place in hiding.POSTGRES),
            *((kind, place, form) for kind, place in WHOLE.items() for form in FORMS),
            *((kind, "a write on the head", form) for kind in WHOLE for form in FORMS),
        )
    )
)


@contextmanager
def lenient(kind: str, address: str) -> Iterator[Any]:
    if kind == "sqlite":
        with saving(address) as saver:
            yield SqliteSaver(saver.conn, serde=LENIENT)
    else:
        with PostgresSaver.from_conn_string(address) as made:
            made.serde = LENIENT
            made.setup()
            yield made


def made_thread(kind: str, folder: Path) -> str:
    """The address of a database with a thread that is whole."""
    address = shared().fresh() if kind == "postgres" else str(folder / "threads.db")
    with lenient(kind, address) as saver:
        hiding.talk(saver)
    return address


@pytest.mark.parametrize(("kind", "place", "form"), CASES, ids=map(" / ".join, CASES))
def test_what_langgraph_runs_is_told_and_does_not_run(
    kind: str, place: str, form: str, tmp_path: Path, lockstitch: Run
) -> None:
    address = made_thread(kind, tmp_path)
    status, printed = lockstitch("check", address)
    assert (status, "All clean" in printed) == (0, True)
    made = tmp_path / "made"
    PLACES[kind][place](address, *hiding.forms(made)[form])
    commands = ["check", "scan", "show", "export", "repair"]
    for command in commands:
        words = {"repair": ["--yes"], "export": ["--to", "anthropic"]}.get(command, [])
        named = ["--session", hiding.THREAD] if command in {"show", "export"} else []
        status, printed = lockstitch(command, address, *words, *named)
        if command == "check":
            assert status == 1
            assert "LS902" in printed
            assert "All clean" not in printed
            assert "mkdir" in printed or "pickle" in printed
    assert not made.exists()
    with lenient(kind, address) as saver, suppress(ValueError, TypeError, AttributeError):
        for namespace in ("", hiding.RUN, hiding.LASTING):
            list(saver.list(hiding.config(namespace)))
    assert made.exists(), "LangGraph itself runs it"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_where_it_is_hidden_is_told(kind: str, tmp_path: Path, lockstitch: Run) -> None:
    address = made_thread(kind, tmp_path)
    PLACES[kind]["a run of a subgraph"](address, "msgpack", hiding.forms(tmp_path)["msgpack"][1])
    _, printed = lockstitch("check", address, "--json")
    [session] = json.JSONDecoder().raw_decode(printed)[0]["sessions"]
    [finding] = session["findings"]
    assert (finding["code"], session["session"]) == ("LS902", hiding.THREAD)
    assert hiding.RUN in finding["message"]
    assert finding["place"].startswith("checkpoint")


def test_a_scan_of_a_file_finds_it_in_an_older_checkpoint(tmp_path: Path, lockstitch: Run) -> None:
    address = made_thread("sqlite", tmp_path)
    hiding.SQLITE["a channel of an older checkpoint"](
        address, "msgpack", hiding.forms(tmp_path)["msgpack"][1]
    )
    assert lockstitch("scan", address)[0] == 1


def test_metadata_that_runs_code_elsewhere_is_told(tmp_path: Path, lockstitch: Run) -> None:
    """LangGraph.js, and old versions for Python, load it as they load values."""
    address = made_thread("sqlite", tmp_path)
    text = hiding.forms(tmp_path)["json"][1]
    statement = f"update checkpoints set metadata = ? where checkpoint_id = {hiding.FIRST}"  # noqa: S608
    hiding.changed(Path(address), statement, b'{"source": "input", "step": -1, "a": %s}' % text)
    status, printed = lockstitch("check", address)
    assert (status, "LS902" in printed, "metadata" in printed) == (1, True, True)


def test_methods_that_older_versions_of_langgraph_js_call_are_told() -> None:
    """They took any method of a known class, of which one makes functions of texts."""
    made = {"lc": 2, "type": "constructor", "id": ["Set"], "method": "constructor", "args": ["x"]}
    call = {"lc": 2, "type": "constructor", "id": ["Map"], "method": "groupBy", "args": [[1], made]}
    data = json.dumps({"a": call}).encode()
    found = {
        str(name): severity for name, severity in unsafe_names(called_names("json", data)).items()
    }
    assert found == {"JavaScript.Map.groupBy": "error", "JavaScript.Set.constructor": "error"}


def test_what_is_harmless_is_not_looked_into(tmp_path: Path) -> None:
    """Otherwise nearly every row would be decoded, which takes many times as long."""
    address = made_thread("sqlite", tmp_path)
    with lenient("sqlite", address) as saver:
        for found in saver.list(hiding.config()):
            tag, data = LENIENT.dumps_typed(found.checkpoint)
            assert not may_call(tag, data)
    message = {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "AIMessage"]}
    texts = json.dumps([{**message, "kwargs": {"content": 'a "lc"', "id": "x"}}]).encode()
    assert not may_call("json", texts)
    assert not may_call("msgpack", encode(["\u01e0 \u05d0\u05d1", b"bytes", 1.5]))


def test_what_is_not_searched_again_hides_nothing() -> None:
    """A value is compared with the one before it, wherever in it the harmful part is."""
    noise = bytes(range(0x20, 0x7F)) * 200
    call = encode(Ext(0, encode(["os", "mkdir", "x" * 40])))
    safe = encode(Ext(0, encode(["builtins", "set", []])))
    base = noise[:9000] + safe + noise[:9000]
    assert not may_call("msgpack", base)
    for at in (*range(200), *range(4000, 4200), 9000, 9001, 12_000, len(base)):
        assert may_call("msgpack", base[:at] + call + base[at:], base)
        assert may_call("msgpack", base[:at] + call + base[at + len(call) :], base)
    spoilt = base.replace(b"builtins", b"builtinz")
    assert may_call("msgpack", spoilt.replace(b"builtinz\xa3set", b"builtinz\xa3zet"), base)
