"""Repairs that made it worse, by the number under which each was catalogued.

Some can not happen in a list of messages, so they have no test here:

- R01 (repaired in memory only), R24 (file or index entry deleted because it could not be read) and
  R31 (deleted data brought back) are about what is written to disk.
- R20 (endless identical retries) and R32 (a tool runs again after the repair) need something that
  sends requests or runs tools; healing does neither.
- R21 (conflict check removed) needs two writers.
- R22 (live branch deleted as dead) and R27 (cycle broken on one side) need a graph of records.
"""

from __future__ import annotations

import json
import re
import warnings
from copy import deepcopy
from typing import Any

import pytest

import lockstitch
from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME, WAITING
from tests.dump import dump
from tests.kinds_of_break.conversations import BROKEN, HEALTHY, Ask, Call, Done, Result, Say, Turn
from tests.kinds_of_break.pairs import calls, pairs
from tests.kinds_of_break.render import FORMS
from tests.oracles import problems
from tests.property.pieces import PIXEL

ONE, TWO, THREE = "call00001", "call00002", "call00003"
every_form = pytest.mark.parametrize("form", FORMS)
pytestmark = pytest.mark.filterwarnings("error")


def _healed(form: str, *turns: Turn) -> list[Any]:
    dialect, render = FORMS[form]
    healed: list[Any] = lockstitch.heal(render(turns), dialect)
    assert problems(dialect, healed) == []
    return healed


def _pairs(form: str, healed: list[Any]) -> list[tuple[str, str]]:
    return pairs(FORMS[form][0], healed)


@every_form
def test_r02_repair_of_the_last_message_only(form: str) -> None:
    """A repair that looked at the tail only left every open call further up."""
    turns = (
        Ask("one"),
        Say("a", (Call(ONE, "first"),)),
        Ask("two"),
        Say("b", (Call(TWO, "second"),)),
        Ask("three"),
        Say("c", (Call(THREE, "third"),)),
    )
    found = _pairs(form, _healed(form, *turns))
    assert ["[lockstitch]" in got for _, got in found] == [True] * 3


@every_form
def test_r03_synthetic_result_at_the_end(form: str) -> None:
    """Appended to the end it was no answer, and every retry added one more."""
    turns = (Ask("one"), Say("a", (Call(ONE, "first"),)), Ask("two"), Say("b"), Ask("three"))
    healed = _healed(form, *turns)
    text = dump(healed)
    assert text.count(UNKNOWN_OUTCOME) == 1
    assert text.index("first") < text.index(UNKNOWN_OUTCOME) < text.index("two")


def test_r04_result_for_a_call_that_is_left_out() -> None:
    """A result was made for a call that the request did not contain."""
    server = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    messages = [
        {"role": "user", "content": "search"},
        {"role": "assistant", "content": [{"type": "text", "text": "I search."}, server]},
        {"role": "user", "content": "well?"},
        {"role": "assistant", "content": "No."},
    ]
    healed = lockstitch.heal(messages, "anthropic")
    assert problems("anthropic", healed) == []
    assert '"tool_result"' not in dump(healed)


@every_form
def test_r05_session_wide_id_index(form: str) -> None:
    """An index from id to first message tore healthy pairs apart when ids came back."""
    turns = (
        Ask("go"),
        Say("a", (Call(ONE, "first"),)),
        Done((Result(ONE, "answer-1"),)),
        Say("b", (Call(ONE, "second"),)),
        Done((Result(ONE, "answer-2"),)),
        Say("c", (Call(ONE, "third"),)),
        Ask("wait"),
        Done((Result(ONE, "answer-3"),)),
        Say("d", (Call(ONE, "fourth"),)),
    )
    found = _pairs(form, _healed(form, *turns))
    expected = [("first", "answer-1"), ("second", "answer-2"), ("third", "answer-3")]
    assert len(found) == 4
    for (said, got), (call, result) in zip(found, expected, strict=False):
        assert (call in said, result in got) == (True, True)
    assert "fourth" in found[3][0]
    assert "[lockstitch]" in found[3][1]


