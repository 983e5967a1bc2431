"""Code-book terms are found whole, the longest first, against a term-by-term search as oracle."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.errors import BadInput
from medlive.filters.codebooks import (
    Codebook,
    Term,
    TermHit,
    clean_term,
    load_codebook,
    read_terms,
    shipped_terms,
    stop_words,
)

SHIPPED = load_codebook()


def find(book: Codebook, text: str) -> list[TermHit]:
    """The terms of a text from left to right, the longest at each place, without overlaps."""
    hits: list[TermHit] = []
    for hit in sorted(book.matches(text), key=lambda h: (h.start, -h.end)):
        if not hits or hit.start >= hits[-1].end:
            hits.append(hit)
    return hits


def test_the_shipped_lists_hold_enough_terms_of_every_system() -> None:
    terms = shipped_terms()
    english = [term for _, term in terms if term.isascii()]
    assert len(english) >= 600
    assert len(terms) - len(english) >= 600
    assert {code.partition(":")[0] for code, _ in terms} >= {"ICD-10", "ICF", "ICHI"}
    assert not {term for _, term in terms} & stop_words()
    assert len(SHIPPED._terms) == len({term for _, term in terms})


@pytest.mark.parametrize(
    "text",
    [
        "It may be cold in May, all as one; I had it all planned and am as fit as ever.",
        "Which medical school should I choose? My GPA and the hospital near my home matter.",
        "The weather was bad and the phone has many problems, please help the patient man.",
        "医院检查病人的身体，医生说请到门诊，治疗需要时间",
        "我想咨询一下学校和工作的问题",
    ],
)
def test_everyday_words_are_no_terms(text: str) -> None:
    assert find(SHIPPED, text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Headaches, KNEE PAIN and type 2 diabetes",
            ["headaches", "knee pain", "type 2 diabetes"],
        ),
        ("ｃｏｖｉｄ－19 and ulcers", ["covid-19", "ulcers"]),
        ("頭痛發燒咳嗽三天", ["头痛", "发烧", "咳嗽"]),
        ("十二指肠溃疡", ["十二指肠溃疡"]),
        ("influenzal refluxing", []),
    ],
)
def test_terms_are_found_whole_and_longest(text: str, expected: list[str]) -> None:
    assert [hit.term for hit in find(SHIPPED, text)] == expected


_ALPHABET = st.text("ab 咳嗽s", min_size=1, max_size=6)


@given(st.lists(_ALPHABET, max_size=8), st.text("ab 咳嗽s.", max_size=40))
def test_the_automaton_agrees_with_a_search_term_by_term(
    words: list[str], text: str
) -> None:
    terms = {w.strip() for w in words if w.strip()}
    book = Codebook([("X:", t) for t in sorted(terms)])
    expected = set()
    for term in terms:
        before = r"(?<![a-z0-9])" if term[0].isascii() else ""
        plural = "" if term[-1] == "s" else "s?"
        after = rf"{plural}(?![a-z0-9])" if term[-1].isascii() else ""
        pattern = re.compile(
            f"{before}{re.escape(term)}(?={after})"
            if after
            else f"{before}{re.escape(term)}"
        )
        expected |= {
            (m.start(), m.start() + len(term))
            for i in range(len(text))
            if (m := pattern.match(text, i))
        }
    found = {(h.start, h.end) for h in find(book, text)}
    assert found <= expected
    assert bool(found) == bool(expected)
    for start, end in expected - found:  # left out only where another term overlaps
        assert any(s < end and start < e for s, e in found)


@given(st.text(st.characters(exclude_categories=()), max_size=100))
def test_hits_are_places_in_the_text_itself(text: str) -> None:
    for hit in find(SHIPPED, text + " cough İ 咳嗽"):
        assert 0 <= hit.start < hit.end <= len(text) + 11
    assert find(SHIPPED, "İİİ cough")[0].start == 4
    assert find(SHIPPED, "Ａİ ＣＯＵＧＨ")[0][2:] == (3, 8)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "icd11.tsv",
            "Code\tTitle\tClassKind\n1A00\t- - Cholera\tcategory\n",
            ("ICD-11:1A00", "Cholera"),
        ),
        (
            "icf.csv",
            "Code,Title\nb280,Sensation of pain\n",
            ("ICF:b280", "Sensation of pain"),
        ),
        (
            "ICHI.csv",
            "Code;Title\nABC.AA.ZZ;Brain biopsy\n",
            ("ICHI:ABC.AA.ZZ", "Brain biopsy"),
        ),
        ("icd10cm.csv", 'code,title\nA00,"Cholera"\n', ("ICD-10-CM:A00", "Cholera")),
        ("disease.csv", "code\tdisease\nA00\t霍乱\n", ("disease:A00", "霍乱")),
        (
            "syn.csv",
            "id,name,syn\nICD10:A00,x,Asiatic cholera\n",
            ("syn:A00", "Asiatic cholera"),
        ),
        (
            "icd10_codes.txt",
            ";;;;;Code;;;Title;;;\n4;T;X;01;A00;A00.0;A00.0;A000;Cholera due to vibrio;;;\n",
            ("ICD-10:A00.0", "Cholera due to vibrio"),
        ),
    ],
)
def test_the_shapes_of_files(
    tmp_path: Path, name: str, content: str, expected: Term
) -> None:
    path = tmp_path / name
    path.write_text("\ufeff" + content, encoding="utf-8")
    assert expected in list(read_terms(path))


def test_what_is_no_table_with_a_header_in_utf_8_is_refused(tmp_path: Path) -> None:
    for name, data in (
        ("gb.txt", "code\tdisease\nA00\t霍乱病\n".encode("gb18030")),
        ("a.xlsx", b"PK\x03\x04zip"),
        ("b.csv", b"x,1,2\n"),
        ("c.csv", b""),
        ("d.json", b"[1,"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(BadInput):
            list(read_terms(path))
    with pytest.raises(BadInput):
        list(read_terms(tmp_path / "absent.csv"))
    stray = tmp_path / "stray.csv"
    stray.write_text('code,title\nA00,"Cholera\n' + "A01,Typhoid fever\n" * 8_000)
    with pytest.raises(BadInput):
        list(read_terms(stray))


def test_stop_words_hold_against_an_official_list(tmp_path: Path) -> None:
    path = tmp_path / "icd10.csv"
    path.write_text(
        "Code,Title\nX31,Cold\nW00,Fall\nJ45,Asthma attack\n", encoding="utf-8"
    )
    book = load_codebook([path])
    assert find(book, "a cold fall day") == []
    assert book.digest != SHIPPED.digest
    assert [h.code for h in find(book, "asthma attack")] == ["ICD-10:J45"]


def test_titles_lose_what_no_patient_writes() -> None:
    assert clean_term("- - Headache, unspecified") == "Headache"
    assert clean_term("Tuberculosis of: cervixN74.0") == "Tuberculosis of: cervix"
