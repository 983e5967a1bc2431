"""PubMed files: what is read, which record holds, what is no evidence, and what damage costs."""

import gzip
import random
import re
from collections.abc import Iterator
from datetime import date
from io import BytesIO
from pathlib import Path
from xml.etree.ElementTree import iterparse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.evidence.corpora.model import ReadLog
from medlive.evidence.corpora.parsing import frames as frames_module
from medlive.evidence.corpora.parsing.dates import period, written
from medlive.evidence.corpora.parsing.frames import frames
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.corpora.survey import Survey
from medlive.evidence.online.service import Unreadable, read_articles
from medlive.evidence.passage import Passage
from medlive.guard.bounds import PUBMED_RECORD_BYTES

HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st'
    ' January 2025//EN" "https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">\n<PubmedArticleSet>\n'
)
END = "</PubmedArticleSet>\n"


def article(
    pmid: int,
    abstract: str = "<AbstractText>Rest eased the pain of most patients.</AbstractText>",
    *,
    title: str = "Rest in sprains.",
    issue: str = "<Year>2019</Year><Month>Apr</Month>",
    inside: str = "",
    kinds: str = "Journal Article",
    language: str = "eng",
    after: str = "",
    history: str = "",
) -> str:
    held = f"<Abstract>{abstract}</Abstract>" if abstract else ""
    return (
        f'<PubmedArticle>\n<MedlineCitation Status="MEDLINE">\n<PMID Version="1">{pmid}</PMID>\n'
        f'<Article PubModel="Print"><Journal><JournalIssue><PubDate>{issue}</PubDate></JournalIssue></Journal>\n'
        f"<ArticleTitle>{title}</ArticleTitle>\n{held}\n<AuthorList><Author><LastName>Doe</LastName></Author>"
        f"</AuthorList><Language>{language}</Language><PublicationTypeList><PublicationType>{kinds}"
        f"</PublicationType></PublicationTypeList>{inside}</Article>\n{after}</MedlineCitation>\n"
        f"<PubmedData><History>{history}</History><ReferenceList><Reference><ArticleIdList>"
        '<ArticleId IdType="pubmed">1</ArticleId></ArticleIdList></Reference></ReferenceList></PubmedData>\n'
        "</PubmedArticle>\n"
    )


def write(path: Path, *records: str, head: str = HEAD, end: str = END) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = (head + "".join(records) + end).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def read(path: Path, kind: str | None = None) -> tuple[list[Passage], ReadLog]:
    log = ReadLog()
    return list(open_corpus(path, kind, name="pubmed").passages(log)), log


def texts(path: Path) -> dict[str, str]:
    return {p.id.split(":")[1]: p.text for p in read(path)[0]}


def test_an_article_becomes_passages_with_all_that_a_citation_needs(
    tmp_path: Path,
) -> None:
    parts = (
        '<AbstractText Label="METHODS" NlmCategory="METHODS">We gave 10<sup>9</sup>/L and 5 m<sup>2</sup> of'
        ' CO<sub>2</sub> to <i>H. pylori</i>, p &lt; 0.05.</AbstractText>\n<AbstractText Label="UNLABELLED">It'
        " helped.</AbstractText><CopyrightInformation>Copyright 2019 Nobody.</CopyrightInformation>"
    )
    passages, log = read(write(tmp_path / "pubmed26n0001.xml.gz", article(31, parts)))
    assert passages == [
        Passage(
            id="pubmed:31:methods.1",
            corpus="pubmed",
            title="Rest in sprains.",
            section="METHODS",
            text="We gave 10^9/L and 5 m2 of CO2 to H. pylori, p < 0.05.\nIt helped.",
            language="en",
            published=date(2019, 4, 30),
            url="https://pubmed.ncbi.nlm.nih.gov/31/",
            licence="NLM terms; the abstract is its publisher's: Copyright 2019 Nobody.",
        )
    ]
    assert (log.documents, log.problem_count) == (1, 0)


