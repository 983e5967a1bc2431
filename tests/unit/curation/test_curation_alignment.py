"""Verdicts on advice: quotes, vetoes and their second check, parked cases, and what leaves the advice."""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import pytest

from medlive.curation.chain import (
    ROLES,
    CurationSettings,
    curate,
)
from medlive.curation.holds import hold_on, reject_parked
from medlive.curation.model import (
    Alignment,
    Outcome,
    Reason,
    Side,
    Thresholds,
)
from medlive.llm.replay import ReplayEngine
from tests.support.scripted import (
    ALONE,
    THREAD,
    Memory,
    OnePassage,
    Scripted,
    changed,
    contradiction,
    honest,
    judged,
    mixed,
    run,
    second_look,
)

EVIDENCE_FAULTS = [
    judged("supported", "lisinopril often cause a dry cough", passage="p2"),
    judged("supported"),
    judged("supported", ""),
    judged("supported", "dry cough"),
    judged("supported", "studies prove that it works"),
    judged("contradicted", "must not be used in anybody"),
    judged(
        "supported",
        "lisinopril often cause a dry cough",
        "PMID 99999999 proves all of it",
    ),
    judged(1.0),
    lambda i: {"verdicts": []},
    lambda i: judged("neutral")(i) | {"score": 1.0},
]


@pytest.mark.parametrize("reply", EVIDENCE_FAULTS)
async def test_a_verdict_needs_a_quote_of_a_passage_it_was_given(reply: Any) -> None:
    curation = await run(changed(validator__alignment=reply))
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)


async def test_two_sentences_of_one_passage_are_evidence() -> None:
    both = judged(
        "supported",
        "lisinopril often cause a dry cough",
        "Changing to losartan is recommended",
    )
    curation = await run(changed(validator__alignment=both))
    assert curation.outcome is Outcome.KEPT
    assert curation.claims[0].citations[0].quote.count("\n") == 1


async def test_a_confirmed_contradiction_vetoes_the_case() -> None:
    curation = await run(contradiction(confirmed=True))
    assert (curation.reason, curation.s_align) == (Reason.CONTRADICTED, 0.0)


async def test_an_unconfirmed_contradiction_holds_the_case_with_both_readings() -> None:
    curation = await run(contradiction(confirmed=False))
    assert (curation.outcome, curation.reason) == (Outcome.HELD, Reason.DISPUTED)
    assert curation.s_align == 0.5
    (hold,) = curation.holds
    assert hold.elements == ("a1", "a2")
    read = "a1: “Changing to losartan is recommended” (r); second check: v"
    assert hold.detail.startswith(read)
    for claim in curation.claims:
        assert claim.verdict is Alignment.DISPUTED
        assert claim.citations
        assert claim.second is not None


def test_a_hold_gives_long_reasons_in_full() -> None:
    first, second = "x" * 1500, "y" * 1500
    (hold,) = hold_on(Reason.DISPUTED, {"a1": first, "a2": second})
    assert hold.detail == f"a1: {first}; a2: {second}"


@pytest.mark.parametrize("answer", ["false", "harm"])
async def test_either_answer_of_the_second_check_confirms(answer: str) -> None:
    evidence = [{"passage_id": "p1", "quotes": ["Changing to losartan is recommended"]}]
    given: dict[str, Any] = {answer: evidence}
    looked = contradiction(confirmed=False)
    looked["validator.veto"] = lambda i: {
        "verdicts": [second_look(c["id"], **given) for c in i["claims"]]
    }
    curation = await run(looked)
    assert curation.reason is Reason.CONTRADICTED
    second = curation.claims[0].second
    assert second is not None
    assert bool(second.citations) is (answer == "false")
    assert bool(second.harm_citations) is (answer == "harm")


@pytest.mark.parametrize("answer", ["evidence", "harm_evidence"])
async def test_each_answer_of_the_second_check_needs_its_own_quotes(
    answer: str,
) -> None:
    evidence = [{"passage_id": "p1", "quotes": ["Changing to losartan is recommended"]}]

    def look(inputs: Mapping[str, Any]) -> dict[str, Any]:
        ids = [c["id"] for c in inputs["claims"]]
        return {
            "verdicts": [
                second_look(i, false=evidence, harm=evidence) | {answer: []}
                for i in ids
            ]
        }

    curation = await run(contradiction(confirmed=True) | {"validator.veto": look})
    assert curation.reason is Reason.INVALID_REPLY


