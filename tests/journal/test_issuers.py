"""A reply goes back to who issued it exactly as it came, and to nobody else with its seals."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import lockstitch
from lockstitch.journal.requests import project
from lockstitch.journal.state import JournalState

from .replies import DIALECTS, MODELS, Asked, Reply, Speech, reply_of
from .sessions import Session
from .shown import THOUGHT, refused, text_of

Issuer = tuple[str, str, str]
FEWER = settings(max_examples=max(1, settings().max_examples // 3))

ISSUERS: tuple[Issuer, ...] = tuple(
    issuer
    for dialect in DIALECTS
    for issuer in (
        (dialect, f"{dialect} house", MODELS[dialect]),
        (dialect, "elsewhere", "some-model-1"),
    )
)


@dataclass(slots=True)
class Talk:
    """A session without trouble, its replies with their issuers, and where requests were made."""

    session: Session = field(default_factory=Session)
    replies: list[tuple[Issuer, Reply]] = field(default_factory=list)
    requests: list[tuple[int, Issuer]] = field(default_factory=list)


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    """Turns of one or two issuers, with calls that all run and end."""
    talk, numbers = Talk(), iter(range(1, 10_000))
    issuers = draw(st.lists(st.sampled_from(ISSUERS), min_size=1, max_size=2))
    for _ in range(draw(st.integers(1, 3))):
        talk.session.add({"kind": "said", "payload": f"<T{next(numbers)}>"})
        for count in draw(st.lists(st.integers(1, 3), max_size=2)):
            _reply(draw, talk, draw(st.sampled_from(issuers)), count, numbers)
        _reply(draw, talk, draw(st.sampled_from(issuers)), 0, numbers)
        talk.session.add({"kind": "ended"})
    talk.session.add({"kind": "said", "payload": f"<T{next(numbers)}>"})
    return talk


def _reply(draw: st.DrawFn, talk: Talk, issuer: Issuer, count: int, numbers: Any) -> None:
    dialect, provider, model = issuer
    calls = tuple(
        Asked(f"call{next(numbers):05d}", draw(st.sampled_from(["grep", "bash"])), f"<A{n}>")
        for n in range(count)
    )
    # A Gemini that signs its calls signs every first one.
    kinds = ["signed"] if dialect == "gemini" and calls else ["", "signed", "signed", "redacted"]
    kind = draw(st.sampled_from(kinds))
    thought = f"<R{next(numbers)}>" if kind == "signed" else ""
    seal = f"SEAL{next(numbers):04d}" if kind else ""
    text = f"<T{next(numbers)}>" if not calls or draw(st.booleans()) else ""
    speech = Speech(next(numbers), text, calls, thought, seal, redacted=kind == "redacted")
    reply = reply_of(dialect, speech)
    talk.requests.append((len(talk.session.records), issuer))
    talk.replies.append((issuer, reply))
    asked = [{"id": call.id, "name": call.name} for call in calls]
    fields = {"dialect": dialect, "provider": provider, "model": model, "calls": asked}
    pretty = json.dumps(reply.response, indent=2) if draw(st.integers(0, 4)) == 0 else None
    seq = talk.session.add({"kind": "replied", **fields, "payload": pretty or reply.response})
    for index in draw(st.permutations(range(count))):
        talk.session.add({"kind": "started", "reply": seq, "index": index})
    for index in draw(st.permutations(range(count))):
        given_ = {"reply": seq, "index": index, "payload": f"<T{next(numbers)}>"}
        talk.session.add({"kind": "finished", **given_})


def _request(talk: Talk, count: int, issuer: Issuer) -> list[Any]:
    state = JournalState()
    for record in talk.session.records[:count]:
        state.apply(record)
    dialect, provider, model = issuer
    messages = project(state.view, dialect, provider=provider, model=model)
    assert lockstitch.check(messages, dialect, model=model) == []
    assert refused(dialect, messages) == []
    return messages


def _is_own(reply: tuple[Issuer, Reply], receiver: Issuer) -> bool:
    return reply[0] == receiver


@FEWER
@given(talk=talks())
def test_a_reply_goes_back_to_its_issuer_as_it_came(talk: Talk) -> None:
    for receiver in {issuer for issuer, _ in talk.replies}:
        messages = _request(talk, len(talk.session.records), receiver)
        for _, reply in (each for each in talk.replies if _is_own(each, receiver)):
            for message in reply.messages:
                assert message in messages, "a reply is not what it was"


@FEWER
@given(talk=talks(), receiver=st.sampled_from(ISSUERS))
def test_nobody_else_gets_its_seals(receiver: Issuer, talk: Talk) -> None:
    text = text_of(_request(talk, len(talk.session.records), receiver))
    strangers = [reply for reply in talk.replies if not _is_own(reply, receiver)]
    for _, reply in strangers:
        bound = THOUGHT.findall(json.dumps(reply.response))
        assert [mark for mark in bound if mark in text] == []


@FEWER
@given(talk=talks())
def test_what_was_sent_before_is_sent_again(talk: Talk) -> None:
    """Prompt caches and thoughts bound to their past live on an unchanged beginning."""
    for at, (count, issuer) in enumerate(talk.requests):
        if issuer[0] == "gemini" and any(other != issuer for other, _ in talk.replies):
            continue  # a stranger's call has a stand-in for its signature in its own turn only
        before = _request(talk, count, issuer)
        for later, same in talk.requests[at + 1 :]:
            if same == issuer:
                assert _request(talk, later, issuer)[: len(before)] == before