@every_form
def test_r06_deduplication_by_tool_name(form: str) -> None:
    """Calls of one tool in one turn are no duplicates, however alike they look."""
    turns = (
        Ask("go"),
        Say("a", (Call(ONE, "same"), Call(TWO, "same"), Call(THREE, "same"))),
        Done((Result(ONE, "x"), Result(TWO, "x"))),
        Say("b"),
    )
    found = _pairs(form, _healed(form, *turns))
    answers = {THREE: "[lockstitch]"} if "snake" not in form else {}
    assert len(found) == 3
    assert sum("[lockstitch]" in got for _, got in found) == 1
    for said, got in found:
        assert all(text in got for key, text in answers.items() if key in said)


@every_form
def test_r07_one_wire_format_only(form: str) -> None:
    """A check that knew one format took every result of another for an orphan."""
    dialect, render = FORMS[form]
    messages = render(HEALTHY.turns)
    assert lockstitch.detect(messages) == dialect.partition(":")[0]
    assert lockstitch.heal(messages) is messages


def test_r07_calls_that_were_stored_as_json_text() -> None:
    """Calls kept as a JSON string were read letter by letter, and every result was dropped."""
    call = {"id": ONE, "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": json.dumps([call])},
        {"role": "tool", "tool_call_id": ONE, "content": "the answer"},
        {"role": "assistant", "content": "done"},
    ]
    plan = lockstitch.plan(messages, "openai-chat")
    assert "the answer" in dump(plan.messages)
    if not plan.remaining:
        assert problems("openai-chat", plan.messages) == []


@every_form
def test_r08_a_call_that_waits(form: str) -> None:
    """A call under approval was answered as if it were dead."""
    dialect, render = FORMS[form]
    turns = (Ask("go"), Say("a", (Call(ONE, "dead"), Call(TWO, "asked", "grep"))))
    messages = render(turns)
    before = deepcopy(messages)
    waiting = ["grep"] if form == "gemini-snake" else [TWO]
    healed = lockstitch.heal(messages, dialect, waiting=waiting)
    assert problems(dialect, healed) == []
    dead, asked = (got for _, got in pairs(dialect, healed))
    assert dump(UNKNOWN_OUTCOME)[1:-1] in dead
    if form != "gemini-snake":
        assert dump(WAITING)[1:-1] in asked
    assert messages == before


@every_form
def test_r09_open_calls_are_not_dropped(form: str) -> None:
    """A call in flight was removed, and its result had nowhere to go."""
    turns = (Ask("go"), Say("a", (Call(ONE, "first"), Call(TWO, "second", "grep"))))
    assert len(calls(FORMS[form][0], _healed(form, *turns))) == 2


@every_form
def test_r10_two_passes_two_results(form: str) -> None:
    """Two repairs, each unaware of the other, both added a result."""
    healed = _healed(form, Ask("go"), Say("a", (Call(ONE, "first"),)), Ask("well?"))
    dialect = FORMS[form][0]
    again = lockstitch.heal(deepcopy(healed), dialect)
    assert again == healed
    assert dump(again).count(UNKNOWN_OUTCOME) == 1


@every_form
def test_r11_the_real_result_arrives_later(form: str) -> None:
    """The late result became a second answer, or the synthetic one won."""
    dialect, render = FORMS[form]
    closed = _healed(form, Ask("go"), Say("a", (Call(ONE, "first"),)), Ask("well?"), Say("b"))
    late = render((Done((Result(ONE, "the-real-one"),)),))
    healed = lockstitch.heal([*closed, *late], dialect)
    assert problems(dialect, healed) == []
    assert [("first" in said, "the-real-one" in got) for said, got in pairs(dialect, healed)] == [
        (True, True)
    ]
    assert "[lockstitch]" not in dump(pairs(dialect, healed))


CLAIMS = re.compile(
    r"cancel|abort|denied|reject|time[d]? ?out|crash|by (the )?user|(was|been) interrupted"
    r"|tool (has )?(failed|succeeded)|completed successfully",
    re.IGNORECASE,
)


