"""Where the secrets of one text are: by what they are, by their names or places, by their look.

A finder of what its place gives away (an option of a command, a line of a file that many programs
read) gets the place of a mark and looks no further than a line, or a few hundred characters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from lockstitch.redaction import secrets, texts
from lockstitch.redaction.secrets import Finder, SecretSpan, finder_at
from lockstitch.redaction.texts import is_id, is_random, is_reference, is_worded, is_words

_LONGEST_COMMAND = 400
_SHORTEST_SECRET = 4
_FARTHEST_HOST = 256
# A value as a shell takes it, quotes escaped for JSON included.
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
# One of these is in every such command, in small letters.
_FLAGS = (b" -p", b"\t-p", b" -a", b" -w", b" -u", b" -n", b"vault login")
_LINE_END = re.compile(r"\n|\\n")
_FLAG_NAMES = ("assword", "ort", "rotocol", "ager", "rint", "assive", "ath", "refix")


def find_option(name: bytes, text: str, at: int) -> Iterator[SecretSpan]:
    """Find the password that a command takes on its line."""
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


def find_netrc(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the password of a ``.netrc``: ``login NAME password SECRET``."""
    found = _NETRC.match(text, at)
    # in prose, "login" and "password" are followed by words, and nothing says machine
    is_prose = found is not None and is_words(found[1])
    if not is_prose or "machine" in text[max(0, at - _FARTHEST_HOST) : at]:
        yield from _unless_reference(found, "password")


# The host may be any, so that the port is the sign; before it the line must start.
_PGPASS = re.compile(
    r":(?:\d{4,5}|\*):([A-Za-z_*][\w.*-]{0,62}):([A-Za-z_*][\w.*-]{0,62}):([^\s:\"'`\\]{4,200})"
    r"(?=\s|\\n|[\"'`]|$)"
)
_HOST_BEFORE = re.compile(r"(?:^|[\s\"'`]|\\n)([\w.*-]{1,253})$")


