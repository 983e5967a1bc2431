"""What the chain holds by code, whatever engine answers: an adversarial engine is tried on each of it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.curation.chain import (
    ROLES,
    CurationSettings,
    curate,
    curate_without_element,
    reject_parked,
)
from medlive.curation.model import (
    Alignment,
    Check,
    ElementStatus,
    LeftOut,
    Outcome,
    Reason,
    Side,
    Stage,
    Thresholds,
)
from medlive.errors import EndpointUnavailable, UsageError
from medlive.llm.ask import CallOutcome
from medlive.llm.engine import EngineIdentity, Finish, Reply, Usage
from medlive.llm.replay import ReplayEngine
from tests.support.scripted import (
    THREAD,
    Memory,
    OnePassage,
    Script,
    Scripted,
    changed,
    honest,
    judged,
    run,
    second_look,
    voice,
)


async def test_honest_engine_gives_a_kept_case_with_every_part_of_its_record() -> None:
    curation = await run(honest())
    assert (curation.outcome, curation.stage, curation.reason) == (
        Outcome.KEPT,
        Stage.RUBRIC,
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


@pytest.mark.parametrize("message_id", ["m0", "m1", "m3", "m9", "title", ""])
async def test_advice_from_anybody_else_is_no_reply(message_id: str) -> None:
    item = {"message_id": message_id, "quote": "x", "statement": "x", "kind": "plan"}
    curation = await run(
        changed(screener__extract=honest()["screener.extract"] | {"advice": [item]})
    )
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)
    assert [c.attempt for c in curation.calls if c.task == "screener.extract"] == [1, 2]


def insisting(**change: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A Screener that gives back what was objected to, with these changes."""
    return lambda inputs: {
        "elements": [
            {
                "id": e["id"],
                "keep": True,
                "message_id": e["message_id"],
                "quote": e["quote"],
                "statement": e["statement"],
            }
            | change
            for e in inputs["elements"]
        ]
    }


FABRICATED = [
    ({"quote": "chest pain", "statement": "Chest pain."}, Check.QUOTE_IN_MESSAGE),
    (
        {"quote": "dry cough for 3 weeks", "statement": "Dry cough for 30 weeks."},
        Check.NUMBERS_AGREE,
    ),
    (
        {"quote": "dry cough for 3 weeks", "statement": "Dry cough for 3 days."},
        Check.NUMBERS_AGREE,
    ),
    (
        {"quote": "dry cough for 30 weeks", "statement": "Dry cough."},
        Check.QUOTE_IN_MESSAGE,
    ),
    (
        {"quote": "I take lisinopril 10 mg", "statement": "Lisinopril 10 µg."},
        Check.NUMBERS_AGREE,
    ),
    (
        {"quote": "I take lisinopril 10 mg", "statement": "Lisinopril 50 mg."},
        Check.NUMBERS_AGREE,
    ),
    (
        {"quote": "Lisinopril can cause", "statement": "Lisinopril."},
        Check.QUOTE_IN_MESSAGE,
    ),
]


@pytest.mark.parametrize(("change", "check"), FABRICATED)
async def test_a_fabricated_fact_goes_back_twice_and_is_then_dropped(
    change: dict[str, str], check: Check
) -> None:
    script = changed(screener__revise=insisting())
    script["screener.extract"]["narrative"].append(
        {"message_id": "m0", "kind": "subjective"} | change
    )
    curation = await run(script)
    assert curation.outcome is Outcome.KEPT
    assert {e.id: e.status for e in curation.elements}["n3"] is ElementStatus.DROPPED
    assert [
        (c.check, c.round)
        for c in curation.checks
        if c.subject == "n3" and not c.passed
    ] == [(check, round_) for round_ in (0, 1, 2)]
    assert "n3" not in {e.id for e in curation.side(Side.NARRATIVE)}


async def test_a_fact_that_is_mended_counts() -> None:
    script = changed(
        screener__revise=insisting(
            quote="I take lisinopril 10 mg", statement="Takes lisinopril 10 mg."
        )
    )
    script["screener.extract"]["narrative"].append(
        {
            "message_id": "m0",
            "quote": "on a pill",
            "statement": "Takes a pill.",
            "kind": "subjective",
        }
    )
    curation = await run(script)
    n3 = next(e for e in curation.elements if e.id == "n3")
    assert (n3.statement, n3.status) == ("Takes lisinopril 10 mg.", ElementStatus.KEPT)


async def test_a_fact_that_the_screener_takes_back_is_gone() -> None:
    script = honest()
    script["screener.extract"]["narrative"].append(
        {
            "message_id": "m0",
            "quote": "chest pain",
            "statement": "Chest pain.",
            "kind": "subjective",
        }
    )
    curation = await run(script)
    assert curation.outcome is Outcome.KEPT
    assert Check.WITHDRAWN in {c.check for c in curation.checks if c.subject == "n3"}


