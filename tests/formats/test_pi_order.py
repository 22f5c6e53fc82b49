from __future__ import annotations

from itertools import islice, permutations

import pytest

from .surgery import joined, mend
from .test_pi import FORM, HEAD, OWN, TURN, Json, chain, entry, is_chain, model, text, user, words

NAME = f"2026-09-01T10-00-00-123Z_{OWN}.jsonl"
MORE = (user("More."), model(text("Yes.")))


# The head.


def test_a_lost_head_is_written_anew() -> None:
    lines = chain(*TURN)
    done = mend(FORM, joined(*lines[1:]), name=NAME)
    assert (done.codes, done.remaining) == (["LS610"], [])
    assert done.severities["LS610"] == "error"
    time = "2026-09-01T10:00:00.123Z"
    assert done.values[0] == {"type": "session", "version": 3, "id": OWN, "timestamp": time}
    assert done.values[1:] == lines[1:]
    assert mend(FORM, done.data, name=NAME).data == done.data


def test_a_head_without_an_id_keeps_the_rest() -> None:
    lines = chain(*TURN)
    bare = {key: value for key, value in HEAD.items() if key != "id"}
    done = mend(FORM, joined(bare, *lines[1:]), name=NAME)
    assert done.remaining == []
    assert done.values == [HEAD, *lines[1:]]


def test_what_is_left_of_a_torn_head_is_used() -> None:
    head, *rest = joined(*chain(*TURN)).split(b"\n")
    done = mend(FORM, b"\n".join([head[:-1], *rest]), name=NAME)
    assert done.remaining == []
    assert done.values[0] == HEAD


def test_a_byte_order_mark_is_an_error() -> None:
    data = joined(*chain(*TURN))
    done = mend(FORM, b"\xef\xbb\xbf" + data, name=NAME)
    assert (done.severities, done.data) == ({"LS604": "error"}, data)


# The last line, from which pi goes on.


@pytest.mark.parametrize("moved", [1, 2, 4, 5])
def test_an_ancestor_at_the_end_goes_back_to_its_place(moved: int) -> None:
    lines = chain(*TURN, *MORE)
    others = [line for line in lines if line is not lines[moved]]
    done = mend(FORM, joined(*others, lines[moved]), name=NAME)
    assert (done.codes[-1], done.severities["LS704"]) == ("LS704", "error")
    assert done.remaining == []
    assert done.values == lines
    if moved < 5:
        assert any("will silently drop 1 turn" in message for message in done.messages)


@pytest.mark.parametrize("moved", [1, 2, 4, 5])
def test_an_ancestor_that_was_written_again_at_the_end_goes(moved: int) -> None:
    lines = chain(*TURN, *MORE)
    done = mend(FORM, joined(*lines, lines[moved]), name=NAME)
    assert (done.codes[-1], done.severities["LS607"]) == ("LS607", "error")
    assert done.data == joined(*lines)


def test_another_message_with_the_id_of_an_ancestor_goes_on_from_the_end() -> None:
    lines = chain(*TURN, *MORE)
    other = {**entry(lines[1]["id"], None, user("Other.")), "timestamp": "t-later"}
    done = mend(FORM, joined(*lines, other), name=NAME)
    assert (done.codes, done.severities["LS703"]) == (["LS703"], "error")
    assert done.remaining == []
    assert is_chain(done)
    assert all(each in words(done) for each in ("Build it.", "Yes.", "Other."))


def test_lines_in_reverse_are_put_in_order() -> None:
    lines = chain(*TURN, *MORE)
    done = mend(FORM, joined(HEAD, *lines[:0:-1]), name=NAME)
    assert done.remaining == []
    assert done.values == lines


def test_in_reverse_the_newest_branch_stays_the_one_that_goes_on() -> None:
    lines = branched()
    done = mend(FORM, joined(HEAD, *lines[:0:-1]), name=NAME)
    assert done.remaining == []
    assert "Newer." in words(done)
    assert "Older." not in words(done)


def test_any_order_with_an_ancestor_last_takes_one_repair() -> None:
    for order in islice(permutations(branched()[1:]), 0, None, 101):
        done = mend(FORM, joined(HEAD, *order), name=NAME)
        assert done.remaining == []
        assert mend(FORM, done.data, name=NAME).data == done.data


def test_a_person_who_went_back_is_left_alone() -> None:
    data = joined(*branched())
    done = mend(FORM, data, name=NAME)
    assert (done.codes, done.data) == ([], data)


def branched() -> list[Json]:
    """One branch that was left, and the one in its place."""
    lines = chain(*TURN)
    lines.append(entry("0000000a", lines[4]["id"], user("Older.")))
    lines.append(entry("0000000b", "0000000a", model(text("Old answer."))))
    lines.append(entry("0000000c", lines[4]["id"], user("Newer.")))
    return lines
