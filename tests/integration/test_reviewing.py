"""What people decide: held cases approved, rejected, edited, or rewritten; rejected threads overruled; frozen."""

import asyncio
import csv
import io
import json
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
from medlive.db.curation.cases import latest_case, lock_case, set_status
from medlive.db.curation.funnel import funnel
from medlive.db.curation.replies import PostgresReplyStore
from medlive.db.curation.reviews import list_held, reviews_of
from medlive.db.session import Database
from medlive.db.tables.release import CaseStatus, ReviewAction
from medlive.db.threads import threads
from medlive.digest import digest_text
from medlive.errors import CheckFailed, EndpointUnavailable, UsageError
from medlive.evaluation.protocols.pairs import read_pairs
from medlive.llm.budget import Budget
from medlive.llm.engine import EngineIdentity
from medlive.llm.limiter import Limiters
from medlive.llm.replay import ReplayEngine
from medlive.service.curation.curate import curate_queued, curate_revision, queue_again, rescan_cases
from medlive.service.curation.review import (
    CaseEdit,
    CriterionEdit,
    decide_case,
    drop_element,
    edit_case,
    load_edit,
    overrule_rejection,
)
from medlive.service.jobs import open_app
from medlive.service.wiring import CURATION_ROLES, Pipeline
from tests.integration.test_curating_twice import PIPELINE, RUBRIC, Indexed
from tests.support.instance import Instance
from tests.support.scripted import KIND, THREAD, Scripted, changed, judged

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
        rubric__classify=KIND, validator__alignment=judged("supported", "lisinopril often cause a dry cough"),
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
    with pytest.raises(CheckFailed, match="ready, not held"):
        await decide_case(database, held, ReviewAction.APPROVE, "x")
    # A ready case may be taken back; what was decided before stays on record.
    await decide_case(database, held, ReviewAction.REJECT, "Not after all.")
    assert await status_of(database, held) == "rejected"
    async with database.begin() as session:
        assert [r.action for r in await reviews_of(session, held)] == [ReviewAction.APPROVE, ReviewAction.REJECT]


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
        [low] = instance.here("case", "compare", "--json", "--pairs", tmp_path / "pairs.jsonl").json
        assert (low["case_id"], low["figure"]) == (held, 100)
        assert "100" in instance.here("case", "compare").out
        assert "no snapshot 2026.W01" in instance.here("case", "compare", "2026.W01", status=2).err
        [pair] = read_pairs(tmp_path / "pairs.jsonl")
        assert [c.case_id for c in pair.cases] == [held]
        assert "I have had a dry cough" in pair.cases[0].advice
        assert "Aged 34 years" in pair.answers[held].response
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
        instance.here("review", "confirm", held, "--reason", "Indeed.", "--by", "Bo")
        assert "kept" not in instance.here("review", "confirm", "test/1", "--reason", "No.", status=1).out
        done = instance.here("review", "redact", held, "dry cough", "--reason", "Words.", "--by", "Bo")
        assert "revision 2" in done.out
        assert "dry cough" not in str(instance.here("review", "edit", held).json)
        assert "1 cases were not compared, or edited since" in instance.here("case", "compare").err
        log = instance.here("audit", "log", "--json").json
        assert [(e["action"], e["by"]) for e in reversed(log)] == [
            ("approve", "Bo"), ("confirm", "Bo"), ("redact", "Bo")
        ]  # fmt: skip

    await asyncio.to_thread(work)


async def test_a_stage_is_run_again_and_the_decision_before_stays(
    database: Database, database_url: str, tmp_path: Path, held: str
) -> None:
    instance = Instance(tmp_path, database_url)
    command = ("review", "curate-again", held, "--reason", "It overlooked a passage.", "--by", "Bo")

    def shown(*options: str) -> dict[str, Any]:
        return instance.here("case", "show", held, *options, "--json").json

    def ask() -> None:
        instance.here(*command, "--stage", "rubric", status=2)
        instance.here(*command, "--stage", "validator")

    await asyncio.to_thread(ask)
    # A run that fails is done again by the next one, and then no more.
    assert await drain(pipeline(database, validator__query="rubbish")) == {"failed": 1}
    assert await drain(pipeline(database, reader__case={**HARMFUL, "wrong": []})) == {"kept": 1}
    assert await drain(pipeline(database)) == {}

    def work() -> None:
        latest = shown()
        numbers = {d["outcome"]: d["number"] for d in latest["decisions"]}
        assert list(numbers) == ["kept", "failed", "held"]
        assert (latest["case"]["status"], latest["decided"]["number"]) == ("ready", numbers["kept"])
        first = shown("--decision", str(numbers["held"]))
        assert (first["curation"]["outcome"], first["curation"]["reason"]) == ("held", "advice_harmful")
        asked, before = (
            {c["request_digest"]: c["task"] for c in one["curation"]["calls"] if c["outcome"] == "ok"}
            for one in (latest, first)
        )
        assert {asked[digest] for digest in asked.keys() & before.keys()} == {"screener.extract"}
        assert {"validator.query", "controller.write", "reader.case", "rubric.write"} <= set(asked.values())
        assert "no decision 77" in instance.here("case", "show", held, "--decision", "77", status=2).err
        instance.here(*command)

    await asyncio.to_thread(work)
    assert await drain(pipeline(database)) == {}


