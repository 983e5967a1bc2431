"""Rejected threads: overruled, listed with the evidence, and what engines were asked about them."""

import asyncio
import csv
import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from medlive.db.curation.cases import latest_case
from medlive.db.curation.funnel import funnel
from medlive.db.session import Database
from medlive.db.tables.release import ReviewAction
from medlive.db.threads import threads
from medlive.errors import CheckFailed, UsageError
from medlive.filters.codebooks import load_codebook
from medlive.filters.model import FilterSettings
from medlive.filters.rules import FilterChain
from medlive.integrity.digest import digest_text
from medlive.service.curation.curate import curate_revision
from medlive.service.curation.filtering import filter_pending
from medlive.service.curation.review import (
    decide_case,
    drop_element,
    overrule_rejection,
)
from medlive.threads.model import Message
from tests.support.instance import Instance
from tests.support.reviewing import (
    HARMFUL,
    contradicting,
    drain,
    pipeline,
    status_of,
)
from tests.support.scripted import THREAD, changed
from tests.support.triggers import refused_by_trigger


async def test_an_overruled_thread_goes_on_and_is_in_the_next_snapshot(
    database: Database, database_url: str, tmp_path: Path, rejected: int
) -> None:
    instance = Instance(tmp_path, database_url)
    command = (
        "review",
        "overrule",
        "test/1",
        "--reason",
        "The passage is of 1990.",
        "--by",
        "Bo",
    )
    second = ("review", "overrule", "test/1", "--reason", "Withdrawn since.", "--by")
    [unnamed, first, same, agreed] = await asyncio.to_thread(
        lambda: [
            instance.here(*second[:-1], status=2),
            instance.here(*command),
            instance.here(*command, status=1),
            instance.here(*second, "Cy"),
        ]
    )
    assert "--by says who you are" in unnamed.err
    assert "still rejected for contradicted" in first.out
    assert "a second person has to agree" in same.err
    assert "no longer rejected for contradicted" in agreed.out
    assert (
        "overruled already"
        in (await asyncio.to_thread(lambda: instance.here(*command, status=1))).err
    )
    assert await drain(contradicting(database)) == {"kept": 1}

    def work() -> None:
        shown = instance.here("thread", "show", "test/1", "--json").json
        assert shown["curation"]["overruled"] == ["contradicted"]
        assert {c["verdict"] for c in shown["curation"]["claims"]} == {"contradicted"}
        reasons = "The passage is of 1990.; Withdrawn since."
        assert "; ".join(o["reason"] for o in shown["overruled"]) == reasons
        [listed] = instance.here("case", "list", "--overruled", "--json").json["rows"]
        assert listed["overruled"] == reasons
        done = instance.here("snapshot", "freeze", "--week", "2026.W03", "--json").json
        assert done["cases"] == 1
        folder = Path(done["path"])
        row = json.loads((folder / "data" / "cases.jsonl").read_text())
        assert row["overruled"] == reasons
        card = (folder / "README.md").read_text()
        assert "vetoes of the evidence that people overruled" in card
        instance.here("snapshot", "verify", folder)
        assert "kept, not rejected" in instance.here(*command, status=1).err

    await asyncio.to_thread(work)
    assert await drain(contradicting(database)) == {}
    with refused_by_trigger():
        async with database.begin() as session:
            await session.execute(text("DELETE FROM overrules"))


async def test_a_case_is_held_where_its_thread_becomes_unsafe(
    database: Database,
) -> None:
    posted = replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))
    async with database.begin() as session:
        saved = await threads.save_threads(session, [posted])
    harmless = pipeline(database, reader__case={**HARMFUL, "wrong": []})
    await curate_revision(harmless, saved[0].revision_pk)
    insult = Message("m9", "a", "patient", False, "I hate all immigrants.")
    edited = replace(posted, messages=(*posted.messages, insult))
    chain = FilterChain(FilterSettings(posted_before=date(2030, 1, 1)), load_codebook())
    for thread, status in ((posted, "ready"), (edited, "held")):
        async with database.begin() as session:
            await threads.save_threads(session, [thread])
        assert await filter_pending(database, chain) == (0, 1)
        async with database.begin() as session:
            case_id = await session.scalar(text("SELECT id FROM cases"))
        assert await status_of(database, case_id) == status


