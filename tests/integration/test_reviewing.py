"""Held cases are worked off: listed, shown, approved, rejected, or written anew without an element."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import text

from medlive.config import Settings
from medlive.curation.chain import CurationSettings
from medlive.curation.model import Outcome, Reason
from medlive.db.curation.cases import latest_case
from medlive.db.curation.replies import PostgresReplyStore
from medlive.db.curation.reviews import list_held
from medlive.db.session import Database
from medlive.db.tables.release import ReviewAction
from medlive.db.threads import threads
from medlive.digest import digest_text
from medlive.errors import CheckFailed, EndpointUnavailable, UsageError
from medlive.llm.budget import Budget
from medlive.llm.engine import EngineIdentity
from medlive.llm.limiter import Limiters
from medlive.llm.replay import ReplayEngine
from medlive.service.curation.curate import curate_revision, rescan_cases
from medlive.service.curation.review import decide_case, drop_element
from medlive.service.wiring import CURATION_ROLES, Pipeline
from tests.integration.test_curating_twice import PIPELINE, RUBRIC, Indexed
from tests.support.instance import Instance
from tests.support.scripted import THREAD, Scripted, changed, judged

HARMFUL = {
    "asked": True, "clinical": True, "enough": True, "answered": True, "danger": "", "understandable": True,
    "reason": "a2", "wrong": [{"id": "a2", "kind": "harmful", "reason": "not with this patient"}],
}  # fmt: skip


def written(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """N and A of whatever elements there are."""
    advice = " ".join(e["statement"] for e in inputs["advice"])
    return {"narrative": "Aged 34 years, with a dry cough for 3 weeks.", "advice": advice}


def read(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Objects to a2, where it is there."""
    wrong = HARMFUL["wrong"] if any(e["id"] == "a2" for e in inputs["advice"]) else []
    return {**HARMFUL, "wrong": wrong}


def rubric(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """About the elements that there are."""
    ids = {e["id"] for e in inputs["advice"]}
    facts = [f for f in RUBRIC["facts"] if f["advice_id"] in ids]
    criteria = [c for c in RUBRIC["criteria"] if c["fact_id"] in {f["id"] for f in facts}]
    return {**RUBRIC, "facts": facts, "criteria": criteria}


class Named(Scripted):
    """Another model by its name: what one answered is not replayed for the other."""

    def __init__(self, name: str, script: dict[str, Any]) -> None:
        super().__init__(script)
        self.name = name

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity("openai", self.name, pinned=False)


def pipeline(database: Database, name: str = "m-1", **tasks: Any) -> Pipeline:
    script = changed(
        controller__write=written, reader__case=read, rubric__write=rubric,
        reader__rubric={"problems": [], "life_critical": []}, reader__identifiers={"found": []},
        validator__alignment=judged("supported", "lisinopril often cause a dry cough"),
    )  # fmt: skip
    script |= {task.replace("__", "."): reply for task, reply in tasks.items()}
    respondent = ReplayEngine(Named(name, script), PostgresReplyStore(database))
    return Pipeline(
        database,
        b"key",
        2,
        dict.fromkeys(CURATION_ROLES, respondent), Indexed(), CurationSettings(), PIPELINE, digest_text(name),
        Budget(), Limiters(),
    )  # fmt: skip


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", database_url=SecretStr(database_url))


@pytest.fixture
async def held(database: Database, settings: Settings) -> str:
    """A case that the second reading holds for its second advice."""
    async with database.begin() as session:
        saved = await threads.save_threads(session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))])
    curated = await curate_revision(pipeline(database), saved[0].revision_pk)
    assert curated.outcome is Outcome.HELD
    async with database.begin() as session:
        [waiting] = await list_held(session)
    assert (waiting.reasons, waiting.query) == (
        (Reason.ADVICE_HARMFUL,),
        "What could cause a dry cough for 3 weeks?",
    )
    return waiting.case_id


async def status_of(database: Database, case_id: str) -> str:
    async with database.begin() as session:
        return str(await session.scalar(text("SELECT status FROM cases WHERE id = :i"), {"i": case_id}))


async def test_an_approved_case_is_ready_and_may_not_be_decided_again(database: Database, held: str) -> None:
    with pytest.raises(UsageError, match="reason"):
        await decide_case(database, held, ReviewAction.APPROVE, " ")
    done = await decide_case(database, held, ReviewAction.APPROVE, "Checked with the label.", by="Bo")
    assert (done.reason, done.decided_by) == ("Checked with the label.", "Bo")
    assert await status_of(database, held) == "ready"
    for again in (ReviewAction.APPROVE, ReviewAction.REJECT):
        with pytest.raises(CheckFailed, match="ready, not held"):
            await decide_case(database, held, again, "x")


