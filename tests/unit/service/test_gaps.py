"""What the library lacks: subjects of search phrases, by the threads that are parked for them."""

from types import SimpleNamespace

import pytest

from medlive.filters.codebooks import Codebook, load_codebook
from medlive.service.curation.parking import group_gaps, subjects_of

SHIPPED = load_codebook()


def claim(number: int, *queries: str, passage: str | None = "c:1:0") -> SimpleNamespace:
    return SimpleNamespace(
        source="forum",
        thread_id=str(number),
        element_id="a1",
        claim=queries[-1],
        queries=queries,
        passage_id=passage,
        title="A title",
    )


@pytest.mark.parametrize(
    ("phrase", "subjects"),
    [
        ("rosacea metformin", [("disease", "rosacea"), ("drug", "metformin")]),
        ("Bronchoscopy complications", [("procedure", "bronchoscopy")]),
        ("self confidence", [("other", "self confidence")]),
        ("yoghurt at night", [("other", "yoghurt at night")]),
    ],
)
def test_a_phrase_is_about_the_terms_of_the_code_books(
    phrase: str, subjects: list[tuple[str, str]]
) -> None:
    found = set(subjects)
    assert set(subjects_of(phrase, SHIPPED)) == found


def test_the_longest_term_hides_those_inside_it() -> None:
    terms = [("ICD-10:L71", name) for name in ("acne", "acne rosacea")]
    found = subjects_of("acne rosacea cream", Codebook(terms))
    assert found == [("disease", "acne rosacea")]


def test_subjects_are_ordered_by_threads_and_a_thread_counts_once() -> None:
    own_words = "玫瑰痤疮患者应避免日晒。"
    gaps = group_gaps(
        [
            claim(1, "rosacea sun", "rosacea sunscreen", own_words, passage=None),
            claim(2, "leg cramps magnesium", "leg cramps", own_words),
            claim(3, "rosacea gel", "rosacea", own_words, passage="c:2:0"),
        ],
        SHIPPED,
    )
    first = gaps[0]
    assert (first.name, first.threads) == ("rosacea", ["forum/1", "forum/3"])
    assert first.searched == [
        "rosacea sun",
        "rosacea sunscreen",
        "rosacea gel",
        "rosacea",
    ]
    assert first.nearest == "c:2:0"  # The first claim had none
    assert all(own_words not in gap.searched for gap in gaps)
    equal = [claim(4, "bronchoscopy", own_words), claim(5, "a walk", own_words)]
    assert [gap.kind for gap in group_gaps(equal, SHIPPED)] == ["procedure", "other"]
    assert [len(gap.threads) for gap in gaps] == sorted(
        (len(gap.threads) for gap in gaps), reverse=True
    )
