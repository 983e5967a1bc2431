"""Fetches a published snapshot over HTTP or from a folder, and verifies it before it gets its name.

Files that an earlier try fetched whole are not fetched again.
"""

import asyncio
import hashlib
import io
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from medlive.errors import BadInput, CheckFailed, UsageError, first_fault
from medlive.guard.bounds import FETCH_BYTES, SMALL_FILE_BYTES
from medlive.integrity.checks import Trust
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import REQUIRED, SIGNATURE, SUMS, sync, writing_to
from medlive.integrity.lock import exclusive
from medlive.integrity.paths import UnsafePath, create_below, open_below
from medlive.integrity.signing import PublicKey, check_signature
from medlive.publishing.errata_update import ErrataUpdate, Offered, update_errata
from medlive.publishing.reading import (
    Meter,
    Network,
    Pace,
    Progress,
    Read,
    open_source,
)
from medlive.snapshot.describe.feed import LATEST
from medlive.snapshot.errata import ERRATA
from medlive.snapshot.errata import SIGNATURE as ERRATA_SIGNATURE
from medlive.snapshot.identity import folder_name
from medlive.snapshot.locate import versions_in
from medlive.snapshot.manifest import Digest, Manifest, Version
from medlive.snapshot.model import week_end
from medlive.snapshot.verify.run import verify_snapshot

PACE: Final = Pace()
NETWORK: Final = Network()
_SUM_LINE: Final = re.compile(r"([0-9a-f]{64})  (\S+)")
_LOCK: Final = ".fetch.lock"


class _Latest(BaseModel):
    """What is read of latest.json; its addresses are not followed."""

    version: Version
    digest: Digest


@dataclass(frozen=True, slots=True)
class Fetched:
    """A snapshot that was fetched, or existed."""

    version: str
    digest: str
    path: Path
    already: bool  # Whether it existed with the same bytes
    # False if a step of the verification was skipped (without pyarrow, say)
    complete: bool
    bytes_fetched: int
    # How many errata concern this version; None if the place has no errata
    errata: int | None
    # Why the errata that were here already were not replaced
    errata_kept: str | None = None
    # The steps of the verification that were skipped, each with the reason
    skipped: tuple[str, ...] = ()
    # What its signature proves
    trust: Trust = Trust.NOT_SIGNED
    # Why the snapshot is not publishable; empty where it is
    why_not: tuple[str, ...] = ()


async def fetch_snapshot(
    source: str,
    version: str,
    out: Path,
    public_key: PublicKey | None = None,
    *,
    progress: Progress = lambda done, total: None,
    allow_older: bool = False,
    pace: Pace = PACE,
    network: Network = NETWORK,
) -> Fetched:
    """Fetch a version, or "latest", from an address or a folder into `<out>/medlive-<version>/`.

    Args:
        source: An http(s) address or a folder.
        version: An ISO week such as 2026.W47, or "latest".
        out: Where the snapshot's folder goes, and the errata.
        public_key: The key that must have signed both.
        progress: Called with the bytes done and the bytes in all.
        allow_older: Accept a latest version that is older than one in `out`.
        pace: How slow the server may be.
        network: How names are resolved.

    Raises:
        UsageError, BadInput: If the version or the source is not valid, or the version is not published there.
        CheckFailed: If anything is not as published; the snapshot does not get its name then.
        ServiceUnavailable, DiskFull: If the server refuses, is too slow, leads elsewhere than to public addresses
            or cannot be reached; if the disk is full.
    """
    if version != "latest" and week_end(version) is None:
        raise UsageError(
            f"{version!r} is neither a version such as 2026.W47 nor latest"
        )
    with writing_to(out):
        await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
        with exclusive(out / _LOCK):
            meter = Meter(progress)
            async with open_source(source, network, pace, meter) as read:
                fetch = _Fetch(read, source, out, public_key, meter)
                return await fetch.run(version, allow_older=allow_older)


