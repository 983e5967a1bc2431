"""Searching: what is in the index is found, whatever the query; what is too young is not."""

import asyncio
import itertools
import json
import string
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from medlive.evidence.build import build_index
from medlive.evidence.corpora.model import sentences
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.index import open_index
from medlive.evidence.lexical import chinese_names, terms
from medlive.evidence.passage import Passage
from medlive.evidence.retriever import IndexRetriever
from medlive.evidence.store import PassageStore

DISEASES = [
    "gout",
    "asthma",
    "migraine",
    "psoriasis",
    "anaemia",
    "shingles",
    "glaucoma",
    "sciatica",
    "eczema",
    "tetanus",
]
DRUGS = [
    "colchicine",
    "salbutamol",
    "sumatriptan",
    "calcipotriol",
    "iron",
    "aciclovir",
    "timolol",
    "naproxen",
    "hydrocortisone",
    "penicillin",
]
ZH_DISEASES = [
    "痛风",
    "哮喘",
    "偏头痛",
    "银屑病",
    "贫血",
    "带状疱疹",
    "青光眼",
    "高血压",
    "湿疹",
    "2型糖尿病",
]
ZH_DRUGS = [
    "秋水仙碱",
    "沙丁胺醇",
    "舒马曲普坦",
    "卡泊三醇",
    "硫酸亚铁",
    "阿昔洛韦",
    "噻吗洛尔",
    "氨氯地平",
    "氢化可的松",
    "二甲双胍",
]
HOSTILE = [
    "",
    " ",
    "\0",
    "\ud800",
    "🎉🎉",
    "\u202eabc",
    "AND OR NOT",
    "title:* OR body:[* TO *]",
    '"unclosed',
    "a~2^9 (((",
    "*",
    "???",
    "/.*.*.*.*x/",
    "ordinal:0",
    "\\",
    "{!func}",
    "的",
    "。。。",
    "a" * 100_000,
    "gout " * 100_000,
    "痛风" * 50_000,
    "\t\n",
    "١٢٣",
    "' ; DROP TABLE passages; --",
    " ".join(f"w{i} gout{i}" for i in range(5000)),
]


def rows() -> Iterator[dict[str, object]]:
    for n, (disease, drug) in enumerate(zip(DISEASES, DRUGS, strict=True)):
        for m, topic in enumerate(["treatment", "causes", "outlook"]):
            text = {
                "treatment": f"Most people with {disease} are given {drug}. The dose of {drug} depends on weight.",
                "causes": f"Nobody is born with {disease} alone. Smoking and stress make {disease} worse.",
                "outlook": f"Half of those with {disease} mend in {n + 2} weeks. A {disease} relapse is common.",
            }[topic]
            year = None if m == 2 else 2001 + n
            yield {
                "id": f"{disease}-{m}",
                "title": disease.title(),
                "section": topic,
                "text": text,
                "date": year,
            }
    for disease, drug in zip(ZH_DISEASES, ZH_DRUGS, strict=True):
        yield {
            "id": disease,
            "title": disease,
            "section": "治疗",
            "text": f"{disease}患者可口服或外用{drug}。剂量由体重决定。",
        }
        yield {
            "id": f"{disease}v",
            "title": disease,
            "section": "预后",
            "text": f"{disease}多数在数周内好转。复发并不少见。",
        }


def index_of(folder: Path, lines: list[dict[str, object]]) -> IndexRetriever:
    source = folder / "sample.jsonl"
    source.write_text(
        "".join(json.dumps(row) + "\n" for row in lines), encoding="utf-8"
    )
    build_index([open_corpus(source)], folder / "index")
    return open_index(folder / "index")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("search")


@pytest.fixture(scope="module")
def retriever(folder: Path) -> IndexRetriever:
    return index_of(folder, list(rows()))


@pytest.fixture(scope="module")
def passages(folder: Path, retriever: IndexRetriever) -> list[Passage]:
    return list(PassageStore(next((folder / "index").glob("data-*"))))


async def test_every_passage_is_found_by_its_title_and_first_sentence(
    retriever: IndexRetriever, passages: list[Passage]
) -> None:
    queries = [f"{p.title} {next(sentences(p.text))}" for p in passages]
    for passage, hits in zip(
        passages, await retriever.search([(q,) for q in queries], k=3), strict=True
    ):
        assert passage in [hit.passage for hit in hits]


@pytest.mark.parametrize(
    ("query", "title", "text"),
    [
        ("盐酸二甲双胍片能治什么", "2型糖尿病", "二甲双胍"),
        ("我有高血压，能吃氨氯地平 5mg 吗？", "高血压", "氨氯地平"),
        ("Is COLCHICINE dosed by weight?", "Gout", "colchicine"),
        ("relapses in asthmatics — asthma relapsing", "Asthma", "relapse"),
        ("Ｇｏｕｔ 的 treatments depending", "Gout", "given"),
    ],
)
async def test_words_are_matched_across_form_width_and_script(
    retriever: IndexRetriever, query: str, title: str, text: str
) -> None:
    [hits] = await retriever.search([(query,)], k=1)
    assert hits[0].passage.title == title
    assert text in hits[0].passage.text


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
async def test_a_hostile_query_is_only_text(
    retriever: IndexRetriever, query: str
) -> None:
    [hits] = await retriever.search([(query,)], k=5)
    assert len(hits) <= 5
    known = set(
        terms(
            " ".join(
                f"{h.passage.title} {h.passage.section} {h.passage.text}" for h in hits
            )
        )
    )
    assert not hits or known & set(terms(query[:8000]))


