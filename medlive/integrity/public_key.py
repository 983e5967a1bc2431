"""The public key that a person names: by its file, or by its text. Without one, no cryptography is imported."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from medlive.errors import BadInput
from medlive.integrity.folder import TooLong, read_small

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

_MOST: Final = 10_000
"""Bytes of a key's file; minisign's are below 200."""


def public_key_of(given: "PublicKey | str | Path | None") -> "PublicKey | None":
    """The key in a file, in a text that is one, or parsed already; None for None.

    A text that names a file that is there is taken as that file, a Path always as one. Raises BadInput for a file
    that cannot be read, and BadKey for what is no key.
    """
    if given is None:
        return None
    from medlive.integrity.signing import BadKey, PublicKey

    if isinstance(given, PublicKey):
        return given
    try:
        named = isinstance(given, Path) or Path(given).is_file()
        text = read_small(Path(given).resolve(), _MOST).decode("utf-8", "replace") if named else str(given)
    except (OSError, TooLong, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else None
        raise BadInput(f"the public key {str(given)[:200]!r} cannot be read: {why or exc}") from exc
    try:
        return PublicKey.parse(text)
    except BadKey as exc:
        if named:
            raise
        raise BadKey("the public key is neither a file that is there nor a key", hint=exc.hint) from None
