"""Fetches a published snapshot over HTTP or from a folder, and verifies it before it gets its name.

Files that an earlier try fetched whole are not fetched again. Errata that come with a snapshot replace those that are
here only if no entry is lost by that (`update_errata`).
"""

import asyncio
import hashlib
import io
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from medlive.errors import BadInput, CheckFailed, UsageError, first_fault
from medlive.guard.bounds import FETCH_BYTES, SMALL_FILE_BYTES
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import (
    REQUIRED,
    SIGNATURE,
    SUMS,
    parse_sums,
    sums_text,
    sync,
)
from medlive.integrity.log import exclusive, writing
from medlive.integrity.paths import UnsafePath, create_below, open_below
from medlive.integrity.signing import (
    BadKey,
    BadSignature,
    PublicKey,
    check_signature,
)
from medlive.snapshot.describe.feed import LATEST
from medlive.snapshot.errata import (
    ERRATA,
    Errata,
    parse_errata,
    put_errata,
    read_errata,
)
from medlive.snapshot.errata import SIGNATURE as ERRATA_SIGNATURE
from medlive.snapshot.locate import versions_in
from medlive.snapshot.manifest import Ancestor, Manifest
from medlive.snapshot.model import folder_name, week_end
from medlive.snapshot.verify.steps import verify_snapshot

from .reading import Read, open_source, read_below

_LOCK = ".fetch.lock"


async def fetch_snapshot(
    source: str,
    version: str,
    out: Path,
    public_key: PublicKey | None = None,
) -> dict[str, Any]:
    """Fetch a version, or "latest", from an address or a folder into `<out>/medlive-<version>/`.

    Args:
        source: An http(s) address or a folder.
        version: An ISO week such as 2026.W47, or "latest".
        out: Where the snapshot's folder goes, and the errata.
        public_key: The key that must have signed both.

    Returns:
        `version`, `digest` and `path` of the snapshot; `already`: whether it existed with the same bytes;
        `errata`: how many errata concern this version, None if the source has none; `errata_kept`: why
        the errata that were here already were not replaced, or None; `skipped`: the steps of the verification that were
        skipped (without pyarrow, say), each with the reason; `trust`: what the signature proves; `why_not`: why the
        snapshot is not publishable, empty where it is.

    Raises:
        UsageError, BadInput: If the version or the source is not valid, or the version is not published there.
        CheckFailed: If anything is not as published; the snapshot does not get its name then.
        ServiceUnavailable, DiskFull: If the server refuses, is too slow, leads elsewhere than to public addresses
            or cannot be reached; if the disk is full.
    """
    if version != "latest" and week_end(version) is None:
        text = f"{version!r} is neither a version such as 2026.W47 nor latest"
        raise UsageError(text)
    with writing(out):
        await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
        with exclusive(out / _LOCK):
            async with open_source(source) as read:
                fetch = _Fetch(read, source, out, public_key)
                return await fetch.run(version)


