from __future__ import annotations

from typing import Any

import pytest

from lockstitch.formats.pi import Pi

from .surgery import Json, Mended, joined, mend, read

FORM = Pi()
OWN = "019f0000-0000-7000-8000-00000000000a"
HEAD = {"type": "session", "version": 3, "id": OWN, "timestamp": "t0", "cwd": "/home/ada"}
MODEL = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-sonnet-4-5"}


def entry(name: str, parent: str | None, message: Json) -> Json:
    base = {"type": "message", "id": name, "parentId": parent, "timestamp": f"t-{name}"}
    return {**base, "message": {**message, "timestamp": 1}}


def user(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def model(*items: Json, stop: str = "stop", **fields: Any) -> Json:
    return {"role": "assistant", "content": list(items), **MODEL, "stopReason": stop, **fields}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def call(name: str) -> Json:
    return {"type": "toolCall", "id": name, "name": "bash", "arguments": {"command": "ls"}}


def result(name: str, words: str = "done", **fields: Any) -> Json:
    base = {"role": "toolResult", "toolCallId": name, "toolName": "bash"}
    return {**base, "content": [text(words)], "isError": False, **fields}


def chain(*messages: Json) -> list[Json]:
    """A file whose entries hang on one another; what is no message is an entry already."""
    lines: list[Json] = [HEAD]
    parent: str | None = None
    for count, message in enumerate(messages, start=1):
        name = f"{count:08x}"
        if "role" in message:
            lines.append(entry(name, parent, message))
        else:
            lines.append({"id": name, "parentId": parent, "timestamp": f"t-{name}", **message})
        parent = name
    return lines


TURN = (user("Build it."), model(text("I do."), call("c1")), result("c1"), model(text("Built.")))


def words(done: Mended) -> str:
    return str(done.again.history.messages)


def is_chain(done: Mended) -> bool:
    """Whether every entry hangs on the one before it, and no id is there twice."""
    entries = done.values[1:]
    parents = [None, *(each["id"] for each in entries)]
    names = [each["id"] for each in entries]
    return len({*names}) == len(names) and all(
        each["parentId"] == parent for each, parent in zip(entries, parents, strict=False)
    )


def test_a_healthy_session_keeps_every_byte() -> None:
    note = {"type": "custom", "customType": "notes", "data": {"x": 1}}
    data = joined(*chain({"type": "model_change", "modelId": "m"}, *TURN, note, *TURN[:1]))
    done = mend(FORM, data)
    assert (done.codes, done.data) == ([], data)
    assert (done.before.session, done.before.project) == (OWN, "/home/ada")
    assert done.before.turns == 2


def test_it_is_told_by_its_head() -> None:
    assert FORM.claims("x.jsonl", chain(*TURN))
    assert FORM.claims("x.jsonl", chain(*TURN)[1:])
    assert FORM.claims("x.jsonl", [{}, *chain(*TURN)])
    assert FORM.claims("x.jsonl", [{}, *chain(*TURN)[1:]])
    assert not FORM.claims("x.jsonl", [{"type": "user", "parentUuid": None, "sessionId": "s"}])
    assert not FORM.claims("x.jsonl", [])


def test_messages_are_sent_as_pi_sends_them() -> None:
    bash = {"role": "bashExecution", "command": "ls", "output": "a.txt", "exitCode": 0}
    hidden = {**bash, "command": "secret", "excludeFromContext": True}
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    signed = {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"}
    bare = {"type": "thinking", "thinking": "hm hm"}
    redacted = {"type": "thinking", "redacted": True, "thinkingSignature": "ZGF0"}
    lines = chain(
        bash,
        hidden,
        {"role": "user", "content": "A string."},
        model(signed, redacted, bare, text(" "), text("Yes."), call("c|1")),
        {**result("c|1"), "content": [text("one"), text("two")]},
        {**result("c|1", isError=True), "content": [image]},
        {"type": "custom_message", "customType": "x", "content": "Injected.", "display": False},
        {"type": "branch_summary", "fromId": "x", "summary": "Tried it."},
        model(stop="aborted"),
        model(signed, text("Other."), api="openai-completions"),
    )
    sent = read(FORM, joined(*lines)).history.messages
    assert "Ran `ls`" in sent[0]["content"][0]["text"]
    assert sent[1]["content"] == [text("A string.")]
    assert [block["type"] for block in sent[2]["content"]] == [
        "thinking",
        "redacted_thinking",
        "text",
        "text",
        "tool_use",
    ]
    assert sent[2]["content"][4]["id"] == "c_1"
    first, second = sent[3]["content"]
    assert (first["tool_use_id"], first["content"]) == ("c_1", "one\ntwo")
    assert second["content"][0]["source"]["media_type"] == "image/png"
    assert second["is_error"]
    assert sent[4]["content"] == [text("Injected.")]
    assert "Tried it." in sent[5]["content"][0]["text"]
    assert sent[6]["content"] == [text("Other.")]
    assert "secret" not in str(sent)


def test_open_calls_get_entries_of_their_own() -> None:
    lines = chain(user("Go."), model(call("c1"), call("c|2")), result("c1"), user("Well?"))
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS102"], [])
    assert done.severities["LS102"] == "warning"
    assert is_chain(done)
    fresh = done.values[4]["message"]
    assert (fresh["role"], fresh["toolCallId"], fresh["toolName"]) == ("toolResult", "c|2", "bash")
    assert fresh["isError"]
    assert done.values[:4] == lines[:4]


def test_untouched_lines_keep_their_bytes() -> None:
    lines = joined(*chain(user("Go."), model(call("c9")), *TURN)).split(b"\n")
    lines[1] = lines[1].replace(b"Go.", b"\\u0047o.").replace(b": ", b":  ")
    done = mend(FORM, b"\n".join(lines))
    changed = [each for each in lines if each not in done.lines]
    # Only the entry behind the new one, which hangs on it now.
    assert changed == [lines[3]]
    assert is_chain(done)


def test_a_tail_of_open_calls_ends_in_the_new_entry() -> None:
    lines = chain(*TURN, user("Again."), model(call("c2")))
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS101"], [])
    assert done.values[: len(lines)] == lines
    assert is_chain(done)


@pytest.mark.parametrize("stop", ["aborted", "error"])
def test_results_of_a_message_that_is_skipped_become_text(stop: str) -> None:
    lines = chain(user("Go."), model(call("c9"), stop=stop), result("c9", "half"), *TURN)
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS103"], [])
    assert done.severities["LS103"] == "error"
    assert done.values[2] == lines[2]
    turned = done.values[3]
    assert (turned["id"], turned["message"]["role"]) == (lines[3]["id"], "user")
    assert "half" in turned["message"]["content"][0]["text"]
    assert done.values[4:] == lines[4:]


def test_a_doubled_result_goes_once() -> None:
    lines = chain(user("Go."), model(call("c1")), result("c1"), result("c1"), model(text("Ok.")))
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS106"], [])
    assert len(done.values) == len(lines) - 1
    assert words(done).count("done") == 1


def test_a_result_that_came_too_late_goes_to_its_call() -> None:
    lines = chain(user("Go."), model(call("c1")), user("Well?"), result("c1"), model(text("Ok.")))
    done = mend(FORM, joined(*lines))
    assert done.remaining == []
    assert "[lockstitch]" not in words(done)
    assert is_chain(done)
    assert [each["message"]["role"] for each in done.values[1:]] == [
        "user",
        "assistant",
        "toolResult",
        "user",
        "assistant",
    ]


def test_the_moved_end_leaves_another_end() -> None:
    lines = chain(user("Go."), model(call("c1")), user("Well?"), result("c1"))
    done = mend(FORM, joined(*lines))
    assert done.remaining == []
    assert is_chain(done)
    assert done.values[-1]["message"]["role"] == "user"


def test_what_is_never_sent_stays_in_a_message_that_changes() -> None:
    blank = {"type": "text", "text": " "}
    odd = {"type": "text", "text": "a\0b", "textSignature": "s"}
    lines = chain(user("Go."), model(blank, odd, call("c1")), result("c1"))
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS506"], [])
    changed = {**odd, "text": "a\N{REPLACEMENT CHARACTER}b"}
    assert done.values[2]["message"]["content"] == [blank, changed, call("c1")]


# The tree.


def test_branches_that_were_left_are_left() -> None:
    lines = chain(*TURN)
    other = [entry("b1", "00000001", model(call("x"))), entry("b2", "00000004", user("On."))]
    data = joined(*lines, *other)
    done = mend(FORM, data)
    assert (done.codes, done.data) == ([], data)
    lines = [HEAD, entry("a1", None, user("One.")), entry("b1", None, user("Two."))]
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.before.turns, done.before.left) == ([], 1, 1)
    assert "other branches" in done.before.notes[0]


def test_a_missing_parent_is_bridged() -> None:
    lines = chain(*TURN, model(text("Lost.")), *TURN)
    done = mend(FORM, joined(*lines[:5], *lines[6:]))
    assert "LS701" in done.codes
    assert done.severities["LS701"] == "error"
    assert (done.before.turns, done.before.left) == (1, 1)
    assert (done.again.turns, done.again.left, done.remaining) == (2, 0, [])
    assert is_chain(done)


def test_a_missing_parent_beside_the_conversation_is_a_warning() -> None:
    lines = chain(*TURN)
    stray = entry("b1", "nowhere", user("Stray."))
    done = mend(FORM, joined(*lines[:4], stray, lines[4]))
    assert (done.severities, done.remaining) == ({"LS701": "warning"}, [])
    assert done.again.turns == 1


@pytest.mark.parametrize(("number", "parent"), [(3, 5), (3, 3), (1, 4)])
def test_circles_are_opened(number: int, parent: int) -> None:
    lines = chain(*TURN, user("More."), model(text("Yes.")))
    lines[number]["parentId"] = lines[parent]["id"]
    done = mend(FORM, joined(*lines))
    assert "LS702" in done.codes
    assert done.severities["LS702"] == "error"
    assert done.remaining == []
    assert is_chain(done)


def test_an_entry_that_was_written_twice_goes() -> None:
    lines = chain(*TURN)
    done = mend(FORM, joined(*lines, *lines[1:]))
    assert set(done.codes) == {"LS607"}
    assert done.data == joined(*lines)


def test_a_second_entry_with_an_id_gets_its_own() -> None:
    lines = chain(*TURN, user("More."), model(text("Yes.")))
    lines[5]["id"] = lines[6]["parentId"] = lines[2]["id"]
    done = mend(FORM, joined(*lines))
    assert "LS703" in done.codes
    assert done.remaining == []
    assert is_chain(done)
    assert done.again.turns == 2


def test_a_conversation_cut_in_the_middle_of_a_turn_is_joined() -> None:
    lines = chain(*TURN)
    lines[3]["parentId"] = None
    done = mend(FORM, joined(*lines))
    assert "LS704" in done.codes
    assert (done.before.left, done.remaining) == (1, [])
    assert done.data == joined(*chain(*TURN))


def test_a_prompt_without_a_parent_starts_anew_on_purpose() -> None:
    lines = chain(*TURN, user("Anew."))
    lines[5]["parentId"] = None
    data = joined(*lines)
    done = mend(FORM, data)
    assert (done.codes, done.data) == ([], data)


# Compaction.


def compaction(first: str, summary: str = "We built it.") -> Json:
    kept = {"firstKeptEntryId": first, "tokensBefore": 9}
    return {"type": "compaction", "summary": summary, **kept}


def test_a_compaction_sends_its_summary_and_what_it_keeps() -> None:
    lines = chain(user("Old."), model(call("open")), *TURN, compaction("00000006"), user("On."))
    data = joined(*lines)
    done = mend(FORM, data)
    assert (done.codes, done.data) == ([], data)
    sent = done.before.history.messages
    assert "We built it." in sent[0]["content"][0]["text"]
    assert [message["content"][0]["text"] for message in sent[1:]] == ["Built.", "On."]


def test_calls_around_a_compaction_are_answered_where_they_are() -> None:
    lines = chain(
        user("Old."), model(call("c1")), compaction("00000002"), user("On."), model(call("c2"))
    )
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS101", "LS101"], [])
    assert is_chain(done)
    kinds = [each.get("message", each).get("role", "compaction") for each in done.values[1:]]
    assert kinds == [
        "user",
        "assistant",
        "toolResult",
        "compaction",
        "user",
        "assistant",
        "toolResult",
    ]


def test_a_compaction_keeps_a_new_first_entry() -> None:
    lines = chain(user("Old."), model(text("Kept.")), compaction("00000002", ""), user("On."))
    lines[3]["summary"] = None
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS406"], [])
    assert is_chain(done)
    assert done.values[4]["firstKeptEntryId"] == done.values[2]["id"]


def test_a_compaction_whose_first_entry_goes_keeps_the_next() -> None:
    lines = chain(
        *TURN[:3],
        result("c1"),
        model(text("Kept.")),
        compaction("00000004"),
        user("On."),
    )
    lines[4]["message"]["toolCallId"] = "gone"
    lines[4]["message"]["content"] = None
    done = mend(FORM, joined(*lines))
    assert done.remaining == []
    assert is_chain(done)
    assert "Kept." in words(done)


def test_a_compaction_whose_first_entry_is_missing_keeps_the_next() -> None:
    lines = chain(*TURN, user("Lost."), model(text("Kept.")), compaction("00000005"), user("On."))
    done = mend(FORM, joined(*lines[:5], *lines[6:]))
    assert (done.codes, done.remaining) == (["LS701"], [])
    assert is_chain(done)
    assert "Kept." in words(done)


# The first version, heads, messages that are none.


def linear(*messages: Json) -> list[Json]:
    head = {key: value for key, value in HEAD.items() if key != "version"}
    return [head, *({"type": "message", "timestamp": "t", "message": m} for m in messages)]


def test_the_first_version_has_no_ids() -> None:
    data = joined(*linear(*TURN))
    done = mend(FORM, data)
    assert (done.codes, done.data) == ([], data)
    done = mend(FORM, joined(*linear(user("Go."), model(call("c1")), user("Well?"))))
    assert (done.codes, done.remaining) == (["LS101"], [])
    assert [each["message"]["role"] for each in done.values[1:]] == [
        "user",
        "assistant",
        "toolResult",
        "user",
    ]
    assert "id" not in done.values[3]


def test_what_a_compaction_of_the_first_version_counts_is_corrected() -> None:
    kept = {"type": "compaction", "timestamp": "t", "summary": "S.", "firstKeptEntryIndex": 4}
    old = linear(user("Old."), model(text("A.")), user("Kept."), model(call("c1")), user("On."))
    lines = [*old[:2], {"type": "x", "timestamp": "t"}, *old[3:5], kept, old[5]]
    done = mend(FORM, joined(*lines))
    assert done.remaining == []
    assert "Kept." not in words(done)
    lines[5] = {**kept, "firstKeptEntryIndex": 3}
    done = mend(FORM, joined(*lines))
    assert done.remaining == []
    assert "Kept." in words(done)
    assert next(v for v in done.values if v["type"] == "compaction")["firstKeptEntryIndex"] == 3


def test_a_head_that_is_not_first_is_moved() -> None:
    lines = chain(*TURN)
    done = mend(FORM, joined(lines[1], lines[0], *lines[2:]))
    assert (done.codes, done.remaining) == (["LS610"], [])
    assert done.values == lines


def test_messages_that_are_none_are_taken_out() -> None:
    lines = chain(*TURN, user("More."), model(text("Yes.")))
    lines[5]["message"]["content"] = None
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS610"], [])
    assert is_chain(done)
    assert len(done.values) == len(lines) - 1
    assert "'content': None" in done.quarantine


def test_what_is_no_entry_is_taken_out() -> None:
    lines = chain(*TURN)
    done = mend(FORM, joined(*lines[:3], {}, *lines[3:]))
    assert (done.severities, done.remaining) == ({"LS610": "warning"}, [])
    assert done.data == joined(*lines)
    done = mend(FORM, joined(*lines, {}))
    assert (done.severities, done.remaining) == ({"LS610": "error"}, [])
    assert done.data == joined(*lines)


def test_a_message_without_an_id_gets_one() -> None:
    lines = chain(*TURN, user("More."))
    del lines[5]["id"], lines[5]["parentId"]
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS610"], [])
    assert is_chain(done)
    assert done.again.turns == 2


def test_a_copy_that_is_damaged_is_a_copy() -> None:
    lines = chain(*TURN, user("More."), model(text("Yes.")))
    again = joined(*lines[4:]).replace(b"Built.", b"B\xff.")
    done = mend(FORM, joined(*lines) + again)
    assert {"LS605", "LS607"} == {*done.codes}
    assert (done.remaining, done.data) == ([], joined(*lines))
    done = mend(FORM, joined(*lines).replace(b"Built.", b"B\xff.") + joined(*lines[4:]))
    assert done.remaining == []
    assert is_chain(done)
    assert "Built." in done.quarantine


def test_a_reply_that_is_a_string_becomes_a_block() -> None:
    lines = chain(*TURN)
    lines[4]["message"]["content"] = "Built."
    done = mend(FORM, joined(*lines))
    assert (done.codes, done.remaining) == (["LS610"], [])
    assert done.data == joined(*chain(*TURN)).replace(
        b'"content": [{"type": "text", "text": "Built."}]',
        b'"content": [{"type":"text","text":"Built."}]',
    )


def test_a_torn_line_is_bridged() -> None:
    lines = joined(*chain(*TURN, user("More."), model(text("Yes.")))).split(b"\n")
    lines[4] = lines[4][:60]
    done = mend(FORM, b"\n".join(lines))
    assert {"LS601", "LS701"} <= {*done.codes}
    assert done.remaining == []
    assert is_chain(done)


def test_rolling_back_keeps_what_is_beside_the_conversation() -> None:
    label = {"type": "label", "targetId": "00000001", "label": "here"}
    lines = chain(*TURN, label, user("More."), result("gone", "late"), model(text("Hm.")))
    done = mend(FORM, joined(*lines), strategy="rollback")
    assert done.values == lines[:6]
    assert "late" in done.quarantine
    assert "More." in done.quarantine


def test_rolling_back_to_nothing_keeps_a_compaction() -> None:
    lines = chain(user("Old."), compaction("00000001", "S."), result("gone"))
    done = mend(FORM, joined(*lines), strategy="rollback")
    assert "compaction" in [value["type"] for value in done.values]
    assert is_chain(done)


@pytest.mark.parametrize("answered", [True, False])
def test_the_result_of_a_call_that_gets_an_id_names_its_tool(answered: bool) -> None:
    odd = {**call("c1"), "id": {}}
    rest = [result("c9"), model(text("Built."))] if answered else [model(text("Built."))]
    done = mend(FORM, joined(*chain(user("Build it."), model(text("I do."), odd), *rest)))
    assert done.remaining == []
    results = [one["message"] for one in done.values[1:] if one["message"]["role"] == "toolResult"]
    assert {one["toolName"] for one in results} == {"bash"}
