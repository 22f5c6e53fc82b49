"""Secrets out of a JSON value: stable placeholders in, everything structural as it was."""

from __future__ import annotations

from lockstitch.redaction.values import Redaction, redacted, without_broken_thinking

__all__ = ["Redaction", "redacted", "without_broken_thinking"]
