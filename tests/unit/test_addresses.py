"""What of an address may be shown: never a secret, wherever libpq would find one."""

from __future__ import annotations

import re
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from lockstitch.formats.langgraph.postgres import KIND
from lockstitch.formats.langgraph.postgres.database import Database, LangGraphSchema, parse_options
from lockstitch.sources.own_stores import StorePlace
from lockstitch.sources.threads import SchemaTask, ThreadSource
from lockstitch.stores import addresses
from lockstitch.stores.addresses import parsed, public, with_option

SECRET = "s3kr1t"  # noqa: S105

SPELLINGS = [
    f"postgresql://ada:{SECRET}@host/db",
    f"postgresql://ada:p?{SECRET}#w0rd@host/db",
    f"postgresql://ada:{SECRET}?x=y@host/db",
    f"postgresql://ada:x/{SECRET}@host/db",
    f"postgresql://ada:x@{SECRET}@host/db",
    f"postgresql://ada:{SECRET}/x@host/db",
    f"postgresql://:{SECRET}@host/db",
    f"postgresql://host/db?password={SECRET}",
    f"postgresql://host/db?user=ada:{SECRET}",
    f"postgresql://host/db?user=ada:{SECRET}@host",
    f"postgresql://host/db?host=ada:{SECRET}@host",
    f"postgresql://host/db?dbname=postgresql://ada:{SECRET}@host",
    f"postgresql://host?password={SECRET}@x",
    f"postgresql://host/db?sslmode=require&password={SECRET}&schema=x",
    f"postgresql://host/db?pass%77ord={SECRET}",
    f"postgresql://host/db?%70%61ssword={SECRET}",
    f"postgresql://host/db?sslpassword={SECRET}",
    f"postgresql://host/db?oauth_client_secret={SECRET}",
    f"postgresql://host/db?scram_client_key={SECRET}",
    f"postgresql://host/db?sslkey=pkcs11:pin-value%3D{SECRET}",
    f"postgresql://host/db?passfile=/home/ada/{SECRET}",
    f"postgresql://host/db?options=-cmy.key%3D{SECRET}",
    f"postgresql://host/db?application_name=x&PASSWORD={SECRET}",
    f"postgresql://host/db?sslmode=require%20password={SECRET}",
    f"postgresql://host/db?sslmode=require%20password%3D{SECRET}",
    f"postgresql://host/db?password={SECRET}&broken",
    f"postgresql://host/db?pass=word={SECRET}",
    f"postgresql://ada:{SECRET}%@host/db",
    f"postgresql://ada:{SECRET}@[::1/db",
    f"postgresql://ada:{SECRET}@a,b:5432,[::1]:77/db",
    f"postgres://ada:{SECRET}@host",
    f"postgresql:ada:{SECRET}@host/db",
    f"postgresql:/ada:{SECRET}@host/db",
    f"POSTGRESQL://ada:{SECRET}@host/db",
    f"PostgreSQL://ada:{SECRET}@host/db",
    f"postgresql+psycopg://ada:{SECRET}@host/db",
    f"postgresql+asyncpg://ada:{SECRET}@host/db",
    f"jdbc:postgresql://host/db?user=ada&password={SECRET}",
    f"mysql://ada:{SECRET}@host/db",
    f"https://ada:{SECRET}@[/",
    f"https://host/?token={SECRET}",
    f"sqlite://ada:{SECRET}@host/db",
    f"host=x password={SECRET}",
    f"host=x password = '{SECRET} y' user=ada",
    f"host=x password='{SECRET}",
    f"host=x PASSWORD={SECRET}",
    f"  user=ada  sslpassword={SECRET}",
    rf"password=\'{SECRET} host=x",
    f"service=x password={SECRET}",
]


@pytest.mark.parametrize("address", SPELLINGS)
def test_no_spelling_shows_the_secret(address: str) -> None:
    shown = public(address)
    assert SECRET not in shown
    assert public(shown) == shown
    scheme = re.match(r"[\w+]+:(?://)?", address)
    assert scheme is None or shown.startswith(scheme[0])


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ada:x@host:5432/db", "postgresql://ada@host:5432/db"),
        ("postgres://host", "postgres://host"),
        ("postgresql:///db", "postgresql:///db"),
        ("postgresql://host/?schema=x", "postgresql://host?schema=x"),
        ("postgresql://[::1]:77,b/db", "postgresql://[::1]:77,b/db"),
        ("postgresql://%2Fvar%2Frun/db", "postgresql://%2Fvar%2Frun/db"),
        ("postgresql://h/d?schema=a%25b&owner=app", "postgresql://h/d?schema=a%25b&owner=app"),
        ("postgresql://h/d?sslmode=require&password=x", "postgresql://h/d?sslmode=require"),
        (
            "postgresql://h/d?options=-csearch_path%3Da,b",
            "postgresql://h/d?options=-csearch_path%3Da,b",
        ),
        ("host=h dbname=d user=ada password=x", "postgresql://ada@h/d"),
        ("postgresql://ada:a@b@host/db", "postgresql://ada@…/db"),
        ("postgresql://[::1/db", "postgresql://…"),
        ("sqlite:///a.db?lease=3", "sqlite:///a.db?lease=3"),
        ("/home/ada/key=value.jsonl", "/home/ada/key=value.jsonl"),
        ("C:\\Users\\ada", "C:\\Users\\ada"),
        ("memory:", "memory:"),
        ("https://example.org/a", "https://example.org/a"),
    ],
)
def test_what_is_harmless_is_shown(address: str, shown: str) -> None:
    assert public(address) == shown


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
KEYWORDS = sorted(one.keyword.decode() for one in pq.Conninfo.get_defaults())
MARKS = st.text(st.sampled_from("ab%@:/?#&=[]',\" \\é"), max_size=6)


