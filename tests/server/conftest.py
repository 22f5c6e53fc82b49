"""These tests fetch a server and start it often: ``make server`` runs them, and nobody else."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("LOCKSTITCH_SERVER") else ["test_server.py"]