@dataclass
class _Fetch:
    read: Read
    source: str
    out: Path
    key: PublicKey | None
    meter: Meter
    fetched: int = 0

    async def run(self, version: str, *, allow_older: bool) -> Fetched:
        stated = None
        if version == "latest":
            latest = await self._latest()
            version = latest.version
            stated = latest.digest
            if not allow_older:
                _check_not_older(version, self.source, self.out)
        sums = await self._sums(version, stated)
        digest = digest_bytes(sums)
        target = self.out / folder_name(version)
        already = _exists(self.out, target.name, sums)
        folder = target if already else await self._files(version, sums)
        report = await asyncio.to_thread(verify_snapshot, folder, public_key=self.key)
        if not report.ok:
            if (
                not already
            ):  # every byte is as it was published, so another try would not help
                shutil.rmtree(folder)
            raise CheckFailed(report.summary())
        if not already:
            sync(*folder.rglob("*"), folder)
            folder.rename(target)
            sync(self.out)
        update = await self._errata()
        return Fetched(
            version=version,
            digest=digest,
            path=target,
            already=already,
            complete=report.complete,
            bytes_fetched=self.fetched,
            errata=None if update is None else len(update.errata.affecting(version)),
            errata_kept=None if update is None else update.kept,
            skipped=tuple(map(str, report.skipped)),
            trust=report.trust,
            why_not=report.manifest.why_not if report.manifest else (),
        )

    async def _small(self, name: str, most: int = SMALL_FILE_BYTES) -> bytes | None:
        data = await self.read(name, most)
        if data is not None and len(data) > most:
            raise CheckFailed(f"{name} at {self.source} is longer than {most} bytes")
        return data

    async def _latest(self) -> _Latest:
        if (data := await self._small(LATEST)) is None:
            raise BadInput(
                f"{self.source} has no {LATEST}",
                hint="name the version, or check --from",
            )
        try:
            return _Latest.model_validate_json(data)
        except ValidationError as exc:
            raise CheckFailed(
                f"{LATEST} at {self.source} cannot be read: {exc.error_count()} faults"
            ) from exc

    async def _sums(self, version: str, stated: str | None) -> bytes:
        """Fetch SHA256SUMS and check its signature, before anything else is fetched."""
        if (data := await self._small(f"{folder_name(version)}/{SUMS}")) is None:
            raise BadInput(
                f"medlive {version} is not published at {self.source}",
                hint=f"{LATEST} there lists all versions",
            )
        if stated not in (None, digest_bytes(data)):
            raise CheckFailed(
                f"{SUMS} of {version} does not have the digest that {LATEST} states"
            )
        if self.key is not None:
            check_signature(
                data,
                (await self._signature(version)).decode("utf-8", "replace"),
                self.key,
            )
        return data

    async def _signature(self, version: str) -> bytes:
        if (data := await self._small(f"{folder_name(version)}/{SIGNATURE}")) is None:
            raise CheckFailed(f"medlive {version} at {self.source} is not signed")
        return data

    async def _files(self, version: str, sums: bytes) -> Path:
        """Fetch every file into a hidden folder beside the target, each with its digest."""
        root = folder_name(version)
        digests = _parse_sums(sums)
        partial = f".{root}.fetched"
        data = await self._file(
            f"{root}/manifest.json", digests["manifest.json"], SMALL_FILE_BYTES
        )
        manifest = _manifest(data, version)
        self._write(f"{partial}/manifest.json", data)
        self._write(f"{partial}/{SUMS}", sums)
        (self.out / partial / SIGNATURE).unlink(missing_ok=True)
        if manifest.signing is not None:
            self._write(f"{partial}/{SIGNATURE}", await self._signature(version))
        self.meter.total = sum(entry.size for entry in manifest.files.values())
        for name, entry in sorted(manifest.files.items()):
            if _digest(self.out, f"{partial}/{name}") != digests[name]:
                data = await self._file(f"{root}/{name}", digests[name], entry.size)
                self._write(f"{partial}/{name}", data)
                self.fetched += len(data)
            self.meter.whole(entry.size)
        return self.out / partial

    def _write(self, name: str, data: bytes) -> None:
        """Write a file into the hidden folder, of which a stranger may have made a link."""
        try:
            with io.BufferedWriter(create_below(self.out, name)) as out:
                out.write(data)
        except UnsafePath as exc:
            hint = f"remove {self.out / name.partition('/')[0]} and fetch again"
            raise BadInput(f"{self.out}: {exc.message}", hint=hint) from exc

    async def _file(self, name: str, digest: str, most: int) -> bytes:
        if (data := await self._small(name, most)) is None:
            raise BadInput(f"{name} is missing at {self.source}")
        if digest_bytes(data) != digest:
            raise CheckFailed(
                f"{name} at {self.source} has another digest than {SUMS} states"
            )
        return data

    async def _errata(self) -> ErrataUpdate | None:
        """Put the errata beside the snapshot, where `eval score` looks for them, unless ours are newer."""
        if (data := await self._small(ERRATA)) is None:
            return None
        signature = await self._small(ERRATA_SIGNATURE)
        return update_errata(
            self.out, Offered(data, signature, f"{ERRATA} at {self.source}"), self.key
        )