async def test_a_rejected_case_stays_out_while_its_content_is_the_same(database: Database, held: str) -> None:
    await decide_case(database, held, ReviewAction.REJECT, "Out of date.")
    assert await status_of(database, held) == "rejected"
    async with database.begin() as session:
        assert await list_held(session) == []
        case = await latest_case(session, held)
        assert case is not None
    for refused in ("UPDATE reviews SET reason = 'else'", "DELETE FROM reviews", "DELETE FROM holds"):
        with pytest.raises(Exception, match="refused"):
            async with database.begin() as session:
                await session.execute(text(refused))
    await decide_case(database, held, ReviewAction.APPROVE, "It is right after all.")
    assert await status_of(database, held) == "ready"


async def test_a_case_is_written_anew_without_an_element(
    database: Database, settings: Settings, held: str
) -> None:
    with pytest.raises(UsageError, match="no advice element a9"):
        await drop_element(pipeline(database), held, "a9", "x")
    with pytest.raises(EndpointUnavailable, match="could not be rewritten"):
        await drop_element(pipeline(database, controller__write="rubbish"), held, "a2", "x")
    assert await status_of(database, held) == "held"
    curation = await drop_element(pipeline(database), held, "a2", "Harmful here.")
    assert curation.outcome is Outcome.KEPT
    assert await status_of(database, held) == "ready"
    async with database.begin() as session:
        case = await latest_case(session, held)
    assert case.revision == 2
    assert case.text.advice == "Lisinopril can cause a dry cough."
    assert {c.advice_id for c in case.rubric.criteria} == {"a1"}
    with pytest.raises(CheckFailed, match="ready, not held"):
        await drop_element(pipeline(database), held, "a1", "x")


async def test_a_case_cannot_do_without_its_only_supported_advice(database: Database, settings: Settings) -> None:
    def one(inputs: Mapping[str, Any]) -> dict[str, Any]:
        quotes = [{"passage_id": "p1", "quotes": ["lisinopril often cause a dry cough"]}]
        return {
            "verdicts": [
                {"id": c["id"], "verdict": "supported" if c["id"] == "a2" else "neutral",
                 "evidence": quotes if c["id"] == "a2" else [], "reason": "r"}
                for c in inputs["claims"]
            ]
        }  # fmt: skip

    async with database.begin() as session:
        saved = await threads.save_threads(session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))])
    lone = pipeline(database, validator__alignment=one)
    await curate_revision(lone, saved[0].revision_pk)
    async with database.begin() as session:
        [waiting] = await list_held(session)
    with pytest.raises(UsageError, match=r"S_align is 0\.500"):
        await drop_element(lone, waiting.case_id, "a2", "x")


async def test_ready_cases_are_scanned_again_when_the_look_for_identifiers_changes(
    database: Database, held: str
) -> None:
    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    assert (await rescan_cases(pipeline(database)))["cases"] == 0
    finds = {"found": [{"text_id": "narrative", "words": "dry cough", "kind": "name"}]}
    new = pipeline(database, "m-2", reader__identifiers=finds)
    done = await rescan_cases(new)
    assert done == {"cases": 1, "redacted": 1, "failed": 0}
    async with database.begin() as session:
        case = await latest_case(session, held)
        assert case is not None
        # The same words are gone from every text.
        assert "dry cough" not in f"{case.text.narrative}{case.text.query}{case.text.advice}"
        assert all("dry cough" not in c.criterion for c in case.rubric.criteria)
    assert await status_of(database, held) == "ready"
    assert (await rescan_cases(new))["cases"] == 0


async def test_the_commands(database: Database, database_url: str, tmp_path: Path, held: str) -> None:
    instance = Instance(tmp_path, database_url)

    def work() -> None:
        [listed] = instance.here("review", "list", "--json").json
        assert (listed["case_id"], listed["reasons"]) == (held, ["advice_harmful"])
        assert instance.here("review", "list", "--reason", "not_standard", "--json").json == []
        shown = instance.here("review", "show", held).out
        for told in (
            "a2 harmful",
            "not with this patient",
            "Lisinopril can cause a dry cough",
            "dry cough for 3 weeks",
        ):
            assert told in " ".join(shown.split())
        assert "--reason" in instance.here("review", "approve", held, status=2).err
        instance.here("review", "approve", held, "--reason", "Checked.", "--by", "Bo")
        assert instance.here("review", "list", "--json").json == []
        assert "Checked." in instance.here("review", "show", held).out

    await asyncio.to_thread(work)
