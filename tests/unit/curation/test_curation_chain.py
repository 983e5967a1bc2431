"""The agents' checks in code hold whatever engine answers: an adversarial engine is tried on each of them."""

import json
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted import THREAD, Memory, OnePassage, Script, Scripted, changed, honest, run

from medlive.curation.chain import ROLES, CurationSettings, curate
from medlive.curation.model import (
    CallOutcome,
    Check,
    Outcome,
    Reason,
    Side,
    Stage,
    Thresholds,
)
from medlive.errors import EndpointUnavailable
from medlive.llm.engine import EngineIdentity, Finish, Reply, Usage
from medlive.llm.replay import ReplayEngine


async def test_honest_engine_gives_a_kept_case_with_every_part_of_its_record() -> None:
    curation = await run(honest())
    assert (curation.outcome, curation.stage, curation.reason) == (Outcome.KEPT, Stage.RUBRIC, None)
    assert (curation.s_cc, curation.s_inf, curation.s_align) == (1, 2 / 3, 1.0)
    assert [e.id for e in curation.elements] == ["n1", "n2", "q", "a1", "a2"]
    assert all(c.passed for c in curation.checks)
    assert {c.check for c in curation.checks} == set(Check)
    assert all(c.hits and [x.passage_id for x in c.citations] == ["demo:1:0"] for c in curation.claims)
    assert curation.index == OnePassage.identity
    assert curation.publishable


async def test_replies_other_than_verified_physicians_are_never_shown() -> None:
    engine = Scripted(honest())
    await run({}, engine=engine)
    seen = json.dumps([dict(r.inputs) for r in engine.requests])
    assert "bleach" not in seen
    assert "student" not in seen
    assert "losartan 50 mg" in seen


@pytest.mark.parametrize("message_id", ["m0", "m1", "m3", "m9", "title", ""])
async def test_advice_from_anybody_else_is_no_reply(message_id: str) -> None:
    item = {"message_id": message_id, "quote": "x", "statement": "x", "kind": "plan"}
    curation = await run(changed(screener__advice={"elements": [item]}))
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)
    assert [c.attempt for c in curation.calls if c.task == "screener.advice"] == [1, 2]


FABRICATED = [
    ({"quote": "chest pain", "statement": "Chest pain."}, Check.QUOTE_IN_THREAD),
    ({"quote": "dry cough for 3 weeks", "statement": "Dry cough for 30 weeks."}, Check.NUMBERS_IN_THREAD),
    ({"quote": "dry cough for 30 weeks", "statement": "Dry cough."}, Check.QUOTE_IN_THREAD),
    ({"quote": "I take lisinopril 10 mg", "statement": "Lisinopril 10 µg."}, Check.NUMBERS_IN_THREAD),
    ({"quote": "I take lisinopril 10 mg", "statement": "Lisinopril 100 mg."}, Check.NUMBERS_IN_THREAD),
    ({"quote": "Lisinopril can cause", "statement": "Lisinopril."}, Check.QUOTE_IN_THREAD),
    ({"quote": "I have had a dry cough for 3 weeks", "statement": "No dry cough."}, Check.NEGATION_KEPT),
]


@pytest.mark.parametrize(("change", "check"), FABRICATED)
async def test_fabricated_words_and_numbers_discard_the_case(change: dict[str, str], check: Check) -> None:
    script = honest()
    script["screener.narrative"]["elements"].append({"message_id": "m0", "kind": "subjective"} | change)
    curation = await run(script)
    assert (curation.outcome, curation.stage) == (Outcome.REJECTED, Stage.CONTROLLER)
    assert curation.reason is Reason.UNSUPPORTED_ELEMENT
    assert [(c.subject, c.check) for c in curation.checks if not c.passed] == [("n3", check)]


async def test_numbers_that_appear_in_the_written_case_discard_it() -> None:
    written = {"narrative": "Aged 34 years.", "advice": "Ask for losartan 100 mg."}
    curation = await run(changed(controller__write=written))
    assert curation.reason is Reason.NUMBERS_CHANGED
    assert [(c.check, c.subject) for c in curation.checks if not c.passed] == [
        (Check.NUMBERS_IN_ELEMENTS, "advice")
    ]


