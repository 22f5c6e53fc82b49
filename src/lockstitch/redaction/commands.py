"""Secrets that their place gives away: options of commands, and files that many programs read.

Each function is given the place of a mark (the name of a command, a word of the file) and looks
no further than a line, or a few hundred characters, from there.

Personal data, for ``--redact=all``: mail addresses, telephone numbers, names of users.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lockstitch.redaction import texts
from lockstitch.redaction.secrets import SecretSpan
from lockstitch.redaction.texts import is_reference, is_worded, is_words

_LONGEST_COMMAND = 400
_SHORTEST = 4
_FARTHEST_HOST = 256
# A value as a shell takes it, quotes escaped for JSON included.
_VALUE = r"""(?:\\{0,3}["'](?P<q>[^"'\\\n]{4,200})|(?P<b>[^\s"'\\;|&<>(){}]{4,200}))"""

# By the name of a command: how it is given a password.
_OPTIONS = {
    b"mysql": re.compile(rf"\s-p(?!\s){_VALUE}"),
    b"mariadb": re.compile(rf"\s-p(?!\s){_VALUE}"),
    b"sshpass": re.compile(rf"\s-p\s{{0,4}}{_VALUE}"),
    b"docker login": re.compile(rf"\s-p[ =]{{1,4}}{_VALUE}"),
    b"podman login": re.compile(rf"\s-p[ =]{{1,4}}{_VALUE}"),
    b"helm registry login": re.compile(rf"\s-p[ =]{{1,4}}{_VALUE}"),
    b"az login": re.compile(rf"\s-p[ =]{{1,4}}{_VALUE}"),
    b"twine upload": re.compile(rf"\s-p[ =]{{1,4}}{_VALUE}"),
    b"oc login": re.compile(rf"\s-p[ =]{{1,4}}{_VALUE}"),
    b"redis-cli": re.compile(rf"\s-a[ =]{{1,4}}{_VALUE}"),
    b"mongosh": re.compile(rf"\s-p[ =]{{1,4}}{_VALUE}"),
    b"sqlcmd": re.compile(rf"\s-P[ =]{{0,4}}{_VALUE}"),
    b"smbclient": re.compile(r"\s-U\s{0,4}[\"']?[^\s%\"']{1,64}%(?P<b>[^\s\"']{4,200})"),
    b"openssl": re.compile(r"\s-pass(?:in|out)?\s{1,4}[\"']?pass:(?P<b>[^\s\"']{4,200})"),
    b"ssh-keygen": re.compile(rf"\s-[NP]\s{{1,4}}{_VALUE}"),
    b"unzip": re.compile(rf"\s-P\s{{0,4}}{_VALUE}"),
    b"7z": re.compile(rf"\s-p(?!\s){_VALUE}"),
    b"ldapsearch": re.compile(rf"\s-w\s{{1,4}}{_VALUE}"),
    b"vault login": re.compile(r"login\s{1,4}(?P<b>[A-Za-z0-9._-]{20,200})"),
}
COMMANDS = tuple(_OPTIONS)
# One of these is in every such command, in small letters.
FLAGS = (b" -p", b"\t-p", b" -a", b" -w", b" -u", b" -n", b"vault login")
_LINE_END = re.compile(r"\n|\\n")
_FLAG_NAMES = ("assword", "ort", "rotocol", "ager", "rint", "assive", "ath", "refix")


def option(name: bytes, text: str, at: int) -> Iterator[SecretSpan]:
    """Find the password that a command is given on its line."""
    stop = _LINE_END.search(text, at, at + _LONGEST_COMMAND)
    end = stop.start() if stop else min(len(text), at + _LONGEST_COMMAND)
    # the same command again on its line has its own options
    again = text.find(name.decode(), at + len(name), end)
    end = again if again >= 0 else end
    for found in _OPTIONS[name].finditer(text, at, end):
        group = "q" if found.groupdict().get("q") else "b"
        secret = found[group]
        if not (is_reference(secret) or secret.startswith(("-", "/", "$", *_FLAG_NAMES))):
            yield SecretSpan(*found.span(group), "password")


_NETRC = re.compile(
    r"login[ \t]{1,8}\S{1,128}(?:[ \t]{1,8}|\s{0,8}?(?:\r?\n|\\n)[ \t]{0,8})"
    r"password[ \t]{1,8}(\S{4,200}?)(?=\s|\\n|[\"'`]|$)"
)


def netrc(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the password of a ``.netrc``: ``login NAME password SECRET``."""
    found = _NETRC.match(text, at)
    # in prose, "login" and "password" are followed by words, and nothing says machine
    is_prose = found is not None and is_words(found[1])
    if not is_prose or "machine" in text[max(0, at - _FARTHEST_HOST) : at]:
        yield from _unless_reference(found, "password")


