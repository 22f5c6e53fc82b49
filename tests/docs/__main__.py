"""Write what the commands of the pages print now into the pages: all of them, or those named."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.docs import setups
from tests.docs.pages import DOCS, rewrite, run_page

for page in sys.argv[1:] or setups.SETUPS:
    with tempfile.TemporaryDirectory() as folder:
        try:
            with setups.ready(page, Path(folder).resolve()) as prepared:
                done = run_page(DOCS / page, prepared)
        except pytest.skip.Exception as reason:
            sys.stderr.write(f"left out: docs/{page}: {reason}\n")
            continue
        if rewrite(DOCS / page, done):
            sys.stderr.write(f"writing: docs/{page}\n")
