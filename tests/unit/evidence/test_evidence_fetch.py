"""Corpora fetched from publishers on this machine that imitate the real ones, sound and spoilt."""

import gzip
import json
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from medlive.digest import digest_bytes
from medlive.errors import BadInput, ConfigError, DiskFull, MedliveError, UsageError
from medlive.evidence.corpora.model import ReadLog
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.fetch.client import Client
from medlive.evidence.fetch.fetching import Outcome, Plan, corpus_path, make_plan, run_plan
from medlive.evidence.fetch.ledger import read_ledger
from medlive.evidence.fetch.model import (
    ArticleType,
    FetchFailed,
    FetchSettings,
    Selection,
    Size,
    Source,
    read_size,
)
from medlive.evidence.fetch.registry import SOURCES, find_source
from medlive.integrity.paths import UnsafePath
from tests.support.instance import Instance
from tests.support.publishers import (
    TOPICS,
    Article,
    Publisher,
    Spoilt,
    label_xml,
    md5,
    pubmed_file,
    put_article,
    put_book,
    put_dailymed,
    put_medlineplus,
    put_pubmed,
    serve_publisher,
    zipped,
)

ALL = Selection()
REVIEWS = Selection(types=(ArticleType.REVIEW,))
FIRST = "pubmed26n0001.xml.gz"
SECOND = "pubmed26n0002.xml.gz"
THIRD = "pubmed26n0003.xml.gz"
LIMITS = FetchSettings(contact=None, attempts=3, backoff_s=0.0, longest_wait_s=5.0, stall_s=5.0, pause_s=0.0)
FOLDERS = {
    "statpearls": "books",
    "pdq": "books",
    "pubmed": "pubmed",
    "medlineplus": "medlineplus",
    "pmc-chinese": "pmc",
}


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with serve_publisher() as published:
        yield published


def source_at(publisher: Publisher, name: str) -> Source:
    folder = FOLDERS.get(name, "dailymed")
    return find_source(name, f"{publisher.url}/{folder}")


def plan_of(source: Source, folder: Path, selection: Selection = ALL, limits: FetchSettings = LIMITS) -> Plan:
    with Client(limits, source.hosts, 0.0) as client:
        return make_plan(source, folder, selection, client)


def fetch(source: Source, folder: Path, selection: Selection = ALL, limits: FetchSettings = LIMITS) -> Outcome:
    with Client(limits, source.hosts, 0.0) as client:
        return run_plan(make_plan(source, folder, selection, client), client, lambda done, total: None)


def put_two(publisher: Publisher) -> dict[str, bytes]:
    """A baseline file and an update file."""
    files = {
        f"baseline/{FIRST}": pubmed_file([Article(number) for number in range(1, 400)]),
        f"updatefiles/{SECOND}": pubmed_file([Article(3, text="A newer abstract of metformin.")], deleted=[5]),
    }
    put_pubmed(publisher, "baseline", {FIRST: files[f"baseline/{FIRST}"]})
    put_pubmed(publisher, "updatefiles", {SECOND: files[f"updatefiles/{SECOND}"]})
    return files


def held_files(folder: Path) -> dict[str, bytes]:
    root = folder / "files"
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def pages_of(source: Source, folder: Path) -> tuple[dict[str, str], ReadLog]:
    """Passage id → text of the corpus as it would be indexed."""
    ledger = read_ledger(folder)
    assert ledger is not None
    log = ReadLog()
    corpus = open_corpus(corpus_path(source, folder, ledger), source.reader, source.name)
    return {passage.id: passage.text for passage in corpus.passages(log)}, log


def test_pubmed_is_fetched_as_published_and_never_twice(publisher: Publisher, tmp_path: Path) -> None:
    files = put_two(publisher)
    source = source_at(publisher, "pubmed")
    outcome = fetch(source, tmp_path / "pubmed")
    assert held_files(tmp_path / "pubmed") == files
    assert (outcome.fetched, outcome.failures, outcome.ledger.complete) == (2, (), True)
    entry = outcome.ledger.files[f"baseline/{FIRST}"]
    assert entry.digest == digest_bytes(files[f"baseline/{FIRST}"]) == entry.kept_digest
    assert publisher.files[f"/pubmed/baseline/{FIRST}.md5"].decode().split("= ")[1].strip() in str(entry.checksum)
    asked = len(publisher.asked)
    again = fetch(source, tmp_path / "pubmed")
    assert again.fetched == 0
    assert len(publisher.asked) == asked + 2
    assert again.ledger.digest == outcome.ledger.digest
    assert publisher.most_open == 1
    assert all(agent.startswith("medlive/") for agent in publisher.agents)


