"""A week from its freeze to its announcement: verified, published behind the gates, told to operators."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from medlive.cli.operations.week import describe_week
from medlive.cli.output import Result, show_result
from medlive.clock import iso_week
from medlive.config import NotifySection, PublishSection, Settings
from medlive.db.audit_log import record
from medlive.db.harvest.harvests import finish_harvest, start_harvest
from medlive.db.session import Database
from medlive.db.tables.people import Act
from medlive.errors import CheckFailed, ServiceUnavailable
from medlive.guard.redaction import hide_secrets
from medlive.instance.paths import snapshots_path
from medlive.service.release.freeze import BY_PERSON, freeze
from medlive.service.release.publish import announce_week
from medlive.service.schedule.scheduler import run_scheduler
from medlive.service.watch.notify import deliver, places, send
from medlive.service.watch.status import read_week
from medlive.snapshot.gates import gates_digest
from tests.support.receivers import serve_mail, serve_webhook
from tests.support.release import fill
from tests.support.web import served, whole_site

SUNDAY = datetime(2026, 11, 22, 18, 30, tzinfo=UTC)
WEEK = iso_week(SUNDAY)


@pytest.fixture
def admin(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(
        database_url.replace("+psycopg", ""), autocommit=True
    ) as connection:
        yield connection


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    publish = PublishSection(at=str(tmp_path / "public"), weekly=True)
    return Settings(
        home=tmp_path / "home", database_url=SecretStr(database_url), publish=publish
    )


async def take(settings: Settings, moment: datetime = SUNDAY) -> dict[str, str]:
    """The release steps that are due, and how they ended."""
    done = await run_scheduler(
        settings, asyncio.Event(), lambda _: None, once=True, clock=lambda: moment
    )
    outcomes = {
        step["command"].removeprefix("scheduler "): step["state"] for step in done
    }
    return {
        name: outcome
        for name, outcome in outcomes.items()
        if not name.startswith("harvest")
    }


async def test_the_scheduler_s_log_states_the_head_of_the_audit_log(
    settings: Settings, admin: psycopg.Connection[Any], database: Database
) -> None:
    fill(admin, 3, gates=gates_digest())
    async with database.begin() as session:
        entry = await record(session, Act.DISABLE, "account:ada", by="bo")
    messages: list[str] = []
    await run_scheduler(
        settings, asyncio.Event(), messages.append, once=True, clock=lambda: SUNDAY
    )
    frozen = [
        message
        for message in messages
        if message.startswith(f"{WEEK} scheduler freeze: done: ")
    ]
    assert len(frozen) == 1
    assert "audit_log_entries 1" in frozen[0]
    assert f"audit_log_head {entry.digest}" in frozen[0]


async def test_a_frozen_week_is_verified_published_and_announced_once(
    database: Database,
    settings: Settings,
    admin: psycopg.Connection[Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(admin, 3, gates=gates_digest())
    with serve_webhook() as (url, posts), serve_mail() as (port, mails):
        told = NotifySection(
            webhook=SecretStr(url),
            email_to=("ops@example.org",),
            smtp_host="127.0.0.1",
            smtp_port=port,
        )
        settings = settings.model_copy(update={"notify": told})
        # There is no evidence index, so threads cannot be curated; what is ready is released all the same.
        steps = {
            "queue": "skipped",
            "freeze": "done",
            "verify": "done",
            "publish": "done",
            "announce": "done",
        }
        assert await take(settings) == steps
        assert (tmp_path / "public" / f"medlive-{WEEK}" / "SHA256SUMS").is_file()
        weeks = [post["week"] for post in posts if post["event"] == "released"]
        assert weeks == [WEEK]
        texts = {(post["event"], post.get("code")): post["text"] for post in posts}
        assert "no evidence index" in str(texts), texts
        assert (
            texts["released", None]
            == f"{WEEK} is published: 3 cases, 9 criteria, at {tmp_path / 'public'}"
        )
        # folding adds white space
        subjects = [" ".join(mail["Subject"].split()) for mail in mails]
        assert subjects == [
            f"medlive: {post['text'].splitlines()[0][:150]}" for post in posts
        ]
        assert [m.get_content().split() for m in mails] == [
            p["text"].split() for p in posts
        ]
        sent = len(posts)
        # The same failure is told once, and nothing is released twice.
        assert await take(settings) == {"queue": "skipped"}
        assert (len(posts), len(mails)) == (sent, sent)
        assert all(m["Date"].datetime.tzinfo and m["Message-ID"] for m in mails)
    week = await read_week(database, settings, WEEK)
    assert {step["name"]: step["outcome"] for step in week["steps"]} == {
        f"scheduler {name}": "partial" if outcome == "skipped" else outcome
        for name, outcome in steps.items()
    }
    week["steps"][0]["cost_usd"] = None  # As after a reply without a price
    show_result(Result(None, describe_week(week)))
    page = capsys.readouterr().out
    assert "unknown" in page.partition("Steps")[2].partition("decided")[0]
    shipped = " ".join(page.partition("Shipped")[2].split())
    assert "state ┃ cases ┃ criteria ┃ signed ┃ publishable" in shipped
    assert "frozen │ 3 │ 9 │ False │ True │" in shipped
    counts = {
        k: week["snapshot"][k]
        for k in ("cases", "criteria", "held_out", "publishable", "signed")
    }
    assert counts == {
        "cases": 3,
        "criteria": 9,
        "held_out": 0,
        "publishable": True,
        "signed": False,
    }


async def test_a_week_frozen_by_hand_and_harvested_twice_claims_nothing_of_either(
    database: Database,
    settings: Settings,
    admin: psycopg.Connection[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(admin, 3, gates=gates_digest())
    await freeze(database, settings, WEEK)
    for _ in range(2):
        async with database.begin() as session:
            run = await start_harvest(session, "forum", WEEK, again=True)
            assert run is not None
            await finish_harvest(session, run)
    week = await read_week(database, settings, WEEK)
    assert week["harvests"][0]["took"] is None
    show_result(Result(None, describe_week(week)))
    page = capsys.readouterr().out
    assert "Steps" not in page


async def test_a_partial_week_says_so_where_it_is_announced_and_on_its_page(
    database: Database, settings: Settings, admin: psycopg.Connection[Any]
) -> None:
    fill(admin, 4, gates=gates_digest())
    admin.execute("SELECT medlive_refresh_standings(ARRAY[1, 2, 3, 4])")
    admin.execute("INSERT INTO week_threads (revision_id) SELECT generate_series(1, 4)")
    # As if the fourth were never decided.
    admin.execute(
        "UPDATE thread_standings SET outcome = 'pending', stage = 'screener' WHERE thread_id = 4"
    )
    with pytest.raises(CheckFailed, match="3 of 4"):
        await freeze(database, settings, WEEK)
    await freeze(database, settings, WEEK, partial=BY_PERSON)
    said = "3 of 4, because 1 wait (not begun 1); frozen so by a person"
    with serve_webhook() as (url, posts):
        settings = settings.model_copy(
            update={"notify": NotifySection(webhook=SecretStr(url))}
        )
        await announce_week(database, settings, WEEK)
        await deliver(database, settings.notify)
        assert posts[-1]["text"].endswith(f"\npartial: {said}")
    async with served(
        whole_site(database, settings, snapshots_path(settings))
    ) as browser:
        page = (await browser.get(f"/medlive-{WEEK}/")).text
    assert f"This week is partial: {said}. The rest enters a later one." in page


async def test_a_week_that_its_gates_refuse_is_withheld(
    settings: Settings, admin: psycopg.Connection[Any], tmp_path: Path
) -> None:
    fill(admin, 1, gates=gates_digest())
    settings = settings.model_copy(
        update={"release": settings.release.model_copy(update={"minimum_cases": 2})}
    )
    with serve_webhook() as (url, posts):
        settings = settings.model_copy(
            update={"notify": NotifySection(webhook=SecretStr(url))}
        )
        assert (await take(settings))["announce"] == "done"
        (released,) = (post["text"] for post in posts if post["event"] == "released")
        assert released.startswith(f"{WEEK} is frozen and withheld\n")
    assert not (tmp_path / "public").exists()


async def test_a_week_that_does_not_verify_goes_nowhere(
    database: Database,
    settings: Settings,
    admin: psycopg.Connection[Any],
    tmp_path: Path,
) -> None:
    fill(admin, 1, gates=gates_digest())
    frozen = await freeze(database, settings, WEEK)
    (frozen.path / "README.md").write_text("another", encoding="utf-8")
    assert await take(settings) == {"queue": "skipped", "verify": "failed"}
    assert not (tmp_path / "public").exists()
    # What failed is told by the week, and taken again.
    assert (await read_week(database, settings, WEEK))["steps"][-1]["counts"][
        "problem"
    ].startswith(str(frozen.path))
    assert "verify" in await take(settings, SUNDAY + timedelta(hours=2))


async def test_a_place_that_refuses_is_named_without_its_address() -> None:
    message = {"event": "problem", "week": WEEK, "text": "a step failed"}
    with serve_webhook(status=500) as (url, posts), serve_mail() as (port, mails):
        told = NotifySection(
            webhook=SecretStr(url),
            email_to=("a@example.org", "b@example.org"),
            smtp_host="127.0.0.1",
            smtp_port=port,
        )
        assert places(told) == ["webhook", "email"]
        with pytest.raises(ServiceUnavailable) as caught:
            await send(told, "webhook", message)
        await send(told, "email", message)
    assert "secret-token" not in f"{caught.value} {caught.value.hint}"
    assert hide_secrets(f"HTTP Request: POST {url} 500") == "HTTP Request: POST *** 500"
    assert (posts, mails[0]["To"]) == ([message], "a@example.org, b@example.org")
    assert places(NotifySection()) == []
