"""Fetching from a place that sets errata back, leads inside, drips, or had its hand in the half-fetched folder."""

import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from httpx2 import URL

from medlive.errors import BadInput, CheckFailed, MedliveError, ServiceUnavailable
from medlive.guard.http import AddressRefused, resolve_name
from medlive.integrity.folder import SUMS
from medlive.integrity.signing import PublicKey, SecretKey, generate
from medlive.publishing import reading
from medlive.publishing.download import fetch_snapshot
from medlive.publishing.publish import prepare_release, publish
from medlive.publishing.reading import check_redirect
from medlive.publishing.target import FolderTarget
from medlive.snapshot.errata import Errata, load_errata
from tests.support.fetching import NAME, VERSION, Web, erratum, found, get, offer
from tests.support.snapshots import Line, build_line

pytestmark = pytest.mark.whole

# --- errata and versions never go back


REINSTATED = {"reinstated_at": datetime(2026, 11, 28, tzinfo=UTC)}


@pytest.mark.thorough
async def test_older_errata_never_undo_newer_ones(
    line: Line, server: Web, tmp_path: Path
) -> None:
    server.root = Path(shutil.copytree(server.root, tmp_path / "public"))
    newer = Errata(entries=(erratum(1, **REINSTATED), erratum(2)))
    offer(server, newer, line.key)
    assert (await get(server, tmp_path, key=line.key))["errata"] == 1
    before = (
        (tmp_path / "errata.json").read_bytes(),
        (tmp_path / "errata.json.minisig").read_bytes(),
    )
    older = (
        Errata(entries=(erratum(1), erratum(2))),
        Errata(entries=(erratum(1, **REINSTATED),)),
        Errata(entries=(erratum(1, **REINSTATED), erratum(2, snapshots=("2026.W44",)))),
        Errata(),
    )
    for errata in older:
        for key in (line.key, None):
            offer(server, errata, line.key)
            done = await get(server, tmp_path, key=key)
            assert "older than the errata here" in (done["errata_kept"] or "")
            assert done["errata"] == 1
            now = (
                (tmp_path / "errata.json").read_bytes(),
                (tmp_path / "errata.json.minisig").read_bytes(),
            )
            assert now == before
    kept = {}
    for name in ("errata.json.minisig", "errata.json"):
        kept[name] = (server.root / name).read_bytes()
        (server.root / name).unlink()
        with suppress(MedliveError):
            await get(server, tmp_path, key=line.key)
        assert ((tmp_path / "errata.json").read_bytes(), before[1]) == before
        assert (tmp_path / "errata.json.minisig").read_bytes() == before[1]
    for name, data in kept.items():
        (server.root / name).write_bytes(data)
    newest = Errata(entries=(*newer.entries, erratum(3)))
    offer(server, newest, line.key)
    done = await get(server, tmp_path)
    assert (done["errata"], done["errata_kept"]) == (2, None)
    assert load_errata(tmp_path / "errata.json", public_key=line.key.public) == newest


@pytest.mark.thorough
async def test_signed_errata_are_replaced_by_the_same_signer_alone(
    line: Line, server: Web, tmp_path: Path
) -> None:
    server.root = Path(shutil.copytree(server.root, tmp_path / "public"))
    await get(server, tmp_path)
    before = (
        (tmp_path / "errata.json").read_bytes(),
        (tmp_path / "errata.json.minisig").read_bytes(),
    )
    stranger = SecretKey.parse(generate()[0])
    same_id = SecretKey(
        PublicKey(line.key.public.key_id, stranger.public.raw), stranger.seed
    )
    more = Errata(entries=(erratum(1),))
    for key in (None, stranger, same_id):
        offer(server, more, key)
        with pytest.raises(CheckFailed) as caught:
            await get(server, tmp_path)
        expected = "ask the publisher" if key is None else "--public-key"
        assert expected in (caught.value.hint or "")
        assert (tmp_path / "errata.json").read_bytes() == before[0]
        assert (tmp_path / "errata.json.minisig").read_bytes() == before[1]
    (tmp_path / NAME).rename(tmp_path / "elsewhere")
    server.root.joinpath(NAME).rename(tmp_path / "signed")
    shutil.copytree(
        build_line(tmp_path / "unsigned", signed=False).last, server.root / NAME
    )
    offer(server, more, line.key)
    with pytest.raises(CheckFailed):
        await get(server, tmp_path)
    offer(server, more, stranger)
    with pytest.raises(CheckFailed):
        await get(server, tmp_path, key=line.key)
    assert (tmp_path / "errata.json").read_bytes() == before[0]


