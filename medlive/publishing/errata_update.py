"""Which errata a consumer keeps: those that come replace those that are here only if nothing is undone by that."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from medlive.errors import BadInput, CheckFailed
from medlive.guard.bounds import SMALL_FILE_BYTES
from medlive.integrity.paths import open_below
from medlive.integrity.signing import BadKey, BadSignature, PublicKey, check_signature
from medlive.snapshot.errata import (
    ERRATA,
    SIGNATURE,
    Errata,
    parse_errata,
    put_errata,
    read_errata,
)
from medlive.snapshot.locate import versions_in
from medlive.snapshot.manifest import Manifest


def update_errata(
    folder: Path,
    offered: bytes,
    signature: bytes | None,
    name: str,
    key: PublicKey | None,
) -> tuple[Errata, str | None]:
    """Put errata beside the snapshots of a folder, unless those that lie there are newer.

    Signed errata are only replaced by errata of the same signer: of `key`, or of a key that a snapshot in the
    folder names and that has signed those that are there. Without a key the first ones are trusted as they come.

    Args:
        folder: Where the snapshots lie.
        offered: Errata as a place of publication gives them out.
        signature: Theirs.
        name: What they are called in messages.
        key: The key that must have signed them.

    Returns:
        The errata that hold from now on, and why those that were here are kept; None if they were replaced.

    Raises:
        BadInput: If either file is not valid.
        CheckFailed: If what is offered is not signed as it must be.
        OSError: If the folder cannot be written.
    """
    errata = read_errata(offered, signature, name, key)
    data = _read(folder, ERRATA)
    own_signature = _read(folder, SIGNATURE)
    if data is None:
        put_errata(folder, offered, signature)
        return errata, None
    try:
        existing = parse_errata(data, str(folder / ERRATA))
    except BadInput as exc:
        hint = f"remove {folder / ERRATA} and fetch again"
        raise BadInput(exc.message, hint=hint) from exc
    is_proved = key is None or own_signature is not None
    if data == offered and signature in (None, own_signature) and is_proved:
        return existing, None
    comparable = key is None
    if own_signature is not None:
        keys = known_keys(folder) if key is None else [key]
        signer = find_signer(data, own_signature, keys)
        comparable = signer is not None
        if key is None:
            check_same_signer(folder, offered, signature, name, signer)
    if comparable and (lost := errata.find_lost(existing)) is not None:
        return existing, f"{name} is older than the errata here: it lacks {lost}"
    put_errata(folder, offered, signature)
    return errata, None


def check_same_signer(
    folder: Path,
    offered: bytes,
    signature: bytes | None,
    name: str,
    signer: PublicKey | None,
) -> None:
    """Raise CheckFailed unless errata are signed by the signer of those that are here."""
    if signer is None:
        raise CheckFailed(
            f"{folder / ERRATA} is signed by a key that no snapshot beside it names, so it is not replaced",
            hint="give the publisher's key with --public-key",
        )
    try:
        read_errata(offered, signature, name, signer)
    except CheckFailed as exc:
        raise CheckFailed(
            f"{exc.message}; the errata here are signed with key {signer.id_text()} and were kept",
            hint="if the publisher has another key now, give it with --public-key",
        ) from exc


def known_keys(folder: Path) -> Iterator[PublicKey]:
    """Yield the keys that the snapshots of a folder name, the newest first."""
    for _, snapshot in reversed(list(versions_in(folder))):
        with suppress(ValidationError, BadInput, BadKey):
            data = _read(folder, f"{snapshot.name}/manifest.json") or b""
            manifest = Manifest.model_validate_json(data)
            if manifest.signing is not None:
                yield PublicKey.parse(manifest.signing.public_key)


def find_signer(
    data: bytes, signature: bytes, keys: Iterable[PublicKey]
) -> PublicKey | None:
    """Return the first key that has signed the data."""
    text = signature.decode("utf-8", "replace")
    for key in keys:
        with suppress(BadSignature):
            check_signature(data, text, key)
            return key
    return None


def _read(folder: Path, name: str) -> bytes | None:
    """Return the bytes of a file below a folder; None if it is missing."""
    try:
        with open_below(folder, name) as handle:
            data = handle.read(SMALL_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > SMALL_FILE_BYTES:
        raise BadInput(
            f"{folder / name} has more than {SMALL_FILE_BYTES} bytes",
            hint="remove it and fetch again",
        )
    return data
