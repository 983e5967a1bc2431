"""A quick look that spares a slow one never changes what is found: each is held to the slow one it spares."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from medlive.rubric import lint
from medlive.snapshot import disguise
from medlive.snapshot.leaks import find_contact, find_unstorable
from medlive.threads import grounding, quantities, units
from medlive.threads.deidentify import find_identifiers
from medlive.threads.identifiers import View
from medlive.threads.normalise import fold

PIECES = (
    "the doctor", "as noted above", "i'm", "You", "ſtate", "ı do", "; then", "and recommends", "并建议", "；",
    "医生认为", "我国", "同上", "5", "12", ".5", "10^9", "mg", "mmhg", "°c", "y/o", "beats per minute", "mcg",
    "ng", "毫克", "微", "次", "每天", "半", "两", "三", "一般", "十五", "万", "twenty", "two", "may",
    "half a", "once daily", "on", "sept", "/", "-", "5O", "oο", "five hundred mg", "28F", "male, 34", "男",
    "岁", "ア", "々", "I", "İ", "straße", "ﬁ", "①", "²", "，", "。", "（", "“", "'s", " ", "  ", "\n", "\t",
    "\u3000", "\u2028", "\x1c", "\x00", "\u200b", "\ufe0f", "❤", "\ud83d", "\u0301", "J o h n",
    "1 3 8 1 2 3 4 5", "l38OOl3", "<b>", "&amp;", "---", "=SUM(", "[{\"a\":", "#", "\\u0041", "@jane",
    "www.a", "http://x", "Α", "a", "µ", "я", "1380", "555-867-5309", "suite b", "Dr. Miller", "张医生",
    "住院号", "here", "Jane here", "12 Oak Street", "北京市", "阳光小区3号楼", "my name is Jane",
    "regards, Tom", "born 1980-01-02", "wechat abc123", "patient",
)  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=14).flatmap(
    lambda pieces: st.sampled_from([" ", "", "\n"]).map(lambda between: between.join(pieces))
)
START = re.compile(
    r"\d|(?<!\d)\.\d|[零〇一二两三四五六七八九十百千万半]"
    r"|\b(?:once|twice|thrice|half|zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thir|fif|"
    r"twenty|forty|sixty|seventy|eighty|ninety|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
)
AFTER_UNIT = "|".join(re.escape(s) for s in sorted(units.UNITS, key=len, reverse=True))


@settings(max_examples=60)
@given(TEXTS)
@example("twenty days, ninety mg, fifty and a seventh; .5.5 a.5")
def test_numbers_begin_where_one_pattern_for_all_of_them_finds_them(text: str) -> None:
    plain = quantities.plain_digits(text)
    found, at = [], 0
    while match := START.search(plain, at):
        found.append(match.start())
        at = match.start() + 1
    assert list(quantities._starts(plain)) == found


@settings(max_examples=60)
@given(TEXTS)
@example("five hundred mg and 5O mg, about mg 5 mg")
@example("i'm 55, male, 28F 女，34 aged 70 lbs")
def test_what_stands_near_a_sign_is_what_stands_in_the_whole_text(text: str) -> None:
    plain = quantities.plain_digits(text)
    assert quantities._unread(plain, []) == [
        m.group() for m in (*quantities._UNREAD.finditer(plain), *quantities._LOOKALIKE.finditer(plain))
    ]
    assert quantities._Stated(text).ages == {
        m.group(m.lastgroup or 0)
        for m in quantities._AGE_STATED.finditer(plain)
        if m.lastgroup != "after" or units.read_unit(plain, m.end())[0] is None
    }


def test_each_unit_is_read_to_its_end() -> None:
    for spelled in units.UNITS:
        match = units.UNIT.match(f" {spelled}{' x' if spelled[0].isascii() else '吃'}")
        assert match is not None, spelled
        assert (match["latin"] or match["han"]) == spelled


@settings(max_examples=60)
@given(TEXTS)
def test_units_are_those_of_a_plain_list_of_them(text: str) -> None:
    small = quantities.plain_digits(text)
    both = [
        re.compile(rf"(?:{pattern})(?![a-z])") for pattern in (AFTER_UNIT, f"{units.LATIN_UNIT}|{units.HAN_UNIT}")
    ]
    plain, factored = ([pattern.match(small, at) for at in range(len(small))] for pattern in both)
    assert [m and m.span() for m in plain] == [m and m.span() for m in factored]


@settings(max_examples=60)
@given(st.lists(TEXTS, min_size=2, max_size=3), TEXTS)
@example(["ア", "bc"], "アbc")
@example(["血", "压"], "血压")
def test_several_sources_are_one_text_of_several_lines(sources: list[str], text: str) -> None:
    whole = "\n".join(sources)
    assert grounding._words_of(tuple(sources)).known == grounding._words(whole).known
    assert grounding.is_grounded(text, *sources) == grounding.is_grounded(text, whole)
    assert quantities.numbers_missing(text, *sources) == quantities.numbers_missing(text, whole)


@settings(max_examples=60)
@given(TEXTS)
def test_a_plain_text_folds_as_any_other(text: str) -> None:
    # A character that folds to itself and keeps the text from being plain ASCII.
    assert fold(f"{text} é").removesuffix("é").rstrip() == fold(text)


@settings(max_examples=60)
@given(TEXTS)
def test_a_rule_of_the_linter_finds_what_its_pattern_finds(text: str) -> None:
    small = lint._small(text)
    assert len(small) == len(text)
    for rule in (
        lint._LEAN_EN, lint._LEAN_ZH, lint._SPEAKER_EN, lint._SPEAKER_ZH, lint._TWO_EN, lint._TWO_ZH,
    ):  # fmt: skip
        found, slow = rule.find(small), rule.pattern.search(small)
        loose = re.compile(rule.pattern.pattern, re.IGNORECASE).search(text)
        assert (found and found.span()) == (slow and slow.span()) == (loose and loose.span())


@settings(max_examples=60)
@given(TEXTS, st.sampled_from(["en", "zh", None]))
@example("Thanks, Jane here\nI am Tom", "en")
@example("我叫张小明，住在阳光小区3号楼，电话13812345678", "zh")
def test_no_rule_is_left_out_whose_words_stand_in_the_text(text: str, language: str | None) -> None:
    quick = find_identifiers(text, language)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(View, "any", lambda self, rules: True)
        assert find_identifiers(text, language) == quick


@settings(max_examples=60)
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_what_all_texts_together_do_not_hold_none_of_them_holds(texts: list[str]) -> None:
    whole = "\n".join(texts)
    for find in (find_contact, find_unstorable, disguise.find_disguise, disguise.find_markup):
        if find(whole) is None:
            assert [find(text) for text in texts] == [None] * len(texts)
    assert disguise.as_read(whole) == "\n".join(map(disguise.as_read, texts))
    assert [disguise.as_read(text).count("\n") for text in texts] == [text.count("\n") for text in texts]


@settings(max_examples=60)
@given(TEXTS)
def test_a_text_without_a_sign_of_markup_or_of_spread_out_letters_holds_none(text: str) -> None:
    found = disguise._MARKUP.search(text)
    assert (disguise.find_markup(text) is None) == (found is None)
    if not disguise._SPREAD.search(text):
        assert not disguise._LETTERS.search(text)
        assert not disguise._SINGLE_DIGITS.search(text)
    if not disguise._LONG_RUN.search(text):
        assert not disguise._NEARLY_DIGITS.search(text)
