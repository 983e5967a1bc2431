"""Corpora fetched from publishers on this machine that imitate the real ones, and the command for it."""

import gzip
import json
import re
import signal
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import get_args

import pytest

from medlive.errors import BadInput
from medlive.evidence.corpora.model import ReadLog
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.fetch.sources import (
    ARTICLE_TYPES,
    SOURCES,
    ArticleType,
    Selection,
    read_ledger,
)
from medlive.guard.bounds import ARCHIVE_MEMBER_BYTES
from medlive.integrity.digest import digest_bytes
from tests.support.fetching_corpora import (
    ALL,
    FIRST,
    FOLDERS,
    REVIEWS,
    SECOND,
    THIRD,
    fetch,
    held_files,
    pages_of,
    plan_of,
    put_two,
    source_at,
)
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

pytestmark = pytest.mark.whole


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with serve_publisher() as published:
        yield published


def test_pubmed_is_fetched_as_published_and_never_twice(
    publisher: Publisher, tmp_path: Path
) -> None:
    files = put_two(publisher)
    source = source_at(publisher, "pubmed")
    outcome = fetch(source, tmp_path / "pubmed")
    assert held_files(tmp_path / "pubmed") == files
    assert (outcome.fetched, outcome.failures, outcome.ledger.complete) == (2, (), True)
    entry = outcome.ledger.files[f"baseline/{FIRST}"]
    assert entry.digest == digest_bytes(files[f"baseline/{FIRST}"]) == entry.kept_digest
    assert publisher.files[f"/pubmed/baseline/{FIRST}.md5"].decode().split("= ")[
        1
    ].strip() in str(entry.checksum)
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
    assert (
        set(held_files(tmp_path))
        == set(outcome.ledger.files)
        == {f"baseline/{FIRST}", f"updatefiles/{THIRD}"}
    )


def test_nothing_is_removed_before_everything_new_is_here(
    publisher: Publisher, tmp_path: Path
) -> None:
    """In December the whole baseline is replaced by files of other names."""
    put_two(publisher)
    source = source_at(publisher, "pubmed")
    fetch(source, tmp_path)
    before = held_files(tmp_path)
    for path in [path for path in publisher.files if "pubmed26" in path]:
        del publisher.files[path]
    put_pubmed(
        publisher, "baseline", {"pubmed27n0001.xml.gz": pubmed_file([Article(1)])}
    )
    put_pubmed(
        publisher, "updatefiles", {"pubmed27n0002.xml.gz": pubmed_file([Article(2)])}
    )
    publisher.spoilt["/pubmed/updatefiles/pubmed27n0002.xml.gz"] = Spoilt(status=403)
    assert len(fetch(source, tmp_path).failures) == 1
    assert before.items() <= held_files(tmp_path).items()
    publisher.spoilt.clear()
    assert len(fetch(source, tmp_path).removed) == 2
    assert set(held_files(tmp_path)) == {
        "baseline/pubmed27n0001.xml.gz",
        "updatefiles/pubmed27n0002.xml.gz",
    }


def test_a_folder_of_another_corpus_is_refused(
    publisher: Publisher, tmp_path: Path
) -> None:
    put_two(publisher)
    fetch(source_at(publisher, "pubmed"), tmp_path)
    with pytest.raises(BadInput, match="holds pubmed, not statpearls"):
        fetch(source_at(publisher, "statpearls"), tmp_path)


def test_a_book_without_a_date_is_fetched(publisher: Publisher, tmp_path: Path) -> None:
    path = put_book(publisher, "NBK430685", "Aspirin.").removeprefix("/books/")
    publisher.files["/books/file_list.csv"] = (
        f"File,Accession ID,Last Updated\n{path},NBK430685\n".encode()
    )
    for fetched in (1, 0):
        assert fetch(source_at(publisher, "statpearls"), tmp_path).fetched == fetched


def test_a_folder_that_cannot_be_made_is_named(
    publisher: Publisher, tmp_path: Path
) -> None:
    put_two(publisher)
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be written: Not a directory"):
        fetch(source_at(publisher, "pubmed"), tmp_path / "file" / "pubmed")


def test_a_dry_run_writes_nothing_and_asks_for_lists_alone(
    publisher: Publisher, tmp_path: Path
) -> None:
    put_two(publisher)
    source = source_at(publisher, "pubmed")
    plan = plan_of(source, tmp_path / "pubmed")
    assert publisher.asked == ["/pubmed/baseline/", "/pubmed/updatefiles/"]
    assert not (tmp_path / "pubmed").exists()
    assert plan.download_bytes == 2 * source.typical_file


