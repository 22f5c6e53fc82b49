"""What all tests share: one profile for properties, and Ctrl-C as a terminal has it."""

from __future__ import annotations

import os
import signal
import threading

from hypothesis import HealthCheck, settings

EXAMPLES = os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES")

settings.register_profile(
    "lockstitch",
    max_examples=int(EXAMPLES or 150),
    derandomize=EXAMPLES is None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("lockstitch")

# A shell makes what it starts in the background ignore Ctrl-C, and so would every program that
# the tests start: what is tested is what a person's terminal does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and (
    threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)
