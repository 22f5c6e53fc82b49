"""What people do with Claude Code, each leaving sessions behind: healthy ones, but for a few."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from lockstitch.provider import Reply
from lockstitch.provider import ScriptedCall as Call

from .seat import Seat, Window, word

HEALTHY = "healthy"
SECOND_WINDOW = "a second window"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
# Newer versions offer to clear the context with a plan only to those who want it.
_CLEARING = {"showClearContextOnPlanAccept": True}
Play = Callable[[Seat], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A thing to do, and what is then true of the session."""

    play: Play
    truth: str
    since: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.play.__name__

    def is_for(self, version: str) -> bool:
        """Whether this version of the client can do it."""
        return tuple(map(int, version.split("."))) >= self.since


SCENARIOS: dict[str, Scenario] = {}


def scenario(truth: str = HEALTHY, since: tuple[int, ...] = (0,)) -> Callable[[Play], Play]:
    """Register a scenario for clients from a version on."""

    def register(play: Play) -> Play:
        SCENARIOS[play.__name__] = Scenario(play, truth, since)
        return play

    return register


def bash(command: str, **more: object) -> Call:
    return Call("Bash", {"command": command, "description": "does it", **more})


def says(*calls: Call, text: str = "I do it now.") -> Reply:
    return Reply(word(text.rstrip(".")), calls)