def test_an_update_fetches_what_is_new_and_drops_what_is_no_longer_listed(
    publisher: Publisher, tmp_path: Path
) -> None:
    put_two(publisher)
    source = source_at(publisher, "pubmed")
    fetch(source, tmp_path)
    publisher.asked.clear()
    put_pubmed(publisher, "updatefiles", {THIRD: pubmed_file([Article(900)])})
    outcome = fetch(source, tmp_path)
    assert (outcome.fetched, publisher.count(f"/pubmed/baseline/{FIRST}")) == (1, 0)
    del publisher.files[f"/pubmed/updatefiles/{SECOND}"]
    put_pubmed(publisher, "updatefiles", {})
    outcome = fetch(source, tmp_path)
    assert outcome.removed == (f"updatefiles/{SECOND}",)
    assert set(held_files(tmp_path)) == set(outcome.ledger.files) == {f"baseline/{FIRST}", f"updatefiles/{THIRD}"}


def test_nothing_is_removed_before_everything_new_is_here(publisher: Publisher, tmp_path: Path) -> None:
    """In December the whole baseline is replaced by files of other names."""
    put_two(publisher)
    source = source_at(publisher, "pubmed")
    fetch(source, tmp_path)
    before = held_files(tmp_path)
    for path in [path for path in publisher.files if "pubmed26" in path]:
        del publisher.files[path]
    put_pubmed(publisher, "baseline", {"pubmed27n0001.xml.gz": pubmed_file([Article(1)])})
    put_pubmed(publisher, "updatefiles", {"pubmed27n0002.xml.gz": pubmed_file([Article(2)])})
    publisher.spoilt["/pubmed/updatefiles/pubmed27n0002.xml.gz"] = Spoilt(status=403)
    assert len(fetch(source, tmp_path).failures) == 1
    assert before.items() <= held_files(tmp_path).items()
    publisher.spoilt.clear()
    assert len(fetch(source, tmp_path).removed) == 2
    assert set(held_files(tmp_path)) == {"baseline/pubmed27n0001.xml.gz", "updatefiles/pubmed27n0002.xml.gz"}


def test_a_file_listed_anew_with_the_same_checksum_is_not_downloaded(publisher: Publisher, tmp_path: Path) -> None:
    put_two(publisher)
    source = source_at(publisher, "pubmed")
    fetch(source, tmp_path)
    publisher.asked.clear()
    put_pubmed(publisher, "baseline", {}, day="2026-11-01 09:00")
    outcome = fetch(source, tmp_path)
    assert (outcome.unchanged, publisher.count(f"/pubmed/baseline/{FIRST}")) == (1, 0)


def test_a_dry_run_writes_nothing_and_asks_for_lists_alone(publisher: Publisher, tmp_path: Path) -> None:
    files = put_two(publisher)
    plan = plan_of(source_at(publisher, "pubmed"), tmp_path / "pubmed")
    assert publisher.asked == ["/pubmed/baseline/", "/pubmed/updatefiles/"]
    assert not (tmp_path / "pubmed").exists()
    assert plan.download_bytes == pytest.approx(sum(map(len, files.values())), rel=0.02)
    assert plan.seconds(1000.0) == pytest.approx(plan.download_bytes / 1000 + 4 * plan.source.pause_s)


SELECTED = [
    Article(1),
    Article(2, kind="Journal Article"),
    Article(3, kind="Review", year=2001),
    Article(4, language="chi"),
    Article(5, kind="Retraction Notice", refers="RetractionOf:1"),
    Article(6, kind="Expression of Concern", refers="ExpressionOfConcernFor:4"),
]


