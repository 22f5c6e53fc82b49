"""Another process of the tests, which removes all sessions of the store at an address."""

from __future__ import annotations

import sys

from lockstitch.session.store import Store
from lockstitch.stores.opening import open_backend


def main() -> None:
    with Store(open_backend(sys.argv[1])) as store:
        print("ready", flush=True)  # noqa: T201
        store.retain(keep=0)
        print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
