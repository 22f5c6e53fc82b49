"""What all tests share: one profile for properties, a bare environment, and Ctrl-C as it is."""

from __future__ import annotations

import gc
import os
import signal
import threading

import pytest
from hypothesis import HealthCheck, settings

from tests import naming, tools

# How many examples a property is tried on: a fixed number, always the same ones, so that a run
# costs what the last one did, or with `make fuzz` as many as one likes, and others each time.
EXAMPLES = os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES")
BUDGET = 60

settings.register_profile(
    "lockstitch",
    max_examples=int(EXAMPLES or BUDGET),
    derandomize=EXAMPLES is None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("lockstitch")

# Thirteen thousand tests and what they import live as long as the process: nothing of it is looked
# through for garbage, neither while it is made nor afterwards.
gc.disable()

# What a person or a build server may have set, and what changes what programs do or print.
UNWANTED = {
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "FORCE_COLOR",
    "GITHUB_ACTIONS",
    "LESS",
    "LINES",
    "NODE_OPTIONS",
    "NO_COLOR",
    "PAGER",
    "PYTHONIOENCODING",
    "PYTHONWARNINGS",
    "PY_COLORS",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
}
UNWANTED_FAMILIES = (
    "ANTHROPIC_",
    "CLAUDE",
    "CODEX_",
    "LANGCHAIN_",
    "LANGGRAPH_",
    "LANGSMITH_",
    "OPENAI_",
    "PG",
    "XDG_",
)
for _name in [*os.environ]:
    if _name in UNWANTED or _name.startswith(UNWANTED_FAMILIES):
        del os.environ[_name]
os.environ["LC_ALL"] = "C.UTF-8"
# Everything that the tests talk to is on this machine.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(
    filter(None, ("127.0.0.1,localhost", os.environ.get("NO_PROXY") or os.environ.get("no_proxy")))
)

# A shell makes what it starts in the background ignore Ctrl-C, and so would every program that
# the tests start: what is tested is what a person's terminal does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and (
    threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """As many as there are processors: each more imports and collects everything once more."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ or not hasattr(os, "sched_getaffinity"):
        return None
    return len(os.sched_getaffinity(0))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests whose names are made anew in each process: no two workers would agree.

    Workers compare the names themselves, and could not say what is wrong here.
    """
    if hasattr(config, "workerinput"):
        return
    made = [item.nodeid for item in items if naming.is_made_up(item)]
    if made:
        raise pytest.UsageError(f"ids differ from process to process: {', '.join(made[:5])}")


def pytest_collection_finish() -> None:
    """Look for garbage from here on, but not among what was made so far."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were left out, and why."""
    skipped = terminalreporter.stats.get("skipped", [])
    for line in tools.left_out(report.longrepr[2] for report in skipped):
        terminalreporter.write_line(line)
