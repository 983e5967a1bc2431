"""Each rule keeps out what it is named after, and nothing beside it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.filters.codebooks import load_codebook
from medlive.filters.model import FilterReason, FilterSettings, FilterVerdict
from medlive.filters.rules import (
    RULES,
    FilterChain,
    first_failure,
)
from medlive.threads.model import Message, Role, Thread
from medlive.threads.near_duplicates import Match

NOW = datetime(2025, 6, 1, tzinfo=UTC)
CHAIN = FilterChain(FilterSettings(), load_codebook())
REPLY = "This looks like a viral cough. Drink enough, and see a physician if the fever stays over three days."
ASK = "I have had a dry cough and a fever of 38.5 °C since Monday. Should I take an antibiotic?"


def thread(ask: str = ASK, reply: str = REPLY, **changes: object) -> Thread:
    made = Thread(
        source="test",
        thread_id="1",
        url="https://forum.example/threads/cough-and-fever.12/",
        title="Cough and fever",
        language="en",
        tags=("cough",),
        posted_at=datetime(2025, 3, 1, tzinfo=UTC),
        messages=(
            Message("m0", "u_0", "patient", False, ask),
            Message("m1", "u_1", "physician", True, reply),
        ),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def reason(subject: Thread, duplicate_of: Match | None = None) -> FilterReason | None:
    rejected = first_failure(CHAIN.judge(subject, duplicate_of=duplicate_of, now=NOW))
    return rejected.reason if rejected else None


def test_a_clinical_thread_passes_every_rule_in_both_languages() -> None:
    result = CHAIN.judge(thread(), duplicate_of=None, now=NOW)
    assert first_failure(result) is None
    assert [v.rule for v in result] == [rule.__name__ for rule in RULES]
    chinese = thread(
        "咳嗽三天，体温38.5度，需要吃抗生素吗？",
        "考虑病毒感染，多喝水，三天不退烧到医院看。",
        title="咳嗽",
        language="zh",
    )
    assert reason(chinese) is None


def _with(
    text: str,
    *,
    role: Role = "patient",
    verified: bool = False,
    media: tuple[str, ...] = (),
) -> Message:
    return Message("m9", "u_9", role, verified, text, None, media)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (thread(messages=()), "empty_thread"),
        (thread(" \n"), "empty_thread"),
        (thread(ASK + " and a cough" * 20_000), "too_long"),
        (thread(posted_at=None), "posted_unknown"),
        (
            thread(posted_at=datetime(2022, 12, 31, tzinfo=UTC)),
            "posted_before",
        ),
        (thread(posted_at=NOW + timedelta(days=3)), "posted_in_future"),
        (thread(tags=("Pre-Medical [ MD ]",)), "not_clinical"),
        (thread(tags=("求职招聘",)), "not_clinical"),
        (
            thread(url="https://x.example/forums/pre-medical-md.10/t.5/"),
            "not_clinical",
        ),
        (
            thread(
                messages=(
                    _with(ASK, media=("image",)),
                    replace(thread().messages[1], text=f"In this picture. {REPLY}"),
                )
            ),
            "not_text_only",
        ),
        (
            thread(
                ASK, f"I saw your scan (attachment removed to protect you). {REPLY}"
            ),
            "not_text_only",
        ),
        (
            thread(
                ASK + " I have attached my reports.",
                f"I have gone through your reports. {REPLY}",
            ),
            "not_text_only",
        ),
        (
            thread(
                "咳嗽三天，检查结果如图，怎么办？",
                "看了你的片子，考虑肺炎，要住院治疗。",
            ),
            "not_text_only",
        ),
        (
            thread("咳嗽三天，怎么办？", "以上是语音回复。考虑肺炎，要住院治疗。"),
            "not_text_only",
        ),
        (thread("cough " + "!?*=" * 200), "non_alphanumeric"),
        (
            thread(
                "Tengo tos y fiebre desde hace tres días, ¿qué puedo tomar para la tos?"
            ),
            "language",
        ),
        (
            thread(ASK, "考虑病毒感染，多喝水，三天不退烧到医院看。"),
            "language",
        ),
        (
            thread(
                "Where can I park my car?",
                "Behind the house.",
                title="Parking",
                tags=(),
            ),
            "no_codebook_term",
        ),
        (
            thread(messages=(thread().messages[0], _with(REPLY, role="other"))),
            "no_verified_reply",
        ),
        (
            thread(messages=(thread().messages[0], _with(REPLY, role="physician"))),
            "no_verified_reply",
        ),
        (
            thread(ASK, "Hello, thanks for your query. Regards, take care."),
            "no_verified_reply",
        ),
        (
            thread("咳嗽三天怎么办？", "您好，谢谢您的咨询！祝早日康复"),
            "no_verified_reply",
        ),
        (
            thread("I hate all immigrants, they gave me a cough"),
            "unsafe_content",
        ),
        (
            thread("How do I make meth at home without a cough?"),
            "unsafe_content",
        ),
        (
            thread("怎么制作冰毒不会咳嗽？", "考虑病毒感染，多喝水。"),
            "unsafe_content",
        ),
        (
            thread(ASK + " My name is Anna Smith, DOB: 12/03/1980."),
            "reidentification_risk",
        ),
        (
            thread(ASK + " I live in Mumbai, call me on +91 98765 43210."),
            "reidentification_risk",
        ),
        (
            thread(
                "我叫王小明，电话13812345678，咳嗽怎么办？", "考虑病毒感染，多喝水。"
            ),
            "reidentification_risk",
        ),
    ],
)
def test_what_a_rule_keeps_out(subject: Thread, expected: FilterReason) -> None:
    assert reason(subject) is expected


@pytest.mark.parametrize(
    "ask",
    [
        "I took cough pills to kill the bacteria, and my mother has mental retardation. How to treat poison ivy?",
        "I feel suicidal and depressed, my doctor Dr. Smith gave me sertraline. What else can I do?",
        "My chest x-ray was normal and the picture is confusing: cough, no fever. What can it be?",
        "In March I had a cough, I am Indian, 24 years old, BP 120/80, WBC 5600. Is it serious?",
    ],
)
def test_what_no_rule_may_keep_out(ask: str) -> None:
    assert reason(thread(ask)) is None


def test_a_duplicate_names_what_it_repeats() -> None:
    result = CHAIN.judge(thread(), duplicate_of=Match("a:1", 0.91, False), now=NOW)
    assert first_failure(result) == FilterVerdict(
        "duplicate",
        False,
        "duplicate",
        {"of": "a:1", "kind": "near", "similarity": 0.91},
    )


def test_every_rule_is_evaluated_and_the_first_failure_decides() -> None:
    bad = thread(
        "Where can I park?", "ok", title="Parking", tags=("careers",), posted_at=None
    )
    result = CHAIN.judge(bad, duplicate_of=Match("a:1", 1.0, True), now=NOW)
    failed = [v.reason for v in result if not v.passed]
    assert len(result) == len(RULES)
    assert failed == [
        "posted_unknown",
        "not_clinical",
        "no_codebook_term",
        "duplicate",
        "no_verified_reply",
    ]
    rejected = first_failure(result)
    assert rejected is not None
    assert rejected.reason == "posted_unknown"


def test_evidence_of_a_risk_names_no_person() -> None:
    result = CHAIN.judge(
        thread(ASK + " My name is Anna Smith, DOB: 12/03/1980."),
        duplicate_of=None,
        now=NOW,
    )
    rejected = first_failure(result)
    assert rejected is not None
    told = json.dumps(dict(rejected.evidence))
    assert "Anna" not in told
    assert "1980" not in told
    assert rejected.evidence["found"] == "date of birth, name"


def test_the_digest_names_settings_and_codebook() -> None:
    other = FilterChain(FilterSettings(max_characters=150_000), CHAIN.codebook)
    assert (
        CHAIN.digest
        == FilterChain(FilterSettings(), CHAIN.codebook).digest
        != other.digest
    )


@given(
    st.text(st.characters(exclude_categories=()), max_size=200), st.text(max_size=100)
)
def test_no_text_breaks_the_chain_and_evidence_is_json(ask: str, reply: str) -> None:
    result = CHAIN.judge(thread(ask, reply), duplicate_of=None, now=NOW)
    json.dumps([dict(v.evidence) for v in result])
    assert all(v.passed is (v.reason is None) for v in result)


@pytest.mark.thorough
def test_real_threads_are_mostly_clinical() -> None:
    folder = Path(__file__).resolve().parents[4] / "shared" / "realdata" / "threads"
    if not folder.is_dir():
        pytest.skip("no real threads beside this checkout (shared/realdata)")
    from medlive.sources.files import ImportedThread, read_threads

    for name, least in (("icliniq.threads.jsonl", 0.9), ("haodf.threads.jsonl", 0.8)):
        read = read_threads(
            folder / name, assume_posted_at=NOW - timedelta(days=60), handle_key=b"k"
        )
        results = [
            CHAIN.judge(item.thread, duplicate_of=None, now=NOW)
            for item in read
            if isinstance(item, ImportedThread)
        ]
        assert sum(first_failure(r) is None for r in results) > least * len(results)
