"""``python -m tests.inspector.screenshots``: the pictures of docs/inspector.md, made anew.

They show invented sessions only, in Debian's Chromium.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lockstitch.inspector.server import Inspector, running
from tests.inspector import browsing, scenes

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIZE = {"width": 1280, "height": 800}


def shown(browser: Browser, folder: Path, scheme: str) -> None:
    """Take the pictures of one scheme."""
    inspector = Inspector(None)
    options = {"viewport": SIZE, "color_scheme": scheme}
    with running(inspector) as address, browsing.tab(browser, address, **options) as tab:
        page = tab.page
        tab.waits(browsing.SCANNED)
        page.screenshot(path=folder / f"inspector-list-{scheme}.png")
        tab.open("The checkout test is flaky")
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"inspector-session-{scheme}.png")
        page.keyboard.press("r")
        page.wait_for_selector(".diff")
        page.wait_for_timeout(300)
        page.screenshot(path=folder / f"inspector-plan-{scheme}.png")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        page.keyboard.press("Escape")
        tab.open("Plan step 1")
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"inspector-branches-{scheme}.png")


def main() -> None:
    """Make the sessions, show them, and keep the pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        scenes.everything(home)
        os.environ["HOME"] = str(home)
        with browsing.chromium() as browser:
            for scheme in ("light", "dark"):
                shown(browser, IMAGES, scheme)
    for path in sorted(IMAGES.glob("inspector-*.png")):
        print(f"{path.name}: {path.stat().st_size} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