async def test_a_held_case_is_edited_approved_and_in_the_next_snapshot(
    database: Database, database_url: str, tmp_path: Path, held: str
) -> None:
    instance = Instance(tmp_path, database_url)

    def work() -> dict[str, Any]:
        draft = instance.here("review", "edit", held).json
        assert [c["id"] for c in draft["criteria"]] == ["c1", "c2", "c3"]
        kept, changed, new = draft["criteria"][0], {**draft["criteria"][2], "points": -9}, {**draft["criteria"][0]}
        new |= {"id": None, "criterion": "Names lisinopril as the cause.", "points": 3}
        file = tmp_path / "edit.json"
        file.write_text(json.dumps({"query": "Why do I cough?", "criteria": [kept, changed, new]}))
        assert "reason" in instance.here("review", "edit", held, "--file", file, status=2).err
        instance.here("review", "edit", held, "--file", file, "--reason", "Too long.", "--by", "Bo")
        assert instance.here("review", "list", "--json").json[0]["revision"] == 2
        shown = instance.here("review", "show", held).out
        assert "Too long." in shown
        assert "difficulty medium, register lay" in shown
        by_hand = ("review", "edit", held, "--reason", "Two drugs interact.", "--by", "Ann")
        instance.here(*by_hand, "--file", file, "--difficulty", "high", status=2)
        instance.here(*by_hand, "--difficulty", "high", "--register", "professional")
        instance.here(*by_hand, "--register", "lay")  # another edit undoes one
        log = instance.here("case", "show", held, "--json").json
        assert (log["case"]["difficulty"], log["case"]["dialogue_register"]) == ("high", "lay")
        assert [r["decided_by"] for r in log["reviews"]] == ["Bo", "Ann", "Ann"]
        instance.here("review", "approve", held, "--reason", "Fine now.")
        done = instance.here("snapshot", "freeze", "--week", "2026.W03", "--json").json
        assert (done["cases"], done["criteria"]) == (1, 3)
        return {p.name: p.read_text() for p in (Path(done["path"]) / "data").glob("*.jsonl")}

    files = await asyncio.to_thread(work)
    row = json.loads(files["cases.jsonl"])
    assert [row[name] for name in ("query", "difficulty", "dialogue_register")] == [
        "Why do I cough?",
        "high",
        "lay",
    ]
    criteria = [json.loads(line) for line in files["criteria.jsonl"].splitlines()]
    assert [(c["criterion_id"].removeprefix(f"{held}-"), c["points"]) for c in criteria] == [
        ("c1", 6), ("c3", -9), ("c4", 3)
    ]  # fmt: skip


async def test_an_edit_that_the_linter_refuses_changes_nothing(database: Database, held: str) -> None:
    now = await load_edit(database, held)
    assert now.criteria is not None
    first = now.criteria[0]
    for refused, match in (
        (CaseEdit(criteria=(first,)), "1 criteria, at least 2"),
        (CaseEdit(criteria=(first, first)), "repeated criterion c1"),
        (CaseEdit(criteria=(*now.criteria, CriterionEdit(**{**first.model_dump(), "id": "c9"}))), "c9"),
        (CaseEdit(criteria=(first, first.model_copy(update={"id": None, "advice_id": "a7"}))), "advice element"),
        (CaseEdit(specialty="Astrology"), "unknown specialty"),
        (now, "nothing in case"),
    ):
        with pytest.raises(UsageError, match=match):
            await edit_case(database, held, refused, "x")
    async with database.begin() as session:
        assert (await latest_case(session, held)).revision == 1
        assert await reviews_of(session, held) == []