async def test_one_person_does_not_approve_what_was_vetoed_since(
    database: Database,
) -> None:
    async with database.begin() as session:
        saved = await threads.save_threads(
            session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
    revision = saved[0].revision_pk
    await curate_revision(pipeline(database), revision)
    async with database.begin() as session:
        case_id = await session.scalar(text("SELECT id FROM cases"))
    vetoing = replace(contradicting(database, "m-2"), digest=digest_text("later"))
    decided = await curate_revision(vetoing, revision)
    assert decided
    assert decided.reason == "contradicted"
    with pytest.raises(CheckFailed, match="contradicts its advice"):
        await decide_case(database, case_id, ReviewAction.APPROVE, "Fine.")
    with pytest.raises(CheckFailed, match="contradicts its advice"):
        await drop_element(vetoing, case_id, "a1", "It is wrong.")
    assert await status_of(database, case_id) == "held"
    for by in ("Bo", "Cy"):
        await overrule_rejection(database, "test", "1", "Old passage.", by=by)
    await curate_revision(vetoing, revision)
    async with database.begin() as session:
        case = await latest_case(session, case_id)
    assert case
    assert case.overruled == "Old passage."


async def test_an_overruled_thread_whose_curation_failed_is_tried_again(
    database: Database, rejected: int
) -> None:
    await overrule_rejection(database, "test", "1", "Old passage.", people=1)
    rubbish = contradicting(database, controller__write="rubbish")
    assert await drain(rubbish) == {"failed": 1}
    # No more often than any other thread.
    assert await drain(contradicting(database)) == {}
    assert await drain(contradicting(database), max_attempts=2) == {"kept": 1}


async def test_overruling_one_reason_leaves_the_others(
    database: Database, rejected: int
) -> None:
    """A thread without an answer cannot be made into a case by anybody's word."""
    with pytest.raises(UsageError):
        await overrule_rejection(database, "test", "2", "x")
    await overrule_rejection(database, "test", "1", "Old passage.", people=1)
    silent = changed(screener__extract={"narrative": [], "query": None, "advice": []})[
        "screener.extract"
    ]
    assert await drain(contradicting(database, "m-2", screener__extract=silent)) == {
        "rejected": 1
    }
    with pytest.raises(CheckFailed):
        await overrule_rejection(database, "test", "1", "x", people=1)


async def test_a_verdict_of_the_filters_is_overruled(database: Database) -> None:
    async with database.begin() as session:
        saved = await threads.save_threads(
            session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
        values = {"r": saved[0].revision_pk, "c": digest_text("chain")}
        await session.execute(
            text(
                "INSERT INTO filter_results (revision_id, chain_digest, passed, rejected_by, reason)"
                " VALUES (:r, :c, false, 'codebook', 'no_codebook_term')"
            ),
            values,
        )
    entry, _ = await overrule_rejection(database, "test", "1", "A cough is clinical.")
    assert (entry.curation_id, entry.overruled) == (None, "no_codebook_term")
    async with database.begin() as session:
        [row] = await funnel(session)
    assert (row.stage, row.outcome) == ("screener", "pending")
    assert await drain(pipeline(database, reader__case={**HARMFUL, "wrong": []})) == {
        "kept": 1
    }


async def test_the_lists_say_what_was_rejected_for_contradiction_and_on_what_evidence(
    database: Database, database_url: str, tmp_path: Path, rejected: int
) -> None:
    instance = Instance(tmp_path, database_url)
    asked = (
        "thread",
        "list",
        "--stage",
        "validator",
        "--reason",
        "contradicted",
        "--week",
        "this",
    )

    def work() -> None:
        [row] = instance.here(*asked, "--json").json["rows"]
        assert (row["source"], row["thread_id"], row["outcome"]) == (
            "test",
            "1",
            "rejected",
        )
        words = "demo:1:0: lisinopril often cause a dry cough"
        assert row["evidence"] == [f"a1: {words}", f"a2: {words}"]
        assert "demo:1:0: lisinopril" in instance.here(*asked).out
        for other in (
            ("--week", "last"),
            ("--source", "else"),
            ("--text", "headache"),
            ("--status", "ready"),
        ):
            assert instance.here("thread", "list", *other, "--json").json["rows"] == []
        assert instance.here("thread", "list", "--text", "dry cough", "--json").json[
            "rows"
        ] == [row]
        assert instance.here("case", "list", "--json").json["rows"] == []
        lines = list(csv.DictReader(io.StringIO(instance.here(*asked, "--csv").out)))
        assert [line["reason"] for line in lines] == ["contradicted"]
        assert (
            "an ISO week"
            in instance.here("thread", "list", "--week", "2026.W60", status=2).err
        )

    await asyncio.to_thread(work)


async def test_a_request_is_shown_as_it_was_sent_and_the_week_says_what_it_cost(
    database: Database, database_url: str, tmp_path: Path, rejected: int
) -> None:
    instance = Instance(tmp_path, database_url)
    async with database.begin() as session:
        same = (
            "task, prompt_digest, engine, model, parameters, inputs, schema_digest, text, finish, reply_model,"
            " input_tokens, cached_tokens, output_tokens, latency_ms"
        )
        await session.execute(  # One that no decision used and nobody knows the price of
            text(
                f"INSERT INTO replies (request_digest, {same}) SELECT :d, {same} FROM replies"
                " WHERE task = 'validator.alignment'"
            ),
            {"d": digest_text("lost")},
        )
        found = await session.execute(
            text(
                "SELECT request_digest, prompt_digest FROM replies WHERE task = 'validator.query'"
            )
        )
        request, prompt = found.one()

    def work() -> None:
        shown = instance.here("prompt", "show", request, "--json").json
        assert [m["role"] for m in shown["messages"]] == ["system", "user"]
        assert (
            "What could cause a dry cough for 3 weeks?"
            in shown["messages"][1]["content"]
        )
        assert json.loads(shown["reply"]["text"])["category"] == "diagnosis"
        template = instance.here("prompt", "show", "validator.query", "--json").json
        assert template["digest"] == prompt
        assert shown["messages"][0]["content"] == template["text"]
        assert instance.here("prompt", "show", prompt[7:30], "--json").json == template
        assert (
            "names no task" in instance.here("prompt", "show", "sha256:", status=2).err
        )
        spent = {
            (s["by"], s["name"]): s
            for s in instance.here("cost", "--week", "this", "--json").json["spent"]
        }
        assert spent["source", "test"]["replies"] == spent["all", ""]["replies"] - 1
        assert (spent["source", ""]["replies"], spent["source", ""]["cost_usd"]) == (
            1,
            None,
        )
        assert (spent["all", ""]["cost_usd"], spent["all", ""]["unpriced"]) == (None, 1)
        assert spent["source", "test"]["cost_usd"] == 0.0
        assert spent["task", "validator.query"]["replies"] == 1
        assert [
            s["replies"]
            for s in instance.here("cost", "--week", "last", "--json").json["spent"]
        ] == [0]

    await asyncio.to_thread(work)