def test_a_selection_keeps_the_chosen_articles_and_every_notice(publisher: Publisher, tmp_path: Path) -> None:
    put_pubmed(publisher, "baseline", {FIRST: pubmed_file(SELECTED)})
    put_pubmed(publisher, "updatefiles", {SECOND: pubmed_file([Article(7, kind="Editorial")], deleted=[4])})
    selection = Selection(types=(ArticleType.REVIEW,), since=date(2020, 1, 1), languages=("eng",))
    outcome = fetch(source_at(publisher, "pubmed"), tmp_path, selection)
    first, second = (gzip.decompress(data) for data in held_files(tmp_path).values())
    kept = [
        int(found) for found in re.findall(rb"</?PubmedArticle><MedlineCitation><PMID Version=.1.>(\d)", first)
    ]
    assert kept == [1, 5, 6]
    assert b"<DeleteCitation>" in second
    assert b"Title 7" not in second
    entry = outcome.ledger.files[f"baseline/{FIRST}"]
    assert (entry.records, entry.kept_records) == (6, 3)
    assert entry.digest == digest_bytes(publisher.files[f"/pubmed/baseline/{FIRST}"])
    pages, log = pages_of(source_at(publisher, "pubmed"), tmp_path)
    assert pages == {}
    assert log.problem_count == 0


@pytest.mark.parametrize("kind", ["Journal Article", "Review"])
def test_an_article_that_is_no_longer_chosen_is_no_longer_evidence(
    publisher: Publisher, tmp_path: Path, kind: str
) -> None:
    put_pubmed(publisher, "baseline", {FIRST: pubmed_file([Article(1), Article(2)])})
    put_pubmed(publisher, "updatefiles", {SECOND: pubmed_file([Article(1, kind=kind, text="Revised: it fails.")])})
    source = source_at(publisher, "pubmed")
    fetch(source, tmp_path, REVIEWS)
    pages, _ = pages_of(source, tmp_path)
    texts = [text for text in pages.values() if "Revised" in text or "number 1 " in text]
    assert texts == (["Revised: it fails."] if kind == "Review" else [])
    assert any("number 2 " in text for text in pages.values())


def test_another_selection_fetches_the_files_again(publisher: Publisher, tmp_path: Path) -> None:
    put_pubmed(publisher, "baseline", {FIRST: pubmed_file(SELECTED)})
    put_pubmed(publisher, "updatefiles", {SECOND: pubmed_file([Article(9)])})
    source = source_at(publisher, "pubmed")
    fetch(source, tmp_path, REVIEWS)
    outcome = fetch(source, tmp_path, ALL)
    assert outcome.fetched == 2
    assert held_files(tmp_path)[f"baseline/{FIRST}"] == publisher.files[f"/pubmed/baseline/{FIRST}"]


def test_every_other_layout_is_fetched_and_read(publisher: Publisher, tmp_path: Path) -> None:
    put_book(publisher, "NBK430685", "Aspirin prevents a second stroke in many patients.")
    put_medlineplus(publisher, "2026-10-05")
    put_dailymed(publisher, "rx", {"aa11": label_xml("aa11")})
    put_article(publisher, 501, "肺癌患者术后应当定期复查胸部计算机断层扫描。")
    expected = {
        "statpearls": "Aspirin prevents a second stroke",
        "medlineplus": "Rosacea is a long-term skin disease & it reddens the face.",
        "dailymed-rx": "Zestril is indicated for hypertension.",
        "pmc-chinese": "肺癌患者术后应当定期复查",
    }
    for name, words in expected.items():
        source = source_at(publisher, name)
        outcome = fetch(source, tmp_path / name)
        assert (outcome.fetched, outcome.failures) == (1, ()), name
        pages, log = pages_of(source, tmp_path / name)
        assert any(words in text for text in pages.values()), name
        assert log.problem_count == 0, log.problems
        assert fetch(source, tmp_path / name).fetched == 0, name
    with_checksum = {"dailymed-rx", "pmc-chinese"}
    for name in expected:
        ledger = read_ledger(tmp_path / name)
        assert ledger is not None
        assert all((f.checksum is not None) == (name in with_checksum) for f in ledger.files.values())


def test_the_newest_day_of_medlineplus_replaces_the_one_before(publisher: Publisher, tmp_path: Path) -> None:
    source = source_at(publisher, "medlineplus")
    put_medlineplus(publisher, "2026-10-05")
    fetch(source, tmp_path)
    put_medlineplus(publisher, "2026-10-06", TOPICS.replace("reddens", "flushes"))
    fetch(source, tmp_path)
    assert list(held_files(tmp_path)) == ["mplus_topics_compressed_2026-10-06.zip"]
    assert any("flushes" in text for text in pages_of(source, tmp_path)[0].values())


