"""The threads that a program in JavaScript leaves behind, in every state that it can stop in."""

from __future__ import annotations

from collections.abc import Iterable

from lockstitch.provider import Reply

from .drive import Act, Json, called

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


def _kept(thread: str, *messages: Json) -> Act:
    said: Json = {"type": "human", "content": HELLO}
    return Act("keep", thread, "plain", {"messages": [said, *messages], "node": "model"})


def _calling(*ids: str, content: object = "", path: str = "a") -> Json:
    calls = [{"id": each, "name": "read", "args": {"path": path}} for each in ids]
    return {"type": "ai", "content": content, "tool_calls": calls}


# A name that looks like anything but one, and conversations with what else no provider takes.
STRANGE = "user:42/\u00e4 '; DROP TABLE checkpoints; --\n\x1b[31m%s"
THINKING = {"type": "thinking", "thinking": "Which file?", "signature": "c2lnbmVk"}
USING = {"type": "tool_use", "id": "call_a", "name": "read", "input": {"path": "a"}}
KEPT = [
    _kept(STRANGE, _calling("call_a")),
    _kept("kept-thinking", _calling("call_a", content=[THINKING, USING])),
    _kept("kept-halves", _calling("call_a", content="cut \ud83d", path="\ud83d")),
    _kept("kept-nul", _calling("call_a", content="nul \0", path="\0")),
    _kept("kept-twice", _calling("call_a", "call_a")),
    _kept("kept-stray", {"type": "tool", "content": "stray", "tool_call_id": "call_z"}),
]

# A person is asked: by a tool, by the agent's middleware, within an inner graph, by a breakpoint
# of a graph that was resumed before.
ASKED = [
    Act("say", "asked-tool", "agent", {"text": HELLO}, (called(("read", "a"), ("ask", "b")),)),
    Act("say", "asked-agent", "agent", {"text": HELLO}, (called(("erase", "a")),)),
    Act("say", "asked-plain", "plain", {"text": HELLO}, (called(("ask", "b")),)),
    Act("say", "asked-delta", "delta", {"text": HELLO}, (called(("read", "a"), ("ask", "b")),)),
    Act("say", "asked-within", "nested", {"text": HELLO}, (called(("ask", "b")),)),
    Act("say", "asked-twice", "halting", {"text": HELLO}, (TWO,)),
    Act("proceed", "asked-twice", "halting", {}, (called(("read", "b")),)),
]
# A first breakpoint cannot be told from a run that was killed there.
HALTED = [Act("say", "halted", "halting", {"text": HELLO}, (TWO,))]
# All under way when the process is killed.
KILLED = [
    _begun("killed-agent", "agent", "begin"),
    _begun("killed-plain", "plain", "begin"),
    _begun("killed-delta", "delta", "begin"),
    *_finished("killed-later", "snapshots"),
    _begun("killed-later", "snapshots", "begin"),
]
# Killed between a message that came in and anything done about it.
DROPPED = [
    Act("drop", "dropped-agent", "agent", {"text": HELLO}),
    Act("drop", "dropped-plain", "plain", {"text": HELLO}),
    Act("drop", "dropped-delta", "delta", {"text": HELLO}),
]

MADE = [*HEALTHY, *ABORTED, *EVADED, *CUT, *KEPT, *ASKED, *HALTED]
GRAPHS = {act.thread: act.graph for act in [*MADE, *KILLED, *DROPPED]}


def names(*acts: Act) -> list[str]:
    """The threads that acts are done on, each once."""
    return list(dict.fromkeys(act.thread for act in acts))


WHOLE = names(*HEALTHY, CUT[0])
WAITING = names(*ASKED)
BROKEN = names(*KILLED, *ABORTED, *EVADED, CUT[-1], *KEPT, *HALTED)


def shown(threads: Iterable[str]) -> list[Act]:
    """Look at threads."""
    return [Act("show", thread, GRAPHS[thread]) for thread in threads]


def told(threads: Iterable[str]) -> list[Act]:
    """Tell the whole history of threads."""
    return [Act("history", thread, GRAPHS[thread]) for thread in threads]


def continued(threads: Iterable[str]) -> list[Act]:
    """Send a further message to threads."""
    return [Act("say", thread, GRAPHS[thread], {"text": FURTHER}) for thread in threads]


def resumed() -> list[Act]:
    """Say yes wherever a person is asked."""
    answers: dict[str, object] = dict.fromkeys(WAITING, "yes")
    answers["asked-agent"] = {"decisions": [{"type": "approve"}]}
    return [_resumed(thread, GRAPHS[thread], said) for thread, said in answers.items()]


def _resumed(thread: str, graph: str, said: object) -> Act:
    act = "proceed" if graph == "halting" else "resume"
    return Act(act, thread, graph, {"answer": said})
