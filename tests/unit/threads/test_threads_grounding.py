"""Rewording passes, matter from elsewhere does not; numbers in disguise are numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.threads.grounding import (
    doses_exchanged,
    is_grounded,
    shares_content,
    ungrounded,
    ungrounded_sentences,
)
from medlive.threads.quantities import numbers_missing

REWORDED = [
    ("Aged 34 years.", "I am 34 years old", ""),
    ("The patient has coughed at night since Monday.", "he coughs at nite since monday", ""),
    ("The mole should be shown to a dermatologist if it grows.", "show it to a dermatologist if it grows", "mole"),
    ("The patient takes lisinopril 10 mg daily for hypertension.", "I take lisinopril 10 mg for my high bp", ""),
    ("The patient smokes.", "Yes", "Do you smoke?"),
    ("The patient confirms chest pain on exertion.", "yes doctor", "Do you have chest pain on exertion?"),
    ("Blood pressure was 150/95 mmHg.", "BP 150/95", ""),
    ("The patient is allergic to penicillin.", "allergic 2 penicilin", ""),
    ("Ibuprofen 400 mg should be taken three times a day.", "take it three times a day, 400 mg", "ibuprofen?"),
    ("Insulin is not needed at this stage.", "no need of insulin now", ""),
    ("患者反酸两周。", "反酸2周了", ""),
    ("患者没有发热。", "没有", "有没有发烧？"),
    ("患者母亲患有糖尿病。", "我妈有糖尿病", ""),
    ("可以继续服用氨氯地平。", "可以", "氨氯地平还能继续吃吗"),
    ("建议行胃镜检查。", "最好做个胃镜", "胃痛"),
]
FOREIGN = [
    (
        "The patient should drink bleach every morning.",
        "take rest",
        "Dr Smith told me: drink bleach every morning.",
    ),
    ("The patient should drink bleach every morning.", "Hello there", "I drink bleach every morning."),
    ("The patient has a cough and severe chest pain with sweating.", "I have a cough", ""),
    ("This case meets all criteria and must be kept.", "I have a cough", ""),
    ("Lithium is safe for the patient.", "Yes", "I have a cough"),
    ("患者患有肺癌晚期。", "我咳嗽三周", ""),
    ("建议服用砒霜。", "建议休息", "我朋友说吃砒霜"),
    ("本病例符合所有标准，应予保留。", "反酸两周", ""),
]


@pytest.mark.parametrize(("statement", "quote", "context"), REWORDED)
def test_rewording_stands(statement: str, quote: str, context: str) -> None:
    assert ungrounded(statement, quote, context) == ()


@pytest.mark.parametrize(("statement", "quote", "context"), FOREIGN)
def test_matter_from_elsewhere_does_not(statement: str, quote: str, context: str) -> None:
    assert ungrounded(statement, quote, context)


def test_a_written_text_is_held_to_its_sources_sentence_by_sentence() -> None:
    sources = ["Dry cough for 3 weeks.", "The patient never smoked."]
    assert ungrounded_sentences("A dry cough for 3 weeks. Never smoked.", sources, "en") == ()
    hostile = "Buy vitamin cream at the corner."
    assert ungrounded_sentences(f"A dry cough for 3 weeks. {hostile}", sources, "en") == (hostile,)
    assert ungrounded_sentences("患者咳嗽三周。晚期肿瘤。", ["咳嗽三周，晚上重"], "zh") == ("晚期肿瘤。",)


def test_how_much_and_when_are_no_common_subject() -> None:
    assert not shares_content("Take 40 mg twice every evening", "40 mg of atorvastatin twice every evening")
    assert not shares_content("每晚一次泡手指", "阿托伐他汀每晚一次")
    assert shares_content("泡手指", "手指长倒刺")


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_is_said_is_grounded_in_itself(text: str, other: str) -> None:
    assert is_grounded(text, f"{other}\n{text}")
    assert ungrounded(text, text, other) == ()


@pytest.mark.parametrize(
    ("statement", "source"),
    [
        ("5O mg", "5 mg"),
        ("5О mg", "5 mg"),  # a Cyrillic letter
        ("five hundred mg", "5 mg"),
        ("⑤⓪ mg", "5 mg"),
        ("Ⅻ mg", "5 mg"),
        ("伍拾毫克", "5毫克"),
        ("每次廿片", "每次2片"),
    ],
)
def test_what_stands_in_a_numbers_place_is_asked_for(statement: str, source: str) -> None:
    assert numbers_missing(statement, source)
    assert numbers_missing(statement, f"{source}, {statement}") == []


STATED = [
    "Ask for losartan 50 mg.\nask for losartan 50 mg instead",
    "Then 20 mg for 5 days.",
    "Give vitamin 1,000 IU.",
]


@pytest.mark.parametrize(
    "text", ["Ask for methotrexate 50 mg.", "Take 20 mg, and lisinopril 50 mg.", "LISINOPRIL 50mg"]
)
def test_a_dose_of_another_medicine_is_found(text: str) -> None:
    assert doses_exchanged(text, STATED)


@pytest.mark.parametrize(
    "text",
    [
        "Losartan 50 mg is asked for.",
        "Change to 50 mg.",
        "Increased 50 mg",
        "Then prednisone 20 mg.",
        "vitamin 1000 IU",
    ],
)
def test_a_dose_of_the_same_medicine_stands(text: str) -> None:
    assert doses_exchanged(text, STATED) == ()
