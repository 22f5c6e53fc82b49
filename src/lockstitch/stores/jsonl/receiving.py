"""A session of another store, taken in as it is: a new file, all or none."""

from __future__ import annotations

import time

from lockstitch import disk
from lockstitch.errors import Unsure
from lockstitch.journal.records import blob_name
from lockstitch.stores.base import Incoming
from lockstitch.stores.jsonl.blobs import Blobs
from lockstitch.stores.jsonl.files import Files
from lockstitch.stores.jsonl.forks import placed
from lockstitch.stores.jsonl.lines import Written, opening, record_line


def received(files: Files, blobs: Blobs, incoming: Incoming) -> None:
    """Write the lines, and put them in place unless another file is there; raises ``OSError``."""
    names: set[str] = set()
    now = time.time_ns() // 1_000_000
    with disk.draft(files.folder) as new:
        epoch = 0
        if not incoming.head.seq:
            disk.write(new.handle, opening(incoming.session, 0, now, None, None))
        for record, values in incoming.pieces:
            blobs.keep(values)
            named = tuple(map(blob_name, values))
            names.update(named)
            if record.epoch != epoch:
                epoch = record.epoch
                disk.write(new.handle, opening(incoming.session, epoch, now, None, None))
            disk.write(new.handle, record_line(Written(record, 0, 1, named)))
        disk.sync(new.handle)
        new.close()
        # Whoever waited too long passes by, and may have removed what nobody named yet.
        if not all(map(blobs.exists, names)):
            raise Unsure(
                f"session {incoming.session}: others removed large values while it was copied;"
                " try again"
            )
        placed(new.path, files.log(incoming.session))
    disk.sync_folder(files.folder)
