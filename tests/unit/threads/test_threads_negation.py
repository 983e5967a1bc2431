"""A statement denies what its source denies, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.threads.negation import cut_off, denies, flipped

CHANGED = [
    ("The patient has a fever.", "no fever, no cough"),
    ("No penicillin allergy.", "allergic to penicillin"),
    ("The patient takes aspirin.", "I don't take aspirin"),
    ("The biopsy was malignant.", "The biopsy was not malignant."),
    ("Take ibuprofen with warfarin.", "Do not take ibuprofen with warfarin."),
    ("患者有发热。", "没有发热"),
    ("不要服用阿司匹林", "可以服用阿司匹林"),
    ("有青霉素过敏史。", "无青霉素过敏史"),
]
SAME = [
    ("Fever for 3 days.", "I had fever for 3 days, no cough"),
    ("The patient cannot sleep.", "I can't sleep at night"),
    ("The patient has insomnia.", "I can't sleep at night"),
    ("The biopsy was negative.", "biopsy result came back negative"),
    ("No longer takes aspirin.", "I stopped taking aspirin in May"),
    ("Aspirin should be avoided.", "do not take aspirin"),
    ("患者发热三天。", "发热三天，没有咳嗽"),
    ("服用阿司匹林后胃不适。", "服用阿司匹林后胃不舒服"),
    ("患者未发热。", "没有发热"),
    ("", ""),
]


@pytest.mark.parametrize(("statement", "quote"), CHANGED)
def test_a_changed_negation_is_found(statement: str, quote: str) -> None:
    assert flipped(statement, [quote])


@pytest.mark.parametrize(("statement", "quote"), SAME)
def test_the_same_in_other_words_is_let_through(statement: str, quote: str) -> None:
    assert flipped(statement, [quote]) == []


@given(st.text(max_size=300))
def test_no_text_denies_itself(text: str) -> None:
    assert flipped(text, [text]) == []


CUT = [
    ("take aspirin", "Please do not take aspirin.", True),
    ("take aspirin", "No fever. Take aspirin.", False),
    ("take aspirin", "Do not take aspirin at night. In the morning take aspirin.", False),
    ("需要手术", "目前不需要手术", True),
    ("有没有发热", "你有没有发热", False),
    ("患病多久：一周内", "有没有吃药：没有\n患病多久：一周内", False),
    ("fever\ncough", "no fever\ncough", True),
    ("", "no", False),
]


@pytest.mark.parametrize(("quote", "source", "expected"), CUT)
def test_words_that_were_cut_off_before_a_quote(quote: str, source: str, expected: bool) -> None:
    assert cut_off(quote, source) is expected


@pytest.mark.parametrize(("text", "expected"), [("No fever.", True), ("Avoid aspirin.", True), ("没有发热", True),
                                                 ("Fever.", False), ("发热不适", False)])  # fmt: skip
def test_what_denies(text: str, expected: bool) -> None:
    assert denies(text) is expected
