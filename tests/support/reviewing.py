"""A thread that is held, and one that is rejected, by scripted engines."""

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
from medlive.db.curation.replies import PostgresReplyStore
from medlive.db.curation.reviews import list_held
from medlive.db.session import Database
from medlive.db.threads import threads
from medlive.integrity.digest import digest_text
from medlive.llm.budget import Budget
from medlive.llm.engine import EngineIdentity
from medlive.llm.replay import ReplayEngine
from medlive.service.curation.curate import curate_queued, curate_revision, queue_again
from medlive.service.wiring import CURATION_ROLES, Pipeline
from tests.integration.test_curating_twice import PIPELINE, RUBRIC, Indexed
from tests.support.prepared import Prepared
from tests.support.scripted import (
    KIND,
    THREAD,
    Scripted,
    changed,
    curation_settings,
    judged,
    second_look,
)

HARMFUL = {
    "asked": True,
    "clinical": True,
    "enough": True,
    "answered": True,
    "danger": "",
    "sure": True,
    "unseen": [],
    "damaged": [],
    "understandable": True,
    "reason": "a2",
    "wrong": [
        {
            "id": "a2",
            "kind": "harmful",
            "reason": "not with this patient",
            "standard": "a label",
            "sure": True,
        }
    ],
}


def written(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """N and A of whatever elements there are."""
    advice = " ".join(e["statement"] for e in inputs["advice"])
    return {
        "narrative": "Aged 34 years, with a dry cough for 3 weeks.",
        "advice": advice,
    }


def read(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Objects to a2, where it is there."""
    wrong = HARMFUL["wrong"] if any(e["id"] == "a2" for e in inputs["advice"]) else []
    return {**HARMFUL, "wrong": wrong}


def rubric(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """About the elements that there are."""
    ids = {e["id"] for e in inputs["advice"]}
    facts = [f for f in RUBRIC["facts"] if f["advice_id"] in ids]
    criteria = [
        c for c in RUBRIC["criteria"] if c["fact_id"] in {f["id"] for f in facts}
    ]
    habit = {"fact": "Tea soothes.", "advice_id": min(ids), "reason": "trivial"}
    return {**RUBRIC, "facts": facts, "criteria": criteria, "left_out": [habit]}


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
        controller__write=written,
        reader__case=read,
        rubric__write=rubric,
        reader__rubric={"problems": [], "life_critical": []},
        reader__identifiers={"found": []},
        rubric__complete={"points": []},
        rubric__classify=KIND,
        validator__alignment=judged("supported", "lisinopril often cause a dry cough"),
    )
    script |= {task.replace("__", "."): reply for task, reply in tasks.items()}
    respondent = ReplayEngine(Named(name, script), PostgresReplyStore(database))
    return Pipeline(
        database=database,
        settings=curation_settings(concurrency=2),
        key=b"key",
        respondents=dict.fromkeys(CURATION_ROLES, respondent),
        retriever=Indexed(),
        curation=CurationSettings(),
        digest=PIPELINE,
        scanner=digest_text(name),
        budget=Budget(),
    )


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", database_url=SecretStr(database_url))


async def hold(database: Database) -> str:
    """Make a case that the second reading holds for its second advice."""
    async with database.begin() as session:
        saved = await threads.save_threads(
            session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
    curated = await curate_revision(pipeline(database), saved[0].revision_pk)
    assert curated.outcome is Outcome.HELD
    async with database.begin() as session:
        [waiting] = await list_held(session)
    assert (waiting.reasons, waiting.query) == (
        [Reason.ADVICE_HARMFUL],
        "What could cause a dry cough for 3 weeks?",
    )
    return waiting.case_id


@pytest.fixture
def held(prepared: Prepared) -> str:
    """The case that `hold` has made."""
    return str(prepared.made)


async def status_of(database: Database, case_id: str) -> str:
    async with database.begin() as session:
        return str(
            await session.scalar(
                text("SELECT status FROM cases WHERE id = :i"), {"i": case_id}
            )
        )


def contradicting(database: Database, name: str = "m-1", **tasks: Any) -> Pipeline:
    """A pipeline whose validator finds evidence against every claim, twice."""
    evidence = [{"passage_id": "p1", "quotes": ["lisinopril often cause a dry cough"]}]
    veto = lambda inputs: {  # noqa: E731
        "verdicts": [
            second_look(c["id"], false=evidence, reason="says else")
            for c in inputs["claims"]
        ]
    }
    against = judged("contradicted", "lisinopril often cause a dry cough")
    return pipeline(
        database,
        name,
        validator__alignment=against,
        validator__veto=veto,
        reader__case={**HARMFUL, "wrong": []},
        **tasks,
    )


async def reject(database: Database) -> int:
    """Make a thread that the validator rejects for contradiction; its revision."""
    async with database.begin() as session:
        saved = await threads.save_threads(
            session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
    curated = await curate_revision(contradicting(database), saved[0].revision_pk)
    assert (curated.outcome, curated.reason) == (Outcome.REJECTED, Reason.CONTRADICTED)
    return saved[0].revision_pk


@pytest.fixture
def rejected(prepared: Prepared) -> int:
    """The revision that `reject` has made."""
    return int(prepared.made)


async def drain(pipeline: Pipeline, max_attempts: int = 1) -> dict[str, int]:
    """What the queued jobs and those that a run queues by itself come to."""
    await queue_again(pipeline, digest_text("chain"), max_attempts=max_attempts)
    return dict((await curate_queued(pipeline)).outcomes)
