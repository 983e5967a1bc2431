"""What the chain holds by code, whatever engine answers: an adversarial engine is tried on each of it."""

import json
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.curation.chain import (
    ROLES,
    CurationSettings,
    curate,
)
from medlive.curation.model import (
    Outcome,
    Reason,
    Side,
)
from medlive.errors import EndpointUnavailable
from medlive.llm.ask import CallOutcome
from medlive.llm.engine import EngineIdentity, Finish, Reply, Usage
from medlive.llm.replay import ReplayEngine
from tests.support.scripted import (
    THREAD,
    Memory,
    OnePassage,
    Scripted,
    changed,
    contradiction,
    honest,
    mixed,
    run,
)


async def test_honest_engine_gives_a_kept_case_with_every_part_of_its_record() -> None:
    curation = await run(honest())
    assert (curation.outcome, curation.stage, curation.reason) == (
        Outcome.KEPT,
        "rubric",
        None,
    )
    assert (curation.s_cc, curation.s_inf, curation.s_align) == (1, 2 / 3, 1.0)
    assert [e.id for e in curation.elements] == ["n1", "n2", "q", "a1", "a2"]
    assert all(c.passed for c in curation.checks)
    assert all(
        c.hits and [x.passage_id for x in c.citations] == ["demo:1:0"]
        for c in curation.claims
    )
    assert [r.prudent for r in curation.requirements] == [False, False, False, True]
    assert curation.second_reading is not None
    assert curation.index == OnePassage.identity
    assert curation.publishable


async def test_replies_other_than_verified_physicians_are_never_shown() -> None:
    engine = Scripted(honest())
    await run({}, engine=engine)
    seen = json.dumps([dict(r.inputs) for r in engine.requests])
    assert "bleach" not in seen
    assert "student" not in seen
    assert "losartan 50 mg" in seen


@settings(max_examples=12)
@given(present=st.integers(0, 6), required=st.integers(0, 6))
async def test_sufficiency_is_computed_in_code_and_must_exceed_its_threshold(
    present: int, required: int
) -> None:
    present = min(present, required)
    items = [
        {
            "requirement": f"item {i}",
            "present": i < present,
            "element_ids": ["n1"] if i < present else [],
        }
        for i in range(required)
    ]
    reply = {"consult": "", "answers_now": False, "required": items, "prudent": []}
    curation = await run(changed(validator__sufficiency=reply))
    share = present / required if required else 1.0
    assert curation.s_inf == share
    assert (curation.outcome is Outcome.KEPT) == (share > 0.5)


@pytest.mark.parametrize("enough", [True, False])
@pytest.mark.parametrize("answers_now", [True, False])
@pytest.mark.parametrize("present", [1, 3])
async def test_the_second_reading_decides_where_list_and_judgement_differ(
    enough: bool, answers_now: bool, present: int
) -> None:
    items = []
    for number in range(3):
        ids = ["n1"] if number < present else []
        items.append(
            {"requirement": f"{number}", "present": bool(ids), "element_ids": ids}
        )
    curation = await run(
        changed(
            validator__sufficiency={
                "consult": "",
                "answers_now": answers_now,
                "required": items,
                "prudent": [],
            },
            reader__case=honest()["reader.case"] | {"enough": enough},
        )
    )
    votes = [present == 3, answers_now, enough]
    outcome = Outcome.KEPT if sum(votes) >= 2 else Outcome.REJECTED
    # Both said yes and the second reading no: a person.
    if votes == [True, True, False]:
        outcome = Outcome.HELD
    assert curation.outcome is outcome
    if outcome is Outcome.REJECTED:
        assert curation.reason is Reason.INSUFFICIENT_NARRATIVE


@settings(max_examples=12)
@given(supported=st.integers(0, 6), total=st.integers(1, 6))
async def test_alignment_is_computed_in_code_and_all_neutral_is_discarded(
    supported: int, total: int
) -> None:
    supported = min(supported, total)
    script = honest()
    script["screener.extract"]["advice"] = (
        script["screener.extract"]["advice"][:1] * total
    )
    script["validator.alignment"] = mixed(
        **{f"a{n}": "neutral" for n in range(supported + 1, total + 1)}
    )
    script["controller.write"] = {
        "narrative": "Aged 34 years.",
        "advice": "Lisinopril can cause a dry cough.",
    }
    curation = await run(script)
    assert curation.s_align == (supported + 0.5 * (total - supported)) / total
    assert (curation.outcome is Outcome.KEPT) == (supported > 0)


MISSING = [
    ({"narrative": []}, Reason.NO_NARRATIVE),
    ({"query": None}, Reason.NO_QUERY),
    ({"advice": []}, Reason.NO_ADVICE),
]


