"""What a process does outside of a folder, by Python's audit events: files, programs, pickles."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.truncate": (0,),
    "shutil.rmtree": (0,),
}
_NEVER = {
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "socket.connect",
    "socket.bind",
    "pickle.find_class",
    "marshal.loads",
    "code.__new__",
    "sqlite3.enable_load_extension",
    "sqlite3.load_extension",
}


class Watch:
    """Listens for as long as the process lives; there is one in a process at most."""

    def __init__(self) -> None:
        self._folder = ""
        self._seen: list[str] = []
        sys.addaudithook(self._heard)

    @contextmanager
    def below(self, folder: Path) -> Iterator[list[str]]:
        """Give what is done elsewhere than below a folder; all of it when the block has ended."""
        self._seen = []
        self._folder = os.path.realpath(folder)
        try:
            yield self._seen
        finally:
            self._folder = ""

    def _heard(self, event: str, given: tuple[Any, ...]) -> None:
        if not self._folder:
            return
        if event == "open":
            path, _, flags = given
            if flags & _WRITING and isinstance(path, str | bytes) and not self._is_inside(path):
                self._seen.append(f"writes {os.fsdecode(path)}")
        elif event in _CHANGES:
            for place in _CHANGES[event]:
                path = given[place]
                if isinstance(path, str | bytes) and not self._is_inside(path):
                    self._seen.append(f"{event} {os.fsdecode(path)}")
        elif event in _NEVER and not _is_importing():
            self._seen.append(event)

    def _is_inside(self, path: str | bytes) -> bool:
        name = os.fsdecode(path)
        # a bare name is relative to an open folder, which was looked at when it was opened
        return (
            name == os.devnull
            or os.sep not in name
            or os.path.realpath(name).startswith(self._folder)
            or "__pycache__" in name
        )


def _is_importing() -> bool:
    """Whether a module is being loaded: that reads code, as it should."""
    frame = sys._getframe(2)  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