@st.composite
def urls(draw: st.DrawFn) -> str:
    """Addresses of all kinds: parts that may be missing, encoded or not, odd, or repeated."""

    def part(text: str) -> str:
        return quote(text, safe="") if draw(st.booleans()) else text

    secret = SECRET + draw(MARKS)
    user = draw(st.one_of(st.just(""), MARKS.map(part)))
    before = draw(st.sampled_from(["", f"{user}@", f"{user}:{part(secret)}@"]))
    hosts = draw(st.lists(st.sampled_from(["", "h", "h:1", "[::1]", "[::1]:2", "1.2.3.4"])))
    path = draw(st.sampled_from(["", "/", "/db", "/d%62"]))
    names = st.sampled_from([*KEYWORDS, "p%61ssword", "nothing", "schema", "owner", "ssl"])
    pairs = draw(st.lists(st.tuples(names, TEXT), max_size=3))
    if draw(st.booleans()):
        name = draw(st.sampled_from(["password", "sslpassword", "pass%77ord", "user", "host"]))
        pairs.append((name, part(f"x:{secret}@")))
    query = "&".join(f"{name}={part(value)}" for name, value in pairs)
    scheme = draw(st.sampled_from(["postgresql://", "postgres://"]))
    mark = draw(st.sampled_from(["?", "/?"])) if query else ""
    return f"{scheme}{before}{','.join(hosts)}{path}{mark}{query}"


def by_libpq(address: str) -> dict[str, str] | None:
    try:
        return {name: str(value) for name, value in conninfo_to_dict(address).items()}
    except (psycopg.Error, UnicodeError):
        return None


@settings(max_examples=200, deadline=None)
@given(urls())
def test_addresses_are_read_as_libpq_reads_them(address: str) -> None:
    found = parsed(address)
    plain = address if found is None else found.plain
    read = by_libpq(plain)
    if found is not None and read is not None:
        # Of an empty value libpq says nothing.
        assert {name: value for name, value in found.values.items() if value} == {
            name: value for name, value in read.items() if value
        }
    elif read is not None:
        assert any(name in address for name in addresses.OURS) or "%" in address


@settings(max_examples=200, deadline=None)
@given(urls())
def test_no_secret_is_ever_shown(address: str) -> None:
    shown = public(address)
    assert SECRET not in shown
    assert public(shown) == shown


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KEYWORDS), TEXT), min_size=1, max_size=4))
def test_pairs_are_read_as_libpq_reads_them(pairs: list[tuple[str, str]]) -> None:
    def quoted(value: str) -> str:
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    text = " ".join(f"{name} = {quoted(value)}" for name, value in [*pairs, ("password", SECRET)])
    found = parsed(text)
    assert found is not None
    read = by_libpq(text) or {}
    assert {k: v for k, v in found.values.items() if v} == {k: v for k, v in read.items() if v}
    assert SECRET not in public(text)


def test_an_option_is_added_behind_those_that_there_are() -> None:
    for address in ("postgresql://h/d", "postgresql://a:x?y@h/d", "postgresql://h/d?sslmode=allow"):
        found = parsed(with_option(with_option(address, "schema", "a&b"), "owner", "ü"))
        assert found is not None
        assert (found.plain, found.last("schema"), found.all_of("owner")) == (
            address,
            "a&b",
            ("ü",),
        )


def test_what_holds_an_address_is_shown_without_its_secret() -> None:
    address = f"postgresql://ada:{SECRET}@host/db?sslpassword={SECRET}"
    kept = [
        parsed(address),
        StorePlace(address),
        parse_options(address),
        Database(address).address,
        ThreadSource(address, "langgraph", KIND, "thread"),
        SchemaTask(address, public(address), LangGraphSchema("public")),
    ]
    assert SECRET not in repr(kept)
