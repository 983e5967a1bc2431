"""Fetching what was published: over HTTP from a server on this machine, and from a folder."""

import errno
import io
import json
import shutil
from pathlib import Path

import pytest

from medlive.errors import (
    BadInput,
    CheckFailed,
    DiskFull,
    MedliveError,
    ServiceUnavailable,
    UsageError,
)
from medlive.integrity.folder import SUMS, list_files
from medlive.integrity.paths import create_below
from medlive.integrity.signing import SecretKey, generate
from medlive.publishing.download import fetch_snapshot
from medlive.publishing.publish import prepare_release, publish
from medlive.publishing.target import FolderTarget
from medlive.snapshot.errata import Errata, load_errata
from medlive.snapshot.load import load_snapshot
from tests.support.entries import Entries
from tests.support.fetching import NAME, VERSION, Web, erratum, found, get, offer
from tests.support.instance import Instance
from tests.support.snapshots import Line, added, freeze, small_case

pytestmark = pytest.mark.whole


def full(folder: Path, name: str, **_: object) -> io.FileIO:
    """Write half of nothing on a disk that is full."""
    create_below(folder, name).close()
    raise OSError(errno.ENOSPC, "no space")


def no_space(_handle: int) -> None:
    """A disk that is full."""
    raise OSError(errno.ENOSPC, "no space")


def same(one: Path, other: Path) -> bool:
    files = list_files(one)[0].keys()
    return files == list_files(other)[0].keys() and all(
        (one / n).read_bytes() == (other / n).read_bytes() for n in files
    )


async def test_the_latest_comes_whole_signed_and_once(
    line: Line, server: Web, tmp_path: Path
) -> None:
    done = await get(server, tmp_path, "latest", line.key)
    assert (done["version"], done["already"], done["errata"]) == (VERSION, False, 0)
    assert same(tmp_path / NAME, line.last)
    assert load_errata(tmp_path / "errata.json") == Errata()
    assert load_snapshot(tmp_path / NAME).digest == done["digest"]
    server.asked.clear()
    again = await get(server, tmp_path, key=line.key)
    assert again["already"] is True
    assert not any("data/" in name for name in server.asked)
    from_folder = await fetch_snapshot(str(server.root), VERSION, tmp_path / "two")
    assert same(from_folder["path"], line.last)


def test_the_command_names_what_was_not_verified(
    published: Path, tmp_path: Path
) -> None:
    instance = Instance(tmp_path, "postgresql://nobody@127.0.0.1:9/medlive")
    signed = instance.here(
        "snapshot", "fetch", VERSION, "--from", published, "--out", tmp_path / "one"
    )
    assert "integrity, not origin" in signed.err
    cases = [small_case("a0", "2026.W43")]
    entries = Entries(added(cases, "2026.W43"))
    frozen = freeze(tmp_path / "frozen", "2026.W43", cases, entries)
    publish(prepare_release(frozen.path), FolderTarget(tmp_path / "public"), None)
    unsigned = instance.here(
        "snapshot",
        "fetch",
        "2026.W43",
        "--from",
        tmp_path / "public",
        "--out",
        tmp_path / "two",
    )
    assert "skipped: step 1 (the signature" in unsigned.err
    assert "unsigned" in unsigned.err


