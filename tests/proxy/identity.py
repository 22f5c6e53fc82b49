"""``python -m tests.proxy.identity``: healthy requests go through the proxy byte for byte.

Generated ones, and with ``--folder`` those of the sessions in a folder as well: each is exported
into every dialect, which makes a request of it that nothing is wrong with.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from lockstitch.heal import check
from lockstitch.proxy import Settings
from lockstitch.proxy import Upstream as Target
from lockstitch.proxy.server import running
from tests.kinds_of_break.conversations import Ask
from tests.kinds_of_break.render import FORMS
from tests.oracles import problems
from tests.proxy.bodies import EACH_DIALECT, Case
from tests.proxy.healthy import made
from tests.proxy.upstream import listening


def generated(count: int, seed: int) -> Iterator[tuple[Case, bytes]]:
    """Give so many generated requests; a provider would take each of them."""
    random = Random(seed)  # noqa: S311 - the same requests every time
    for _ in range(count):
        case, body = made(random)
        assert problems(case.dialect, json.loads(body)) == [], body
        yield case, body


def exported(folder: Path) -> Iterator[tuple[Case, bytes]]:
    """Give the sessions of a folder as requests of every dialect."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for case in EACH_DIALECT:
            command = [sys.executable, "-m", "lockstitch", "export", str(path)]
            done = subprocess.run(
                [*command, "--to", case.dialect], capture_output=True, check=False, timeout=600
            )
            if done.returncode or not done.stdout.startswith(b"["):
                continue
            messages = json.loads(done.stdout)
            if messages and messages[-1].get("role") in ("assistant", "model"):
                messages += FORMS[case.form][1]([Ask("Go on.")])
            body = case.around(messages)
            if not messages or problems(case.dialect, body):
                continue
            if any(found.severity == "error" for found in check(body, case.dialect)):
                # such as pictures that are none once a corpus was made anonymous
                continue
            yield case, json.dumps(body, ensure_ascii=False).encode()


def passed(requests: Iterable[tuple[Case, bytes]]) -> Counter[str]:
    """Send requests through the proxy; raise for one that does not arrive as it is."""
    counts: Counter[str] = Counter()
    with listening() as upstream, closing_proxy(upstream.url) as connection:
        for case, body in requests:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", case.path, body, headers)
            answer = connection.getresponse()
            answer.read()
            got = upstream.seen.pop()
            assert got.body == body, (case.name, len(body), len(got.body))
            assert got.target == case.path
            said = [
                name for name, _ in answer.getheaders() if name.lower().startswith("lockstitch")
            ]
            assert (answer.status, said) == (200, []), (case.name, said)
            counts[case.name] += 1
    return counts


class closing_proxy:  # noqa: N801 - used as a function
    """A proxy in front of an address, and a connection to it."""

    def __init__(self, url: str) -> None:
        settings = Settings(port=0, upstreams=(Target(url=url),))
        self.proxy = running(settings, log=lambda _: None)

    def __enter__(self) -> HTTPConnection:
        url = self.proxy.__enter__()
        self.connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
        return self.connection

    def __exit__(self, *error: object) -> None:
        with closing(self.connection):
            pass
        self.proxy.__exit__(None, None, None)


def main() -> int:
    """Send as many as asked for, and print how many of each route arrived as they were."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    counts = passed(generated(given.count, given.seed))
    print(f"{counts.total()} generated requests, byte-identical:", dict(sorted(counts.items())))  # noqa: T201
    if given.folder is not None:
        counts = passed(exported(given.folder))
        print(f"{counts.total()} requests of {given.folder}, byte-identical:", dict(counts))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
