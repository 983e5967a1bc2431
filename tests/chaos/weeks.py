"""`--weeks N`: weeks of one installation, PostgreSQL killed amid each; all are whole, or say that they are not."""

import asyncio
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from year.world import Writer

from tests.chaos.checks import (
    check_published,
    find_changed,
    find_losses,
    find_written,
    read_snapshot,
    snapshot_folder,
)
from tests.chaos.faults import kill_server
from tests.chaos.stage import AT_FREEZE, SERVICE, WEB, WORKER, Stage, StuckError, Week
from tests.support.forum import Forum
from tests.support.receivers import serve_webhook

NEW_THREADS = 12
"""New threads a week."""
CALLS_OF_A_THREAD = 12
"""About so many requests for each, from which the moments of the kills are drawn."""
PARTIAL_EACH = 5
"""In one week of so many the workers are away until the freeze has waited for as long as it may."""
_ROLES = (SERVICE, WORKER, WORKER, WEB)
_LIMIT = timedelta(hours=25)
_LIMIT_S = 60.0

_EXPECTED = """
SELECT c.id FROM cases c JOIN thread_standings s ON s.thread_id = c.thread_id
WHERE s.outcome = 'kept' AND c.status = 'ready'
EXCEPT SELECT case_id FROM snapshot_kept_out WHERE version = %s ORDER BY 1
"""
_MEMBERS = "SELECT case_id FROM snapshot_members WHERE version = %s ORDER BY 1"
_META = "SELECT meta->'standing', meta->'partial' FROM snapshots WHERE version = %s"
_KEPT = "SELECT count(*) FROM thread_standings WHERE outcome = 'kept'"
_WAITS = "SELECT count(*) FROM step_waits WHERE step = 'freeze' AND week = '{week}'"


class Kill(NamedTuple):
    """A kill -9 of PostgreSQL: after which of the week's requests, and whether any was left to do."""

    after: int
    amid: bool


@dataclass(frozen=True)
class Lived:
    """A week as it came to its end."""

    name: str
    posted: int  # Threads in all
    expected: int  # Cases in all, once every thread was decided
    frozen: int  # Cases in its snapshot
    kills: Sequence[Kill]
    partial: str  # What the manifest says; empty: it is whole
    problems: Sequence[str]
    seconds: float


@dataclass
class Installation:
    """What lives on from week to week."""

    stage: Stage
    week: Week
    random: random.Random
    writer: Writer
    told: Sequence[dict[str, Any]]
    """What the webhook was sent."""
    frozen: dict[str, dict[str, str]] = field(default_factory=dict)
    """Week → the digests of its frozen rows."""


async def live_weeks(
    stage: Stage,
    count: int,
    seed: int,
    notify: Callable[[Lived], None],
    logs: Path | None = None,
) -> list[Lived]:
    """Live consecutive weeks of one installation.

    Args:
        stage: The server, and the forum, whose threads are replaced.
        count: How many weeks.
        seed: Chooses the moments of the kills and the weeks whose workers are away.
        notify: Gets each week at its end.
        logs: Folder for what the processes wrote, as `weeks.log`.

    Returns:
        The weeks, up to one that did not come to its end; the last one's problems are the installation's too.
    """
    monday = datetime.fromisocalendar(*stage.started.isocalendar()[:2], 1)
    begin = monday.replace(tzinfo=UTC) + timedelta(hours=2)
    stage.forum.threads.clear()
    lived: list[Lived] = []
    with serve_webhook() as (address, told):
        notifying = {"MEDLIVE_NOTIFY__WEBHOOK": address}
        async with stage.new_week(begin=begin, settings=notifying) as week:
            chance = random.Random(f"{seed} weeks")
            home = Installation(stage, week, chance, Writer(seed), told)
            week.roles, week.time_flies = _ROLES, True
            week.endpoint.ahead = lambda: week.offset + week.world
            for number in range(count):
                moment = begin + timedelta(days=7 * number) + AT_FREEZE
                done = await _live_week(home, number, moment)
                lived.append(done)
                notify(done)
                if week.name not in home.frozen:
                    break
            week.kill_all()
            if logs is not None:
                shutil.copy(week.shift.with_name("log"), logs / "weeks.log")
            problems = find_losses(week, late=timedelta(microseconds=1))
            for name, digests in home.frozen.items():
                problems += find_changed(week, name, digests)
            if problems := [*problems, *find_written(week)]:
                lived.append(Lived("the installation", 0, 0, 0, (), "", problems, 0.0))
    return lived


async def _live_week(home: Installation, number: int, moment: datetime) -> Lived:
    week, began = home.week, time.monotonic()
    _post(home.stage.forum, home.writer, home.random, moment)
    partial = number % PARTIAL_EACH == PARTIAL_EACH - 2
    asked, kills = week.endpoint.asked, list[Kill]()
    for _ in range(home.random.randint(2, 4)):
        least = asked + home.random.randint(1, NEW_THREADS * CALLS_OF_A_THREAD)
        kills.append(Kill(least, amid=False))
    kills.sort()
    kept = week.instance.one(_KEPT)
    week.begin_next(moment)
    disturbing = asyncio.create_task(_kill_database(home, kills))
    if partial:
        staying = asyncio.create_task(_workers_stay_away(week, kept))
    else:
        staying = asyncio.create_task(asyncio.sleep(0))
    problems: list[str] = []
    try:
        await week.finish()
        await asyncio.gather(disturbing, staying)
        home.frozen[week.name] = week.frozen_rows
        problems += await _check_week(home, partial=partial)
    except StuckError as error:
        problems.append(str(error))
    finally:
        for task in (disturbing, staying):
            task.cancel()
        await asyncio.gather(disturbing, staying, return_exceptions=True)
    ((_, said),) = week.instance.rows(_META, [week.name]) or [(None, None)]
    return Lived(
        name=week.name,
        posted=len(home.stage.forum.threads),
        expected=len(week.instance.rows(_EXPECTED, [week.name])),
        frozen=len(week.instance.rows(_MEMBERS, [week.name])),
        kills=[Kill(kill.after - asked, kill.amid) for kill in kills],
        partial=_in_short(said),
        problems=problems,
        seconds=time.monotonic() - began,
    )


