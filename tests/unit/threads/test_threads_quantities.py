"""A statement may lose a number of its source, and convert its unit; it may not gain or change one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.text.quantities import doses_exchanged, numbers, numbers_missing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("take 5mg twice daily for 5-7 days", "5 mg|2|5 day|7 day"),
        ("BP 120/80 mmHg, pulse 61", "120|80|61"),
        ("I am a 24-year-old weighing 64 kg", "24 year|64 kg"),
        ("1,500.50 mg and .5 g", "1500.5 mg|0.5 g"),
        ("vitamin B12, HbA1c 6.1, covid-19", "6.1"),
        ("1. take rest\n2. drink 2 litres", "2 l"),
        ("38度5，体温三十七度一", "38.5|37.1"),
        ("一个半月，一年半，三十多岁", "1.5 month|1.5 year|30 year"),
        ("60k units, 1.8万", "60000|18000"),
        ("five hundred mg, 2 thousand", "500 mg|2000"),
        ("十二指肠溃疡，十分疼，一般，三叉神经，四肢", ""),
    ],
)
def test_numbers_are_read_with_their_units(text: str, expected: str) -> None:
    found = [
        f"{q.value:g} {q.unit}" if q.unit else f"{q.value:g}" for q in numbers(text)
    ]
    # What a word counts ("twice") has no unit that is known, and is left to judgement.
    assert "|".join(found) == expected.replace("|2|", "|")


@pytest.mark.parametrize(
    ("statement", "source"),
    [
        ("体温37.2℃", "体温37.2"),
        ("one month", "a month"),
        ("5 ft 3 in tall", "height is 5'3\""),
        ("twice daily, 2 times", "500 mg bid"),
        ("每8小时一次", "q8h"),
        ("患者2018年冬天做了CT", "18年冬天拍了CT"),
        ("appendectomy in 2009", "appendix 09"),
        ("患者病程约15天", "半个月"),
        ("3个月后复查", "过仨月再看"),
        ("每6至12个月复查", "半年到一年复查"),
        ("500 µg", "0.5 mg"),
        ("two weeks", "review 2/52"),
        ("18 months", "a year and a half"),
        ("haemoglobin 10.5", "Hb is 10. 5 now"),
        ("40.2 °C", "shot upto 40 .2"),
        ("blood pressure 130/90 mmHg", "bp is 130/90"),
        ("1.5片", "一片半"),
        ("白细胞1.8万", "白细胞一万八"),
        ("出生体重3.1kg", "六斤二两"),
        ("0.01%", "万分之一"),
        ("5月12日", "末次月经：5.12"),
        ("aged 24 years", "I am a 24yo male"),
        ("A 28-year-old man.", "28M, cough"),
        ("100 micrograms", "100 mcg"),
        ("COVID-19 and vitamin B12", "corona"),
        ("1. rest\n2. drink", "rest and drink"),
    ],
)
def test_an_equal_number_in_another_spelling_is_no_conflict(
    statement: str, source: str
) -> None:
    assert numbers_missing(statement, source) == []


@pytest.mark.parametrize(
    ("statement", "source"),
    [
        ("5 g", "take 5 mg"),
        ("15 mg", "take 5 mg"),
        ("5 mg", "take 15 mg or 2.5 mg"),
        ("3 weeks", "3 days"),
        ("三天", "三周"),
        ("两片", "一片"),
        ("每天3次", "每天2次"),
        ("120/80", "120 over 90"),
        ("2020-03-22", "2020-03-21"),
        ("体温39.5℃", "体温38.5"),
        ("500 mg", "5 g"),
        ("in 2009", "in 2019"),
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
_UNITS = st.sampled_from(
    [
        "",
        " mg",
        "mg",
        " days",
        "片",
        "天",
        "%",
        " mmol/L",
        "次",
        "°C",
        " years old",
        "/min",
    ]
)
_NUMBER = st.one_of(
    st.integers(0, 2000).map(str),
    st.decimals(0, 500, places=1, allow_nan=False).map(str),
    st.sampled_from(
        [
            "120/80",
            "5-7",
            "两",
            "十五",
            "½",
            "10²",
            "2020-03-21",
            "1,200",
            "30. 4",
            "三十七度一",
            "B12",
        ]
    ),
)
_PIECES = st.lists(
    st.one_of(_WORDS, st.tuples(_NUMBER, _UNITS).map("".join)), max_size=12
)


@given(_PIECES)
def test_a_text_states_its_own_numbers(pieces: list[str]) -> None:
    text = " ".join(pieces)
    assert numbers_missing(text, text) == []


@given(st.text(max_size=200))
def test_any_text_states_its_own_numbers(text: str) -> None:
    assert numbers_missing(text, text) == []


@given(_PIECES, _PIECES)
def test_a_longer_source_never_loses_a_number(
    statement: list[str], more: list[str]
) -> None:
    text = " ".join(statement)
    assert (
        numbers_missing(text, "\n".join((" ".join(more), text, " ".join(more)))) == []
    )


@given(
    st.integers(3, 999_999),
    st.integers(3, 999_999),
    st.sampled_from([" mg", " kg", ""]),
)
def test_another_integer_is_always_missing(stated: int, held: int, unit: str) -> None:
    missing = numbers_missing(f"dose {stated}{unit}.", f"dose {held}{unit}.")
    years = not unit and 1930 <= stated <= 2049 and stated % 100 == held
    assert bool(missing) == (stated != held and not years)


@given(st.decimals(0, 999, places=2, allow_nan=False))
def test_width_changes_no_number(number: object) -> None:
    wide = str(number).translate({ord(c): ord(c) + 0xFEE0 for c in "0123456789."})
    assert numbers(f"{wide}mg") == numbers(f"{number}mg")


@pytest.mark.parametrize(
    ("statement", "quote", "exchanged"),
    [
        ("Valaciclovir 1 mg daily.", "valaciclovir 1 g daily", True),
        ("Valaciclovir 1000 mg daily.", "valaciclovir 1 g daily", False),
        ("The dose should fall by 0.125 mg.", "from 1 mg drop by .125", False),
        ("Gabapentin 300 mg.", "valaciclovir 1 g daily", False),
        ("For 1 day.", "valaciclovir 1 g daily", False),
    ],
)
def test_a_dose_is_none_that_stands_in_the_message_as_a_bare_number(
    statement: str, quote: str, exchanged: bool
) -> None:
    message = f"On day 1 and day 1000: {quote}, then gabapentin 300 mg."
    assert not numbers_missing(statement, message)
    assert bool(doses_exchanged(statement, quote, message)) is exchanged


_DATES = st.dates().map(
    lambda day: (
        f"{day.year:04}-{day.month:02}-{day.day:02}",
        f"{day.year:04}.{day.month}.{day.day}",
        f"{day.month}月{day.day}",
        f"{day.month}.{day.day}",
        f"{day.month}/{day.day}",
    )
)
_DATE = _DATES.flatmap(st.sampled_from)
_BESIDE = st.one_of(_DATE, st.integers(0, 99_999).map(str))


@given(first=_BESIDE, second=_BESIDE)
def test_a_full_width_comma_ends_a_number(first: str, second: str) -> None:
    values = {q.value for q in numbers(f"{first}，{second}")}
    assert values == {q.value for q in (*numbers(first), *numbers(second))}
    assert numbers_missing(f"{first}，{second}", first, second) == []


@given(_DATE, st.integers(1000, 9999))
def test_a_comma_before_a_year_groups_no_digits(date: str, year: int) -> None:
    assert numbers_missing(f"{date},{year}年", date, f"{year}年") == []


def test_a_source_may_group_digits_by_a_full_width_comma() -> None:
    assert numbers_missing("白细胞12345", "白细胞12，345") == []
    assert numbers_missing("白细胞12，345", "白细胞12,345") == []


@pytest.mark.parametrize(
    ("source", "stated"),
    [("死亡率是百分之30.", "30%"), ("约百分之1.2.3", "1.2.3"), ("十2斤3两", "2斤3")],
)
def test_a_numeral_of_mixed_or_broken_digits_is_no_error(
    source: str, stated: str
) -> None:
    assert numbers_missing(stated, source) == []
    assert numbers_missing("77 kg", source) == ["77 kg"]
