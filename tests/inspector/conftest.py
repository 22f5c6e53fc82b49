from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockstitch.inspector.server import Inspector, running
from tests.inspector import browsing, scenes

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Open = Callable[..., browsing.Tab]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a file."""
    with browsing.chromium() as opened:
        yield opened


@pytest.fixture
def failures() -> Iterator[list[Exception]]:
    """What went wrong inside of the server, which must be nothing."""
    found: list[Exception] = []
    yield found
    assert found == []


@pytest.fixture
def served(failures: list[Exception]) -> Iterator[Callable[[Path | str | None], str]]:
    """Serves targets until the test is over; gives the address that lets one browser in."""
    with ExitStack() as stack:

        def serve(target: Path | str | None) -> str:
            inspector = Inspector(None if target is None else str(target), failures.append)
            return stack.enter_context(running(inspector))

        yield serve


@pytest.fixture
def tab(browser: Browser, served: Callable[[Path | str | None], str]) -> Iterator[Open]:
    """Opens a target in a fresh profile; what runs or leaves where nothing should is an error."""
    with ExitStack() as stack:

        def opened(target: Path | str, *, is_whole: bool = True, **options: object) -> browsing.Tab:
            tab = stack.enter_context(browsing.tab(browser, served(target), **options))
            if is_whole:
                tab.waits(browsing.SCANNED)
            return tab

        yield opened


@pytest.fixture(scope="module")
def _library(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsing.Tab]:
    home = tmp_path_factory.mktemp("home")
    scenes.everything(home)
    found: list[Exception] = []
    address = running(Inspector(str(home), found.append))
    with address as url, browsing.tab(browser, url) as tab:
        yield tab
    assert found == []


@pytest.fixture
def library(_library: browsing.Tab) -> browsing.Tab:
    """A tab with all kinds of sessions, loaded anew, for tests that change nothing."""
    _library.page.goto(_library.address.partition("#")[0] + "#/")
    _library.page.reload()
    _library.waits(browsing.SCANNED)
    return _library
