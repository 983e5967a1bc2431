"""The linter finds each fault that is certain, and suspects; the engine's word decides the rest."""

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.curation.agent import Agent
from medlive.curation.model import CaseText, Element, Side
from medlive.llm.replay import ReplayEngine
from medlive.rubric.lint import (
    MOST_WRITTEN,
    Fault,
    Finding,
    find_faulty,
    lint,
    suspicions,
)
from medlive.rubric.model import SPECIALTIES, Axis, Criterion, Rubric, numbered
from medlive.rubric.write import Drafting
from tests.support.scripted import Memory, Scripted

ADVICE = {
    "a1": "Lisinopril can cause a dry cough.",
    "a2": "Ask for losartan 50 mg. 建议氯沙坦50毫克。",
}
CASE = "A man aged 34 takes lisinopril 10 mg. He should ask for losartan 50 mg."


def criterion(
    text: str,
    points: int = 5,
    axis: Axis = Axis.ACCURACY,
    number: int = 1,
    advice: str = "a1",
) -> Criterion:
    return Criterion(f"c{number}", number, text, axis, points, advice)


def without_faulty(
    criteria: Sequence[Criterion], findings: Sequence[Finding]
) -> tuple[Criterion, ...]:
    """The criteria that stay."""
    faulty = find_faulty(criteria, findings)
    return numbered([c for c in criteria if c.id not in faulty])


def faults(
    language: str, *criteria: Criterion, no_negative: str = ""
) -> set[tuple[Fault, str | None]]:
    return {
        (f.fault, f.criterion)
        for f in lint(language, criteria, ADVICE, CASE, no_negative=no_negative)
    }


GOOD_EN = (
    criterion("States that lisinopril can cause a dry cough."),
    criterion("Recommends asking for a change to losartan 50 mg.", number=2),
    criterion("Recommends doubling lisinopril to 20 mg.", -7, Axis.SAFETY, 3),
)
GOOD_ZH = (
    criterion("指出长期服用华法林的患者需要定期复查凝血功能。"),
    criterion("建议清淡饮食。", number=2),
    criterion("建议自行停药。", -5, number=3),
)


@pytest.mark.parametrize(("language", "rubric"), [("en", GOOD_EN), ("zh", GOOD_ZH)])
def test_a_good_rubric_has_no_fault(
    language: str, rubric: tuple[Criterion, ...]
) -> None:
    assert faults(language, *rubric) == set()


ONE_FAULT = [
    ("en", criterion("Gives the reason for the cough.", 0), "zero_points"),
    ("zh", criterion("Recommends rest."), "language"),
    ("en", criterion("建议多休息。"), "language"),
    ("en", criterion("Recommends a rest cure.", advice="a9"), "unknown_advice"),
    ("en", criterion("Recommends losartan 100 mg.", advice="a2"), "numbers"),
]


@pytest.mark.parametrize(("language", "bad", "fault"), ONE_FAULT)
def test_each_fault_is_found_alone_and_dropped(
    language: str, bad: Criterion, fault: Fault
) -> None:
    good = GOOD_EN if language == "en" else GOOD_ZH
    rubric = (
        *good,
        Criterion("c9", 9, bad.criterion, bad.axis, bad.points, bad.advice_id),
    )
    assert faults(language, *rubric) == {(fault, "c9")}
    kept = without_faulty(rubric, lint(language, rubric, ADVICE, CASE))
    assert [c.criterion for c in kept] == [c.criterion for c in good]


LET_THROUGH = [
    criterion("Advises against breast feeding.", -8, number=4),
    criterion("Recommends antibiotics at once.", -8, number=4),
    criterion("Asks whether the patient is pregnant.", number=4),
    criterion(
        "Explains in plain words why no scan is needed.",
        3,
        Axis.COMMUNICATION_QUALITY,
        4,
    ),
    criterion("Advises seeing the doctor if the cough lasts.", number=4),
    criterion("Recommends measuring blood sugar and blood lipids.", number=4),
    criterion("States that it is a type I allergy of grade I.", number=4),
]


@pytest.mark.parametrize("fine", LET_THROUGH)
def test_what_the_method_wants_is_let_through(fine: Criterion) -> None:
    assert faults("en", *GOOD_EN, fine) == set()


