"""Messages about problems: once when they begin, again until somebody acknowledges, once when they end."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import text

from medlive.config import NotifySection, Settings
from medlive.db import audit_log, watch
from medlive.db.audit_log import list_entries
from medlive.db.session import Database
from medlive.errors import DatabaseForbidden, ServiceUnavailable, UsageError
from medlive.service.harvest.harvest import lift_source_quarantine
from medlive.service.release.freeze import freeze
from medlive.service.schedule.rerun import clear_step, run_again
from medlive.service.watch import notify
from medlive.service.watch.checks import ENDS_AFTER
from medlive.service.watch.notify import RESENT_AFTER, look
from medlive.service.watch.status import acknowledge, read_problems
from tests.support.receivers import serve_beats, serve_webhook

Posts = list[dict[str, Any]]


@pytest.fixture
def webhook() -> Iterator[tuple[str, Posts]]:
    with serve_webhook() as receiver:
        yield receiver


async def quarantine(database: Database) -> None:
    async with database.begin() as session:
        await session.execute(
            text(
                "INSERT INTO sources VALUES ('sdn', 'site', now(), now(), 'layout') ON CONFLICT (name)"
                " DO UPDATE SET quarantined_at = now(), quarantine_reason = 'layout'"
            )
        )


async def lift(database: Database) -> None:
    async with database.begin() as session:
        await session.execute(
            text("UPDATE sources SET quarantined_at = NULL, quarantine_reason = NULL")
        )


async def acknowledged(database: Database, settings: Settings) -> list[bool]:
    """Whether somebody has taken on each problem."""
    problems = await read_problems(database, settings)
    return [problem["acknowledged"] for problem in problems]


async def pass_time(database: Database, span: timedelta) -> None:
    """As if everything stored had happened so much earlier."""
    changes = {
        "open_problems": (
            "began_at",
            "seen_at",
            "send_at",
            "acknowledged_at",
            "acknowledged_until",
        ),
        "outbox": ("created_at", "send_at"),
        "observations": ("at",),
    }
    async with database.begin() as session:
        for table, columns in changes.items():
            moved = ", ".join(
                f"{column} = {column} - make_interval(secs => :s)" for column in columns
            )
            await session.execute(
                text(f"UPDATE {table} SET {moved}"), {"s": span.total_seconds()}
            )


async def test_a_problem_is_sent_again_less_and_less_often_and_its_end_too(
    database: Database, tmp_path: Path, webhook: tuple[str, Posts]
) -> None:
    url, posts = webhook
    settings = Settings(
        home=tmp_path / "home", notify=NotifySection(webhook=SecretStr(url))
    )
    await quarantine(database)
    for wait in (*RESENT_AFTER, RESENT_AFTER[-1]):
        await look(database, settings)
        sent = len(posts)
        await pass_time(database, wait - timedelta(minutes=1))
        await look(database, settings)
        assert len(posts) == sent
        await pass_time(database, timedelta(minutes=1))
    assert [post["event"] for post in posts] == ["problem", *["problem_again"] * 3]
    # What comes and goes within minutes is one problem.
    await look(database, settings)
    await lift(database)
    await look(database, settings)
    await quarantine(database)
    await look(database, settings)
    sent = len(posts)
    await lift(database)
    await pass_time(database, timedelta(minutes=6))
    await look(database, settings)
    assert [(post["event"], post["code"]) for post in posts[sent:]] == [
        ("problem_ended", "source_quarantined")
    ]
    await look(database, settings)
    assert len(posts) == sent + 1


async def test_an_acknowledged_problem_is_silent_until_its_time_is_over_or_it_ends(
    database: Database, tmp_path: Path, webhook: tuple[str, Posts]
) -> None:
    url, posts = webhook
    settings = Settings(
        home=tmp_path / "home", notify=NotifySection(webhook=SecretStr(url))
    )
    await quarantine(database)
    await look(database, settings)
    async with database.begin() as session:
        with pytest.raises(UsageError):
            await watch.acknowledge(session, "no_worker", patience=ENDS_AFTER)
    async with database.begin() as session:
        await watch.acknowledge(
            session,
            "source_quarantined",
            patience=ENDS_AFTER,
            lasts=timedelta(days=7),
            why="known",
            by="ada",
        )
    async with database.begin() as session:
        (entry,) = await audit_log.list_entries(
            session, subject="problem:source_quarantined"
        )
        assert (entry.action.value, entry.by, entry.reason) == (
            "acknowledge",
            "ada",
            "known",
        )
    assert await acknowledged(database, settings) == [True]
    await pass_time(database, timedelta(days=6))
    await look(database, settings)
    assert len(posts) == 1
    await pass_time(database, timedelta(days=2))
    await look(database, settings)
    assert [post["event"] for post in posts] == ["problem", "problem_again"]
    assert await acknowledged(database, settings) == [False]
    # An acknowledgement ends with its problem.
    async with database.begin() as session:
        await watch.acknowledge(session, "source_quarantined", patience=ENDS_AFTER)
    await lift(database)
    await pass_time(database, timedelta(minutes=6))
    await look(database, settings)
    await quarantine(database)
    await look(database, settings)
    assert [post["event"] for post in posts[2:]] == ["problem_ended", "problem"]


async def test_who_acts_without_a_case_is_named_as_in_every_other_act(
    database: Database, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path / "home")
    await quarantine(database)
    lift_sdn = partial(lift_source_quarantine, database, "sdn", compare_anew=False)
    acts = (
        partial(lift_sdn, reason=None),
        partial(
            acknowledge, database, settings, "source_quarantined", lasts=None, why=None
        ),
        partial(run_again, database, settings, "queue"),
        partial(clear_step, database, settings, "queue"),
        partial(freeze, database, settings),
    )
    for act in acts:
        for name in ("", "a\x1bb", "x" * 201):
            with pytest.raises(UsageError, match="a name must have"):
                await act(by=name)
    for reason in ("", " ", "x" * 2001):
        for refused in (
            lift_sdn(reason=reason, by=None),
            acknowledge(
                database,
                settings,
                "source_quarantined",
                lasts=None,
                why=reason,
                by=None,
            ),
            clear_step(database, settings, "queue", reason=reason),
        ):
            with pytest.raises(UsageError, match="expected a reason"):
                await refused
    assert await lift_sdn(reason=" It is back. ", by=" Ada ") == "layout"
    async with database.begin() as session:
        [entry] = await list_entries(session)
    assert (entry.by, entry.reason) == ("Ada", "It is back.")


async def test_what_a_place_did_not_take_is_a_problem_and_is_sent_when_it_is_back(
    database: Database, tmp_path: Path, webhook: tuple[str, Posts]
) -> None:
    url, posts = webhook
    with serve_webhook(status=500) as (broken, refused):
        settings = Settings(
            home=tmp_path / "home", notify=NotifySection(webhook=SecretStr(broken))
        )
        await quarantine(database)
        await look(database, settings)
        assert [post["code"] for post in refused] == ["source_quarantined"]
        codes = {problem.code for problem in await look(database, settings)}
        assert codes == {"source_quarantined", "message_undelivered"}
        assert (
            len([post for post in refused if post["code"] == "source_quarantined"]) == 1
        )  # not at once again
    settings = settings.model_copy(
        update={"notify": NotifySection(webhook=SecretStr(url))}
    )
    await pass_time(database, timedelta(minutes=2))
    await look(database, settings)
    assert {post["code"] for post in posts} == {
        "source_quarantined",
        "message_undelivered",
    }
    assert {problem.code for problem in await look(database, settings)} == {
        "source_quarantined"
    }


async def test_the_heart_beats_while_all_is_well(
    database: Database, tmp_path: Path
) -> None:
    with serve_beats() as (url, beats):
        settings = Settings(
            home=tmp_path / "home", notify=NotifySection(heartbeat_url=SecretStr(url))
        )
        await quarantine(database)  # a ticket: the week goes on
        await look(database, settings, heard=True)
        async with database.begin() as session:
            await session.execute(
                text("REVOKE INSERT ON curations FROM medlive_worker")
            )
        await look(database, settings, heard=True)
        await look(
            database, settings
        )  # of a scheduler that hangs, or a command: no beat
    assert beats == [("/beat", "")]


async def test_checks_that_cannot_be_run_are_logged_with_their_cause(
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def forbidden(*_: object) -> None:
        raise DatabaseForbidden("no right to SELECT on jobs")

    monkeypatch.setattr(notify, "read_facts", forbidden)
    assert await look(database, Settings(home=tmp_path / "home")) == []
    assert "the checks could not be run" in caplog.text
    assert "no right to SELECT on jobs" in caplog.text


@pytest.mark.thorough
async def test_acknowledging_a_problem_does_not_hide_that_another_has_ended(
    database: Database, tmp_path: Path, webhook: tuple[str, Posts]
) -> None:
    url, posts = webhook
    settings = Settings(
        home=tmp_path / "home", notify=NotifySection(webhook=SecretStr(url))
    )
    async with database.begin() as session:
        await session.execute(text("REVOKE INSERT ON curations FROM medlive_worker"))
    await quarantine(database)
    await look(database, settings)
    await lift(database)
    await pass_time(database, timedelta(minutes=6))  # as where cron looks each hour
    take_on = partial(acknowledge, database, settings, lasts=None, why=None, by=None)
    with pytest.raises(UsageError, match="no problem source_quarantined is open"):
        await take_on("source_quarantined")
    await take_on("rights_missing")
    sent = len(posts)
    await look(database, settings)
    assert [(post["event"], post["code"]) for post in posts[sent:]] == [
        ("problem_ended", "source_quarantined")
    ]


async def test_a_place_that_hangs_keeps_no_heartbeat_waiting(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    async def hang(section: NotifySection, place: str, _: dict[str, Any]) -> None:
        tried.append(place)
        if place == "webhook":
            await asyncio.sleep(0.1)
            raise ServiceUnavailable("the webhook was not delivered")

    monkeypatch.setattr(notify, "send", hang)
    monkeypatch.setattr(notify, "_SLOW_S", 0.05)
    async with database.begin() as session:
        for _ in range(30):
            await watch.post(session, ["webhook"], {"text": "a"})
        await watch.post(session, ["email"], {"text": "a"})
    section = NotifySection(
        webhook=SecretStr("https://example.org"),
        email_to=("a@example.org",),
        email_from="b@example.org",
        smtp_host="localhost",
    )
    assert await notify.deliver(database, section) == 1
    assert tried == ["webhook", "email"]
