"""The public key that a user gives, as a file or text. Without one, no cryptography is imported."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from medlive.errors import BadInput
from medlive.integrity.folder import TooLong, read_small

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

_MAX_BYTES: Final = 10_000
"""The most bytes of a key's file; minisign's are below 200."""


def public_key_of(given: "PublicKey | str | Path | None") -> "PublicKey | None":
    """Return the public key that was given.

    Args:
        given: A parsed key, a path, or a text: the path of an existing file, or a key itself. None gives None.

    Raises:
        BadInput: If the file cannot be read.
        BadKey: If it is not a key.
    """
    if given is None:
        return None
    from medlive.integrity.signing import BadKey, PublicKey

    if isinstance(given, PublicKey):
        return given
    try:
        is_file = isinstance(given, Path) or Path(given).is_file()
        text = read_small(Path(given).resolve(), _MAX_BYTES).decode("utf-8", "replace") if is_file else str(given)
    except (OSError, TooLong, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else None
        raise BadInput(f"the public key {str(given)[:200]!r} cannot be read: {reason or exc}") from exc
    try:
        return PublicKey.parse(text)
    except BadKey as exc:
        if is_file:
            raise
        raise BadKey("the public key is neither an existing file nor a key", hint=exc.hint) from None