def test_too_few_too_many_nothing_to_earn_and_nothing_to_lose() -> None:
    assert faults("en", GOOD_EN[0], no_negative="no harm is possible") == {
        ("too_few", None)
    }
    assert faults("en") == {
        ("too_few", None),
        ("no_positive", None),
        ("no_negative", None),
    }
    assert faults("en", *GOOD_EN[:2]) == {("no_negative", None)}
    only_bad = [
        criterion(f"Recommends remedy {w}.", -3, number=i)
        for i, w in enumerate(("alpha", "beta"), 1)
    ]
    assert faults("en", *only_bad) == {("no_positive", None)}
    many = [
        criterion(f"Says {chr(97 + i) * 5}.", -1 if i == 0 else 1 + i % 9, number=i + 1)
        for i in range(22)
    ]
    assert faults("en", *many) == {("too_many", None)}
    kept = without_faulty(many, ())
    assert len(kept) == MOST_WRITTEN


SUSPECT = [
    "Agrees with what the doctor said about rest.",
    "Advises to keep your leg raised.",
    "States that rest helps and recommends a chest X-ray.",
    "建议多休息，并且建议复查胸片。",
    "Fails to mention losartan.",
    "States that lisinopril can cause dry cough.",
]


def test_a_penalty_that_is_only_minor_stays_where_it_is_the_last() -> None:
    minor = Finding("minor", "c3", "few answers commit it")
    assert [c.points for c in without_faulty(GOOD_EN, [minor])] == [5, 5, -7]
    false = Finding("false", "c3", "it is no error")
    assert [c.points for c in without_faulty(GOOD_EN, [minor, false])] == [5, 5]
    another = criterion("Recommends stopping all medicines at once.", -8, number=4)
    assert [c.points for c in without_faulty((*GOOD_EN, another), [minor])] == [
        5,
        5,
        -8,
    ]


@pytest.mark.parametrize("text", SUSPECT)
def test_a_suspicion_is_voiced_and_is_no_fault(text: str) -> None:
    odd = criterion(text, number=4)
    assert any(s.startswith("c4: ") for s in suspicions((*GOOD_EN, odd)))
    assert not any(
        f.criterion == "c4"
        for f in lint("en" if text.isascii() else "zh", [odd], ADVICE, CASE)
    )


criteria = st.builds(
    Criterion,
    id=st.just("c"),
    position=st.just(0),
    criterion=st.text(min_size=1, max_size=80),
    axis=st.sampled_from(Axis),
    points=st.integers(-10, 10),
    advice_id=st.sampled_from(["a1", "a2", "a3"]),
)


@settings(max_examples=10)
@given(st.sampled_from(["en", "zh"]), st.lists(criteria, max_size=30))
def test_dropping_leaves_only_faults_of_the_whole(
    language: str, drawn: list[Criterion]
) -> None:
    numbered = [
        Criterion(f"c{i}", i, c.criterion, c.axis, c.points, c.advice_id)
        for i, c in enumerate(drawn, 1)
    ]
    kept = without_faulty(numbered, lint(language, numbered, ADVICE, CASE))
    assert {f.criterion for f in lint(language, kept, ADVICE, CASE)} <= {None}
    assert [c.id for c in kept] == [f"c{i}" for i in range(1, len(kept) + 1)]
    assert {c.criterion for c in kept} <= {c.criterion for c in numbered}


def test_the_specialties_are_the_papers_thirty_eight() -> None:
    assert len(SPECIALTIES) == len(set(SPECIALTIES)) == 38


def test_the_prompts_name_every_axis() -> None:
    named = (files("medlive.rubric") / "prompts" / "axes.md").read_text("utf-8")
    assert re.findall(r'"([^"]+)"', named) == list(Axis)


TEXT = CaseText(
    "A man aged 34 takes lisinopril 10 mg.",
    "Why does he cough?",
    "Lisinopril can cause a dry cough.",
)
ELEMENTS = (
    Element("a1", Side.ADVICE, "assessment", "m1", "it can cause cough", ADVICE["a1"]),
)


