"""Examination items and contempt for people do not pass, and a list or a parasite does."""

from datetime import UTC, datetime

import pytest

from medlive.filters.codebooks import load_codebook
from medlive.filters.model import FilterSettings
from medlive.filters.rules import FilterChain, first_failure
from medlive.threads.model import Message, Thread

NOW = datetime(2026, 11, 21, tzinfo=UTC)
CHAIN = FilterChain(FilterSettings(), load_codebook())


def reason(
    opening: str,
    reply: str = "Drink water and rest, and see a physician if the fever lasts.",
) -> str | None:
    thread = Thread(
        "sdn",
        "1",
        "",
        "A question",
        "en",
        (),
        datetime(2026, 10, 1, tzinfo=UTC),
        (
            Message("m0", "u_1", "patient", False, opening),
            Message("m1", "u_2", "physician", True, reply),
        ),
    )
    rejected = first_failure(CHAIN.judge(thread, duplicate_of=None, now=NOW))
    return rejected.reason if rejected else None


@pytest.mark.parametrize(
    "opening",
    [
        "From my question bank: a man has chest pain. Next step? A) aspirin B) heparin C) rest D) surgery. Why B?",
        "Shelf exam item on asthma:\nA. salbutamol\nB. theophylline\nC. oxygen\nD. none of these\nWhich one?",
        "求正确答案：男，60岁，胸痛两小时。A. 硝酸甘油 B. 手术 C. 观察 D. 抗生素。为什么选A？",
    ],
)
def test_an_exam_item_is_no_clinical_question(opening: str) -> None:
    assert reason(opening) == "not_clinical"


@pytest.mark.parametrize(
    "opening",
    [
        "I take vitamin A, B, C and D for fatigue, and I had an eye exam. Hepatitis A) and B) were negative.",
        "My hepatitis B and C tests are negative, vitamin D is low. Should I take it? My exam is on Friday.",
    ],
)
def test_letters_alone_are_no_exam_item(opening: str) -> None:
    assert reason(opening) is None


def test_contempt_for_people_is_unsafe_and_a_parasite_is_not() -> None:
    opening = "My patient with diabetes skipped dialysis twice, potassium 6.8. What can be done?"
    assert (
        reason(
            opening,
            "Those people over there are subhuman, let them go home. Give calcium.",
        )
        == "unsafe_content"
    )
    assert (
        reason(
            opening,
            "These people live with animals; treat the parasites with permethrin and repeat.",
        )
        is None
    )
