"""Counters of what went through, as Prometheus reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

BOUNDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0)


Counts = dict[str, int]


class Metrics(Struct):
    """What one process has counted. Labels come from fixed lists, never from a request's text.

    ``requests`` are counted by route and status, the others by code or kind.
    """

    requests: Counts = field(default_factory=dict)
    healed: Counts = field(default_factory=dict)
    left: Counts = field(default_factory=dict)
    errors: Counts = field(default_factory=dict)
    retries: int = 0
    running: int = 0
    added: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    added_sum: float = 0.0

    def answered(self, route: str, status: int) -> None:
        """Count a request that got its answer."""
        count(self.requests, {f"{route} {status}": 1})

    def failed(self, kind: str) -> None:
        """Count a failure."""
        count(self.errors, {kind: 1})

    def took(self, seconds: float) -> None:
        """Count the time that a request spent here before it went on."""
        self.added[bisect_left(BOUNDS, seconds)] += 1
        self.added_sum += seconds


def count(counts: Counts, more: Mapping[str, int]) -> None:
    """Add to counts."""
    for key, number in more.items():
        counts[key] = counts.get(key, 0) + number


def total(many: Iterable[Metrics]) -> Metrics:
    """Return the sum of what several processes have counted."""
    found = Metrics()
    for one in many:
        for name in ("requests", "healed", "left", "errors"):
            count(getattr(found, name), getattr(one, name))
        found.retries += one.retries
        found.running += one.running
        found.added = [a + b for a, b in zip(found.added, one.added, strict=True)]
        found.added_sum += one.added_sum
    return found


def text(found: Metrics) -> str:
    """Return the counters in Prometheus' text format."""
    lines = [
        *_head("requests_total", "counter", "Requests answered, by route and status."),
        *_coded("requests_total", "route status", found.requests),
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


def _coded(name: str, labels: str, counts: Counts) -> list[str]:
    """Return a line for each count; a key of several words has a label for each."""
    lines: list[str] = []
    for key, number in sorted(counts.items()):
        pairs = zip(labels.split(), key.split(), strict=True)
        shown = ",".join(f'{label}="{word}"' for label, word in pairs)
        lines.append(f"lockstitch_proxy_{name}{{{shown}}} {number}")
    return lines


def _histogram(found: Metrics) -> list[str]:
    lines: list[str] = []
    seen = 0
    for bound, number in zip((*map(str, BOUNDS), "+Inf"), found.added, strict=True):
        seen += number
        lines.append(f'lockstitch_proxy_added_seconds_bucket{{le="{bound}"}} {seen}')
    lines.append(f"lockstitch_proxy_added_seconds_sum {found.added_sum:.6f}")
    lines.append(f"lockstitch_proxy_added_seconds_count {seen}")
    return lines