def draft(*criteria: tuple[str, int], no_negative: str = "") -> dict[str, Any]:
    return {
        "asked": [{"id": "q1", "text": "Why?"}],
        "theme": "Response Depth",
        "specialty": "unknown",
        "facts": [{"id": "f1", "fact": ADVICE["a1"], "advice_id": "a1"}],
        "criteria": [
            {
                "criterion": c,
                "axis": "Accuracy",
                "points": p,
                "fact_id": "f1",
                "asked": "q1" if p > 0 and place == 0 else "",
                "likely": "Many do." if p < 0 else "",
            }
            for place, (c, p) in enumerate(criteria)
        ],
        "no_negative": no_negative,
    }


async def written(
    write: Any, review: Any
) -> tuple[Rubric, tuple[Finding, ...], Scripted]:
    engine = Scripted({"rubric.write": write, "reader.rubric": review})
    agent = Agent(ReplayEngine(engine, Memory()), [], "en")
    drafting = Drafting(TEXT, ELEMENTS, agent, agent)
    rubric = await drafting.write()
    return rubric, drafting.lint(rubric), engine


FINE = draft(
    ("States that lisinopril can cause a dry cough.", 7),
    ("Names lisinopril.", 4),
    ("Denies it.", -5),
)
NO_PROBLEM: dict[str, Any] = {"problems": [], "life_critical": []}


def objecting(fault: str, *criteria: str) -> Any:
    """A reviewer who objects to these criteria."""
    return lambda inputs: {
        "problems": [
            {"criterion_id": c["id"], "fault": fault, "detail": "r"}
            for c in inputs["criteria"]
            if c["criterion"] in criteria
        ],
        "life_critical": [],
    }


async def test_the_reviewers_word_decides_what_is_a_duplicate() -> None:
    rubric, faults, engine = await written(
        FINE, objecting("duplicate", "Names lisinopril.")
    )
    assert [c.criterion for c in rubric.criteria] == [
        FINE["criteria"][0]["criterion"],
        "Denies it.",
    ]
    assert faults == ()
    assert [r.task for r in engine.requests] == [
        "rubric.write",
        "reader.rubric",
    ]  # nothing is lost by dropping it


async def test_two_parts_of_the_query_have_two_ids() -> None:
    twice = {**FINE, "asked": FINE["asked"] * 2}
    rubric, faults, engine = await written([twice, FINE], NO_PROBLEM)
    assert [part.id for part in rubric.asked] == ["q1"]
    assert faults == ()
    repairs = [r.repair for r in engine.requests if r.task == "rubric.write"]
    assert [repair and repair[1] for repair in repairs] == [
        None,
        "two parts of the query have one id",
    ]


async def test_a_rubric_that_would_lose_an_advice_goes_back_once() -> None:
    praising = [c["criterion"] for c in FINE["criteria"] if c["points"] > 0]
    _, faults, engine = await written(FINE, objecting("not_standalone", *praising))
    _, second = [r.inputs for r in engine.requests if r.task == "rubric.write"]
    assert second["findings"] == [
        {"criterion": i, "finding": "not_standalone: r"} for i in ("c1", "c2")
    ]
    assert [c["id"] for c in second["earlier"]] == ["c1", "c2", "c3"]
    assert {f.fault for f in faults} == {
        "too_few",
        "no_positive",
        "unanswered",
    }


async def test_ten_points_stand_where_a_life_is_at_stake_and_nowhere_else() -> None:
    heavy = draft(
        ("Calls an ambulance.", 6), ("Recommends rest.", 10), ("Advises waiting.", -7)
    )
    rubric, _, _ = await written(heavy, {"problems": [], "life_critical": ["c1", "c3"]})
    assert [c.points for c in rubric.criteria] == [10, 9, -10]


async def test_a_rubric_without_a_penalty_goes_back_once_and_says_why_or_is_held() -> (
    None
):
    bare = draft(("Says this.", 7), ("Says that.", 4))
    _, faults, engine = await written(bare, NO_PROBLEM)
    assert [f.fault for f in faults] == ["no_negative"]
    assert sum(r.task == "rubric.write" for r in engine.requests) == 2
    why = draft(
        ("Says this.", 7), ("Says that.", 4), no_negative="No answer could harm."
    )
    rubric, faults, _ = await written([bare, why], NO_PROBLEM)
    assert (faults, rubric.no_negative) == ((), "No answer could harm.")
