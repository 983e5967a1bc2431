"""Fetches a published snapshot over HTTP or from a folder, and verifies it before it gets its name.

Files that an earlier try fetched whole are not fetched again.
"""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ValidationError

from medlive.digest import digest_bytes, digest_file
from medlive.errors import BadInput, CheckFailed, ServiceUnavailable, UsageError
from medlive.integrity.folder import FOLDERS, REQUIRED, SIGNATURE, SUMS, sync, writing_to
from medlive.integrity.lock import exclusive
from medlive.integrity.signing import PublicKey, check_signature
from medlive.snapshot.describe.feed import LATEST
from medlive.snapshot.errata import ERRATA, load_errata, put_errata, read_errata
from medlive.snapshot.errata import SIGNATURE as ERRATA_SIGNATURE
from medlive.snapshot.identity import folder_name
from medlive.snapshot.manifest import Digest, Manifest, Version
from medlive.snapshot.model import week_end
from medlive.snapshot.verify.run import verify_snapshot
from medlive.trust import tls_context

if TYPE_CHECKING:
    from aiohttp import ClientSession

MOST_BYTES: Final = 4 * 1024**3
"""Of all files of a snapshot; the largest one is in memory while it is fetched."""
_MOST_SMALL: Final = 64 * 1024 * 1024
_SUM_LINE: Final = re.compile(r"([0-9a-f]{64})  (\S+)")
_LOCK: Final = ".fetch.lock"
_BLOCK: Final = 256 * 1024
_TRIES: Final = 6
_CONNECT_S: Final = 15
_SILENCE_S: Final = 60
"""Seconds without a byte after which a connection counts as lost."""
_RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)."""
Read = Callable[[str, int], Awaitable[bytes | None]]
"""`read(name, most)`: a published file's bytes, cut soon after `most`; None if it does not exist."""


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
    complete: bool  # False if a step of the verification was skipped (without pyarrow, say)
    bytes_fetched: int
    errata: int | None  # How many errata concern this version; None if the place has no errata


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

    `source` is an http(s) address or a folder, `version` an ISO week such as 2026.W47 or "latest". `pause` is the
    seconds before a failed request is repeated, doubled each time.

    Raises:
        UsageError, BadInput: If the version or the source is not valid, or the version is not published there.
        CheckFailed: If anything is not as published; the snapshot does not get its name then.
        ServiceUnavailable, DiskFull: If the server refuses or cannot be reached; if the disk is full.
    """
    if version != "latest" and week_end(version) is None:
        raise UsageError(f"{version!r} is neither a version such as 2026.W47 nor latest")
    with writing_to(out):
        await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
        with exclusive(out / _LOCK):
            async with _reader(source, pause) as read:
                return await _Fetch(read, source, out, public_key, progress).run(version)


@dataclass
class _Fetch:
    read: Read
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
        already = _exists(target, digest)
        folder = target if already else await self._files(version, sums)
        report = await asyncio.to_thread(verify_snapshot, folder, public_key=self.key)
        if not report.ok:
            if not already:  # every byte is as it was published, so another try would not help
                shutil.rmtree(folder)
            raise CheckFailed(report.summary())
        if not already:
            sync(*folder.rglob("*"), folder)
            folder.rename(target)
            sync(self.out)
        errata = await self._errata(version)
        return Fetched(version, digest, target, already, report.complete, self.fetched, errata)

    async def _small(self, name: str, most: int = _MOST_SMALL) -> bytes | None:
        data = await self.read(name, most)
        if data is not None and len(data) > most:
            raise CheckFailed(f"{name} at {self.source} is longer than {most} bytes")
        return data

    async def _latest(self) -> _Latest:
        if (data := await self._small(LATEST)) is None:
            raise BadInput(f"{self.source} has no {LATEST}", hint="name the version, or check --from")
        try:
            return _Latest.model_validate_json(data)
        except ValidationError as exc:
            raise CheckFailed(f"{LATEST} at {self.source} cannot be read: {exc.error_count()} faults") from exc

    async def _sums(self, version: str, stated: str | None) -> bytes:
        """Fetch SHA256SUMS and check its signature, before anything else is fetched."""
        if (data := await self._small(f"{folder_name(version)}/{SUMS}")) is None:
            raise BadInput(
                f"medlive {version} is not published at {self.source}", hint=f"{LATEST} there lists all versions"
            )
        if stated not in (None, digest_bytes(data)):
            raise CheckFailed(f"{SUMS} of {version} does not have the digest that {LATEST} states")
        if self.key is not None:
            check_signature(data, (await self._signature(version)).decode("utf-8", "replace"), self.key)
        return data

    async def _signature(self, version: str) -> bytes:
        if (data := await self._small(f"{folder_name(version)}/{SIGNATURE}")) is None:
            raise CheckFailed(f"medlive {version} at {self.source} is not signed")
        return data

    async def _files(self, version: str, sums: bytes) -> Path:
        """Fetch every file into a hidden folder beside the target, each with its digest."""
        root, digests = folder_name(version), _parse_sums(sums)
        folder = self.out / f".{root}.fetched"
        for name in FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        data = await self._file(f"{root}/manifest.json", digests["manifest.json"], _MOST_SMALL)
        manifest = _manifest(data, version)
        (folder / "manifest.json").write_bytes(data)
        (folder / SUMS).write_bytes(sums)
        (folder / SIGNATURE).unlink(missing_ok=True)
        if manifest.signing is not None:
            (folder / SIGNATURE).write_bytes(await self._signature(version))
        done, total = 0, sum(entry.size for entry in manifest.files.values())
        for name, entry in sorted(manifest.files.items()):
            path = folder / name
            if not path.is_file() or digest_file(path) != digests[name]:
                data = await self._file(f"{root}/{name}", digests[name], entry.size)
                path.write_bytes(data)
                self.fetched += len(data)
            done += entry.size
            self.progress(done, total)
        return folder

    async def _file(self, name: str, digest: str, most: int) -> bytes:
        if (data := await self._small(name, most)) is None:
            raise BadInput(f"{name} is missing at {self.source}")
        if digest_bytes(data) != digest:
            raise CheckFailed(f"{name} at {self.source} has another digest than {SUMS} states")
        return data

    async def _errata(self, version: str) -> int | None:
        """Put the errata beside the snapshot, where `eval score` looks for them; return how many concern it."""
        if (data := await self._small(ERRATA)) is None:
            return None
        signature = await self._small(ERRATA_SIGNATURE)
        found = read_errata(data, signature, f"{ERRATA} at {self.source}", self.key)
        path = self.out / ERRATA
        try:
            existing = load_errata(path).keys if path.exists() else frozenset()
        except BadInput as exc:
            raise BadInput(exc.message, hint=f"remove {path} and fetch again") from exc
        if existing <= found.keys:
            put_errata(self.out, data, signature)
        return len(found.affecting(version))


@asynccontextmanager
async def _reader(source: str, pause: float) -> AsyncIterator[Read]:
    """Open an http(s) address or a folder for reading. Raises UsageError."""
    if "://" not in source:
        yield _folder_reader(Path(source))
        return
    parts = urlsplit(source)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{source!r} is not an address to fetch from", hint="write https://host/path")
    from aiohttp import ClientSession, ClientTimeout, TCPConnector

    connector = TCPConnector(ssl=tls_context())
    limits = ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENCE_S)
    async with ClientSession(connector=connector, timeout=limits, headers={"User-Agent": "medlive"}) as session:
        base = source.rstrip("/")
        yield lambda name, most: _get(session, f"{base}/{quote(name)}", most, pause)


def _folder_reader(root: Path) -> Read:
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder", hint="--from names a folder or an https:// address")

    async def read(name: str, most: int) -> bytes | None:
        if not (root / name).is_file():
            return None
        with (root / name).open("rb") as handle:
            return handle.read(most + 1)

    return read


async def _get(session: "ClientSession", url: str, most: int, pause: float) -> bytes | None:
    """Read an address; lost connections and passing failures are retried. Raises ServiceUnavailable."""
    from aiohttp import ClientError

    problem = ""
    for number in range(_TRIES):
        if number:
            await asyncio.sleep(pause * 2 ** (number - 1))
        try:
            async with session.get(url) as answer:
                problem = f"HTTP {answer.status}"
                if answer.status == 404:
                    return None
                if answer.status == 410:
                    hint = "fetch a later version: errata.json there says what was taken down"
                    raise BadInput(f"{url} was withdrawn and is no longer given out", hint=hint)
                if answer.status == 200:
                    data = bytearray()
                    async for block in answer.content.iter_chunked(_BLOCK):
                        data += block
                        if len(data) > most:
                            break
                    return bytes(data)
                if answer.status not in _RETRIED:
                    raise ServiceUnavailable(f"{url} cannot be fetched: {problem}", hint="check --from")
        except (ClientError, TimeoutError) as exc:
            problem = str(exc) or type(exc).__name__
    raise ServiceUnavailable(
        f"{url} cannot be fetched: {problem}"[:500],
        hint="check --from and the network; the same command continues where this one stopped",
    )


def _exists(target: Path, digest: str) -> bool:
    """Return whether the snapshot exists. Raises CheckFailed if something else has its name."""
    if os.path.lexists(target) and not ((target / SUMS).is_file() and digest_file(target / SUMS) == digest):
        raise CheckFailed(
            f"{target} exists and is another snapshot than the one to fetch",
            hint="a published version never changes: find out which one is wrong",
        )
    return target.exists()


def _parse_sums(sums: bytes) -> dict[str, str]:
    """Return name → digest. Raises CheckFailed unless the names are those of a snapshot's files, each once."""
    rows = sums.decode("utf-8", "replace").removesuffix("\n").split("\n")
    found = [match for match in map(_SUM_LINE.fullmatch, rows) if match]
    digests = {match[2]: f"sha256:{match[1]}" for match in found}
    if not len(found) == len(rows) == len(digests) or digests.keys() != set(REQUIRED):
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
