"""One profile for all properties: repeatable by default, long and random for a soak run."""

from __future__ import annotations

import os

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