def test_a_cut_download_goes_on_where_it_ended(publisher: Publisher, tmp_path: Path) -> None:
    files = put_two(publisher)
    path = f"/pubmed/baseline/{FIRST}"
    publisher.spoilt[path] = Spoilt(cut_after=1000, times=2)
    outcome = fetch(source_at(publisher, "pubmed"), tmp_path)
    assert outcome.failures == ()
    assert held_files(tmp_path) == files
    assert [asked for place, asked in publisher.ranges if place == path] == ["bytes=1000-", "bytes=2000-"]


def test_a_host_without_ranges_is_asked_for_the_whole_again(publisher: Publisher, tmp_path: Path) -> None:
    files = put_two(publisher)
    publisher.spoilt[f"/pubmed/baseline/{FIRST}"] = Spoilt(cut_after=1000, times=1, no_ranges=True)
    assert fetch(source_at(publisher, "pubmed"), tmp_path).failures == ()
    assert held_files(tmp_path) == files


def test_a_half_of_a_file_that_has_changed_is_never_gone_on_with(publisher: Publisher, tmp_path: Path) -> None:
    path = put_book(publisher, "NBK430685", "Old words about aspirin.")
    new = publisher.files[path]
    source = source_at(publisher, "statpearls")
    with Client(replace(LIMITS, attempts=1), source.hosts, 0.0) as client:
        plan = make_plan(source, tmp_path, ALL, client)
        # The host has other bytes of the same size, of which half comes; then it has those of the list.
        publisher.files[path] = bytes(reversed(new[2:])) + new[:2]
        publisher.files[path] = new[:2] + publisher.files[path][2:]
        publisher.spoilt[path] = Spoilt(cut_after=100, times=1)
        publisher.after[path] = new
        assert run_plan(plan, client, lambda done, total: None).failures == ()
    assert list(held_files(tmp_path).values()) == [new]
    assert publisher.count(path) == 3  # HEAD, the half, and the whole


