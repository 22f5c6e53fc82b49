"""Find secrets by where they stand: in headers, commands, addresses, lines of known files.

A finder gets the place of a mark and looks no further than a line, or a few hundred characters. The
tables at the end list the marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from lockstitch.redaction import texts
from lockstitch.redaction.secrets import Finder, SecretSpan, finder_at
from lockstitch.redaction.texts import is_reference, is_worded, is_words

# The mark that must be in the text, in lower case, and the function that looks at its place.
Marks = tuple[tuple[bytes | re.Pattern[bytes], Finder], ...]

# Between two lines of a key: line ends (also escaped), line numbers, quotes, diff marks.
_GAP = "[^A-Za-z]{0,32}?"
# A private key, complete or cut.
_PRIVATE_KEY = (
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_GAP}(?:Proc-Type|DEK-Info|Version|Comment|Hash)\b[^\n\\]{{0,200}}+)*+"
    rf"(?:{_GAP}[A-Za-z0-9+/]{{16,}}+={{0,2}})++"
    r"(?:(?:[^-]|-(?!----)){0,160}+-----END [A-Z0-9 ]{1,40}-----)?"
)
_PUTTY_KEY = r"(?i:private-lines):[ \t]{0,4}\d{1,3}((?:\s{1,8}[A-Za-z0-9+/]{16,80}={0,2}){1,200})"
# The path of a Slack or Discord webhook is its only protection.
_WEBHOOK = (
    r"hooks(?:\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{8,}+)"
    r"|/(\d{8,}+/[A-Za-z0-9_-]{20,}+))"
)
_USERINFO = re.compile(r"://[^\s:/@?\"'<>\\`]{0,128}+:([^\s/?\"'<>\\`]{1,256})@(?=[\w.$\[{-])")
_FARTHEST = 400


def find_password_in_url(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the password of ``scheme://user:password@host``, given the place of the ``@``."""
    scheme = text.rfind("://", max(0, at - _FARTHEST), at)
    found = _USERINFO.match(text, scheme) if scheme >= 0 else None
    if found and found.end(1) >= at and not is_reference(found[1]):
        yield SecretSpan(*found.span(1), "password")


def _is_harmless(text: str) -> bool:
    return is_words(text) or is_reference(text) or text.isdigit()


_AUTHORIZATION = (
    r"""(?i:authorization)[\\"'\]]{0,4}\s{0,4}[:=]\s{0,4}[\\"'`]{0,4}"""
    r"(?:(?i:bearer|basic|token|apikey|digest|negotiate|bot)\s{1,4})?"
    r"([A-Za-z0-9._~+/:-]{7,}+={0,2}(?<!\.))(?!\()"
)
_BEARER = r"(?i:bearer)\s{1,4}([A-Za-z0-9._~+/-]{15,}+={0,2}(?<!\.))"
_USER_OPTION = (
    r"""(?i:curl)(?s:.){0,300}?(?: -u|--user)[ =]{0,2}["']?[^\s:"'$]{1,64}+:([^\s"'`@$]{4,128}+)"""
)
_SHORTEST_SECRET = 4


def _is_login(text: str) -> bool:
    """Whether this is base64 of a name and a password with a colon between them."""
    run = texts.decode_whole(text)
    name, colon, secret = run.text.partition(":") if run else ("", "", "")
    is_named = name.isprintable() and " " not in name
    return bool(colon) and len(secret) >= _SHORTEST_SECRET and is_named


def _is_no_credential(text: str) -> bool:
    """Whether this is harmless; letters only would pass for a word, but base64 may be just that."""
    run = texts.decode_whole(text)
    return not (run and ":" in run.text) and _is_harmless(text)


# ``_auth`` in an ``.npmrc``, and ``auth`` in Docker's configuration.
_AUTH = r"""auth\\{0,3}["']?\s{0,4}[:=]\s{0,4}\\{0,3}["']?([A-Za-z0-9+/]{8,512}={0,2})"""
_NETRC = re.compile(
    r"login[ \t]{1,8}\S{1,128}(?:[ \t]{1,8}|\s{0,8}?(?:\r?\n|\\n)[ \t]{0,8})"
    r"password[ \t]{1,8}(\S{4,200}?)(?=\s|\\n|[\"'`]|$)"
)
_FARTHEST_HOST = 256


