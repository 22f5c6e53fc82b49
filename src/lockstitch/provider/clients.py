"""What the vendors' clients need in their environment to come to this provider."""

from __future__ import annotations

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
