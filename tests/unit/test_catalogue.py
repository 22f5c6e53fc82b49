"""Profiles and rules, which are data: what holds of every one that is added."""

from __future__ import annotations

import pytest
from msgspec import structs

import lockstitch
from lockstitch.dialects.profiles import profile_named
from lockstitch.rules.rule import rule


@pytest.mark.parametrize("most", [4, 12, 13, 16, 29, 64])
def test_an_id_that_is_made_is_never_longer_than_is_accepted(most: int) -> None:
    profile = structs.replace(profile_named("openai-chat"), id_max=most)
    made = {profile.new_id("call_" + "x" * 60, f"seed {number}") for number in range(50)}
    assert len(made) == 50
    assert all(0 < len(one) <= most for one in made)


def test_a_code_is_given_once() -> None:
    known = lockstitch.RULES["LS101"]
    fields = {name: getattr(known, name) for name in known.__struct_fields__ if name != "errors"}
    with pytest.raises(ValueError, match=f"LS101 is already the code of {known.name}"):
        rule(**fields)
    assert lockstitch.RULES["LS101"] is known
