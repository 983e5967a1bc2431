"""Freezing week after week from a real database: what is in, what is kept out, what a broken-off freeze leaves."""

import asyncio
import json
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from medlive.config import Settings
from medlive.db.session import Database
from medlive.db.tables.release import ReviewAction
from medlive.db.threads.takedowns import erase_thread
from medlive.errors import CheckFailed, UsageError
from medlive.instance.paths import snapshots_path
from medlive.integrity.log import Locked
from medlive.integrity.signing import SecretKey, generate
from medlive.service.curation import editing
from medlive.service.curation.editing import edit_case, load_edit, redact_case
from medlive.service.curation.review import decide_case, dispute_case
from medlive.service.harvest.takedown import take_down
from medlive.service.release.folder import build_folder
from medlive.service.release.freeze import (
    FreezeResult,
    freeze,
    is_held_out,
    weeks_between,
)
from medlive.service.release.withdraw import withdraw
from medlive.snapshot.contents import CHANGES, HOLDOUTS, read_ledger
from medlive.snapshot.errata import WithdrawalKind
from medlive.snapshot.gates import gates_digest
from medlive.snapshot.verify.steps import verify_snapshot
from tests.support.release import case_id, fill

REVISE = """
    INSERT INTO case_revisions (case_id, revision, curation_id, language, source, posted_at, specialty, theme,
        narrative, query, advice, no_negative, publishable, unpublishable_reason, content_digest)
    SELECT case_id, revision + 1, curation_id, language, source, posted_at, specialty, theme, narrative || %s,
        query, advice, no_negative, publishable, unpublishable_reason, content_digest
    FROM case_revisions WHERE case_id = %s ORDER BY revision DESC LIMIT 1
"""
REVISE_CRITERIA = """
    INSERT INTO criteria (case_id, revision, criterion_id, position, criterion, axis, points, advice_id)
    SELECT case_id, revision + 1, criterion_id, position, criterion, axis, points, advice_id
    FROM criteria WHERE case_id = %s AND revision = (SELECT max(revision) FROM criteria WHERE case_id = %s)
"""

REPLY = """
    INSERT INTO replies (request_digest, task, prompt_digest, engine, model, parameters, inputs, schema_digest, text,
        finish, reply_model, input_tokens, cached_tokens, output_tokens, cost_usd, latency_ms, created_at)
    SELECT 'sha256:' || lpad(%(number)s::text, 64, '0'), 'screener.extract', digest, 'openai', 'm', '{}', '{}', digest,
        'x', 'stop', 'm', 100, 0, 20, %(usd)s, 1, %(at)s FROM prompts
"""


