"""The threads that a program in JavaScript leaves behind, in every state that it can stop in."""

from __future__ import annotations

from collections.abc import Iterable

from lockstitch.provider.replies import Reply

from .drive import Act, called

HELLO = "Look at these files."
MORE = "And now?"
FURTHER = "Is that all?"
TWO = called(("read", "a"), ("read", "b"))
# The first and the third end at once, the second never.
THREE = called(("read", "a"), ("hang", "b"), ("read", "c"))
DONE = Reply("done")


def _finished(thread: str, graph: str) -> list[Act]:
    return [
        Act("say", thread, graph, {"text": HELLO}, (TWO, DONE)),
        Act("say", thread, graph, {"text": MORE}, (DONE,)),
    ]


def _begun(thread: str, graph: str, act: str) -> Act:
    """Tools that run side by side leave a result each, those of one node only all together."""
    finished = 0 if graph == "plain" else 2
    return Act(act, thread, graph, {"text": HELLO, "finished": finished}, (THREE,))


def _aborted(thread: str, graph: str) -> list[Act]:
    return [_begun(thread, graph, "abort"), Act("say", thread, graph, {"text": MORE})]


HEALTHY = [
    *_finished("healthy-agent", "agent"),
    *_finished("healthy-plain", "plain"),
    *_finished("healthy-delta", "delta"),
]
# Stopped by a person, who then wrote something else, so that no request is valid any more.
ABORTED = [
    *_aborted("aborted-agent", "agent"),
    *_aborted("aborted-plain", "plain"),
    *_aborted("aborted-delta", "delta"),
]
# A person is asked by one of the tools, and writes something else instead of an answer.
EVADED = [
    Act("say", "evaded-agent", "agent", {"text": HELLO}, (called(("read", "a"), ("ask", "b")),)),
    Act("say", "evaded-agent", "agent", {"text": MORE}),
]
# Stopped while the reply came in; what had come by then was kept.
CUT = [
    Act("cut", "cut-text", "plain", {"text": HELLO, "node": "model"}),
    Act("cut", "cut-call", "plain", {"text": HELLO, "node": "model", "call": True}),
]
# A person is asked: by a tool, by the agent's middleware, by a breakpoint.
ASKED = [
    Act("say", "asked-tool", "agent", {"text": HELLO}, (called(("read", "a"), ("ask", "b")),)),
    Act("say", "asked-agent", "agent", {"text": HELLO}, (called(("erase", "a")),)),
    Act("say", "asked-plain", "plain", {"text": HELLO}, (called(("ask", "b")),)),
    Act("say", "asked-delta", "delta", {"text": HELLO}, (called(("read", "a"), ("ask", "b")),)),
    Act("say", "halted", "halting", {"text": HELLO}, (TWO,)),
]
# All under way when the process is killed.
KILLED = [
    _begun("killed-agent", "agent", "begin"),
    _begun("killed-plain", "plain", "begin"),
    _begun("killed-delta", "delta", "begin"),
]
# Killed between a message that came in and anything done about it.
DROPPED = [
    Act("drop", "dropped-agent", "agent", {"text": HELLO}),
    Act("drop", "dropped-plain", "plain", {"text": HELLO}),
    Act("drop", "dropped-delta", "delta", {"text": HELLO}),
]

MADE = [*HEALTHY, *ABORTED, *EVADED, *CUT, *ASKED]
GRAPHS = {act.thread: act.graph for act in [*MADE, *KILLED, *DROPPED]}
WHOLE = sorted({act.thread for act in HEALTHY})
WAITING = [act.thread for act in ASKED if act.graph != "halting"]
BROKEN = [act.thread for act in [*KILLED, *ABORTED[::2], EVADED[0], CUT[-1]]]


def shown(names: Iterable[str]) -> list[Act]:
    """Look at threads."""
    return [Act("show", name, GRAPHS[name]) for name in names]


def told(acts: Iterable[Act]) -> list[Act]:
    """Tell the whole history of threads."""
    return [Act("history", act.thread, act.graph) for act in acts]


def continued(names: Iterable[str]) -> list[Act]:
    """Send a further message to threads."""
    return [Act("say", name, GRAPHS[name], {"text": FURTHER}) for name in names]


def resumed() -> list[Act]:
    """Say yes wherever a person is asked."""
    approved = {"decisions": [{"type": "approve"}]}
    answers = {name: approved if name == "asked-agent" else "yes" for name in WAITING}
    return [Act("resume", name, GRAPHS[name], {"answer": each}) for name, each in answers.items()]
