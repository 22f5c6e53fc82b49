"""A strict provider on this machine: it refuses what the real ones refuse, in their own words.

``apis`` and ``openai`` hold the wire formats, ``replies`` what is answered and what goes wrong;
``service`` judges a request and puts them together. All of that is without sockets, which are in
``server``; only those need aiohttp. ``serving`` is how a server of this package runs.
"""

from __future__ import annotations

from types import ModuleType

from lockstitch.errors import UsageError

_REGION = "us-east-1"
_KEY = "lockstitch"


def addresses(url: str) -> dict[str, str]:
    """Return the variables that hold the address, in the spelling of each client."""
    return {
        "ANTHROPIC_BASE_URL": url,
        "OPENAI_BASE_URL": f"{url}/v1",
        "GOOGLE_GEMINI_BASE_URL": url,
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url,
    }


def environment(url: str) -> dict[str, str]:
    """Return all variables: the addresses, and keys that nobody checks."""
    return {
        **addresses(url),
        "ANTHROPIC_API_KEY": _KEY,
        "OPENAI_API_KEY": _KEY,
        "GEMINI_API_KEY": _KEY,
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _KEY,
        "AWS_REGION": _REGION,
        "AWS_DEFAULT_REGION": _REGION,
    }


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
