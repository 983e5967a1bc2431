"""Where the second reading differs from the chain, and what a third voice settles."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from medlive.curation.agent import Agent
from medlive.curation.chain import (
    ROLES,
    CurationSettings,
    curate_without_element,
)
from medlive.curation.model import (
    Alignment,
    Outcome,
    Reason,
    Side,
)
from medlive.curation.second_reading import redact_texts
from medlive.errors import UsageError
from medlive.llm.engine import Engine
from medlive.llm.replay import ReplayEngine
from medlive.llm.rules.engine import RulesEngine
from tests.support.scripted import (
    ALONE,
    THREAD,
    Memory,
    Scripted,
    changed,
    honest,
    judged,
    run,
    voice,
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
    assert (curation.outcome, curation.stage) == (Outcome.HELD, "rubric")
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


@pytest.mark.matrix
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


async def test_two_objections_to_one_advice_are_both_told() -> None:
    wrong = []
    for words in ("the dose", "the kidneys", "more " * 400):
        wrong.append(objection("a2", "harmful") | {"reason": words})
    reading = honest()["reader.case"] | {"wrong": wrong}
    curation = await run(changed(reader__case=reading))
    assert curation.outcome is Outcome.HELD
    [hold] = curation.holds
    assert (hold.reason, hold.elements) == (Reason.ADVICE_HARMFUL, ("a2",))
    assert "the dose" in hold.detail
    assert "the kidneys" in hold.detail
    assert len(hold.detail) == 2000


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


async def test_a_case_that_another_engine_rewrites_is_that_one_s_too() -> None:
    held = await run(changed(reader__case=honest()["reader.case"] | READINGS[-1][0]))
    scripted = ReplayEngine(Scripted(changed(controller__write=ALONE)), Memory())
    respondents: dict[str, Engine] = dict.fromkeys(ROLES, scripted)
    settings = CurationSettings()
    respondents["screener"] = RulesEngine()
    again = await curate_without_element(
        held, "a2", THREAD, "en", respondents, settings
    )
    assert again.publishable  # The screener is not asked
    respondents["reader"] = RulesEngine()
    by_rules = await curate_without_element(
        held, "a2", THREAD, "en", respondents, settings
    )
    assert by_rules.engines["reader"]["engine"] == "rules"
    assert not by_rules.publishable
    respondents["reader"] = scripted
    back = await curate_without_element(
        replace(by_rules, claims=held.claims, elements=held.elements),
        "a2",
        THREAD,
        "en",
        respondents,
        settings,
    )
    assert not back.publishable  # What was judged by rules stays so


async def test_a_name_in_another_spelling_is_replaced_or_reported() -> None:
    texts = {
        "narrative": "In May she worked at the Old Mill Brewery. It may recur.",
        "advice": "OLD MILL BREWERY staff should rest.",
        "c1": "Says that the Old Mill Brewery is to blame.",
    }
    items = [
        {"text_id": "narrative", "words": "Old Mill Brewery", "kind": "place"},
        {"text_id": "narrative", "words": "Brewery", "kind": "place"},
        {"text_id": "advice", "words": "Old Mill Brewery", "kind": "place"},
        {"text_id": "narrative", "words": "May", "kind": "other"},
    ]
    reader = Scripted({"reader.identifiers": {"found": items}})
    copies = {"asked q1": "Is the Old Mill Brewery to blame?"}
    redacted = await redact_texts(texts, Agent(reader, [], "en"), copies)
    assert redacted.texts == {
        "narrative": "In [other] she worked at the [place]. It may recur.",
        "advice": "OLD MILL BREWERY staff should rest.",
        "c1": "Says that the [place] is to blame.",
        "asked q1": "Is the [place] to blame?",
    }
    assert redacted.remaining == ["advice: place"]
    [request] = reader.requests
    assert [shown["id"] for shown in request.inputs["texts"]] == list(texts)
