"""Normalised text, folded text for quotes, and the language rule."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.text.normalise import contains_quote, dominant_language, fold, normalise

_ANY = st.text(st.characters(exclude_categories=()), max_size=120)


@given(_ANY)
def test_normalising_is_idempotent_and_storable(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert once == unicodedata.normalize("NFC", once)
    once.encode("utf-8")
    assert "\x00" not in once


@given(_ANY)
def test_folding_is_idempotent(text: str) -> None:
    assert fold(fold(text)) == fold(text)


def test_invisible_and_bidi_characters_go_and_damage_stays() -> None:
    assert normalise("a\u202eb\u200b\x00  c\r\n\r\n\r\n\r\nd\u3000e") == "ab c\n\nd e"
    assert normalise("30. 4 weeks, metfornin 核算") == "30. 4 weeks, metfornin 核算"
    assert normalise("\ud83d\ude00 \ud83d") == "😀"


@pytest.mark.parametrize(
    "pair", [("10²", "102"), ("½", "1/2"), ("①", "1"), ("5㎡", "5m2"), ("x₂", "x2")]
)
def test_folding_turns_no_sign_into_another_number(pair: tuple[str, str]) -> None:
    assert fold(pair[0]) != fold(pair[1])


def test_a_quote_is_found_across_width_case_and_space() -> None:
    source = "病情：咳嗽 三天，\n体温３７.５℃。 The  Doctor’s “Advice”: take 15 mg."
    for quote in (
        "咳嗽三天,体温37.5℃",
        'the doctor\'s "advice"',
        "TAKE 15 MG",
        "体温３７．５",
    ):
        assert contains_quote(quote, source)


@pytest.mark.parametrize(
    ("quote", "source"),
    [
        ("5 mg", "take 15 mg"),
        ("5 mg", "take 2.5 mg"),
        ("take 1", "take 12 mg"),
        ("take 1", "take 1.5 mg"),
        ("10", "10²"),
        ("effective", "ineffective"),
        ("", "anything"),
        ("  \n", "anything"),
        ("not there", "there"),
    ],
)
def test_a_quote_cuts_through_no_number_and_no_word(quote: str, source: str) -> None:
    assert not contains_quote(quote, source)


def test_items_that_run_together_can_be_quoted() -> None:
    assert contains_quote("2. fever", "1. infection2. fever")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("I have had a cough for three days. What should I do?", "en"),
        ("my mother has diabetes", "en"),
        ("我咳嗽三天了，怎么办？", "zh"),
        ("醫生您好，我頭痛三天，請問怎麼辦", "zh"),
        ("肝功能ALT 32.4 AST 25.6 TBIL 15.8 ALB 41.7 GLB 34.6，要紧吗", "zh"),
        ("我吃了 amoxicillin 和 ibuprofen 三天", "zh"),
        ("My grandmother takes 六味地黄丸 for her kidneys and it does not help", "en"),
        ("頭が痛いのですが、どうすればいいですか", "other"),
        ("머리가 아파요 어떻게 해야 하나요", "other"),
        ("Tengo dolor de cabeza desde hace tres días, ¿qué puedo hacer?", "other"),
        ("J'ai mal à la tête depuis trois jours et je ne sais pas", "other"),
        ("У меня болит голова уже три дня", "other"),
        ("أعاني من صداع منذ ثلاثة أيام", "other"),
        ("12345 !!! 😀", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_language_is_read_from_script_and_function_words(
    text: str, language: str
) -> None:
    assert dominant_language(text) == language


def test_a_quote_is_looked_for_at_so_many_places_and_no_more() -> None:
    assert contains_quote("effective", "ineffective " * 999 + "effective")
    assert not contains_quote("effective", "ineffective " * 1000 + "effective")
