"""The page in a real Chromium."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

import lockstitch
from lockstitch.inspector import actions
from lockstitch.sources.source import Report
from tests.inspector import browsing, scenes

Open = Callable[..., browsing.Tab]
PHONE = {"width": 360, "height": 740}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    scenes.everything(tmp_path)
    return tmp_path


def agree(tab: browsing.Tab, label: str) -> None:
    """Agree to what a dialog shows, and wait until it was done and the session read anew."""
    tab.waits("!document.querySelector('dialog .primary').disabled")
    tab.page.locator("dialog button.primary", has_text=label).click()
    tab.page.wait_for_selector("dialog", state="detached")
    tab.page.wait_for_selector(".toast.good")


def test_a_folder_is_seen_one_repaired_healthy_undone_the_same(home: Path, tab: Open) -> None:
    path = scenes.interrupted(home)
    before = path.read_bytes()
    at = tab(home)
    page = at.page
    assert at.words("#scan") == "15 sessions"
    assert at.words(".chip.broken b") == "2"
    item = page.locator(".item", has_text="The checkout test is flaky")
    assert "2 tool calls without results" in item.inner_text()
    at.open("The checkout test is flaky")
    assert at.words("#badge") == "Broken"
    assert page.locator(".call.open").count() == 2
    assert "claude --resume" in at.words("#resume")
    page.get_by_role("button", name="Repair…").click()
    page.wait_for_selector(".diff")
    assert "1 line will change, 2 lines will be added" in at.words("dialog .says")
    assert path.read_bytes() == before
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert path.read_bytes() == before
    page.get_by_role("button", name="Repair…").click()
    agree(at, "Repair")
    at.waits("document.querySelector('#badge').textContent === 'Healthy'")
    assert path.read_bytes() != before
    assert page.locator(".call.open").count() == 0
    page.get_by_role("button", name="Undo repair…").click()
    assert "byte for byte" in at.words("dialog .says li")
    agree(at, "Undo")
    at.waits("document.querySelector('#badge').textContent === 'Broken'")
    assert path.read_bytes() == before
    page.get_by_role("link", name="Sessions", exact=True).click()
    assert "2 tool calls without results" in item.inner_text()


def test_20000_messages_scroll_and_the_document_stays_small(tmp_path: Path, tab: Open) -> None:
    scenes.long(tmp_path)
    at = tab(tmp_path)
    page = at.page
    at.open("Question 0")
    assert "20,002 messages" in page.locator(".session-head .facts").inner_text()
    page.keyboard.press("g")
    page.wait_for_selector(".row .said >> text=Question 0")
    page.keyboard.press("Shift+G")
    page.wait_for_selector("text=the very last call")
    assert page.locator(".call.open").count() == 1
    nodes = page.evaluate("document.querySelectorAll('*').length")
    assert nodes < 3000
    host = page.locator(".timeline")
    for _ in range(20):
        host.evaluate("host => { host.scrollTop -= 1700 }")
    host.evaluate("host => { host.scrollTop = host.scrollHeight / 2 }")
    at.waits("document.querySelectorAll('.timeline .row .who').length > 3")
    assert page.evaluate("document.querySelectorAll('*').length") < 3000
    page.goto(page.url.partition("#")[0] + page.url.partition("#")[1] + page.evaluate(
        "location.hash.slice(1).replace(/\\/at\\/.*/, '') + '/at/7500'"))  # fmt: skip
    page.wait_for_selector(".row.at .said >> text=Question 2500")
    box = page.locator(".row.at").bounding_box()
    assert box is not None
    assert 0 < box["y"] < 800


def test_html_scripts_and_escapes_do_nothing(tmp_path: Path, tab: Open) -> None:
    scenes.hostile(tmp_path)
    at = tab(tmp_path)
    page = at.page
    at.open("<script>")
    assert "<script>window.broken = 1" in at.words(".said.user")
    assert page.locator(".hidden-char", has_text="U+202E").count() > 0
    assert page.locator(".hidden-char", has_text="ESC").count() > 0
    page.get_by_role("button", name="Repair…").click()
    page.wait_for_selector(".diff")
    page.keyboard.press("Escape")
    page.get_by_label("Find in this session").fill("<img src=x onerror")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=1 of")
    assert page.evaluate("window.broken") is None
    for tag in ("main iframe", "main img", "main script", "main style", "main svg[onload]"):
        assert page.locator(tag).count() == 0
    assert page.evaluate("getComputedStyle(document.body).display") == "flex"
    assert [one for one in page.locator("main a").all() if "javascript:" in (
        one.get_attribute("href") or "")] == []  # fmt: skip


def test_the_browser_itself_refuses_markup(library: browsing.Tab) -> None:
    at = library
    refused = """() => {
        try { document.body.innerHTML = "<b>x</b>"; return "set"; }
        catch (error) { return error.name; }
    }"""
    assert at.page.evaluate(refused) == "TypeError"
    asked = "fetch('http://192.0.2.1/').then(() => 'went', () => 'refused')"
    assert at.page.evaluate(asked) == "refused"
    at.errors.clear()
    at.strangers.clear()


def test_a_second_browser_gets_an_empty_page(home: Path, browser: object, tab: Open) -> None:
    at = tab(home)
    with browsing.tab(browser, at.address) as other:  # type: ignore[arg-type]
        other.page.wait_for_selector("text=Open the address that was printed")
        assert other.page.locator(".item").count() == 0
        other.errors.clear()
    at.page.reload()
    at.page.wait_for_selector(".item")
    assert "token" not in at.page.url


def test_secrets_are_masked_until_asked_for(library: browsing.Tab) -> None:
    at = library
    at.open("Why does the deployment fail?")
    at.page.wait_for_selector("text=[redacted:anthropic-key:1]")
    assert scenes.SECRET not in at.page.content()
    at.page.get_by_role("button", name="Show secrets").click()
    at.page.wait_for_selector(f"text={scenes.SECRET}")
    at.page.keyboard.press("s")
    at.page.wait_for_selector("text=[redacted:anthropic-key:1]")


def test_keys_lead_everywhere(library: browsing.Tab) -> None:
    at = library
    page = at.page
    page.keyboard.press("/")
    page.keyboard.type("invoice migration")
    at.waits("document.querySelectorAll('.item').length === 1")
    page.keyboard.press("Enter")
    at.waits("document.querySelectorAll('.item.at').length === 1")
    page.keyboard.press("Escape")
    at.waits("document.querySelectorAll('.item').length > 5")
    page.keyboard.press("g")
    for _ in range(1):
        page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    assert "Plan step 1" in at.words(".item.at")
    page.keyboard.press("Enter")
    page.wait_for_selector(".row.at")
    assert "Second window" in at.words(".row.at")
    page.keyboard.press("k")
    at.waits("document.querySelector('.row.at').innerText.includes('a resume drops this')")
    page.keyboard.press("n")
    at.waits("document.querySelector('.row.at').innerText.includes('Second window')")
    page.keyboard.press("r")
    page.wait_for_selector(".diff")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("?")
    page.wait_for_selector("dialog kbd")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("Escape")
    page.wait_for_selector(".item.at >> text=Plan step 1")


def test_filters_narrow_the_list(library: browsing.Tab) -> None:
    at = library
    page = at.page
    page.get_by_label("Program").select_option("Codex")
    at.waits("document.querySelectorAll('.item').length === 1")
    page.get_by_label("Program").select_option("")
    page.get_by_label("Age").select_option("86400")
    at.waits("document.querySelectorAll('.item').length === 4")
    page.get_by_label("Age").select_option("")
    page.locator(".chip.warning").click()
    at.waits("document.querySelectorAll('.item').length === 2")
    page.get_by_label("Search sessions").fill("nothing like this")
    page.get_by_role("button", name="Show all").click()
    at.waits("document.querySelectorAll('.item').length > 5")


def test_an_export_is_saved(library: browsing.Tab, tmp_path: Path) -> None:
    at = library
    at.open("Why does the deployment fail?")
    at.page.keyboard.press("e")
    at.page.get_by_label("Wire format").select_option("openai-chat")
    with at.page.expect_download() as saved:
        at.page.get_by_role("button", name="Save file").click()
    path = tmp_path / "export.json"
    saved.value.save_as(path)
    assert saved.value.suggested_filename.endswith(".openai-chat.json")
    assert scenes.SECRET not in path.read_text()


def test_a_store_its_leases_and_what_can_be_done(tmp_path: Path, tab: Open) -> None:
    url = scenes.store(tmp_path / "agent.db", sessions=4)
    with lockstitch.open(url) as store, store.session("ticket-41"):
        at = tab(url)
        page = at.page
        page.get_by_role("link", name="Store").click()
        page.wait_for_selector(".cards")
        assert "ticket-41" in page.locator("section", has_text="Who holds sessions").inner_text()
        assert "record" in page.locator("section", has_text="Compactions").inner_text()
        page.get_by_role("link", name="ticket-40").first.click()
        page.wait_for_selector(".row.at")
    page.keyboard.press("g")
    page.wait_for_selector(".row.aside")
    page.get_by_role("button", name="Go back to here…").first.click()
    page.wait_for_selector("dialog .says")
    assert "will continue from record 1" in at.words("dialog .says")
    agree(at, "Go back")
    page.wait_for_selector("[data-action=unrewind]")
    page.locator("[data-action=fork]").click()
    page.get_by_label("Name of the new session").fill("another-way")
    page.keyboard.press("Tab")
    page.wait_for_selector("dialog .says li >> text=another-way")
    agree(at, "Fork")
    page.goto(page.url.partition("#")[0] + "#/")
    page.wait_for_selector(".item >> text=another-way")


AXE = Axe()
TAGS = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]}
COLOURS = {"type": "rule", "values": ["color-contrast"]}


def flaws(tab: browsing.Tab, name: str, *, is_dark: bool = True) -> list[str]:
    """What axe finds, in light and dark; the scheme changes nothing but colours."""
    found: list[str] = []
    for scheme, what in (("light", TAGS), ("dark", COLOURS))[: 1 + is_dark]:
        tab.page.emulate_media(color_scheme=scheme)
        answer = AXE.run(tab.page, options={"runOnly": what}).response
        for flaw in answer["violations"]:
            found += [f"{name}, {scheme}: {flaw['id']} {n['html'][:150]}" for n in flaw["nodes"]]
    tab.page.emulate_media(color_scheme="light")
    return found


def test_axe_finds_nothing(tmp_path: Path, tab: Open) -> None:
    scenes.interrupted(tmp_path)
    scenes.two_windows(tmp_path)
    at = tab(tmp_path)
    page = at.page
    found: list[str] = []
    for size in (page.viewport_size, PHONE):
        page.set_viewport_size(size)
        is_dark = size != PHONE
        found += flaws(at, "list", is_dark=is_dark)
        at.open("Plan step 1")
        found += flaws(at, "branches", is_dark=is_dark)
        page.keyboard.press("?")
        page.wait_for_selector("dialog kbd")
        found += flaws(at, "keys", is_dark=is_dark)
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        page.keyboard.press("Escape")
        at.open("The checkout test")
        found += flaws(at, "session", is_dark=is_dark)
        page.keyboard.press("r")
        page.wait_for_selector(".diff")
        found += flaws(at, "plan", is_dark=is_dark)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        page.keyboard.press("Escape")
        page.wait_for_selector(".item")
    assert found == []


def test_axe_finds_nothing_on_the_page_of_a_store(tmp_path: Path, tab: Open) -> None:
    at = tab(scenes.store(tmp_path / "agent.db", sessions=4), viewport=PHONE)
    at.page.get_by_role("link", name="Store").click()
    at.page.wait_for_selector(".cards")
    assert flaws(at, "store") == []


def test_sessions_are_listed_while_the_scan_goes_on(
    tmp_path: Path, tab: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes.healthy(tmp_path)
    real, go_on, waits = actions.scan, threading.Event(), threading.Event()

    def slowly(target: str | None) -> Iterator[tuple[actions.Subject, Report]]:
        for number, found in enumerate(real(target)):
            if number == 3:
                waits.set()
                assert go_on.wait(browsing.PATIENCE / 1000)
            yield found

    monkeypatch.setattr(actions, "scan", slowly)
    at = tab(tmp_path, is_whole=False)
    assert waits.wait(browsing.PATIENCE / 1000)
    at.waits("document.querySelectorAll('.item').length === 3")
    assert at.words("#scan") == "Scanning… 3 sessions"
    go_on.set()
    at.waits(browsing.SCANNED)
    assert at.page.locator(".item").count() == len(scenes.TOPICS)


def test_an_address_of_a_session_that_is_gone_says_so(library: browsing.Tab) -> None:
    at = library
    at.page.goto(at.page.url.partition("#")[0] + "#/s/0123456789abcdef")
    at.page.wait_for_selector("text=This session cannot be shown")
    at.errors.clear()