BROKEN = {
    "another size than listed": (Spoilt(body=pubmed_file([Article(1)])), "list about"),
    "HTML": (Spoilt(body=b"<!DOCTYPE html><html>Please log in</html>", chunked=True), "HTML page"),
    "not gzip": (Spoilt(body=b"PK\x03\x04 something", chunked=True), "does not begin as a .gz file"),
    "truncated": (Spoilt(body=pubmed_file([Article(n) for n in range(1, 400)])[:-9], chunked=True), "checksum"),
    "endless": (Spoilt(endless=True), "sent more than"),
    "missing": (Spoilt(status=404), "does not exist"),
    "forbidden": (Spoilt(status=403), "status 403"),
    "down": (Spoilt(status=503), "status 503 (3 attempts)"),
    "asks to wait": (Spoilt(status=429, headers={"Retry-After": "3600"}), "asks to wait 3600 s"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_and_costs_no_other(publisher: Publisher, tmp_path: Path, name: str) -> None:
    files = put_two(publisher)
    spoilt, words = BROKEN[name]
    path = f"/pubmed/baseline/{FIRST}"
    publisher.spoilt[path] = replace(spoilt)
    source = replace(source_at(publisher, "pubmed"), largest=2_000_000)
    outcome = fetch(source, tmp_path)
    assert len(outcome.failures) == 1
    assert words in outcome.failures[0]
    assert path in outcome.failures[0]
    assert list(held_files(tmp_path)) == [f"updatefiles/{SECOND}"]
    assert not outcome.ledger.complete
    publisher.spoilt.clear()
    mended = fetch(source, tmp_path)
    assert (mended.failures, mended.ledger.complete, held_files(tmp_path)) == ((), True, files)


def test_the_checksum_decides_where_the_size_is_right(publisher: Publisher, tmp_path: Path) -> None:
    put_two(publisher)
    path = f"/pubmed/baseline/{FIRST}"
    data = bytearray(publisher.files[path])
    data[200] ^= 1
    publisher.files[path] = bytes(data)
    outcome = fetch(source_at(publisher, "pubmed"), tmp_path)
    assert "the publisher's checksum is md5:" in outcome.failures[0]
    assert f"baseline/{FIRST}" not in held_files(tmp_path)


@pytest.mark.parametrize("name", ["statpearls", "medlineplus"])
def test_an_archive_without_a_checksum_must_read_to_its_end(
    publisher: Publisher, tmp_path: Path, name: str
) -> None:
    path = put_book(publisher, "NBK430685", "Aspirin. " * 900)
    if name == "medlineplus":
        path = put_medlineplus(publisher, "2026-10-05")
    data = bytearray(publisher.files[path])
    data[len(data) // 2] ^= 0xFF
    publisher.files[path] = bytes(data)
    outcome = fetch(source_at(publisher, name), tmp_path)
    assert "is damaged" in outcome.failures[0]
    assert not (tmp_path / "files").exists()


def test_redirects_stay_with_the_publisher(publisher: Publisher, tmp_path: Path) -> None:
    files = put_two(publisher)
    path = f"/pubmed/baseline/{FIRST}"
    publisher.files["/moved"] = publisher.files[path]
    publisher.spoilt[path] = Spoilt(status=301, headers={"Location": "/moved"})
    assert fetch(source_at(publisher, "pubmed"), tmp_path / "same").failures == ()
    assert held_files(tmp_path / "same") == files
    with serve_publisher() as foreign:
        foreign.files["/moved"] = publisher.files[path]
        publisher.spoilt[path] = Spoilt(status=302, headers={"Location": f"{foreign.url}/moved"})
        outcome = fetch(source_at(publisher, "pubmed"), tmp_path / "other")
        assert "redirects to" in outcome.failures[0]
        assert foreign.asked == []
    publisher.spoilt[path] = Spoilt(status=301, headers={"Location": path})
    assert "redirects" in fetch(source_at(publisher, "pubmed"), tmp_path / "loop").failures[0]


def test_retry_after_is_obeyed(publisher: Publisher, tmp_path: Path) -> None:
    files = put_two(publisher)
    publisher.spoilt[f"/pubmed/baseline/{FIRST}"] = Spoilt(status=429, headers={"Retry-After": "0"}, times=2)
    assert fetch(source_at(publisher, "pubmed"), tmp_path).failures == ()
    assert held_files(tmp_path) == files


LISTS = {
    "HTML error": ("pubmed", "/pubmed/baseline/", b"<html>Sorry</html>", "expected PubMed's index page"),
    "a gap": (
        "pubmed",
        "/pubmed/baseline/",
        f'<a href="{SECOND}">x</a> 2026-10-05 18:08  9K'.encode(),
        "number 1 is missing",
    ),
    "not the book": ("statpearls", "/books/file_list.csv", b"<html>Sorry</html>", "does not list NBK430685"),
    "a climbing name": (
        "statpearls",
        "/books/file_list.csv",
        b"File,Title,Accession ID\n../../x_NBK430685.tar.gz,x,NBK430685\n",
        "expected a .tar.gz",
    ),
    "no topics": ("medlineplus", "/medlineplus/xml.html", b"<html></html>", "links no file"),
    "no labels": ("dailymed-rx", "/dailymed/spl-resources-all-drug-labels.cfm", b"<html></html>", "links no file"),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_cannot_be_read_removes_nothing(publisher: Publisher, tmp_path: Path, name: str) -> None:
    corpus, path, page, words = LISTS[name]
    put_two(publisher)
    put_book(publisher, "NBK430685", "Aspirin.")
    put_medlineplus(publisher, "2026-10-05")
    put_dailymed(publisher, "rx", {"aa11": label_xml("aa11")})
    source = source_at(publisher, corpus)
    fetch(source, tmp_path)
    before = held_files(tmp_path)
    publisher.files[path] = page
    with pytest.raises(FetchFailed, match=words):
        fetch(source, tmp_path)
    assert held_files(tmp_path) == before != {}


def test_an_answer_that_is_no_list_of_articles_is_an_error(publisher: Publisher, tmp_path: Path) -> None:
    source = source_at(publisher, "pmc-chinese")
    publisher.spoilt["/pmc/esearch.fcgi"] = Spoilt(status=200, times=0)
    with pytest.raises(FetchFailed, match="lists 0 of 0 articles"):
        fetch(source, tmp_path)


def test_an_article_that_was_withdrawn_since_is_passed_over(publisher: Publisher, tmp_path: Path) -> None:
    gone = put_article(publisher, 500, "x")
    put_article(publisher, 501, "肺癌患者术后应当定期复查胸部。")
    publisher.spoilt[gone] = Spoilt(status=404)
    outcome = fetch(source_at(publisher, "pmc-chinese"), tmp_path)
    assert (outcome.absent, outcome.failures, list(held_files(tmp_path))) == (
        ("PMC500.1.xml",),
        (),
        ["PMC501.1.xml"],
    )


def test_files_are_private_and_a_link_in_the_way_is_not_followed(publisher: Publisher, tmp_path: Path) -> None:
    put_two(publisher)
    source = source_at(publisher, "pubmed")
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "pubmed"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "baseline").symlink_to(outside)
    with pytest.raises(UnsafePath):
        fetch(source, folder)
    assert list(outside.iterdir()) == []
    (folder / "parts" / "baseline").unlink()
    fetch(source, folder)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder / "files").rglob("*.gz")}
    assert modes == {0o600}
    assert stat.S_IMODE((folder / "fetched.json").stat().st_mode) == 0o600


def test_a_disk_without_room_is_said_before_the_download(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_two(publisher)
    real = os.statvfs(tmp_path)
    full = os.statvfs_result((*tuple(real)[:4], 0, *tuple(real)[5:10]))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(DiskFull, match="bytes free"):
        fetch(source_at(publisher, "pubmed"), tmp_path / "pubmed")


def test_a_damaged_ledger_and_another_corpus_are_errors(publisher: Publisher, tmp_path: Path) -> None:
    put_two(publisher)
    put_medlineplus(publisher, "2026-10-05")
    fetch(source_at(publisher, "pubmed"), tmp_path)
    with pytest.raises(MedliveError, match="holds pubmed, not medlineplus"):
        fetch(source_at(publisher, "medlineplus"), tmp_path)
    (tmp_path / "fetched.json").write_text("{")
    with pytest.raises(BadInput, match="not a valid ledger"):
        fetch(source_at(publisher, "pubmed"), tmp_path)


def test_real_hosts_need_a_contact_and_names_must_be_known() -> None:
    for source in SOURCES:
        with pytest.raises(ConfigError, match="contact"):
            Client(LIMITS, source.hosts, 0.0)
    with pytest.raises(UsageError, match="not a corpus that medlive fetches"):
        find_source("pubmeed")
    with pytest.raises(UsageError, match="expected an http"):
        find_source("pubmed", "ftp://ftp.ncbi.nlm.nih.gov/pubmed/")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("19M", Size(19 << 20, (1 << 20) + 1)), ("512", Size(512, 0)), ("1.5K", Size(1536, 103)), ("-", None)],
)
def test_sizes_are_read_with_their_rounding(text: str, expected: Size | None) -> None:
    assert read_size(text) == expected