def test_formulas_titles_and_languages_are_read_as_meant(tmp_path: Path) -> None:
    math = (
        "<AbstractText>Of <mml:math><mml:mrow>\n <mml:msup><mml:mn>10</mml:mn> <mml:mn>6</mml:mn></mml:msup>"
        "\n <mml:mfrac><mml:mi>a</mml:mi><mml:mi>b</mml:mi></mml:mfrac>"
        "</mml:mrow></mml:math> cells.</AbstractText>"
    )
    german = "<AbstractText>Die Ruhe half den meisten Patienten mit einer Zerrung recht gut.</AbstractText>"
    other = (
        '<OtherAbstract Type="Publisher" Language="chi"><AbstractText>休息可以缓解疼痛。</AbstractText>'
        "</OtherAbstract><OtherAbstract Type='plain-language-summary' Language='eng'><AbstractText>Rest is good."
        "</AbstractText></OtherAbstract>"
    )
    file = write(
        tmp_path / "a.xml",
        article(1, math, title="[Rest in sprains]."),
        article(
            2,
            german,
            title="[Not Available].",
            inside="<VernacularTitle>Ruhe.</VernacularTitle>",
            language="ger",
        ),
        article(3, language="chi", after=other),
    )
    found = {p.id: (p.title, p.text, p.language) for p in read(file)[0]}
    assert found == {
        "pubmed:1:-.1": ("Rest in sprains", "Of 10^6a/b cells.", "en"),
        "pubmed:2:-.1": (
            "Ruhe.",
            "Die Ruhe half den meisten Patienten mit einer Zerrung recht gut.",
            "other",
        ),
        "pubmed:3:-.1": (
            "Rest in sprains.",
            "Rest eased the pain of most patients.",
            "en",
        ),
        "pubmed:3-zh:-.1": ("Rest in sprains.", "休息可以缓解疼痛。", "zh"),
    }


def test_a_book_counts_from_its_last_revision(tmp_path: Path) -> None:
    book = (
        '<PubmedBookArticle><BookDocument><PMID Version="1">99</PMID><Book><BookTitle>Drugs</BookTitle><PubDate>'
        "<Year>2006</Year></PubDate></Book><ArticleTitle>Colchicine</ArticleTitle><Language>eng</Language><Abstract>"
        "<AbstractText>Colchicine passes into milk.</AbstractText></Abstract><ContributionDate><Year>2018</Year>"
        "<Month>7</Month><Day>9</Day></ContributionDate></BookDocument></PubmedBookArticle>"
    )
    (passage,), _ = read(write(tmp_path / "a.xml", book))
    assert (passage.title, passage.published) == ("Colchicine", date(2018, 7, 9))
    whole = book.replace("<ArticleTitle>Colchicine</ArticleTitle>", "")
    (passage,), _ = read(write(tmp_path / "a.xml", whole))
    assert passage.title == "Drugs"


def test_later_records_replace_deletions_remove_and_every_record_is_accounted_for(
    tmp_path: Path,
) -> None:
    def saying(pmid: int, words: str) -> str:
        return article(pmid, f"<AbstractText>{words}</AbstractText>")

    base = [saying(n, f"Base {n} says so.") for n in range(1, 6)]
    write(
        tmp_path / "baseline" / "pubmed26n0001.xml.gz",
        *base,
        saying(1, "First update of one."),
    )
    write(
        tmp_path / "a-updates" / "pubmed26n0002.xml.gz",
        saying(2, "First update of two."),
        saying(2, "Second update of two."),
        saying(1, "Second update of one."),
        '<DeleteCitation><PMID Version="1">3</PMID>\n<PMID>4</PMID></DeleteCitation>\n',
    )
    write(tmp_path / "a-updates" / "pubmed26n0003.xml.gz", saying(4, "Four is back."))
    _, log = read(tmp_path)
    assert texts(tmp_path) == {
        "1": "Second update of one.",
        "2": "Second update of two.",
        "4": "Four is back.",
        "5": "Base 5 says so.",
    }
    assert (log.documents, log.left_out, log.problem_count) == (4, 6, 0)