def find_netrc(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the password of a ``.netrc``: ``login NAME password SECRET``."""
    found = _NETRC.match(text, at)
    if found is None or is_reference(found[1]):
        return
    # in prose, "login" and "password" are followed by words, and there is no "machine"
    if not is_words(found[1]) or "machine" in text[max(0, at - _FARTHEST_HOST) : at]:
        yield SecretSpan(*found.span(1), "password")


# ``host:port:database:user:SECRET`` of a ``.pgpass``. The host may be anything, so the port is the
# mark; the line must start before it.
_PGPASS = (
    r":(?:\d{4,5}|\*):[A-Za-z_*][\w.*-]{0,62}:[A-Za-z_*][\w.*-]{0,62}:([^\s:\"'`\\]{4,200})"
    r"(?=\s|\\n|[\"'`]|$)"
)
# A password hash in the format of ``htpasswd`` or ``/etc/shadow``.
_HASHED = (
    r"\$(?:apr1\$[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{16,64}"
    r"|2[abxy]\$\d\d\$[./A-Za-z0-9]{50,60}"
    r"|[156y]\$(?:[\w=,./]{1,40}\$){1,2}[./A-Za-z0-9]{20,100}"
    r"|argon2i?d?\$v=\d{1,3}\$[\w=,]{1,40}\$[A-Za-z0-9+/]{8,64}\$[A-Za-z0-9+/]{20,128})"
)
# The signature in a signed URL, which is as good as a password: Azure SAS, AWS, Google.
find_signature = finder_at(
    "signature",
    r"(?i:sig|signature)=([A-Za-z0-9%+/_=-]{20,512})",
    before="(?:[?&;-]|26)",
    unless=is_words,
)

_COOKIES = re.compile(
    r"""(?i:cookies?)\\{0,3}["']?\s{0,4}[:=]\s{0,4}\\{0,3}["']?(?=[\w.-]{1,64}=)"""
)
_COOKIE = re.compile(r"""([\w.-]{1,64})=([^;\s"'\\,]{16,4096})(?:;[ \t]{0,4})?""")
_OTHER = re.compile(r"""[\w.-]{1,64}(?:=[^;\s"'\\,]{0,64})?;[ \t]{0,4}""")
_MOST_COOKIES = 100


def find_cookies(text: str, at: int) -> Iterator[SecretSpan]:
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


_PROSE = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "can", "cannot", "default", "empty", "enter"),
        *("file", "for", "from", "has", "if", "in", "is", "it", "key", "must", "no", "not", "of"),
        *("on", "optional", "or", "passphrase", "password", "please", "private", "prompt", "that"),
        *("required", "sets", "should", "the", "this", "to", "used", "using", "was", "when"),
        *("will", "with", "you", "your"),
    )
)
# A passphrase of plain words: three or more that do not form a sentence.
find_phrase = finder_at(
    "password",
    r"""(?i:passphrase|mnemonic|seed[ _-]?phrase|recovery[ _-]?phrase)\\{0,3}["'`]?\s{0,4}"""
    r"""(?:=|:|is)\s{0,4}\\{0,3}["'`]?((?i:[a-z]{2,12}(?:[ -][a-z]{2,12}){2,24}))(?![\w.,(])""",
    unless=lambda words: not _PROSE.isdisjoint(re.split("[ -]", words.lower())),
)

# A value as a shell reads it, with quotes that may be escaped for JSON.
_VALUE = r"""(?:\\{0,3}["'](?P<q>[^"'\\\n]{4,200})|(?P<b>[^\s"'\\;|&<>(){}]{4,200}))"""
# By the name of a command: how it takes a password.
_OPTIONS = {
    b"mysql": re.compile(rf"\s-p(?!\s){_VALUE}"),
    b"mariadb": re.compile(rf"\s-p(?!\s){_VALUE}"),
    b"sshpass": re.compile(rf"\s-p\s{{0,4}}{_VALUE}"),
    **dict.fromkeys(
        (
            *(b"docker login", b"podman login", b"helm registry login", b"az login"),
            *(b"twine upload", b"oc login", b"mongosh"),
        ),
        re.compile(rf"\s-p[ =]{{1,4}}{_VALUE}"),
    ),
    b"redis-cli": re.compile(rf"\s-a[ =]{{1,4}}{_VALUE}"),
    b"sqlcmd": re.compile(rf"\s-P[ =]{{0,4}}{_VALUE}"),
    b"smbclient": re.compile(r"\s-U\s{0,4}[\"']?[^\s%\"']{1,64}%(?P<b>[^\s\"']{4,200})"),
    b"openssl": re.compile(r"\s-pass(?:in|out)?\s{1,4}[\"']?pass:(?P<b>[^\s\"']{4,200})"),
    b"ssh-keygen": re.compile(rf"\s-[NP]\s{{1,4}}{_VALUE}"),
    b"unzip": re.compile(rf"\s-P\s{{0,4}}{_VALUE}"),
    b"7z": re.compile(rf"\s-p(?!\s){_VALUE}"),
    b"ldapsearch": re.compile(rf"\s-w\s{{1,4}}{_VALUE}"),
    b"vault login": re.compile(r"login\s{1,4}(?P<b>[A-Za-z0-9._-]{20,200})"),
}
_LINE_END = re.compile(r"\n|\\n")
_FLAG_NAMES = ("assword", "ort", "rotocol", "ager", "rint", "assive", "ath", "refix")
_LONGEST_COMMAND = 400


def find_option(name: bytes, text: str, at: int) -> Iterator[SecretSpan]:
    """Find the password on the line of a command that takes one as an option."""
    stop = _LINE_END.search(text, at, at + _LONGEST_COMMAND)
    end = stop.start() if stop else min(len(text), at + _LONGEST_COMMAND)
    # if the command occurs again on its line, the options after that belong to it
    again = text.find(name.decode(), at + len(name), end)
    end = again if again >= 0 else end
    for found in _OPTIONS[name].finditer(text, at, end):
        group = found.lastgroup or "b"
        secret = found[group]
        if not (is_reference(secret) or secret.startswith(("-", "/", "$", *_FLAG_NAMES))):
            yield SecretSpan(*found.span(group), "password")