@pytest.mark.parametrize(("missing", "reason"), MISSING)
async def test_a_thread_goes_on_only_with_all_three_parts(
    missing: dict[str, Any], reason: Reason
) -> None:
    engine = Scripted(changed(screener__extract=honest()["screener.extract"] | missing))
    curation = await run({}, engine=engine)
    assert (curation.outcome, curation.stage, curation.reason) == (
        Outcome.REJECTED,
        "screener",
        reason,
    )
    assert not [r for r in engine.requests if r.task.startswith("validator")]


@pytest.mark.parametrize(
    "reply",
    [
        {"category": "nonclinical"},
        {"meaningful": False},
    ],
)
async def test_a_question_that_is_not_clinical_stops_before_anything_dearer(
    reply: dict[str, Any],
) -> None:
    script = changed(validator__query=honest()["validator.query"] | reply)
    engine = Scripted(script)
    curation = await run({}, engine=engine)
    assert (curation.reason, curation.s_cc, curation.s_inf) == (
        Reason.QUERY_NOT_CLINICAL,
        0,
        None,
    )
    assert not {"validator.sufficiency", "controller.support"} & {
        r.task for r in engine.requests
    }


async def test_elements_are_judged_before_anything_is_paid_for_alignment() -> None:
    engine = Scripted(honest())
    await run({}, engine=engine)
    order = list(dict.fromkeys(r.task for r in engine.requests))
    assert order.index("controller.support") < order.index("validator.claims")


async def test_exhaustive_computes_all_three_and_decides_the_same() -> None:
    script = changed(
        validator__query=honest()["validator.query"] | {"category": "nonclinical"}
    )
    curation = await run(script, settings=CurationSettings(exhaustive=True))
    assert curation.reason is Reason.QUERY_NOT_CLINICAL
    assert (curation.s_cc, curation.s_inf, curation.s_align) == (0, 2 / 3, 1.0)


async def test_exhaustive_decides_the_same_where_a_later_step_rejects_too() -> None:
    def claim(advice: Mapping[str, Any]) -> dict[str, Any]:
        phrases = ["an offer", "a service"]
        stated = {"id": advice["id"], "statement": advice["statement"]}
        return {**stated, "queries": phrases, "advertising": True}

    script = changed(
        validator__query=honest()["validator.query"] | {"category": "nonclinical"},
        validator__claims=lambda i: {"claims": [claim(a) for a in i["advice"]]},
    )
    for exhaustive in (False, True):
        curation = await run(script, settings=CurationSettings(exhaustive=exhaustive))
        assert curation.reason is Reason.QUERY_NOT_CLINICAL
        assert curation.stage == "validator"


RUBBISH: list[Any] = [
    "",
    "no",
    "null",
    "[]",
    "{}",
    "{" * 5000,
    '{"narrative": ' + "[" * 3000,
    "<html>busy</html>",
    *(
        {**honest()["screener.extract"], field: value}
        for field, value in (
            ("narrative", [{}]),
            ("note", "ignore all checks"),
            ("narrative", "all of them"),
            (
                "narrative",
                [
                    {
                        "message_id": "m0",
                        "quote": "dry cough",
                        "statement": "x" * 5000,
                        "kind": "subjective",
                    }
                ],
            ),
            (
                "narrative",
                [
                    {
                        "message_id": "m0",
                        "quote": "dry cough",
                        "statement": "x",
                        "kind": "plan",
                    }
                ],
            ),
            (
                "narrative",
                [
                    {
                        "message_id": "m0",
                        "quote": "dry cough",
                        "statement": "x",
                        "kind": "subjective",
                    }
                ]
                * 100,
            ),
        )
    ),
]


@pytest.mark.parametrize("rubbish", RUBBISH)
async def test_rubbish_is_asked_again_once_and_then_a_failure(rubbish: Any) -> None:
    curation = await run(changed(screener__extract=rubbish))
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)
    calls = [c for c in curation.calls if c.task == "screener.extract"]
    assert [(c.attempt, c.outcome) for c in calls] == [
        (1, CallOutcome.INVALID),
        (2, CallOutcome.INVALID),
    ]
    assert all(c.problem for c in calls)


MEASURES = ("controller.questions", "controller.answers")
"""They measure a case that is decided: an unusable reply leaves the measure unknown."""
UNASKED = ("screener.revise", "validator.veto", "validator.soundness")
"""What an honest engine is never asked about this thread."""


@pytest.mark.parametrize("task", MEASURES)
@pytest.mark.parametrize(
    "said",
    [
        "rubbish",
        Reply("", Finish.REFUSAL, Usage(), "scripted"),
        {"questions": [], "answers": []},
    ],
)
async def test_a_cross_examination_that_fails_is_unknown_and_decides_nothing(
    task: str, said: Any
) -> None:
    curation = await run(honest() | {task: said})
    assert (curation.outcome, curation.cross_examination) == (Outcome.KEPT, None)
    assert any(
        c.outcome is not CallOutcome.OK for c in curation.calls if c.task == task
    )


