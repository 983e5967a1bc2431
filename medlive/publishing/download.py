"""Fetches a published snapshot: what came is verified before it gets its name, and a cut-off fetch is resumed."""

import asyncio
import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from medlive.digest import digest_bytes
from medlive.errors import BadInput, CheckFailed, DiskFull, UsageError
from medlive.integrity.folder import FOLDERS, REQUIRED, SIGNATURE, SUMS, TooLong, sha256
from medlive.integrity.lock import exclusive
from medlive.integrity.signing import PublicKey, check_signature
from medlive.publishing.origins import Origin, length, open_origin
from medlive.snapshot.describe.feed import LATEST
from medlive.snapshot.errata import ERRATA, load_errata, parse_errata
from medlive.snapshot.errata import SIGNATURE as ERRATA_SIGNATURE
from medlive.snapshot.identity import folder_name
from medlive.snapshot.manifest import Digest, FileEntry, Manifest, Version
from medlive.snapshot.model import week_end
from medlive.snapshot.verify.run import verify_snapshot

MOST_BYTES: Final = 64 * 1024**3
"""The most that a snapshot's files may hold in all."""
_MOST_SMALL: Final = 64 * 1024 * 1024
_MOST_SUMS: Final = 64 * 1024
_SUM_LINE: Final = re.compile(r"([0-9a-f]{64})  (\S+)")
_LOCK: Final = ".fetch.lock"

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)."""


class _Latest(BaseModel):
    """What is read of latest.json; its addresses are not, for files are looked for beside it alone."""

    version: Version
    digest: Digest


@dataclass(frozen=True, slots=True)
class Fetched:
    """A snapshot that was fetched, or was there."""

    version: str
    digest: str
    path: Path
    already: bool
    """True when it was there with these very bytes."""
    complete: bool
    """False: a step of the verification was skipped, for want of pyarrow, say."""
    bytes_fetched: int
    errata: int | None
    """How many errata concern this version; None when the place has no errata."""


async def fetch_snapshot(
    source: str,
    version: str,
    out: Path,
    public_key: PublicKey | None = None,
    *,
    progress: Progress = lambda done, total: None,
    pause: float = 1.0,
) -> Fetched:
    """Fetch a version, or "latest", from an address or a folder into `<out>/medlive-<version>/`.

    What came of an earlier try is not asked for again. Raises UsageError for a version or a source that is none,
    BadInput for a version that is not published there, CheckFailed for whatever is not as it should be (nothing
    gets its name then), ServiceUnavailable, and DiskFull.
    """
    if version != "latest" and week_end(version) is None:
        raise UsageError(f"{version!r} is neither a version such as 2026.W47 nor latest")
    with _held(out):
        async with open_origin(source, pause) as origin:
            return await _Fetch(origin, source, out, public_key, progress).run(version)


@dataclass
class _Fetch:
    origin: Origin
    source: str
    out: Path
    key: PublicKey | None
    progress: Progress
    fetched: int = 0

    async def run(self, version: str) -> Fetched:
        stated = None
        if version == "latest":
            latest = await self._latest()
            version, stated = latest.version, latest.digest
        sums = await self._sums(version, stated)
        digest, target = digest_bytes(sums), self.out / folder_name(version)
        if already := _there(target, digest):
            folder = target
        else:
            folder = await self._files(version, sums)
        report = await asyncio.to_thread(verify_snapshot, folder, public_key=self.key)
        if not report.ok:
            if not already:
                # Every byte is as it was published: what is wrong is not on the way, and no other try mends it.
                await asyncio.to_thread(shutil.rmtree, folder)
            raise CheckFailed(report.summary())
        if not already:
            await asyncio.to_thread(_settle, folder)
            folder.rename(target)
            _sync(self.out)
        errata = await self._errata(version)
        return Fetched(version, digest, target, already, report.complete, self.fetched, errata)

    async def _latest(self) -> _Latest:
        data = await self.origin.read(LATEST, _MOST_SMALL)
        if data is None:
            raise BadInput(f"{self.source} has no {LATEST}", hint="name the version, or look at --from")
        try:
            return _Latest.model_validate_json(data)
        except ValidationError as exc:
            raise CheckFailed(f"{LATEST} at {self.source} cannot be read: {exc.error_count()} faults") from exc

    async def _sums(self, version: str, stated: str | None) -> bytes:
        """SHA256SUMS, signed by the key that was given before anything else is fetched."""
        data = await self.origin.read(f"{folder_name(version)}/{SUMS}", _MOST_SUMS)
        if data is None:
            raise BadInput(
                f"medlive {version} is not published at {self.source}", hint="latest.json there lists what is"
            )
        if stated not in (None, digest_bytes(data)):
            raise CheckFailed(f"{SUMS} of {version} has not the digest that {LATEST} states")
        if self.key is not None:
            check_signature(data, (await self._signature(version)).decode("utf-8", "replace"), self.key)
        return data

    async def _signature(self, version: str) -> bytes:
        data = await self.origin.read(f"{folder_name(version)}/{SIGNATURE}", _MOST_SUMS)
        if data is None:
            raise CheckFailed(f"medlive {version} at {self.source} is not signed")
        return data

    async def _files(self, version: str, sums: bytes) -> Path:
        """A folder beside the target's place, with every file, each of its digest."""
        digests = _parsed(sums)
        folder = self.out / f".{folder_name(version)}.fetched"
        _no_links(folder)
        root = folder_name(version)
        data = await self.origin.read(f"{root}/manifest.json", _MOST_SMALL)
        if data is None or digest_bytes(data) != f"sha256:{digests['manifest.json']}":
            raise CheckFailed(f"manifest.json of {version} at {self.source} is not the one that {SUMS} names")
        manifest = _manifest(data, version)
        names = sorted(digests.keys() - {"manifest.json"})
        total = sum(manifest.files[name].size for name in names)
        _room(self.out, folder, total)
        _keep(folder, {"manifest.json": data, SUMS: sums})
        (folder / SIGNATURE).unlink(missing_ok=True)
        if manifest.signing is not None:
            _keep(folder, {SIGNATURE: await self._signature(version)})
        done = [0]

        def got(amount: int) -> None:
            self.fetched += amount
            self.progress(min(total, done[0] + amount), total)
            done[0] = min(total, done[0] + amount)

        for name in names:
            await self._file(f"{root}/{name}", folder / name, manifest.files[name], digests[name], got)
        return folder

    async def _file(
        self, name: str, path: Path, entry: FileEntry, digest: str, got: Callable[[int], None]
    ) -> None:
        begun = _begun(path, entry.size)
        await self.origin.save(name, path, entry.size, got)
        if begun and not await asyncio.to_thread(_has, path, digest):
            # What lay there was the beginning of something else: once more, from the first byte.
            _begun(path, 0)
            await self.origin.save(name, path, entry.size, got)
        if not await asyncio.to_thread(_has, path, digest):
            _begun(path, 0)
            raise CheckFailed(f"{name} at {self.source} has another digest than {SUMS} states")

    async def _errata(self, version: str) -> int | None:
        """Put the errata beside the snapshot, where `eval score` looks for them; how many concern it."""
        data = await self.origin.read(ERRATA, _MOST_SMALL)
        if data is None:
            return None
        found = parse_errata(data, f"{ERRATA} at {self.source}")
        draft = self.out / f".{ERRATA}.fetched"
        files = {draft: data}
        if (signature := await self.origin.read(ERRATA_SIGNATURE, _MOST_SUMS)) is not None:
            files[draft.with_name(f"{draft.name}.minisig")] = signature
        for path, content in files.items():
            path.write_bytes(content)
        try:
            load_errata(draft, public_key=self.key)
            there = self.out / ERRATA
            known = {(e.id, e.criterion_id) for e in load_errata(there).entries} if there.exists() else set()
            if known <= {(e.id, e.criterion_id) for e in found.entries}:
                if signature is None:
                    (self.out / ERRATA_SIGNATURE).unlink(missing_ok=True)
                for path in reversed(files):
                    path.rename(self.out / path.name[1:].replace(".fetched", ""))
        finally:
            for path in files:
                path.unlink(missing_ok=True)
        return len(found.affecting(version))


