"""What a judge is shown of passages: whole sentences, within a budget, each text once, and quotes that are there."""

import gzip
import json
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.evidence.excerpts.excerpt import (
    LONGEST,
    Sentence,
    excerpt,
    render,
    split_sentences,
)
from medlive.evidence.excerpts.selection import ShownPassage, alike, select
from medlive.evidence.passage import Hit, Passage
from medlive.text.tokens import estimate_tokens, weight

REAL = Path(__file__).resolve().parents[4] / "shared" / "realdata" / "evidence"


def passage(identity: str, text: str, title: str = "t", section: str = "") -> Passage:
    return Passage(
        id=identity,
        corpus=identity.partition(":")[0],
        title=title,
        section=section,
        text=text,
        language="en",
        published=None,
        url="",
        licence="",
    )


def words_of(text: str) -> list[str]:
    return [text[s.start : s.end] for s in split_sentences(text)]


def shown(text: str, *wanted: str, units: int) -> str:
    return render(excerpt(text, wanted, units=units, limit=units))


ONE_SENTENCE = [
    "Patients vs. controls took e.g. 5 mg of the drug, i.e. half a tablet (Smith et al. 2010).",
    "Dr. Smith found E. coli in 30. 4 per cent, as Fig. 2 shows.",
    "The temperature was 38.5 °C in most of them.",
    "This line goes\non in the next.",
    "IV. Treatment of the disease comes here.",
    "患者体温38.5℃，应多饮水；必要时就诊。",
]


@pytest.mark.parametrize("sentence", ONE_SENTENCE)
def test_a_sentence_is_not_divided_at_what_looks_like_its_end(sentence: str) -> None:
    assert words_of(f"It was so. {sentence} It was so.")[1:-1] == [sentence]


REFERENTS = [
    ("Aspirin relieves pain and prevents stroke.", "Both purposes need a low dose."),
    ("The virus passes from mother to child.", "Such transmission is rare."),
    ("Ibuprofen harms the fetus.", "It is not given from week 28."),
    ("Zinc was tried in colds.", "In these trials it shortened them."),
    ("See a doctor promptly if you:", "have shortness of breath"),
    ("Risk factors are:", "- smoking for years"),
    ("阿司匹林可引起出血。", "此类患者应避免手术。"),
    ("水痘由病毒引起。", "该病具有传染性。"),
    ("布洛芬和对乙酰氨基酚均可退热。", "两者不宜同时使用。"),
    ("患者应卧床休息。", "上述措施可缓解症状。"),
]


@pytest.mark.parametrize(("before", "refers"), REFERENTS)
def test_a_sentence_that_refers_back_comes_with_the_one_before(
    before: str, refers: str
) -> None:
    filler = "Nothing of the kind was ever said anywhere in this long text."
    text = "\n".join([filler, before, refers, filler])
    room = weight(before) + weight(refers) + 20
    assert shown(text, refers, units=room) == f"… {before}\n{refers}".removeprefix("… ")


def test_a_statement_about_nothing_before_comes_alone() -> None:
    alone = "It is important to wash the hands of every child."
    text = f"Some words. {alone} Other words."
    assert shown(text, alone, units=weight(alone) + 12) == alone


def test_what_matches_is_joined_before_the_rest_is_shown() -> None:
    joined = "Alpha drug one. First gap. Other gap. Alpha drug two."
    text = f"{joined} Far away. Far away too."
    assert shown(text, "alpha drug", units=weight(joined) + 24) == joined


# Texts: proper ones, and such as have no stop, no space, or only lines.
STOPPED = st.lists(
    st.sampled_from(
        [
            *ONE_SENTENCE,
            "It causes a dry cough. ",
            "However, this is rare. ",
            "高血压患者应低盐饮食。",
            "此类药物可引起咳嗽。",
            "\n- losartan\n",
            "Risk factors include:\n",
            "Lisinopril 10 mg once daily was well tolerated by all of the patients. ",
        ]
    ),
    max_size=25,
).map("".join)
BROKEN = st.one_of(
    st.text(alphabet="甲乙丙丁戊己", max_size=900),
    st.text(alphabet="abcdef", max_size=2500),
    st.lists(st.sampled_from(["a | b |", "12,5", "高", "x"]), max_size=300).map(
        " ".join
    ),
    st.text(max_size=300),
)
TEXTS = STOPPED | BROKEN
PHRASES = st.lists(
    st.sampled_from(["dry cough", "losartan", "低盐饮食", ""]), max_size=2
)