async def test_a_query_of_the_engines_syntax_finds_nothing_but_its_words(
    retriever: IndexRetriever,
) -> None:
    assert await retriever.search(
        [(q,) for q in ("*", "body:*", "[* TO *]", "的")], k=5
    ) == [[], [], [], []]


@given(query=st.text(alphabet=st.characters(), max_size=300))
@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_any_text_is_a_query(retriever: IndexRetriever, query: str) -> None:
    [hits] = asyncio.run(retriever.search([(query,)], k=4))
    assert [h.rank for h in hits] == list(range(1, len(hits) + 1))
    assert all(a.score >= b.score for a, b in itertools.pairwise(hits))


@given(
    day=st.dates(date(1999, 1, 1), date(2013, 1, 1)), disease=st.sampled_from(DISEASES)
)
@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_nothing_younger_than_the_day_is_shown_and_undated_stays(
    retriever: IndexRetriever, passages: list[Passage], day: date, disease: str
) -> None:
    [hits] = asyncio.run(retriever.search([(disease,)], k=50, not_after=day))
    old_enough = {
        p.id
        for p in passages
        if p.title == disease.title() and (p.published is None or p.published <= day)
    }
    assert {h.passage.id for h in hits} == old_enough
    assert any(h.passage.published is None for h in hits)


async def test_a_passage_of_the_very_day_is_shown(retriever: IndexRetriever) -> None:
    [on_the_day], [day_before] = [
        (await retriever.search([("gout colchicine dose",)], k=9, not_after=day))
        for day in (date(2001, 12, 31), date(2001, 12, 30))
    ]
    dated = {h.passage.published for h in on_the_day} - {
        h.passage.published for h in day_before
    }
    assert dated == {date(2001, 12, 31)}


async def test_the_day_filter_does_not_change_the_scores_of_what_stays(
    retriever: IndexRetriever,
) -> None:
    [every] = await retriever.search([("gout relapse weeks",)], k=20)
    [undated] = await retriever.search(
        [("gout relapse weeks",)], k=20, not_after=date(1990, 1, 1)
    )
    assert undated
    assert [(h.passage.id, h.sides[0].score) for h in undated] == [
        (h.passage.id, h.sides[0].score) for h in every if h.passage.published is None
    ]


async def test_equal_scores_are_ordered_by_id_even_past_k(tmp_path: Path) -> None:
    # One length, one word in common: all tie; file order is the reverse of the ids' order.
    lines: list[dict[str, object]] = [
        {
            "id": f"p{n:03d}",
            "title": "",
            "text": f"fever word{string.ascii_lowercase[n % 26]}{n}",
        }
        for n in reversed(range(200))
    ]
    small = index_of(tmp_path, lines)
    [hits] = await small.search([("fever",)], k=5)
    assert [h.passage.id for h in hits] == [f"sample:p{n:03d}:-.1" for n in range(5)]
    assert len({h.sides[0].score for h in hits}) == 1


async def test_a_long_query_is_cut_and_keeps_its_rarest_terms(tmp_path: Path) -> None:
    words = [f"word{n}x" for n in range(70)]
    lines: list[dict[str, object]] = [
        {"id": w, "title": "", "text": f"fever {w}"} for w in words
    ]
    small = index_of(tmp_path, [*lines, {"id": "only", "title": "", "text": "fever"}])
    [common] = await small.search([("fever",)], k=100)
    [long] = await small.search([("fever " + " ".join(words),)], k=100)
    assert len(common) == 71
    assert len(long) == 64
    [cut] = await small.search([("nothing " * 1000 + "fever",)], k=100)
    assert cut == []


async def test_searches_at_once_give_what_one_gives(retriever: IndexRetriever) -> None:
    queries = [
        f"{d} {t}" for d in DISEASES + ZH_DISEASES for t in ("treatment dose", "预后")
    ]
    alone = await retriever.search([(q,) for q in queries], k=3)
    at_once = await asyncio.gather(
        *(retriever.search([(q,)], k=3) for q in queries * 2)
    )
    assert [hits for [hits] in at_once] == alone * 2


async def test_no_queries_no_answers(retriever: IndexRetriever) -> None:
    assert await retriever.search([], k=3) == []


def test_a_drugs_name_is_never_split() -> None:
    whole, parts = chinese_names()
    assert len(whole) + len(parts) >= 300
    for name in whole:
        assert name in terms(f"患者{name}")
    assert terms("二甲双胍") == ["二甲双胍"]
    assert terms("盐酸二甲双胍") == ["二甲双胍", "盐酸二甲双胍"]


@given(st.text())
def test_terms_hold_no_space_and_are_the_same_twice(text: str) -> None:
    cut = terms(text)
    assert all(term and term.split() == [term] for term in cut)
    assert cut == terms(text)