def instance_of(publisher: Publisher, home: Path) -> Instance:
    """An installation whose mirrors are all this publisher."""
    lines = ["[evidence.mirrors]"]
    lines += [f'{s.name} = "{publisher.url}/{FOLDERS.get(s.name, "dailymed")}"' for s in SOURCES]
    config = home / "config"
    config.mkdir()
    (config / "medlive.toml").write_text("\n".join(lines))
    return Instance(home, None, {"MEDLIVE_CONFIG": str(config)})


def test_a_killed_fetch_goes_on_to_equal_bytes_and_the_index_says_what_was_fetched(
    publisher: Publisher, tmp_path: Path
) -> None:
    files = put_two(publisher)
    path = f"/pubmed/baseline/{FIRST}"
    publisher.spoilt[path] = Spoilt(hold_after=2000, times=1)
    instance = instance_of(publisher, tmp_path)
    arguments = ("evidence", "fetch", "pubmed", "--encoder", "none", "--json")
    part = tmp_path / "corpora/pubmed/parts/baseline" / FIRST
    process = instance.start(*arguments)
    while not (part.exists() and part.stat().st_size == 2000):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert instance.finish(process).status == -signal.SIGKILL
    assert part.read_bytes() == files[f"baseline/{FIRST}"][:2000]
    done = instance.here(*arguments)
    assert (path, "bytes=2000-") in publisher.ranges
    assert held_files(tmp_path / "corpora/pubmed") == files
    manifest = json.loads((tmp_path / "evidence/default/manifest.json").read_text())
    (entry,) = manifest["corpora"]
    ledger = read_ledger(tmp_path / "corpora/pubmed")
    assert ledger is not None
    assert entry["fetched"]["digest"] == ledger.digest
    assert entry["fetched"]["files"] == 2
    assert done.json["index"]["index_digest"] == manifest["index_digest"]


