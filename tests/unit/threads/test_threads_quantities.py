"""A statement may lose a number of its source, never gain or change one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.threads.normalise import Quantity, numbers, numbers_missing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("take 5mg twice daily for 5-7 days", "5 mg|2 time/day|5 day|7 day"),
        ("BP 120/80 mmHg, pulse 61", "120/80|61"),
        ("I am a 24-year-old weighing 64 kg", "24 year|64 kg"),
        ("1,500.50 mg and .5 g", "1500.5 mg|0.5 g"),
        ("five to six days, then half a tablet", "5 day|6 day|1/2 tablet"),
        ("½ tablet or 1½ tablets", "1/2 tablet|1.5 tablet"),
        ("10² is not 102", "10^2|102"),
        ("WBC 5.2×10⁹/L", "5.2x10^9 /l"),
        ("lens -2.5", "-2.5"),
        ("a cyst of 5x3 cm", "5 cm|3 cm"),
        ("on Jul 06, 2018 and 2020-03-21", "2018-07-06 date|2020-03-21 date"),
        ("vitamin B12, HbA1c 6.1, covid-19", "b12 name|hba1c name|6.1|19"),
        ("0.05 mcg/kg/min", "0.05 µg/kg/minute"),
        ("1. take rest\n2. drink 2 litres", "2 l"),
        ("30. 4 weeks", "30.4 week"),
        ("38度5，体温三十七度一", "38.5 deg|37.1 deg"),
        ("每天3次，一次两片", "3 time/day|2 tablet"),
        ("１２０／８０，３７．８℃", "120/80|37.8 °c"),
        ("两三天，三十多岁，一个半月，一年半", "2 day|3 day|30 year|1.5 month|1.5 year"),
        ("1500毫克一天，百分之三十，1.2万", "1500 mg/day|30 %|12000"),
        ("二月十三号，2020年3月21日", "--02-13 date|2020-03-21 date"),
        ("十二指肠溃疡，十分疼，一般，三叉神经，四肢", ""),
    ],
)
def test_numbers_are_read_with_their_units(text: str, expected: str) -> None:
    assert "|".join(f"{q.value} {q.unit}" if q.unit else q.value for q in numbers(text)) == expected


@pytest.mark.parametrize(
    ("statement", "source"),
    [
        ("metformin 500 mg twice a day", "Metformin 500毫克，每天2次。metformin 500 mg 2 times a day"),
        ("a temperature of 38.5°C", "体温38.5度"),
        ("aged 24 years", "I am a 24yo male"),
        ("for three weeks", "3 weeks of cough"),
        ("haemoglobin 10.5", "Hb is 10. 5 now"),
        ("haemoglobin 10. 5", "Hb is 10.5 now"),
        ("blood pressure 130/90 mmHg", "bp is 130/90"),
        ("5 mg", "5 mg per day"),
        ("一天两片", "每日2片"),
        ("March 2020", "seen on 2020-03-21"),
        ("COVID-19", "covid 19 symptoms"),
        ("A1c of 6.1", "HbA1c 6.1"),
        ("6.0 cm", "6 cm"),
        ("1000 units", "1,000 units"),
    ],
)
def test_an_equal_number_in_another_spelling_is_no_gain(statement: str, source: str) -> None:
    assert numbers_missing(statement, source) == []


@pytest.mark.parametrize(
    ("statement", "source"),
    [
        ("5 mg", "take 5"),
        ("5 g", "take 5 mg"),
        ("15 mg", "take 5 mg"),
        ("5 mg", "take 15 mg or 2.5 mg"),
        ("5 mg", "5 mg/kg"),
        ("12 mg", "vitamin B12"),
        ("B6", "vitamin B12"),
        ("102", "10²"),
        ("-2.5", "2.5"),
        ("120/80", "120 over 90"),
        ("3 weeks", "3 days"),
        ("三天", "三周"),
        ("两片", "一片"),
        ("每天3次", "每天2次"),
        ("2020-03-22", "2020-03-21"),
        ("10^6", "10^9"),
        ("two tablets", "a tablet"),
    ],
)
def test_a_changed_number_or_unit_is_named(statement: str, source: str) -> None:
    assert len(numbers_missing(statement, source)) == 1


_WORDS = st.sampled_from(
    [
        "take",
        "the",
        "pain",
        "since",
        "tablet",
        "of",
        "for",
        "服用",
        "疼",
        "约",
        "体温",
        "and",
        ",",
        ".",
        "。",
        "(",
        ")",
        "/",
        "-",
        ":",
        "x",
    ]
)
_UNITS = st.sampled_from(["", " mg", "mg", " days", "片", "天", "%", " mmol/L", "次", "°C", " years old", "/min"])
_NUMBER = st.one_of(
    st.integers(0, 2000).map(str),
    st.decimals(0, 500, places=1, allow_nan=False).map(str),
    st.sampled_from(
        ["120/80", "5-7", "两", "十五", "½", "10²", "2020-03-21", "1,200", "30. 4", "三十七度一", "B12"]
    ),
)
_PIECES = st.lists(st.one_of(_WORDS, st.tuples(_NUMBER, _UNITS).map("".join)), max_size=12)


@given(_PIECES)
def test_a_text_states_its_own_numbers(pieces: list[str]) -> None:
    text = " ".join(pieces)
    assert numbers_missing(text, text) == []


@given(st.text(max_size=200))
def test_any_text_states_its_own_numbers(text: str) -> None:
    assert numbers_missing(text, text) == []


@given(_PIECES, _PIECES)
def test_a_longer_source_never_loses_a_number(statement: list[str], more: list[str]) -> None:
    text = " ".join(statement)
    assert numbers_missing(text, "\n".join((" ".join(more), text, " ".join(more)))) == []


@given(st.integers(3, 999_999), st.integers(3, 999_999), st.sampled_from([" mg", "片", " days", ""]))
def test_another_integer_is_always_missing(stated: int, held: int, unit: str) -> None:
    missing = numbers_missing(f"dose {stated}{unit}.", f"dose {held}{unit}.")
    assert bool(missing) == (stated != held)


@given(st.decimals(0, 999, places=2, allow_nan=False))
def test_width_changes_no_number(number: object) -> None:
    wide = str(number).translate({ord(c): ord(c) + 0xFEE0 for c in "0123456789."})
    assert numbers(f"{wide}mg") == numbers(f"{number}mg")


def test_a_list_marker_is_no_number_of_a_statement_and_one_of_a_source() -> None:
    assert numbers("1. rest\n2) drink\n3、休息") == ()
    assert numbers_missing("Item 2. drink", "1. rest\n2. drink") == []


def test_a_date_is_no_quantity_of_its_month() -> None:
    assert Quantity("5", "mg") in numbers("may 5 mg help?")


@pytest.mark.parametrize(
    ("statement", "source"),
    [
        ("A 28-year-old man.", "Male, 28. Bright red blood"),
        ("A 28-year-old man.", "28M, cough"),
        ("A 34-year-old woman.", "34F here"),
        ("Aged 55 years of age.", "I am 55, had my thyroid removed"),
        ("34岁女性", "女，34，咳嗽"),
    ],
)
def test_an_age_that_was_given_without_years_is_an_age(statement: str, source: str) -> None:
    assert numbers_missing(statement, source) == []


@pytest.mark.parametrize(
    ("statement", "source"),
    [
        ("Hypertension for 28 years.", "Male, 28."),
        ("A 34-year-old woman.", "I'm 34 weeks pregnant"),
        ("A 60-year-old man.", "I'm 60 kg"),
        ("A 5-year-old boy.", "I'm 5'7"),
        ("A 12-year-old girl.", "I am 12.5"),
        ("A 5-year-old boy.", "5 a week"),
        ("28年病史", "男，28"),
    ],
)
def test_a_bare_number_is_an_age_only_where_an_age_stands(statement: str, source: str) -> None:
    assert numbers_missing(statement, source)
