"""Streamed replies, gathered event by event.

All of this is pure: opening a stream, reading it, and writing down what has come belong to the
session.
"""

from lockstitch.session.streams.base import Accumulator
from lockstitch.session.streams.detect import accumulator_for, dialect_of_event

__all__ = ["Accumulator", "accumulator_for", "dialect_of_event"]
