"""What the advice lacks: kept only where a passage or a second model bears it out, and every point is recorded."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from medlive.curation.chain import ROLES
from medlive.curation.model import Outcome
from medlive.curation.validator import Library
from medlive.llm.engine import EngineIdentity, Reply, Request
from medlive.llm.replay import ReplayEngine
from medlive.rubric.lint import MOST_WRITTEN
from medlive.rubric.model import Omission, Origin, PointOutcome, Rubric
from medlive.service.curation.complete import complete_case
from tests.support.scripted import (
    KIND,
    PASSAGE,
    Memory,
    OnePassage,
    Scripted,
    honest,
    judged,
    run,
)

QUOTE = "Changing to losartan is recommended"
NO_PROBLEM: dict[str, Any] = {"problems": [], "life_critical": []}


class Named(Scripted):
    """A scripted engine of a model of its own."""

    def __init__(self, script: dict[str, Any], model: str) -> None:
        super().__init__(script)
        self.model = model

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity("openai", self.model)

    async def answer(self, request: Request) -> Reply:
        return replace(await super().answer(request), model=self.model)


def point(text: str, points: int = 8) -> dict[str, Any]:
    return {
        "point": text,
        "kind": "plan",
        "criterion": f"Says: {text}",
        "axis": "Safety",
        "points": points,
    }


def rubric_of(*criteria: tuple[str, int]) -> dict[str, Any]:
    return {
        "asked": [{"id": "q1", "text": "What could cause it?"}],
        "theme": "Response Depth",
        "specialty": "unknown",
        "no_negative": "",
        "facts": [{"id": "f1", "fact": "It can cause a cough.", "advice_id": "a1"}],
        "criteria": [
            {
                "criterion": c,
                "axis": "Accuracy",
                "points": p,
                "fact_id": "f1",
                "asked": "q1" if place == 0 else "",
                "likely": "Many do." if p < 0 else "",
            }
            for place, (c, p) in enumerate(criteria)
        ],
        "left_out": [
            {"fact": "Drink tea.", "advice_id": "a2", "reason": "not_asked"},
        ],
    }


SMALL = rubric_of(("Names lisinopril.", 7), ("Denies it.", -5))


async def completed(
    *named: dict[str, Any],
    others: tuple[dict[str, Any], ...] = (),
    verdict: Any = None,
    matches: dict[str, str] | None = None,
    review: Any = None,
    write: dict[str, Any] = SMALL,
    models: tuple[str, str] = ("first", "second"),
    complete: bool = True,
) -> tuple[Rubric, Named, Named]:
    """The rubric of the sample case, with the engines of reader and rubric."""
    chain = Scripted(honest())
    curation = await run({}, engine=chain)
    common: dict[str, Any] = {
        "reader.identifiers": {"found": []},
        "reader.rubric": review or NO_PROBLEM,
        "rubric.classify": KIND,
        "rubric.write": write,
    }
    reader = Named({**common, "rubric.complete": {"points": list(named)}}, models[0])
    writer = Named({**common, "rubric.complete": {"points": list(others)}}, models[1])
    chain.script |= {
        "validator.alignment": verdict or judged("neutral"),
        "rubric.match": lambda inputs: {
            "matches": [
                {
                    "id": p["id"],
                    "other": (matches or {}).get(p["id"], ""),
                    "reason": "r",
                }
                for p in inputs["points"]
            ]
        },
    }
    engines = dict.fromkeys(ROLES, ReplayEngine(chain, Memory()))
    engines |= {
        "reader": ReplayEngine(reader, Memory()),
        "rubric": ReplayEngine(writer, Memory()),
    }
    library = Library(OnePassage(), 3, 4000, date(2026, 11, 21))
    done, rubric, _ = await complete_case(
        curation, "en", engines, library=library if complete else None
    )
    assert done.outcome in (Outcome.KEPT, Outcome.HELD)
    assert rubric is not None
    return rubric, reader, writer


async def test_a_point_that_a_passage_supports_rests_on_that_passage() -> None:
    rubric, _, _ = await completed(
        point("Change to losartan."), verdict=judged("supported", QUOTE)
    )
    added = rubric.criteria[-1]
    assert (added.origin, added.source) == (Origin.EVIDENCE, PASSAGE.id)
    assert (added.id, added.points, added.advice_id) == ("c3", 8, None)
    assert rubric.completion is not None
    [kept] = rubric.completion.points
    assert (kept.outcome, kept.detail) == ("evidence", QUOTE)


async def test_a_point_that_no_passage_decides_needs_a_second_model_that_saw_nothing() -> (
    None
):
    rubric, reader, writer = await completed(
        point("Count the pills."),
        point("Sing."),
        others=(point("Look at the pill box."),),
        matches={"p1": "o1"},
    )
    assert [c.source for c in rubric.criteria] == ["", "", "first, second"]
    assert rubric.criteria[-1].origin is Origin.CONSENSUS
    assert rubric.completion is not None
    outcomes = [p.outcome for p in rubric.completion.points]
    assert outcomes == ["consensus", "not_named"]
    asked = [
        next(r.inputs for r in engine.requests if r.task == "rubric.complete")
        for engine in (reader, writer)
    ]
    assert asked[0] == asked[1]


async def test_what_only_the_second_model_names_counts_where_a_passage_supports_it() -> (
    None
):
    named = [point(f"Count {name}.", 6) for name in ("pills", "days")]
    named.append(point("Count cups.", 5))
    others = [point("Look at the pill box.", 7), point("Change to losartan.", 9)]
    others += [point(f"Ask for {name}.", 7) for name in ("fever", "falls")]
    others.append(point("Ask for smoke.", 6))
    rubric, _, _ = await completed(
        *named,
        others=tuple(others),
        matches={"p1": "o1"},
        verdict=judged("supported", QUOTE),
    )
    added = {c.criterion for c in rubric.criteria if c.origin is Origin.EVIDENCE}
    assert added == {
        "Says: Count pills.",
        "Says: Count days.",
        "Says: Change to losartan.",
        "Says: Ask for fever.",
        "Says: Ask for falls.",
        "Says: Ask for smoke.",
    }
    assert rubric.completion is not None
    surplus = {p.point for p in rubric.completion.points if p.outcome == "surplus"}
    assert surplus == {"Count cups."}


async def test_further_points_stay_and_trivial_ones_are_left_out_with_the_reason() -> (
    None
):
    criteria = [("Names it.", 7), ("Names rest.", 2), ("Is kind.", 1)]
    rubric, _, _ = await completed(write=rubric_of(*criteria, ("Denies it.", -3)))
    assert [(c.points, c.tier) for c in rubric.criteria] == [
        (7, "decisive"),
        (2, "further"),
        (-3, "further"),
    ]
    trivial = rubric.omitted[-1]
    assert trivial.criterion == "Is kind."
    assert trivial.why == "writing: dropped: minor: 1 point: every answer has it"


async def test_the_models_that_complete_see_what_was_left_out_and_what_is_asked() -> (
    None
):
    _, reader, _ = await completed()
    (request,) = [r for r in reader.requests if r.task == "rubric.complete"]
    assert request.inputs["asked"] == [{"id": "q1", "text": "What could cause it?"}]
    assert request.inputs["left_out"] == [
        {"point": "Drink tea.", "why": "writing: not_asked"}
    ]
    assert "lacks" not in request.inputs


async def test_a_point_that_alone_answers_what_is_asked_comes_before_graver_ones() -> (
    None
):
    draft = rubric_of(("Names lisinopril.", 7), ("Denies it.", -5))
    draft["asked"].append({"id": "q2", "text": "Is it dangerous?"})
    graver = [point(f"Count {name}.", 9) for name in "abcde"]
    answer = point("It is not dangerous.", 3) | {"asked": "q2"}
    rubric, _, _ = await completed(
        *graver,
        answer,
        others=(point("Count f.", 9), point("Count g.", 9)),
        verdict=judged("supported", QUOTE),
        write=draft,
    )
    assert rubric.unanswered == ()
    answering = [c for c in rubric.criteria if c.asked == "q2"]
    assert [(c.points, c.tier) for c in answering] == [(7, "decisive")]


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (judged("contradicted", QUOTE), "contradicted"),
        (judged("not_standard"), "not_standard"),
        (judged("neutral"), "one_model"),
    ],
)
async def test_nothing_unsound_and_no_consensus_of_one_model_is_kept(
    verdict: Any, outcome: PointOutcome
) -> None:
    rubric, _, _ = await completed(
        point("Double the dose."),
        others=(point("Double the dose."),),
        matches={"p1": "o1"},
        verdict=verdict,
        models=("same", "same"),
    )
    assert all(c.origin is Origin.ADVICE for c in rubric.criteria)
    assert rubric.completion is not None
    assert [p.outcome for p in rubric.completion.points] == [outcome]
    open_points = outcome == "one_model"
    assert bool(rubric.completion.note) == open_points


@pytest.mark.parametrize("faults", [["duplicate"], ["false", "not_direct"]])
async def test_a_criterion_that_the_reviewer_refuses_is_not_kept(
    faults: list[str],
) -> None:
    def refuse_last(inputs: Any) -> dict[str, Any]:
        last = inputs["criteria"][-1]
        if last["advice_id"] != "p-c3":
            return NO_PROBLEM
        problems = []
        for fault in faults:
            problem = {"criterion_id": last["id"], "fault": fault, "detail": "c1"}
            problems.append(problem)
        return {"problems": problems, "life_critical": []}

    rubric, _, _ = await completed(
        point("Names it."), verdict=judged("supported", QUOTE), review=refuse_last
    )
    assert len(rubric.criteria) == 2
    assert rubric.completion is not None
    [refused] = rubric.completion.points
    assert (refused.outcome, refused.source) == ("faulty", "")


async def test_the_lightest_advice_makes_room_and_is_recorded() -> None:
    most = [(f"Names cause {name}.", 7 if name == "a" else 6) for name in "abcdefghij"]
    penalties = [(f"Denies cause {name}.", -5) for name in "abcd"]
    full = rubric_of(*most, *penalties)
    rubric, _, _ = await completed(
        point("Change to losartan."), verdict=judged("supported", QUOTE), write=full
    )
    assert len(rubric.criteria) == MOST_WRITTEN
    assert rubric.criteria[-1].origin is Origin.EVIDENCE
    reasons = [(f.fact, f.step, f.reason) for f in rubric.omitted]
    assert reasons == [
        ("Drink tea.", "writing", Omission.NOT_ASKED),
        ("It can cause a cough.", "completion", Omission.DROPPED),
    ]


async def test_a_point_that_makes_room_itself_is_surplus() -> None:
    most = [(f"Names cause {name}.", 7) for name in "abcdefghij"]
    penalties = [(f"Denies cause {name}.", -5) for name in "abcd"]
    rubric, _, _ = await completed(
        point("Change to losartan.", 3),
        verdict=judged("supported", QUOTE),
        write=rubric_of(*most, *penalties),
    )
    assert {c.origin for c in rubric.criteria} == {Origin.ADVICE}
    assert rubric.completion is not None
    [surplus] = rubric.completion.points
    assert (surplus.outcome, surplus.source) == ("surplus", "")
    assert [f.step for f in rubric.omitted] == ["writing"]


async def test_nothing_to_complete_is_fine_and_it_can_be_switched_off() -> None:
    rubric, _, _ = await completed()
    assert rubric.completion is not None
    assert (rubric.completion.points, len(rubric.criteria)) == ((), 2)
    rubric, reader, _ = await completed(complete=False)
    assert rubric.completion is None
    assert all(r.task != "rubric.complete" for r in reader.requests)