async def test_the_same_errata_come_again_although_no_snapshot_names_their_key(
    server: Web, tmp_path: Path
) -> None:
    server.root = Path(shutil.copytree(server.root, tmp_path / "public"))
    offer(server, Errata(entries=(erratum(1),)), SecretKey.parse(generate()[0]))
    for _ in range(2):
        done = await get(server, tmp_path)
        assert (done["errata"], done["errata_kept"]) == (1, None)


async def test_the_same_errata_without_their_signature_leave_it_where_it_is(
    server: Web, tmp_path: Path
) -> None:
    server.root = Path(shutil.copytree(server.root, tmp_path / "public"))
    await get(server, tmp_path)
    signature = (tmp_path / "errata.json.minisig").read_bytes()
    (server.root / "errata.json.minisig").unlink()
    assert (await get(server, tmp_path))["errata_kept"] is None
    assert (tmp_path / "errata.json.minisig").read_bytes() == signature


async def test_an_older_latest_is_refused_unless_it_is_named(
    line: Line, server: Web, published: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    await get(server, out, "latest")
    server.root = tmp_path / "old"
    publish(prepare_release(line.releases[0].path), FolderTarget(server.root), None)
    with pytest.raises(
        CheckFailed,
    ):
        await get(server, out, "latest")
    assert not found(out, "*2026.W43")
    assert (await get(server, out, "2026.W43"))["version"] == "2026.W43"


# --- what a server or a half-fetched folder may do


@pytest.mark.parametrize("place", ["file", "folder", "whole", "hard"])
async def test_no_link_in_a_half_fetched_folder_is_written_through(
    server: Web, tmp_path: Path, place: str
) -> None:
    out, begun = tmp_path / "out", tmp_path / "out" / f".{NAME}.fetched"
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "README.md").write_text("mine")
    (begun.parent if place == "whole" else begun).mkdir(parents=True)
    if place == "whole":
        begun.symlink_to(victim)
    elif place == "folder":
        (begun / "data").symlink_to(victim)
    elif place == "hard":
        (begun / "README.md").hardlink_to(victim / "README.md")
    else:
        (begun / "README.md").symlink_to(victim / "README.md")
    with pytest.raises(BadInput) as caught:
        await get(server, out)
    assert f"remove {begun}" in (caught.value.hint or "")
    assert [path.name for path in victim.iterdir()] == ["README.md"]
    assert (victim / "README.md").read_text() == "mine"
    assert not (out / NAME).exists()


async def test_a_link_in_a_published_folder_is_not_read(
    server: Web, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(server.root, tmp_path / "public"))
    (root / NAME / "README.md").rename(tmp_path / "readme")
    (root / NAME / "README.md").symlink_to(tmp_path / "readme")
    with pytest.raises(BadInput, match="over a link"):
        await fetch_snapshot(str(root), VERSION, tmp_path / "out")


