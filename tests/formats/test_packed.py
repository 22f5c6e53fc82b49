"""Rollouts that Codex has packed: found, checked, shown, exported, repaired, undone."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
import zstandard

from lockstitch import sessions
from lockstitch.errors import Unreadable, UsageError
from lockstitch.files import read
from lockstitch.sources.targets import sources_in

from .campaign import Home, session_of
from .codex_files import CASES, Rollout, violations
from .stored import Stored, counted, marks_in

OPEN = next(case for case in CASES if case.name == "open_call_at_tail")
HEALTHY = next(case for case in CASES if case.name == "healthy_paginated")
TORN = next(case for case in CASES if case.name == "torn")


def put(home: Home, case: Stored, cut: int = 0) -> Path:
    """A packed file, without its last bytes."""
    case.write(home.root / "plain")
    data = streamed((home.root / "plain").read_bytes())
    (home.root / "plain").unlink()
    return home.put("it", f"{case.path}.zst", data[: len(data) - cut])


def streamed(data: bytes) -> bytes:
    """Packed as a stream is, which does not say how long it will be."""
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    return packer.compress(data) + packer.flush()


def unpacked(path: Path) -> bytes:
    return read.unpack(path.read_bytes()).data


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_packed_rollout_is_found_and_checked(home: Home) -> None:
    path = put(home, OPEN)
    for command in (("scan", "--json"), ("scan", "--json", home.root), ("check", "--json", path)):
        ran = home.run(*command)
        report = session_of(ran, path)
        assert (report["format"], report["session"]) == ("codex", OPEN.session)
        assert [found["code"] for found in report["findings"]] == ["LS101"]
        assert ran.changed == ()
    by_id = home.run("check", "--json", OPEN.session)
    assert by_id.status == 1, by_id.err


def test_a_healthy_one_is_clean_and_keeps_its_bytes(home: Home) -> None:
    path = put(home, HEALTHY)
    ran = home.run("repair", "--yes", "--json", path)
    assert (ran.status, session_of(ran, path)["status"]) == (0, "ok")
    assert ran.changed == ()


def test_it_is_shown_and_exported(home: Home) -> None:
    path = put(home, OPEN)
    for command in ("show", "export"):
        ran = home.run(command, path)
        assert set(marks_in(ran.out.decode())) == set(OPEN.history), ran.err


def test_it_is_repaired_packed_and_undone_to_the_byte(home: Home) -> None:
    path = put(home, OPEN)
    before = path.read_bytes()
    assert home.run("repair", "--yes", path).status == 0
    assert path.read_bytes().startswith(read.ZSTD_MAGIC)
    assert violations(unpacked(path)) == []
    assert home.run("check", path).status == 0
    assert home.run("undo", "--yes", path).status == 0
    assert path.read_bytes() == before


def test_a_copy_is_packed_if_its_name_says_so(home: Home) -> None:
    path = put(home, OPEN)
    for name, is_packed in (("copy.jsonl", False), ("copy.jsonl.zst", True)):
        copy = home.root / name
        assert home.run("repair", "--yes", path, "-o", copy).status == 0
        data = copy.read_bytes()
        assert data.startswith(read.ZSTD_MAGIC) is is_packed
        assert violations(read.unpack(data).data if is_packed else data) == []


def test_what_is_wrong_with_its_lines_is_found_too(home: Home) -> None:
    path = put(home, TORN)
    ran = home.run("repair", "--yes", "--json", path)
    assert "LS601" in {found["code"] for found in session_of(ran, path)["findings"]}
    assert violations(unpacked(path)) == []


def test_one_that_breaks_off_is_read_as_far_as_it_goes(home: Home) -> None:
    book = Rollout("large", paginated=True)
    for count in range(300):
        book.work("Read the settings.", counted(64, count) * 40)
    path = put(home, book.stored("large"), cut=30)
    broken = path.read_bytes()
    ran = home.run("check", "--json", path)
    found = session_of(ran, path)["findings"]
    assert ("LS601", "error") in {(one["code"], one["severity"]) for one in found}
    assert any("breaks off" in one["message"] for one in found)
    assert home.run("repair", "--yes", path).status == 0
    assert read.unpack(path.read_bytes()).whole
    assert unpacked(path).count(b'"output_text"') > 150
    assert violations(unpacked(path)) == []
    assert home.run("undo", "--yes", path).status == 0
    assert path.read_bytes() == broken


def test_one_of_which_nothing_can_be_unpacked_is_unreadable(home: Home) -> None:
    path = put(home, HEALTHY, cut=30)
    ran = home.run("repair", "--yes", path)
    assert ran.status == 2
    assert "packed, and damaged" in ran.err


def test_beside_an_unpacked_one_it_is_not_read(home: Home) -> None:
    put(home, OPEN)
    home.make("plain", OPEN.path, OPEN.write)
    ran = home.run("scan", "--json")
    assert list(ran.sessions) == [str(home.root / OPEN.path)]


def test_several_frames_are_one_file() -> None:
    data = streamed(b"one\n") + streamed(b"two\n")
    assert read.unpack(data) == read.Unpacked(b"one\ntwo\n", whole=True)
    assert read.unpack(data[:-1]).whole is False
    assert read.unpack(data[:-8] + b"\xff" * 8).data.startswith(b"one\n")


def test_a_bomb_is_refused() -> None:
    bomb = streamed(b"\0" * (1 << 24))
    assert len(bomb) < 1 << 12
    with pytest.raises(Unreadable, match="over the limit"):
        read.unpack(bomb, limit=1 << 20)


def test_what_is_packed_but_no_session_is_declined(home: Home) -> None:
    path = home.put("it", "notes.jsonl.zst", streamed(b"hello\n"))
    assert home.run("scan", home.root).status == 0
    ran = home.run("check", path)
    assert ran.status == 2
    assert "binary" not in ran.err


def test_without_the_library_it_says_what_to_install(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(home, OPEN)
    real = builtins.__import__

    def refusing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "zstandard":
            raise ModuleNotFoundError(name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(UsageError, match=r"lockstitch\[zstd\]"):
        sources_in(str(path))
    [report] = sessions.scan([str(path)])
    assert "lockstitch[zstd]" in str(report.error)