@scenario()
def plain(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("What is this about?")
        window.ask("And now?", says(bash("echo one two three")))
        window.leave()


@scenario()
def cleared(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("First topic")
        window.ask("More of it", says(bash("echo one")))
        window.command("/clear")
        window.ask("Second topic", says(bash("echo two")))
        window.leave()


@scenario()
def exited_and_resumed(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("First day", says(bash("echo one")))
        window.leave()
    with seat.window("--resume", seat.last) as window:
        window.ask("Second day")
        window.leave()
    with seat.window("--continue") as window:
        window.ask("Third day", says(bash("echo three")))
        window.leave()


@scenario()
def killed_at_rest_and_resumed(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("First day", says(bash("echo one")))
        os.killpg(window.terminal.process.pid, signal.SIGKILL)
    with seat.window("--continue") as window:
        window.ask("Second day")
        window.leave()


@scenario(since=(2,))
def rewound(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("Way one", says(bash("echo one")))
        window.ask("Way two", says(bash("echo two")))
        window.ask("Way three")
        window.command("/rewind", "rewind|checkpoint")
        window.terminal.press("up", "enter")
        window.terminal.rest(1)
        _restore(window)
        window.ask("Another way", says(bash("echo four")))
        window.leave()


def _restore(window: Window) -> None:
    """Choose to restore the conversation, and take the old prompt out of the input."""
    terminal = window.terminal
    if terminal.sees("restore|confirm"):
        terminal.press("enter")
        terminal.rest(1)
    terminal.press("ctrl-u")
    terminal.rest(0.5)


@scenario(since=(2,))
def rewound_to_the_start(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("Way one", says(bash("echo one")))
        window.ask("Way two")
        window.command("/rewind", "rewind|checkpoint")
        window.terminal.press("up", "up", "up", "enter")
        window.terminal.rest(1)
        _restore(window)
        window.ask("From the start", says(bash("echo four")))
        window.leave()


@scenario()
def compacted(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("A long story", says(bash("seq 1 40")))
        window.ask("Longer still", says(bash("echo two")))
        window.command("/compact", "compacted|summary|ctrl\\+o")
        window.ask("After it", says(bash("echo three")))
        window.leave()
    with seat.window("--continue") as window:
        window.ask("Next day")
        window.leave()


@scenario(since=(2, 1, 50))
def plan_with_cleared_context(seat: Seat) -> None:
    seat.set(**_CLEARING)
    with seat.window() as window:
        window.ask("Look around first", says(bash("ls")))
        _plan(seat, window)
        window.ask("What is next?")
        window.leave()


@scenario(since=(2, 1, 50))
def plan_with_cleared_context_and_hooks(seat: Seat) -> None:
    _hook(seat)
    with seat.window() as window:
        window.ask("Look around first", says(bash("ls")))
        _plan(seat, window)
        window.ask("What is next?")
        window.leave()


def _plan(seat: Seat, window: Window) -> None:
    """Make a plan, and let it be carried out in a cleared context."""
    terminal, model = window.terminal, window.model
    for _ in range(8):
        if terminal.sees("plan mode on"):
            break
        terminal.press("shift-tab")
        terminal.rest(1)
    terminal.wait("plan mode on")
    folder = seat.place.home / ".claude" / "plans"
    plan = "# The plan\n\n1. Make a file\n2. Look at it\n"
    window.begin("Make a plan", says(bash("ls -la")))
    window.finish()
    name = _plan_file(seat) or str(folder / "plan.md")
    last = word("The plan is carried out")
    model.tell(
        says(Call("Write", {"file_path": name, "content": plan})),
        says(Call("ExitPlanMode", {"plan": plan})),
        says(bash("touch made")),
        Reply(last),
    )
    window.enter("Write it down and leave plan mode")
    terminal.wait("would you like to proceed|ready to code", 30)
    terminal.rest(1)
    lines = [line for line in terminal.text.splitlines() if "clear context" in line.lower()]
    assert lines, terminal.text
    terminal.press(next((mark for mark in lines[0] if mark.isdigit()), "1"))
    terminal.rest(0.6)
    if terminal.sees("would you like to proceed"):
        terminal.press("enter")
    terminal.wait(last[-24:])
    window.idle()


def _plan_file(seat: Seat) -> str | None:
    """Return the file that the client told the model to write its plan to."""
    for path in sorted((seat.root / "sent").rglob("*.json"), reverse=True):
        found = re.search(r"(/[^\s\"\\]*/\.claude/plans/[\w.-]+\.md)", path.read_text("utf-8"))
        if found:
            return found[1]
    return None


def _hook(seat: Seat) -> None:
    def told(name: str) -> list[dict[str, object]]:
        return [{"hooks": [{"type": "command", "command": f"echo hook {name}"}]}]

    names = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")
    seat.set(hooks={name: told(name) for name in names}, **_CLEARING)


@scenario()
def hooks(seat: Seat) -> None:
    _hook(seat)
    with seat.window() as window:
        window.ask("With hooks", says(bash("echo one"), bash("echo two")))
        window.command("/clear")
        window.ask("Again", says(bash("echo three")))
        window.command("/compact", "compacted|summary|ctrl\\+o")
        window.ask("And again")
        window.leave()
    with seat.window("--continue") as window:
        window.ask("Next day")
        window.leave()


@scenario()
def subagent(seat: Seat) -> None:
    with seat.window() as window:
        window.begin(
            "Use a helper",
            says(_agent("one")),
            says(bash("echo in the helper")),
            Reply(word("The helper has found it")),
        )
        window.all_said()
        window.ask("Thanks")
        window.leave()


@scenario()
def two_subagents_at_once(seat: Seat) -> None:
    with seat.window() as window:
        window.begin(
            "Use two helpers",
            says(_agent("one"), _agent("two")),
            says(bash("echo in a helper")),
            says(bash("echo in the other")),
            Reply(word("One has it")),
            Reply(word("The other has it")),
        )
        window.all_said()
        window.ask("Thanks")
        window.leave()
    with seat.window("--continue") as window:
        window.ask("Next day")
        window.leave()


def _agent(name: str) -> Call:
    return Call(
        "Agent",
        {
            "description": f"helper {name}",
            "prompt": f"Find {name}.",
            "subagent_type": "general-purpose",
            "run_in_background": False,
        },
    )


@scenario()
def background_task(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("Start it", says(bash("echo begun; sleep 4; echo over", run_in_background=True)))
        time.sleep(6)
        window.idle()
        window.ask("What came of it?", says(bash("echo looked")))
        window.leave()


@scenario()
def mcp_tools(seat: Seat) -> None:
    server = seat.place.work / "server.py"
    server.write_text(_SERVER, "utf-8")
    config = seat.place.work / ".mcp.json"
    desk = {"command": sys.executable, "args": [str(server)]}
    config.write_text(json.dumps({"mcpServers": {"desk": desk}}), "utf-8")
    with seat.window("--mcp-config", str(config)) as window:
        window.ask("Say hello")
        window.ask(
            "Add them",
            says(
                Call("mcp__desk__add", {"a": 1, "b": 2}), Call("mcp__desk__add", {"a": 3, "b": 4})
            ),
        )
        window.leave()


_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    method = asked["method"]
    if method == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"],
                  "capabilities": {"tools": {}}, "serverInfo": {"name": "desk", "version": "1"}}
    elif method == "tools/list":
        numbers = {"a": {"type": "number"}, "b": {"type": "number"}}
        result = {"tools": [{"name": "add", "description": "adds",
                             "inputSchema": {"type": "object", "properties": numbers}}]}
    elif method == "tools/call":
        given = asked["params"]["arguments"]
        result = {"content": [{"type": "text", "text": str(given["a"] + given["b"])}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@scenario()
def images(seat: Seat) -> None:
    picture = seat.place.work / "dot.png"
    picture.write_bytes(PIXEL)
    with seat.window() as window:
        window.ask("Look at it", says(Call("Read", {"file_path": str(picture)})))
        window.ask(f"And at @{picture.name} here")
        window.leave()
    with seat.window("--continue") as window:
        window.ask("Next day")
        window.leave()


@scenario()
def other_model(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("With the first model", says(bash("echo one")))
        window.command("/model haiku")
        window.terminal.press("enter")
        window.terminal.rest(1)
        window.ask("With the second model", says(bash("echo two")))
        window.leave()


@scenario()
def commands(seat: Seat) -> None:
    folder = seat.place.work / ".claude" / "commands"
    folder.mkdir(parents=True)
    (folder / "greet.md").write_text("Say hello to $ARGUMENTS.\n", "utf-8")
    with seat.window() as window:
        window.ask("Before")
        window.command("/cost")
        window.dismiss()
        window.ask("Between", says(bash("echo one")))
        window.command("/context")
        window.dismiss()
        window.ask("/greet everybody")
        window.leave()
    with seat.window("--continue") as window:
        window.ask("Next day")
        window.leave()


@scenario(since=(2, 1, 112))  # older ones crash when there is no editor
def editor_command(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("Before", says(bash("echo one")))
        window.command("/ide")
        window.dismiss()
        window.leave()
    with seat.window("--continue") as window:
        window.ask("Next day")
        window.leave()


@scenario()
def shell_mode(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("Before")
        window.terminal.type("!")
        window.terminal.rest(0.5)
        window.enter("echo out of the shell")
        window.terminal.rest(1.5)
        window.idle()
        window.ask("After", says(bash("echo one")))
        window.leave()


@scenario()
def memory_and_files(seat: Seat) -> None:
    (seat.place.work / "CLAUDE.md").write_text("Be kind.\n", "utf-8")
    (seat.place.work / "notes.txt").write_text("one\ntwo\n", "utf-8")
    with seat.window() as window:
        window.ask(
            "Change the notes",
            says(Call("Read", {"file_path": str(seat.place.work / "notes.txt")})),
            says(
                Call(
                    "Edit",
                    {
                        "file_path": str(seat.place.work / "notes.txt"),
                        "old_string": "one",
                        "new_string": "1",
                    },
                )
            ),
        )
        (seat.place.work / "notes.txt").write_text("changed outside\n", "utf-8")
        window.ask("Look at @notes.txt again")
        window.leave()


@scenario()
def thinking(seat: Seat) -> None:
    with seat.window() as window:
        window.ask(
            "Think first",
            Reply(word("I look"), (bash("echo one"), bash("echo two")), "What could it be?"),
            Reply("", (bash("echo three"),), "And now?"),
            Reply(word("That is it"), thinking="It is clear."),
        )
        window.leave()
    with seat.window("--continue") as window:
        window.ask("Next day")
        window.leave()


@scenario()
def compacted_by_itself(seat: Seat) -> None:
    """The window is made small, so that the client runs out of it."""
    books = [seat.place.work / f"book{number}.txt" for number in range(8)]
    for book in books:
        lines = (f"line {number} of {book.name}, a long book\n" for number in range(1500))
        book.write_text("".join(lines), "utf-8")
    small = {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "25", "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "200000"}
    with seat.window("--model", "claude-haiku-4-5", more=small) as window:
        for book in books:
            window.begin(f"Read {book.name}", says(Call("Read", {"file_path": str(book)})))
            window.all_said()  # the summary may be made of what was meant for the turn
            if b"compact_boundary" in seat.files[-1].read_bytes():
                break
        else:
            raise AssertionError("it did not compact")
        window.ask("Go on", says(bash("echo one")))
        window.leave()


@scenario()
def interrupted_tool(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("Before")
        window.begin("Wait for it", says(bash("echo begun; sleep 50")))
        window.terminal.wait("sleep 50")
        window.terminal.rest(1.2, 4)
        window.terminal.press("esc")
        window.terminal.wait("interrupted|what should claude do")
        window.terminal.rest(1)
        window.model.forget()
        window.ask("Leave it", says(bash("echo one")))
        window.leave()
    with seat.window("--continue") as window:
        window.ask("Next day")
        window.leave()


@scenario()
def interrupted_reply(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("Before")
        window.model.pause = 6
        window.begin("Think about it")
        time.sleep(2)
        window.terminal.press("esc")
        window.terminal.rest(1)
        window.model.pause = 0
        time.sleep(5)
        window.model.forget()
        window.terminal.press("ctrl-u")
        window.ask("Never mind", says(bash("echo one")))
        window.leave()


@scenario()
def queued_message(seat: Seat) -> None:
    with seat.window() as window:
        window.begin("Do it", says(bash("sleep 6; echo slow")), says(bash("echo fast")))
        window.terminal.wait("sleep 6")
        time.sleep(1)
        window.enter("And mind the second thing")
        window.finish()
        window.idle()
        window.ask("Good")
        window.leave()


@scenario()
def parallel_tools(seat: Seat) -> None:
    with seat.window() as window:
        window.ask(
            "All at once",
            says(bash("sleep 1; echo one"), bash("echo two"), bash("echo three")),
            says(bash("echo four"), bash("false"), bash("echo five")),
        )
        window.ask("Thanks")
        window.leave()
    with seat.window("--continue") as window:
        window.ask("Next day", says(bash("echo six"), bash("echo seven")))
        window.leave()


@scenario()
def failing_tools(seat: Seat) -> None:
    with seat.window() as window:
        window.ask(
            "Try",
            says(Call("Read", {"file_path": "/nowhere/at/all"})),
            says(bash("echo oops >&2; exit 3")),
            says(Call("Read", {"wrong": 1})),
        )
        window.leave()


@scenario()
def unicode_text(seat: Seat) -> None:
    text = "Grüße 漢字 😀 🏳️‍🌈 עברית \u2028 zero\u200bwidth"
    with seat.window() as window:
        window.ask("Grüße 漢字 😀", Reply("\n\n".join([text * 20, word("Übrigens")])))
        window.ask("Mehr", says(bash("printf '\\xff\\xfe\\x00 bytes \\033[31mred\\033[0m'")))
        window.leave()


@scenario()
def denied_tool(seat: Seat) -> None:
    with seat.window(free=False) as window:
        window.ask("Before")
        window.begin(
            "Write it",
            says(Call("Write", {"file_path": str(seat.place.work / "x"), "content": "x"})),
        )
        window.terminal.wait("do you want to")
        window.terminal.rest(0.6)
        window.terminal.press("esc")
        window.terminal.wait("interrupted|rejected|what should claude do")
        window.terminal.rest(1)
        window.model.forget()
        window.ask("Leave it")
        window.leave()
    with seat.window("--continue") as window:
        window.ask("Next day")
        window.leave()


@scenario()
def forked(seat: Seat) -> None:
    with seat.window() as window:
        window.ask("Before", says(bash("echo one")))
        window.leave()
    first = seat.last
    with seat.window("--resume", first, "--fork-session") as window:
        window.ask("In the fork", says(bash("echo two")))
        window.leave()
    with seat.window("--resume", first) as window:
        window.ask("In the first")
        window.leave()


@scenario(since=(2, 1, 50))
def worktree(seat: Seat) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    work = seat.place.work
    (work / "a.txt").write_text("a\n", "utf-8")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *words], cwd=work, check=True)
    tree = seat.root / "tree"
    subprocess.run([*git, "worktree", "add", "-q", str(tree)], cwd=work, check=True)
    seat.trust(tree)
    with seat.window() as window:
        window.ask("In the project", says(bash("echo one")))
        window.leave()
    with seat.window(work=tree) as window:
        window.ask("In the tree", says(bash("pwd")))
        window.leave()
    with seat.window("--continue", work=tree) as window:
        window.ask("In the tree again")
        window.leave()


@scenario()
def headless(seat: Seat) -> None:
    for words in (["-p", "One"], ["-p", "Two", "--continue"], ["-p", "Three", "--continue"]):
        with seat.window(*words, wait=False) as window:
            window.model.tell(says(bash("echo one"), bash("echo two")), Reply(word("Done")))
            assert window.terminal.ended(60), window.terminal.text
    with seat.window("--resume", seat.last) as window:
        window.ask("In a window")
        window.leave()


@scenario(SECOND_WINDOW)
def two_windows_in_turns(seat: Seat) -> None:
    with seat.window() as one:
        one.ask("One first", says(bash("echo one")))
        with seat.window("--resume", seat.last) as two:
            two.ask("Two is here", says(bash("echo two")))
            two.leave()
        one.ask("One again", says(bash("echo three")))
        one.leave()


@scenario(SECOND_WINDOW)
def two_windows_at_once(seat: Seat) -> None:
    with seat.window() as one:
        one.ask("One first", says(bash("echo one")))
        with seat.window("--resume", seat.last) as two:
            one.model.pause = 10
            one.begin("One waits", says(bash("echo late")))
            two.ask("Two is quick", says(bash("echo two")))
            two.leave()
        one.model.pause = 0
        one.finish()
        one.leave()


@scenario(SECOND_WINDOW)
def two_windows_the_second_last(seat: Seat) -> None:
    with seat.window() as one:
        one.ask("One first", says(bash("echo one")))
        with seat.window("--resume", seat.last) as two:
            one.ask("One goes on", says(bash("echo three")))
            two.ask("Two goes on", says(bash("echo two")))
            two.leave()
        one.leave()
