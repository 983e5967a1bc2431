"""Which errata a consumer keeps: those that come replace those that are here only if nothing is undone by that."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Offered:
    """Errata as a place of publication gives them out."""

    data: bytes
    signature: bytes | None
    name: str  # For messages


@dataclass(frozen=True, slots=True)
class ErrataUpdate:
    """The errata that hold after a fetch."""

    errata: Errata
    # Why those that were here are kept; None if those that came replaced them
    kept: str | None


def update_errata(
    folder: Path, offered: Offered, key: PublicKey | None
) -> ErrataUpdate:
    """Put errata beside the snapshots of a folder, unless those that lie there are newer.

    Signed errata are only replaced by errata of the same signer: of `key`, or of a key that a snapshot in the
    folder names and that has signed those that are there. Without a key the first ones are trusted as they come.

    Raises:
        BadInput: If either file is not valid.
        CheckFailed: If what is offered is not signed as it must be.
        OSError: If the folder cannot be written.
    """
    errata = read_errata(offered.data, offered.signature, offered.name, key)
    data = _read(folder, ERRATA)
    signature = _read(folder, SIGNATURE)
    if data is None:
        put_errata(folder, offered.data, offered.signature)
        return ErrataUpdate(errata, None)
    try:
        existing = parse_errata(data, str(folder / ERRATA))
    except BadInput as exc:
        raise BadInput(
            exc.message, hint=f"remove {folder / ERRATA} and fetch again"
        ) from exc
    if (
        data == offered.data
        and offered.signature in (None, signature)
        and (key is None or signature is not None)
    ):
        return ErrataUpdate(existing, None)
    comparable = key is None
    if signature is not None:
        signer = _signer(
            data, signature, [key] if key is not None else known_keys(folder)
        )
        if key is None:
            _check_same_signer(offered, signer, folder)
        comparable = signer is not None
    if comparable and (lost := errata.find_lost(existing)) is not None:
        return ErrataUpdate(
            existing, f"{offered.name} is older than the errata here: it lacks {lost}"
        )
    put_errata(folder, offered.data, offered.signature)
    return ErrataUpdate(errata, None)


def _check_same_signer(
    offered: Offered, signer: PublicKey | None, folder: Path
) -> None:
    if signer is None:
        raise CheckFailed(
            f"{folder / ERRATA} is signed by a key that no snapshot beside it names, so it is not replaced",
            hint="give the publisher's key with --public-key",
        )
    try:
        read_errata(offered.data, offered.signature, offered.name, signer)
    except CheckFailed as exc:
        raise CheckFailed(
            f"{exc.message}; the errata here are signed with key {signer.id_text()} and were kept",
            hint="if the publisher has another key now, give it with --public-key",
        ) from exc


def known_keys(folder: Path) -> Iterator[PublicKey]:
    """Yield the keys that the snapshots of a folder name, the newest first."""
    for _, snapshot in reversed(list(versions_in(folder))):
        try:
            manifest = Manifest.model_validate_json(
                _read(folder, f"{snapshot.name}/manifest.json") or b""
            )
            if manifest.signing is not None:
                yield PublicKey.parse(manifest.signing.public_key)
        except (ValidationError, BadInput, BadKey):
            continue


def _signer(
    data: bytes, signature: bytes, keys: Iterable[PublicKey]
) -> PublicKey | None:
    """Return the first key that has signed the data."""
    text = signature.decode("utf-8", "replace")
    for key in keys:
        try:
            check_signature(data, text, key)
        except BadSignature:
            continue
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
