"""A store as earlier versions wrote it: a row for each record."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from lockstitch.journal.records import Head, JournalEntry, blob_name, chain_entries

SCHEMA = """
pragma page_size=8192;
pragma journal_mode=wal;
create table sessions (
    number integer primary key, name text not null unique, seq integer not null,
    digest blob not null, epoch integer not null, created integer not null,
    changed integer not null, holder text, deadline real, term real
);
create table events (
    session integer not null, seq integer not null, epoch integer not null, at integer not null,
    key text not null, codec integer not null, digest blob not null, body blob not null,
    unique (session, seq)
);
create table blobs (name blob primary key, codec integer not null, body blob not null);
pragma application_id=1819505770;
pragma user_version=1;
"""
SECOND = """
create table uses (
    session integer not null, name blob not null, primary key (session, name)
) without rowid;
create table graves (number integer not null);
insert into graves (number) values (0);
pragma user_version=2;
"""


def make(
    path: Path,
    sessions: Mapping[str, Sequence[JournalEntry]],
    *,
    version: int = 2,
    compress: bool = False,
) -> None:
    """Write a store of an earlier version."""
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as base:
        base.executescript(SCHEMA + (SECOND if version > 1 else ""))
        for number, (name, sent) in enumerate(sessions.items(), 1):
            _session(base, number, name, sent, compress=compress)
        base.commit()
        base.execute("pragma wal_checkpoint(truncate)").fetchall()


def _session(
    base: sqlite3.Connection,
    number: int,
    name: str,
    sent: Sequence[JournalEntry],
    *,
    compress: bool,
) -> None:
    chain = chain_entries(Head(), 1, sent)
    last = chain[-1]
    base.execute(
        "insert into sessions (number, name, seq, digest, epoch, created, changed)"
        " values (?, ?, ?, ?, 1, 1, ?)",
        (number, name, last.seq, last.digest, last.at),
    )
    for one in chain:
        codec, body = _packed(one.body, compress)
        base.execute(
            "insert into events values (?, ?, 1, ?, ?, ?, ?, ?)",
            (number, one.seq, one.at, one.key, codec, one.digest, body),
        )
    has_uses = base.execute("pragma user_version").fetchone()[0] > 1
    for value in (blob for one in sent for blob in one.blobs):
        key = bytes.fromhex(blob_name(value))
        base.execute(
            "insert or ignore into blobs values (?, ?, ?)", (key, *_packed(value, compress))
        )
        if has_uses:
            base.execute("insert or ignore into uses values (?, ?)", (number, key))


def _packed(body: bytes, compress: bool) -> tuple[int, bytes]:
    return (1, zlib.compress(body, 1)) if compress else (0, body)