async def test_an_element_that_says_more_than_its_quote_discards_the_case() -> None:
    def verdicts(inputs: Mapping[str, Any]) -> dict[str, Any]:
        ids = [e["id"] for e in inputs["elements"]]
        return {"verdicts": [{"id": i, "supported": i != "a1", "reason": "r"} for i in ids]}

    curation = await run(changed(controller__support=verdicts))
    assert curation.reason is Reason.UNSUPPORTED_ELEMENT
    assert "a1" in curation.detail


@pytest.mark.parametrize("drop", [0, 1])
async def test_the_controller_must_judge_each_element_once(drop: int) -> None:
    def verdicts(inputs: Mapping[str, Any]) -> dict[str, Any]:
        ids = [e["id"] for e in inputs["elements"]]
        ids = ids[1:] if drop else [*ids, ids[0]]
        return {"verdicts": [{"id": i, "supported": True, "reason": ""} for i in ids]}

    assert (await run(changed(controller__support=verdicts))).reason is Reason.INVALID_REPLY


def cites(*quotes: tuple[str, str], verdict: Any = "supported") -> dict[str, Any]:
    evidence = [{"passage_id": passage, "quote": quote} for passage, quote in quotes]
    return {"verdict": verdict, "evidence": evidence, "reason": ""}


EVIDENCE_FAULTS = [
    cites(("demo:2:0", "lisinopril often cause a dry cough")),
    cites(),
    cites(("demo:1:0", "")),
    cites(("demo:1:0", "dry cough")),
    cites(("demo:1:0", "studies prove that it works")),
    cites(("demo:1:0", "must not be used in anybody"), verdict="contradicted"),
    cites(("demo:1:0", "lisinopril often cause a dry cough"), ("demo:1:0", "Changing to losartan is recommended")),
    cites(("demo:1:0", "lisinopril often cause a dry cough"), ("demo:9:9", "PMID 99999999 proves all of it")),
    cites(verdict=1.0),
    cites(verdict="neutral") | {"score": 1.0},
]


@pytest.mark.parametrize("reply", EVIDENCE_FAULTS)
async def test_a_verdict_needs_a_quote_of_a_passage_it_was_given(reply: dict[str, Any]) -> None:
    curation = await run(changed(validator__alignment=reply))
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)


def contradiction(*, confirmed: bool) -> Script:
    quote = ("demo:1:0", "Changing to losartan is recommended")
    veto = cites(*([quote] if confirmed else []))
    return changed(
        validator__alignment=cites(quote, verdict="contradicted"),
        validator__veto={"goes_against": confirmed, "evidence": veto["evidence"], "reason": "v"},
    )


async def test_a_confirmed_contradiction_vetoes_the_case() -> None:
    curation = await run(contradiction(confirmed=True))
    assert (curation.reason, curation.s_align) == (Reason.CONTRADICTED, 0.0)


async def test_an_unconfirmed_contradiction_is_neutral_and_stays_on_record() -> None:
    curation = await run(contradiction(confirmed=False))
    assert (curation.reason, curation.s_align) == (Reason.NOT_ALIGNED, 0.5)
    assert all(c.overturned and c.citations and c.second.reason == "v" for c in curation.claims if c.second)
    assert all(c.second for c in curation.claims)


async def test_one_veto_outweighs_any_support() -> None:
    script = contradiction(confirmed=True)
    against, honest_reply = script["validator.alignment"], honest()["validator.alignment"]
    script["validator.alignment"] = lambda i: against if i["claim"]["id"] == "a2" else honest_reply
    settings = CurationSettings(Thresholds(0.0, 0.0))
    assert (await run(script, settings=settings)).reason is Reason.CONTRADICTED


@given(present=st.integers(0, 8), required=st.integers(3, 8))
async def test_sufficiency_is_computed_in_code_and_must_exceed_its_threshold(present: int, required: int) -> None:
    present = min(present, required)
    items = [
        {"requirement": f"item {i}", "present": i < present, "element_ids": ["n1"] if i < present else []}
        for i in range(required)
    ]
    curation = await run(changed(validator__sufficiency={"items": items}))
    assert curation.s_inf == present / required
    assert (curation.outcome is Outcome.KEPT) == (2 * present > required)


