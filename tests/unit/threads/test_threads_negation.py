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
    ("He has fever and cough.", "no fever and no cough"),
    ("Take aspirin and do not take ibuprofen.", "Do not take aspirin and do not take ibuprofen."),
    ("There is chest pain and no rash.", "no chest pain and no rash"),
    ("有发热咳嗽。", "无发热无咳嗽"),
    ("At this stage, surgery is required.", "Surgery is not required at this stage"),
    ("If it does not improve, do surgery.", "If it improves, do not do surgery"),
    ("He has fever, no cough.", "no fever or cough"),
    ("Do not ask for losartan.", "ask for losartan instead"),
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
    ("There is no chest pain and no dyspnea.", "No chest pain or dyspnea"),
    ("She has no neck pain and is not diabetic.", "No neck pain. I am not diabetic."),
    ("Neither fever nor cough is present.", "no fever or cough"),
    ("Fever and cough are not present.", "no fever, no cough"),
    ("无发热无咳嗽。", "没有发热，没有咳嗽"),
    ("At this stage, surgery is not required.", "Surgery is not required at this stage"),
    ("If it does not improve, a chest scan is indicated.", "Get a chest scan if it does not improve"),
    ("若无好转，应做胃镜检查。", "没有好转再做胃镜检查"),
    ("Cancer is improbable at this age.", "At your age cancer is very unlikely"),
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
    ("take aspirin", "Do not smoke and do not take aspirin.", True),
    ("", "no", False),
]


@pytest.mark.parametrize(("quote", "source", "expected"), CUT)
def test_words_that_were_cut_off_before_a_quote(quote: str, source: str, expected: bool) -> None:
    assert cut_off(quote, source) is expected


@pytest.mark.parametrize(("text", "expected"), [("No fever.", True), ("Avoid aspirin.", True), ("没有发热", True),
                                                 ("Fever.", False), ("发热不适", False)])  # fmt: skip
def test_what_denies(text: str, expected: bool) -> None:
    assert denies(text) is expected
