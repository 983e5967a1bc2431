"""Whatever form an identifier takes, it is found, typed and gone; the labelled sentences hold the aims."""

import json
import string
import sys
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import get_args

import phonenumbers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.deidentify.detect import (
    Identifier,
    IdentifierKind,
    find_identifiers,
    redact,
)
from medlive.threads.model import Message, Thread
from medlive.threads.prepare import thread_identifiers

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
STRUCTURED = frozenset(get_args(IdentifierKind)) - {
    "name",
    "place",
    "address",
}

PROSE = st.sampled_from(
    [
        "my fever is 38.5 since 3 days, ",
        "took Augmentin 625 twice.\n",
        "and WBC 11200, ",
        "血压140/90，吃缬沙坦80mg，",
        "医生您好，",
        "。",
        "(see scan) ",
        "🙏 ",
        "Crohn's disease ",
    ]
)


def found_kinds(text: str, words: str) -> set[IdentifierKind]:
    """The kinds under which the whole of `words` is found in the text."""
    start = text.index(words)
    end = start + len(words)
    language = "zh" if any("\u4e00" <= c <= "\u9fff" for c in text) else "en"
    return {
        i.kind
        for i in find_identifiers(text, language)
        if i.start <= start and end <= i.end
    }


def chinese_id(body: str) -> str:
    """Seventeen digits with the check character of GB 11643, computed as ISO 7064 says."""
    remainder = sum(int(d) * pow(2, 17 - n, 11) for n, d in enumerate(body)) % 11
    return body + "0123456789X"[(12 - remainder) % 11]


@st.composite
def telephones(draw: st.DrawFn) -> str:
    region = draw(
        st.sampled_from(["US", "GB", "IN", "CN", "DE", "AU", "FR", "BR", "ZA", "JP"])
    )
    kind = draw(
        st.sampled_from(
            [
                phonenumbers.PhoneNumberType.MOBILE,
                phonenumbers.PhoneNumberType.FIXED_LINE,
            ]
        )
    )
    number = phonenumbers.example_number_for_type(region, kind)
    assert number is not None
    form = draw(
        st.sampled_from(
            [
                phonenumbers.PhoneNumberFormat.E164,
                phonenumbers.PhoneNumberFormat.INTERNATIONAL,
            ]
        )
    )
    return phonenumbers.format_number(number, form)


@st.composite
def local_telephones(draw: st.DrawFn) -> str:
    if draw(st.booleans()):
        digits = (
            "1"
            + draw(st.sampled_from("3456789"))
            + draw(st.text("0123456789", min_size=9, max_size=9))
        )
        gap = draw(st.sampled_from(["", " ", "-"]))
        return gap.join((digits[:3], digits[3:7], digits[7:]))
    area, line = draw(st.integers(201, 989)), draw(st.integers(100, 199))
    return draw(
        st.sampled_from(["({}) 555-0{}", "{}-555-0{}", "{}.555.0{}", "{} 555 0{}"])
    ).format(area, line)


emails = st.builds(
    lambda user, host: f"{user}@{host}.example.org",
    st.text(string.ascii_lowercase + string.digits, min_size=2, max_size=12),
    st.text(string.ascii_lowercase, min_size=2, max_size=10),
)
identity_numbers = st.one_of(
    st.builds(
        lambda region, born, order: chinese_id(f"{region}{born:%Y%m%d}{order:03d}"),
        st.sampled_from(["990000", "110105", "440301"]),
        st.dates(date(1930, 1, 1), date(2020, 1, 1)),
        st.integers(0, 999),
    ),
    st.builds("987-65-{}".format, st.integers(4320, 4329)),
)


@given(PROSE, st.one_of(telephones(), local_telephones()), PROSE)
def test_every_telephone_is_found(before: str, phone: str, after: str) -> None:
    assert found_kinds(f"{before} {phone} {after}", phone) == {"phone"}


@given(PROSE, emails, PROSE)
def test_every_email_is_found(before: str, email: str, after: str) -> None:
    assert found_kinds(f"{before} {email} {after}", email) == {"email"}


@given(PROSE, identity_numbers, PROSE)
def test_every_identity_number_is_found(before: str, number: str, after: str) -> None:
    assert found_kinds(f"{before} {number} {after}", number) == {"id number"}


def test_a_check_character_alone_makes_an_identity_number() -> None:
    """No region 99 exists: with the right last character it is found all the same, with a wrong one it is not."""
    for order in range(100, 122):
        number = chinese_id(f"99000019900512{order}")
        wrong = number[:17] + ("1" if number[17] != "1" else "2")
        assert found_kinds(f"号 {number}", number) == {"id number"}, number
        assert "id number" not in found_kinds(f"no {wrong} x", wrong) or luhn(wrong)


def luhn(digits: str) -> bool:
    """Whether the digits pass as a payment card's number."""
    doubled = [int(d) * (2 if n % 2 else 1) for n, d in enumerate(reversed(digits))]
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


