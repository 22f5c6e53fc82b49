"""Personal data, for ``--redact=all``: mail addresses, telephone numbers, names of users."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lockstitch.redaction.formats import Span

_LOCAL = re.compile(r"[\w.+-]{1,64}$")
_DOMAIN = re.compile(r"@((?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![\w@-]|\.\w)")
_NOBODY = frozenset({"git", "noreply", "no-reply", "donotreply"})
_NO_DOMAIN = re.compile(
    r"(?i:(?:.*\.)?example\.(?:com|org|net)|.*\.(?:example|invalid|test|png|jpg|svg|py|js|ts|md))"
)


def mail(text: str, at: int) -> Iterator[Span]:
    """Find the mail address around an ``@``."""
    local, domain = _LOCAL.search(text[max(0, at - 64) : at]), _DOMAIN.match(text, at)
    if local is None or domain is None:
        return
    is_known = local[0].lower() in _NOBODY or _NO_DOMAIN.fullmatch(domain[1])
    if not is_known and any(map(str.isalpha, local[0])):
        yield Span(at - len(local[0]), domain.end(), "mail")


PHONE = re.compile(rb"(?<![\w.+-])(?:\+\d|\(\d{3}\) ?\d|\d{3}-\d{3}-\d)")
_PHONE = re.compile(r"\+\d(?:[ ().-]{0,2}\d){7,14}(?![\w.-]?\d)|\(\d{3}\) ?\d{3}-\d{4}(?!\d)"
                    r"|\d{3}-\d{3}-\d{4}(?![\d-])")  # fmt: skip


def phone(text: str, at: int) -> Iterator[Span]:
    """Find the telephone number that starts here: international, or as in North America."""
    if found := _PHONE.match(text, at):
        yield Span(*found.span(), "phone")


# In which folders those of users are; in JSON a backslash is two.
_HOME = re.compile(
    r"(?:/home/|/Users/|[\\/]{1,4}Users[\\/]{1,4})([A-Za-z0-9_][\w.-]{0,63})(?![\w-])"
)
# Who is nobody in particular.
_ANYBODY = frozenset(
    (
        *("user", "users", "username", "name", "you", "me", "someone", "yourname", "your-name"),
        *("ubuntu", "debian", "root", "runner", "vscode", "node", "app", "git", "admin", "test"),
        *("shared", "public", "default", "guest", "ec2-user", "vagrant", "coder", "linuxbrew"),
    )
)


def home(text: str, at: int) -> Iterator[Span]:
    """Find the name of the user whose folder a path is in."""
    found = _HOME.match(text, at)
    if found and is_somebody(found[1]):
        yield Span(*found.span(1), "user")


_PROMPT = re.compile(r"@[\w.-]{1,64}:[~/][^\n]{0,200}?[$#%]")


def prompt(text: str, at: int) -> Iterator[Span]:
    """Find the name of the user in the prompt of a shell."""
    user = _LOCAL.search(text[max(0, at - 64) : at])
    if user and is_somebody(user[0]) and _PROMPT.match(text, at):
        yield Span(at - len(user[0]), at, "user")


def is_somebody(name: str) -> bool:
    """Whether the name of a user may be that of a person."""
    return name.lower() not in _ANYBODY and any(map(str.isalpha, name))


MARKS = (
    (b"@", mail),
    (b"@", prompt),
    (b"/home/", home),
    (b"/users/", home),
    (b"\\users\\", home),
)