@given(TEXTS, PHRASES, st.integers(0, 1500), st.integers(0, 1500))
def test_an_excerpt_is_of_whole_sentences_and_within_its_limit(
    text: str, wanted: list[str], units: int, more: int
) -> None:
    stretches = excerpt(text, wanted, units=units, limit=units + more)
    assert weight(render(stretches)) <= units + more
    assert stretches == excerpt(text, wanted, units=units, limit=units + more)
    check_stretches(text, stretches)
    if units >= weight(text) + 9 * (len(split_sentences(text)) + 1):
        assert "".join(render(stretches).split()) == "".join(text.split())


def check_stretches(text: str, stretches: tuple[Sentence, ...]) -> None:
    """Each is verbatim, in order, and begins and ends with a sentence, or says that it does not."""
    sentences = split_sentences(text)
    starts = {s.start: s for s in sentences}
    ends = {s.end: s for s in sentences}
    last = -1
    for stretch in stretches:
        assert text[stretch.start : stretch.end] == stretch.words
        assert stretch.start > last
        assert stretch.cut_before == starts[stretch.start].cut_before
        assert stretch.cut_after == ends[stretch.end].cut_after
        last = stretch.end


@given(TEXTS)
def test_only_a_sentence_that_is_too_long_is_divided(text: str) -> None:
    sentences = split_sentences(text)
    assert all(0 < s.units <= LONGEST for s in sentences)
    rest = text
    for own in reversed(sentences):
        rest = rest[: own.start] + rest[own.end :]
    assert not rest.strip()
    for own, following in pairwise(sentences):
        assert own.cut_after == following.cut_before
        if own.cut_after:
            # As much as fits, or up to the last end of a clause in its second half.
            assert own.units > LONGEST // 4


@st.composite
def claims_and_hits(
    draw: st.DrawFn,
) -> tuple[list[list[str]], list[list[Hit]]]:
    """Claims with hits: sections of several pieces, texts that stand in two corpora, chunks that overlap."""
    texts = draw(st.lists(TEXTS.filter(bool), min_size=1, max_size=6))
    pool = []
    for number, text in enumerate(texts):
        half = len(text) // 2
        pool += [
            passage(f"a:{number}:s.1", text),
            passage(f"a:{number}:s.2", text[half:] + " More was said of it later."),
            passage(f"b:{number}:s.1", text),
        ]
    wanted = draw(st.lists(PHRASES, min_size=1, max_size=4))
    hits = []
    for _ in wanted:
        found = draw(st.lists(st.sampled_from(pool), unique=True, max_size=8))
        hits.append([Hit(p, 1.0, n) for n, p in enumerate(found, 1)])
    return wanted, hits


def check_selection(
    chosen: tuple[list[ShownPassage], list[list[Hit]]],
    hits: list[list[Hit]],
    *,
    most: int,
    tokens: int,
) -> None:
    passages, by_claim = chosen
    assert sum(p.tokens for p in passages) <= tokens
    ids = [p.id for p in passages]
    assert len(ids) == len(set(ids))
    for one, other in combinations(passages, 2):
        assert not alike(one.text, other.text)
    for own, found in zip(by_claim, hits, strict=True):
        assert len(own) <= most
        assert len({h.passage.section_id for h in own}) == len(own)
        assert len(own) <= len(found)
    for section in passages:
        assert all(h.passage.section_id == section.id for h in section.hits)
        for words in section.stretches:
            # A quote is checked as validator does; what it cites is in the pieces.
            if words.strip(" \n\x00") and section.has(words):
                for piece, quote in section.cite(words):
                    texts = [h.passage.text for h in section.hits]
                    names = [h.passage.id for h in section.hits]
                    assert piece in names
                    squeezed = "".join(quote.split())
                    own_text = texts[names.index(piece)]
                    assert squeezed in "".join(own_text.split())


@settings(max_examples=10)
@given(claims_and_hits(), st.integers(1, 6), st.integers(0, 1200))
def test_a_selection_keeps_its_budget_and_gives_each_text_once(
    given_case: tuple[list[list[str]], list[list[Hit]]], most: int, tokens: int
) -> None:
    wanted, hits = given_case
    chosen = select(wanted, hits, most=most, tokens=tokens)
    check_selection(chosen, hits, most=most, tokens=tokens)
    assert chosen == select(wanted, hits, most=most, tokens=tokens)