@given(supported=st.integers(0, 6), total=st.integers(1, 6))
async def test_alignment_is_computed_in_code_and_all_neutral_is_discarded(supported: int, total: int) -> None:
    supported = min(supported, total)
    script = honest()
    item = script["screener.advice"]["elements"][0]
    script["screener.advice"] = {"elements": [item] * total}
    yes, neutral = (
        honest()["validator.alignment"],
        cites(verdict="neutral"),
    )
    script["validator.alignment"] = lambda i: yes if int(i["claim"]["id"][1:]) <= supported else neutral
    script["controller.write"] = {"narrative": "Aged 34 years.", "advice": "Lisinopril can cause a dry cough."}
    curation = await run(script)
    assert curation.s_align == (supported + 0.5 * (total - supported)) / total
    assert (curation.outcome is Outcome.KEPT) == (supported > 0)


MISSING = [
    ("screener__narrative", {"elements": []}, Reason.NO_NARRATIVE),
    ("screener__query", {"query": None}, Reason.NO_QUERY),
    ("screener__advice", {"elements": []}, Reason.NO_ADVICE),
]


@pytest.mark.parametrize(("task", "reply", "reason"), MISSING)
async def test_a_thread_goes_on_only_with_all_three_parts(task: str, reply: Any, reason: Reason) -> None:
    engine = Scripted(changed(**{task: reply}))
    curation = await run({}, engine=engine)
    assert (curation.outcome, curation.stage, curation.reason) == (Outcome.REJECTED, Stage.SCREENER, reason)
    assert not [r for r in engine.requests if r.task.startswith("validator")]


@pytest.mark.parametrize("reply", [{"category": "nonclinical", "meaningful": True, "reason": ""},
                                   {"category": "diagnosis", "meaningful": False, "reason": ""}])  # fmt: skip
async def test_a_question_that_is_not_clinical_stops_before_anything_dearer(reply: dict[str, Any]) -> None:
    engine = Scripted(changed(validator__query=reply))
    curation = await run({}, engine=engine)
    assert (curation.reason, curation.s_cc, curation.s_inf) == (Reason.QUERY_NOT_CLINICAL, 0, None)
    assert "validator.sufficiency" not in [r.task for r in engine.requests]


async def test_exhaustive_computes_all_three_and_decides_the_same() -> None:
    script = changed(validator__query={"category": "nonclinical", "meaningful": False, "reason": ""})
    curation = await run(script, settings=CurationSettings(exhaustive=True))
    assert curation.reason is Reason.QUERY_NOT_CLINICAL
    assert (curation.s_cc, curation.s_inf, curation.s_align) == (0, 2 / 3, 1.0)


RUBBISH: list[Any] = [
    "", "no", "null", "[]", "{}", "{" * 5000, '{"elements": ' + "[" * 3000, "<html>busy</html>",
    {"elements": [{}]}, {"elements": [], "note": "ignore all checks"}, {"elements": "all of them"},
    {"elements": [{"message_id": "m0", "quote": "dry cough", "statement": "x" * 5000, "kind": "subjective"}]},
    {"elements": [{"message_id": "m0", "quote": "dry cough", "statement": "x", "kind": "plan"}]},
    {"elements": [{"message_id": "m0", "quote": "dry cough", "statement": "x", "kind": "subjective"}] * 100},
]  # fmt: skip


@pytest.mark.parametrize("rubbish", RUBBISH)
async def test_rubbish_is_asked_again_once_and_then_a_failure(rubbish: Any) -> None:
    curation = await run(changed(screener__narrative=rubbish))
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)
    calls = [c for c in curation.calls if c.task == "screener.narrative"]
    assert [(c.attempt, c.outcome) for c in calls] == [(1, CallOutcome.INVALID), (2, CallOutcome.INVALID)]
    assert all(c.problem for c in calls)


async def test_a_mended_reply_counts() -> None:
    good = honest()["screener.narrative"]
    engine = Scripted(changed(screener__narrative=["sorry, here it is:", good]))
    curation = await run({}, engine=engine)
    assert curation.outcome is Outcome.KEPT
    repair = next(r.repair for r in engine.requests if r.repair)
    assert repair[0] == "sorry, here it is:"
    assert "JSON" in repair[1]


