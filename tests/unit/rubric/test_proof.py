"""A rubric is proved by answers of known quality: what code decides, and what each engine can do wrong."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from medlive.curation.chain import ROLES
from medlive.curation.model import Outcome, Reason
from medlive.evaluation.grading.probes import grade_probe
from medlive.rubric.model import Axis, Criterion
from medlive.rubric.probe import probe_prompt
from medlive.rubric.proof import (
    Figures,
    GradedProbe,
    Probe,
    ProbeVerdict,
    ProofFault,
    examine,
)
from medlive.service.curation.complete import CompletedCase, complete_case
from tests.support.proving import (
    ASKS,
    DENIES,
    STATES,
    TRIVIAL,
    Inputs,
    answer,
    graded,
    measures,
    probed,
    rubric,
    ruled,
    script,
)
from tests.support.scripted import Scripted, run


async def complete(engine: Scripted) -> CompletedCase:
    curation = await run({}, engine=engine)
    roles = dict.fromkeys((*ROLES, "rubric", "prober", "grader"), engine)
    return await complete_case(curation, "en", roles, grade=grade_probe)


def asked(engine: Scripted, task: str) -> list[Any]:
    return [request for request in engine.requests if request.task == task]


def criterion(place: int, points: int) -> Criterion:
    return Criterion(
        id=f"c{place}",
        position=place,
        criterion=f"Criterion {place}.",
        axis=Axis.ACCURACY,
        points=points,
        advice_id="a1",
    )


def probes(met: Mapping[Probe, set[str]], ids: list[str]) -> list[GradedProbe]:
    return [
        GradedProbe(
            kind, "text", "", {i: ProbeVerdict(i in met.get(kind, set())) for i in ids}
        )
        for kind in Probe
    ]


# A hundred criteria of one point: the scores are hundredths, where floating point would err.
HUNDRED = [criterion(place, 1) for place in range(1, 101)]
IDS = [c.id for c in HUNDRED]


def scored(*points: int) -> list[GradedProbe]:
    """Short, long, vague and wrong with so many points."""
    pairs = zip(Probe, points, strict=True)
    return probes({kind: set(IDS[:number]) for kind, number in pairs}, IDS)


@pytest.mark.parametrize(
    ("points", "fault"),
    [
        ((60, 80, 0, 15), None),
        ((80, 95, 50, 0), None),
        ((60, 79, 0, 15), ProofFault.LONG_LOW),
        ((59, 80, 0, 15), ProofFault.SHORT_LOW),
        ((60, 80, 0, 16), ProofFault.WRONG_HIGH),
        ((80, 95, 51, 0), ProofFault.SEPARATION),
        ((100, 81, 52, 0), ProofFault.SEPARATION),
    ],
)
def test_each_bound_decides_exactly(
    points: tuple[int, int, int, int], fault: ProofFault | None
) -> None:
    examination = examine(HUNDRED, scored(*points))
    assert {f.fault for f in examination.failures} == ({fault} if fault else set())
    assert examination.passed is (fault is None)
    short, long, vague, wrong = points
    separation = (min(short, long) - max(vague, wrong)) / 100
    assert examination.figures == Figures(
        ceiling=long / 100, floor=max(vague, wrong) / 100, separation=separation
    )


def test_penalties_count_and_scores_keep_to_their_range() -> None:
    rewards = [criterion(1, 4), criterion(2, 6), criterion(3, -8)]
    met = {
        Probe.SHORT: {"c1", "c2"},
        Probe.LONG: {"c1", "c2", "c3"},
        Probe.WRONG: {"c3"},
    }
    scores = examine(rewards, probes(met, ["c1", "c2", "c3"])).scores
    assert [float(scores[kind]) for kind in Probe] == [1.0, 0.2, 0.0, 0.0]


def test_a_reviewer_is_asked_about_what_good_and_wrong_answers_speak_against() -> None:
    rows = [criterion(1, 4), criterion(2, 6), criterion(3, 2), criterion(4, -8)]
    met = {
        Probe.SHORT: {"c1", "c4"},
        Probe.LONG: {"c1", "c3", "c4"},
        Probe.VAGUE: {"c1"},
        Probe.WRONG: {"c1", "c4"},
    }
    doubts = examine(rows, probes(met, [c.id for c in rows])).doubts
    assert [(doubt.criterion, doubt.fault) for doubt in doubts] == [
        ("c1", ProofFault.REWARDS_WRONG),
        ("c2", ProofFault.MISSED),
        ("c4", ProofFault.PENALISES_GOOD),
    ]


def test_an_ungraded_criterion_is_no_verdict() -> None:
    graded_once = scored(80, 100, 0, 0)
    graded_once[0] = replace(graded_once[0], verdicts={})
    with pytest.raises(KeyError):
        examine(HUNDRED, graded_once)


async def test_a_rubric_that_measures_is_proved_with_its_figures() -> None:
    engine = Scripted(script())
    curation, made, proof = await complete(engine)
    assert curation.outcome is Outcome.KEPT
    assert proof is not None
    assert made is not None
    assert (proof.passed, proof.rounds) == (True, 0)
    assert (made.ceiling, made.floor, made.separation) == (1.0, 0.0, 1.0)
    assert len(asked(engine, "rubric.write")) == 1
    assert not asked(engine, "rubric.defend")
    assert {"prober", "grader"} <= curation.engines.keys()
    assert {"rubric.probe", "grader.rubric"} <= {call.task for call in curation.calls}


async def test_the_prober_sees_the_question_and_one_assignment() -> None:
    engine = Scripted(script())
    await complete(engine)
    requests = asked(engine, "rubric.probe")
    assert [request.inputs["probe"] for request in requests] == list(Probe)
    for request in requests:
        assert set(request.inputs) == {"language", "probe", "query", "narrative"}
        own = Probe(request.inputs["probe"])
        assert request.prompt == probe_prompt(own)
        for other in set(Probe) - {own}:
            assert other.value not in request.prompt.text


async def test_what_nobody_needs_is_dropped_and_costs_no_revision() -> None:
    engine = Scripted(script(rubric__write=rubric(STATES, ASKS, TRIVIAL, DENIES)))
    curation, made, proof = await complete(engine)
    assert curation.outcome is Outcome.KEPT
    assert made is not None
    assert [c.criterion for c in made.criteria] == [STATES[0], ASKS[0], DENIES[0]]
    assert [c.id for c in made.criteria] == ["c1", "c2", "c3"]
    assert made.ceiling == 1.0
    assert proof is not None
    (finding,) = proof.findings
    assert (finding.fault, finding.text) == (ProofFault.MISSED, TRIVIAL[0])
    assert finding.needed is False
    assert len(asked(engine, "rubric.write")) == 1
    assert asked(engine, "rubric.defend")[0].inputs["criteria"][0]["doubt"] == [
        "missed"
    ]


async def test_a_rubric_is_not_dropped_below_what_it_cannot_do_without() -> None:
    drafts = [rubric(TRIVIAL, DENIES), rubric(STATES, ASKS, DENIES)]
    engine = Scripted(script(rubric__write=drafts))
    _, made, proof = await complete(engine)
    assert proof is not None
    assert made is not None
    assert (proof.passed, proof.rounds) == (True, 1)
    _, second = asked(engine, "rubric.write")
    assert [c["criterion"] for c in second.inputs["earlier"]] == [TRIVIAL[0], DENIES[0]]
    assert "a reviewer: not needed: So it is." in json.dumps(second.inputs["findings"])


async def test_what_is_needed_goes_back_to_the_writer_with_the_reason() -> None:
    drafts = [rubric(STATES, TRIVIAL, DENIES), rubric(STATES, ASKS, DENIES)]
    engine = Scripted(script(rubric__write=drafts, rubric__defend=ruled(needed=True)))
    curation, made, proof = await complete(engine)
    assert curation.outcome is Outcome.KEPT
    assert proof is not None
    assert made is not None
    assert (proof.passed, proof.rounds, made.ceiling) == (True, 1, 1.0)
    first, second = asked(engine, "rubric.write")
    assert "findings" not in first.inputs
    words = json.dumps(second.inputs["findings"])
    assert "long_low" in words
    assert "needed by a1: So it is." in words
    assert "excellent_long misses c2" in words
    assert len(asked(engine, "rubric.probe")) == 4


async def test_a_ruling_needs_a_basis_that_the_case_has() -> None:
    def baseless(inputs: Inputs) -> dict[str, Any]:
        reply = ruled(needed=True)(inputs)
        reply["rulings"][0]["basis"] = "common sense"
        return reply

    engine = Scripted(
        script(rubric__write=rubric(STATES, TRIVIAL, DENIES), rubric__defend=baseless)
    )
    curation, made, proof = await complete(engine)
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)
    assert "common sense" in curation.detail
    assert (made, proof) == (None, None)


async def test_what_fails_after_two_revisions_is_held_with_its_answers() -> None:
    engine = Scripted(
        script(
            rubric__write=rubric(STATES, TRIVIAL, DENIES),
            rubric__defend=ruled(needed=True),
        )
    )
    curation, made, proof = await complete(engine)
    assert curation.outcome is Outcome.HELD
    assert [hold.reason for hold in curation.holds] == [Reason.RUBRIC_UNPROVEN]
    assert "excellent_long (0.50) is below 0.80" in curation.detail
    assert made is not None
    assert (made.ceiling, made.floor, made.separation) == (None, None, None)
    assert proof is not None
    assert (proof.passed, proof.rounds, proof.figures.ceiling) == (False, 2, 0.5)
    assert {probe.answer for probe in proof.probes} == {answer(kind) for kind in Probe}
    assert len(asked(engine, "rubric.write")) == 3
    # The same criterion is ruled on once.
    assert len(asked(engine, "rubric.defend")) == 1


async def test_a_grader_that_meets_all_is_named_and_no_revision_is_paid_for() -> None:
    engine = Scripted(script(grader__rubric=graded(lambda *_: True)))
    curation, _, proof = await complete(engine)
    assert curation.reason is Reason.RUBRIC_UNPROVEN
    assert "grader_meets_all" in curation.detail
    assert proof is not None
    assert proof.rounds == 0
    assert len(asked(engine, "rubric.write")) == 1


async def test_a_lax_rubric_is_the_rubrics_fault() -> None:
    everything = graded(lambda _, text: text != DENIES[0])
    engine = Scripted(
        script(grader__rubric=everything, rubric__defend=ruled(needed=True))
    )
    curation, _, proof = await complete(engine)
    assert curation.reason is Reason.RUBRIC_UNPROVEN
    assert proof is not None
    assert {f.fault for f in proof.last_failures} == {
        ProofFault.SEPARATION,
        ProofFault.WRONG_HIGH,
    }


async def test_an_ungraded_criterion_fails_the_thread() -> None:
    def forgets(inputs: Inputs) -> dict[str, Any]:
        return {"grades": graded(measures)(inputs)["grades"][1:]}

    curation, made, proof = await complete(Scripted(script(grader__rubric=forgets)))
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)
    assert "the reply does not grade it" in curation.detail
    assert (made, proof) == (None, None)


def says(text: str, probe: str = "excellent_short") -> Callable[[Inputs], Any]:
    """A prober that gives one assignment another answer."""
    return lambda inputs: (
        {**probed(inputs), "answer": text}
        if inputs["probe"] == probe
        else probed(inputs)
    )


PROBERS = {
    "refuses in plain words": (
        lambda _: "I cannot provide medical advice.",
        Reason.REFUSED,
        "refused",
    ),
    "refuses in an answer": (
        says("I can't help with that. " + answer("excellent_short")),
        Reason.INVALID_REPLY,
        "declines",
    ),
    "praises": (
        says("Great question! " + answer("excellent_short")),
        Reason.INVALID_REPLY,
        "'great question'",
    ),
    "speaks of its assignment": (
        says("Here is a wrong answer. " + answer("wrong"), "wrong"),
        Reason.INVALID_REPLY,
        "'wrong answer'",
    ),
    "writes the rubric's words": (
        says(f"{STATES[0]} {ASKS[0]} " + answer("excellent_short")),
        Reason.INVALID_REPLY,
        "list of criteria",
    ),
    "gives one answer four times": (
        lambda inputs: {**probed(inputs), "answer": answer("excellent_long")[:900]},
        Reason.INVALID_REPLY,
        "83 words, expected 180 to 450",
    ),
    "gives good and vague one answer": (
        says(answer("excellent_short"), "vague"),
        Reason.INVALID_REPLY,
        "given for another assignment",
    ),
    "names no mistake": (
        lambda inputs: {**probed(inputs), "mistake": ""},
        Reason.INVALID_REPLY,
        "does not say what is wrong",
    ),
    "writes in another language": (
        says("请停药。" * 40),
        Reason.INVALID_REPLY,
        "not in the language",
    ),
}


@pytest.mark.parametrize("name", PROBERS)
async def test_a_prober_that_does_otherwise_fails_the_thread_by_name(name: str) -> None:
    reply, reason, words = PROBERS[name]
    engine = Scripted(script(rubric__probe=reply))
    curation, made, proof = await complete(engine)
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, reason)
    assert words in curation.detail
    assert (made, proof) == (None, None)
    assert not asked(engine, "grader.rubric")
