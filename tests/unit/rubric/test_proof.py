"""A rubric is proved by answers of known quality: what code decides, and what each engine can do wrong."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from medlive.curation.agent import Agent
from medlive.curation.chain import ROLES
from medlive.curation.model import Outcome, Reason, Side
from medlive.harm.model import (
    Check,
    HarmFinding,
    HarmKind,
    HarmReading,
    JudgedHarm,
    Offended,
    Severity,
)
from medlive.llm.engine import EngineIdentity, Reply, Request
from medlive.llm.rules.engine import RulesEngine
from medlive.rubric.model import Axis, Conflict, Criterion, Origin
from medlive.rubric.probe import probe_prompt
from medlive.rubric.proof import (
    MISTAKEN,
    Figures,
    GradedProbe,
    Probe,
    ProbeVerdict,
    ProofFault,
    examine,
)
from medlive.rubric.write import Drafting
from medlive.service.curation.complete import CompletedCase, complete_case
from tests.support.proving import (
    ASKS,
    DENIES,
    NOTES,
    STATES,
    TRIVIAL,
    Inputs,
    answer,
    graded,
    graded_all,
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
    return await complete_case(curation, "en", roles)


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


def scored(**points: int) -> list[GradedProbe]:
    """The answers with so many points: 60 short, 80 long, 60 ordinary, 0 else."""
    usual = dict.fromkeys(Probe, 0) | {
        Probe.SHORT: 60,
        Probe.LONG: 80,
        Probe.ORDINARY: 60,
    }
    for name, number in points.items():
        usual[Probe[name.upper()]] = number
    return probes({kind: set(IDS[:number]) for kind, number in usual.items()}, IDS)


BOUNDS: list[tuple[dict[str, int], ProofFault | None]] = [
    ({}, None),
    ({"vague": 15, "wrong": 15}, None),
    ({"long": 79, "ordinary": 40}, "long_low"),
    ({"short": 59}, "short_low"),
    ({"ordinary": 61}, "ordinary_high"),
    ({"ordinary": 20}, None),
    ({"ordinary": 19}, "ordinary_low"),
    ({"vague": 16}, "vague_high"),
    ({"wrong": 16}, "wrong_high"),
    ({"short": 100, "long": 81}, None),
]


@pytest.mark.parametrize(("points", "fault"), BOUNDS)
def test_each_bound_decides_exactly(
    points: dict[str, int], fault: ProofFault | None
) -> None:
    examination = examine(HUNDRED, scored(**points))
    assert {f.fault for f in examination.failures} == ({fault} if fault else set())
    assert examination.passed is (fault is None)


def test_the_figures_are_of_the_answers_that_name_them() -> None:
    figures = examine(HUNDRED, scored(vague=5, wrong=15, ordinary=31)).figures
    assert figures == Figures(ceiling=0.8, floor=0.15, separation=0.45, ordinary=0.31)


HARMS = {Severity.SEVERE: 0.0, Severity.MODERATE: 0.5, None: 0.8}


@pytest.mark.parametrize("worst", HARMS)
def test_a_slip_is_measured_by_what_its_harm_leaves(worst: Severity | None) -> None:
    answers = []
    for probe in scored(slip=80):
        harm = harmful(worst if probe.probe is Probe.SLIP else None)
        answers.append(replace(probe, harm=harm))
    slip = answers[list(Probe).index(Probe.SLIP)]
    assert float(slip.safe(HUNDRED)) == HARMS[worst]
    faults = {failure.fault for failure in examine(HUNDRED, answers).failures}
    assert faults == ({"slip_high"} if worst is None else set())


@pytest.mark.parametrize(("slip", "passes"), [(64, True), (65, True), (66, False)])
def test_a_slip_exactly_a_fifth_below_is_enough(slip: int, passes: bool) -> None:
    """0.85 as a float is less than 85 hundredths."""
    answers = [
        replace(p, harm=harmful(None)) for p in scored(long=85, short=70, slip=slip)
    ]
    assert examine(HUNDRED, answers).passed is passes


def test_a_slip_that_nobody_read_for_harm_proves_nothing() -> None:
    assert examine(HUNDRED, scored(slip=80)).passed


def harmful(worst: Severity | None) -> HarmReading:
    """A reading that confirms one harm, or none."""
    if worst is None:
        return HarmReading()
    finding = HarmFinding(
        quote="q",
        kind=HarmKind.DRUG,
        severity=worst,
        offended=Offended.STANDARD,
        basis="b",
        reason="r",
    )
    check = Check(ruling="confirmed", severity=worst, reason="r")
    harm = JudgedHarm(finding=finding, check=check)
    return HarmReading(harms=(harm,))


def test_penalties_count_and_scores_keep_to_their_range() -> None:
    rewards = [criterion(1, 4), criterion(2, 6), criterion(3, -8)]
    met = {
        Probe.SHORT: {"c1", "c2"},
        Probe.LONG: {"c1", "c2", "c3"},
        Probe.WRONG: {"c3"},
    }
    scores = examine(rewards, probes(met, ["c1", "c2", "c3"])).scores
    assert {k: float(v) for k, v in scores.items() if v} == {
        Probe.SHORT: 1.0,
        Probe.LONG: 0.2,
    }


def test_a_reviewer_is_asked_about_what_good_and_wrong_answers_speak_against() -> None:
    points = (4, 6, 2, -8, -7)
    rows = [criterion(place, each) for place, each in enumerate(points, start=1)]
    met = {
        Probe.SHORT: {"c1", "c4"},
        Probe.LONG: {"c1", "c3", "c4"},
        Probe.VAGUE: {"c1"},
        Probe.WRONG: {"c1", "c4"},
    }
    doubts = examine(rows, probes(met, [c.id for c in rows])).doubts
    assert [(doubt.criterion, doubt.fault) for doubt in doubts] == [
        ("c1", "rewards_wrong"),
        ("c2", "missed"),
        ("c4", "penalises_good"),
        ("c5", "idle"),
    ]


def test_a_wrong_answer_may_answer_what_was_asked() -> None:
    rows = [replace(criterion(1, 7), asked="q1")]
    doubts = examine(rows, probes({kind: {"c1"} for kind in Probe}, ["c1"])).doubts
    assert doubts == ()


def test_an_ungraded_criterion_is_no_verdict() -> None:
    graded_once = scored()
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
    assert made.ordinary == round(7 / 12, 4)
    assert len(asked(engine, "rubric.write")) == 1
    assert not asked(engine, "rubric.defend")
    assert {"prober", "grader"} <= curation.engines.keys()
    assert {"rubric.probe", "grader.answers"} <= {call.task for call in curation.calls}


async def test_the_prober_sees_the_question_and_one_assignment() -> None:
    engine = Scripted(script())
    await complete(engine)
    requests = asked(engine, "rubric.probe")
    assert [request.inputs["probe"] for request in requests] == list(Probe)
    for request in requests:
        assert set(request.inputs) == {"language", "probe", "query", "narrative"}
        own = Probe(request.inputs["probe"])
        assert request.prompt == probe_prompt(own, "en")
        assert request.prompt.text.count("## Assignment") == 1
        examples = re.findall('"probe":"([a-z_]+)"', request.prompt.text)
        assert examples == [own.value] or own is Probe.LONG


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
    left_out = [(f.criterion, f.step, f.why) for f in made.omitted]
    assert left_out == [(TRIVIAL[0], "proof", "proof: dropped: missed: So it is.")]
    assert (finding.fault, finding.text) == ("missed", TRIVIAL[0])
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
    assert len(asked(engine, "rubric.probe")) == len(Probe)


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


NARROW = ("Denies that lisinopril is a tablet.", -9)
EASY = ("Mentions a tablet.", 6)


def with_narrow(kind: Probe, criterion: str) -> bool:
    """Nobody commits the narrow error, and whoever answers mentions a tablet."""
    return criterion != NARROW[0] and measures(kind, criterion)


async def test_a_penalty_that_nobody_commits_goes_and_its_slip_is_shown_to_the_writer() -> (
    None
):
    drafts = [rubric(STATES, ASKS, NARROW), rubric(STATES, ASKS, DENIES)]
    engine = Scripted(
        script(rubric__write=drafts, grader__answers=graded_all(with_narrow))
    )
    _, made, proof = await complete(engine)
    assert made is not None
    assert proof is not None
    assert (proof.passed, proof.rounds) == (True, 1)
    (ruling,) = asked(engine, "rubric.defend")
    (shown,) = ruling.inputs["criteria"]
    assert (shown["doubt"], shown["likely"]) == (["idle"], NOTES["slip"])
    _, second = asked(engine, "rubric.write")
    (slip,) = second.inputs["answers"]
    assert slip == {
        "probe": "slip",
        "answer": answer("slip"),
        "note": NOTES["slip"],
        "meets": ["c1", "c2"],
    }
    gone = {"point": "Lisinopril can cause a dry cough."}
    assert gone.items() <= second.inputs["left_out"][0].items()
    assert DENIES[0] in [c.criterion for c in made.criteria]


async def test_the_writer_sees_an_ordinary_answer_that_scores_too_high_and_its_lack() -> (
    None
):
    def easy(kind: Probe, criterion: str) -> bool:
        is_ordinary = kind is Probe.ORDINARY and criterion == EASY[0]
        return is_ordinary or measures(kind, criterion)

    drafts = [rubric(STATES, EASY, DENIES), rubric(STATES, ASKS, DENIES)]
    engine = Scripted(script(rubric__write=drafts, grader__answers=graded_all(easy)))
    _, made, proof = await complete(engine)
    assert made is not None
    assert proof is not None
    assert (proof.passed, proof.rounds) == (True, 1)
    _, second = asked(engine, "rubric.write")
    (ordinary,) = second.inputs["answers"]
    assert (ordinary["probe"], ordinary["note"]) == ("ordinary", NOTES["ordinary"])
    # What stays is not graded again.
    _, again = asked(engine, "grader.answers")
    assert [c["criterion"] for c in again.inputs["criteria"]] == [ASKS[0]]


async def test_penalties_are_drawn_from_the_mistakes_of_two_models() -> None:
    class Other(Scripted):
        @property
        def identity(self) -> EngineIdentity:
            return EngineIdentity("openai", "other")

        async def answer(self, request: Request) -> Reply:
            return replace(await super().answer(request), model="other")

    engine, writer = Scripted(script()), Other(script())
    curation = await run({}, engine=engine)
    roles = dict.fromkeys((*ROLES, "prober", "grader"), engine)
    await complete_case(curation, "en", roles | {"rubric": writer})
    assert [r.inputs["probe"] for r in asked(writer, "rubric.probe")] == list(MISTAKEN)
    (request,) = asked(writer, "rubric.write")
    errors = [error["error"] for error in request.inputs["errors"]]
    assert errors == [NOTES["slip"], NOTES["wrong"]] * 2


async def test_rules_as_the_reader_judge_nothing_and_end_nothing() -> None:
    def harm(inputs: Inputs) -> Any:
        finding = {
            "quote": inputs["answer"].split(".")[0][:40],
            "reason": "It could hurt the patient.",
            "offended": "standard",
            "basis": "Common practice",
            "kind": "drug_or_dose",
            "severity": "severe",
        }
        reading = "Following it would harm him."
        return {"reading": reading, "findings": [finding], "conclusion": "harmful"}

    engine = Scripted(
        script(
            rubric__write=rubric(STATES, ASKS, TRIVIAL, DENIES),
            grader__harm=harm,
        )
    )
    roles = dict.fromkeys((*ROLES, "rubric", "prober", "grader"), engine)
    curation = await run({}, engine=Scripted(script()))
    rules = RulesEngine()
    done, made, proof = await complete_case(curation, "en", {**roles, "reader": rules})
    assert made is not None
    assert proof is not None
    assert done.outcome in (Outcome.KEPT, Outcome.HELD)
    ruled_on = [finding for finding in proof.findings if finding.needed is not None]
    assert [(f.needed, f.basis) for f in ruled_on] == [(True, "a1")] * len(ruled_on)
    slip = next(probe for probe in proof.probes if probe.probe is Probe.SLIP)
    assert slip.harm
    assert len(slip.harm.harms) == len(slip.harm.unconfirmed) == 1


async def test_a_part_of_the_question_that_nothing_answers_holds_the_case() -> None:
    draft = rubric(STATES, ASKS, DENIES)
    draft["asked"].append({"id": "q2", "text": "Is it dangerous?"})
    curation, _, _ = await complete(Scripted(script(rubric__write=draft)))
    assert [hold.reason for hold in curation.holds] == [Reason.RUBRIC_FAULTY]
    assert "no criterion answers q2 directly: Is it dangerous?" in curation.detail


async def test_what_was_asked_stays_though_the_reviewer_finds_it_minor() -> None:
    problems = [{"criterion_id": "c1", "fault": "minor", "detail": "All say so."}]
    light = (STATES[0], 3)
    engine = Scripted(
        script(
            rubric__write=rubric(light, ASKS, DENIES),
            reader__rubric={"problems": problems, "life_critical": []},
        )
    )
    _, made, _ = await complete(engine)
    assert made is not None
    first = made.criteria[0]
    assert (first.criterion, first.points, first.tier) == (
        STATES[0],
        7,
        "decisive",
    )


async def test_a_criterion_against_the_advice_holds_the_case_with_both_sentences() -> (
    None
):
    conflict = {"criterion_id": "c2", "other": "a1", "detail": "One asks, one states."}
    review = {"problems": [], "life_critical": [], "conflicts": [conflict]}
    curation, made, _ = await complete(Scripted(script(reader__rubric=review)))
    assert made is not None
    assert [hold.reason for hold in curation.holds] == [Reason.ADVICE_CONTRADICTED]
    advice = curation.side(Side.ADVICE)[0].statement
    assert f"“{ASKS[0]}” against a1 “{advice}”: One asks" in curation.detail


async def test_a_revision_keeps_what_completion_found_against_the_advice() -> None:
    engine = Scripted(script())
    curation = await run({}, engine=engine)
    assert curation.text is not None
    writer, reader = (Agent(engine, [], "en") for _ in range(2))
    advice = curation.side(Side.ADVICE)
    drafting = Drafting(curation.text, advice, writer, reader, ["It is denied."])
    made = await drafting.write()
    forbids = Criterion(
        "c4",
        4,
        "Advises to keep the tablet.",
        Axis.SAFETY,
        7,
        None,
        "Keep it.",
        Origin.EVIDENCE,
        "demo:1:0",
    )
    conflict = Conflict(forbids.criterion, advice[0].statement, "Both.", "a1")
    completed = replace(made, criteria=(*made.criteria, forbids), conflicts=(conflict,))
    revised = await drafting.write(completed, [], [])
    assert forbids.criterion in [c.criterion for c in revised.criteria]
    assert revised.conflicts == (conflict,)


async def test_a_grader_that_meets_all_is_named_and_no_revision_is_paid_for() -> None:
    engine = Scripted(script(grader__answers=graded_all(lambda *_: True)))
    curation, _, proof = await complete(engine)
    assert curation.reason is Reason.RUBRIC_UNPROVEN
    assert "grader_meets_all" in curation.detail
    assert proof is not None
    assert proof.rounds == 0
    assert len(asked(engine, "rubric.write")) == 1


async def test_a_lax_rubric_is_the_rubrics_fault() -> None:
    everything = graded_all(lambda _, text: text != DENIES[0])
    engine = Scripted(
        script(grader__answers=everything, rubric__defend=ruled(needed=True))
    )
    curation, _, proof = await complete(engine)
    assert curation.reason is Reason.RUBRIC_UNPROVEN
    assert proof is not None
    assert {f.fault for f in proof.last_failures} == {
        "ordinary_high",
        "ordinary_low",
        "slip_high",
        "vague_high",
        "wrong_high",
    }


def forgetting(inputs: Inputs) -> dict[str, Any]:
    """All grades but the first of the last answer."""
    reply = graded_all(measures)(inputs)
    *others, last = reply["answers"]
    return {"answers": [*others, {**last, "grades": last["grades"][1:]}]}


async def test_an_ungraded_criterion_fails_the_thread() -> None:
    def forgets(inputs: Inputs) -> dict[str, Any]:
        return {"grades": graded(measures)(inputs)["grades"][1:]}

    engine = Scripted(script(grader__answers=forgetting, grader__rubric=forgets))
    curation, made, proof = await complete(engine)
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)
    assert "the reply does not grade it" in curation.detail
    assert (made, proof) == (None, None)


@pytest.mark.parametrize(
    ("together", "alone"),
    [
        (forgetting, 1),
        pytest.param({"answers": []}, len(Probe), marks=pytest.mark.thorough),
        pytest.param(
            {"answers": [{"id": ["r1"], "grades": []}]},
            len(Probe),
            marks=pytest.mark.thorough,
        ),
        ("no JSON", len(Probe)),
    ],
)
async def test_what_one_call_leaves_open_is_graded_answer_by_answer(
    together: Any, alone: int
) -> None:
    engine = Scripted(script(grader__answers=together, grader__rubric=graded(measures)))
    _, _, proof = await complete(engine)
    assert proof is not None
    assert proof.passed
    singly = asked(engine, "grader.rubric")
    assert len(singly) == alone
    if alone == 1:
        assert [len(request.inputs["criteria"]) for request in singly] == [1]


async def test_the_order_of_answers_says_nothing_of_their_quality() -> None:
    engine = Scripted(script())
    await complete(engine)
    (request,) = asked(engine, "grader.answers")
    shown = [item["answer"] for item in request.inputs["answers"]]
    assert len(shown) == len(Probe)
    assert shown != [answer(kind) for kind in Probe]
    assert [item["id"] for item in request.inputs["answers"]] == [
        f"r{number}" for number in range(1, len(Probe) + 1)
    ]


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
    "gives one answer to all": (
        lambda inputs: {**probed(inputs), "answer": answer("excellent_long")[:900]},
        Reason.INVALID_REPLY,
        "83 words, expected 180 to 450",
    ),
    "gives good and vague one answer": (
        says(answer("excellent_short"), "vague"),
        Reason.INVALID_REPLY,
        "given for another assignment",
    ),
    "names no lack and no mistake": (
        lambda inputs: {**probed(inputs), "note": ""},
        Reason.INVALID_REPLY,
        "does not say what the answer lacks",
    ),
    "writes in another language": (
        says("请停药。" * 40),
        Reason.INVALID_REPLY,
        "not in the language",
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("name", PROBERS)
async def test_a_prober_that_does_otherwise_fails_the_thread_by_name(name: str) -> None:
    reply, reason, words = PROBERS[name]
    engine = Scripted(script(rubric__probe=reply))
    curation, made, proof = await complete(engine)
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, reason)
    assert words in curation.detail
    assert (made, proof) == (None, None)
    assert not asked(engine, "grader.answers")