def _there(target: Path, digest: str) -> bool:
    """Whether the snapshot is there. Raises CheckFailed where something else has its name."""
    if not os.path.lexists(target):
        return False
    if digest_bytes(_read(target / SUMS)) != digest:
        raise CheckFailed(
            f"{target} is there and is another snapshot than the one that was asked for",
            hint="a published version never changes: find out which one is wrong",
        )
    return True


def _no_links(folder: Path) -> None:
    for path in (folder, *(folder / name for name in FOLDERS)):
        if path.is_symlink():
            raise CheckFailed(f"{path} is a symbolic link", hint="remove it")


def _keep(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(data)


def _begun(path: Path, most: int) -> bool:
    """Whether a beginning of the file lies there; what is none, for having more bytes than `most`, goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    there = length(path)
    if there is None or there > most:
        path.unlink(missing_ok=True)
        return False
    return there > 0


def _has(path: Path, digest: str) -> bool:
    return sha256(path) == digest


def _parsed(sums: bytes) -> dict[str, str]:
    """Name → digest. Raises CheckFailed unless the names are those of a snapshot's files, each once."""
    rows = sums.decode("utf-8", "replace").removesuffix("\n").split("\n")
    found = [match for match in map(_SUM_LINE.fullmatch, rows) if match]
    digests = {match[2]: match[1] for match in found}
    if len(found) != len(rows) or len(digests) != len(rows) or digests.keys() != set(REQUIRED):
        raise CheckFailed(f"{SUMS} names other files than a snapshot's", hint="nothing was fetched")
    return digests


def _manifest(data: bytes, version: str) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as exc:
        raise CheckFailed(
            f"the manifest cannot be read: {exc.error_count()} faults", hint="a newer medlive may read it"
        ) from exc
    if manifest.version != version:
        raise CheckFailed(f"what is published as {version} is medlive {manifest.version}")
    if manifest.files.keys() != set(REQUIRED) - {"manifest.json"}:
        raise CheckFailed("the manifest names other files than a snapshot's")
    if sum(entry.size for entry in manifest.files.values()) > MOST_BYTES:
        raise CheckFailed(f"the manifest states more than {MOST_BYTES} bytes")
    return manifest


def _room(out: Path, folder: Path, total: int) -> None:
    """Raise DiskFull where the files cannot have room, before the first byte is fetched."""
    there = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else 0
    free = shutil.disk_usage(out).free
    if total - there > free:
        raise DiskFull(f"{out} has {free} bytes left, and {total - there} are to come")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise CheckFailed(f"{path.parent} is there and is no snapshot", hint="move it away") from exc


@contextmanager
def _held(out: Path) -> Iterator[None]:
    """The folder, for this process alone; what the disk says in words of ours."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with exclusive(out / _LOCK):
            yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"no space is left in {out}", hint="make room: what came is not fetched again") from exc
        raise BadInput(f"{exc.filename or out} cannot be used: {exc.strerror or exc}") from exc
    except TooLong as exc:
        raise CheckFailed(str(exc)) from exc


def _settle(folder: Path) -> None:
    """Have the system write every file out, before the folder gets its name."""
    for path in [*folder.rglob("*"), folder]:
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
