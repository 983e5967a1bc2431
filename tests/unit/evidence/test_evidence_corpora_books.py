"""Chapters, articles, guidelines and MedRAG's chunks; and which reader takes which path."""

import gzip
import io
import json
import tarfile
import time
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.errors import BadInput
from medlive.evidence.corpora.folder import titled_sections
from medlive.evidence.corpora.model import ReadLog, path_label
from medlive.evidence.corpora.parsing.xml import flat, parse
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.passage import Passage

CHAPTER = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE book-part-wrapper PUBLIC "-//NLM//DTD BITS Book Interchange DTD v2.0//EN" "BITS-book2.dtd">
<book-part-wrapper xmlns:xlink="http://www.w3.org/1999/xlink" id="article-7" xml:lang="en">
<book-meta><book-id book-id-type="pmcid">statpearls</book-id>
<book-title-group><book-title>Pearls</book-title></book-title-group>
<pub-date date-type="pub"><month>01</month><year>2026</year></pub-date>
<permissions><copyright-statement>Copyright 2026</copyright-statement><license xlink:href=
"https://creativecommons.org/licenses/by-nc-nd/4.0/"><license-p>May be shared.</license-p></license></permissions>
</book-meta>
<book-part book-part-type="chapter"><book-part-meta>
<book-part-id book-part-id-type="pmcid">article-7</book-part-id>
<title-group><title>Sprains</title></title-group>
<pub-history><date date-type="created"><day>4</day><month>3</month><year>2017</year></date>
<date date-type="revised"><day>9</day><month>8</month><year>2024</year></date></pub-history></book-part-meta>
<body>
<sec><title>Continuing Education Activity</title><p>This activity reviews sprains.</p></sec>
<sec sec-type="treatment"><title>Treatment / Management</title>
<p>Rest comes first [<xref ref-type="bibr" rid="r1">1</xref>][<xref ref-type="bibr" rid="r2">2</xref>, <xref
ref-type="bibr" rid="r3">3</xref>].</p>
<sec><title>Pharmacology</title><p><bold>Analgesics</bold></p><p>Give 500&nbsp;mg:</p>
<list><list-item><p>paracetamol</p></list-item><list-item><p>ibuprofen</p><list><list-item><p>with food</p>
</list-item></list></list-item></list>
<table-wrap><caption><p>Doses</p></caption><table><tr><th>Drug</th><th>Dose</th></tr><tr><td>Ibuprofen</td><td>400
mg</td></tr></table></table-wrap></sec>
<fig><label>Figure 1</label><caption><p>A swollen ankle.</p></caption><graphic xlink:href="a.jpg"/></fig>
</sec>
<sec><title>Review Questions</title><list><list-item><p>Free questions here.</p></list-item></list></sec>
</body><back><ref-list><title>References</title><ref id="r1"><mixed-citation>Doe J.</mixed-citation></ref>
</ref-list></back></book-part></book-part-wrapper>"""

ARTICLE = """<article article-type="research-article" xmlns:xlink="http://www.w3.org/1999/xlink"><front><article-meta>
<article-id pub-id-type="pmc">PMC55</article-id><article-id pub-id-type="pmid">77</article-id>
<title-group><article-title>Rest in <italic>sprains</italic></article-title></title-group>
<pub-date pub-type="epub"><day>2</day><month>5</month><year>2020</year></pub-date>
<pub-date pub-type="ppub"><month>9</month><year>2020</year></pub-date>
<history><date date-type="received"><year>2018</year></date></history>
<permissions><license><license-p>CC BY <ext-link xlink:href="http://creativecommons.org/licenses/by/4.0/">4.0</ext-link>
</license-p></license></permissions><abstract><p>Rest helps <xref ref-type="bibr">4</xref>.</p></abstract>
</article-meta></front>
<body><sec><title>Authors' contributions</title><p>JD rested.</p></sec>
<sec><title>Results</title><p>Half recovered.</p></sec></body></article>"""

QA = (
    "<Document><Focus>Gout</Focus><QAPairs><QAPair><Question>Q</Question><Answer>Rest.</Answer></QAPair></QAPairs>"
    "</Document>"
)
PUBMED = (
    "<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>5</PMID><Article><Journal><JournalIssue><PubDate>"
    "<Year>2001</Year></PubDate></JournalIssue></Journal><ArticleTitle>T</ArticleTitle><Abstract><AbstractText>Rest."
    "</AbstractText></Abstract></Article></MedlineCitation></PubmedArticle></PubmedArticleSet>"
)


def read(path: Path, kind: str | None = None) -> tuple[list[Passage], ReadLog]:
    log = ReadLog()
    return list(open_corpus(path, kind, name="c").passages(log)), log


def tar_of(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def test_a_chapter_is_read_by_section_under_its_titles(tmp_path: Path) -> None:
    archive = tar_of(
        tmp_path / "statpearls_NBK430685.tar.gz",
        {"statpearls_NBK430685/article-7.nxml": CHAPTER},
    )
    passages, log = read(archive)
    assert [(p.section, p.text) for p in passages] == [
        ("Treatment / Management", "Rest comes first."),
        (
            "Treatment / Management > Pharmacology > Analgesics",
            "Give 500 mg:\n- paracetamol\n- ibuprofen\n- with food\nDoses\nDrug | Dose\nIbuprofen | 400 mg",
        ),
        ("Treatment / Management", "A swollen ankle."),
    ]
    first = passages[0]
    assert first.id == "c:statpearls/article-7:treatment-/-management.1"
    assert (first.title, first.published, first.licence) == (
        "Sprains",
        date(2024, 8, 9),
        "CC-BY-NC-ND-4.0",
    )
    assert first.url == "https://www.ncbi.nlm.nih.gov/books/n/statpearls/article-7/"
    assert (log.documents, log.problem_count) == (1, 0)


def test_a_folder_of_chapters_reads_as_their_archive(tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "article-7.nxml").write_text(CHAPTER)
    archive = tar_of(tmp_path / "a.tar.gz", {"book/article-7.nxml": CHAPTER})
    assert read(tmp_path / "book")[0] == read(archive)[0]


def test_an_article_stays_as_it_was_first_published_and_a_retracted_one_is_left_out(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.xml").write_text(ARTICLE)
    (tmp_path / "b.xml").write_text(ARTICLE.replace("research-article", "retraction"))
    (tmp_path / "c.xml").write_text(ARTICLE.replace(">Rest in", ">RETRACTED: Rest in"))
    (tmp_path / "d.xml").write_text(
        ARTICLE.replace("research-article", "expression-of-concern")
    )
    (abstract, passage), log = read(tmp_path)
    assert (abstract.section, abstract.text) == ("Abstract", "Rest helps.")
    assert (passage.id, passage.title, passage.section) == (
        "c:pmc55:results.1",
        "Rest in sprains",
        "Results",
    )
    assert (passage.published, passage.licence) == (date(2020, 5, 2), "CC-BY-4.0")
    assert passage.url == "https://pmc.ncbi.nlm.nih.gov/articles/PMC55/"
    assert log.left_out == 3


def test_a_chapter_with_an_accession_number_goes_by_it_and_a_general_title_names_its_book(
    tmp_path: Path,
) -> None:
    text = CHAPTER.replace(
        "<title>Sprains</title>", "<title>Chapter 3</title>"
    ).replace(
        '<book-part-id book-part-id-type="pmcid">',
        '<book-part-id book-part-id-type="nbk">NBK99</book-part-id><book-part-id book-part-id-type="pmcid">',
    )
    (tmp_path / "x.nxml").write_text(text)
    passage = read(tmp_path)[0][0]
    assert (passage.title, passage.url) == (
        "Pearls: Chapter 3",
        "https://www.ncbi.nlm.nih.gov/books/NBK99/",
    )


def test_a_chapter_without_identifiers_goes_by_its_archives_number(
    tmp_path: Path,
) -> None:
    meta = "<book-part-meta><title-group><title>Knees</title></title-group></book-part-meta>"
    archive = tar_of(
        tmp_path / "gout_NBK123.tar.gz",
        {
            "gout_NBK123/ch2.nxml": f"<book-part>{meta}<body><p>Bend.</p></body></book-part>"
        },
    )
    (passage,), _ = read(archive)
    assert (passage.id, passage.url) == (
        "c:nbk123/ch2:-.1",
        "https://www.ncbi.nlm.nih.gov/books/NBK123/",
    )
    assert (passage.published, passage.licence) == (None, "unstated")


def test_parts_within_parts_are_read_once_and_damage_is_named(tmp_path: Path) -> None:
    nested = CHAPTER.replace(
        "</body>",
        "<book-part><book-part-meta><book-part-id book-part-id-type='pmcid'>article-8</book-part-id>"
        "<title-group><title>Ankles</title></title-group></book-part-meta><body><p>Ankles turn.</p></body>"
        "</book-part></body>",
    )
    (tmp_path / "a.nxml").write_text(nested)
    (tmp_path / "b.nxml").write_text(CHAPTER[: len(CHAPTER) // 2])
    (tmp_path / "c.nxml").write_text(CHAPTER.replace("&nbsp;", "&nothing;"))
    passages, log = read(tmp_path)
    assert [p.text for p in passages].count("Ankles turn.") == 1
    assert {p.title for p in passages} == {"Sprains", "Ankles"}
    assert sorted((p[0], p[1].split(": ")[1]) for p in log.problems) == [
        ("b.nxml", "no element found")
        if "no element" in log.problems[0][1]
        else ("b.nxml", "unclosed token"),
        ("c.nxml", "undefined entity 'nothing'"),
    ]


@settings(max_examples=25, deadline=None)
@given(place=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_damaged_chapter_never_stops_the_others(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int
) -> None:
    folder = tmp_path_factory.mktemp("b")
    data = bytearray(CHAPTER.encode())
    data[place % len(data)] = value
    (folder / "bad.nxml").write_bytes(data)
    (folder / "good.nxml").write_text(
        CHAPTER.replace("article-7", "article-9").replace("Sprains", "Strains")
    )
    passages, log = read(folder, "bookshelf")
    assert sum(p.title == "Strains" for p in passages) == 3
    assert log.problem_count or len({p.title for p in passages}) == 2 or log.left_out


def test_guidelines_keep_their_source_and_the_path_of_their_headings(
    tmp_path: Path,
) -> None:
    rows: list[dict[str, object]] = [
        {
            "id": 4,
            "source": "nice",
            "title": "Gout",
            "url": "https://example.org/gout",
            "overview": None,
            "clean_text": "Intro.\n\n# Management\n\n## **Drugs**\nColchicine.\n### Dose\n500 µg.",
        },
        {
            "id": 5,
            "source": "who",
            "title": None,
            "url": None,
            "clean_text": "# Malaria\nUse nets.",
        },
        {"id": 6, "source": "cma", "title": "T", "clean_text": " "},
        {"id": 7, "source": "cma", "title": "T", "clean_text": None},
        {"id": 8, "source": "cma", "title": "T", "clean_text": ""},
    ]
    file = tmp_path / "open_guidelines.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    passages, log = read(file)
    assert [(p.id, p.title, p.section, p.text) for p in passages] == [
        ("c:nice-4:-.1", "Gout (NICE)", "", "Intro."),
        ("c:nice-4:drugs.1", "Gout (NICE)", "Drugs", "Colchicine."),
        ("c:nice-4:drugs-dose.1", "Gout (NICE)", "Drugs > Dose", "500 µg."),
        ("c:who-5:-.1", "Malaria (WHO)", "", "Use nets."),
    ]
    assert {(p.published, p.licence) for p in passages} == {
        (None, "each publisher's own terms")
    }
    assert passages[0].url == "https://example.org/gout"
    assert (log.left_out, log.problem_count) == (2, 1)


def test_medrag_chunks_are_read_as_published(tmp_path: Path) -> None:
    rows = [
        {
            "id": "pubmed23n0001_0",
            "title": "Rest.",
            "content": "It helps.",
            "contents": "Rest. It helps.",
            "PMID": 21,
        },
        {
            "id": "article-7_3",
            "title": "Gout -- Treatment -- Drugs",
            "content": "Colchicine.",
            "contents": "...",
        },
    ]
    (tmp_path / "chunk").mkdir()
    (tmp_path / "chunk" / "x.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    passages, _ = read(tmp_path / "chunk")
    assert [(p.title, p.section, p.text, p.url) for p in passages] == [
        ("Rest.", "", "It helps.", "https://pubmed.ncbi.nlm.nih.gov/21/"),
        ("Gout -- Treatment -- Drugs", "", "Colchicine.", ""),
    ]
    assert {p.published for p in passages} == {None}


@pytest.mark.parametrize("form", ["folder", "tar", "file", "gz"])
@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("pubmed", "a.xml", PUBMED),
        ("bookshelf", "a.nxml", CHAPTER),
        ("bookshelf", "a.xml", ARTICLE),
        ("medquad", "a.xml", QA),
        ("guidelines", "a.jsonl", '{"id":1,"source":"who","clean_text":"Rest."}\n'),
        ("passages", "a.jsonl", '{"id":1,"title":"T","text":"Rest."}\n'),
    ],
)
def test_a_path_is_known_by_what_it_holds(
    tmp_path: Path, form: str, kind: str, name: str, text: str
) -> None:
    readable = {
        "folder": {"pubmed", "bookshelf", "medquad", "guidelines", "passages"},
        "tar": {"bookshelf", "medquad", "pubmed"},
        "file": {"pubmed", "bookshelf", "medquad", "guidelines", "passages"},
        "gz": {"pubmed", "guidelines", "passages"},
    }
    match form:
        case "folder":
            path = tmp_path / "in"
            path.mkdir()
            (path / name).write_text(text)
            (path / "README.txt").write_text("About these files.")
        case "tar":
            path = tar_of(tmp_path / "in.tar.gz", {"LICENSE": "x", f"d/{name}": text})
        case "file":
            path = tmp_path / name
            path.write_text(text)
        case _:
            path = tmp_path / f"{name}.gz"
            path.write_bytes(gzip.compress(text.encode()))
    if kind in readable[form]:
        assert open_corpus(path).reader.kind == kind
        assert read(path)[0]
    else:
        with pytest.raises(BadInput):
            open_corpus(path)


def test_xml_of_no_known_kind_is_no_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<html><body>Rest.</body></html>")
    (tmp_path / "b.xml").write_text("no XML at all")
    with pytest.raises(BadInput):
        open_corpus(tmp_path)


def test_an_appendix_is_read_and_a_reference_list_beside_it_is_not(
    tmp_path: Path,
) -> None:
    appendix = "<back><app-group><app><title>Appendix A</title><p>Doses for children.</p></app></app-group>"
    (tmp_path / "a.nxml").write_text(CHAPTER.replace("<back>", appendix))
    texts = [(p.section, p.text) for p in read(tmp_path)[0]]
    assert texts[-1] == ("Appendix A", "Doses for children.")
    assert not any("Doe J." in text for _, text in texts)


@given(st.lists(st.text(max_size=80), max_size=8))
def test_a_label_fits_and_ends_with_the_nearest_title(titles: list[str]) -> None:
    label = path_label(titles)
    names = [" ".join(title.split()) for title in titles]
    assert len(label) <= 120
    assert not any(names) or "\n" not in label


@given(
    st.lists(
        st.tuples(
            st.integers(2, 4),
            st.sampled_from("ABCD"),
            st.sampled_from(["", "x y", "# code"]),
        ),
        max_size=8,
    )
)
def test_a_markdown_section_stands_under_its_headings(
    parts: list[tuple[int, str, str]],
) -> None:
    lines, expected = ["# Title", "lead"], [("", "lead")]
    above: dict[int, str] = {}
    for level, name, body in parts:
        lines += ["#" * level + f" {name}", f"```\n{body}\n```" if body else ""]
        above = {at: held for at, held in above.items() if at < level} | {level: name}
        if body:
            expected.append(
                (" > ".join(above[at] for at in sorted(above)), f"```\n{body}\n```")
            )
    title, sections = titled_sections("\n".join(lines))
    assert title == "Title"
    assert [(section.label, section.text) for section in sections] == expected


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("10<sup>-9</sup>", "10^-9"),
        ("HCO3<sup>-</sup>", "HCO3^-"),
        ("10<sup>9<xref ref-type='bibr'>3</xref></sup> cells", "10^9 cells"),
        ("in 2019<sup><xref ref-type='bibr'>3</xref></sup>.", "in 2019."),
        (
            "in 2019<sup><xref ref-type='bibr'>3</xref>–<xref ref-type='bibr'>5</xref></sup>.",
            "in 2019–.",
        ),
        ("30<sup/> men", "30 men"),
    ],
)
def test_a_citation_after_a_number_is_no_power_of_it(markup: str, text: str) -> None:
    assert flat(parse(f"<p>{markup}</p>".encode())) == text


@pytest.mark.thorough
@pytest.mark.parametrize(
    "unit", ["<sup/>", "<sup> </sup>", "<sup><label>1</label></sup><break/>"]
)
def test_powers_of_nothing_take_linear_time(unit: str) -> None:
    document = parse(f"<p>{unit * 50_000}10<sup>9</sup>/l</p>".encode())
    started = time.process_time()
    assert flat(document).endswith("10^9/l")
    assert time.process_time() - started < 5