# User names that belong to nobody in particular.
_ANYBODY = frozenset(
    (
        *("user", "users", "username", "name", "you", "me", "someone", "yourname", "your-name"),
        *("ubuntu", "debian", "root", "runner", "vscode", "node", "app", "git", "admin", "test"),
        *("shared", "public", "default", "guest", "ec2-user", "vagrant", "coder", "linuxbrew"),
    )
)


def is_nobody(name: str) -> bool:
    """Whether a user name does not belong to a person."""
    return name.lower() in _ANYBODY or not any(map(str.isalpha, name))


# The folders that contain users' names; in JSON a backslash is doubled.
find_home = finder_at(
    "user",
    r"(?:/home/|/Users/|[\\/]{1,4}Users[\\/]{1,4})([A-Za-z0-9_][\w.-]{0,63})(?![\w-])",
    unless=is_nobody,
)
_LOCAL = r"([\w.+-]{1,64})"
_NO_MAIL = re.compile(
    r"(?i:(?:git|no-?reply|donotreply|[\W\d_]+)@.*|.*@(?:.*\.)?example\.(?:com|org|net)"
    r"|.*\.(?:example|invalid|test|png|jpg|svg|py|js|ts|md))"
)
# International, or in the North American format.
_PHONE = (
    r"\+\d(?:[ ().-]{0,2}\d){7,14}(?![\w.-]?\d)|\(\d{3}\) ?\d{3}-\d{4}(?!\d)"
    r"|\d{3}-\d{3}-\d{4}(?![\d-])"
)

# The finders by layer: what is searched in every text,
KNOWN_MARKS: Marks = (
    (b"-----begin", finder_at("private-key", _PRIVATE_KEY)),
    (b"private-lines:", finder_at("private-key", _PUTTY_KEY)),
    (b"hooks", finder_at("webhook", _WEBHOOK)),
    (b"@", find_password_in_url),
    # a client secret of Azure, which contains ``8Q~``
    (
        b"q~",
        finder_at(
            "azure-secret",
            r"Q~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~.-])",
            before=r"([A-Za-z0-9_~.-]{3}\d)",
        ),
    ),
    # a key or a device token of Firebase messaging
    (
        b":apa91",
        finder_at("firebase-key", r":APA91[A-Za-z0-9_-]{100,200}", before="([A-Za-z0-9_-]{8,32})"),
    ),
)
# what is recognized by its place,
PLACE_MARKS: Marks = (
    (b"authorization", finder_at("token", _AUTHORIZATION, unless=_is_no_credential)),
    (b"bearer", finder_at("token", _BEARER, unless=_is_harmless)),
    (b"curl", finder_at("password", _USER_OPTION, unless=_is_harmless)),
    (b"cookie", find_cookies),
    (b"auth", finder_at("token", _AUTH, unless=lambda text: not _is_login(text))),
    (b"login", find_netrc),
    (b"sig=", find_signature),
    (b"signature=", find_signature),
    # what a pattern finds faster, because it starts with one character,
    (
        re.compile(rb":(?:\d{4,5}|\*):"),
        finder_at(
            "password",
            _PGPASS,
            before=r"(?:^|[\s\"'`]|\\n)[\w.*-]{1,253}",
            unless=is_reference,
            reach=_FARTHEST_HOST,
        ),
    ),
    (
        re.compile(rb"\$(?:apr1|2[abxy]|[156y]|argon2)"),
        finder_at("password-hash", _HASHED),
    ),
)
# the same, if the text must contain one of some characters for any of the marks to matter,
GATED_MARKS: tuple[tuple[tuple[bytes, ...], Marks], ...] = (
    (
        (b" -p", b"\t-p", b" -a", b" -w", b" -u", b" -n", b"vault login"),
        tuple((name, partial(find_option, name)) for name in _OPTIONS),
    ),
    (
        (b"phrase", b"mnemonic"),
        (
            (b"passphrase", find_phrase),
            (b"mnemonic", find_phrase),
            (re.compile(rb"(?:seed|recovery)[ _]phrase"), find_phrase),
        ),
    ),
)
# and personal data.
PERSONAL_MARKS: Marks = (
    (
        b"@",
        finder_at(
            "mail",
            r"@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w@-]|\.\w)",
            before=_LOCAL,
            unless=_NO_MAIL.fullmatch,
        ),
    ),
    # a shell prompt
    (
        b"@",
        finder_at(
            "user", r"(?=@[\w.-]{1,64}:[~/][^\n]{0,200}?[$#%])", before=_LOCAL, unless=is_nobody
        ),
    ),
    (b"/home/", find_home),
    (b"/users/", find_home),
    (b"\\users\\", find_home),
    (re.compile(rb"(?<![\w.+-])(?:\+\d|\(\d{3}\) ?\d|\d{3}-\d{3}-\d)"), finder_at("phone", _PHONE)),
)