# The host may be any, so that the port is what tells; before it the line must start.
_PGPASS = re.compile(
    r":(?:\d{4,5}|\*):([A-Za-z_*][\w.*-]{0,62}):([A-Za-z_*][\w.*-]{0,62}):([^\s:\"'`\\]{4,200})"
    r"(?=\s|\\n|[\"'`]|$)"
)
_HOST_BEFORE = re.compile(r"(?:^|[\s\"'`]|\\n)([\w.*-]{1,253})$")


def pgpass(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the password of a ``.pgpass``: ``host:port:database:user:SECRET``."""
    found = _PGPASS.match(text, at)
    if found and _HOST_BEFORE.search(text[max(0, at - _FARTHEST_HOST) : at]):
        yield from _unless_reference(found, "password", 3)


_HASH = re.compile(
    r"\$(?:apr1\$[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{16,64}"
    r"|2[abxy]\$\d\d\$[./A-Za-z0-9]{50,60}"
    r"|[156y]\$(?:[\w=,./]{1,40}\$){1,2}[./A-Za-z0-9]{20,100}"
    r"|argon2i?d?\$v=\d{1,3}\$[\w=,]{1,40}\$[A-Za-z0-9+/]{8,64}\$[A-Za-z0-9+/]{20,128})"
)


def password_hash(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the hash of a password as ``htpasswd`` and ``/etc/shadow`` keep it."""
    if found := _HASH.match(text, at):
        yield SecretSpan(*found.span(), "password-hash")


_SIGNATURE = re.compile(r"(?i:sig|signature)=([A-Za-z0-9%+/_=-]{20,512})")
_QUERY = ("?", "&", ";", "-", "26")


def signature(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the signature of an address that is as good as a password: Azure SAS, AWS, Google."""
    found = _SIGNATURE.match(text, at)
    if found and text[max(0, at - 2) : at].endswith(_QUERY) and not is_words(found[1]):
        yield SecretSpan(*found.span(1), "signature")


_AUTH = re.compile(
    r"""auth\\{0,3}["']?\s{0,4}[:=]\s{0,4}\\{0,3}["']?([A-Za-z0-9+/]{8,512}={0,2})"""
)


def basic(text: str, at: int) -> Iterator[SecretSpan]:
    """Find ``_auth`` of an ``.npmrc`` and ``auth`` of Docker: base64 of a name and a password."""
    found = _AUTH.match(text, at)
    if found is None:
        return
    run = texts.whole(found[1])
    name, colon, secret = run.text.partition(":") if run else ("", "", "")
    if colon and len(secret) >= _SHORTEST and name.isprintable() and " " not in name:
        yield SecretSpan(*found.span(1), "token")


_COOKIES = re.compile(
    r"""(?i:cookies?)\\{0,3}["']?\s{0,4}[:=]\s{0,4}\\{0,3}["']?(?=[\w.-]{1,64}=)"""
)
_COOKIE = re.compile(r"""([\w.-]{1,64})=([^;\s"'\\,]{16,4096})(?:;[ \t]{0,4})?""")
_OTHER = re.compile(r"""[\w.-]{1,64}(?:=[^;\s"'\\,]{0,64})?;[ \t]{0,4}""")
_MOST_COOKIES = 100


def cookies(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the values of cookies that are too long to be settings."""
    header = _COOKIES.match(text, at)
    place = header.end() if header else -1
    for _ in range(_MOST_COOKIES if header else 0):
        if found := _COOKIE.match(text, place):
            value = found[2]
            if any(map(str.isdigit, value)) and not (is_worded(value) or is_reference(value)):
                yield SecretSpan(*found.span(2), "cookie")
            place = found.end()
        elif other := _OTHER.match(text, place):
            place = other.end()
        else:
            return


def _unless_reference(
    found: re.Match[str] | None, kind: str, group: int = 1
) -> Iterator[SecretSpan]:
    if found and not is_reference(found[group]):
        yield SecretSpan(*found.span(group), kind)


_PHRASE = re.compile(
    r"""(?i:passphrase|mnemonic|seed[ _-]?phrase|recovery[ _-]?phrase)\\{0,3}["'`]?\s{0,4}"""
    r"""(?:=|:|is)\s{0,4}\\{0,3}["'`]?((?i:[a-z]{2,12}(?:[ -][a-z]{2,12}){2,24}))(?![\w.,(])"""
)
_PROSE = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "can", "cannot", "default", "empty", "enter"),
        *("file", "for", "from", "has", "if", "in", "is", "it", "key", "must", "no", "not", "of"),
        *("on", "optional", "or", "passphrase", "password", "please", "private", "prompt", "that"),
        *("required", "sets", "should", "the", "this", "to", "used", "using", "was", "when"),
        *("will", "with", "you", "your"),
    )
)