@pytest.fixture
def admin(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(
        database_url.replace("+psycopg", ""), autocommit=True
    ) as connection:
        yield connection


def revise(admin: psycopg.Connection[Any], number: int, words: str) -> None:
    admin.execute(REVISE, [words, case_id(number)])
    admin.execute(REVISE_CRITERIA, [case_id(number)] * 2)


def ledger(frozen: FreezeResult, name: str) -> dict[str, list[dict[str, Any]]]:
    return read_ledger(frozen.path, name)[1]


def rows(frozen: FreezeResult) -> dict[str, dict[str, Any]]:
    lines = (
        (frozen.path / "data" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    )
    return {row["case_id"]: row for row in map(json.loads, lines)}


def reply(
    admin: psycopg.Connection[Any], number: int, at: str, *, usd: float | None
) -> None:
    admin.execute(REPLY, {"number": number, "at": at, "usd": usd})


def cost_of(frozen: FreezeResult) -> dict[str, Any]:
    cost: dict[str, Any] = json.loads((frozen.path / "manifest.json").read_bytes())[
        "cost"
    ]
    return cost


def verify(frozen: FreezeResult) -> None:
    report = verify_snapshot(frozen.path)
    assert report.ok, report.summary()


async def is_rebuilt(database: Database, settings: Settings, version: str) -> bool:
    """Whether the rows of a frozen snapshot make its folder again, with the same digest (else CheckFailed)."""
    shutil.rmtree(snapshots_path(settings) / f"medlive-{version}")
    return (await freeze(database, settings, version)).built_again


async def test_each_week_says_what_it_holds_what_changed_and_what_was_kept_out(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    fill(admin, 9)
    first = await freeze(database, settings, "2026.W45")
    assert (first.cases, first.criteria, first.kept_out, first.publishable) == (
        9,
        27,
        (),
        True,
    )
    fill(admin, 4, first=10)
    revise(admin, 1, "It began after a journey.")
    revise(admin, 2, "Write to jane.doe@example.org for more.")
    admin.execute(
        "UPDATE cases SET status = 'withdrawn', status_reason = 'no case' WHERE id = %s",
        [case_id(3)],
    )
    held = "curated again: not_aligned: the asker's own words"
    admin.execute(
        "UPDATE cases SET status = 'held', status_reason = %s WHERE id = %s",
        [held, case_id(4)],
    )
    admin.execute(
        "INSERT INTO disputes (case_id, reason) VALUES (%s, 'secret')", [case_id(5)]
    )
    admin.execute("SET session_replication_role = replica")
    admin.execute("DELETE FROM claim_evidence WHERE curation_id = 10")
    admin.execute(
        "UPDATE case_revisions SET posted_at = '2026-11-17' WHERE case_id = %s",
        [case_id(11)],
    )
    admin.execute(
        "UPDATE case_revisions SET narrative = ' ' WHERE case_id = %s", [case_id(12)]
    )
    admin.execute("SET session_replication_role = DEFAULT")
    second = await freeze(database, settings, "2026.W46")
    verify(second)
    assert {(h.case_id, h.gate.value) for h in second.kept_out} >= {
        (case_id(2), "identifiers"),
        (case_id(5), "dispute"),
        (case_id(10), "evidence"),
        (case_id(11), "row"),
        (case_id(12), "row"),
    }
    details = {h.case_id: h.detail for h in second.kept_out}
    assert details.keys() == {case_id(n) for n in (2, 5, 10, 11, 12)}
    assert details[case_id(5)] == "a dispute is open"
    assert details[case_id(10)] == "a supported verdict without stored evidence"
    assert details[case_id(11)] == "posted after its first release 2026.W46"
    assert set(rows(second)) == {case_id(n) for n in (1, 6, 7, 8, 9, 13)}
    assert {
        i for i, row in rows(second).items() if row["first_release"] == "2026.W46"
    } == {case_id(13)}
    changes = ledger(second, CHANGES)
    assert [(e["case_id"], e["to_revision"]) for e in changes["added"]] == [
        (case_id(13), 1)
    ]
    assert [
        (e["case_id"], e["reason"], e["from_revision"], e["to_revision"])
        for e in changes["revised"]
    ] == [(case_id(1), "changed: narrative", 1, 2)]
    reasons = {e["case_id"]: e["reason"] for e in changes["withdrawn"]}
    assert reasons.keys() == {case_id(n) for n in (2, 3, 4, 5)}
    assert reasons[case_id(3)] == "no case"
    assert reasons[case_id(5)] == "kept out: a dispute is open"
    assert "own words" not in reasons[case_id(4)]
    manifest = json.loads((second.path / "manifest.json").read_bytes())
    assert [a["version"] for a in manifest["lineage"]] == ["2026.W45"]
    # What is put right comes back, with the week that first had it.
    admin.execute("UPDATE disputes SET closed_at = now(), resolution = 'none'")
    third = await freeze(database, settings, "2026.W47")
    verify(third)
    assert rows(third)[case_id(5)]["first_release"] == "2026.W45"
    assert {e["case_id"]: e["reason"] for e in ledger(third, CHANGES)["added"]}[
        case_id(5)
    ] == "in the release again"
    # History stays as it is, and is not written backwards.
    assert (await freeze(database, settings, "2026.W46")).kept_out == second.kept_out
    for week in ("2026.W44", "2026.W60"):
        with pytest.raises(UsageError):
            await freeze(database, settings, week)


@pytest.mark.thorough
async def test_parts_of_the_query_and_origins_that_changed_are_named(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    fill(admin, 2, gates=gates_digest())
    await freeze(database, settings, "2026.W45")
    for number in (1, 2):
        revise(admin, number, "")
    admin.execute("SET session_replication_role = replica")
    part = json.dumps([{"id": "q1", "text": "What helps against the cough?"}])
    admin.execute(
        "UPDATE case_revisions SET asked = %s WHERE case_id = %s AND revision = 2",
        [part, case_id(1)],
    )
    admin.execute(
        "UPDATE criteria SET origin = 'consensus', source = 'm-1, m-2', advice_id = NULL"
        " WHERE case_id = %s AND revision = 2 AND criterion_id = 'c3'",
        [case_id(2)],
    )
    admin.execute("SET session_replication_role = DEFAULT")
    second = await freeze(database, settings, "2026.W46")
    revised = {e["case_id"]: e["reason"] for e in ledger(second, CHANGES)["revised"]}
    assert revised == {case_id(1): "changed: asked", case_id(2): "changed: criteria"}


async def test_what_is_held_out_is_nowhere_until_its_week_and_then_proves_itself(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    settings = settings.model_copy(
        update={
            "release": settings.release.model_copy(
                update={"hold_out": 0.4, "hold_out_weeks": 3}
            )
        }
    )
    fill(admin, 24, gates=gates_digest())
    first = await freeze(database, settings, "2026.W40")
    verify(first)
    held = {case_id(n) for n in range(1, 25)} - set(rows(first))
    assert first.held == len(held) == len(ledger(first, HOLDOUTS)["held"]) > 3
    for file in first.path.rglob("*.*"):
        if file.is_file() and file.suffix != ".parquet":
            assert not [i for i in held if i in file.read_text(encoding="utf-8")]
    gone, revised, cut, *_ = sorted(held)
    admin.execute(
        "UPDATE cases SET status = 'withdrawn', status_reason = 'no case' WHERE id = %s",
        [gone],
    )
    number = next(n for n in range(1, 25) if case_id(n) == revised)
    revise(admin, number, "It began after a journey.")
    await withdraw(
        database,
        settings,
        cut,
        WithdrawalKind.PRIVACY,
        "it names a place",
        criterion_id=f"{cut}-c3",
    )
    second = await freeze(database, settings, "2026.W41")
    assert (second.held, second.revealed, second.dropped, second.cases) == (
        len(held) - 2,
        0,
        2,
        first.cases,
    )
    dropped = ledger(second, HOLDOUTS)["dropped"]
    assert sorted(e["reason"] for e in dropped) == [
        "no case",
        "privacy: it names a place",
    ]
    assert {e["commitment"] for e in dropped} < {
        e["commitment"] for e in ledger(first, HOLDOUTS)["held"]
    }
    assert cut not in (settings.home / "snapshots" / "errata.json").read_text()
    # Nobody is drawn anew: what was shown stays shown, what is held stays so until its weeks are over.
    third = await freeze(database, settings, "2026.W43")
    assert (third.held, third.revealed) == (
        1,
        len(held) - 2,
    )  # what lost a criterion is drawn as a new case
    shown = rows(third)
    assert {
        i for i, row in shown.items() if row["first_release"] == "2026.W43"
    } == held - {gone, cut}
    assert shown[revised]["revision"] == 1
    fourth = await freeze(database, settings, "2026.W44")
    verify(fourth)
    assert (
        rows(fourth)[revised]["revision"],
        rows(fourth)[revised]["first_release"],
    ) == (2, "2026.W43")
    assert [e["case_id"] for e in ledger(fourth, CHANGES)["revised"]] == [revised]
    assert await is_rebuilt(database, settings, "2026.W40")


def test_the_draw_is_the_instances_and_of_about_the_share() -> None:
    ids = [case_id(n) for n in range(4000)]
    drawn = {i for i in ids if is_held_out(i, 0.2, b"key")}
    assert 700 < len(drawn) < 900
    assert (
        drawn
        == {i for i in ids if is_held_out(i, 0.2, b"key")}
        < {i for i in ids if is_held_out(i, 0.3, b"key")}
    )
    assert drawn != {i for i in ids if is_held_out(i, 0.2, b"another")}
    assert not any(is_held_out(i, 0.0, b"key") for i in ids)
    assert (
        weeks_between("2026.W52", "2027.W02"),
        weeks_between("2026.W40", "2026.W40"),
    ) == (3, 0)


async def test_a_snapshot_says_what_its_week_cost_until_it_was_fixed(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    fill(admin, 1, gates=gates_digest())
    admin.execute(
        "INSERT INTO prompts (digest, task, text) VALUES (%s, 'screener.extract', 'x')",
        ["sha256:" + "0" * 64],
    )
    reply(admin, 1, "2026-11-01", usd=7.0)
    reply(admin, 2, "2026-11-16", usd=0.12344)
    reply(admin, 3, "2026-11-22T23:59:59Z", usd=0.5)
    counts = {"input_tokens": 200, "output_tokens": 40, "estimated": 0, "unpriced": 0}
    done = await freeze(database, settings, "2026.W47")
    assert cost_of(done) == {"replies": 2, **counts, "usd": 0.6234}
    reply(admin, 4, "2026-11-18", usd=1.0)
    reply(admin, 5, "2026-11-23", usd=None)
    assert await is_rebuilt(database, settings, "2026.W47")
    unknown = await freeze(database, settings, "2026.W48")
    assert cost_of(unknown)["usd"] is None


async def test_a_signed_freeze_is_finished_with_its_own_key_and_rebuilt_without(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    fill(admin, 1, gates=gates_digest())
    key, other = (SecretKey.parse(generate()[0]) for _ in range(2))
    admin.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE OF state ON snapshots FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(DBAPIError):
        await freeze(database, settings, "2026.W47", key=key)
    admin.execute("DROP TRIGGER refuse ON snapshots")
    for wrong in (None, other):
        with pytest.raises(UsageError, match=key.public.id_text()):
            await freeze(database, settings, "2026.W47", key=wrong)
    done = await freeze(database, settings, "2026.W47", key=key)
    assert done.key_id == key.public.id_text()
    report = verify_snapshot(done.path, public_key=key.public)
    assert report.ok, report.summary()
    assert await is_rebuilt(database, settings, "2026.W47")
    # Files are for `verify` to look at.
    (done.path / "changes.json").unlink()
    assert not (await freeze(database, settings, "2026.W47")).built_again
    assert await is_rebuilt(database, settings, "2026.W47")


async def test_releases_that_are_too_small_or_not_publishable_say_so(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    release = settings.release.model_copy(
        update={
            "minimum_cases": 5,
            "publishable_only": True,
        }
    )
    settings = settings.model_copy(update={"release": release})
    with pytest.raises(CheckFailed):
        await freeze(database, settings, "2026.W47")
    fill(admin, 4, gates=gates_digest())
    admin.execute("SET session_replication_role = replica")
    admin.execute(
        "UPDATE case_revisions SET publishable = false, unpublishable_reason = 'made by rules' WHERE case_id = %s",
        [case_id(1)],
    )
    done = await freeze(database, settings, "2026.W47")
    assert [(h.case_id, h.gate.value, h.detail) for h in done.kept_out] == [
        (case_id(1), "engine", "made by rules")
    ]
    assert done.why_not == ("3 cases, at least 5 are asked for",)


# --- broken off ------------------------------------------------------------------------------------------


def freeze_apart(database_url: str, home: Path) -> None:
    """What a process of its own does."""

    async def work() -> None:
        database = Database.connect(database_url)
        await freeze(
            database,
            Settings(home=home, database_url=SecretStr(database_url)),
            "2026.W47",
        )

    asyncio.run(work())


SLEEP = "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;"
POINTS = {
    "while it is fixed": "CREATE TRIGGER wait BEFORE INSERT ON snapshot_changes EXECUTE FUNCTION wait()",
    "while it is built": None,
    "when it is built and not yet frozen": (
        "CREATE TRIGGER wait BEFORE UPDATE OF state ON snapshots EXECUTE FUNCTION wait()"
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("point", POINTS)
async def test_a_freeze_that_is_killed_leaves_nothing_or_all_of_it_and_is_finished_as_it_was_fixed(
    database: Database,
    database_url: str,
    settings: Settings,
    admin: psycopg.Connection[Any],
    point: str,
) -> None:
    trigger = POINTS[point]
    cases = 300 if trigger is None else 20  # enough to be killed among them
    fill(admin, cases, gates=gates_digest())
    root, folder = (
        settings.home / "snapshots",
        settings.home / "snapshots" / "medlive-2026.W47",
    )
    if trigger is not None:
        admin.execute(SLEEP + trigger)
    child = get_context("fork").Process(
        target=freeze_apart, args=(database_url, settings.home)
    )
    child.start()

    def is_there() -> bool:
        if trigger is None:
            return any(root.glob(".medlive-*.partial/data/criteria.jsonl"))
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        return bool(admin.execute(query).fetchone()[0])

    while not is_there() and child.is_alive():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.001)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert child.exitcode == -signal.SIGKILL, "it ended before it was killed"
    admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    )
    if trigger is not None:
        admin.execute("DROP FUNCTION wait CASCADE")
    fixed = admin.execute("SELECT state, created_at FROM snapshots").fetchall()
    if point == "while it is fixed":
        assert fixed == []
    assert [state for state, _ in fixed] in ([], ["building"])
    if folder.exists():
        report = verify_snapshot(folder)
        assert report.ok, report.summary()
    # What is decided since then comes with the next week.
    fill(admin, 1, first=cases + 1, gates=gates_digest())
    done = await freeze(database, settings, "2026.W47")
    verify(done)
    assert done.cases == (cases if fixed else cases + 1)
    assert [p.name for p in root.iterdir() if p.name.endswith(".partial")] == []
    frozen = admin.execute("SELECT state, created_at FROM snapshots").fetchall()
    assert [state for state, _ in frozen] == ["frozen"]
    if fixed:
        assert frozen[0][1] == fixed[0][1]
        assert (await freeze(database, settings, "2026.W48")).cases == cases + 1


async def test_what_is_taken_back_between_fixing_and_freezing_is_in_no_release(
    database: Database,
    settings: Settings,
    admin: psycopg.Connection[Any],
) -> None:
    fill(admin, 6, gates=gates_digest())
    admin.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE OF state ON snapshots FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(DBAPIError):
        await freeze(database, settings, "2026.W47")
    folder = settings.home / "snapshots" / "medlive-2026.W47"
    assert case_id(3) in (folder / "data" / "cases.jsonl").read_text()
    async with database.begin() as session:
        await session.execute(
            text(
                "INSERT INTO sources (name, kind) VALUES ('forum', 'file') ON CONFLICT DO NOTHING"
            )
        )
        await erase_thread(session, "forum", "t3", "the author asked")
    wrong = f"{case_id(4)}-c2"
    for target, criterion in ((case_id(4), wrong), (case_id(5), None)):
        with pytest.raises(DBAPIError):
            await freeze(database, settings, "2026.W47")
        await withdraw(
            database,
            settings,
            target,
            WithdrawalKind.ERRATUM,
            "It is wrong.",
            criterion_id=criterion,
        )
    with pytest.raises(DBAPIError):
        await freeze(database, settings, "2026.W47")
    admin.execute(
        "INSERT INTO disputes (case_id, reason) VALUES (%s, 'doubtful')", [case_id(6)]
    )
    admin.execute("DROP TRIGGER refuse ON snapshots")
    done = await freeze(database, settings, "2026.W47")
    verify(done)
    assert set(rows(done)) == {case_id(n) for n in (1, 2, 4)}
    assert wrong not in (folder / "data" / "criteria.jsonl").read_text()
    assert case_id(3) not in (folder / "changes.json").read_text()


async def test_a_takedown_leaves_no_folder_that_was_built_and_not_frozen(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    fill(admin, 3, gates=gates_digest())
    admin.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE OF state ON snapshots FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(DBAPIError):
        await freeze(database, settings, "2026.W47")
    folder = snapshots_path(settings) / "medlive-2026.W47"
    assert folder.exists()
    # A site, or a publication, would read it.
    await take_down(database, settings, "forum", "t3", "the author asked")
    assert not folder.exists()
    admin.execute("DROP TRIGGER refuse ON snapshots")
    assert set(rows(await freeze(database, settings, "2026.W47"))) == {
        case_id(1),
        case_id(2),
    }


@pytest.mark.thorough
async def test_what_people_reject_or_redact_before_a_freeze_is_resumed_is_not_in_it(
    database: Database,
    settings: Settings,
    admin: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The filled cases have no criterion that costs points.
    monkeypatch.setattr(editing, "lint_case", lambda *_, **__: [])
    fill(admin, 4, gates=gates_digest())
    admin.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE OF state ON snapshots FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(DBAPIError):
        await freeze(database, settings, "2026.W47")
    await redact_case(database, case_id(1), "sore throat", "It names her.")
    with pytest.raises(DBAPIError):
        await freeze(database, settings, "2026.W47")
    await decide_case(database, case_id(2), ReviewAction.REJECT, "It is unsafe.")
    with pytest.raises(DBAPIError):
        await freeze(database, settings, "2026.W47")
    admin.execute(
        "UPDATE cases SET status = 'held', status_reason = 'filtered again: unsafe_content' WHERE id = %s",
        [case_id(4)],
    )
    admin.execute("DROP TRIGGER refuse ON snapshots")
    done = await freeze(database, settings, "2026.W47")
    assert set(rows(done)) == {case_id(1), case_id(3)}
    assert "sore throat" not in rows(done)[case_id(1)]["narrative"]


async def test_a_withdrawn_criterion_is_not_why_a_case_is_rejected_or_disputed(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    fill(admin, 4, gates=gates_digest())
    await freeze(database, settings, "2026.W45")
    kind, why = WithdrawalKind.ERRATUM, "The dose is wrong."
    for number in (1, 2, 3):
        await withdraw(
            database, settings, case_id(number), kind, why, criterion_id="c3"
        )
    await decide_case(database, case_id(1), ReviewAction.REJECT, "It is unsafe.")
    await dispute_case(database, case_id(2), "Is it so?")
    second = await freeze(database, settings, "2026.W46")
    verify(second)
    changes = ledger(second, CHANGES)
    assert {e["case_id"]: e["reason"] for e in changes["withdrawn"]} == {
        case_id(1): "rejected in review",
        case_id(2): "kept out: a dispute is open",
    }
    assert [e["reason"] for e in changes["revised"]] == [f"erratum: {why}"]


@pytest.mark.thorough
async def test_a_freeze_that_ended_before_the_errata_were_written_writes_them_later(
    database: Database,
    settings: Settings,
    admin: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(admin, 2, gates=gates_digest())
    await freeze(database, settings, "2026.W45")
    await withdraw(database, settings, case_id(1), WithdrawalKind.ERRATUM, "Wrong.")

    async def fail(*_: object, **__: object) -> None:
        raise Locked("killed")

    with monkeypatch.context() as patch:
        patch.setattr("medlive.service.release.freeze.write_errata", fail)
        with pytest.raises(Locked):
            await freeze(database, settings, "2026.W46")
    assert (await freeze(database, settings, "2026.W46")).already
    errata = json.loads((snapshots_path(settings) / "errata.json").read_bytes())
    assert [entry["fixed_in"] for entry in errata["entries"]] == ["2026.W46"]


async def test_what_was_redacted_while_it_was_held_out_is_never_shown(
    database: Database,
    settings: Settings,
    admin: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The filled cases have no criterion that costs points.
    monkeypatch.setattr(editing, "lint_case", lambda *_, **__: [])
    release = settings.release.model_copy(update={"hold_out": 0.5, "hold_out_weeks": 1})
    settings = settings.model_copy(update={"release": release})
    fill(admin, 16, gates=gates_digest())
    first = await freeze(database, settings, "2026.W45")
    held = sorted({case_id(n) for n in range(1, 17)} - set(rows(first)))
    by_person, by_scan, cut, kept, *_ = held
    await redact_case(database, by_person, "sore throat", "It names her.")
    number = next(n for n in range(1, 17) if case_id(n) == by_scan)
    revise(admin, number, "")
    admin.execute(
        "INSERT INTO identifier_scans (case_id, revision, scanner, found) VALUES (%s, 2, %s, 1)",
        [by_scan, gates_digest()],
    )
    # A criterion that is left out, and only then withdrawn: no revision is made for that
    edit = await load_edit(database, cut)
    assert edit.criteria
    left = edit.model_copy(update={"criteria": edit.criteria[:-1]})
    await edit_case(database, cut, left, "It is another drug's.")
    await withdraw(
        database,
        settings,
        cut,
        WithdrawalKind.PRIVACY,
        "It names a place.",
        criterion_id="c3",
        revision=1,
    )
    second = await freeze(database, settings, "2026.W46")
    shown = rows(second)
    assert not {by_person, by_scan, cut} & set(shown)
    assert shown[kept]["first_release"] == "2026.W46"
    reasons = [entry["reason"] for entry in ledger(second, HOLDOUTS)["dropped"]]
    removed = (
        "kept out: identifiers were removed since from the revision that was held out"
    )
    lost = "kept out: a criterion was withdrawn from the revision that was held out"
    assert sorted(reasons) == sorted([removed, removed, lost])
    third = await freeze(database, settings, "2026.W47")
    assert third.held == 3
    fourth = await freeze(database, settings, "2026.W48")
    verify(fourth)
    assert fourth.revealed == 3
    assert "sore throat" not in rows(fourth)[by_person]["narrative"]


@pytest.mark.thorough
async def test_a_clock_that_is_set_back_makes_no_snapshot_older_than_its_parent(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    fill(admin, 2, gates=gates_digest())
    first = await freeze(database, settings, "2026.W46")
    # As if the clock had been a day ahead then
    admin.execute("SET session_replication_role = replica")
    admin.execute("UPDATE snapshots SET created_at = created_at + interval '1 day'")
    admin.execute("SET session_replication_role = DEFAULT")
    second = await freeze(database, settings, "2026.W47")
    made = [
        json.loads((frozen.path / "manifest.json").read_bytes())["created_at"]
        for frozen in (first, second)
    ]
    assert made[1][:10] > made[0][:10]
    verify(second)


async def test_two_freezes_at_once_make_one_snapshot(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    fill(admin, 1, gates=gates_digest())
    work = (freeze(database, settings, "2026.W47") for _ in range(2))
    done = await asyncio.gather(*work, return_exceptions=True)
    (frozen,) = (one for one in done if isinstance(one, FreezeResult))
    assert [type(one) for one in done if one is not frozen] == [Locked]
    assert (await freeze(database, settings, "2026.W47")).already
    verify(frozen)


@pytest.mark.thorough
async def test_a_freeze_that_is_called_off_ends_and_goes_on_with_its_cases(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    fill(admin, 2000, gates=gates_digest())
    root = settings.home / "snapshots"
    work = asyncio.create_task(freeze(database, settings, "2026.W47"))
    while not any(root.glob(".medlive-*.partial")):  # noqa: ASYNC110 - the folder is all that tells
        await asyncio.sleep(0.001)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert list(root.glob(".medlive-*")) == []
    fill(admin, 1, first=2001, gates=gates_digest())
    assert (await freeze(database, settings, "2026.W47")).cases == 2000


@pytest.mark.parametrize(
    "slow",
    [f"{freeze.__module__}.row_hits", f"{build_folder.__module__}.write_snapshot"],
)
async def test_a_cancelled_freeze_ends_at_the_next_case(
    database: Database,
    settings: Settings,
    admin: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    slow: str,
) -> None:
    fill(admin, 3)
    begun, go_on, seen = asyncio.Event(), threading.Event(), list[Any]()
    loop = asyncio.get_running_loop()
    original = pkgutil.resolve_name(slow)

    def see(value: Any) -> Any:
        seen.append(value)
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        return value

    if slow.endswith("row_hits"):
        monkeypatch.setattr(slow, lambda case: original(see(case)))
    else:
        monkeypatch.setattr(slow, lambda cases, *rest: original(map(see, cases), *rest))
    work = asyncio.create_task(freeze(database, settings, "2026.W47"))
    await begun.wait()
    work.cancel()
    for _ in range(10):  # until the cancellation has reached the thread
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert len(seen) == 1
    assert list((settings.home / "snapshots").glob(".medlive-*")) == []


FULL = """
import asyncio, sys
from pathlib import Path
from medlive.config import Settings
from medlive.db.session import Database
from medlive.errors import DiskFull
from medlive.service.release.freeze import freeze

async def work():
    database = Database.connect(sys.argv[1])
    try:
        await freeze(database, Settings(home=Path(sys.argv[2]), database_url=sys.argv[1]), "2026.W47")
    except DiskFull as error:
        left = [p.name for p in (Path(sys.argv[2]) / "snapshots").iterdir() if p.name != ".freeze.lock"]
        print(error.message, "|", error.hint, "|", left, "|", error.exit_status)
    await database.aclose()

asyncio.run(work())
"""


@pytest.mark.thorough
def test_a_full_disk_is_told_and_leaves_nothing(
    database_url: str, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    fill(admin, 300, gates=gates_digest())
    (settings.home / "snapshots").mkdir(parents=True)
    (settings.home / "handle.key").write_text("k" * 64)
    (settings.home / "handle.key").chmod(0o600)
    mount = 'mount -t tmpfs -o size=200k none "$1" && shift && exec "$@"'
    # The server's socket is its user's: root stays root, whoever else becomes it in a space of his own.
    own = ["--user", "--map-root-user"] if os.geteuid() else []
    small = [
        "unshare",
        *own,
        "--mount",
        "sh",
        "-c",
        mount,
        "sh",
        str(settings.home / "snapshots"),
    ]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*small, "true"], capture_output=True).returncode
    ):
        pytest.skip("this system lets nobody mount a small disk of his own")
    command = [*small, sys.executable, "-c", FULL, database_url, str(settings.home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    message, hint, left, status = done.stdout.strip().split(" | ")
    assert "no space is left" in message
    assert "make room" in hint
    assert (left, status) == ("[]", "3")
    assert admin.execute("SELECT state FROM snapshots").fetchall() == [("building",)]
