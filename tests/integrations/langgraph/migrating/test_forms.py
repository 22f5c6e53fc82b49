"""Values that only an application's own serialiser reads: carried or declined, never garbled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from lockstitch.integrations.langgraph import Saver, migrate
from tests.integrations.langgraph.migrating.shapes import SHAPES, on
from tests.integrations.langgraph.migrating.test_again import sessions
from tests.integrations.langgraph.migrating.test_migrating import assert_same, content
from tests.integrations.langgraph.savers import SAVERS, address_of

pytestmark = pytest.mark.filterwarnings("ignore:Deserializing unregistered type")


class Cipher(CipherProtocol):
    """What stands for a cipher: no byte is what it was."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "toy", bytes(one ^ 0xA5 for one in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "toy"
        return bytes(one ^ 0xA5 for one in ciphertext)


@pytest.fixture
def serde() -> EncryptedSerializer:
    return EncryptedSerializer(Cipher())


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agent.db"


def test_encrypted_by_the_sqlite_saver(tmp_path: Path, target: str, serde: Any) -> None:
    address = address_of("sqlite", tmp_path)
    with SAVERS["sqlite"](address) as old:
        old.serde = serde
        SHAPES["tools"](old, "1")
        [failed] = migrate(address, target).threads
        assert failed.state == "failed"
        assert "is stored as 'msgpack+toy'" in str(failed.error)
        assert "serde=" in str(failed.error)
        assert sessions(target) == {}
        [done] = migrate(address, target, serde=serde).threads
        assert (done.state, done.forms) == ("copied", ())
        with Saver(target, serde=serde) as new:
            assert_same(old, new, "1")


@pytest.mark.parametrize("shape", ["tools", "stateful subgraph", "deltas"])
def test_encrypted_by_the_postgres_saver(
    tmp_path: Path, target: str, serde: Any, shape: str
) -> None:
    """Each value stands by itself there, so that it is carried without the key."""
    address = address_of("postgres", tmp_path)
    with SAVERS["postgres"](address) as old:
        old.serde = serde
        go_on = SHAPES[shape](old, "1")
        [done] = migrate(address, target).threads
        assert done.state == "copied"
        assert "msgpack+toy" in done.forms
        with Saver(target, serde=serde) as new:
            assert_same(old, new, "1")
            graph, given = go_on(new)
            twin, _ = go_on(old)
            assert content(graph.invoke(given, on("1"))) == content(twin.invoke(given, on("1")))
    stored = (tmp_path / "agent.db").read_bytes()
    assert b"turn 0" not in stored


class Odd:
    """What only pickle takes."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Odd

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_pickled_writes_are_carried(tmp_path: Path, target: str, kind: str) -> None:
    pickling = JsonPlusSerializer(pickle_fallback=True)
    address = address_of(kind, tmp_path)
    with SAVERS[kind](address) as old:
        SHAPES["tools"](old, "1")
        old.serde = pickling
        old.put_writes(old.get_tuple(on("1")).config, [("seen", Odd())], "another task")
        [done] = migrate(address, target).threads
        assert (done.state, done.forms) == ("copied", ("pickle",))
        with Saver(target, serde=pickling) as new:
            assert_same(old, new, "1")