def phrase(text: str, at: int) -> Iterator[SecretSpan]:
    """Find a passphrase of plain words: three or more that make no sentence."""
    found = _PHRASE.match(text, at)
    if found and _PROSE.isdisjoint(re.split("[ -]", found[1].lower())):
        yield SecretSpan(*found.span(1), "password")


PHRASES = (b"passphrase", b"mnemonic", b"seed phrase", b"seed_phrase", b"recovery phrase")

_AZURE = re.compile(r"[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~.-])")
_BEFORE_MARK = 4


def azure_secret(text: str, at: int) -> Iterator[SecretSpan]:
    """Find a client secret of Azure, which has ``8Q~`` in it."""
    found = _AZURE.match(text, max(0, at - _BEFORE_MARK))
    if found:
        yield SecretSpan(*found.span(), "azure-secret")


_FIREBASE = re.compile(r":APA91[A-Za-z0-9_-]{100,200}")
_ID_BEFORE = re.compile(r"[A-Za-z0-9_-]{8,32}$")


def firebase(text: str, at: int) -> Iterator[SecretSpan]:
    """Find a key or a device token of Firebase messaging."""
    found = _FIREBASE.match(text, at)
    before = _ID_BEFORE.search(text[max(0, at - 32) : at])
    if found and before:
        yield SecretSpan(at - len(before[0]), found.end(), "firebase-key")


_LOCAL = re.compile(r"[\w.+-]{1,64}$")
_DOMAIN = re.compile(r"@((?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![\w@-]|\.\w)")
_NOBODY = frozenset({"git", "noreply", "no-reply", "donotreply"})
_NO_DOMAIN = re.compile(
    r"(?i:(?:.*\.)?example\.(?:com|org|net)|.*\.(?:example|invalid|test|png|jpg|svg|py|js|ts|md))"
)


def mail(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the mail address around an ``@``."""
    local, domain = _LOCAL.search(text[max(0, at - 64) : at]), _DOMAIN.match(text, at)
    if local is None or domain is None:
        return
    is_known = local[0].lower() in _NOBODY or _NO_DOMAIN.fullmatch(domain[1])
    if not is_known and any(map(str.isalpha, local[0])):
        yield SecretSpan(at - len(local[0]), domain.end(), "mail")


PHONE = re.compile(rb"(?<![\w.+-])(?:\+\d|\(\d{3}\) ?\d|\d{3}-\d{3}-\d)")
_PHONE = re.compile(r"\+\d(?:[ ().-]{0,2}\d){7,14}(?![\w.-]?\d)|\(\d{3}\) ?\d{3}-\d{4}(?!\d)"
                    r"|\d{3}-\d{3}-\d{4}(?![\d-])")  # fmt: skip


def phone(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the telephone number that starts here: international, or as in North America."""
    if found := _PHONE.match(text, at):
        yield SecretSpan(*found.span(), "phone")


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


def home(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the name of the user whose folder a path is in."""
    found = _HOME.match(text, at)
    if found and is_somebody(found[1]):
        yield SecretSpan(*found.span(1), "user")


_PROMPT = re.compile(r"@[\w.-]{1,64}:[~/][^\n]{0,200}?[$#%]")


def prompt(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the name of the user in the prompt of a shell."""
    user = _LOCAL.search(text[max(0, at - 64) : at])
    if user and is_somebody(user[0]) and _PROMPT.match(text, at):
        yield SecretSpan(at - len(user[0]), at, "user")


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
