"""The one redactor: what looks like a secret or is known as one is replaced by *** before it is logged or stored.

Known are the values of environment variables whose names say so, and what `remember` was given. Messages of errors
and lines of logs pass through here, so that nobody who raises or logs needs to think of it; bodies of model
endpoints lose the known secrets as they arrive.
"""

import os
import re
from base64 import b64encode
from functools import lru_cache
from urllib.parse import quote, quote_plus

HIDDEN = "***"
_SHORTEST = 8
"""Shorter values are words of the language more often than secrets."""
_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PWD")
_FOLDERS = ("PWD", "OLDPWD")
"""A shell's names for folders; hidden, they would take the paths out of messages."""
_BASE64 = {"+": r"(?:[+-]|%2[Bb])", "/": r"(?:[/_]|\\/|%2[Ff])"}
"""The characters that base64, its form for URLs and an encoded URL write differently."""
_REMEMBERED: set[str] = set()
_PATTERNS = (
    # To the last @ of the word: a password that was not escaped may hold one, and a slash.
    (
        re.compile(r"([a-z][a-z0-9+.-]*://[^\s:/@]*):\S+@", re.IGNORECASE),
        rf"\1:{HIDDEN}@",
    ),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (
        re.compile(
            r"((?:api[-_ ]?key|(?:access|auth|refresh|api)[-_]token|secret|passw(?:or)?d|pwd)"
            r"(?: provided)?[\\\"']*\s*[:=]\s*[\\\"']*)[^\s\\\"',;&}]{4,}",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"\b(?:sk|pk|hf|ghp|gho|github_pat|xox[abp])[-_][\w-]{16,}"), HIDDEN),
)


def remember(secret: str) -> None:
    """Hide this secret from now on, whatever its variable is called."""
    if len(secret) >= _SHORTEST:
        _REMEMBERED.add(secret)


def hide_known(text: str) -> str:
    """The text without the known secrets, as they are or as URLs, JSON, base64 or hexadecimals write them."""
    secrets = set(_REMEMBERED)
    for name in os.environ:
        value = os.environ.get(name, "")  # another thread may take it out
        is_named = name.upper().endswith(_ENDINGS) and name not in _FOLDERS
        if is_named and len(value) >= _SHORTEST:
            secrets.add(value)
    # The longest first: one secret may begin with another.
    for secret in sorted(secrets, key=len, reverse=True):
        for part, pattern in _forms(secret):
            if part in text:
                text = pattern.sub(HIDDEN, text)
    return text


@lru_cache(maxsize=256)
def _forms(secret: str) -> list[tuple[str, re.Pattern[str]]]:
    """(part, pattern) for each form of a secret; the part is searched for first, which is faster.

    Base64 writes three bytes as four characters, so that a secret in a longer text is written in one of three
    ways, whose first and last characters hold bits of its neighbours and are hidden with them.
    """
    data = secret.encode("utf-8", "surrogatepass")
    # "": always searched for
    forms = [("", re.compile(data.hex(), re.IGNORECASE))]
    for plain in (
        secret,
        quote(secret, safe="", errors="replace"),
        quote_plus(secret, errors="replace"),
        secret.replace("/", r"\/"),
    ):
        forms.append((plain, re.compile(re.escape(plain))))
    for before in range(3):
        written = b64encode(bytes(before) + data).decode("ascii")
        # Characters of the secret alone
        first, last = (before * 4 + 2) // 3, (before + len(data)) * 4 // 3
        core = written[first:last]
        pattern = "".join(_BASE64.get(c, c) for c in core)
        whole = f"[A-Za-z0-9+/_-]{{0,{1 if before else 0}}}{pattern}[A-Za-z0-9+/_-]?(?:=|%3[Dd]){{0,2}}"
        forms.append((max(re.split("[+/]", core), key=len), re.compile(whole)))
    return forms


def hide_secrets(text: str) -> str:
    """The text without known secrets, passwords in URLs, bearer tokens, and values that are named as secrets."""
    text = hide_known(text)
    for pattern, shown in _PATTERNS:
        text = pattern.sub(shown, text)
    return text