INNER = "127.0.0.2"


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world in which 127.0.0.1 is public and everything else is not; `inner.test` leads inside."""

    async def resolve(host: str, port: int) -> list[str]:
        if host == "inner.test":
            return [INNER]
        return ["127.0.0.1"] if host.endswith(".test") else resolve_name(host, port)

    monkeypatch.setattr(reading, "any_address", resolve)
    monkeypatch.setattr(reading, "may_connect", lambda address: address == "127.0.0.1")


INWARD = [
    ("http://127.0.0.2:{port}/data/{name}", "not a public address"),
    ("http://inner.test:{port}/data/{name}", "not a public address"),
    ("http://[::1]:{port}/data/{name}", "not a public address"),
    ("http://[::ffff:127.0.0.2]:{port}/data/{name}", "not a public address"),
    ("http://2130706434:{port}/data/{name}", "not a public address"),
    ("http://127.2:{port}/data/{name}", "not a public address"),
    ("http://user@site.test:{port}/data/{name}", "no plain http or https address"),
    ("file:///etc/passwd", "no plain http or https address"),
    ("ftp://site.test/x", "no plain http or https address"),
    ("//", "redirects"),
    ("/data/{name}", "more than 5 redirects"),
]


async def test_a_redirect_leads_to_no_inner_host_and_ends(
    server: Web, tmp_path: Path, outside: None
) -> None:
    port = server.url.rpartition(":")[2].partition("/")[0]
    source = f"http://site.test:{port}/data"
    for target, reason in INWARD:
        server.asked.clear()
        server.moved = {"latest.json": target.format(port=port, name="latest.json")}
        with pytest.raises(ServiceUnavailable, match=reason):
            await fetch_snapshot(source, "latest", tmp_path)
        assert set(server.asked) == {"latest.json"}, target
        assert len(server.asked) <= 6, target


async def test_a_redirect_to_another_public_host_is_followed(
    server: Web, tmp_path: Path, outside: None
) -> None:
    port = server.url.rpartition(":")[2].partition("/")[0]
    server.moved = {"latest.json": f"http://other.test:{port}/data/moved.json"}
    server.alias = {"moved.json": "latest.json"}
    source = f"http://site.test:{port}/data"
    done = await fetch_snapshot(source, "latest", tmp_path)
    assert done["version"] == VERSION


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://127.0.0.1:{port}/data/moved.json", None),
        ("http://127.0.0.1:1/data/moved.json", "not a public address"),
        ("http://127.0.0.2:{port}/data/moved.json", "not a public address"),
        ("http://inner.test:{port}/data/moved.json", "not a public address"),
    ],
)
async def test_an_inner_host_that_was_named_leads_to_no_other(
    server: Web,
    tmp_path: Path,
    target: str,
    reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
    outside: None,
) -> None:
    port = server.url.rpartition(":")[2].partition("/")[0]
    server.moved = {"latest.json": target.format(port=port)}
    server.alias = {"moved.json": "latest.json"}
    monkeypatch.setattr(reading, "may_connect", lambda address: False)
    if reason is None:
        assert (await fetch_snapshot(server.url, "latest", tmp_path))[
            "version"
        ] == VERSION
        return
    with pytest.raises(ServiceUnavailable, match=reason):
        await fetch_snapshot(server.url, "latest", tmp_path)
    assert server.asked == ["latest.json"]


async def test_a_name_that_changes_its_address_after_the_first_answer_is_refused(
    server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outside: None
) -> None:
    port = server.url.rpartition(":")[2].partition("/")[0]
    answers = iter([["127.0.0.1"]])
    server.moved = {"latest.json": f"http://other.test:{port}/data/latest.json"}

    async def resolve(host: str, port: int) -> list[str]:
        return next(answers, [INNER])

    monkeypatch.setattr(reading, "any_address", resolve)
    with pytest.raises(ServiceUnavailable, match=INNER):
        await fetch_snapshot(f"http://site.test:{port}/data", "latest", tmp_path)
    assert server.asked == ["latest.json"]


async def test_a_redirect_from_https_to_http_is_refused() -> None:
    check_redirect(URL("http://a.test/x"), URL("https://b.test/y"))
    with pytest.raises(AddressRefused, match="no plain https"):
        check_redirect(URL("https://a.test/x"), URL("http://a.test/x"))


async def test_a_server_that_drips_is_given_up(
    server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.drip = f"{NAME}/{SUMS}"
    monkeypatch.setattr(reading, "FETCH_GRACE_S", 0.02)
    monkeypatch.setattr(reading, "FETCH_LEAST_RATE", 1e12)
    with pytest.raises(ServiceUnavailable, match="slow"):
        await fetch_snapshot(server.url, VERSION, tmp_path)
    assert not found(tmp_path, "medlive-*")