def _check_not_older(version: str, source: str, out: Path) -> None:
    """Raise CheckFailed if a newer version lies in the folder: a place of publication never goes back."""
    newest = max((name for name, _ in versions_in(out)), default=version)
    if version < newest:
        raise CheckFailed(
            f"{source} gives {version} as the latest version, and {newest} is here already",
            hint="it may be an old copy of the place; --allow-older fetches it, and so does naming the version",
        )


def _digest(root: Path, name: str) -> str | None:
    """Return the digest of a plain file below a folder, as in the manifest; None if there is none."""
    try:
        with open_below(root, name) as handle:
            return f"sha256:{hashlib.file_digest(handle, 'sha256').hexdigest()}"
    except (OSError, UnsafePath):
        return None


def _exists(out: Path, name: str, sums: bytes) -> bool:
    """Return whether the snapshot exists. Raises CheckFailed if something else has its name."""
    if not os.path.lexists(out / name):
        return False
    if _digest(out, f"{name}/{SUMS}") != digest_bytes(sums):
        raise CheckFailed(
            f"{out / name} exists and is another snapshot than the one to fetch",
            hint="a published version never changes: find out which one is wrong",
        )
    return True


def _parse_sums(sums: bytes) -> dict[str, str]:
    """Return name → digest. Raises CheckFailed unless the names are those of a snapshot's files, each once."""
    rows = sums.decode("utf-8", "replace").removesuffix("\n").split("\n")
    matches = [match for match in map(_SUM_LINE.fullmatch, rows) if match]
    digests = {match[2]: f"sha256:{match[1]}" for match in matches}
    if not len(matches) == len(rows) == len(digests) or digests.keys() != set(REQUIRED):
        raise CheckFailed(
            f"{SUMS} names other files than a snapshot's", hint="nothing was fetched"
        )
    return digests


def _manifest(data: bytes, version: str) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as exc:
        raise CheckFailed(
            f"the manifest cannot be read: {first_fault(exc)}",
            hint="nothing was fetched",
        ) from exc
    if manifest.version != version:
        raise CheckFailed(
            f"what is published as {version} is medlive {manifest.version}"
        )
    if manifest.files.keys() != set(REQUIRED) - {"manifest.json"}:
        raise CheckFailed("the manifest names other files than a snapshot's")
    if sum(entry.size for entry in manifest.files.values()) > FETCH_BYTES:
        raise CheckFailed(f"the manifest states more than {FETCH_BYTES} bytes")
    return manifest