async def test_what_a_person_edited_is_not_replaced_in_silence(database: Database, held: str) -> None:
    await edit_case(database, held, CaseEdit(query="Why do I cough?"), "Shorter.")
    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    async with database.begin() as session:
        revision = await session.scalar(text("SELECT revision_id FROM curations"))
    harmless = {**HARMFUL, "wrong": []}
    curated = await curate_revision(
        replace(pipeline(database, "m-2", reader__case=harmless), digest=digest_text("x")), revision
    )
    assert curated.outcome is Outcome.KEPT
    assert await status_of(database, held) == "held"
    async with database.begin() as session:
        assert "a person edited it" in (await list_held(session))[0].status_reason


async def test_a_review_and_a_decision_about_one_case_take_turns(database: Database, held: str) -> None:
    """Both change the case and where its thread stands: in one order, or each would wait for the other."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    async with database.begin() as session:
        revision = await session.scalar(text("SELECT revision_id FROM curations"))
    other = replace(pipeline(database, "m-2"), digest=digest_text("x"))
    async with database.begin() as session:
        await lock_case(session, held)
        deciding = asyncio.create_task(curate_revision(other, revision))
        while not await session.scalar(waiting):
            await session.execute(text("SELECT pg_sleep(0.05)"))
        await set_status(session, held, CaseStatus.REJECTED, "rejected by a person: x")
    assert (await deciding).outcome is Outcome.HELD
    async with database.begin() as session:
        standing = await session.execute(text("SELECT status, outcome FROM thread_standings"))
    assert standing.all() == [("held", "held")]


def contradicting(database: Database, name: str = "m-1", **tasks: Any) -> Pipeline:
    """A pipeline whose validator finds evidence against every claim, twice."""
    evidence = [{"passage_id": "p1", "quotes": ["lisinopril often cause a dry cough"]}]
    veto = lambda inputs: {  # noqa: E731
        "verdicts": [
            {"id": c["id"], "goes_against": True, "evidence": evidence, "reason": "says else"}
            for c in inputs["claims"]
        ]
    }
    against = judged("contradicted", "lisinopril often cause a dry cough")
    return pipeline(
        database, name, validator__alignment=against, validator__veto=veto,
        reader__case={**HARMFUL, "wrong": []}, **tasks,
    )  # fmt: skip


@pytest.fixture
async def rejected(database: Database) -> int:
    """The revision of a thread that the validator rejected for contradiction."""
    async with database.begin() as session:
        saved = await threads.save_threads(session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))])
    curated = await curate_revision(contradicting(database), saved[0].revision_pk)
    assert (curated.outcome, curated.reason) == (Outcome.REJECTED, Reason.CONTRADICTED)
    return saved[0].revision_pk


async def drain(pipeline: Pipeline) -> dict[str, int]:
    """What the queued jobs and those that a run queues by itself come to."""
    async with open_app(pipeline.database).open_async() as app:
        await queue_again(app, pipeline, digest_text("chain"), max_attempts=1)
        return dict((await curate_queued(app, pipeline)).outcomes)


async def test_an_overruled_thread_goes_on_and_is_in_the_next_snapshot(
    database: Database, database_url: str, tmp_path: Path, rejected: int
) -> None:
    instance = Instance(tmp_path, database_url)
    command = ("review", "overrule", "test/1", "--reason", "The passage is of 1990.", "--by", "Bo")
    told = await asyncio.to_thread(lambda: instance.here(*command))
    assert "contradicted" in told.out
    assert "overruled already" in (await asyncio.to_thread(lambda: instance.here(*command, status=1))).err
    assert await drain(contradicting(database)) == {"kept": 1}

    def work() -> None:
        shown = instance.here("thread", "show", "test/1", "--json").json
        assert shown["curation"]["overruled"] == ["contradicted"]
        assert {c["verdict"] for c in shown["curation"]["claims"]} == {"contradicted"}
        assert [o["reason"] for o in shown["overruled"]] == ["The passage is of 1990."]
        assert instance.here("snapshot", "freeze", "--week", "2026.W03", "--json").json["cases"] == 1
        assert "kept, not rejected" in instance.here(*command, status=1).err

    await asyncio.to_thread(work)
    assert await drain(contradicting(database)) == {}
    with pytest.raises(Exception, match="refused"):
        async with database.begin() as session:
            await session.execute(text("DELETE FROM overrules"))


async def test_an_overruled_thread_whose_curation_failed_is_tried_again(database: Database, rejected: int) -> None:
    await overrule_rejection(database, "test", "1", "Old passage.")
    assert await drain(contradicting(database, controller__write="rubbish")) == {"failed": 1}
    assert await drain(contradicting(database)) == {"kept": 1}


async def test_overruling_one_reason_leaves_the_others(database: Database, rejected: int) -> None:
    """A thread without an answer cannot be made into a case by anybody's word."""
    with pytest.raises(UsageError, match="unknown thread"):
        await overrule_rejection(database, "test", "2", "x")
    await overrule_rejection(database, "test", "1", "Old passage.")
    silent = changed(screener__extract={"narrative": [], "query": None, "advice": []})["screener.extract"]
    assert await drain(contradicting(database, "m-2", screener__extract=silent)) == {"rejected": 1}
    with pytest.raises(CheckFailed, match="lacks what a case is made of"):
        await overrule_rejection(database, "test", "1", "x")


