"""The one place that loads what needs aiohttp, and says how to get it where it is missing."""

from __future__ import annotations

from types import ModuleType

from lockstitch.errors import UsageError

_MISSING = "the provider needs aiohttp, which is not installed: pip install 'lockstitch[provider]'"


def load_server() -> ModuleType:
    """Return the module with the sockets; raise UsageError if its extra is not installed."""
    try:
        from lockstitch.provider import server  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "lockstitch":
            raise
        raise UsageError(_MISSING) from error
    return server
