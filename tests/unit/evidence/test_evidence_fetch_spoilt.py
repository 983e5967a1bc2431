"""Publishers that cut, lie, move, stall or send something else: clear errors, nothing lost, nothing invented."""

import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.errors import BadInput, ConfigError, MedliveError, UsageError
from medlive.evidence.client import Client, FetchFailed
from medlive.evidence.fetch.fetching import make_plan, run_plan
from medlive.evidence.fetch.sources import SOURCES, find_source
from medlive.guard.http import AddressRefused
from medlive.integrity.paths import UnsafePath
from tests.support.fetching_corpora import (
    ALL,
    FIRST,
    SECOND,
    fetch,
    held_files,
    put_two,
    source_at,
)
from tests.support.publishers import (
    Article,
    Publisher,
    Spoilt,
    label_xml,
    pubmed_file,
    put_article,
    put_book,
    put_dailymed,
    put_medlineplus,
    serve_publisher,
)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medlive.evidence.client.ATTEMPTS", 3)
    monkeypatch.setattr("medlive.evidence.client.BACKOFF_S", 0.0)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with serve_publisher() as published:
        yield published


def test_a_cut_download_goes_on_where_it_ended(
    publisher: Publisher, tmp_path: Path
) -> None:
    files = put_two(publisher)
    path = f"/pubmed/baseline/{FIRST}"
    publisher.spoilt[path] = Spoilt(cut_after=1000, times=2)
    outcome = fetch(source_at(publisher, "pubmed"), tmp_path)
    assert outcome.failures == ()
    assert held_files(tmp_path) == files
    assert [asked for place, asked in publisher.ranges if place == path] == [
        "bytes=1000-",
        "bytes=2000-",
    ]


def test_a_host_without_ranges_is_asked_for_the_whole_again(
    publisher: Publisher, tmp_path: Path
) -> None:
    files = put_two(publisher)
    publisher.spoilt[f"/pubmed/baseline/{FIRST}"] = Spoilt(
        cut_after=1000, times=1, no_ranges=True
    )
    assert fetch(source_at(publisher, "pubmed"), tmp_path).failures == ()
    assert held_files(tmp_path) == files


async def test_halves_of_two_versions_are_never_kept(
    publisher: Publisher, tmp_path: Path
) -> None:
    path = put_book(publisher, "NBK430685", "Old words about aspirin.")
    new = publisher.files[path]
    source = source_at(publisher, "statpearls")
    async with Client(None, source.hosts) as client:
        plan = await make_plan(source, tmp_path, ALL, client)
        # The host has other bytes of the same size, of which half comes; then it has those of the list.
        publisher.files[path] = bytes(reversed(new[2:])) + new[:2]
        publisher.files[path] = new[:2] + publisher.files[path][2:]
        publisher.spoilt[path] = Spoilt(cut_after=100, times=1)
        publisher.after[path] = new
        await run_plan(plan, client, lambda done, total: None)
    assert plan.failures == ()
    assert list(held_files(tmp_path).values()) == [new]
    assert publisher.count(path) == 3  # The half, the rest, and the whole


