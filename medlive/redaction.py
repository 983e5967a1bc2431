"""The one redactor: what looks like a secret or is known as one is replaced by *** before it is logged or stored.

Known are the values of environment variables whose names say so, and what `remember` was given. Messages of errors
and lines of logs pass through here, so that nobody who raises or logs needs to think of it; bodies of model
endpoints lose the known secrets as they arrive.
"""

import os
import re
from typing import Final
from urllib.parse import quote, quote_plus

HIDDEN: Final = "***"
_SHORTEST: Final = 8
"""Shorter values are words of the language more often than secrets."""
_ENDINGS: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PWD")
_FOLDERS: Final = ("PWD", "OLDPWD")
"""A shell's names for folders; hidden, they would take the paths out of messages."""
_REMEMBERED: Final[set[str]] = set()
_PATTERNS: Final = (
    # To the last @ of the word: a password that was not escaped may hold one, and a slash.
    (re.compile(r"([a-z][a-z0-9+.-]*://[^\s:/@]*):\S+@", re.IGNORECASE), rf"\1:{HIDDEN}@"),
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
    """The text without the known secrets, as they are or as a URL or JSON writes them."""
    names = (name for name in os.environ if name.upper().endswith(_ENDINGS) and name not in _FOLDERS)
    values = {os.environ.get(name, "") for name in names}
    named = {value for value in values if len(value) >= _SHORTEST}
    # The longest first: one secret may begin with another.
    for secret in sorted(named | _REMEMBERED, key=len, reverse=True):
        for form in (secret, quote(secret, safe=""), quote_plus(secret), secret.replace("/", r"\/")):
            text = text.replace(form, HIDDEN)
    return text


def hide_secrets(text: str) -> str:
    """The text without known secrets, passwords in URLs, bearer tokens, and values that are named as secrets."""
    text = hide_known(text)
    for pattern, shown in _PATTERNS:
        text = pattern.sub(shown, text)
    return text