def test_nothing_retracted_or_questioned_is_evidence(tmp_path: Path) -> None:
    def linked(kind: str, other: int) -> str:
        return (
            f'<CommentsCorrectionsList><CommentsCorrections RefType="{kind}"><RefSource>J</RefSource>'
            f"<PMID Version='1'>{other}</PMID></CommentsCorrections></CommentsCorrectionsList>"
        )

    file = write(
        tmp_path / "a.xml",
        article(10, kinds="Retracted Publication"),
        article(11, after=linked("RetractionIn", 900)),
        article(12, title="RETRACTED: Rest in sprains."),
        article(13, title="WITHDRAWN: Rest in sprains."),
        article(14, after=linked("ExpressionOfConcernIn", 901)),
        article(15),
        article(16),
        article(
            17, after=linked("CommentIn", 902), title="Withdrawn patients in trials"
        ),
        article(20, after=linked("RetractionOf", 15)),
        article(
            21,
            kinds="Expression of Concern",
            after=linked("ExpressionOfConcernFor", 16),
        ),
    )
    passages, log = read(file)
    assert [p.id for p in passages] == ["pubmed:17:-.1"]
    assert (log.left_out, log.problem_count) == (9, 0)


@pytest.mark.parametrize(
    ("issue", "electronic", "listed", "expected"),
    [
        ("<Year>2019</Year>", "", "", date(2019, 12, 31)),
        ("<Year>2019</Year><Month>02</Month>", "", "", date(2019, 2, 28)),
        ("<Year>2019</Year><Month>Feb</Month><Day>3</Day>", "", "", date(2019, 2, 3)),
        ("<Year>2019</Year><Month>Feb</Month><Day>31</Day>", "", "", date(2019, 2, 28)),
        ("<Year>2019</Year><Season>Summer</Season>", "", "", date(2020, 3, 31)),
        ("<Year>2019</Year><Season>Winter</Season>", "", "", date(2020, 3, 31)),
        ("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>", "", "", date(2000, 12, 31)),
        ("<Year>2020</Year><Month>Jan</Month>", "2019 11 5", "", date(2019, 11, 5)),
        # An issue dated back: nobody could read it before it was there.
        ("<Year>2019</Year>", "2020 1 20", "", date(2020, 1, 20)),
        ("<Year>2019</Year>", "", "2019 3 7", date(2019, 3, 7)),
        ("<Year>2019</Year>", "", "2019 1 1", date(2019, 12, 31)),
        ("<Year>1975</Year><Month>Jun</Month>", "", "1975 6 1", date(1975, 6, 30)),
    ],
)
def test_published_is_the_last_day_on_which_it_may_have_appeared(
    tmp_path: Path, issue: str, electronic: str, listed: str, expected: date
) -> None:
    def day(parts: str) -> str:
        year, month, number = parts.split()
        return f"<Year>{year}</Year><Month>{month}</Month><Day>{number}</Day>"

    inside = (
        f'<ArticleDate DateType="Electronic">{day(electronic)}</ArticleDate>'
        if electronic
        else ""
    )
    history = (
        f'<PubMedPubDate PubStatus="pubmed">{day(listed)}</PubMedPubDate>'
        if listed
        else ""
    )
    record = article(1, issue=issue, inside=inside, history=history)
    assert read(write(tmp_path / "a.xml", record))[0][0].published == expected


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("2000 Nov-Dec", date(2001, 12, 31)),
        ("1976-1977", date(1978, 12, 31)),
        ("1999-00", date(2000, 12, 31)),
        ("soon", None),
    ],
)
def test_free_dates_end_where_they_may_end(text: str, last: date | None) -> None:
    found = written(text)
    assert (None if found is None else found[1]) == last


@given(st.text(alphabet="0123456789 -–JanFebSpringWinter/.", max_size=40))
def test_any_date_is_a_period_or_none(text: str) -> None:
    for found in (written(text), period(text, text, text)):
        assert found is None or found[0] <= found[1]


def test_articles_without_a_date_or_a_text_are_counted_not_read(tmp_path: Path) -> None:
    passages, log = read(
        write(tmp_path / "a.xml", article(1, issue=""), article(2, "")), "pubmed"
    )
    assert not passages
    assert (log.left_out, log.problem_count) == (1, 1)
    assert "PMID 1: no date" in log.problems[0][1]


