"""The former name of ``service``, for what still asks for it."""

from __future__ import annotations

from lockstitch.provider.service import Answer, Asked, Entry, Records
from lockstitch.provider.service import Service as Desk

__all__ = ["Answer", "Asked", "Desk", "Entry", "Records"]
