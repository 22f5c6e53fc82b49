"""Where the tests of the saver keep their threads."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lockstitch.integrations.langgraph import Saver
from tests.postgres_server import shared

KINDS = ("sqlite", "postgres")


class Where:
    """The address of a new store; ``open`` opens it once more, as another process would."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.url = {
            "sqlite": f"sqlite:///{folder}/agent.db",
            "jsonl": f"jsonl:///{folder}/agent",
            "memory": "memory:",
        }.get(kind) or shared().fresh()
        self._opened: list[Saver] = []

    def open(self, **options: Any) -> Saver:
        made = Saver(self.url, **options)
        self._opened.append(made)
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for saver in self._opened:
            saver.close()