def find_pgpass(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the password of a ``.pgpass``: ``host:port:database:user:SECRET``."""
    found = _PGPASS.match(text, at)
    if found and _HOST_BEFORE.search(text[max(0, at - _FARTHEST_HOST) : at]):
        yield from _unless_reference(found, "password", 3)


# The hash of a password as ``htpasswd`` and ``/etc/shadow`` keep it.
find_password_hash = finder_at(
    "password-hash",
    r"\$(?:apr1\$[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{16,64}"
    r"|2[abxy]\$\d\d\$[./A-Za-z0-9]{50,60}"
    r"|[156y]\$(?:[\w=,./]{1,40}\$){1,2}[./A-Za-z0-9]{20,100}"
    r"|argon2i?d?\$v=\d{1,3}\$[\w=,]{1,40}\$[A-Za-z0-9+/]{8,64}\$[A-Za-z0-9+/]{20,128})",
)


_SIGNATURE = re.compile(r"(?i:sig|signature)=([A-Za-z0-9%+/_=-]{20,512})")
_QUERY = ("?", "&", ";", "-", "26")


def find_signature(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the signature of an address that is as good as a password: Azure SAS, AWS, Google."""
    found = _SIGNATURE.match(text, at)
    if found and text[max(0, at - 2) : at].endswith(_QUERY) and not is_words(found[1]):
        yield SecretSpan(*found.span(1), "signature")


_AUTH = re.compile(
    r"""auth\\{0,3}["']?\s{0,4}[:=]\s{0,4}\\{0,3}["']?([A-Za-z0-9+/]{8,512}={0,2})"""
)


def find_basic(text: str, at: int) -> Iterator[SecretSpan]:
    """Find ``_auth`` of an ``.npmrc`` and ``auth`` of Docker: base64 of a name and a password."""
    found = _AUTH.match(text, at)
    if found is None:
        return
    run = texts.decode_whole(found[1])
    name, colon, secret = run.text.partition(":") if run else ("", "", "")
    if colon and len(secret) >= _SHORTEST_SECRET and name.isprintable() and " " not in name:
        yield SecretSpan(*found.span(1), "token")


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


def find_phrase(text: str, at: int) -> Iterator[SecretSpan]:
    """Find a passphrase of plain words: three or more that make no sentence."""
    found = _PHRASE.match(text, at)
    if found and _PROSE.isdisjoint(re.split("[ -]", found[1].lower())):
        yield SecretSpan(*found.span(1), "password")


_PHRASE_MARKS = (b"passphrase", b"mnemonic", b"seed phrase", b"seed_phrase", b"recovery phrase")

_AZURE = re.compile(r"[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~.-])")
_BEFORE_MARK = 4


def find_azure_secret(text: str, at: int) -> Iterator[SecretSpan]:
    """Find a client secret of Azure, which has ``8Q~`` in it."""
    found = _AZURE.match(text, max(0, at - _BEFORE_MARK))
    if found:
        yield SecretSpan(*found.span(), "azure-secret")


_FIREBASE = re.compile(r":APA91[A-Za-z0-9_-]{100,200}")
_ID_BEFORE = re.compile(r"[A-Za-z0-9_-]{8,32}$")


def find_firebase(text: str, at: int) -> Iterator[SecretSpan]:
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


def find_mail(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the mail address around an ``@``."""
    local, domain = _LOCAL.search(text[max(0, at - 64) : at]), _DOMAIN.match(text, at)
    if local is None or domain is None:
        return
    is_known = local[0].lower() in _NOBODY or _NO_DOMAIN.fullmatch(domain[1])
    if not is_known and any(map(str.isalpha, local[0])):
        yield SecretSpan(at - len(local[0]), domain.end(), "mail")


_PHONE_START = re.compile(rb"(?<![\w.+-])(?:\+\d|\(\d{3}\) ?\d|\d{3}-\d{3}-\d)")
# A telephone number: international, or as in North America.
find_phone = finder_at(
    "phone",
    r"\+\d(?:[ ().-]{0,2}\d){7,14}(?![\w.-]?\d)|\(\d{3}\) ?\d{3}-\d{4}(?!\d)"
    r"|\d{3}-\d{3}-\d{4}(?![\d-])",
)


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


def find_home(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the name of the user whose folder a path is in."""
    found = _HOME.match(text, at)
    if found and is_somebody(found[1]):
        yield SecretSpan(*found.span(1), "user")


_PROMPT = re.compile(r"@[\w.-]{1,64}:[~/][^\n]{0,200}?[$#%]")


def find_prompt(text: str, at: int) -> Iterator[SecretSpan]:
    """Find the name of the user in the prompt of a shell."""
    user = _LOCAL.search(text[max(0, at - 64) : at])
    if user and is_somebody(user[0]) and _PROMPT.match(text, at):
        yield SecretSpan(at - len(user[0]), at, "user")


def is_somebody(name: str) -> bool:
    """Whether the name of a user may be that of a person."""
    return name.lower() not in _ANYBODY and any(map(str.isalpha, name))


_OF_PERSONS = (
    (b"@", find_mail),
    (b"@", find_prompt),
    (b"/home/", find_home),
    (b"/users/", find_home),
    (b"\\users\\", find_home),
)


PLACEHOLDER = re.compile(r"\[redacted:([a-z0-9-]{1,40}):(\d{1,9})\]")
# No key without a known format or a name is longer: what is longer is data.
LONGEST_TOKEN = 256
SHORTEST_TOKEN = 32
SHORTEST_RUN = 20
SHORTEST = 8
# So often may a text be encoded within another one.
DEPTH = 3


class Layers(NamedTuple):
    """What is looked for besides what says itself what it is.

    What a name or its place marks, what looks random, and what is about a person.
    """

    named: bool = True
    random: bool = True
    personal: bool = False


SECRETS = Layers()
KNOWN = Layers(named=False, random=False)

Marks = tuple[tuple[bytes, Finder], ...]
# What must stand in the text, in small letters, and who looks at it there.
_MARKS: Marks = (
    (b"-----begin", secrets.find_private_key),
    (b"private-lines:", secrets.find_putty_key),
    (b"hooks", secrets.find_webhook),
    (b"@", secrets.find_password_in_url),
    (b"q~", find_azure_secret),
    (b":apa91", find_firebase),
)
_HEADERS: Marks = (
    (b"authorization", secrets.find_authorization),
    (b"bearer", secrets.find_bearer),
    (b"curl", secrets.find_user_option),
    (b"cookie", find_cookies),
    (b"auth", find_basic),
    (b"login", find_netrc),
    (b"sig=", find_signature),
    (b"signature=", find_signature),
)
# The same, where one of some signs must be in the text for any of the marks to matter.
_GATED: tuple[tuple[tuple[bytes, ...], Marks], ...] = (
    (
        _FLAGS,
        tuple((name, partial(find_option, name)) for name in _OPTIONS),
    ),
    ((b"phrase", b"mnemonic"), tuple((mark, find_phrase) for mark in _PHRASE_MARKS)),
)
# What is quicker to find by a pattern, as it starts with one sign.
_PATTERNS: tuple[tuple[re.Pattern[bytes], Finder], ...] = (
    (re.compile(rb":(?:\d{4,5}|\*):"), find_pgpass),
    (re.compile(rb"\$(?:apr1|2[abxy]|[156y]|argon2)"), find_password_hash),
)


def _table(more: bytes) -> bytes:
    """Map the characters of a token to "a" and all others to a space."""
    return bytes(
        ord("a") if bytes([code]).isalnum() or code in more else ord(" ") for code in range(256)
    )


# A run of nothing else is a name or a rule, never a key.
_NO_KEY = b"abcdefghijklmnopqrstuvwxyz_-"
_NAME_LIKE = _table(b"_-")
_BASE64_LIKE = _table(b"_-+/=")


def find_spans(
    text: str, kind: str | None = None, layers: Layers = SECRETS, *, lead: str = ""
) -> list[SecretSpan]:
    """Find the secrets in a text: in order, none overlapping another or a placeholder.

    ``kind`` is the kind of secret that the text is the value of, if its field says so; ``lead``
    is what it stands behind. ``layers`` say what is looked for.
    """
    if lead:
        size = len(lead)
        found = find_spans(lead + text, None, layers)
        inside = [
            SecretSpan(max(a, size) - size, b - size, what) for a, b, what in found if b > size
        ]
        return inside or find_spans(text, kind, layers)
    text = _neutral(text)
    if kind is not None and secrets.fits(kind, text):
        return _without_overlaps(
            text, _find_known(text, *_bytes(text)), [SecretSpan(0, len(text), kind)]
        )
    if len(text) < SHORTEST:
        return []
    data, low = _bytes(text)
    return _without_overlaps(
        text,
        _find_known(text, data, low),
        [*secrets.find_named(text, low), *_find_by_place(text, low)] if layers.named else (),
        _find_random(text, data) if layers.random else (),
        _find_personal(text, low) if layers.personal else (),
    )


def find_hidden(
    text: str, layers: Layers = SECRETS, depth: int = DEPTH
) -> Iterator[tuple[int, int]]:
    """Return where the secrets are that can be read only once a text is decoded."""
    for view in texts.find_views(text):
        for start, end, _kind in find_spans(view.text, None, layers):
            yield view.place(start, end)
        for start, end in _find_hidden_runs(view.text, layers, depth):
            yield view.place(start, end)
    yield from _find_hidden_runs(text, layers, depth)


def _find_hidden_runs(text: str, layers: Layers, depth: int) -> Iterator[tuple[int, int]]:
    for run in texts.find_runs(text) if depth else ():
        if find_spans(run.text, None, layers) or any(find_hidden(run.text, layers, depth - 1)):
            yield run.start, run.end


# Between texts that are searched together: no secret reaches over it.
_SEAM = "\n\0\0\0\0\0\n"
_BATCH = 1 << 17


def suspicious(texts: Iterable[str], layers: Layers = SECRETS) -> set[str]:
    """Return those of many texts that may hold a secret; what is not among them holds none."""
    suspects: set[str] = set()
    for batch in _batches(texts):
        together = _SEAM.join(batch)
        found = [span[:2] for span in find_spans(together, None, layers)]
        found += find_hidden(together, layers)
        if found:
            ends = list(accumulate(len(text) + len(_SEAM) for text in batch))
            for start, end in found:
                suspects.update(batch[bisect_right(ends, start) : bisect_right(ends, end - 1) + 1])
    return suspects


def holding(texts: Iterable[str], secrets: Iterable[str]) -> set[str]:
    """Return those of many texts that hold one of these secrets."""
    found: set[str] = set()
    for batch in _batches(texts):
        together = _SEAM.join(batch)
        for secret in secrets:
            if secret in together:
                found.update(text for text in batch if secret in text)
    return found


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size > _BATCH:
            yield batch
            batch, size = [], 0
    yield batch


def _neutral(text: str) -> str:
    """Return a text without the letters of its escapes: no word starts with the n of one."""
    if "\\" in text:
        for letter in "nt":
            text = text.replace(f"\\{letter}", "\\ ")
    return text


def _bytes(text: str) -> tuple[bytes, bytes]:
    """Return one byte a character, as written and in small letters: places stay the same."""
    data = text.encode("latin-1", "replace")
    return data, data.lower()


def _find_known(text: str, data: bytes, low: bytes) -> Iterator[SecretSpan]:
    for start, end in _find_runs(data.translate(_NAME_LIKE), SHORTEST_RUN):
        if data[start:end].strip(_NO_KEY):
            yield from secrets.find_in_run(text, start, end)
    yield from _find_marked(text, low, _MARKS)


def _find_personal(text: str, low: bytes) -> Iterator[SecretSpan]:
    yield from _find_marked(text, low, _OF_PERSONS)
    for found in _PHONE_START.finditer(low):
        yield from find_phone(text, found.start())


def _find_by_place(text: str, low: bytes) -> Iterator[SecretSpan]:
    yield from _find_marked(text, low, _HEADERS)
    for signs, marks in _GATED:
        if any(sign in low for sign in signs):
            yield from _find_marked(text, low, marks)
    for pattern, find in _PATTERNS:
        for found in pattern.finditer(low):
            yield from find(text, found.start())


def _find_marked(text: str, low: bytes, marks: Marks) -> Iterator[SecretSpan]:
    for mark, find in marks:
        at = low.find(mark)
        while at >= 0:
            behind = at + len(mark)
            for span in find(text, at):
                yield span
                behind = max(behind, span.end)
            at = low.find(mark, behind)


def _find_runs(mapped: bytes, shortest: int) -> Iterator[tuple[int, int]]:
    needle = b"a" * shortest
    start = mapped.find(needle)
    while start >= 0:
        end = mapped.find(b" ", start)
        end = len(mapped) if end < 0 else end
        yield start, end
        start = mapped.find(needle, end)


_CHECKSUM = re.compile(
    r"(?i:sha\d{1,3}|h1|md5|integrity|checksum|digest|etag|hash|base64)\W{1,4}$|\?[bB]\?$"
)
# Pictures, fonts, archives, certificates by their first bytes; numbers; zeros in base64; UUIDs.
_DATA = re.compile(
    r"(?:iVBOR|/9j/|R0lGOD|UklGR|JVBER|MII|PHN2Z|d09G|H4sI|UEsDB|T2dnU|SUQz|0x[0-9a-fA-F]+$)"
    r"|.*AAA|.*[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}"
)
_MIXED = re.compile(rb"(?=[^a-z]*+[a-z])(?=[^A-Z]*+[A-Z])[^0-9]*+[0-9]")
_TOKEN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_+/-]*[A-Za-z0-9])?={0,2}")
_SLASHES = 16
_STEP = re.compile(r"[^/]+")
_LINE, _SHORTEST_LINE = 76, 60
_LINE_BEFORE = re.compile(r"(?:(?:^|\n)[ \t]*+[A-Za-z0-9+/]{60,76}|-----)(?:\r?\n|\\n)[ \t]*+$")
_LINE_BEHIND = re.compile(
    r"\r?\n[ \t]*+(?:[A-Za-z0-9+/]{40,76}+={0,2}|[A-Za-z0-9+/]{2,76}+={1,2})\s"
)


