"""A real Chromium, and a tab of it that notes whatever a page must not do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from tests.tools import needed

# Debian's has no sandbox for root, and looks for updates unless it is told not to.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
# The machine may be busy; nothing is asserted to be quick.
PATIENCE, PAUSE = 60_000, 50
SCANNED = "/^\\d/.test(document.querySelector('#scan').textContent)"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Debian's Chromium."""
    path = needed("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """A tab: its page, what left this machine, and what went wrong in it."""

    page: Page
    address: str
    strangers: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, title: str) -> None:
        """Open a session of the list by its title."""
        self.page.locator(".item", has_text=title).first.click()
        self.page.wait_for_selector(".row .who, .verdict.unreadable")

    def words(self, selector: str) -> str:
        """The text of the first element of a kind."""
        return self.page.locator(selector).first.inner_text()

    def waits(self, script: str) -> None:
        """Wait until an expression is true; the page's own policy forbids to poll inside of it."""
        for _ in range(PATIENCE // PAUSE):
            if self.page.evaluate(script):
                return
            self.page.wait_for_timeout(PAUSE)
        raise AssertionError(f"never true: {script}")


@contextmanager
def tab(browser: Browser, address: str, **options: Any) -> Iterator[Tab]:
    """Open an address in a profile of its own; every failure of the page fails the test."""
    size = {"width": 1280, "height": 800}
    context = browser.new_context(**{"viewport": size, **options})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    made = Tab(page, address)
    host = urlsplit(address).netloc

    def asked(url: str) -> None:
        if urlsplit(url).netloc != host and not url.startswith("blob:"):
            made.strangers.append(url)

    page.on("request", lambda request: asked(request.url))
    page.on("pageerror", lambda error: made.errors.append(str(error)))
    page.on(
        "console",
        lambda message: made.errors.append(message.text) if message.type == "error" else None,
    )
    try:
        page.goto(address)
        yield made
        assert made.strangers == []
        assert made.errors == []
    finally:
        context.close()
