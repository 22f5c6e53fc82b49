"""All cases, family by family."""

from __future__ import annotations

from . import identity_cases, media_cases, pairing_cases, reasoning_cases, shape_cases

CASES = [
    *pairing_cases.CASES,
    *identity_cases.CASES,
    *reasoning_cases.CASES,
    *shape_cases.CASES,
    *media_cases.CASES,
]