def _find_random(text: str, data: bytes) -> Iterator[SecretSpan]:
    """Find long tokens that no person typed, unless they are known to be harmless."""
    for start, end in _find_runs(data.translate(_BASE64_LIKE), SHORTEST_TOKEN):
        is_worth_it = _MIXED.match(data, start, end) and not _is_wrapped(text, start, end)
        at = start if is_worth_it else end
        while at < end and (token := _TOKEN.search(text, at, end)):
            if SHORTEST_TOKEN <= len(token[0]) <= LONGEST_TOKEN:
                yield from _judge_token(text, token)
            at = token.end()


def _judge_token(text: str, token: re.Match[str]) -> Iterator[SecretSpan]:
    if _is_harmless(text, token.start(), token[0]):
        return
    # In base64 one character in 64 is a slash, in a path one in ten.
    if token[0].count("/") * _SLASHES <= len(token[0]) and is_random(token[0]):
        yield SecretSpan(*token.span(), "secret")
        return
    for step in _STEP.finditer(text, *token.span()):
        if len(step[0]) >= SHORTEST_TOKEN and is_random(step[0]):
            yield SecretSpan(*step.span(), "secret")


def _is_harmless(text: str, start: int, token: str) -> bool:
    """Whether a token is an id, a picture or a checksum."""
    before = text[max(0, start - 16) : start]
    if is_id(token) or _DATA.match(token) or _CHECKSUM.search(before):
        return True
    # a text in base64 is looked at for what it says; a name and a password have a colon
    run = texts.decode_whole(token)
    return run is not None and ":" not in run.text