@dataclass
class _Fetch:
    """One fetch from an open source into the folder `out`; `key` must have signed it, None accepts any."""

    read: Read
    source: str
    out: Path
    key: PublicKey | None

    async def run(self, version: str) -> dict[str, Any]:
        """Fetch, verify and name a version, and update the errata; returns and raises as `fetch_snapshot`."""
        stated = None
        if version == "latest":
            latest = await self._latest()
            version, stated = latest.version, latest.digest
        # Checked before anything else is fetched.
        root = folder_name(version)
        sums = await self._file(f"{root}/{SUMS}")
        digest = digest_bytes(sums)
        if stated not in (None, digest):
            raise CheckFailed(
                f"{SUMS} of {version} does not have the digest that {LATEST} states"
            )
        if self.key is not None:
            signature = await self._signature(root)
            check_signature(sums, signature.decode("utf-8", "replace"), self.key)
        target = self.out / root
        already = await asyncio.to_thread(os.path.lexists, target)
        if already and f"sha256:{_sha256(self.out, f'{root}/{SUMS}')}" != digest:
            raise CheckFailed(
                f"{target} exists and is another snapshot than the one to fetch",
                hint="a published version never changes: find out which one is wrong",
            )
        folder = target if already else await self._files(version, sums)
        report = await asyncio.to_thread(verify_snapshot, folder, public_key=self.key)
        if not report.ok:
            if not already:
                # Every byte is as it was published, so another try would not help.
                shutil.rmtree(folder)
            raise CheckFailed(report.summary())
        if not already:
            sync(*folder.rglob("*"), folder)
            folder.rename(target)
            sync(self.out)
        errata, kept = None, None
        data = await self._small(ERRATA)
        if data is not None:
            # Beside the snapshot, where `eval score` looks for them.
            signed = await self._small(ERRATA_SIGNATURE)
            name = f"{ERRATA} at {self.source}"
            errata, kept = update_errata(self.out, data, signed, name, self.key)
        return {
            "version": version,
            "digest": digest,
            "path": target,
            "already": already,
            "errata": None if errata is None else len(errata.affecting(version)),
            "errata_kept": kept,
            "skipped": tuple(map(str, report.skipped)),
            "trust": report.trust,
            "why_not": report.manifest.why_not if report.manifest else (),
        }

    async def _latest(self) -> Ancestor:
        """The latest version with its digest; a place of publication never goes back.

        The addresses in latest.json are not followed.
        """
        try:
            latest = Ancestor.model_validate_json(await self._file(LATEST))
        except ValidationError as exc:
            text = (
                f"{LATEST} at {self.source} cannot be read: {exc.error_count()} faults"
            )
            raise CheckFailed(text) from exc
        version = latest.version
        newest = max((name for name, _ in versions_in(self.out)), default=version)
        if version < newest:
            raise CheckFailed(
                f"{self.source} gives {version} as the latest version, and {newest} is here already",
                hint="it may be an old copy of the place; to fetch it all the same, name the version",
            )
        return latest

    async def _small(self, name: str, most: int = SMALL_FILE_BYTES) -> bytes | None:
        """A file's bytes; None if it does not exist. Raises CheckFailed if it is longer than `most` bytes."""
        data = await self.read(name, most)
        if data is not None and len(data) > most:
            raise CheckFailed(f"{name} at {self.source} is longer than {most} bytes")
        return data

    async def _file(
        self, name: str, expected: str | None = None, most: int = SMALL_FILE_BYTES
    ) -> bytes:
        """The bytes of a file that must exist, and have the sha256 `expected`."""
        if (data := await self._small(name, most)) is None:
            hint = f"check --from; {LATEST} there lists all versions"
            raise BadInput(f"{self.source} has no {name}", hint=hint)
        if expected not in (None, hashlib.sha256(data).hexdigest()):
            text = f"{name} at {self.source} has another digest than {SUMS} states"
            raise CheckFailed(text)
        return data

    async def _signature(self, root: str) -> bytes:
        if (data := await self._small(f"{root}/{SIGNATURE}")) is None:
            raise CheckFailed(f"{root} at {self.source} is not signed")
        return data

    async def _files(self, version: str, sums: bytes) -> Path:
        """Fetch every file into a hidden folder beside the target, each with its digest."""
        root = folder_name(version)
        digests = parse_sums(sums)
        is_plain = sums == sums_text(digests).encode()
        if digests.keys() != set(REQUIRED) or not is_plain:
            raise CheckFailed(
                f"{SUMS} is not a line for each file of a snapshot",
                hint="nothing was fetched",
            )
        partial = f".{root}.fetched"
        data = await self._file(f"{root}/manifest.json", digests["manifest.json"])
        manifest = parse_manifest(data, version)
        self._write(f"{partial}/manifest.json", data)
        self._write(f"{partial}/{SUMS}", sums)
        (self.out / partial / SIGNATURE).unlink(missing_ok=True)
        if manifest.signing is not None:
            self._write(f"{partial}/{SIGNATURE}", await self._signature(root))
        for name, entry in sorted(manifest.files.items()):
            if _sha256(self.out, f"{partial}/{name}") != digests[name]:
                data = await self._file(f"{root}/{name}", digests[name], entry.size)
                self._write(f"{partial}/{name}", data)
        return self.out / partial

    def _write(self, name: str, data: bytes) -> None:
        """Write a file into the hidden folder, which a stranger may have replaced by a link."""
        try:
            with io.BufferedWriter(create_below(self.out, name)) as out:
                out.write(data)
        except UnsafePath as exc:
            hint = f"remove {self.out / name.partition('/')[0]} and fetch again"
            raise BadInput(f"{self.out}: {exc.message}", hint=hint) from exc