SELECTED = [
    Article(1),
    Article(2, kind="Journal Article"),
    Article(3, kind="Review", year=2001),
    Article(4, language="chi"),
    Article(5, kind="Retraction Notice", refers="RetractionOf:1"),
    Article(6, kind="Expression of Concern", refers="ExpressionOfConcernFor:4"),
]


def test_a_selection_keeps_the_chosen_articles_and_every_notice(
    publisher: Publisher, tmp_path: Path
) -> None:
    put_pubmed(publisher, "baseline", {FIRST: pubmed_file(SELECTED)})
    put_pubmed(
        publisher,
        "updatefiles",
        {SECOND: pubmed_file([Article(7, kind="Editorial")], deleted=[4])},
    )
    selection = Selection(types=("review",))
    outcome = fetch(source_at(publisher, "pubmed"), tmp_path, selection)
    first, second = (gzip.decompress(data) for data in held_files(tmp_path).values())
    kept = [
        int(found)
        for found in re.findall(
            rb"</?PubmedArticle><MedlineCitation><PMID Version=.1.>(\d)", first
        )
    ]
    assert kept == [1, 3, 4, 5, 6]
    assert b"<DeleteCitation>" in second
    assert b"Title 7" not in second
    entry = outcome.ledger.files[f"baseline/{FIRST}"]
    assert entry.digest == digest_bytes(publisher.files[f"/pubmed/baseline/{FIRST}"])
    pages, log = pages_of(source_at(publisher, "pubmed"), tmp_path)
    assert all("number 3 " in text for text in pages.values()), pages
    assert log.problem_count == 0


@pytest.mark.parametrize("kind", ["Journal Article", "Review"])
def test_an_article_that_is_no_longer_chosen_is_no_longer_evidence(
    publisher: Publisher, tmp_path: Path, kind: str
) -> None:
    put_pubmed(publisher, "baseline", {FIRST: pubmed_file([Article(1), Article(2)])})
    put_pubmed(
        publisher,
        "updatefiles",
        {SECOND: pubmed_file([Article(1, kind=kind, text="Revised: it fails.")])},
    )
    source = source_at(publisher, "pubmed")
    fetch(source, tmp_path, REVIEWS)
    pages, _ = pages_of(source, tmp_path)
    texts = [
        text for text in pages.values() if "Revised" in text or "number 1 " in text
    ]
    assert texts == (["Revised: it fails."] if kind == "Review" else [])
    assert any("number 2 " in text for text in pages.values())


def test_another_selection_fetches_the_files_again(
    publisher: Publisher, tmp_path: Path
) -> None:
    put_pubmed(publisher, "baseline", {FIRST: pubmed_file(SELECTED)})
    put_pubmed(publisher, "updatefiles", {SECOND: pubmed_file([Article(9)])})
    source = source_at(publisher, "pubmed")
    fetch(source, tmp_path, REVIEWS)
    outcome = fetch(source, tmp_path, ALL)
    assert outcome.fetched == 2
    assert (
        held_files(tmp_path)[f"baseline/{FIRST}"]
        == publisher.files[f"/pubmed/baseline/{FIRST}"]
    )


def test_every_other_layout_is_fetched_and_read(
    publisher: Publisher, tmp_path: Path
) -> None:
    put_book(
        publisher, "NBK430685", "Aspirin prevents a second stroke in many patients."
    )
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
        assert all(
            (f.checksum is not None) == (name in with_checksum)
            for f in ledger.files.values()
        )


def test_the_newest_day_of_medlineplus_replaces_the_one_before(
    publisher: Publisher, tmp_path: Path
) -> None:
    source = source_at(publisher, "medlineplus")
    put_medlineplus(publisher, "2026-10-05")
    fetch(source, tmp_path)
    put_medlineplus(publisher, "2026-10-06", TOPICS.replace("reddens", "flushes"))
    fetch(source, tmp_path)
    assert list(held_files(tmp_path)) == ["mplus_topics_compressed_2026-10-06.zip"]
    assert any("flushes" in text for text in pages_of(source, tmp_path)[0].values())


