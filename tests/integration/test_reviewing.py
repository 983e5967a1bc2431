"""What people decide about held cases: approved, rejected, edited or rewritten; frozen."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from medlive.cli.audit.thread import describe_thread
from medlive.cli.output import Result, show_result
from medlive.config import Settings
from medlive.curation.model import Outcome, Reason
from medlive.db.curation.cases import (
    add_revision,
    find_case,
    latest_case,
    lock_case,
    set_status,
)
from medlive.db.curation.funnel import funnel, outcomes_by_paper
from medlive.db.curation.replies import PostgresReplyStore
from medlive.db.curation.reviews import list_held, reviews_of
from medlive.db.session import Database, advisory_lock
from medlive.db.tables.release import CaseStatus, ReviewAction
from medlive.db.threads import threads
from medlive.errors import (
    CheckFailed,
    EndpointUnavailable,
    LiteratureUnavailable,
    UsageError,
)
from medlive.evidence.passage import Hit
from medlive.integrity.digest import digest_text
from medlive.llm.engine import Reply, Request
from medlive.llm.replay import ReplayEngine
from medlive.rubric.model import AskedPart
from medlive.service.curation import curate, editing, review
from medlive.service.curation.complete import redact_case
from medlive.service.curation.curate import (
    complete_in,
    curate_revision,
    rescan_cases,
)
from medlive.service.curation.editing import (
    CaseEdit,
    CriterionEdit,
    edit_case,
    load_edit,
)
from medlive.service.curation.inspect import inspect_thread
from medlive.service.curation.review import decide_case, drop_element
from medlive.service.release.withdraw import reinstate, withdraw
from medlive.service.schedule import scheduler
from medlive.service.wiring import Pipeline
from medlive.snapshot.errata import WithdrawalKind
from tests.integration.test_curating_twice import Indexed
from tests.support.instance import Instance
from tests.support.reviewing import (
    HARMFUL,
    Named,
    pipeline,
    read,
    status_of,
    written,
)
from tests.support.scripted import THREAD, voice
from tests.support.triggers import refused_by_trigger


async def test_an_approved_case_is_ready_and_may_not_be_decided_again(
    database: Database, held: str
) -> None:
    with pytest.raises(UsageError):
        await decide_case(database, held, ReviewAction.APPROVE, " ")
    done = await decide_case(
        database, held, ReviewAction.APPROVE, "Checked with the label.", by="Bo"
    )
    assert (done.reason, done.decided_by) == ("Checked with the label.", "Bo")
    assert await status_of(database, held) == "ready"
    with pytest.raises(CheckFailed):
        await decide_case(database, held, ReviewAction.APPROVE, "x")
    # A ready case may be taken back; what was decided before stays on record.
    await decide_case(database, held, ReviewAction.REJECT, "Not after all.")
    assert await status_of(database, held) == "rejected"
    async with database.begin() as session:
        assert [r.action for r in await reviews_of(session, held)] == [
            ReviewAction.APPROVE,
            ReviewAction.REJECT,
        ]


async def test_a_thread_whose_case_was_approved_counts_as_kept(
    database: Database, held: str
) -> None:
    await decide_case(database, held, ReviewAction.APPROVE, "Checked.", by="Bo")
    async with database.begin() as session:
        [row] = await funnel(session)
    assert row == ("rubric", "kept", None, 1)


async def test_a_rejected_case_stays_out_while_its_content_is_the_same(
    database: Database, held: str
) -> None:
    await decide_case(database, held, ReviewAction.REJECT, "Out of date.")
    assert await status_of(database, held) == "rejected"
    async with database.begin() as session:
        assert await list_held(session) == []
        case = await latest_case(session, held)
        assert case is not None
    for refused in (
        "UPDATE reviews SET reason = 'else'",
        "DELETE FROM reviews",
        "DELETE FROM holds",
    ):
        with refused_by_trigger():
            async with database.begin() as session:
                await session.execute(text(refused))
    await decide_case(database, held, ReviewAction.APPROVE, "It is right after all.")
    assert await status_of(database, held) == "ready"


async def test_a_case_is_written_anew_without_an_element(
    database: Database, settings: Settings, held: str
) -> None:
    with pytest.raises(UsageError):
        await drop_element(pipeline(database), held, "a9", "x")
    with pytest.raises(EndpointUnavailable):
        await drop_element(
            pipeline(database, controller__write="rubbish"), held, "a2", "x"
        )
    assert await status_of(database, held) == "held"
    curation = await drop_element(pipeline(database), held, "a2", "Harmful here.")
    assert curation.outcome is Outcome.KEPT
    assert await status_of(database, held) == "ready"
    async with database.begin() as session:
        case = await latest_case(session, held)
    assert case.revision == 2
    assert case.text.advice == "Lisinopril can cause a dry cough."
    assert {c.advice_id for c in case.rubric.criteria} == {"a1"}
    with pytest.raises(CheckFailed):
        await drop_element(pipeline(database), held, "a1", "x")


@pytest.mark.parametrize("approved", [True, False])
async def test_dropping_an_element_settles_no_later_rejection(
    database: Database, held: str, approved: bool
) -> None:
    if approved:
        await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    nonclinical = {**OF_ITS_TIME, "category": "nonclinical"}
    other = pipeline(database, "m-2", validator__query=nonclinical)
    async with database.begin() as session:
        revision = await session.scalar(text("SELECT max(id) FROM thread_revisions"))
    other = replace(other, digest=digest_text("other"))
    rejected = await curate_revision(other, revision)
    assert rejected is not None
    assert rejected.reason is Reason.QUERY_NOT_CLINICAL
    await drop_element(pipeline(database), held, "a2", "Harmful here.")
    assert await status_of(database, held) == "held"
    async with database.begin() as session:
        reason = (await find_case(session, held)).status_reason
    assert str(reason).startswith("curated again: query_not_clinical")


async def test_a_case_that_the_rewriting_rejects_is_not_released(
    database: Database, held: str
) -> None:
    objection = read({"advice": [{"id": "a2"}]})["wrong"][0]
    wrong = [{**objection, "id": "a1"}]
    both_sure = pipeline(
        database,
        "m-2",
        reader__case={**HARMFUL, "wrong": wrong},
        validator__soundness=voice("wrong", control="wrong"),
    )
    with pytest.raises(CheckFailed, match="without a2 the case is rejected: advice_h"):
        await drop_element(both_sure, held, "a2", "Harmful here.")
    assert await status_of(database, held) == "held"
    async with database.begin() as session:
        assert await reviews_of(session, held) == []


class Asked(Indexed):
    """Keeps until when evidence may be cited; gives nothing after `most` searches."""

    def __init__(self, most: int = 9) -> None:
        self.until: list[date | None] = []
        self.most = most

    async def search(
        self, queries: Any, *, k: int, not_after: date | None = None
    ) -> list[list[Hit]]:
        self.until.append(not_after)
        if len(self.until) > self.most:
            raise LiteratureUnavailable("pubmed gave no usable answer")
        return await super().search(queries, k=k, not_after=not_after)


NAMED = {
    "points": [
        {
            "point": "Have the kidneys checked.",
            "kind": "plan",
            "criterion": "Recommends a check of the kidneys.",
            "axis": "Safety",
            "points": 8,
        }
    ]
}
OF_ITS_TIME = {
    "category": "diagnosis",
    "meaningful": True,
    "of_its_time": True,
    "reason": "",
}


NOTHING_NEEDED: dict[str, Any] = {
    "consult": "c",
    "answers_now": True,
    "required": [],
    "prudent": [],
}


async def saved_thread(database: Database, *, assumed: bool = False) -> int:
    """The revision of a thread of January 2026, whose date somebody assumed or not."""
    thread = replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))
    async with database.begin() as session:
        [saved] = await threads.save_threads(
            session, [thread], assumed_posted_at=[assumed]
        )
    return saved.revision_pk


async def test_a_rubric_of_its_time_is_completed_by_the_evidence_of_then(
    database: Database,
) -> None:
    library = Asked()
    made = pipeline(database, validator__query=OF_ITS_TIME, rubric__complete=NAMED)
    await curate_revision(
        replace(made, retriever=library), await saved_thread(database)
    )
    assert library.until == [date(2026, 1, 31)] * 2


async def test_literature_that_fails_while_a_rubric_is_completed_fails_the_thread(
    database: Database,
) -> None:
    made = replace(pipeline(database, rubric__complete=NAMED), retriever=Asked(most=1))
    curation = await curate_revision(made, await saved_thread(database))
    assert curation is not None
    assert (curation.outcome, curation.reason, curation.stage) == (
        Outcome.FAILED,
        Reason.ENDPOINT_UNAVAILABLE,
        "rubric",
    )


async def test_a_thread_without_elements_or_requirements_shows_its_decision(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing: dict[str, Any] = {"narrative": [], "query": None, "advice": []}
    for number, (told, tasks) in enumerate(
        {
            r"outcome │ rejected stage │ screener": {"screener__extract": nothing},
            r"s cc ┃ [^━]+[━╇ ]+ held │ rubric │ [^━]+ │ 1 │ False │ 1.0 │ 1.0 │": {
                "validator__sufficiency": NOTHING_NEEDED
            },
        }.items()
    ):
        thread = replace(THREAD, thread_id=f"t{number}", posted_at=datetime.now(UTC))
        async with database.begin() as session:
            [saved] = await threads.save_threads(session, [thread])
        made = pipeline(database, f"m-{number}", **tasks)
        await curate_revision(made, saved.revision_pk)
        async with database.begin() as session:
            record = await inspect_thread(session, "test", thread.thread_id)
        show_result(Result(None, describe_thread("test", record)))
        assert re.search(told, " ".join(capsys.readouterr().out.split()))


@pytest.mark.parametrize("keep", [True, False])
async def test_the_paper_would_reject_for_a_dropped_fact(
    database: Database, keep: bool
) -> None:
    made = pipeline(
        database,
        controller__support=lambda inputs: {
            "verdicts": [
                {"id": e["id"], "supported": e["id"] != "n1", "reason": "r"}
                for e in inputs["elements"]
            ]
        },
        screener__revise=lambda inputs: {
            "elements": [
                {k: e[k] for k in ("id", "message_id", "quote", "statement")}
                | {"keep": keep}
                for e in inputs["elements"]
            ]
        },
        validator__sufficiency=NOTHING_NEEDED,
        controller__write=lambda inputs: {
            **written(inputs),
            "narrative": "A dry cough for 3 weeks.",
        },
        reader__case={**HARMFUL, "wrong": []},
    )
    kept = await curate_revision(made, await saved_thread(database))
    assert kept is not None
    assert (kept.outcome, kept.elements[0].status.value) == (Outcome.KEPT, "dropped")
    async with database.begin() as session:
        since, until = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2100))
        [row] = await outcomes_by_paper(session, since, until)
    assert (row.outcome, row.by_paper) == ("kept", "rejected")


async def test_an_assumed_date_is_not_told_when_an_element_is_dropped(
    database: Database,
) -> None:
    made = pipeline(database, validator__query=OF_ITS_TIME)
    await curate_revision(made, await saved_thread(database, assumed=True))
    async with database.begin() as session:
        [waiting] = await list_held(session)
    dropped = await drop_element(made, waiting.case_id, "a2", "Harmful here.")
    assert dropped.text is not None
    assert "2026" not in dropped.text.narrative


async def test_an_element_is_not_dropped_from_what_a_person_decides_meanwhile(
    database: Database, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit = CaseEdit(narrative="A dry cough for 4 weeks, with lisinopril.")

    async def decided_meanwhile(*of_thread: Any) -> Any:
        if (await load_edit(database, held)).narrative != edit.narrative:
            await edit_case(database, held, edit, "Four weeks.")
        else:
            await decide_case(database, held, ReviewAction.APPROVE, "Checked.")
        return await complete_in(*of_thread)

    monkeypatch.setattr(review, "complete_in", decided_meanwhile)
    for message in ("has changed since", "is ready, not held"):
        with pytest.raises(CheckFailed, match=message):
            await drop_element(pipeline(database), held, "a2", "Harmful here.")
    assert (await load_edit(database, held)).narrative == edit.narrative
    assert await status_of(database, held) == "ready"


async def test_a_case_cannot_do_without_its_only_supported_advice(
    database: Database, settings: Settings
) -> None:
    def one(inputs: Mapping[str, Any]) -> dict[str, Any]:
        quotes = [
            {"passage_id": "p1", "quotes": ["lisinopril often cause a dry cough"]}
        ]
        return {
            "verdicts": [
                {
                    "id": c["id"],
                    "verdict": "supported" if c["id"] == "a2" else "neutral",
                    "evidence": quotes if c["id"] == "a2" else [],
                    "reason": "r",
                }
                for c in inputs["claims"]
            ]
        }

    async with database.begin() as session:
        saved = await threads.save_threads(
            session, [replace(THREAD, posted_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
    lone = pipeline(database, validator__alignment=one)
    await curate_revision(lone, saved[0].revision_pk)
    async with database.begin() as session:
        [waiting] = await list_held(session)
    with pytest.raises(UsageError, match="S_align"):
        await drop_element(lone, waiting.case_id, "a2", "x")


async def test_ready_cases_are_scanned_again_when_the_look_for_identifiers_changes(
    database: Database, held: str
) -> None:
    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    assert (await rescan_cases(pipeline(database)))["cases"] == 0
    finds = {"found": [{"text_id": "narrative", "words": "dry cough", "kind": "name"}]}
    new = pipeline(database, "m-2", reader__identifiers=finds)
    async with advisory_lock(database, "rescan cases"):  # as another process has it
        assert (await rescan_cases(new))["cases"] == 0
    done = await rescan_cases(new)
    assert done == {"cases": 1, "redacted": 1, "failed": 0}
    async with database.begin() as session:
        case = await latest_case(session, held)
        assert case is not None
        # The same words are gone from every text.
        assert (
            "dry cough"
            not in f"{case.text.narrative}{case.text.query}{case.text.advice}"
        )
        assert all("dry cough" not in c.criterion for c in case.rubric.criteria)
    assert await status_of(database, held) == "ready"
    assert (await rescan_cases(new))["cases"] == 0


async def test_a_scan_that_is_broken_off_has_its_turn_until_its_reply_is_kept(
    database: Database, held: str
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    class Slow(Named):
        async def answer(self, request: Request) -> Reply:
            asked.set()
            await go.wait()
            return await super().answer(request)

    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    slow = Slow("m-2", {"reader.identifiers": {"found": []}})
    reader = ReplayEngine(slow, PostgresReplyStore(database))
    opened = replace(pipeline(database, "m-2"), respondents={"reader": reader})
    scanning = asyncio.create_task(rescan_cases(opened))
    await asked.wait()
    scanning.cancel()
    done, _ = await asyncio.wait([scanning], timeout=0.2)
    assert not done
    async with advisory_lock(database, "rescan cases") as is_free:
        assert not is_free
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await scanning
    # Whoever comes next asks nothing again.
    assert (await rescan_cases(opened))["cases"] == 1
    assert len(slow.requests) == 1


async def test_the_weekly_queueing_reads_ready_cases_again_too(
    database: Database, settings: Settings, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance that a scheduler and workers run never calls `medlive curate`."""
    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    finds = {"found": [{"text_id": "narrative", "words": "dry cough", "kind": "name"}]}
    new = pipeline(database, "m-2", reader__identifiers=finds)

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[Pipeline]:
        yield new

    monkeypatch.setattr(scheduler, "open_pipeline", opened)
    counts = await scheduler.WORK["queue"](database, settings, "2026.W47")
    assert (counts["read_again_cases"], counts["read_again_redacted"]) == (1, 1)
    assert "dry cough" not in str((await load_edit(database, held)).narrative)