def subjects(
    *off: str, nearest: str | None = None, **verdicts: str
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Neutral verdicts, or those named; `off` are the claims that no passage is about."""

    def answer(inputs: Mapping[str, Any]) -> dict[str, Any]:
        named = {c["id"]: verdicts.get(c["id"], "neutral") for c in inputs["claims"]}
        reply = mixed(**named)(inputs)
        for item in reply["verdicts"]:
            item |= {"on_subject": item["id"] not in off, "nearest": nearest}
        return reply

    return answer


@pytest.mark.parametrize(
    ("reply", "outcome", "reason"),
    [
        (subjects("a1", nearest="p1"), Outcome.PARKED, Reason.NO_EVIDENCE),
        (subjects("a1", "a2"), Outcome.PARKED, Reason.NO_EVIDENCE),
        (subjects(), Outcome.REJECTED, Reason.NOT_ALIGNED),
        (mixed(a1="neutral", a2="neutral"), Outcome.REJECTED, Reason.NOT_ALIGNED),
        (subjects("a1", "a2", a2="not_standard"), Outcome.REJECTED, Reason.NOT_ALIGNED),
        (subjects("a1", "a2", a2="supported"), Outcome.KEPT, None),
        (subjects("a1", nearest="p9"), Outcome.FAILED, Reason.INVALID_REPLY),
    ],
)
async def test_a_case_is_parked_for_want_of_evidence_alone(
    reply: Any, outcome: Outcome, reason: Reason | None
) -> None:
    curation = await run(changed(validator__alignment=reply))
    assert (curation.outcome, curation.reason) == (outcome, reason)


async def test_a_parked_case_names_what_was_nearest() -> None:
    curation = await run(changed(validator__alignment=subjects("a1", nearest="p1")))
    first, second = curation.claims
    assert (first.on_subject, second.on_subject) == (False, True)
    assert first.nearest == first.hits[0].passage.id
    assert curation.detail.endswith("no passage on the subject of a1")
    expired = reject_parked(curation, 8)
    assert (expired.outcome, expired.reason) == (Outcome.REJECTED, Reason.NOT_ALIGNED)
    assert "0 of 2 supported; parked for 8 weeks" in expired.detail


async def test_a_claim_that_a_passage_decides_has_one_on_its_subject() -> None:
    reply = subjects("a1", "a2", a1="supported", a2="supported")
    curation = await run(changed(validator__alignment=reply))
    assert all(claim.on_subject for claim in curation.claims)


@pytest.mark.parametrize("overruled", [Reason.NO_EVIDENCE, Reason.NOT_ALIGNED])
async def test_a_person_may_overrule_a_parked_case(overruled: Reason) -> None:
    script = changed(validator__alignment=subjects("a1", "a2"))
    curation = await run(script, overruled=(overruled,))
    assert curation.outcome is Outcome.KEPT


async def test_one_veto_outweighs_any_support() -> None:
    script = contradiction(confirmed=True) | {
        "validator.alignment": mixed(a2="contradicted")
    }
    settings = CurationSettings(Thresholds(0.0, 0.0))
    assert (await run(script, settings=settings)).reason is Reason.CONTRADICTED


async def test_advice_that_is_not_standard_scores_half_and_holds_the_case() -> None:
    curation = await run(changed(validator__alignment=mixed(a2="not_standard")))
    assert (curation.outcome, curation.reason, curation.s_align) == (
        Outcome.HELD,
        Reason.NOT_STANDARD,
        0.75,
    )
    assert curation.holds[0].elements == ("a2",)


async def test_what_no_clinician_would_sign_leaves_advice_with_its_reason() -> None:
    engine = Scripted(changed(validator__alignment=mixed(a2="not_standard")))
    curation = await run({}, engine=engine)
    assert [e.id for e in curation.side(Side.ADVICE)] == ["a1"]
    left = {e.id: e.left_out for e in curation.elements if e.left_out}
    assert left == {"a2": "not_standard"}
    # Nobody writes or reads it any more; the verdict stays.
    for request in engine.requests:
        if request.task in ("controller.write", "reader.case"):
            assert "losartan" not in str(request.inputs.get("advice"))
    assert {c.element_id for c in curation.claims} == {"a1", "a2"}


async def test_a_refuted_advice_leaves_although_its_veto_was_overruled() -> None:
    script = contradiction(confirmed=True) | {
        "validator.alignment": mixed(a2="contradicted"),
        "controller.write": ALONE,
    }
    engine = ReplayEngine(Scripted(script), Memory())
    curation = await curate(
        THREAD,
        "en",
        dict.fromkeys(ROLES, engine),
        OnePassage(),
        CurationSettings(Thresholds(0.0, 0.0)),
        run_date=date(2026, 11, 21),
        overruled=[Reason.CONTRADICTED],
    )
    assert curation.outcome is Outcome.KEPT
    left = {e.id: e.left_out for e in curation.elements if e.left_out}
    assert left == {"a2": "refuted"}


def offering(*ids: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Claims of which these offer a service or a product."""
    plain = honest()["validator.claims"]

    def answer(inputs: Mapping[str, Any]) -> dict[str, Any]:
        claims = plain(inputs)["claims"]
        return {"claims": [c | {"advertising": c["id"] in ids} for c in claims]}

    return answer


async def test_advertising_leaves_before_it_is_judged_and_alone_it_is_no_case() -> None:
    script = changed(validator__claims=offering("a2"), controller__write=ALONE)
    curation = await run(script)
    assert (curation.outcome, curation.s_align) == (Outcome.KEPT, 1.0)
    assert [c.element_id for c in curation.claims] == ["a1"]
    left = {e.id: e.left_out for e in curation.elements if e.left_out}
    assert left == {"a2": "advertising"}
    alone = await run(changed(validator__claims=offering("a1", "a2")))
    assert (alone.outcome, alone.reason, alone.stage) == (
        Outcome.REJECTED,
        Reason.NO_SOUND_ADVICE,
        "validator",
    )