def test_recommended_is_planned_in_one_command(publisher: Publisher, tmp_path: Path) -> None:
    put_two(publisher)
    put_medlineplus(publisher, "2026-10-05")
    put_article(publisher, 501, "肺癌")
    labels = "/dailymed/spl-resources-all-drug-labels.cfm"
    put_dailymed(publisher, "rx", {"aa11": label_xml("aa11")})
    rx = publisher.files[labels]
    put_dailymed(publisher, "otc", {"bb22": label_xml("bb22")})
    publisher.files[labels] += rx
    put_book(publisher, "NBK82221", "Radon.", name="aa/bb/pdq")
    books = publisher.files["/books/file_list.csv"].splitlines(keepends=True)
    put_book(publisher, "NBK430685", "Aspirin.")
    publisher.files["/books/file_list.csv"] += books[1]
    done = instance_of(publisher, tmp_path).here("evidence", "fetch", "--recommended", "--dry-run", "--json")
    plans = {plan["name"]: plan for plan in done.json}
    assert set(plans) == {s.name for s in SOURCES if s.recommended}
    assert all(plan["to_fetch"] >= 1 and plan["bytes"] > 0 for plan in plans.values())
    assert plans["pubmed"]["selection"]["types"] == ["guideline", "systematic-review", "meta-analysis"]
    assert not (tmp_path / "corpora").exists()