async def test_a_scan_keeps_what_a_person_edits_meanwhile(
    database: Database, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    edit = CaseEdit(narrative="A dry cough for 4 weeks, with lisinopril.")

    async def edited_meanwhile(*of_case: Any) -> Any:
        if (await load_edit(database, held)).narrative != edit.narrative:
            await edit_case(database, held, edit, "Four weeks.")
        return await redact_case(*of_case)

    monkeypatch.setattr(curate, "redact_case", edited_meanwhile)
    finds = {"found": [{"text_id": "query", "words": "dry cough", "kind": "name"}]}
    new = pipeline(database, "m-2", reader__identifiers=finds)
    assert (await rescan_cases(new))["cases"] == 0
    assert (await load_edit(database, held)).narrative == edit.narrative
    # The next one finds the edited case.
    assert (await rescan_cases(new))["redacted"] == 1
    assert "[name] for 4 weeks" in str((await load_edit(database, held)).narrative)


async def test_words_are_redacted_however_they_are_written(
    database: Database, held: str
) -> None:
    edit = CaseEdit(
        narrative="Mr Lima, or LIMA,\nhas a cough; lima beans and Limassol, too.",
        query="Did Ann  Patel say so, or ANN PATEL?",
    )
    await edit_case(database, held, edit, "As it was told.")
    for words in ("Lima", "Ann Patel"):
        await editing.redact_case(database, held, words, "A name.")
    case = await load_edit(database, held)
    r = "[redacted]"
    assert (
        case.narrative == f"Mr {r}, or {r},\nhas a cough; {r} beans and {r}ssol, too."
    )
    assert case.query == f"Did {r} say so, or {r}?"


async def test_what_is_removed_from_a_query_is_removed_from_its_parts(
    database: Database, held: str
) -> None:
    case = await load_edit(database, held)
    parts = (AskedPart("q1", "What could cause the dry cough of Dr. Ann Patel?"),)
    await edit_case(database, held, CaseEdit(asked=parts), "As it is asked.")
    await editing.redact_case(database, held, "Ann Patel", "A name.")
    [part] = (await load_edit(database, held)).asked or ()
    assert part.text == "What could cause the dry cough of Dr. [redacted]?"
    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    finds = {"found": [{"text_id": "narrative", "words": "dry cough", "kind": "name"}]}
    await rescan_cases(pipeline(database, "m-2", reader__identifiers=finds))
    [part] = (await load_edit(database, held)).asked or ()
    assert part.text == "What could cause the [name] of Dr. [redacted]?"
    assert case.asked == (AskedPart("q1", "What could cause it?"),)


async def test_the_commands(
    database: Database, database_url: str, tmp_path: Path, held: str
) -> None:
    instance = Instance(tmp_path, database_url)

    def work() -> None:
        [listed] = instance.here("review", "list", "--json").json
        assert (listed["case_id"], listed["reasons"]) == (held, ["advice_harmful"])
        assert (
            f"{listed['held_since'][:16].replace('T', ' ')}"
            in instance.here("review", "list").out
        )
        assert listed["held_since"] not in instance.here("review", "list").out
        shown = instance.here("review", "show", held).out
        for told in (
            "a2 │ harmful",
            "not with this patient",
            "Lisinopril can cause a dry cough",
            "dry cough for 3 weeks",
            "Tea soothes.",
        ):
            assert told in " ".join(shown.split())
        assert "--reason" in instance.here("review", "approve", held, status=2).err
        approve = (
            "review",
            "approve",
            held,
            "--reason",
            "Checked.",
            "--by",
            "Bo",
            "--revision",
        )
        assert "has changed since" in instance.here(*approve, "2", status=1).err
        instance.here(*approve, "1")
        assert instance.here("review", "list", "--json").json == []
        assert "Checked." in instance.here("review", "show", held).out
        done = instance.here(
            "review", "redact", held, "dry cough", "--reason", "Words.", "--by", "Bo"
        )
        assert "revision 2" in done.out
        assert "dry cough" not in str(instance.here("review", "edit", held).json)
        log = instance.here("audit", "log", "--json").json
        assert [(e["action"], e["by"]) for e in reversed(log)] == [
            ("approve", "Bo"),
            ("redact", "Bo"),
        ]

    await asyncio.to_thread(work)


async def test_who_drops_an_element_is_told_what_still_holds_the_case(
    database: Database,
    database_url: str,
    tmp_path: Path,
    held: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edit = CaseEdit(narrative="A dry cough for 4 weeks, with lisinopril.")
    await edit_case(database, held, edit, "Four weeks.")

    @asynccontextmanager
    async def opened(_: Settings, own: Database) -> AsyncIterator[Pipeline]:
        yield pipeline(own)

    monkeypatch.setattr("medlive.cli.audit.review.open_pipeline", opened)
    command = ("review", "drop-element", held, "a2", "--reason", "Harmful here.")
    done = await asyncio.to_thread(Instance(tmp_path, database_url).here, *command)
    # It replaces what a person wrote.
    assert await status_of(database, held) == "held"
    assert "still held: curated anew since a person edited it" in done.out


async def test_a_held_case_is_edited_approved_and_in_the_next_snapshot(
    database: Database, database_url: str, tmp_path: Path, held: str
) -> None:
    instance = Instance(tmp_path, database_url)

    def work() -> dict[str, Any]:
        draft = instance.here("review", "edit", held).json
        assert [c["id"] for c in draft["criteria"]] == ["c1", "c2", "c3"]
        kept, changed, new = (
            draft["criteria"][0],
            {**draft["criteria"][2], "points": -9},
            {**draft["criteria"][0]},
        )
        new |= {"id": None, "criterion": "Names lisinopril as the cause.", "points": 3}
        file = tmp_path / "edit.json"
        file.write_text(
            json.dumps(
                {
                    "revision": draft["revision"],
                    "query": "Why do I cough?",
                    "criteria": [kept, changed, new],
                }
            )
        )
        assert (
            "reason"
            in instance.here("review", "edit", held, "--file", file, status=2).err
        )
        instance.here(
            "review",
            "edit",
            held,
            "--file",
            file,
            "--reason",
            "Too long.",
            "--by",
            "Bo",
        )
        assert instance.here("review", "list", "--json").json[0]["revision"] == 2
        shown = instance.here("review", "show", held).out
        assert "Too long." in shown
        assert re.search(r"difficulty +│ medium", shown)
        assert re.search(r"dialogue register +│ lay", shown)
        by_hand = (
            "review",
            "edit",
            held,
            "--reason",
            "Two drugs interact.",
            "--by",
            "Ann",
        )
        for register in ("professional", "lay"):  # another edit undoes one
            latest = instance.here("review", "edit", held).json
            latest |= {"difficulty": "high", "dialogue_register": register}
            file.write_text(json.dumps(latest), "utf-8")
            instance.here(*by_hand, "--file", file)
        log = instance.here("case", "show", held, "--json").json
        assert (log["case"]["difficulty"], log["case"]["dialogue_register"]) == (
            "high",
            "lay",
        )
        assert [r["decided_by"] for r in log["reviews"]] == ["Bo", "Ann", "Ann"]
        instance.here("review", "approve", held, "--reason", "Fine now.")
        done = instance.here("snapshot", "freeze", "--week", "2026.W03", "--json").json
        assert (done["cases"], done["criteria"]) == (1, 3)
        return {
            p.name: p.read_text() for p in (Path(done["path"]) / "data").glob("*.jsonl")
        }

    files = await asyncio.to_thread(work)
    row = json.loads(files["cases.jsonl"])
    assert [row[name] for name in ("query", "difficulty", "dialogue_register")] == [
        "Why do I cough?",
        "high",
        "lay",
    ]
    criteria = [json.loads(line) for line in files["criteria.jsonl"].splitlines()]
    assert [
        (c["criterion_id"].removeprefix(f"{held}-"), c["points"]) for c in criteria
    ] == [("c1", 7), ("c3", -9), ("c4", 3)]


async def test_an_edit_of_an_older_revision_is_refused(
    database: Database, database_url: str, tmp_path: Path, held: str
) -> None:
    instance = Instance(tmp_path, database_url)
    file = tmp_path / "bo.json"
    edit = ("review", "edit", held, "--file", file, "--reason")

    def work() -> None:
        draft = instance.here("review", "edit", held).json
        colleague = draft | {
            "query": "Why do I cough?",
            "no_negative": "Nothing harms.",
        }
        file.write_text(json.dumps(colleague))
        instance.here(*edit, "Shorter.", "--by", "Ada")
        lighter = {**draft["criteria"][2], "points": -9}
        own = {"query": "Why the cough?", "criteria": [*draft["criteria"][:2], lighter]}
        file.write_text(json.dumps(own))
        unmarked = instance.here(*edit, "Lighter.", status=2)
        assert "revision" in unmarked.err
        file.write_text(json.dumps(own | {"revision": 1}))
        refused = instance.here(*edit, "Lighter.", "--by", "Bo", status=1)
        assert "its revision is 2 now" in refused.err
        now = instance.here("review", "edit", held).json
        assert (now["revision"], now["query"]) == (2, "Why do I cough?")
        file.write_text(json.dumps(own | {"revision": 2}))
        instance.here(*edit, "Lighter.", "--by", "Bo")

    await asyncio.to_thread(work)


async def test_an_edit_that_the_linter_refuses_changes_nothing(
    database: Database, held: str
) -> None:
    now = await load_edit(database, held)
    assert now.criteria is not None
    first = now.criteria[0]
    for refused, match in (
        (CaseEdit(criteria=(first,)), "1 criteria, at least 2"),
        (CaseEdit(criteria=(first, first)), "repeated criterion c1"),
        (
            CaseEdit(
                criteria=(
                    *now.criteria,
                    CriterionEdit(**{**first.model_dump(), "id": "c9"}),
                )
            ),
            "c9",
        ),
        (
            CaseEdit(
                criteria=(
                    first,
                    first.model_copy(update={"id": None, "advice_id": "a7"}),
                )
            ),
            "advice element",
        ),
        (CaseEdit(specialty="Astrology"), "unknown specialty"),
        (
            CaseEdit(asked=(AskedPart("q1", "Why?"), AskedPart("q1", "How long?"))),
            "share an id",
        ),
        (now, "nothing in case"),
    ):
        with pytest.raises(UsageError, match=match):
            await edit_case(database, held, refused, "x")
    async with database.begin() as session:
        assert (await latest_case(session, held)).revision == 1
        assert await reviews_of(session, held) == []


async def test_what_a_person_edited_is_not_replaced_in_silence(
    database: Database, held: str
) -> None:
    await edit_case(database, held, CaseEdit(query="Why do I cough?"), "Shorter.")
    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    async with database.begin() as session:
        revision = await session.scalar(text("SELECT revision_id FROM curations"))
    harmless = {**HARMFUL, "wrong": []}
    curated = await curate_revision(
        replace(
            pipeline(database, "m-2", reader__case=harmless), digest=digest_text("x")
        ),
        revision,
    )
    assert curated.outcome is Outcome.KEPT
    assert await status_of(database, held) == "held"
    async with database.begin() as session:
        assert "a person edited it" in (await list_held(session))[0].status_reason


async def test_an_edit_outlives_revisions_and_curations_until_a_person_looks(
    database: Database, held: str
) -> None:
    await edit_case(database, held, CaseEdit(query="Why do I cough?"), "Shorter.")
    await decide_case(database, held, ReviewAction.APPROVE, "Fine.")
    async with database.begin() as session:
        revision = await session.scalar(text("SELECT revision_id FROM curations"))
        # A revision of the same wording, as a proof or a withdrawn criterion makes
        case = await latest_case(session, held)
        proved = replace(case.rubric, ceiling=0.9, floor=0.1, separation=0.5)
        await add_revision(session, held, replace(case, rubric=proved))
    harmless = {**HARMFUL, "wrong": []}
    for name in ("x", "y"):
        other = pipeline(database, "m-2", reader__case=harmless)
        await curate_revision(replace(other, digest=digest_text(name)), revision)
        assert await status_of(database, held) == "held"
    await decide_case(database, held, ReviewAction.APPROVE, "Fine too.")
    other = pipeline(database, "m-2", reader__case=harmless)
    await curate_revision(replace(other, digest=digest_text("z")), revision)
    assert await status_of(database, held) == "ready"


async def test_a_review_and_a_decision_about_one_case_take_turns(
    database: Database, held: str
) -> None:
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
        standing = await session.execute(
            text("SELECT status, outcome FROM thread_standings")
        )
    assert standing.all() == [("held", "held")]


async def test_a_dropped_element_that_a_later_curation_has_again_waits_for_a_person(
    database: Database, held: str
) -> None:
    await drop_element(pipeline(database), held, "a2", "Harmful here.")
    assert await status_of(database, held) == "ready"
    async with database.begin() as session:
        revision = await session.scalar(text("SELECT max(id) FROM thread_revisions"))
    for name, status in (("m-2", "held"), ("m-3", "ready")):
        later = pipeline(database, name, reader__case={**HARMFUL, "wrong": []})
        await curate_revision(replace(later, digest=digest_text(name)), revision or 0)
        assert await status_of(database, held) == status
        if status == "held":
            await decide_case(database, held, ReviewAction.APPROVE, "It does help.")


async def test_a_criterion_from_before_a_redaction_does_not_come_back_by_itself(
    database: Database, settings: Settings, held: str
) -> None:
    await decide_case(database, held, ReviewAction.APPROVE, "Checked.")
    for redacted, status in ((False, "ready"), (True, "held")):
        kind, part = WithdrawalKind.ERRATUM, "c2"
        made = await withdraw(
            database, settings, held, kind, "It is wrong.", criterion_id=part
        )
        assert made.withdrawal.criterion_id == "c2"
        if redacted:
            await editing.redact_case(database, held, "losartan", "A name.")
        await reinstate(database, settings, held, "It is right.", criterion_id=part)
        assert await status_of(database, held) == status
