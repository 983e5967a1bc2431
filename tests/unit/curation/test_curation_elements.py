"""Elements and texts that the thread does not bear out: sent back, dropped, or a reason to hold the case."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from medlive.curation.chain import (
    ROLES,
    CurationSettings,
    curate,
)
from medlive.curation.model import (
    Check,
    ElementStatus,
    Outcome,
    Reason,
    Side,
)
from medlive.llm.replay import ReplayEngine
from tests.support.scripted import (
    THREAD,
    Memory,
    OnePassage,
    Scripted,
    changed,
    honest,
    run,
)


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
