"""Counters of what went through, as Prometheus reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

BOUNDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0)


class Metrics(Struct):
    """What one process has counted. Labels come from fixed lists, never from a request's text."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    healed: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    running: int = 0
    added: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    added_sum: float = 0.0

    def took(self, seconds: float) -> None:
        """Count the time that a request spent here before it went on."""
        self.added[bisect_left(BOUNDS, seconds)] += 1
        self.added_sum += seconds


def total(many: Iterable[Metrics]) -> Metrics:
    """Return the sum of what several processes have counted."""
    found = Metrics()
    for one in many:
        found.requests.update(one.requests)
        found.healed.update(one.healed)
        found.left.update(one.left)
        found.errors.update(one.errors)
        found.retries += one.retries
        found.running += one.running
        found.added = [a + b for a, b in zip(found.added, one.added, strict=True)]
        found.added_sum += one.added_sum
    return found


def text(found: Metrics) -> str:
    """Return the counters in Prometheus' text format."""
    lines = [
        *_head("requests_total", "counter", "Requests answered, by route and status."),
        *(
            f'lockstitch_proxy_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(found.requests.items())
        ),
        *_head("repairs_total", "counter", "What was repaired in requests, by code."),
        *_coded("repairs_total", "code", found.healed),
        *_head("left_total", "counter", "What could not be repaired in requests, by code."),
        *_coded("left_total", "code", found.left),
        *_head("errors_total", "counter", "Failures on the way, by kind."),
        *_coded("errors_total", "kind", found.errors),
        *_head("retries_total", "counter", "Requests sent once more after a refusal."),
        f"lockstitch_proxy_retries_total {found.retries}",
        *_head("running", "gauge", "Requests being served now."),
        f"lockstitch_proxy_running {found.running}",
        *_head("added_seconds", "histogram", "Time from a whole request to its sending on."),
        *_histogram(found),
    ]
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, what: str) -> list[str]:
    return [f"# HELP lockstitch_proxy_{name} {what}", f"# TYPE lockstitch_proxy_{name} {kind}"]


def _coded(name: str, label: str, counts: Counter[str]) -> list[str]:
    return [
        f'lockstitch_proxy_{name}{{{label}="{code}"}} {count}'
        for code, count in sorted(counts.items())
    ]


def _histogram(found: Metrics) -> list[str]:
    lines: list[str] = []
    seen = 0
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), found.added, strict=True):
        seen += count
        lines.append(f'lockstitch_proxy_added_seconds_bucket{{le="{bound}"}} {seen}')
    lines.append(f"lockstitch_proxy_added_seconds_sum {found.added_sum:.6f}")
    lines.append(f"lockstitch_proxy_added_seconds_count {seen}")
    return lines
