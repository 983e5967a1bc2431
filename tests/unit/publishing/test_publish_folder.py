"""Publishing to a folder: what may be published, what never changes, and what tells of it."""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from xml.etree import ElementTree

import pytest

from medlive.__main__ import run
from medlive.errors import BadInput, CheckFailed, DiskFull, MedliveError
from medlive.integrity.folder import SUMS
from medlive.integrity.log import Locked
from medlive.integrity.signing import SecretKey, generate, sign
from medlive.publishing.publish import (
    PreparedRelease,
    Published,
    prepare_release,
    publish,
)
from medlive.publishing.target import FolderTarget, Item
from medlive.snapshot.errata import (
    Errata,
    Erratum,
    WithdrawalKind,
    trusted_comment,
    write_errata_file,
)
from medlive.snapshot.load import load_snapshot
from medlive.snapshot.verify.steps import verify_snapshot
from tests.support.entries import Entries
from tests.support.snapshots import Line, build_line, freeze

pytestmark = pytest.mark.whole

ATOM = "{http://www.w3.org/2005/Atom}"
BASE = "https://data.example/medlive"


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Line:
    return build_line(tmp_path_factory.mktemp("line"))


@pytest.fixture(scope="module")
def made(line: Line) -> dict[str, PreparedRelease]:
    """Each version of the line, verified."""
    return {
        r.manifest.version: prepare_release(r.path, line.key.public)
        for r in line.releases
    }


@pytest.fixture
def target(tmp_path: Path) -> FolderTarget:
    return FolderTarget(tmp_path / "public")


def send(
    target: FolderTarget,
    snapshot: PreparedRelease,
    base_url: str | None = None,
) -> Published:
    return publish(snapshot, target, base_url)


def tree(root: Path) -> dict[str, tuple[str, int]]:
    """What lies there: name → digest and moment of the last change."""
    return {
        str(p.relative_to(root)): (
            hashlib.sha256(p.read_bytes()).hexdigest(),
            p.stat().st_mtime_ns,
        )
        for p in root.rglob("*")
        if p.is_file() and p.name != ".publish.lock"
    }


def latest(target: FolderTarget) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((target.root / "latest.json").read_bytes())
    return value


def test_a_line_is_published_in_any_order_and_twice(
    line: Line, made: dict[str, PreparedRelease], target: FolderTarget
) -> None:
    for version in ("2026.W45", "2026.W43", "2026.W44"):
        assert send(target, made[version]).sent[-1] == f"medlive-{version}/{SUMS}"
        assert latest(target)["version"] == "2026.W45"
    for version, snapshot in made.items():
        folder = target.root / f"medlive-{version}"
        report = verify_snapshot(folder, public_key=line.key.public)
        assert (report.ok, report.complete) == (True, True)
        subprocess.run(["sha256sum", "--quiet", "-c", SUMS], cwd=folder, check=True)
        if shutil.which("minisign"):
            subprocess.run(
                ["minisign", "-Vqm", SUMS, "-p", "../minisign.pub"],
                cwd=folder,
                check=True,
            )
        assert (
            snapshot.digest
            == f"sha256:{hashlib.sha256((folder / SUMS).read_bytes()).hexdigest()}"
        )
    said = latest(target)
    assert [v["version"] for v in said["versions"]] == sorted(made, reverse=True)
    for name, file in said["files"].items():
        data = (target.root / file["url"]).read_bytes()
        assert (file["size"], file["sha256"]) == (
            len(data),
            hashlib.sha256(data).hexdigest(),
        ), name
    before = tree(target.root)
    for snapshot in made.values():
        again = send(target, snapshot)
        assert again.sent == []
    assert tree(target.root) == before


def test_a_half_published_version_is_not_listed_and_finished(
    made: dict[str, PreparedRelease], target: FolderTarget
) -> None:
    send(target, made["2026.W43"])
    (target.root / "medlive-2026.W43" / SUMS).unlink()
    (target.root / "medlive-2026.W43" / "data/cases.jsonl").unlink()
    (target.root / ".publish-partial").write_bytes(b"of a killed run")
    send(target, made["2026.W44"])
    assert [v["version"] for v in latest(target)["versions"]] == ["2026.W44"]
    done = send(target, made["2026.W43"])
    assert done.sent == [
        "medlive-2026.W43/data/cases.jsonl",
        f"medlive-2026.W43/{SUMS}",
    ]
    assert done.latest == "2026.W44"
    assert not (target.root / ".publish-partial").exists()


