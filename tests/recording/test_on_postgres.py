"""What holds for recording holds on a real PostgreSQL: some of the tests, with that store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres_server import shared
from tests.recording import test_decisions, test_dialects, test_together

CHOSEN = (
    test_decisions.test_a_second_reply_to_the_same_request_is_a_branch,
    test_decisions.test_two_clients_part_where_they_differ,
    test_decisions.test_instructions_that_change_in_a_conversation_are_part_of_it,
    test_decisions.test_a_conversation_that_the_provider_keeps,
    test_decisions.test_a_session_that_somebody_holds_is_forked,
    test_decisions.test_a_session_that_was_removed_is_not_missed,
    test_dialects.test_a_client_that_keeps_what_came_goes_on_in_the_same_session,
    test_together.test_clients_that_go_on_from_the_same_place_at_once,
    test_together.test_the_same_request_many_times_at_once,
)


@pytest.fixture
def url() -> Iterator[str]:
    address = shared().prepared()
    yield address
    shared().recycle(address)


globals().update({test.__name__: test for test in CHOSEN})
