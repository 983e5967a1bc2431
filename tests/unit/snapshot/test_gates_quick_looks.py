"""A quick look that spares a slow one never changes what is found: each is held to the slow one it spares."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.deidentify.detect import find_identifiers
from medlive.text.normalise import fold

PIECES = (
    "the doctor",
    "as noted above",
    "i'm",
    "You",
    "ſtate",
    "ı do",
    "; then",
    "and recommends",
    "并建议",
    "；",
    "医生认为",
    "我国",
    "同上",
    "5",
    "12",
    ".5",
    "10^9",
    "mg",
    "mmhg",
    "°c",
    "y/o",
    "beats per minute",
    "mcg",
    "ng",
    "毫克",
    "微",
    "次",
    "每天",
    "半",
    "两",
    "三",
    "一般",
    "十五",
    "万",
    "twenty",
    "two",
    "may",
    "half a",
    "once daily",
    "on",
    "sept",
    "/",
    "-",
    "5O",
    "oο",
    "five hundred mg",
    "28F",
    "male, 34",
    "男",
    "岁",
    "ア",
    "々",
    "I",
    "İ",
    "straße",
    "ﬁ",
    "①",
    "²",
    "，",
    "。",
    "（",
    "“",
    "'s",
    " ",
    "  ",
    "\n",
    "\t",
    "\u3000",
    "\u2028",
    "\x1c",
    "\x00",
    "\u200b",
    "\ufe0f",
    "❤",
    "\ud83d",
    "\u0301",
    "J o h n",
    "1 3 8 1 2 3 4 5",
    "l38OOl3",
    "<b>",
    "&amp;",
    "---",
    "=SUM(",
    '[{"a":',
    "#",
    "\\u0041",
    "@jane",
    "www.a",
    "http://x",
    "Α",
    "a",
    "µ",
    "я",
    "1380",
    "555-867-5309",
    "suite b",
    "Dr. Miller",
    "张医生",
    "住院号",
    "here",
    "Jane here",
    "12 Oak Street",
    "北京市",
    "阳光小区3号楼",
    "my name is Jane",
    "regards, Tom",
    "born 1980-01-02",
    "wechat abc123",
    "patient",
)
TEXTS = st.lists(
    st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=14
).flatmap(
    lambda pieces: st.sampled_from([" ", "", "\n"]).map(
        lambda between: between.join(pieces)
    )
)


@settings(max_examples=20)
@given(TEXTS)
def test_a_plain_text_folds_as_any_other(text: str) -> None:
    # A character that folds to itself and keeps the text from being plain ASCII.
    assert fold(f"{text} é").removesuffix("é").rstrip() == fold(text)


def test_full_width_marks_are_those_of_unicode() -> None:
    for char in map(chr, range(0xFF01, 0xFF5F)):
        narrow = unicodedata.normalize("NFKC", char).lower()
        assert fold(char) == narrow


@pytest.mark.parametrize(
    "text",
    [
        "I saw Dr. Smith.",
        "text.Dr. Smith said",
        "Patient: Jane Miller",
        "my wife Mary has it",
        "I am Jane Miller",
        "Regards,\nTom",
        "It hurts.\n- Tom Baker",
        "Dear Tom, it hurts",
        "Jane here",
        "MRN 1234567",
        "born 1980-01-02",
        "flight CA1234",
        "wechat abc12345",
        "住院号：1234567",
        "1980年1月2日出生",
        "我在苏州看的",
        "协和医院看的",
        "河南省平安医院",
        "来自德清县",
        "住阳光小区",
        "春风路12号",
        "邮编310000",
        "张医生您好",
        "我叫王小明",
        "我是王小明。",
        "我老公陈伟在",
        "谢谢\n刘洋",
        "小王说",
        "李小明（医生",
    ],
)
def test_one_rule_alone_is_enough_to_be_looked_at(text: str) -> None:
    assert find_identifiers(text, None)
