"""What these tests share: a published line of releases, and a server over it."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from medlive.integrity.signing import sign
from medlive.publishing import reading
from medlive.publishing.publish import prepare_release, publish
from medlive.publishing.target import FolderTarget
from medlive.snapshot.errata import Errata, trusted_comment, write_errata_file
from tests.support.fetching import Web
from tests.support.snapshots import Line, build_line


@pytest.fixture(scope="session")
def line(tmp_path_factory: pytest.TempPathFactory) -> Line:
    return build_line(tmp_path_factory.mktemp("line"))


@pytest.fixture(scope="session")
def published(line: Line, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder, not to be changed."""
    root = tmp_path_factory.mktemp("public")
    signer = partial(
        sign,
        key=line.key,
        trusted_comment=trusted_comment(Errata()),
        untrusted_comment="errata",
    )
    write_errata_file(line.root, Errata(), signer)
    for release in (line.releases[0], line.releases[2]):
        publish(prepare_release(release.path), FolderTarget(root), None)
    return root


@pytest.fixture
async def server(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Web]:
    monkeypatch.setattr(reading, "PAUSE_S", 0.001)
    site = Web(published)
    app = web.Application()
    app.router.add_get("/data/{name:.*}", site.answer)
    async with TestServer(app) as running:
        site.url = str(running.make_url("/data"))
        yield site