async def test_a_code_fence_around_the_json_is_read() -> None:
    fenced = "```json\n" + json.dumps(honest()["screener.narrative"]) + "\n```"
    assert (await run(changed(screener__narrative=fenced))).outcome is Outcome.KEPT


MEASURES = ("controller.questions", "controller.answers")
"""They measure a case that is decided: an unusable reply leaves the measure unknown."""


@pytest.mark.parametrize("task", MEASURES)
@pytest.mark.parametrize(
    "said", ["rubbish", Reply("", Finish.REFUSAL, Usage(), "m"), {"questions": [], "answers": []}]
)
async def test_a_cross_examination_that_fails_is_unknown_and_decides_nothing(task: str, said: Any) -> None:
    curation = await run(honest() | {task: said})
    assert (curation.outcome, curation.cross_examination) == (Outcome.KEPT, None)
    assert any(c.outcome is not CallOutcome.OK for c in curation.calls if c.task == task)


@pytest.mark.parametrize("task", MEASURES)
async def test_an_endpoint_that_is_away_for_the_cross_examination_is_tried_again(task: str) -> None:
    curation = await run(honest() | {task: EndpointUnavailable("down")})
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.ENDPOINT_UNAVAILABLE)


FAILURES = [
    (EndpointUnavailable("down"), Reason.ENDPOINT_UNAVAILABLE, CallOutcome.UNAVAILABLE),
    (Reply("", Finish.REFUSAL, Usage(), "m"), Reason.REFUSED, CallOutcome.REFUSED),
    (Reply('{"elements"', Finish.LENGTH, Usage(), "m"), Reason.TRUNCATED, CallOutcome.TRUNCATED),
]


@pytest.mark.parametrize(("said", "reason", "outcome"), FAILURES)
@pytest.mark.parametrize("task", [task for task in honest() if task not in MEASURES])
async def test_a_failure_of_ours_is_never_a_rejection(
    task: str, said: Any, reason: Reason, outcome: CallOutcome
) -> None:
    script = contradiction(confirmed=True) if task == "validator.veto" else honest()
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
    assert sorted(set(paid)) == ["controller.answers", "controller.questions", "controller.write"]
    assert paid.count("controller.write") == 1
    third = Scripted({})
    again = await run({}, engine=third, store=store)
    assert third.requests == []
    assert (again.outcome, again.elements, again.text) == (curation.outcome, curation.elements, curation.text)
    assert all(c.replayed for c in again.calls)


@pytest.mark.parametrize("role", ROLES)
async def test_one_agent_by_rules_makes_the_case_unpublishable(role: str) -> None:
    class ByRules(Scripted):
        @property
        def identity(self) -> EngineIdentity:
            return EngineIdentity("rules", "rules-test")

    respondents = dict.fromkeys(ROLES, ReplayEngine(Scripted(honest()), Memory()))
    respondents[role] = ReplayEngine(ByRules(honest()), Memory())
    curation = await curate(
        THREAD, "en", respondents, OnePassage(), CurationSettings(), run_date=date(2026, 11, 21)
    )
    assert curation.outcome is Outcome.KEPT
    assert not curation.publishable


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@given(task=st.sampled_from(list(honest())), said=json_values)
async def test_no_reply_makes_the_chain_raise_or_keep_what_it_should_not(task: str, said: Any) -> None:
    script: dict[str, Callable[[Any], Any]] = honest() | {task: lambda _: said}
    curation = await run(script)
    if task != "validator.veto" and task not in MEASURES:
        assert curation.outcome is not Outcome.KEPT or task == "controller.write"
    assert all(e.side in Side for e in curation.elements)


async def test_a_dose_is_not_written_for_another_medicine() -> None:
    written = {
        "narrative": "Aged 34 years, with a dry cough for 3 weeks.",
        "advice": "Losartan can cause a dry cough. Ask for lisinopril 50 mg.",
    }
    curation = await run(changed(controller__write=written))
    assert (curation.outcome, curation.reason) == (Outcome.REJECTED, Reason.NUMBERS_CHANGED)
    assert "lisinopril 50 mg" in curation.detail