def _is_wrapped(text: str, start: int, end: int) -> bool:
    """Whether this is a line of a longer base64 text: a full line stands before or behind."""
    if _LINE_BEFORE.search(text[max(0, start - 2 * _LINE) : start]):
        return True
    return end - start >= _SHORTEST_LINE and _LINE_BEHIND.match(text, end) is not None


def _without_overlaps(
    text: str,
    known: Iterable[SecretSpan],
    named: Iterable[SecretSpan] = (),
    *others: Iterable[SecretSpan],
) -> list[SecretSpan]:
    """Let each layer have what the layers before it left.

    Of a named secret that holds a known one only the rest is taken, so that the known one has
    the same placeholder everywhere.
    """
    layers = [list(known), list(named), *map(list, others)]
    if not any(layers):
        return []
    taken = bytearray(len(text))
    for done in PLACEHOLDER.finditer(text) if "[redacted:" in text else ():
        _take(taken, *done.span())
    chosen: list[SecretSpan] = []
    for layer in layers:
        for span in sorted(layer, key=lambda span: (span.start, -span.end)):
            for start, end in _left_of(taken, span, in_pieces=layer is layers[1]):
                _take(taken, start, end)
                chosen.append(SecretSpan(start, end, span.kind))
    return sorted(chosen)


def _take(taken: bytearray, start: int, end: int) -> None:
    taken[start:end] = b"\1" * (end - start)


def _left_of(taken: bytearray, span: SecretSpan, *, in_pieces: bool) -> Iterator[tuple[int, int]]:
    at, end = span.start, span.end
    if taken.find(1, at, end) < 0:
        yield at, end
        return
    while in_pieces and 0 <= at < end:
        stop = taken.find(1, at, end)
        stop = end if stop < 0 else stop
        if stop - at >= SHORTEST:
            yield at, stop
        at = taken.find(0, stop, end)