@pytest.mark.parametrize("odd", ["<b>", "&bogus;", "</PubmedArticle>"])
def test_an_answer_is_read_whole_despite_an_odd_record(odd: str) -> None:
    body = f"{HEAD}{article(1, odd)}{article(2)}{END}".encode()
    assert read_articles(body) == body
    for cut in (body[:-30], HEAD.encode()):
        with pytest.raises(Unreadable, match="not XML"):
            read_articles(cut)


def test_broken_xml_costs_its_article_and_the_report_names_the_line(
    tmp_path: Path,
) -> None:
    broken = article(2).replace("</AbstractText>", "")
    unended = article(4).replace("</PubmedArticle>", "")
    _, log = read(
        write(tmp_path / "x.xml", article(1), broken, article(3), unended, article(5))
    )
    assert set(texts(tmp_path / "x.xml")) == {"1", "3", "5"}
    lines = (tmp_path / "x.xml").read_text().splitlines()
    assert [p[1] for p in log.problems] == [
        "PMID 2: mismatched tag: line 6, column 63 of its record",
        f"a PubmedArticle without its end within {PUBMED_RECORD_BYTES} bytes",
    ]
    named = [int(p[0].rsplit(" ", 1)[1]) for p in log.problems]
    assert [lines[number - 1] for number in named] == ["<PubmedArticle>"] * 2
    assert all(p[0].startswith("x.xml, line ") for p in log.problems)


def test_a_cut_file_keeps_what_came_before_and_a_falsified_gzip_is_left_out(
    tmp_path: Path,
) -> None:
    rng = random.Random(3)
    noise = [" ".join(str(rng.random()) for _ in range(40)) for _ in range(300)]
    records = [
        article(n + 1, f"<AbstractText>Said {words}.</AbstractText>")
        for n, words in enumerate(noise)
    ]
    whole = write(tmp_path / "whole" / "a.xml.gz", *records).read_bytes()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "a.xml.gz").write_bytes(whole[: len(whole) // 2])
    passages, log = read(tmp_path / "cut")
    assert 100 < len(passages) < 200
    assert log.problems[-1][1] == "the gzip ends too early"
    (tmp_path / "flipped").mkdir()
    flipped = bytearray(whole)
    flipped[-6] ^= 1
    (tmp_path / "flipped" / "a.xml.gz").write_bytes(flipped)
    write(tmp_path / "flipped" / "b.xml", article(1000))
    passages, log = read(tmp_path / "flipped")
    assert [p.id for p in passages] == ["pubmed:1000:-.1"]
    assert "fetch it again" in log.problems[0][1]


def test_a_document_type_with_content_is_refused_and_a_named_one_never_fetched(
    tmp_path: Path,
) -> None:
    bomb = HEAD.replace('pubmed_250101.dtd">', 'pubmed_250101.dtd" [<!ENTITY a "b">]>')
    write(tmp_path / "bomb.xml", article(1), head=bomb)
    write(
        tmp_path / "entity.xml",
        article(2, "<AbstractText>Take &a; daily.</AbstractText>"),
        article(3),
    )
    passages, log = read(tmp_path, "pubmed")
    assert [p.id for p in passages] == ["pubmed:3:-.1"]
    assert [re.split("[,:]", p[1])[0] for p in log.problems] == [
        "a document type declaration with content of its own is not accepted",
        "PMID 2",
    ]


SAMPLE = [
    article(n * 1111, f"<AbstractText>Statement {n} on rest &amp; pain.</AbstractText>")
    for n in range(1, 7)
]


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.booleans())
def test_damage_anywhere_costs_at_most_the_record_it_falls_in(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int, cut: bool
) -> None:
    data = (HEAD + "".join(SAMPLE) + END).encode()
    place %= len(data)
    damaged = data[:place] if cut else data[:place] + bytes([value]) + data[place + 1 :]
    file = tmp_path_factory.mktemp("d") / "a.xml"
    file.write_bytes(damaged)
    passages, log = read(file, "pubmed")
    starts = [
        len((HEAD + "".join(SAMPLE[:n])).encode()) for n in range(len(SAMPLE) + 1)
    ]
    untouched = {
        f"Statement {n + 1} on rest & pain."
        for n in range(len(SAMPLE))
        if (
            starts[n + 1] <= place + 1
            if cut
            else not starts[n] <= place < starts[n + 1]
        )
    }
    refused = any("document type" in p[1] for p in log.problems)
    assert refused or untouched <= {p.text for p in passages}
    assert len(passages) + log.problem_count + log.left_out >= (
        1 if refused or cut else len(SAMPLE)
    )
    if cut and place < len(data) - len(END):
        assert log.problem_count


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.sampled_from([*SAMPLE, "<PubmedArticle>", "</PubmedArticle>", "x\n"]),
        max_size=12,
    ),
    st.integers(1, 700),
)
def test_records_are_cut_alike_whatever_the_size_of_the_blocks(
    parts: list[str], size: int
) -> None:
    data = (HEAD + "".join(parts) + END).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames_module, "BLOCK", size)
        patch.setattr(frames_module, "_HEAD", len(HEAD))
        cut = [(f.kind, f.line, f.data) for f in frames(BytesIO(data))]
    assert cut == [(f.kind, f.line, f.data) for f in frames(BytesIO(data))]


