"""A place of publication on this machine, as it should be and as a stranger would have it, to fetch from."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from medlive.integrity.signing import SecretKey, sign
from medlive.publishing.download import fetch_snapshot
from medlive.snapshot.errata import (
    Errata,
    Erratum,
    WithdrawalKind,
    trusted_comment,
    write_errata_file,
)

VERSION = "2026.W45"
NAME = f"medlive-{VERSION}"


@dataclass
class Web:
    """A web server over a published folder, and how it behaves."""

    root: Path
    url: str = ""
    asked: list[str] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)
    """Path → bytes after which the connection is dropped, once."""
    statuses: list[int] = field(default_factory=list)
    """Answered first, one a request."""
    endless: str | None = None
    """A path whose file never ends."""
    drip: str | None = None
    """A path whose file comes one byte at a time, for ever."""
    moved: dict[str, str] = field(default_factory=dict)
    """Path → where it is redirected to."""
    alias: dict[str, str] = field(default_factory=dict)
    """Path → the file that is given out instead."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        name = request.path.removeprefix("/data/")
        self.asked.append(name)
        if self.statuses:
            return web.Response(status=self.statuses.pop(0))
        if name in self.moved:
            raise web.HTTPFound(self.moved[name])
        name = self.alias.get(name, name)
        path = self.root / name
        if not path.is_file():
            raise web.HTTPNotFound
        if self.endless == name:
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(10_000):
                await response.write(b"x" * 65536)
            return response
        if self.drip == name:
            response = web.StreamResponse()
            await response.prepare(request)
            while not request.transport.is_closing():
                await response.write(b"x")
                await asyncio.sleep(0.005)
            return response
        if name in self.cut:
            response = web.StreamResponse(
                headers={"Content-Length": str(path.stat().st_size)}
            )
            await response.prepare(request)
            await response.write(path.read_bytes()[: self.cut.pop(name)])
            request.transport.close()
            return response
        return web.FileResponse(path)


async def get(
    site: Web, out: Path, version: str = VERSION, key: SecretKey | None = None
) -> dict[str, Any]:
    return await fetch_snapshot(site.url, version, out, key.public if key else None)


def erratum(number: int, **changes: Any) -> Erratum:
    """A withdrawal of a case that the snapshot holds."""
    values = {
        "id": number,
        "issued_at": datetime(2026, 11, 21, tzinfo=UTC),
        "kind": WithdrawalKind.ERRATUM,
        "case_id": f"ml-{number:012x}",
        "criterion_id": None,
        "reason": "The dose is of another drug.",
        "revision": None,
        "snapshots": (VERSION,),
        "fixed_in": None,
    }
    return Erratum.model_validate(values | changes)


def offer(site: Web, errata: Errata, key: SecretKey | None) -> None:
    """Publish errata, signed with a key or without one."""
    signer = None
    if key is not None:
        signer = partial(
            sign,
            key=key,
            trusted_comment=trusted_comment(errata),
            untrusted_comment="errata",
        )
    for name in ("errata.json", "errata.json.minisig"):
        (site.root / name).unlink(missing_ok=True)
    write_errata_file(site.root, errata, signer)


def found(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))