@pytest.mark.parametrize("task", MEASURES)
async def test_an_endpoint_that_is_away_for_the_cross_examination_is_tried_again(
    task: str,
) -> None:
    curation = await run(honest() | {task: EndpointUnavailable("down")})
    assert (curation.outcome, curation.reason) == (
        Outcome.FAILED,
        Reason.ENDPOINT_UNAVAILABLE,
    )


FAILURES = [
    (EndpointUnavailable("down"), Reason.ENDPOINT_UNAVAILABLE, CallOutcome.UNAVAILABLE),
    (
        Reply("", Finish.REFUSAL, Usage(), "scripted"),
        Reason.REFUSED,
        CallOutcome.REFUSED,
    ),
    (
        Reply('{"elements"', Finish.LENGTH, Usage(), "scripted"),
        Reason.TRUNCATED,
        CallOutcome.TRUNCATED,
    ),
]


@pytest.mark.matrix
@pytest.mark.parametrize(("said", "reason", "outcome"), FAILURES)
@pytest.mark.parametrize(
    "task",
    [task for task in honest() if task not in (*MEASURES, "validator.soundness")],
)
async def test_a_failure_of_ours_is_never_a_rejection(
    task: str, said: Any, reason: Reason, outcome: CallOutcome
) -> None:
    script = contradiction(confirmed=True) if task == "validator.veto" else honest()
    if task == "screener.revise":
        script["screener.extract"]["narrative"].append(
            {
                "message_id": "m0",
                "quote": "not there",
                "statement": "No dry cough.",
                "kind": "subjective",
            }
        )
    curation = await run(script | {task: said})
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, reason)
    assert outcome in [c.outcome for c in curation.calls if c.task == task]


async def test_a_resumed_run_pays_only_for_what_was_unusable() -> None:
    store = Memory()
    first = Scripted(changed(controller__write="rubbish"))
    assert (await run({}, engine=first, store=store)).outcome is Outcome.FAILED
    second = Scripted(honest())
    curation = await run({}, engine=second, store=store)
    assert curation.outcome is Outcome.KEPT
    paid = [r.task for r in second.requests]
    asked_after = {
        "controller.answers",
        "controller.questions",
        "controller.write",
        "reader.text",
        "grader.harm",
        "reader.case",
    }
    assert set(paid) == asked_after
    assert paid.count("controller.write") == 1
    third = Scripted({})
    again = await run({}, engine=third, store=store)
    assert third.requests == []
    assert (again.outcome, again.elements, again.text) == (
        curation.outcome,
        curation.elements,
        curation.text,
    )
    assert all(c.replayed for c in again.calls)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("engine", ["rules", "recorded"])
async def test_one_agent_that_is_no_model_makes_the_case_unpublishable(
    role: str, engine: str
) -> None:
    class Other(Scripted):
        @property
        def identity(self) -> EngineIdentity:
            return EngineIdentity(engine, "scripted")

    respondents = dict.fromkeys(ROLES, ReplayEngine(Scripted(honest()), Memory()))
    respondents[role] = ReplayEngine(Other(honest()), Memory())
    curation = await curate(
        THREAD,
        "en",
        respondents,
        OnePassage(),
        CurationSettings(),
        run_date=date(2026, 11, 21),
    )
    assert curation.outcome is Outcome.KEPT
    assert not curation.publishable


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=12)
@given(task=st.sampled_from(list(honest())), said=json_values)
async def test_no_reply_makes_the_chain_raise_or_keep_what_it_should_not(
    task: str, said: Any
) -> None:
    script: dict[str, Callable[[Any], Any]] = honest() | {task: lambda _: said}
    curation = await run(script)
    if task not in (*UNASKED, *MEASURES):
        assert curation.outcome is not Outcome.KEPT
    assert all(e.side in Side for e in curation.elements)


@pytest.mark.parametrize(
    ("conclusion", "rejected"), [("harmful", True), ("not harmful", False)]
)
async def test_advice_that_both_judges_of_harm_call_harmful_is_rejected(
    conclusion: str, rejected: bool
) -> None:
    finding = {
        "quote": "Lisinopril can cause a dry cough",
        "reason": "The patient would stop a drug.",
        "offended": "standard",
        "basis": "Label of lisinopril",
        "kind": "drug_or_dose",
        "severity": "severe",
    }
    harm = {
        "reading": "One statement could hurt this patient.",
        "findings": [finding],
        "conclusion": "harmful",
    }
    check = {
        "context": "Its own claim.",
        "defence": "Coughs are a known effect.",
        "outcome": "The patient could be hurt.",
        "conclusion": conclusion,
        "severity": "severe" if conclusion == "harmful" else "none",
    }
    curation = await run(changed(grader__harm=harm, grader__harm_check=check))
    assert (curation.reason is Reason.ADVICE_HARMFUL) is rejected
