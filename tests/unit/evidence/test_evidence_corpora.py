"""Readers: what they read, what they refuse, and that a stranger's archive cannot hurt."""

import gzip
import io
import json
import os
import tarfile
from datetime import date
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.errors import BadInput, UsageError
from medlive.evidence.corpora.model import (
    Document,
    ReadLog,
    Section,
    chunk,
    is_boilerplate,
    passages_of,
)
from medlive.evidence.corpora.parsing import files as members_module
from medlive.evidence.corpora.parsing.text import clean, language_of, latest_date
from medlive.evidence.corpora.parsing.xml import UnsafeXml, parse
from medlive.evidence.corpora.registry import READERS, open_corpus
from medlive.evidence.passage import Passage
from medlive.guard.bounds import ARCHIVE_MEMBER_BYTES

PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<Document id="7" source="Here" url="http://example.org/gout"><Focus>Gout</Focus><QAPairs>
<QAPair pid="1"><Question qid="7-1" qtype="treatment">How is gout treated ?</Question>
<Answer>Colchicine eases an attack. Allopurinol lowers uric acid &amp; prevents the next one.</Answer></QAPair>
<QAPair pid="2"><Question qid="7-2" qtype="causes">What causes gout ?</Question><Answer>  </Answer></QAPair>
</QAPairs></Document>"""


def read(
    path: Path, kind: str | None = None, name: str | None = None
) -> tuple[list[Passage], ReadLog]:
    log = ReadLog()
    return list(open_corpus(path, kind, name).passages(log)), log


Packing = Literal["w", "w:gz", "w:xz"]


def tar_of(path: Path, files: dict[str, bytes], mode: Packing = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    ("suffix", "mode"), [(".tar.gz", "w:gz"), (".tar", "w"), (".tar.xz", "w:xz")]
)
def test_medquad_archive_gives_only_answered_pairs(
    tmp_path: Path, suffix: str, mode: Packing
) -> None:
    archive = tar_of(
        tmp_path / f"a{suffix}", {"1_Here_QA/0007.xml": PAGE.encode()}, mode
    )
    passages, log = read(archive)
    assert [(p.id, p.title, p.section) for p in passages] == [
        ("medquad:1_here_qa/0007-1:treatment.1", "Gout", "treatment")
    ]
    assert passages[0].text.endswith(
        "Allopurinol lowers uric acid & prevents the next one."
    )
    assert (passages[0].licence, passages[0].url) == (
        "CC-BY-4.0",
        "http://example.org/gout",
    )
    assert (log.documents, log.left_out, log.problem_count) == (1, 1, 0)


def test_medquad_folder_reads_as_its_archive(tmp_path: Path) -> None:
    folder = tmp_path / "unpacked" / "1_Here_QA"
    folder.mkdir(parents=True)
    (folder / "0007.xml").write_text(PAGE)
    archive = tar_of(tmp_path / "a.tar.gz", {"1_Here_QA/0007.xml": PAGE.encode()})
    assert read(folder.parent)[0] == read(archive)[0]


@pytest.mark.thorough
def test_hostile_archive_members_are_reported_and_the_rest_is_read(
    tmp_path: Path,
) -> None:
    bomb = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><Document><Focus>&b;</Focus></Document>'
    archive = tmp_path / "hostile.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in {
            "../../escape.xml": PAGE.encode(),
            "/etc/absolute.xml": PAGE.encode(),
            "bomb.xml": bomb.encode(),
            "huge.xml": b" " * ARCHIVE_MEMBER_BYTES + PAGE.encode(),
            "cut.xml": PAGE.encode()[:200],
            "other.xml": b"<html><body/></html>",
            "nul.xml": b"\x00\x01\x02",
            "encoding.xml": b'<?xml version="1.0" encoding="no-such"?><Document/>',
            "good/1.xml": PAGE.encode(),
            "deep.xml": b"<a>" * 5000 + b"</a>" * 5000,
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link.xml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    before = sorted(p.name for p in tmp_path.iterdir())
    passages, log = read(archive)
    assert [p.id for p in passages] == ["medquad:good/1-1:treatment.1"]
    assert {p[0]: p[1] for p in log.problems}.keys() == {
        "../../escape.xml",
        "/etc/absolute.xml",
        "bomb.xml",
        "deep.xml",
        "huge.xml",
        "cut.xml",
        "other.xml",
        "nul.xml",
        "encoding.xml",
        "link.xml",
    }
    assert log.problem_count == len(log.problems) == 10
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_header_that_claims_gigabytes_does_not_take_them(
    tmp_path: Path, kind: bytes
) -> None:
    info = tarfile.TarInfo("x.xml")
    info.type, info.size = kind, 6 << 30
    archive = tmp_path / "claims.tar"
    archive.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 4096)
    passages, log = read(archive, "medquad")
    assert not passages
    assert [p[1].split(": ")[-1] for p in log.problems] == [
        f"a header claims {6 << 30} bytes"
    ]


def test_header_after_header_without_end_is_a_problem(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x.xml")
    info.type, info.size = tarfile.XHDTYPE, 0
    archive = tmp_path / "chain.tar"
    archive.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) * 5_000)
    passages, log = read(archive, "medquad")
    assert (passages, log.problem_count) == ([], 1)


def test_archive_that_unpacks_without_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members_module, "ARCHIVE_BYTES", 100_000)
    files = {
        "a/1.xml": PAGE.encode(),
        "zeros.bin": b"\0" * 5_000_000,
        "a/2.xml": PAGE.encode(),
    }
    passages, log = read(tar_of(tmp_path / "bomb.tar.gz", files))
    assert len(passages) == 1
    assert log.problem_count == 1


def test_damage_in_the_middle_keeps_what_came_before(tmp_path: Path) -> None:
    # Random-looking filler does not compress, so that the cut falls between the pages.
    filler = bytes(hash((i, "x")) % 256 for i in range(200_000))
    files = {"a/1.xml": PAGE.encode(), "filler.bin": filler, "a/2.xml": PAGE.encode()}
    archive = tar_of(tmp_path / "whole.tar.gz", files)
    data = archive.read_bytes()
    archive.write_bytes(data[: len(data) // 2])
    passages, log = read(archive)
    assert len(passages) == 1
    assert log.problem_count == 1


def test_external_entity_is_never_fetched(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("SECRET")
    with pytest.raises(UnsafeXml):
        parse(f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{secret}">]><a>&x;</a>'.encode())
    with pytest.raises(UnsafeXml):
        parse('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'.encode("utf-16"))


def test_pubmedqa_keeps_labels_year_and_conclusion_together(tmp_path: Path) -> None:
    entry = {
        "QUESTION": "Does rest help?",
        "CONTEXTS": ["Rest was studied.", "Half recovered."],
        "LABELS": ["METHODS", "RESULTS"],
        "YEAR": "2011",
        "LONG_ANSWER": "Rest helps some.",
    }
    file = tmp_path / "qa.json"
    bad = {
        "2": 5,
        "3": {"CONTEXTS": "no list"},
        "4": {"CONTEXTS": ["x y"], "YEAR": "soon"},
        "5": {"CONTEXTS": []},
    }
    file.write_text(json.dumps({"123": entry, **bad}))
    passages, log = read(file)
    assert passages == [
        Passage(
            id="pubmedqa:123:methods-results-conclusions.1",
            corpus="pubmedqa",
            title="Does rest help?",
            section="METHODS, RESULTS, CONCLUSIONS",
            text="Rest was studied.\nHalf recovered.\nRest helps some.",
            language="en",
            published=date(2011, 12, 31),
            url="https://pubmed.ncbi.nlm.nih.gov/123/",
            licence="MIT",
        )
    ]
    assert [p[0] for p in log.problems] == ["2", "3", "4"]
    assert log.left_out == 1


@pytest.mark.parametrize(
    "text", ["[]", "{", "[" * 100_000, "\udcff".encode("utf-8", "surrogatepass")]
)
def test_pubmedqa_file_of_another_shape_is_bad_input(
    tmp_path: Path, text: str | bytes
) -> None:
    file = tmp_path / "qa.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput) as caught:
        read(file, "pubmedqa")
    assert "\n" not in caught.value.message


def test_jsonl_reads_passages_and_medrag_chunks_and_reports_bad_lines_by_number(
    tmp_path: Path,
) -> None:
    rows: list[object] = [
        {
            "id": "a",
            "title": "Gout",
            "text": "Colchicine eases an attack.",
            "section": "treatment",
            "date": "2020-02",
            "language": "en",
            "url": "u",
            "licence": "CC0",
            "unknown": 1,
        },
        {
            "id": "article-1_0",
            "title": "T",
            "content": "From a chunk.",
            "contents": "T. From a chunk.",
        },
        {"id": 7, "title": None, "text": "二甲双胍可以降低血糖。"},
    ]
    lines = [json.dumps(r).encode() for r in rows]
    lines += [
        b"{",
        b'{"title": "no id", "text": "x"}',
        b'{"id": "b"}',
        b'{"id": "c", "text": 5}',
        b"\xff\xfe",
    ]
    lines += [
        b'{"id": "d", "text": "y", "date": "last week"}',
        b"",
        b"[" * 100_000,
        b'{"id": "e", "text": " "}',
    ]
    file = tmp_path / "notes.jsonl.gz"
    file.write_bytes(gzip.compress(b"\xef\xbb\xbf" + b"\n".join(lines)))
    passages, log = read(file, name="notes")
    assert [(p.id, p.language, p.published, p.licence) for p in passages] == [
        ("notes:a:treatment.1", "en", date(2020, 2, 29), "CC0"),
        ("notes:article-1_0:-.1", "en", None, "unstated"),
        ("notes:7:-.1", "zh", None, "unstated"),
    ]
    assert [p[0].rsplit(":", 1)[1] for p in log.problems] == [
        "4",
        "5",
        "6",
        "7",
        "8",
        "9",
        "11",
    ]
    assert log.left_out == 1


def test_jsonl_skips_a_line_beyond_bounds_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medlive.evidence.corpora.jsonl.PASSAGE_LINE_BYTES", 1000)
    file = tmp_path / "n.jsonl"
    file.write_text(
        json.dumps({"id": "1", "text": "x" * 5000})
        + "\n"
        + json.dumps({"id": "2", "text": "fine"})
    )
    passages, log = read(file)
    assert [p.text for p in passages] == ["fine"]
    assert [p[0] for p in log.problems] == ["n.jsonl:1"]


def test_folder_reads_markdown_sections_and_chinese_charsets(tmp_path: Path) -> None:
    (tmp_path / "heart").mkdir()
    (tmp_path / "heart" / "af.md").write_text(
        "# Atrial fibrillation\nIntro here.\n## Drugs\nApixaban.\n```\n# code\n```"
    )
    (tmp_path / "heart" / "空.txt").write_bytes(
        "高血压患者应当低盐饮食。".encode("gb18030")
    )
    (tmp_path / "bad.txt").write_bytes(b"\xff\xff\xff")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "link.txt").symlink_to("/etc/hostname")
    passages, log = read(tmp_path, name="notes")
    assert [(p.id, p.title, p.section, p.text) for p in passages] == [
        ("notes:heart/af.md:-.1", "Atrial fibrillation", "", "Intro here."),
        (
            "notes:heart/af.md:drugs.1",
            "Atrial fibrillation",
            "Drugs",
            "Apixaban.\n```\n# code\n```",
        ),
        ("notes:heart/空.txt:-.1", "空", "", "高血压患者应当低盐饮食。"),
    ]
    assert sorted(p[0] for p in log.problems) == ["bad.txt", "link.txt"]
    assert log.left_out == 1


@pytest.mark.parametrize(
    ("suffix", "text"),
    [(".jsonl", '{"id": "1", "text": "fine"}'), (".xml", PAGE), (".md", "fine")],
)
def test_a_folder_that_a_stranger_filled_yields_its_plain_files_alone(
    tmp_path: Path, suffix: str, text: str
) -> None:
    """Neither links, of files and of folders, nor a pipe, which would be waited for."""
    folder, outside = tmp_path / "corpus", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / f"secret{suffix}").write_text(
        text.replace("fine", "secret").replace("Colchicine", "secret")
    )
    (folder / f"b{suffix}").write_text(text)
    (folder / f"c{suffix}").symlink_to(outside / f"secret{suffix}")
    (folder / "d").symlink_to(outside, target_is_directory=True)
    os.mkfifo(folder / f"a{suffix}")
    passages, log = read(folder, name="theirs")
    assert len(passages) == 1
    assert "secret" not in passages[0].text
    named = {problem[0].partition(":")[0] for problem in log.problems}
    assert named <= {f"a{suffix}", f"c{suffix}"}
    # A file that its owner names may be a link.
    (tmp_path / f"latest{suffix}").symlink_to(folder / f"b{suffix}")
    if suffix != ".md":
        assert len(read(tmp_path / f"latest{suffix}", name="theirs")[0]) == 1


def test_unknown_paths_kinds_and_names_are_refused_with_the_choices(
    tmp_path: Path,
) -> None:
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        open_corpus(tmp_path / "absent")
    (tmp_path / "x.bin").write_bytes(b"\0\1")
    with pytest.raises(BadInput) as unknown:
        open_corpus(tmp_path / "x.bin")
    assert all(reader.kind in (unknown.value.hint or "") for reader in READERS)
    with pytest.raises(BadInput, match="of the kind 'nonsense'"):
        open_corpus(tmp_path / "x.bin", kind="nonsense")
    (tmp_path / "n.jsonl").write_text("{}")
    with pytest.raises(UsageError):
        open_corpus(tmp_path / "n.jsonl", name="a:b")


@given(st.text(max_size=400), st.integers(10, 200))
def test_chunks_are_bounded_and_lose_nothing_but_space(text: str, limit: int) -> None:
    cleaned = clean(text)
    pieces = list(chunk(cleaned, limit))
    assert all(piece and len(piece) <= limit + limit // 4 for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(cleaned.split())


@given(
    st.lists(
        st.sampled_from(
            [
                "Take it twice. ",
                "血压偏高。",
                "5 mg, then 10 mg; ",
                "a" * 90,
                "\n- item ",
            ]
        ),
        max_size=80,
    )
)
def test_chunks_end_at_sentences_where_there_are_any(parts: list[str]) -> None:
    cleaned = clean("".join(parts))
    pieces = list(chunk(cleaned, 200))
    assert all(len(piece) <= 250 for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(cleaned.split())


@pytest.mark.thorough
def test_megabytes_without_a_full_stop_are_cut_in_linear_time() -> None:
    document = Document(
        "d",
        "T",
        (
            Section(
                "s", "word " * 400_000 + "。" * 300_000 + '"' * 300_000 + "." * 300_000
            ),
        ),
    )
    assert sum(1 for _ in passages_of(document, corpus="c", licence="x")) > 1500


@given(st.text())
def test_clean_text_can_be_stored(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode("utf-8")
    assert "\0" not in cleaned
    assert clean(cleaned) == cleaned


def test_ids_stay_when_an_earlier_section_grows() -> None:
    def ids(first: str) -> set[str]:
        document = Document(
            "d", "T", (Section("causes", first), Section("treatment", "Rest helps."))
        )
        return {
            p.id
            for p in passages_of(document, corpus="c", licence="x")
            if p is not None
        }

    assert ids("Short cause.") <= ids("Short cause. " * 300)


@pytest.mark.parametrize(
    ("text", "boilerplate"),
    [
        (
            "These resources address the diagnosis or management of gout: - Gene Review",
            True,
        ),
        ("Additional resources may be found below.", True),
        ("This site uses cookies.", True),
        ("How might gout be treated?", True),
        ("点击查看更多", True),
        ("— · —", True),
        ("How might gout be treated? Colchicine eases an attack.", False),
        ("These drugs may raise the blood pressure.", False),
        ("Rest. 404 patients were studied.", False),
        ("没有特效药。", False),
    ],
)
def test_boilerplate_is_told_from_content(text: str, boilerplate: bool) -> None:
    assert is_boilerplate(text) is boilerplate


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2011", date(2011, 12, 31)),
        (2012, date(2012, 12, 31)),
        ("2023-02", date(2023, 2, 28)),
        ("", None),
        (None, None),
        ("2020-05-06", date(2020, 5, 6)),
        ("2020-05-06T10:00:00+08:00", date(2020, 5, 6)),
    ],
)
def test_a_partial_date_is_its_last_day(value: object, expected: date | None) -> None:
    assert latest_date(value) == expected


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Take aspirin.", "en"),
        ("口服阿司匹林 aspirin 100mg", "zh"),
        ("123", "und"),
        ("薬をのみます", "ja"),
    ],
)
def test_language_is_told_by_script(text: str, language: str) -> None:
    assert language_of(text) == language