BROKEN = {
    "another file than listed": (Spoilt(body=pubmed_file([Article(1)])), "checksum"),
    "HTML": (
        Spoilt(body=b"<!DOCTYPE html><html>Please log in</html>", chunked=True),
        "checksum",
    ),
    "truncated": (
        Spoilt(
            body=pubmed_file([Article(n) for n in range(1, 400)])[:-9], chunked=True
        ),
        "checksum",
    ),
    "endless": (Spoilt(endless=True), "sent more than"),
    "missing": (Spoilt(status=404), "status 404"),
    "forbidden": (Spoilt(status=403), "status 403"),
    "down": (Spoilt(status=503), "status 503 (3 attempts)"),
    "asks to wait": (
        Spoilt(status=429, headers={"Retry-After": "3600"}),
        "asks to wait 3600 s",
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_and_costs_no_other(
    publisher: Publisher, tmp_path: Path, name: str
) -> None:
    files = put_two(publisher)
    spoilt, words = BROKEN[name]
    path = f"/pubmed/baseline/{FIRST}"
    publisher.spoilt[path] = replace(spoilt)
    source = replace(source_at(publisher, "pubmed"), largest=300_000)
    outcome = fetch(source, tmp_path)
    assert len(outcome.failures) == 1
    assert words in outcome.failures[0]
    assert path in outcome.failures[0]
    assert list(held_files(tmp_path)) == [f"updatefiles/{SECOND}"]
    assert not outcome.ledger.complete
    publisher.spoilt.clear()
    mended = fetch(source, tmp_path)
    assert (mended.failures, mended.ledger.complete, held_files(tmp_path)) == (
        (),
        True,
        files,
    )


def test_the_checksum_decides_where_the_size_is_right(
    publisher: Publisher, tmp_path: Path
) -> None:
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


def test_redirects_stay_with_the_publisher(
    publisher: Publisher, tmp_path: Path
) -> None:
    files = put_two(publisher)
    path = f"/pubmed/baseline/{FIRST}"
    publisher.files["/moved"] = publisher.files[path]
    publisher.spoilt[path] = Spoilt(status=301, headers={"Location": "/moved"})
    assert fetch(source_at(publisher, "pubmed"), tmp_path / "same").failures == ()
    assert held_files(tmp_path / "same") == files
    with serve_publisher() as foreign:
        foreign.files["/moved"] = publisher.files[path]
        publisher.spoilt[path] = Spoilt(
            status=302, headers={"Location": f"{foreign.url}/moved"}
        )
        outcome = fetch(source_at(publisher, "pubmed"), tmp_path / "other")
        assert "redirects to" in outcome.failures[0]
        assert foreign.asked == []
    publisher.spoilt[path] = Spoilt(status=301, headers={"Location": "http://[none/"})
    nowhere = fetch(source_at(publisher, "pubmed"), tmp_path / "nowhere")
    assert "redirects to" in nowhere.failures[0]
    publisher.spoilt[path] = Spoilt(status=301, headers={"Location": path})
    assert (
        "redirects"
        in fetch(source_at(publisher, "pubmed"), tmp_path / "loop").failures[0]
    )


def test_retry_after_is_obeyed(publisher: Publisher, tmp_path: Path) -> None:
    files = put_two(publisher)
    publisher.spoilt[f"/pubmed/baseline/{FIRST}"] = Spoilt(
        status=429, headers={"Retry-After": "0"}, times=2
    )
    assert fetch(source_at(publisher, "pubmed"), tmp_path).failures == ()
    assert held_files(tmp_path) == files


LISTS = {
    "HTML error": (
        "pubmed",
        "/pubmed/baseline/",
        b"<html>Sorry</html>",
        "expected PubMed's index page",
    ),
    "a gap": (
        "pubmed",
        "/pubmed/baseline/",
        f'<a href="{SECOND}">x</a> 2026-10-05 18:08  9K'.encode(),
        "number 1 is missing",
    ),
    "not the book": (
        "statpearls",
        "/books/file_list.csv",
        b"<html>Sorry</html>",
        "does not list NBK430685",
    ),
    "a climbing name": (
        "statpearls",
        "/books/file_list.csv",
        b"File,Title,Accession ID\n../../x_NBK430685.tar.gz,x,NBK430685\n",
        "expected a .tar.gz",
    ),
    "a quote without its second": (
        "statpearls",
        "/books/file_list.csv",
        b'"' + b"File\n" * 40_000,
        "field larger than|does not list",  # The limit is the process's
    ),
    "an address that is none": (
        "medlineplus",
        "/medlineplus/xml.html",
        b'<a href="http://[bad/mplus_topics_compressed_2026-10-06.zip">',
        "Invalid IPv6 URL",
    ),
    "no topics": (
        "medlineplus",
        "/medlineplus/xml.html",
        b"<html></html>",
        "links no file",
    ),
    "no labels": (
        "dailymed-rx",
        "/dailymed/spl-resources-all-drug-labels.cfm",
        b"<html></html>",
        "links no file",
    ),
}


PUT: dict[str, Callable[[Publisher], object]] = {
    "pubmed": put_two,
    "statpearls": lambda p: put_book(p, "NBK430685", "Aspirin."),
    "medlineplus": lambda p: put_medlineplus(p, "2026-10-05"),
    "dailymed-rx": lambda p: put_dailymed(p, "rx", {"aa11": label_xml("aa11")}),
}
"""What is published of a corpus."""


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_cannot_be_read_removes_nothing(
    publisher: Publisher, tmp_path: Path, name: str
) -> None:
    corpus, path, page, words = LISTS[name]
    PUT[corpus](publisher)
    source = source_at(publisher, corpus)
    fetch(source, tmp_path)
    before = held_files(tmp_path)
    publisher.files[path] = page
    with pytest.raises(FetchFailed, match=words):
        fetch(source, tmp_path)
    assert held_files(tmp_path) == before != {}


def test_an_answer_that_is_no_list_of_articles_is_an_error(
    publisher: Publisher, tmp_path: Path
) -> None:
    source = source_at(publisher, "pmc-chinese")
    publisher.spoilt["/pmc/esearch.fcgi"] = Spoilt(status=200, times=0)
    with pytest.raises(FetchFailed):
        fetch(source, tmp_path)
    publisher.spoilt.clear()
    publisher.files["/pmc/PMC5?6.1.xml"] = b""
    with pytest.raises(FetchFailed, match="expected the number of an article"):
        fetch(source, tmp_path)


def test_a_checksum_nested_without_end_costs_no_other_article(
    publisher: Publisher, tmp_path: Path
) -> None:
    put_article(publisher, 500, "x")
    put_article(publisher, 501, "肺癌患者术后应当定期复查胸部。")
    publisher.files["/pmc/metadata/PMC500.1.json"] = b"[" * 50_000
    outcome = fetch(source_at(publisher, "pmc-chinese"), tmp_path)
    assert len(outcome.failures) == 1
    assert "PMC500.1.json" in outcome.failures[0]
    assert list(held_files(tmp_path)) == ["PMC501.1.xml"]


def test_an_article_that_was_withdrawn_since_is_passed_over(
    publisher: Publisher, tmp_path: Path
) -> None:
    gone = put_article(publisher, 500, "x")
    put_article(publisher, 501, "肺癌患者术后应当定期复查胸部。")
    publisher.spoilt[gone] = Spoilt(status=404)
    outcome = fetch(source_at(publisher, "pmc-chinese"), tmp_path)
    assert (outcome.absent, outcome.failures, list(held_files(tmp_path))) == (
        ("PMC500.1.xml",),
        (),
        ["PMC501.1.xml"],
    )


def test_files_are_private_and_a_link_in_the_way_is_not_followed(
    publisher: Publisher, tmp_path: Path
) -> None:
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
    modes = {
        stat.S_IMODE(path.stat().st_mode) for path in (folder / "files").rglob("*.gz")
    }
    assert modes == {0o600}
    assert stat.S_IMODE((folder / "fetched.json").stat().st_mode) == 0o600


def test_a_damaged_ledger_and_another_corpus_are_errors(
    publisher: Publisher, tmp_path: Path
) -> None:
    put_two(publisher)
    put_medlineplus(publisher, "2026-10-05")
    fetch(source_at(publisher, "pubmed"), tmp_path)
    with pytest.raises(MedliveError, match="medlineplus"):
        fetch(source_at(publisher, "medlineplus"), tmp_path)
    (tmp_path / "fetched.json").write_text("{")
    with pytest.raises(BadInput):
        fetch(source_at(publisher, "pubmed"), tmp_path)


def test_real_hosts_need_a_contact_and_names_must_be_known() -> None:
    for source in SOURCES:
        with pytest.raises(ConfigError):
            Client(None, source.hosts)
    with pytest.raises(UsageError):
        find_source("pubmeed")
    with pytest.raises(UsageError):
        find_source("pubmed", "ftp://ftp.ncbi.nlm.nih.gov/pubmed/")


def test_a_host_that_goes_silent_is_asked_for_the_rest(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medlive.evidence.client.STALL_S", 0.15)
    files = put_two(publisher)
    publisher.spoilt[f"/pubmed/baseline/{FIRST}"] = Spoilt(hold_after=2000, times=1)
    outcome = fetch(source_at(publisher, "pubmed"), tmp_path)
    assert outcome.failures == ()
    assert held_files(tmp_path) == files


def test_a_list_without_end_and_a_length_beyond_reason_are_left(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_two(publisher)
    source = source_at(publisher, "pubmed")
    outcome = fetch(replace(source, largest=100), tmp_path)
    assert all("sent more than 100 bytes" in failure for failure in outcome.failures)
    monkeypatch.setattr("medlive.evidence.client.LARGEST_PAGE", 100_000)
    publisher.spoilt["/pubmed/baseline/"] = Spoilt(endless=True)
    with pytest.raises(FetchFailed):
        fetch(source, tmp_path)


@pytest.mark.parametrize("drips", ["body", "headers"])
async def test_a_list_that_drips_for_ever_ends_at_its_limit_of_time(
    drips: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medlive.evidence.client.ATTEMPTS", 1)
    monkeypatch.setattr("medlive.evidence.client.PAGE_S", 0.2)
    with dripping(drips) as port:
        async with Client(None, frozenset({f"127.0.0.1:{port}"})) as client:
            with pytest.raises(FetchFailed, match="TimeoutError"):
                await client.page(f"http://127.0.0.1:{port}/list")


@contextmanager
def dripping(part: str) -> Iterator[int]:
    """A server that sends a byte of the body, or of a header, every hundredth of a second, until nobody listens."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(10_000)
                end = b"Content-Length: 100000\r\n\r\n" if part == "body" else b"X: "
                connection.sendall(head + end)
                while True:
                    connection.sendall(b"x")
                    time.sleep(0.01)

        thread = threading.Thread(target=drip)
        thread.start()
        yield int(server.getsockname()[1])
        thread.join()


@pytest.mark.parametrize("address", ["10.0.0.5", "127.0.0.1", "::ffff:192.168.1.1"])
async def test_a_publishers_name_that_leads_inside_is_not_asked(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medlive.guard.http.resolve_name", lambda *_: [address])
    async with Client("ops@example.org", frozenset({"publisher.test"})) as client:
        with pytest.raises(
            AddressRefused, match=f"resolves to {address}, which is not"
        ):
            await client.page("http://publisher.test/list")
