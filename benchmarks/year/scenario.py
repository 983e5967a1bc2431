"""The year: what happens in which week, who does what about it, and what the maintainer is told."""

import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from pydantic import SecretStr

from medlive.clock import iso_week
from medlive.config import (
    NotifySection,
    PublishSection,
    Roles,
    RoleSettings,
    RubricSection,
    Settings,
)
from medlive.db import embedded
from medlive.db.schema.migrate import upgrade
from medlive.demo.samples import SITES, SampleThread, Site, sample_evidence_path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.instance.paths import index_path, snapshots_path
from medlive.integrity.signing import KEY_VARIABLE, generate
from medlive.llm.registry import Price
from medlive.service.database import open_database
from medlive.service.harvest.harvest import lift_source_quarantine
from medlive.service.harvest.takedown import take_down
from medlive.service.release.withdraw import withdraw
from medlive.service.watch.status import read_problems, read_week
from medlive.snapshot.errata import WithdrawalKind
from medlive.snapshot.model import folder_name
from medlive.snapshot.verify.steps import verify_snapshot
from year.clock import Clock, simulated
from year.staff import Staff
from year.world import WEEK, World, Writer, boards, serve_endpoint

FIRST = datetime(2027, 1, 4, tzinfo=UTC)
"""The Monday the year begins on; the sample evidence is older."""
KEY = "MEDLIVE_YEAR_KEY"
MORNING = timedelta(hours=8)
CHECKS = (0, 3)
"""On Monday and Thursday at that hour the maintainer runs `medlive status --check`."""
_OF_THE_SIMULATION = ("no_scheduler", "clock_off")
"""Weeks pass in seconds here, between two of the scheduler's looks, and a look may last from one day into another."""
_TIMES = re.compile(r"( at)? \d\d:\d\d\b( UTC)?")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens, `after` the beginning of a week counted from 1."""

    week: int
    after: timedelta
    what: str
    act: Callable[["Year"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Week:
    """A week as `medlive week show` tells it the Monday after, and what simulating it took."""

    number: int
    name: str
    posted: int
    figures: dict[str, Any]
    calls: int
    refused: int
    cpu_s: float

    @property
    def cases(self) -> int | None:
        """The cases of its snapshot; None where none was frozen."""
        snapshot = self.figures["snapshot"]
        return (
            None
            if snapshot is None or snapshot["frozen_at"] is None
            else int(snapshot["cases"])
        )

    @property
    def usd(self) -> float:
        """What its replies cost."""
        cost = self.figures["cost"]
        return float(cost["cost_usd"] or 0.0) if cost else 0.0


@dataclass
class Year:
    """The instance, the world around it, and what was seen."""

    home: Path
    settings: Settings
    clock: Clock
    world: World
    writer: Writer
    staff: Staff
    log: list[tuple[int, str, str]] = field(default_factory=list)
    """(week, kind, line): kind is "event", "status", "told" or "scheduler"."""
    weeks: list[Week] = field(default_factory=list)
    taken_down: list[SampleThread] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    problems: set[str] = field(default_factory=set)
    promises: list[tuple[str, bool]] = field(default_factory=list)
    running: bool = False

    def note(self, kind: str, line: str) -> None:
        """Record a line under the present week."""
        week = (self.clock.now() - FIRST) // WEEK + 1
        self.log.append((week, kind, _ADDRESS.sub("localhost", _TIMES.sub("", line))))

    def hear(self, message: dict[str, str]) -> None:
        """Record what the webhook was sent."""
        if message.get("code") not in _OF_THE_SIMULATION:
            self.note("told", message["text"].splitlines()[0])

    async def restart(self, **changes: Any) -> None:
        """Change settings, as an edit of the configuration and a restart of the services."""
        self.settings = self.settings.model_copy(update=changes)
        if self.running:
            await self.staff.stop()
            await self.staff.start(self.settings)

    async def power(self, on: bool) -> None:
        """Switch the machine that runs the services on or off."""
        await (self.staff.start(self.settings) if on else self.staff.stop())
        self.running = on

    def roles(self, model: str) -> Roles:
        """The roles with a model."""
        role = RoleSettings.model_validate(
            {**self.settings.roles.screener.model_dump(), "model": model}
        )
        return Roles(
            screener=role, validator=role, controller=role, rubric=role, reader=role
        )

    async def check(self) -> None:
        """Note the lines of `status --check` that are new or gone since the last time."""
        found = set()
        async with open_database(self.settings) as database:
            problems = await read_problems(database, self.settings)
        for problem in problems:
            if problem["code"] not in _OF_THE_SIMULATION:
                found.add(_TIMES.sub("", problem["text"]))
        for line in sorted(found - self.problems):
            self.note("status", line)
        for line in sorted(self.problems - found):
            self.note("status", f"no more: {line}")
        self.problems = found


async def run_year(
    home: Path, seed: int, weeks: int, notify: Callable[[str], None]
) -> Year:
    """Simulate weeks of the year in a folder of their own; the embedded database runs on."""
    url = embedded.start(home)
    with simulated(url, FIRST - timedelta(hours=1)) as clock:
        upgrade(url)
        world, writer = World(), Writer(seed)
        with psycopg.connect(
            url.replace("+psycopg", ""), autocommit=True
        ) as connection:
            async with serve_endpoint(world) as endpoint:
                year = _prepare(home, clock, world, writer, connection, endpoint)
                world.told = lambda message: year.hear(message)
                try:
                    await _live(year, weeks, notify)
                    year.promises = promises(year)
                finally:
                    if year.running:
                        await year.staff.stop()
                    await world.close()
    return year


def _prepare(
    home: Path,
    clock: Clock,
    world: World,
    writer: Writer,
    connection: psycopg.Connection,
    endpoint: str,
) -> Year:
    os.environ[KEY] = world.good_key
    os.environ[KEY_VARIABLE] = generate()[0]
    role = RoleSettings(
        engine="openai",
        base_url=endpoint,
        model="synthetic-1",
        api_key_env=KEY,
        price=Price(input=1.0, output=4.0),
    )
    settings = Settings(
        home=home,
        harvest={"allow_loopback": True},
        roles=Roles(
            screener=role, validator=role, controller=role, rubric=role, reader=role
        ),
        # The rules engine has no answers to prove rubrics by.
        rubric=RubricSection(prove=False),
        publish=PublishSection(to="folder", at=str(home / "public"), weekly=True),
        notify=NotifySection(webhook=SecretStr(endpoint.removesuffix("/v1") + "/told")),
    )
    # The freeze falls due beside the queue in every week, as after weeks that were missed.
    together = settings.schedule.model_copy(update={"freeze": settings.schedule.queue})
    settings = settings.model_copy(update={"schedule": together})
    build_index(
        [open_corpus(sample_evidence_path(), name="demo")], index_path(settings)
    )
    year = Year(
        home,
        settings,
        clock,
        world,
        writer,
        Staff(clock, connection, lambda line: None),
    )
    year.staff.notify = lambda line: year.note("scheduler", line)
    return year


async def _live(year: Year, weeks: int, notify: Callable[[str], None]) -> None:
    for number in range(1, weeks + 1):
        monday, cpu = FIRST + WEEK * (number - 1), time.process_time()
        calls, refused = year.world.calls, year.world.refused
        # What was posted in the week before the first harvest is there at the beginning.
        posted = year.writer.week(monday - WEEK, (number - 1) / 51)
        year.world.threads += posted
        communities = await year.world.publish(monday)
        if number == 1:
            urls = {site: own.base_url for site, own in communities.items()}
            sources = {
                site: {
                    "base_url": urls[site],
                    "boards": boards(communities, site),
                    "min_interval_s": 0.0,
                }
                for site in SITES
            }
            await year.restart(sources=sources)
            await year.power(on=True)
        await _one_week(year, number, monday)
        async with open_database(year.settings) as database:
            figures = await read_week(database, year.settings, iso_week(monday))
        year.weeks.append(
            Week(
                number,
                iso_week(monday),
                len(posted),
                figures,
                year.world.calls - calls,
                year.world.refused - refused,
                time.process_time() - cpu,
            )
        )
        notify(
            f"week {number}: {len(posted)} posted, {year.weeks[-1].cases} cases, {year.weeks[-1].cpu_s:.1f} s"
        )


async def _one_week(year: Year, number: int, monday: datetime) -> None:
    events = [(monday + event.after, event) for event in EVENTS if event.week == number]
    mornings = [monday + timedelta(days=day) + MORNING for day in CHECKS]
    moment, end = monday, monday + WEEK - timedelta(minutes=30)
    while moment < end:
        year.clock.set(moment)
        for at, event in events:
            if at == moment:
                year.note("event", event.what)
                await event.act(year)
        if year.running:
            await year.staff.settle()
        if moment in mornings:
            await year.check()
        stops = sorted({*mornings, *(at for at, _ in events), end})
        until = next(stop for stop in stops if stop > moment)
        moment = await year.staff.next_moment(moment, until) if year.running else until


def _frozen(year: Year) -> list[SampleThread]:
    """Threads whose cases are in a snapshot, oldest first."""
    rows = year.staff.rows(
        "SELECT DISTINCT t.source, t.thread_id FROM threads t JOIN cases c ON c.thread_id = t.id"
        " JOIN snapshot_members m ON m.case_id = c.id WHERE c.status = 'ready'"
    )
    kept = {(source, thread_id) for source, thread_id in rows}
    return [t for t in year.world.threads if (t.site, t.thread_id) in kept]


async def _edit(year: Year) -> None:
    for thread in year.world.threads[-25::5][:5]:
        year.world.threads[year.world.threads.index(thread)] = year.writer.edited(
            thread
        )
    await year.world.publish(year.clock.now())


def _layout(site: Site, changed: bool) -> Callable[[Year], Awaitable[None]]:
    async def act(year: Year) -> None:
        (
            year.world.changed_layout.add
            if changed
            else year.world.changed_layout.discard
        )(site)
        if not changed:
            await _lift(year, site, "the adapter reads the new layout")

    return act


def _ban(site: Site, banned: bool) -> Callable[[Year], Awaitable[None]]:
    async def act(year: Year) -> None:
        (year.world.banned.add if banned else year.world.banned.discard)(site)

    return act


async def _lift(year: Year, site: Site, reason: str) -> None:
    async with open_database(year.settings) as database:
        await lift_source_quarantine(
            database, site, compare_anew=False, reason=reason, by="maintainer"
        )


async def _revoke(year: Year) -> None:
    year.world.good_key = "key-2"


async def _renew(year: Year) -> None:
    os.environ[KEY] = year.world.good_key
    await year.restart()


def _upgrade(model: str) -> Callable[[Year], Awaitable[None]]:
    async def act(year: Year) -> None:
        await year.restart(roles=year.roles(model))

    return act


async def _take_down(year: Year) -> None:
    thread = _frozen(year)[3]
    year.taken_down.append(thread)
    year.world.threads.remove(thread)
    async with open_database(year.settings) as database:
        await take_down(
            database,
            year.settings,
            thread.site,
            thread.thread_id,
            "asked by the author",
            by="maintainer",
        )


async def _withdraw(year: Year) -> None:
    thread = _frozen(year)[-5]
    ((case_id,),) = year.staff.rows(
        "SELECT c.id FROM cases c JOIN threads t ON t.id = c.thread_id WHERE (t.source, t.thread_id) = (%s, %s)",
        [thread.site, thread.thread_id],
    )
    year.withdrawn.append(case_id)
    async with open_database(year.settings) as database:
        await withdraw(
            database,
            year.settings,
            case_id,
            WithdrawalKind.ERRATUM,
            "its advice is out of date",
            by="maintainer",
        )


async def _rotate(year: Year) -> None:
    os.environ[KEY_VARIABLE] = generate()[0]


async def _off(year: Year) -> None:
    await year.power(on=False)


async def _on(year: Year) -> None:
    await year.power(on=True)


def _at(day: int, hour: int) -> timedelta:
    """Days from 0 for Monday, and the hour."""
    return timedelta(days=day, hours=hour)


EVENTS = (
    Event(3, _at(0, 1), "five threads are edited", _edit),
    Event(9, _at(0, 1), "dxy changes its layout", _layout("dxy", True)),
    Event(
        10,
        _at(2, 10),
        "the adapter of dxy is mended and its quarantine lifted",
        _layout("dxy", False),
    ),
    Event(
        13,
        _at(0, 1),
        "the models behind the roles are upgraded to synthetic-2",
        _upgrade("synthetic-2"),
    ),
    Event(15, _at(0, 1), "sdn bans the harvester (403)", _ban("sdn", True)),
    Event(17, _at(2, 10), "sdn lets the harvester in again", _ban("sdn", False)),
    Event(19, _at(0, 12), "the key of the endpoint is revoked", _revoke),
    Event(20, _at(3, 10), "the new key is set", _renew),
    Event(21, _at(0, 1), "five threads are edited", _edit),
    Event(23, _at(2, 10), "an author asks for a takedown", _take_down),
    Event(25, _at(2, 10), "a released case is withdrawn as an erratum", _withdraw),
    Event(
        27,
        _at(0, 1),
        "the models behind the roles are upgraded to synthetic-3",
        _upgrade("synthetic-3"),
    ),
    Event(30, _at(0, 1), "the machine is off", _off),
    Event(31, _at(2, 10), "the machine is on again", _on),
    Event(33, _at(2, 10), "the signing key is rotated", _rotate),
    Event(36, _at(2, 10), "an author asks for a takedown", _take_down),
    Event(
        40,
        _at(0, 1),
        "the models behind the roles are upgraded to synthetic-4",
        _upgrade("synthetic-4"),
    ),
    Event(44, _at(0, 1), "five threads are edited", _edit),
    Event(47, _at(2, 10), "a released case is withdrawn as an erratum", _withdraw),
)


def promises(year: Year) -> list[tuple[str, bool]]:
    """What must hold at the end of any year, and whether it does."""
    home = snapshots_path(year.settings)
    frozen = [week for week in year.weeks if week.cases is not None]
    last = (home / folder_name(frozen[-1].name) / "data" / "cases.jsonl").read_text(
        encoding="utf-8"
    )
    rows = year.staff.rows
    off = {
        iso_week(FIRST + WEEK * (e.week - 1))
        for e in EVENTS
        if e.act is _off and e.week <= len(year.weeks)
    }
    undecided = rows(
        "SELECT count(*) FROM threads t WHERE NOT EXISTS (SELECT 1 FROM thread_revisions r"
        " JOIN filter_results f ON f.revision_id = r.id LEFT JOIN curations c ON c.revision_id = r.id"
        " WHERE r.thread_id = t.id AND (NOT f.passed OR c.outcome IN ('kept', 'rejected', 'held')))"
    )
    known = {(s, i) for s, i in rows("SELECT source, thread_id FROM threads")}
    words_left = [
        thread
        for thread in year.taken_down
        if rows(
            "SELECT 1 FROM threads t JOIN thread_revisions r ON r.thread_id = t.id"
            " WHERE (t.source, t.thread_id) = (%s, %s) AND r.messages <> '[]'",
            [thread.site, thread.thread_id],
        )
    ]
    partial = rows("SELECT count(*) FROM snapshots WHERE meta->>'partial' IS NOT NULL")
    late = rows(
        "SELECT count(*) FROM week_threads w JOIN snapshots s ON s.version = w.week"
        " WHERE w.frozen_in IS DISTINCT FROM w.week AND s.meta->>'partial' IS NULL"
        # What a source that was let in again brings after its week's freeze is the next one's.
        " AND w.queued_at < s.frozen_at"
    )
    missing = [t for t in year.world.threads if (t.site, t.thread_id) not in known]
    return [
        (
            f"every week has its snapshot but the {len(off)} that the machine was off in",
            {w.name for w in year.weeks if w.cases is None} <= off,
        ),
        (
            f"every snapshot is whole, or says that it is partial ({partial[0][0]} do)",
            late == [(0,)],
        ),
        (
            "every snapshot verifies",
            all(verify_snapshot(home / folder_name(w.name)).ok for w in frozen),
        ),
        (
            "every snapshot is published",
            all((year.home / "public" / folder_name(w.name)).is_dir() for w in frozen),
        ),
        (
            f"every thread that was posted is in the database ({len(missing)} are not)",
            not missing,
        ),
        (f"every thread is decided ({undecided[0][0]} are not)", undecided == [(0,)]),
        (
            "no withdrawn case is in the last snapshot",
            not any(case_id in last for case_id in year.withdrawn),
        ),
        ("of the threads that were taken down no message is left", not words_left),
        ("the year ends without a problem", not year.problems),
    ]
