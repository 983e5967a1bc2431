"""Passwords as argon2id hashes, with the parameters that argon2-cffi recommends (RFC 9106, 64 MiB)."""

import unicodedata
from functools import cache
from typing import Final

from anyio import CapacityLimiter, to_thread
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

SHORTEST: Final = 12
LONGEST: Final = 256
"""Characters of a password; nobody types more, and hashing takes time."""
_HASHER: Final = PasswordHasher()
_AT_ONCE: Final = CapacityLimiter(2)  # Each takes 64 MiB


def fault_of(password: str, again: str) -> str | None:
    """What is wrong with a new password that was typed twice, in a sentence; None if nothing is."""
    if not SHORTEST <= len(password) <= LONGEST:
        return f"A password has {SHORTEST} to {LONGEST} characters. Several words make a good one."
    return None if password == again else "The two passwords differ."


async def hash_password(password: str) -> str:
    """The hash with its salt and parameters."""
    return await to_thread.run_sync(_HASHER.hash, _normalised(password), limiter=_AT_ONCE)


async def verify(stored: str | None, password: str) -> bool:
    """Whether the password is the one of the hash; without a hash as much work is done, and the answer is no."""
    return await to_thread.run_sync(_verify, stored, _normalised(password[: LONGEST + 1]), limiter=_AT_ONCE)


def is_outdated(stored: str) -> bool:
    """Whether a hash was made with other parameters than today's."""
    return _HASHER.check_needs_rehash(stored)


def _verify(stored: str | None, password: str) -> bool:
    nobody = _of_nobody()
    try:
        return _HASHER.verify(stored or nobody, password) and stored is not None
    except (VerificationError, InvalidHashError):
        return False


@cache
def _of_nobody() -> str:
    return _HASHER.hash("")


def _normalised(password: str) -> str:
    """The same characters from every keyboard and system (NIST SP 800-63B, 3.1.1.2)."""
    return unicodedata.normalize("NFKC", password)