@pytest.mark.parametrize("text", [UNKNOWN_OUTCOME, WAITING], ids=["unknown", "waiting"])
def test_r12_claiming_a_cause(text: str) -> None:
    """Placeholders said "cancelled by user" of calls that nobody had cancelled."""
    assert text.startswith("[lockstitch]")
    assert CLAIMS.search(text) is None


@every_form
def test_r13_masking(form: str) -> None:
    """A placeholder that nobody hears of hides the bug that lost the result."""
    dialect, render = FORMS[form]
    messages = render((Ask("go"), Say("a", (Call(ONE, "x"), Call(TWO, "y", "grep"))), Ask("well?")))
    plan = lockstitch.plan(messages, dialect)
    found = [finding.code for finding in plan.findings]
    inserted = [change for change in plan.changes if change.action == "inserted"]
    assert len([change for change in inserted if change.code in found]) == 2


def _thinking(words: str, signature: str | None) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": words}
    return block if signature is None else {**block, "signature": signature}


TEXT = {"type": "text", "text": "fine"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
USED = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "words"}


def test_r14_thinking_that_is_fine_is_not_stripped() -> None:
    """One bad block made a repair strip all thinking, and the turn no longer began with it."""
    good = {"role": "assistant", "content": [_thinking("kept", "EqMB"), USE]}
    messages = [
        {"role": "user", "content": "go"},
        good,
        {"role": "user", "content": [USED]},
        {"role": "assistant", "content": [_thinking("half", None), TEXT]},
        {"role": "user", "content": "on"},
    ]
    healed = lockstitch.heal(messages, "anthropic")
    assert problems("anthropic", healed) == []
    assert healed[1] is good


def test_r14_nothing_but_bad_thinking() -> None:
    """Thinking was stripped and an empty turn stayed behind."""
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [_thinking("half", None)]},
        {"role": "user", "content": "on"},
    ]
    assert problems("anthropic", lockstitch.heal(messages, "anthropic")) == []


def test_r14_reasoning_that_must_be_sent_back() -> None:
    """Reasoning was stripped to be safe where the provider insists on it."""
    call = {"id": ONE, "type": "function", "function": {"name": "read", "arguments": "{}"}}
    speech = {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call]}
    healed = lockstitch.heal([{"role": "user", "content": "go"}, speech], "openai-chat")
    assert problems("openai-chat", healed) == []
    assert healed[1] is speech


@every_form
def test_r15_empty_string_as_placeholder(form: str) -> None:
    """An empty placeholder was filtered out later, or refused itself."""
    healed = _healed(
        form, Ask("go"), Say("a", (Call(ONE, "x"),)), Done((Result(TWO, " ", "grep"),))
    )
    assert problems(FORMS[form][0], healed) == []
    for _, got in _pairs(form, healed):
        assert "[lockstitch]" in got


def test_r16_thinking_rewritten_as_prose() -> None:
    """Thinking put into the text in tags taught the model to write such tags."""
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [_thinking("secret words", None), TEXT]},
        {"role": "user", "content": "on"},
    ]
    plan = lockstitch.plan(messages, "anthropic")
    assert problems("anthropic", plan.messages) == []
    assert "secret words" not in dump(plan.messages)
    assert "secret words" in dump(plan.quarantine)


def test_r17_the_whole_payload_written_anew() -> None:
    """Decoding and encoding everything to mend one block changed bytes that were signed."""
    strange = {"b": 2**70, "a": 1e-7, "nested": {"z": [True, None], "é": "\u2028"}}
    speech = {
        "content": [_thinking("kept\r\n  as it is ", "EqMB=="), {**USE, "input": strange}],
        "role": "assistant",
        "zz": 1,
    }
    body: dict[str, Any] = {
        "tools": [{"z": 1, "a": 2}],
        "messages": [
            {"role": "user", "content": "go"},
            speech,
            {"role": "user", "content": [USED]},
            {"role": "assistant", "content": [TEXT, {**USE, "id": "toolu_2"}]},
            {"role": "user", "content": "on"},
        ],
        "model": "claude-sonnet-4-5",
    }
    healed = lockstitch.heal(body, "anthropic")
    assert problems("anthropic", healed) == []
    assert list(healed) == list(body)
    assert healed["tools"] is body["tools"]
    assert [healed["messages"][i] is body["messages"][i] for i in range(4)] == [True] * 4