async def test_a_verdict_of_the_filters_is_overruled(database: Database) -> None:
    async with database.begin() as session:
        saved = await threads.save_threads(session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))])
        values = {"r": saved[0].revision_pk, "c": digest_text("chain")}
        await session.execute(
            text(
                "INSERT INTO filter_results (revision_id, chain_digest, passed, rejected_by, reason)"
                " VALUES (:r, :c, false, 'codebook', 'no_codebook_term')"
            ),
            values,
        )
    done = await overrule_rejection(database, "test", "1", "A cough is clinical.")
    assert (done.curation_id, done.overruled) == (None, "no_codebook_term")
    async with database.begin() as session:
        [row] = await funnel(session)
    assert (row.stage, row.outcome) == ("screener", "pending")
    assert await drain(pipeline(database, reader__case={**HARMFUL, "wrong": []})) == {"kept": 1}


async def test_the_lists_say_what_was_rejected_for_contradiction_and_on_what_evidence(
    database: Database, database_url: str, tmp_path: Path, rejected: int
) -> None:
    instance = Instance(tmp_path, database_url)
    asked = ("thread", "list", "--stage", "validator", "--reason", "contradicted", "--week", "this")

    def work() -> None:
        [row] = instance.here(*asked, "--json").json["rows"]
        assert (row["source"], row["thread_id"], row["outcome"]) == ("test", "1", "rejected")
        words = "demo:1:0: lisinopril often cause a dry cough"
        assert row["evidence"] == [f"a1: {words}", f"a2: {words}"]
        assert "demo:1:0: lisinopril" in instance.here(*asked).out
        for other in (("--week", "last"), ("--source", "else"), ("--text", "headache"), ("--status", "ready")):
            assert instance.here("thread", "list", *other, "--json").json["rows"] == []
        assert instance.here("thread", "list", "--text", "dry cough", "--json").json["rows"] == [row]
        assert instance.here("case", "list", "--json").json["rows"] == []
        lines = list(csv.DictReader(io.StringIO(instance.here(*asked, "--csv").out)))
        assert [line["reason"] for line in lines] == ["contradicted"]
        counts = instance.here(*asked, "--counts", "--json").json
        assert (counts["total"], counts["facets"]["outcome"]) == (1, {"rejected": 1})
        assert "an ISO week" in instance.here("thread", "list", "--week", "2026.W60", status=2).err

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
            text("SELECT request_digest, prompt_digest FROM replies WHERE task = 'validator.query'")
        )
        request, prompt = found.one()

    def work() -> None:
        shown = instance.here("prompt", "show", request, "--json").json
        assert [m["role"] for m in shown["messages"]] == ["system", "user"]
        assert "What could cause a dry cough for 3 weeks?" in shown["messages"][1]["content"]
        assert json.loads(shown["reply"]["text"])["category"] == "diagnosis"
        template = instance.here("prompt", "show", "validator.query", "--json").json
        assert template["digest"] == prompt
        assert shown["messages"][0]["content"] == template["text"]
        assert instance.here("prompt", "show", prompt[7:30], "--json").json == template
        assert "names no task" in instance.here("prompt", "show", "sha256:", status=2).err
        spent = {(s["by"], s["name"]): s for s in instance.here("cost", "--week", "this", "--json").json["spent"]}
        assert spent["source", "test"]["replies"] == spent["all", ""]["replies"] - 1
        assert (spent["source", ""]["replies"], spent["source", ""]["cost_usd"]) == (1, None)
        assert (spent["all", ""]["cost_usd"], spent["all", ""]["unpriced"]) == (None, 1)
        assert spent["source", "test"]["cost_usd"] == 0.0
        assert spent["task", "validator.query"]["replies"] == 1
        assert [s["replies"] for s in instance.here("cost", "--week", "last", "--json").json["spent"]] == [0]

    await asyncio.to_thread(work)
