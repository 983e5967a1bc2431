"""Passwords as argon2id hashes, with the parameters that argon2-cffi recommends (RFC 9106, 64 MiB)."""

import unicodedata
from functools import cache, partial

from anyio import CapacityLimiter, to_thread
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from medlive.guard.bounds import PASSWORD_CHARS

SHORTEST = 12
"""Characters of a password, at least."""
_LEAST_DISTINCT = 6
"""Different characters of a password, at least."""
_LEAST_OWN = 8
"""Characters of a password that are left without the account's name and the words that everybody tries."""
_TRIED = (
    "password",
    "passwort",
    "passw0rd",
    "p@ssword",
    "p@ssw0rd",
    "qwertz",
    "1q2w3e4r5t6y",
    "1qaz2wsx3edc",
    "letmein",
    "welcome",
    "changeme",
    "administrator",
    "admin",
    "iloveyou",
    "sunshine",
    "princess",
    "football",
    "baseball",
    "superman",
    "monkey",
    "dragon",
    "master",
    "secret",
    "medlive",
)
"""Words that begin every list of guesses, the longer before those that they hold."""
_KEYS = (
    "01234567890123456789",
    "abcdefghijklmnopqrstuvwxyz",
    "qwertyuiopasdfghjklzxcvbnm",
)
"""Rows in which keys and letters stand; read backwards too."""
_HASHER = PasswordHasher()
_AT_ONCE = CapacityLimiter(2)  # Each takes 64 MiB


def fault_of(password: str, again: str, name: str) -> str | None:
    """What is wrong with a new password that was typed twice, in a sentence; None if nothing is.

    As NIST SP 800-63B (3.1.1.2) has it: long, and not what is guessed first. No kinds of characters are asked for.

    Args:
        password: As it was typed.
        again: As it was typed a second time.
        name: The account's.
    """
    if not SHORTEST <= len(password) <= PASSWORD_CHARS:
        return f"A password has {SHORTEST} to {PASSWORD_CHARS} characters. Several words make a good one."
    if password != again:
        return "The two passwords differ."
    plain = _normalised(password).casefold()
    if len(set(plain)) < _LEAST_DISTINCT or plain in (plain * 2)[1:-1]:
        return "This password repeats itself. Several different words make a good one."
    for word in (_normalised(name).casefold(), *_TRIED):
        if len(word) > 2:
            plain = plain.replace(word, "")
    # Three and more neighbours in a row of the keyboard or of the alphabet count for nothing.
    rows = [*_KEYS, *(keys[::-1] for keys in _KEYS)]
    own = ""
    for start, letter in enumerate(plain):
        near = {plain[k : k + 3] for k in range(max(start - 2, 0), start + 1)}
        if not any(len(part) == 3 and part in row for part in near for row in rows):
            own += letter
    if len(own) < _LEAST_OWN:
        return "This password is among the first that are guessed. Several different words make a good one."
    return None


async def hash_password(password: str) -> str:
    """The hash with its salt and parameters."""
    return await to_thread.run_sync(
        _HASHER.hash, _normalised(password), limiter=_AT_ONCE
    )


async def verify(stored: str | None, password: str) -> bool:
    """Whether the password is the one of the hash; without a hash as much work is done, and the answer is no."""
    typed = _normalised(password[: PASSWORD_CHARS + 1])
    nobody = await to_thread.run_sync(hash_of_nobody)
    kept = stored or nobody
    try:
        check = partial(_HASHER.verify, kept, typed)
        await to_thread.run_sync(check, limiter=_AT_ONCE)
    except (VerificationError, InvalidHashError):
        return False
    return stored is not None


@cache
def hash_of_nobody() -> str:
    """A hash to try passwords on where there is no account."""
    return _HASHER.hash("")


def _normalised(password: str) -> str:
    """The same characters from every keyboard and system (NIST SP 800-63B, 3.1.1.2)."""
    return unicodedata.normalize("NFKC", password)