def _sha256(root: Path, name: str) -> str | None:
    """Return the digest of a plain file below a folder, as in the manifest; None if there is no such file."""
    try:
        with open_below(root, name) as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except (OSError, UnsafePath):
        return None


def parse_manifest(data: bytes, version: str) -> Manifest:
    """Return the manifest of that version. Raises CheckFailed if `data` is none, or names other or too large files."""
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as exc:
        text = f"the manifest cannot be read: {first_fault(exc)}"
        raise CheckFailed(text, hint="nothing was fetched") from exc
    if manifest.version != version:
        text = f"what is published as {version} is medlive {manifest.version}"
        raise CheckFailed(text)
    if manifest.files.keys() != set(REQUIRED) - {"manifest.json"}:
        raise CheckFailed("the manifest names other files than a snapshot's")
    if sum(entry.size for entry in manifest.files.values()) > FETCH_BYTES:
        raise CheckFailed(f"the manifest states more than {FETCH_BYTES} bytes")
    return manifest


def update_errata(
    folder: Path,
    offered: bytes,
    signature: bytes | None,
    name: str,
    key: PublicKey | None,
) -> tuple[Errata, str | None]:
    """Put errata beside the snapshots of a folder, unless the errata there are newer.

    Signed errata are only replaced by errata of the same signer: of `key`, or of a key that a snapshot in the
    folder names and that has signed the errata there. Without a key, the first errata in a folder are trusted.

    Args:
        folder: Where the snapshots lie.
        offered: Errata as a place of publication gives them out.
        signature: The signature of `offered`.
        name: The name of `offered` in messages.
        key: The key that must have signed them.

    Returns:
        The errata that the folder has from now on, and why the existing ones are kept; None if they were replaced,
        or are the same.

    Raises:
        BadInput: If the offered or the existing file is not valid, or the folder cannot be written.
        CheckFailed: If what is offered is not signed as it must be.
        DiskFull: If the disk is full.
    """
    data = _read(folder, ERRATA)
    own_signature = _read(folder, ERRATA_SIGNATURE)
    if key is None and data == offered and signature in (None, own_signature):
        return parse_errata(offered, name), None
    existing = Errata()
    if data is not None:
        existing = parse_errata(data, str(folder / ERRATA))
    signer = None
    if data is not None and own_signature is not None:
        keys = known_keys(folder) if key is None else [key]
        signer = find_signer(data, own_signature, keys)
        if key is None and signer is None:
            raise CheckFailed(
                f"{folder / ERRATA} is signed by a key that no snapshot beside it names, so it is not replaced",
                hint="give the publisher's key with --public-key",
            )
    errata = read_errata(offered, signature, name, key or signer)
    # Where a key is given, what it did not sign may be anybody's.
    lost = errata.find_lost(existing)
    if lost is not None and (key is None or signer is not None):
        return existing, f"{name} is older than the errata here: it lacks {lost}"
    put_errata(folder, offered, signature)
    return errata, None


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
    data = read_below(folder, name, SMALL_FILE_BYTES)
    if data is not None and len(data) > SMALL_FILE_BYTES:
        raise BadInput(
            f"{folder / name} has more than {SMALL_FILE_BYTES} bytes",
            hint="remove it and fetch again",
        )
    return data