async def test_errata_that_could_not_be_written_leave_the_former_ones(
    line: Line, server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await get(server, tmp_path)
    before = (tmp_path / "errata.json").read_bytes()
    server.root = Path(shutil.copytree(server.root, tmp_path / "public"))
    offer(server, Errata(entries=(erratum(1),)), line.key)

    with monkeypatch.context() as patch:
        patch.setattr("medlive.integrity.log.os.fsync", no_space)
        with pytest.raises(DiskFull):
            await get(server, tmp_path)
    assert (tmp_path / "errata.json").read_bytes() == before
    (tmp_path / "errata.json").write_bytes(before[:-9])
    with pytest.raises(BadInput, match="is not a valid errata file"):
        await get(server, tmp_path)


async def test_a_manifest_of_too_many_bytes_is_refused(
    server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medlive.publishing.download.FETCH_BYTES", 1_000)
    with pytest.raises(CheckFailed):
        await get(server, tmp_path)
    assert not any("data/" in name for name in server.asked)


async def test_a_file_of_a_folder_is_read_no_further_than_its_size(
    server: Web, tmp_path: Path
) -> None:
    root = tmp_path / "public"
    shutil.copytree(server.root, root)
    with (root / NAME / "data/cases.jsonl").open("ab") as handle:
        handle.truncate(1 << 40)  # sparse
    with pytest.raises(CheckFailed, match="longer"):
        await fetch_snapshot(str(root), VERSION, tmp_path / "out")


async def test_what_was_cut_off_is_asked_for_again(
    line: Line, server: Web, tmp_path: Path
) -> None:
    name = f"{NAME}/data/cases.jsonl"
    server.cut = {name: 100}
    server.statuses = [503, 429]
    await get(server, tmp_path)
    assert same(tmp_path / NAME, line.last)
    assert server.asked.count(name) == 2


async def test_an_earlier_try_is_gone_on_with_and_its_faults_are_mended(
    line: Line, server: Web, tmp_path: Path
) -> None:
    begun = tmp_path / f".{NAME}.fetched"
    shutil.copytree(line.last, begun)
    (begun / "data/criteria.jsonl").unlink()
    whole = (begun / "livemedbench.json").read_bytes()
    (begun / "livemedbench.json").write_bytes(whole[:50])
    (begun / "README.md").write_bytes((begun / "README.md").read_bytes() + b"longer")
    await get(server, tmp_path)
    assert same(tmp_path / NAME, line.last)
    small = {
        SUMS,
        "manifest.json",
        f"{SUMS}.minisig",
        "errata.json",
        "errata.json.minisig",
    }
    fetched = {"data/criteria.jsonl", "livemedbench.json", "README.md"}
    assert {n.removeprefix(f"{NAME}/") for n in server.asked} - small == fetched


@pytest.mark.matrix
@pytest.mark.parametrize(
    "spoil",
    [
        "byte",
        "sums",
        "traversal",
        "absolute",
        "manifest",
        "missing",
        "short",
        "signature",
        "latest",
        "meaning",
        "swap",
    ],
)
async def test_nothing_gets_its_name_that_is_not_as_it_was_published(
    line: Line, server: Web, tmp_path: Path, spoil: str
) -> None:
    server.root = Path(shutil.copytree(server.root, tmp_path / "public"))
    folder = server.root / NAME
    files = {
        "byte": "figures/axes.svg",
        "short": "data/cases.parquet",
        "manifest": "manifest.json",
    }
    if spoil in files:
        data = (folder / files[spoil]).read_bytes()
        (folder / files[spoil]).write_bytes(
            data[:-3] + (b"" if spoil == "short" else b"???")
        )
    elif spoil == "missing":
        (folder / "CHANGES.md").unlink()
    elif spoil == "signature":
        (folder / f"{SUMS}.minisig").write_bytes(
            (line.releases[0].path / f"{SUMS}.minisig").read_bytes()
        )
    elif spoil == "latest":
        said = json.loads((server.root / "latest.json").read_bytes())
        (server.root / "latest.json").write_text(
            json.dumps(said | {"digest": "sha256:" + "0" * 64})
        )
    elif spoil == "meaning":
        # Every digest fits, and only the verification can tell.
        data = (folder / "manifest.json").read_bytes()
        (folder / "manifest.json").write_bytes(data.replace(b'"held": 2', b'"held": 3'))
        reseal(folder)
    elif spoil == "swap":
        # Another version, whole and signed.
        shutil.rmtree(folder)
        shutil.copytree(line.releases[0].path, folder)
    else:
        text = (folder / SUMS).read_text()
        other = {
            "sums": "data/casus.jsonl",
            "traversal": "../../escaped.jsonl",
            "absolute": "/tmp/escaped.jsonl",
        }
        (folder / SUMS).write_text(text.replace("data/cases.jsonl", other[spoil]))
    out = tmp_path / "out"
    with pytest.raises(
        (CheckFailed, BadInput),
        match=r"axes\.svg" if spoil == "byte" else ".",
    ):
        await get(server, out, "latest" if spoil == "latest" else VERSION)
    assert not (out / NAME).exists()
    assert not found(tmp_path, "**/escaped*")
    if spoil == "meaning":
        assert not found(out, ".medlive-*"), "what no other try mends is not kept"


def reseal(folder: Path) -> None:
    """Make SHA256SUMS fit what lies there."""
    from medlive.integrity.folder import REQUIRED, sha256

    (folder / SUMS).write_text(
        "".join(f"{sha256(folder / name)}  {name}\n" for name in sorted(REQUIRED))
    )


async def test_a_key_that_has_not_signed_is_refused_before_the_files_come(
    line: Line, server: Web, tmp_path: Path
) -> None:
    with pytest.raises(CheckFailed):
        await get(server, tmp_path, key=SecretKey.parse(generate()[0]))
    assert server.asked == [f"{NAME}/{SUMS}", f"{NAME}/{SUMS}.minisig"]


@pytest.mark.thorough
async def test_a_server_that_sends_too_much_or_nothing_is_given_up(
    server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for server.endless in (f"{NAME}/{SUMS}", f"{NAME}/LICENSE"):
        with pytest.raises(CheckFailed, match="longer"):
            await get(server, tmp_path)
    server.endless = None
    for status, times in ((500, 20), (403, 1)):
        server.statuses = [status] * times
        with pytest.raises(ServiceUnavailable, match=str(status)):
            await get(server, tmp_path)

    monkeypatch.setattr("medlive.publishing.download.create_below", full)
    with pytest.raises(DiskFull):
        await get(server, tmp_path)
    assert not found(tmp_path, "medlive-*")


@pytest.mark.parametrize(
    ("source", "version", "error"),
    [
        ("{url}", "2026.W44", BadInput),
        ("{url}", "2026.W99", UsageError),
        ("{url}", "../x", UsageError),
        ("ftp://host/x", VERSION, UsageError),
        ("no-such-folder", VERSION, UsageError),
        ("http://127.0.0.1:9/x", VERSION, ServiceUnavailable),
        ("{url}/nothing", "latest", BadInput),
    ],
)
async def test_what_is_wrong_with_the_wish_is_said(
    server: Web, tmp_path: Path, source: str, version: str, error: type[MedliveError]
) -> None:
    with pytest.raises(error):
        await fetch_snapshot(source.format(url=server.url), version, tmp_path / "out")
    assert not found(tmp_path / "out", "medlive-*")


async def test_another_snapshot_of_that_name_is_left_alone(
    line: Line, server: Web, tmp_path: Path
) -> None:
    shutil.copytree(line.releases[0].path, tmp_path / NAME)
    with pytest.raises(CheckFailed, match="another snapshot"):
        await get(server, tmp_path)
    assert same(tmp_path / NAME, line.releases[0].path)