def _use(key: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": key, "name": "read", "input": {"key": key}}


def _used(key: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": key, "content": f"result of {key}"}


@pytest.mark.parametrize(
    "keys",
    [("a.b", "a:b", "a b", "a_b"), ("read:0", "read_0", "read-0"), ("é", "è", "x"), ("", "a")],
    ids=lambda keys: " ".join(map(repr, keys)),
)
def test_r18_ids_that_become_the_same(keys: tuple[str, ...]) -> None:
    """Ids were cleaned one by one, and different ids met in one."""
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [_use(key) for key in keys]},
        {"role": "user", "content": [_used(key) for key in keys]},
    ]
    healed = lockstitch.heal(messages, "anthropic")
    assert problems("anthropic", healed) == []
    found = pairs("anthropic", healed)
    assert len(found) == len(keys)
    for (said, got), key in zip(found, keys, strict=True):
        assert json.loads(said)["input"] == {"key": key}
        assert json.loads(got)["content"] == f"result of {key}"


def test_r18_long_ids_with_the_same_beginning() -> None:
    """Ids were cut to the limit, and long ones with one beginning became the same."""
    keys = ["mcp__server__" + "x" * 60 + tail for tail in ("one", "two")]
    items: list[Any] = [{"role": "user", "content": "go"}]
    for key in keys:
        said = json.dumps({"q": key})
        call = {"type": "function_call", "call_id": key, "name": "read", "arguments": said}
        items.append(call)
    items += [{"type": "function_call_output", "call_id": key, "output": key[-3:]} for key in keys]
    healed = lockstitch.heal(items, "openai-responses")
    assert problems("openai-responses", healed) == []
    for said, got in pairs("openai-responses", healed):
        assert json.loads(json.loads(said)["arguments"])["q"][-3:] == json.loads(got)["output"]


def test_r18_ids_that_need_no_change() -> None:
    """Native ids were rewritten although the provider takes them, and the model lost its way."""
    key = "functions.read:0"
    call = {"id": key, "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "well?"},
    ]
    healed = lockstitch.heal(messages, "openai-chat")
    assert healed[1] is messages[1]
    assert healed[2]["tool_call_id"] == key


def test_r18_the_first_of_equal_ids_keeps_its_own() -> None:
    """Renaming the first occurrence too changed the cached beginning of the request."""
    messages: list[Any] = [{"role": "user", "content": "go"}]
    for _ in range(3):
        messages += [
            {"role": "assistant", "content": [_use("read_0")]},
            {"role": "user", "content": [_used("read_0")]},
        ]
    healed = lockstitch.heal(messages, "anthropic")
    assert problems("anthropic", healed) == []
    assert healed[:3] == messages[:3]


def test_r19_one_bad_picture() -> None:
    """Any refused request with pictures in it made a repair strip all of them."""
    good = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
    }
    bad = {
        "type": "image",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PIXEL},
    }
    messages = [
        {"role": "user", "content": [good, TEXT]},
        {"role": "assistant", "content": "Seen."},
        {"role": "user", "content": [good, bad, TEXT]},
    ]
    healed = lockstitch.heal(messages, "anthropic")
    assert problems("anthropic", healed) == []
    assert healed[0] is messages[0]
    assert good in healed[2]["content"]


@every_form
def test_r23_starting_afresh(form: str) -> None:
    """The history was dropped: no error any more, and no context."""
    everything = tuple(turn for conversation in BROKEN for turn in conversation.turns)
    dialect, render = FORMS[form]
    plan = lockstitch.plan(render(everything), dialect)
    assert problems(dialect, plan.messages) == []
    left = dump([plan.messages, plan.quarantine])
    kept = [mark for conversation in BROKEN for mark in conversation.kept]
    assert [mark for mark in kept if mark not in left] == []