@pytest.mark.parametrize("spoil", ["bytes", "size", "extra", "link"])
def test_what_lies_there_otherwise_is_named_and_nothing_is_written(
    made: dict[str, PreparedRelease], target: FolderTarget, tmp_path: Path, spoil: str
) -> None:
    send(target, made["2026.W43"])
    folder = target.root / "medlive-2026.W43"
    victim = folder / ("data/other.jsonl" if spoil == "extra" else "data/cases.jsonl")
    data = victim.read_bytes() if victim.exists() else b""
    victim.unlink(missing_ok=True)
    if spoil == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        victim.symlink_to(tmp_path / "elsewhere")
    else:
        victim.write_bytes(b"?" + data[1:] + (b"x" if spoil != "bytes" else b""))
    (folder / SUMS).unlink()
    (target.root / "latest.json").unlink()
    before = tree(target.root)
    with pytest.raises(MedliveError, match=re.escape(victim.name)):
        send(target, made["2026.W43"])
    assert tree(target.root) == before


def test_only_a_verified_and_publishable_snapshot_goes_out(
    line: Line,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.support.publishing import a_snapshot

    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path / "home"))
    out = tmp_path / "public"

    def command(folder: Path, *options: str) -> tuple[int, str]:
        status = run(
            [
                "snapshot",
                "publish",
                str(folder),
                "--to",
                "folder",
                "--at",
                str(out),
                *options,
            ]
        )
        said = capsys.readouterr()
        return status, said.out + said.err

    spoilt = shutil.copytree(line.last, tmp_path / line.last.name)
    with (spoilt / "data/cases.jsonl").open("ab") as handle:
        handle.write(b"\n")
    status, said = command(spoilt)
    assert status == 1
    assert "fails verification" in said
    draft = a_snapshot(tmp_path, "2026.W50", why_not=("the rules engine made it",))
    status, said = command(draft)
    assert status == 1
    assert "not publishable: the rules engine made it" in said
    (tmp_path / "other.pub").write_text(SecretKey.parse(generate()[0]).public.text())
    assert command(line.last, "--public-key", str(tmp_path / "other.pub"))[0] == 1
    assert command(tmp_path / "nothing")[0] == 2
    assert not out.exists()

    assert command(line.last, "--base-url", "javascript:alert(1)")[0] == 2
    assert command(line.last, "--base-url", BASE)[0] == 0
    assert (
        json.loads((out / "latest.json").read_bytes())["url"]
        == f"{BASE}/{line.last.name}/"
    )
    capsys.readouterr()
    assert (
        run(
            [
                "snapshot",
                "fetch",
                "latest",
                "--from",
                str(out),
                "--out",
                str(tmp_path / "got"),
                "--json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["path"] == str(
        tmp_path / "got" / line.last.name
    )
    # A home with a frozen snapshot: without an argument the newest is meant.
    shutil.copytree(line.last, tmp_path / "home" / "snapshots" / line.last.name)
    assert run(["snapshot", "publish", "--at", str(out)]) == 0


def test_another_line_under_the_same_names_is_refused(
    made: dict[str, PreparedRelease], target: FolderTarget, tmp_path: Path
) -> None:
    send(target, made["2026.W43"])
    other = prepare_release(build_line(tmp_path / "other", signed=False).last)
    before = tree(target.root)
    with pytest.raises(CheckFailed, match="both called"):
        send(target, other)
    assert tree(target.root) == before


def test_an_unsigned_release_does_not_follow_a_signed_one(
    line: Line, made: dict[str, PreparedRelease], target: FolderTarget, tmp_path: Path
) -> None:
    for snapshot in made.values():
        send(target, snapshot)
    before = tree(target.root)
    cases = list(load_snapshot(line.last, verify=False))
    unsigned = freeze(
        tmp_path / "next", "2026.W46", cases, Entries(), line.releases[-1]
    )
    with pytest.raises(CheckFailed):
        send(target, prepare_release(unsigned.path))
    assert tree(target.root) == before
    signed = freeze(
        tmp_path / "signed",
        "2026.W46",
        cases,
        Entries(),
        line.releases[-1],
        line.key,
    )
    assert (
        send(target, prepare_release(signed.path, line.key.public)).latest == "2026.W46"
    )


def test_the_feed_is_atom(
    made: dict[str, PreparedRelease], target: FolderTarget
) -> None:
    base_url = BASE + "/"
    for snapshot in made.values():
        send(target, snapshot, base_url)
    feed = ElementTree.fromstring((target.root / "feed.xml").read_bytes())
    assert feed.tag == f"{ATOM}feed"
    check_common(feed)
    assert feed.findtext(f"{ATOM}author/{ATOM}name")
    assert links(feed, "self") == [f"{BASE}/feed.xml"]
    entries = feed.findall(f"{ATOM}entry")
    assert [e.findtext(f"{ATOM}title") for e in entries] == [
        f"medlive {v}" for v in sorted(made, reverse=True)
    ]
    for entry in entries:
        check_common(entry)
        assert links(entry, "alternate"), (
            "an entry without content has an alternate link"
        )
    ids = [e.findtext(f"{ATOM}id") for e in entries]
    assert len(set(ids)) == len(ids)
    assert all(i.startswith("urn:uuid:") for i in ids)


def check_common(element: ElementTree.Element) -> None:
    """RFC 4287, 4.1.1 and 4.1.2: what a feed and an entry must have, and the constructs of 3.3 and 4.2.7."""
    for name in ("id", "title", "updated"):
        assert len(element.findall(f"{ATOM}{name}")) == 1, name
    moment = element.findtext(f"{ATOM}updated")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", moment or "")
    for link in element.findall(f"{ATOM}link"):
        assert link.get("href", "").startswith("https://"), link.attrib
        assert "/" in link.get("type", "")


def links(element: ElementTree.Element, rel: str) -> list[str]:
    return [
        link.get("href", "")
        for link in element.findall(f"{ATOM}link")
        if link.get("rel") == rel
    ]


class Page(HTMLParser):
    """What a browser finds in a page: elements, attributes, addresses, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name in ("href", "src"):
                self.addresses.append(value or "")
            if name == "id":
                self.ids.add(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)> & "quoted"'


def errata(*ids: int) -> Errata:
    return Errata(
        entries=tuple(
            Erratum(
                id=n,
                issued_at=datetime(2026, 11, 9, tzinfo=UTC),
                kind=WithdrawalKind.PRIVACY,
                case_id="a1zh",
                criterion_id=None,
                reason=HOSTILE,
                revision=None,
                snapshots=("2026.W43",),
                fixed_in=None,
            )
            for n in ids
        )
    )


def write_errata(folder: Path, said: Errata, key: SecretKey | None) -> None:
    signer = (
        None
        if key is None
        else lambda data: sign(data, key, trusted_comment(said), "errata")
    )
    write_errata_file(folder, said, signer)


@pytest.mark.parametrize(
    "kind",
    [
        WithdrawalKind.TAKEDOWN,
        pytest.param(WithdrawalKind.PRIVACY, marks=pytest.mark.thorough),
    ],
)
def test_what_was_taken_down_before_it_was_published_is_not_sent(
    line: Line, target: FolderTarget, kind: WithdrawalKind
) -> None:
    first, second = line.releases[0], line.releases[1]
    said = (
        errata(1)
        .entries[0]
        .model_copy(update={"kind": kind, "snapshots": (second.manifest.version,)})
    )
    try:
        write_errata(line.root, Errata(entries=(said,)), line.key)
        send(target, prepare_release(first.path))
        before = tree(target.root)
        with pytest.raises(CheckFailed, match="withdrawn since"):
            send(target, prepare_release(second.path))
        assert tree(target.root) == before
        # What is there already is not sent, and its errata are.
        published = said.model_copy(update={"snapshots": (first.manifest.version,)})
        write_errata(line.root, Errata(entries=(published,)), line.key)
        (target.root / "errata.json").unlink()
        send(target, prepare_release(first.path))
        assert (target.root / "errata.json").exists()
    finally:
        for left in line.root.glob("errata.json*"):
            left.unlink()


def test_the_page_escapes_everything_and_links_to_what_lies_there(
    line: Line, made: dict[str, PreparedRelease], target: FolderTarget
) -> None:
    for snapshot in made.values():
        send(target, snapshot)
    write_errata(line.root, errata(1, 2), line.key)
    try:
        send(target, prepare_release(line.last))
        for name in ("errata.json", "errata.json.minisig"):
            published = (target.root / name).read_bytes()
            assert published == (line.root / name).read_bytes()
        write_errata(line.root, errata(1, 2, 3), None)
        with pytest.raises(CheckFailed):
            prepare_release(line.last)
        (line.root / "errata.json").write_text("{")
        with pytest.raises(CheckFailed) as damaged:
            prepare_release(line.last)
        assert "write them again" in str(damaged.value.hint)
        write_errata(line.root, errata(1), line.key)
        with pytest.raises(CheckFailed, match="entry 2"):
            send(target, prepare_release(line.last))
    finally:
        for left in line.root.glob("errata.json*"):
            left.unlink()
    feed = ElementTree.fromstring((target.root / "feed.xml").read_bytes())
    entries = feed.findall(f"{ATOM}entry")
    told = [
        entry
        for entry in entries
        if HOSTILE in (entry.findtext(f"{ATOM}summary") or "")
    ]
    assert len(told) == 2
    assert len({entry.findtext(f"{ATOM}id") for entry in entries}) == len(made) + 2
    moments = [entry.findtext(f"{ATOM}updated") for entry in entries]
    assert moments == sorted(moments, reverse=True)
    assert feed.findtext(f"{ATOM}updated") == moments[0]
    page = Page((target.root / "index.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert not {name for name in page.attributes if name.startswith("on")}
    assert HOSTILE in page.text
    assert page.text.count(line.key.public.id_text()) == 1 + len(made)
    assert "viewport" in (target.root / "index.html").read_text(encoding="utf-8")
    for snapshot in made.values():
        assert snapshot.digest in page.text
    for address in page.addresses:
        name, _, part = address.partition("#")
        assert (target.root / name).exists(), address
        assert not part or part in page.ids
    assert sum(a.endswith(".svg") for a in page.addresses) >= 6
    assert urljoin(f"{BASE}/index.html", page.addresses[0]) == f"{BASE}/feed.xml"


def test_latest_is_right_though_another_publisher_finishes_meanwhile(
    line: Line, made: dict[str, PreparedRelease], tmp_path: Path
) -> None:
    class Busy(FolderTarget):
        def replace(self, item: Item) -> None:
            if item.name == "latest.json" and not (self.root / line.last.name).exists():
                shutil.copytree(line.last, self.root / line.last.name)
            super().replace(item)

    target = Busy(tmp_path / "public")
    assert send(target, made["2026.W43"]).latest == "2026.W45"
    assert latest(target)["version"] == "2026.W45"


def test_one_publisher_at_a_time_and_clear_words_where_the_disk_refuses(
    made: dict[str, PreparedRelease],
    target: FolderTarget,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with target.session(), pytest.raises(Locked):
        send(FolderTarget(target.root), made["2026.W43"])
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadInput):
        send(FolderTarget(tmp_path / "file" / "public"), made["2026.W43"])
    (tmp_path / "elsewhere").mkdir()
    (target.root / "medlive-2026.W43").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput):
        send(target, made["2026.W43"])
    assert not list((tmp_path / "elsewhere").iterdir())
    (target.root / "medlive-2026.W43").unlink()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskFull) as caught:
            send(target, made["2026.W43"])
    assert caught.value.exit_status == 3
    assert not (target.root / "medlive-2026.W43").exists()
    assert send(target, made["2026.W43"]).latest == "2026.W43"


def test_what_cannot_be_read_is_not_called_unwritable(target: FolderTarget) -> None:
    (target.root / SUMS).mkdir(parents=True)
    with pytest.raises(BadInput) as caught:
        target.read(SUMS)
    assert "written" not in caught.value.message
    assert SUMS in caught.value.message


def test_a_file_with_other_bytes_is_never_replaced(
    made: dict[str, PreparedRelease], target: FolderTarget
) -> None:
    send(target, made["2026.W43"])
    item = made["2026.W43"].items()[0]
    (target.root / item.name).write_bytes(b"another's")
    with target.session(), pytest.raises(CheckFailed):
        target.add(item)
    assert (target.root / item.name).read_bytes() == b"another's"


def test_a_file_that_changes_after_its_verification_is_not_published(
    line: Line, target: FolderTarget, tmp_path: Path
) -> None:
    folder = shutil.copytree(
        line.releases[0].path, tmp_path / line.releases[0].path.name
    )
    snapshot = prepare_release(folder)
    data = (folder / "LICENSE").read_bytes()
    (folder / "LICENSE").write_bytes(data.replace(b"a", b"b", 1))
    with pytest.raises(CheckFailed, match="LICENSE"):
        send(target, snapshot)
    assert not (target.root / folder.name / "LICENSE").exists()
    assert not (target.root / folder.name / SUMS).exists()


def test_what_is_published_can_be_read_by_a_web_server_of_another_user(
    tmp_path: Path, made: dict[str, PreparedRelease]
) -> None:
    """The program makes files for their owner alone; folders that are missing above the target are opened too."""
    before = os.umask(0o077)
    try:
        send(FolderTarget(tmp_path / "www" / "public"), made["2026.W43"])
    finally:
        os.umask(before)
    modes = {
        path.relative_to(tmp_path).as_posix(): path.stat()
        for path in (tmp_path / "www").rglob("[!.]*")
    }
    assert "www/public/medlive-2026.W43/data/cases.jsonl" in modes
    for name, status in modes.items():
        assert stat.S_IMODE(status.st_mode) == (
            0o755 if stat.S_ISDIR(status.st_mode) else 0o644
        ), name
    assert stat.S_IMODE((tmp_path / "www").stat().st_mode) == 0o755