def instance_of(publisher: Publisher, home: Path) -> Instance:
    """An installation whose mirrors are all this publisher."""
    lines = ["[evidence.mirrors]"]
    lines += [
        f'{s.name} = "{publisher.url}/{FOLDERS.get(s.name, "dailymed")}"'
        for s in SOURCES
    ]
    config = home / "config"
    config.mkdir()
    (config / "medlive.toml").write_text("\n".join(lines))
    return Instance(home, None, {"MEDLIVE_CONFIG": str(config)})


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_recommended_is_planned_in_one_command(
    publisher: Publisher, tmp_path: Path
) -> None:
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
    done = instance_of(publisher, tmp_path).here(
        "evidence", "fetch", "--recommended", "--dry-run", "--json"
    )
    plans = {plan["name"]: plan for plan in done.json["fetched"]}
    assert set(plans) == {s.name for s in SOURCES if s.recommended}
    for plan in plans.values():
        assert plan["to_fetch"] >= 1
        assert plan["download_bytes"] > 0
    assert plans["pubmed"]["selection"]["types"] == [
        "guideline",
        "systematic-review",
        "meta-analysis",
    ]
    assert not (tmp_path / "corpora").exists()


def test_every_choice_of_articles_stands_for_publication_types() -> None:
    assert set(ARTICLE_TYPES) == set(get_args(ArticleType))


def test_the_command_indexes_what_is_whole_and_names_what_is_not(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = tuple(replace(source, pause_s=0.0) for source in SOURCES)
    monkeypatch.setattr("medlive.evidence.fetch.sources.SOURCES", at_once)
    put_medlineplus(publisher, "2026-10-05")
    path = put_dailymed(publisher, "rx", {"aa11": label_xml("aa11")})
    publisher.spoilt[path] = Spoilt(status=403)
    instance = instance_of(publisher, tmp_path)
    arguments = ("evidence", "fetch", "medlineplus", "dailymed-rx", "--encoder", "none")
    done = instance.here(*arguments, status=3)
    assert f"{path}: status 403" in done.err
    listed = instance.here("evidence", "list", "--json").json
    assert [corpus["name"] for corpus in listed["corpora"]] == ["medlineplus"]
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
        (("medlineplus", "--types", "review"), "chooses among PubMed's articles"),
        (("pubmed", "--types", "reviews"), "choose guideline or"),
    ],
)
def test_a_wrong_use_is_said(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    assert (
        words
        in Instance(tmp_path, None).here("evidence", "fetch", *arguments, status=2).err
    )


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
    for place, name in enumerate(
        ["human_rx_part1", "human_rx_part2", "human_otc_part1", "animal"]
    ):
        file, data = (
            f"dm_spl_release_{name}.zip",
            zipped({"1.zip": zipped({"a.xml": label_xml(f"n{place}")})}),
        )
        publisher.files[f"/dailymed/{file}"] = data
        size = f"{len(data) / 1024:.2f}"
        rows.append(
            row.format(
                at=f"{publisher.url}/dailymed", name=file, size=size, md5=md5(data)
            )
        )
    publisher.files["/dailymed/spl-resources-all-drug-labels.cfm"] = "\n".join(
        rows
    ).encode()
    outcome = fetch(source_at(publisher, "dailymed-rx"), tmp_path)
    assert outcome.failures == ()
    assert [file.checksum is not None for file in outcome.ledger.files.values()] == [
        True,
        True,
    ]


def test_labels_are_read_by_section_and_damage_is_reported(tmp_path: Path) -> None:
    good = zipped({"a.xml": label_xml("aa11"), "a.jpg": b"x"})
    release = {
        "prescription/1.zip": good,
        "prescription/2.zip": b"PK broken",
        "readme.txt": b"x",
    }
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
    assert sorted(problem[0].rpartition("/")[2] for problem in log.problems) == [
        "2.zip",
        "b.xml",
    ]


def test_topics_are_read_in_english_by_heading(tmp_path: Path) -> None:
    (tmp_path / "mplus_topics_2026-10-05.xml").write_text(TOPICS, encoding="utf-8")
    log = ReadLog()
    passages = list(open_corpus(tmp_path, None, "topics").passages(log))
    assert [(p.section, p.text) for p in passages] == [
        (
            "",
            "Rosacea is a long-term skin disease & it reddens the face.\nAlso called: Acne rosacea",
        ),
        ("Treatment", "- Avoid the sun\n- Metronidazole gel"),
    ]
    assert passages[0].published == date(2026, 10, 5)
    assert log.problem_count == 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["topics.zip", "topics.tar"])
def test_topics_are_known_and_read_however_large_their_file_is(
    tmp_path: Path, name: str
) -> None:
    member, packed = tmp_path / "mplus_topics.xml", tmp_path / name
    member.write_bytes(TOPICS.encode() + b" " * ARCHIVE_MEMBER_BYTES)
    if packed.suffix == ".zip":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(member, member.name)
    else:
        with tarfile.open(packed, "w:gz") as tar:
            tar.add(member, member.name)
    log = ReadLog()
    assert len(list(open_corpus(packed, None, "topics").passages(log))) == 2
    assert log.problem_count == 0