@every_form
@pytest.mark.parametrize("conversation", BROKEN, ids=lambda conversation: conversation.name)
def test_r25_other_bytes_on_every_request(form: str, conversation: Any) -> None:
    """Each request repaired the same history a little differently, and no cache could hold."""
    dialect, render = FORMS[form]
    turns = conversation.turns
    if isinstance(turns[-1], Ask):
        turns = turns[:-1]
    first = lockstitch.heal(render(turns), dialect)
    later = lockstitch.heal(render((*turns, Ask("next question"), Say("next answer"))), dialect)
    # Where roles must alternate, the next question joins a message that ends in results.
    stable = first[:-1] if dialect == "bedrock" else first
    assert later[: len(stable)] == stable


@every_form
def test_r26_count_changed_without_need(form: str) -> None:
    """A saver that counted messages skipped some after a repair that had no need to add any."""
    turns = (
        Ask("half an emoji \ud83d"),
        Say("nul \x00", (Call(ONE, "x"),)),
        Done((Result(ONE, "\udc00"),)),
        Say("done"),
    )
    assert len(_healed(form, *turns)) == len(FORMS[form][1](turns))


STATES: list[Any] = [
    [None],
    [[]],
    [{}],
    ["hello"],
    [{"role": None, "content": None}],
    [{"role": "assistant", "content": {"type": "text"}}],
    [{"role": "assistant", "content": [[{"type": "tool_use"}], None, 3]}],
    [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": {"a": 1}}]}],
    [{"role": "assistant", "tool_calls": {"0": {}}}, {"role": "tool", "tool_call_id": 7}],
    [{"type": "function_call", "call_id": [], "arguments": 3}],
    [{"role": "model", "parts": {"functionCall": 1}}],
    [{"role": "model", "parts": [{"functionCall": {"name": 3, "args": "x"}}, None]}],
    [{"role": "assistant", "content": [{"toolUse": None}, {"toolResult": []}]}],
    [{"type": "ai", "data": None}, {"lc": 1, "type": "constructor", "id": [], "kwargs": None}],
]


@pytest.mark.parametrize("dialect", sorted({dialect for dialect, _ in FORMS.values()}))
@pytest.mark.parametrize("state", STATES, ids=range(len(STATES)))
def test_r28_the_checker_falls_over_what_it_should_report(dialect: str, state: Any) -> None:
    """The check itself crashed on the state that it existed to report."""
    findings = lockstitch.check(state, dialect)
    assert bool(findings) == bool(problems(dialect, state))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lockstitch.Unhealed)
        healed = lockstitch.heal(state, dialect)
    left = lockstitch.plan(state, dialect).remaining
    assert left or problems(dialect, healed) == []


@every_form
def test_r29_the_orphan_moves_on(form: str) -> None:
    """Deleting what the error named made the next record the orphan, and so on."""
    turns = (
        Ask("go"),
        Done((Result(THREE, "stray"),)),
        Say("a", (Call(ONE, "first"), Call(TWO, "second", "grep"))),
        Done((Result(TWO, "two", "grep"),)),
        Done((Result(TWO, "two", "grep"),)),
        Ask("well?"),
        Say("b", (Call(ONE, "third"),)),
        Done((Result(ONE, "one"),)),
        Done((Result(THREE, "stray again"),)),
    )
    healed = _healed(form, *turns)
    assert lockstitch.check(healed, FORMS[form][0]) == []
    assert "stray again" in dump(healed)


@every_form
def test_r30_the_first_half_of_a_command(form: str) -> None:
    """A lenient parser closed the cut arguments, and half a command looked like a whole one."""
    turns = (Ask("go"), Say("a", (Call(ONE, "rm -rf /home/ann/old", cut=True),)), Ask("well?"))
    dialect, render = FORMS[form]
    plan = lockstitch.plan(render(turns), dialect)
    assert problems(dialect, plan.messages) == []
    assert "rm -rf" not in dump(calls(dialect, plan.messages))
    assert "rm -rf" in dump([plan.messages, plan.quarantine])