def _post(
    forum: Forum, writer: Writer, chance: random.Random, moment: datetime
) -> None:
    """Put up the threads of the days before a moment."""
    for _ in range(NEW_THREADS):
        posted = moment - timedelta(hours=chance.uniform(4, 150))
        forum.add(writer.write("sdn", posted.replace(second=0, microsecond=0)))


async def _kill_database(home: Installation, kills: list[Kill]) -> None:
    """kill -9 the server at these requests of the week, or as soon as no thread waits any more."""
    week = home.week
    for place, kill in enumerate(kills):
        while week.settled_at is None and week.endpoint.asked < kill.after:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        amid = week.settled_at is None
        kills[place] = Kill(week.endpoint.asked, amid)
        await asyncio.sleep(home.random.uniform(0, 0.1))
        await kill_server(home.stage.home)


async def _workers_stay_away(week: Week, kept: int) -> None:
    """Nobody does the rest of the threads until the freeze has waited for as long as it may."""
    until = time.monotonic() + _LIMIT_S
    while (week.query(_KEPT) or 0) <= kept and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    week.roles = tuple(role for role in _ROLES if role != WORKER)
    for process in week.running:
        if process.role == "worker":
            process.kill()
    waits = _WAITS.format(week=week.name)
    while not week.query(waits) and not week.is_frozen:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    week.set_clocks(world=week.world + _LIMIT)
    while not week.is_frozen and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    week.roles = _ROLES


async def _check_week(home: Installation, *, partial: bool) -> list[str]:
    """What is not as it must be when the week has come to its end and every thread is decided."""
    week, problems = home.week, list[str]()
    ((standing, said),) = week.instance.rows(_META, [week.name])
    members = set(week.instance.rows(_MEMBERS, [week.name]))
    missing = set(week.instance.rows(_EXPECTED, [week.name])) - members
    if missing and not said:
        problems.append(f"not whole, and does not say so: without {sorted(missing)}")
    if bool(standing[4]) != bool(said):
        problems.append(f"{standing} threads, and the partial of the rows is {said}")
    if said and not partial:
        problems.append(f"partial without a reason: {said}")
    problems += await _find_unsaid(home, _in_short(said))
    files = read_snapshot(snapshot_folder(week), week)
    problems += check_published(week, files)
    code = "week_partial"
    named = await week.find_problems(but=code)
    if bool(said) != any(line.startswith(code) for line in await week.check()):
        problems.append(f"status --check says otherwise than {said}")
    if named:
        problems.append(f"status --check: {named}")
    return problems


async def _find_unsaid(home: Installation, partial: str) -> list[str]:
    """Where the manifest, the list of changes, the page and the announcement say otherwise."""
    week = home.week
    folder = snapshot_folder(week)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    texts = {"CHANGES.md": (folder / "CHANGES.md").read_text(encoding="utf-8")}
    address = f"http://127.0.0.1:{WEB[WEB.index('--port') + 1]}"
    async with httpx2.AsyncClient() as client:
        texts["the page"] = await _read_page(client, f"{address}/medlive-{week.name}/")
    texts["the announcement"] = await _read_announcement(home)
    problems = []
    if _in_short(manifest.get("partial")) != partial:
        problems.append(f"the manifest says {manifest.get('partial')}, not {partial}")
    for name, text in texts.items():
        if not text or ("partial" in text) != bool(partial):
            problems.append(f"{name} should say {partial!r}: {text[:300]}")
        elif partial not in text:
            problems.append(f"{name} does not say {partial!r}")
    return problems


async def _read_announcement(home: Installation) -> str:
    """What the webhook was sent of the week's release; empty where nothing comes."""
    until = time.monotonic() + _LIMIT_S
    while time.monotonic() < until:
        for message in home.told:
            if (message["event"], message["week"]) == ("released", home.week.name):
                return str(message["text"])
        await asyncio.sleep(0.2)
    return ""


async def _read_page(client: httpx2.AsyncClient, address: str) -> str:
    """A page, once the web server has its database again; empty where it is not to be had."""
    until = time.monotonic() + _LIMIT_S
    while time.monotonic() < until:
        try:
            answer = await client.get(address)
            if answer.status_code == 200:
                return answer.text
        except httpx2.TransportError:
            pass
        await asyncio.sleep(0.2)
    return ""


def _in_short(said: dict[str, Any] | None) -> str:
    """Such as "16 of 45, because 29 wait"; empty for a whole week."""
    if not said:
        return ""
    return f"{said['decided']} of {said['queued']}, because {said['because']}"


def tabulate_weeks(lived: Sequence[Lived]) -> Iterator[str]:
    """The table in Markdown: a row for each week."""
    yield "| week | threads | cases | frozen | killed at request | partial | problems | s |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for one in lived:
        kills = []
        for kill in one.kills:
            kills.append(f"{kill.after}" if kill.amid else f"{kill.after} (decided)")
        yield (
            f"| {one.name} | {one.posted} | {one.expected} | {one.frozen} "
            f"| {', '.join(kills)} | {one.partial} | {len(one.problems)} "
            f"| {one.seconds:.0f} |"
        )