def refusing(*ids: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda inputs: {
        "verdicts": [
            {"id": e["id"], "supported": e["id"] not in ids, "reason": "r"}
            for e in inputs["elements"]
        ]
    }


async def test_advice_that_stays_unsupported_holds_the_case() -> None:
    curation = await run(
        changed(controller__support=refusing("a1"), screener__revise=insisting())
    )
    assert (curation.outcome, curation.reason) == (
        Outcome.HELD,
        Reason.UNSUPPORTED_ELEMENT,
    )
    assert curation.holds[0].elements == ("a1",)
    assert "Lisinopril" in (curation.text.advice if curation.text else "")


async def test_the_strict_rule_discards_what_is_unsupported() -> None:
    script = changed(controller__support=refusing("n2"), screener__revise=insisting())
    curation = await run(script, settings=CurationSettings(strict=True))
    assert (curation.outcome, curation.reason) == (
        Outcome.REJECTED,
        Reason.UNSUPPORTED_ELEMENT,
    )


async def test_what_was_present_by_a_dropped_fact_is_missing() -> None:
    asked_back = honest()["validator.sufficiency"] | {"answers_now": False}
    script = changed(
        controller__support=refusing("n2"),
        screener__revise=insisting(),
        validator__sufficiency=asked_back,
    )
    curation = await run(script)
    assert (curation.outcome, curation.reason) == (
        Outcome.REJECTED,
        Reason.INSUFFICIENT_NARRATIVE,
    )
    assert curation.s_inf == 1 / 3


async def test_what_is_of_its_time_is_searched_and_told_as_of_then() -> None:
    posted = replace(THREAD, posted_at=datetime(2023, 2, 14, tzinfo=UTC))
    asked: list[date | None] = []

    class Dated(OnePassage):
        async def search(
            self, queries: Any, *, k: int, not_after: date | None = None
        ) -> Any:
            asked.append(not_after)
            return await super().search(queries, k=k, not_after=not_after)

    for of_its_time, day in ((True, date(2023, 2, 28)), (False, date(2026, 11, 21))):
        query = honest()["validator.query"] | {"of_its_time": of_its_time}
        engine = Scripted(changed(validator__query=query))
        curation = await curate(
            posted,
            "en",
            dict.fromkeys(ROLES, ReplayEngine(engine, Memory())),
            Dated(),
            CurationSettings(),
            run_date=date(2026, 11, 21),
        )
        assert asked.pop() == day
        told = {r.task for r in engine.requests if "month" in r.inputs}
        assert ("reader.case" in told) is of_its_time
        assert curation.text is not None
        said = "The question was asked in February 2023." in curation.text.narrative
        assert said is of_its_time


async def test_numbers_that_appear_in_the_written_case_hold_it() -> None:
    written = {"narrative": "Aged 34 years.", "advice": "Ask for losartan 100 mg."}
    engine = Scripted(changed(controller__write=written))
    curation = await run({}, engine=engine)
    assert (curation.outcome, curation.reason) == (Outcome.HELD, Reason.TEXT_UNFAITHFUL)
    failed = [(c.check, c.subject, c.round) for c in curation.checks if not c.passed]
    assert [f for f in failed if f[0] is Check.NUMBERS_AGREE] == [
        (Check.NUMBERS_AGREE, "advice", round_) for round_ in (0, 1, 2)
    ]
    revisions = [
        r.inputs.get("findings")
        for r in engine.requests
        if r.task == "controller.write"
    ]
    assert revisions[0] is None
    assert all("100 mg" in found[0] for found in revisions[1:])


async def test_an_unfaithful_text_is_written_again() -> None:
    problem = {
        "text": "advice",
        "words": "and clopidogrel",
        "problem": "nobody said so",
    }
    wrong = {
        "narrative": "Aged 34 years.",
        "advice": "Ask for losartan 50 mg and clopidogrel.",
    }
    right = honest()["controller.write"]
    script = changed(
        controller__write=[wrong, right],
        reader__text=lambda i: {
            "problems": [problem] if "clopidogrel" in i["advice"]["text"] else [],
            "missing": [],
        },
    )
    curation = await run(script)
    assert curation.outcome is Outcome.KEPT
    assert "clopidogrel" not in curation.text.advice


@pytest.mark.parametrize("drop", [0, 1])
async def test_the_controller_must_judge_each_element_once(drop: int) -> None:
    def verdicts(inputs: Mapping[str, Any]) -> dict[str, Any]:
        ids = [e["id"] for e in inputs["elements"]]
        ids = ids[1:] if drop else [*ids, ids[0]]
        return {"verdicts": [{"id": i, "supported": True, "reason": ""} for i in ids]}

    assert (
        await run(changed(controller__support=verdicts))
    ).reason is Reason.INVALID_REPLY


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


def mixed(**verdicts: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Each claim's own verdict; supported where none is given."""
    quote = "lisinopril often cause a dry cough"

    def answer(inputs: Mapping[str, Any]) -> dict[str, Any]:
        found = []
        for claim in inputs["claims"]:
            verdict = verdicts.get(claim["id"], "supported")
            evidence = (
                [{"passage_id": "p1", "quotes": [quote]}]
                if verdict in ("supported", "contradicted")
                else []
            )
            found.append(
                {
                    "id": claim["id"],
                    "verdict": verdict,
                    "evidence": evidence,
                    "reason": "r",
                }
            )
        return {"verdicts": found}

    return answer


def contradiction(*, confirmed: bool) -> Script:
    evidence = (
        [{"passage_id": "p1", "quotes": ["Changing to losartan is recommended"]}]
        if confirmed
        else []
    )
    return changed(
        validator__alignment=judged(
            "contradicted", "Changing to losartan is recommended"
        ),
        validator__veto=lambda i: {
            "verdicts": [second_look(c["id"], false=evidence) for c in i["claims"]]
        },
    )


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
    assert left == {"a2": LeftOut.NOT_STANDARD}
    # Nobody writes or reads it any more; the verdict stays.
    for request in engine.requests:
        if request.task in ("controller.write", "reader.case"):
            assert "losartan" not in str(request.inputs.get("advice"))
    assert {c.element_id for c in curation.claims} == {"a1", "a2"}


ALONE = {
    "narrative": "Aged 34 years, with a dry cough.",
    "advice": "Lisinopril can cause a dry cough.",
}


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
    assert left == {"a2": LeftOut.REFUTED}


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
    assert left == {"a2": LeftOut.ADVERTISING}
    alone = await run(changed(validator__claims=offering("a1", "a2")))
    assert (alone.outcome, alone.reason, alone.stage) == (
        Outcome.REJECTED,
        Reason.NO_SOUND_ADVICE,
        Stage.VALIDATOR,
    )


def objection(identity: str, kind: str, *, sure: bool = True) -> dict[str, Any]:
    return {
        "id": identity,
        "kind": kind,
        "reason": "r",
        "standard": "a label",
        "sure": sure,
    }


READINGS = [
    ({"asked": False}, Reason.QUESTION_DOUBTED, ()),
    ({"clinical": False}, Reason.QUESTION_DOUBTED, ()),
    ({"enough": False}, Reason.HISTORY_DOUBTED, ()),
    ({"answered": False}, Reason.QUESTION_UNANSWERED, ()),
    (
        {"brought": [{"what": "rash", "leading": True, "by": ""}]},
        Reason.QUESTION_UNANSWERED,
        (),
    ),
    ({"understandable": False}, Reason.NOT_UNDERSTANDABLE, ()),
    ({"danger": "bleeding"}, Reason.DANGER_UNANSWERED, ()),
    (
        {"wrong": [objection("a1", "false")]},
        Reason.ADVICE_WRONG,
        ("a1",),
    ),
    (
        {"wrong": [objection("a2", "harmful")]},
        Reason.ADVICE_HARMFUL,
        ("a2",),
    ),
]


@pytest.mark.parametrize(("change", "reason", "elements"), READINGS)
async def test_where_the_second_reading_differs_the_case_is_held(
    change: dict[str, Any], reason: Reason, elements: tuple[str, ...]
) -> None:
    curation = await run(changed(reader__case=honest()["reader.case"] | change))
    assert (curation.outcome, curation.stage) == (Outcome.HELD, Stage.RUBRIC)
    assert [(h.reason, h.elements) for h in curation.holds] == [(reason, elements)]


SETTLED = [
    (True, voice("wrong"), Outcome.REJECTED),
    (True, voice("wrong", sure=False), Outcome.HELD),
    (True, voice("sound"), Outcome.HELD),
    (False, voice("wrong"), Outcome.HELD),
    (False, voice("sound"), Outcome.KEPT),
    (False, voice("sound", sure=False), Outcome.HELD),
    (False, voice("undecided"), Outcome.HELD),
    # It also rejects what literature supports, fails, names no standard, or another element.
    (True, voice("wrong", control="wrong"), Outcome.HELD),
    (True, "rubbish", Outcome.HELD),
    (True, {"verdicts": []}, Outcome.HELD),
]


@pytest.mark.parametrize(("sure", "said", "outcome"), SETTLED)
@pytest.mark.parametrize("kind", ["false", "harmful", "danger"])
async def test_reader_and_third_voice_settle_an_objection(
    kind: str, sure: bool, said: Any, outcome: Outcome
) -> None:
    change: dict[str, Any] = {"wrong": [objection("a2", kind, sure=sure)]}
    if kind == "danger":
        change = {"danger": "bleeding", "sure": sure}
    script = changed(
        reader__case=honest()["reader.case"] | change, validator__soundness=said
    )
    engine = Scripted(script)
    curation = await run({}, engine=engine)
    assert curation.outcome is outcome
    asked = next(r.inputs for r in engine.requests if r.task == "validator.soundness")
    assert "r" not in [item["text"] for item in asked["items"]]
    assert "a1" in [item["id"] for item in asked["items"]]
    reason = {
        "false": Reason.ADVICE_WRONG,
        "harmful": Reason.ADVICE_HARMFUL,
        "danger": Reason.DANGER_UNANSWERED,
    }[kind]
    assert curation.reason is (None if outcome is Outcome.KEPT else reason)
    if outcome is Outcome.REJECTED:
        assert "third voice: it may hurt a label" in curation.detail
        overruled = await run(script, overruled=[reason])
        assert overruled.outcome is Outcome.KEPT


async def test_what_rests_on_a_picture_or_is_garbled_is_rejected() -> None:
    def read(**change: Any) -> dict[str, Any]:
        return changed(reader__case=honest()["reader.case"] | change)

    seen = [{"id": "a1", "quote": "Stop lisinopril"}]
    curation = await run(read(unseen=seen))
    assert (curation.outcome, curation.reason) == (
        Outcome.REJECTED,
        Reason.NOT_TEXT_ONLY,
    )
    two, three = ["dry cough", "lisinopril"], ["dry cough", "cough", "lisinopril"]
    assert (await run(read(damaged=two))).outcome is Outcome.KEPT
    for change in ({"damaged": three}, {"damaged": two, "understandable": False}):
        garbled = await run(read(**change))
        assert garbled.outcome is Outcome.REJECTED
        assert garbled.reason is Reason.DAMAGED_TEXT
    invented = await run(read(damaged=["never said"]))
    assert invented.reason is Reason.INVALID_REPLY


async def test_a_passage_on_another_drug_supports_nothing() -> None:
    def lacking(*lacks: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        said = judged("supported", "lisinopril often cause a dry cough")

        def answer(inputs: Mapping[str, Any]) -> dict[str, Any]:
            reply = said(inputs)
            for item in reply["verdicts"]:
                item["lacks"] = list(lacks)
            return reply

        return answer

    for lacks, verdict in (
        (("drug",), Alignment.NEUTRAL),
        (("situation", "strength"), Alignment.NEUTRAL),
        (("population", "strength"), Alignment.SUPPORTED),
    ):
        curation = await run(changed(validator__alignment=lacking(*lacks)))
        assert {c.verdict for c in curation.claims} == {verdict}
        assert curation.claims[0].citations


async def test_what_the_patient_leads_with_needs_an_answer_that_there_is() -> None:
    def read(leading: bool, by: str) -> dict[str, Any]:
        brought = [{"what": "cough", "leading": leading, "by": by}]
        return changed(reader__case=honest()["reader.case"] | {"brought": brought})

    for leading, by in ((True, "a1"), (False, "")):
        assert (await run(read(leading, by))).outcome is Outcome.KEPT, by
    for stranger in ("n1", "m0", "a9", "a1, a2"):
        assert (await run(read(True, stranger))).outcome is Outcome.FAILED, stranger
    held = await run(read(True, ""))
    assert "cough" in held.holds[0].detail


async def test_the_second_reading_releases_nothing() -> None:
    engine = Scripted(changed(validator__alignment=judged("neutral")))
    assert (await run({}, engine=engine)).reason is Reason.NOT_ALIGNED
    assert "reader.case" not in [r.task for r in engine.requests]


async def test_a_case_is_written_anew_without_an_element() -> None:
    held = await run(changed(reader__case=honest()["reader.case"] | READINGS[-1][0]))
    respondents = dict.fromkeys(
        ROLES, ReplayEngine(Scripted(changed(controller__write=ALONE)), Memory())
    )
    again = await curate_without_element(
        held, "a2", THREAD, "en", respondents, CurationSettings()
    )
    assert (again.outcome, [e.id for e in again.side(Side.ADVICE)]) == (
        Outcome.KEPT,
        ["a1"],
    )
    assert [c.element_id for c in again.claims] == ["a1"]
    with pytest.raises(UsageError, match="S_align"):
        await curate_without_element(
            again, "a1", THREAD, "en", respondents, CurationSettings()
        )
    with pytest.raises(UsageError, match="a9"):
        await curate_without_element(
            held, "a9", THREAD, "en", respondents, CurationSettings()
        )


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
        Stage.SCREENER,
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
