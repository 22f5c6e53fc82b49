from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.formats.campaign import Home

from .drive import PATIENCE, Client, Place, Resumed
from .install import NotInstalled

EVERYTHING = os.environ.get("LOCKSTITCH_CLIENTS") == "all"
# A broken file may make a client wait for ever; that is the file's fault, and soon clear.
SHORT_PATIENCE = 20

needs = pytest.mark.filterwarnings("default::tests.clients.install.NotInstalled")


@dataclass(frozen=True, slots=True)
class Life:
    """One session: resumed as it was, mended by the command, resumed again."""

    before: Resumed
    after: Resumed
    home: Home
    path: Path

    @classmethod
    def of(
        cls, client: Client, root: Path, session: str, files: Mapping[str, bytes], name: str
    ) -> Life:
        """Live it through; *name* is the file of the session among *files*."""
        before = _resumed(client, root / "before", session, files, SHORT_PATIENCE)
        home = Home(root / "repair")
        folder = client.folder(Path(), Path("/project"))
        for each, data in files.items():
            home.put(each, str(folder / each), data)
        ran = home.here("repair", "--yes", home.paths[name])
        assert ran.status == 0, ran.err
        after = _resumed(client, root / "after", session, home.read(), PATIENCE)
        return cls(before, after, home, home.paths[name])

    def exported(self, dialect: str) -> list[Any]:
        """The messages that the command takes out of the mended session."""
        ran = self.home.here("export", self.path, "--to", dialect)
        assert ran.status == 0, ran.err
        value = json.loads(ran.out)
        return value if isinstance(value, list) else value.get("messages") or value["input"]


def _resumed(
    client: Client, root: Path, session: str, files: Mapping[str, bytes], patience: float
) -> Resumed:
    place = Place(root)
    client.put(place, files)
    return client.resume(place, session, patience)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """What cannot be installed is skipped, with a warning that stands in the summary."""
    try:
        yield
    except NotInstalled as missing:
        if EVERYTHING:
            raise
        warnings.warn(missing, stacklevel=1)
        pytest.skip(str(missing))