def test_every_claim_has_its_first_before_any_has_its_second() -> None:
    texts = [f"Drug number {n} was given to {n} of the patients." for n in range(12)]
    found = [passage(f"a:{n}:s.1", text) for n, text in enumerate(texts)]
    hits = [
        [Hit(p, 1.0, n) for n, p in enumerate(found[start : start + 4], 1)]
        for start in (0, 4, 8)
    ]
    each = estimate_tokens(texts[0]) + 20
    passages, by_claim = select([["drug"]] * 3, hits, most=4, tokens=4 * each)
    assert [p.id for p in passages][:3] == ["a:0:s", "a:4:s", "a:8:s"]
    assert all(own[0].shown for own in by_claim)


def test_pieces_of_a_section_are_one_passage_that_reads_on() -> None:
    first = passage("a:1:s.1", "Ibuprofen relieves pain.", "Drugs", "Pain")
    second = passage("a:1:s.2", "It is not for late pregnancy.", "Drugs", "Pain")
    hits = [[Hit(second, 1.0, 1)], [Hit(first, 1.0, 1)]]
    [only], _ = select([["pregnancy"], ["pain"]], hits, most=3, tokens=500)
    assert (only.id, only.title) == ("a:1:s", "Drugs: Pain")
    assert only.text == "Ibuprofen relieves pain.\nIt is not for late pregnancy."
    across = "relieves pain. It is not for"
    assert only.has(across)
    assert only.cite(across) == (
        ("a:1:s.1", "relieves pain."),
        ("a:1:s.2", "It is not for"),
    )
    assert not only.has("pain … pregnancy")


def real_passages() -> Iterator[Passage]:
    """Texts of both languages, tables and broken lines among them."""
    for name in ("chinaxiv_clinical_zh", "nigeria_nstg_2022", "medlineplus_topics"):
        path = REAL / f"{name}.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in zip(range(8), lines, strict=False):
                yield passage(f"{name}:{number}:s.1", json.loads(line)["text"][:4000])


@pytest.mark.thorough
def test_real_texts_keep_the_same_promises() -> None:
    if not REAL.is_dir():
        pytest.skip("the real evidence is not here: shared/realdata/evidence")
    found = list(real_passages())
    for own in found:
        stretches = excerpt(own.text, ["治疗", "treatment"], units=700, limit=1400)
        assert stretches
        assert weight(render(stretches)) <= 1400
        check_stretches(own.text, stretches)
    hits = [[Hit(p, 1.0, n) for n, p in enumerate(found, 1)]]
    chosen = select([["treatment", "治疗"]], hits, most=24, tokens=3000)
    check_selection(chosen, hits, most=24, tokens=3000)
    assert len(chosen[0]) > 8


def test_a_claim_has_one_piece_of_a_section() -> None:
    pieces = [
        passage("a:1:s.1", "Ibuprofen is for pain in the joints."),
        passage("a:1:s.2", "Children take half of the dose at night."),
        passage("a:2:s.1", "Heat helps against a stiff back too."),
    ]
    hits = [[Hit(p, 1.0, n) for n, p in enumerate(pieces, 1)]]
    _, [own] = select([["pain"]], hits, most=2, tokens=500)
    assert [hit.passage.id for hit in own] == ["a:1:s.1", "a:2:s.1"]


def test_passages_whose_shown_sentences_are_alike_are_given_once() -> None:
    same = "Ibuprofen {} not be given to women after week 28 of a pregnancy at all."
    others = ("Asthma is treated with inhaled steroids. ", "Knees hurt in old age. ")
    hits = []
    for number, verb in enumerate(("should", "must")):
        text = same.format(verb) + " " + others[number] * 20
        hits.append([Hit(passage(f"a:{number}:s.1", text), 1.0, 1)])
    both = [["ibuprofen pregnancy week 28"], ["ibuprofen pregnancy week 28"]]
    room = 16 + estimate_tokens(same) + 8
    passages, _ = select(both, hits, most=1, tokens=2 * room)
    assert len(passages) == 1


def test_a_sentence_that_is_too_long_is_cut_at_a_clause_and_marked() -> None:
    clauses = [f"第{n}项结果未见异常" for n in range(40)]
    text = f"检查如下。{'，'.join([*clauses, '肝脏肿大'])}。"
    *_, last = excerpt(text, ["肝脏肿大"], units=LONGEST, limit=LONGEST)
    assert last.words.endswith("肝脏肿大。")
    assert render((last,)).startswith("… 第")
    first = excerpt(text, ["检查如下"], units=LONGEST + 80, limit=LONGEST + 80)
    assert first[-1].words.endswith("，")
    assert render(first).endswith("， …")