@pytest.mark.parametrize(
    "hidden", ["\u200b", "\u2060", "\x00", "\ufe0f\u20e3", "\u00ad"]
)
def test_invisible_characters_hide_nothing(hidden: str) -> None:
    number = hidden.join("13800138000")
    text = f"电话{number}谢谢"
    assert [(i.kind, i.text) for i in find_identifiers(text, "zh")] == [
        ("phone", number)
    ]


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("电话１３８００１３８０００", "phone", "１３８００１３８０００"),
        ("电话①③⑧⓪⓪①③⑧⓪⓪⓪", "phone", "①③⑧⓪⓪①③⑧⓪⓪⓪"),
        ("座机⑧⑥⑤④③②⑤⑨", "phone", "⑧⑥⑤④③②⑤⑨"),
        ("号码一三八零零一三八零零零", "phone", "一三八零零一三八零零零"),
        ("ring 4l5-555-O123", "phone", "4l5-555-O123"),
        (
            "write john (at) mail (dot) com",
            "email",
            "john (at) mail (dot) com",
        ),
        (
            "身份证 990000 19900512 0045",
            "id number",
            "990000 19900512 0045",
        ),
        ("Medicare 1EG4-TE5-MK73", "id number", "1EG4-TE5-MK73"),
        ("call 𝟺𝟷𝟻-𝟻𝟻𝟻-𝟶𝟷𝟸𝟹", "phone", "𝟺𝟷𝟻-𝟻𝟻𝟻-𝟶𝟷𝟸𝟹"),
    ],
)
def test_usual_disguises_are_seen_through(
    text: str, kind: IdentifierKind, words: str
) -> None:
    assert found_kinds(text, words) == {kind}


MIXED = st.lists(
    st.one_of(
        PROSE,
        local_telephones(),
        emails,
        identity_numbers,
        st.sampled_from(
            [
                "Dr. Smith",
                "王医生",
                "我叫李雷，",
                "住在成都市武侯区科华北路65号，",
                "4417 Maple Road, Springfield, IL 62799",
                "DOB 3/4/1980 ",
                "\u200b",
                "[name]",
            ]
        ),
        st.text(max_size=8),
    ),
    max_size=8,
).map(" ".join)


@given(MIXED)
def test_spans_are_exact_apart_and_gone_once_redacted(text: str) -> None:
    found = find_identifiers(text, None)
    assert all(
        0 <= i.start < i.end <= len(text) and text[i.start : i.end] == i.text
        for i in found
    )
    assert all(a.end <= b.start for a, b in pairwise(found))
    once = redact(text, None)
    assert redact(once, None) == once
    assert not [i for i in find_identifiers(once, None) if i.kind in STRUCTURED]


def test_a_thread_says_where_and_never_what() -> None:
    messages = (
        Message("m0", "asker", "patient", False, "电话\u200b13800138000"),
        Message("m1", "doctor", "physician", True, "Regards,\nDr. Anil Kumar"),
    )
    thread = Thread("s", "1", "", "My name is Priya", "en", (), None, messages)
    title, first, second = thread_identifiers(thread)
    assert title == [Identifier("name", 11, 16, "Priya")]
    assert [identifier[:3] for identifier in first] == [("phone", 3, 14)]
    assert [identifier[:3] for identifier in second] == [("name", 13, 23)]


def test_labelled_sentences_hold_the_aims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import deidentification

    try:
        sentences = deidentification.read_sentences()
        assert len(sentences) >= 300
        for language in ("en", "zh"):
            held = [s for s in sentences if s.language == language]
            assert len(held) >= 150
            assert sum(s.half == "held_out" for s in held) >= 50
            assert 0.4 <= sum(bool(s.spans) for s in held) / len(held) <= 0.6
        assert (
            deidentification.missed_aims(
                deidentification.score(sentences, deidentification.ours), "all"
            )
            == []
        )
    finally:
        sys.modules.pop("deidentification", None)


def test_labels_outside_their_text_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import deidentification

    try:
        row = {"id": "x", "language": "en", "half": "tuned", "text": "abc"}
        path = tmp_path / "pii.jsonl"
        path.write_text(
            json.dumps(row | {"spans": [{"kind": "name", "start": 1, "end": 9}]}),
            encoding="utf-8",
        )
        with pytest.raises(ValueError, match="x: a span"):
            deidentification.read_sentences(path)
    finally:
        sys.modules.pop("deidentification", None)


@pytest.mark.matrix
@pytest.mark.parametrize(
    "piece",
    [
        "a.",
        "1 ",
        "医院",
        "北京市",
        "Dr. Smith ",
        "一",
        "my son ",
        "1 st ",
        "@a",
        "thanks,\n",
        "路3号",
        "\n",
        " \n",
        "没有去过武汉、",
        "跟武汉",
        "阿莫西宁",
        "have you been to Wuhan ",
        "at malviya hospital ",
        "MAlviya hospital İ ",
    ],
)
def test_a_long_row_of_one_piece_comes_to_its_end(piece: str) -> None:
    """A long row of one piece is read at all: a rule whose time squares would hang here."""
    text = piece * (30_000 // len(piece))
    assert all(0 <= i.start < i.end <= len(text) for i in find_identifiers(text, None))


@pytest.mark.parametrize("opening", ["Regards,\nBob", "All the best.\n- Bob"])
def test_white_space_behind_a_signature_takes_no_time(opening: str) -> None:
    """Read once: a rule that divided it in every way took a minute for 2,000 characters."""
    assert not find_identifiers(opening + " \t" * 20_000 + "z", None)


@pytest.mark.thorough
def test_a_long_run_of_places_takes_no_time() -> None:
    """Read once: begun anew at each place, it took more than a minute."""
    assert find_identifiers("北京市朝阳区" * 10_000, "zh")