def test_the_command_indexes_what_is_whole_and_names_what_is_not(publisher: Publisher, tmp_path: Path) -> None:
    put_medlineplus(publisher, "2026-10-05")
    path = put_dailymed(publisher, "rx", {"aa11": label_xml("aa11")})
    publisher.spoilt[path] = Spoilt(status=403)
    instance = instance_of(publisher, tmp_path)
    arguments = ("evidence", "fetch", "medlineplus", "dailymed-rx", "--encoder", "none")
    done = instance.here(*arguments, status=3)
    assert f"{path}: status 403" in done.err
    listed = instance.here("evidence", "list", "--json").json
    assert [corpus["name"] for corpus in listed[0]["manifest"]["corpora"]] == ["medlineplus"]
    publisher.spoilt.clear()
    done = instance.here(*arguments, "--json")
    assert "medlineplus: the index has it as it is" in done.err
    corpora = {corpus["name"]: corpus for corpus in done.json["index"]["corpora"]}
    assert set(corpora) == {"medlineplus", "dailymed-rx"}
    assert corpora["dailymed-rx"]["fetched"]["address"].startswith(publisher.url)
    assert instance.here(*arguments, "--json").json["index"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a corpus"),
        (("pubmedd",), "not a corpus that medlive fetches"),
        (("medlineplus", "--types", "review"), "choose among PubMed's articles"),
        (("pubmed", "--types", "reviews"), "choose guideline or"),
        (("pubmed", "--language", "english"), "expected three letters"),
    ],
)
def test_a_wrong_use_is_said(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in Instance(tmp_path, None).here("evidence", "fetch", *arguments, status=2).err


def test_a_host_that_goes_silent_is_asked_for_the_rest(publisher: Publisher, tmp_path: Path) -> None:
    files = put_two(publisher)
    publisher.spoilt[f"/pubmed/baseline/{FIRST}"] = Spoilt(hold_after=2000, times=1)
    outcome = fetch(source_at(publisher, "pubmed"), tmp_path, limits=replace(LIMITS, stall_s=0.3))
    assert outcome.failures == ()
    assert held_files(tmp_path) == files


def test_a_file_has_a_limit_of_time_and_its_bytes_are_kept(publisher: Publisher, tmp_path: Path) -> None:
    files = put_two(publisher)
    outcome = fetch(source_at(publisher, "pubmed"), tmp_path, limits=replace(LIMITS, file_s=0.0))
    assert all("took more than 0 s" in failure for failure in outcome.failures)
    assert len(outcome.failures) == 2
    kept = (tmp_path / "parts/baseline" / FIRST).read_bytes()
    assert kept
    assert files[f"baseline/{FIRST}"].startswith(kept)


def test_a_list_without_end_and_a_length_beyond_reason_are_left(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_two(publisher)
    source = source_at(publisher, "pubmed")
    outcome = fetch(replace(source, largest=100), tmp_path)
    assert all("expected at most 100" in failure for failure in outcome.failures)
    monkeypatch.setattr("medlive.evidence.fetch.client.LARGEST_PAGE", 100_000)
    publisher.spoilt["/pubmed/baseline/"] = Spoilt(endless=True)
    with pytest.raises(FetchFailed, match="expected a list of files"):
        fetch(source, tmp_path)


@pytest.mark.parametrize(
    "row",
    [
        '<li><a href="{at}/{name}">{name}</a> [{size}KB, MD5 checksum: {md5}, last modified: Oct 2, 2026]</li>',
        '<li>{name} [<a href="{at}/{name}">HTTPS</a>, <a href="{at}/{name}">again</a>] {size} KB; {md5}</li>',
        '<tr><td>{name}</td><td>{size}&nbsp;KB</td><td>{md5}</td><td><a href="{at}/{name}">get</a></td></tr>',
    ],
)
def test_each_release_file_has_its_own_checksum_however_the_page_is_laid_out(
    publisher: Publisher, tmp_path: Path, row: str
) -> None:
    rows = []
    for place, name in enumerate(["human_rx_part1", "human_rx_part2", "human_otc_part1", "animal"]):
        file, data = f"dm_spl_release_{name}.zip", zipped({"1.zip": zipped({"a.xml": label_xml(f"n{place}")})})
        publisher.files[f"/dailymed/{file}"] = data
        size = f"{len(data) / 1024:.2f}"
        rows.append(row.format(at=f"{publisher.url}/dailymed", name=file, size=size, md5=md5(data)))
    publisher.files["/dailymed/spl-resources-all-drug-labels.cfm"] = "\n".join(rows).encode()
    outcome = fetch(source_at(publisher, "dailymed-rx"), tmp_path)
    assert outcome.failures == ()
    assert [file.checksum is not None for file in outcome.ledger.files.values()] == [True, True]


def test_labels_are_read_by_section_and_damage_is_reported(tmp_path: Path) -> None:
    good = zipped({"a.xml": label_xml("aa11"), "a.jpg": b"x"})
    release = {"prescription/1.zip": good, "prescription/2.zip": b"PK broken", "readme.txt": b"x"}
    release["prescription/3.zip"] = zipped({"b.xml": b"<document><setId/></document>"})
    (tmp_path / "dm_spl_release_human_rx_part1.zip").write_bytes(zipped(release))
    log = ReadLog()
    passages = list(open_corpus(tmp_path, None, "labels").passages(log))
    assert {p.section for p in passages} == {"Indications and usage"}
    assert passages[0].title == "Zestril (lisinopril): drug label"
    assert passages[0].text == (
        "Zestril is indicated for hypertension.\n1.1 Heart failure\n- Reduces signs of systolic heart failure"
    )
    assert passages[0].published == date(2026, 3, 11)
    assert sorted(problem.member.rpartition("/")[2] for problem in log.problems) == ["2.zip", "b.xml"]


def test_topics_are_read_in_english_by_heading(tmp_path: Path) -> None:
    (tmp_path / "mplus_topics_2026-10-05.xml").write_text(TOPICS, encoding="utf-8")
    log = ReadLog()
    passages = list(open_corpus(tmp_path, None, "topics").passages(log))
    assert [(p.section, p.text) for p in passages] == [
        ("", "Rosacea is a long-term skin disease & it reddens the face.\nAlso called: Acne rosacea"),
        ("Treatment", "- Avoid the sun\n- Metronidazole gel"),
    ]
    assert passages[0].published == date(2026, 10, 5)
    assert log.problem_count == 0