def test_a_record_without_end_is_left_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames_module, "PUBMED_RECORD_BYTES", 50_000)
    monkeypatch.setattr(frames_module, "BLOCK", 4_096)
    long = article(2, f"<AbstractText>{'word ' * 40_000}</AbstractText>")
    _, log = read(write(tmp_path / "a.xml", article(1), long, article(3)))
    assert set(texts(tmp_path / "a.xml")) == {"1", "3"}
    assert "without its end within 50000 bytes" in log.problems[0][1]


def test_a_gzip_without_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames_module, "ARCHIVE_BYTES", 3_000_000)
    passages, log = read(
        write(tmp_path / "a.xml.gz", article(1), " " * 6_000_000, article(2))
    )
    assert [p.id for p in passages] == ["pubmed:1:-.1"]
    assert log.problems[-1][1] == "the gzip unpacks to more than 3000000 bytes"


def test_deep_nesting_is_read_or_reported(tmp_path: Path) -> None:
    deep = f"<AbstractText>a{'<i>' * 50_000}b{'</i>' * 50_000}</AbstractText>"
    passages, log = read(write(tmp_path / "a.xml", article(1, deep), article(2)))
    assert passages[-1].id == "pubmed:2:-.1"
    assert len(passages) + log.problem_count == 2


def test_reading_agrees_with_the_standard_librarys_parser(tmp_path: Path) -> None:
    rng = random.Random(11)
    words = [
        "rest",
        "pain",
        "the",
        "ß",
        "休息",
        "&lt;5",
        "α",
        "<i>in vivo</i>",
        "p&amp;c",
    ]

    def records() -> Iterator[str]:
        for n in range(1, 200):
            parts = [
                f'<AbstractText Label="PART {k}">{" ".join(rng.choices(words, k=12))}.</AbstractText>'
                for k in range(rng.randint(0, 3))
            ]
            yield article(n, "".join(parts), title=" ".join(rng.choices(words, k=5)))

    file = write(tmp_path / "a.xml.gz", *records())
    expected: dict[str, list[str]] = {}
    for _, element in iterparse(BytesIO(gzip.decompress(file.read_bytes()))):
        if element.tag == "PubmedArticle":
            found = ["".join(part.itertext()) for part in element.iter("AbstractText")]
            if found:
                expected[element.findtext("MedlineCitation/PMID") or ""] = found
    got = {identity: text.split("\n") for identity, text in texts(file).items()}
    assert got == expected
    assert len(expected) > 100


def test_the_digest_does_not_follow_the_files_that_hold_the_articles(
    tmp_path: Path,
) -> None:
    def digest(name: str, groups: list[list[str]]) -> str:
        for number, group in enumerate(groups):
            write(tmp_path / name / f"pubmed26n{number:04}.xml.gz", *group)
        survey = Survey(tmp_path / f"{name}-survey")
        for passage in read(tmp_path / name)[0]:
            survey.add(passage)
        return survey.digest

    mixed = random.Random(1).sample(SAMPLE, len(SAMPLE))
    assert (
        digest("a", [SAMPLE])
        == digest("b", [mixed[:2], mixed[2:]])
        != digest("c", [SAMPLE[1:]])
    )
