"""The pytest plugin: the fixture ``lockstitch_provider``.

It is a module of its own, and loads Lockstitch only for a test that asks for the fixture: pytest
imports every plugin that is installed, in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lockstitch.testing import Provider


@pytest.fixture
def lockstitch_provider() -> Iterator[Provider]:
    """A strict LLM provider on this machine: Anthropic, OpenAI, Gemini and Bedrock Converse.

    It answers `ok`, or what `lockstitch_provider.reply(...)` was told.
    """
    from lockstitch.errors import UsageError  # noqa: PLC0415 - for a test that uses it only
    from lockstitch.testing import provider  # noqa: PLC0415 - the same

    try:
        with provider() as running:
            yield running
    except UsageError as error:
        pytest.fail(str(error), pytrace=False)
