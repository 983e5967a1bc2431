"""`medlive harvest` and `import`: threads from communities, and from JSON Lines files."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from medlive.cli.database import with_database
from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, progress, say
from medlive.clock import iso_week, now, parse_moment
from medlive.config import Settings, load_settings
from medlive.errors import CheckFailed, MedliveError, UsageError

if TYPE_CHECKING:
    from medlive.db.session import Database
    from medlive.service.harvest.harvest import HarvestResult

Wanted = Mapping[str, Mapping[str, Any]]
SHOWN_PROBLEMS = 20
COLUMNS = ("pages", "new", "revised", "unchanged", "not_modified", "gone", "older_than_since")


def harvest(
    sources: Annotated[list[str] | None, Argument(help="Sources to harvest; default: all.")] = None,
    since: Annotated[str | None, Option(metavar="DATE", help="Only threads opened on or after this day.")] = None,
    limit: Annotated[int | None, Option(min=1, help="Ask for at most so many threads a source.")] = None,
    again: Annotated[bool, Option("--again", help="Harvest again although this week's is done.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would be asked, and ask nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch new and changed threads of the communities, politely, and store them.

    Once per source and ISO week: a week that is done is not harvested again, and one that was interrupted goes on
    where it stood, so that cron may start this as often as it likes. A page that cannot be read is reported and
    the others go on; exit status 1 when a source was given up or is quarantined, with its reason on stderr.
    """
    from medlive.service.harvest.sources import fetch_settings, select_sources

    settings = load_settings().settings
    moment = _moment("--since", since)
    if moment is not None and moment > now():
        raise UsageError(f"--since {since} lies ahead: no thread was opened after it")
    wanted = select_sources(settings, sources or [])
    if dry_run:
        _print_plan(settings, wanted, again, as_json)
        return
    fetching = fetch_settings(settings)
    if fetching.contact is None and not fetching.allow_loopback:
        raise UsageError(
            "a harvest needs a contact address, which every request names",
            hint="MEDLIVE_HARVEST__CONTACT=you@example.org, or [harvest] contact in config/sources.toml",
        )
    done, broken = with_database(
        settings, lambda database: _harvest(database, settings, wanted, since=moment, limit=limit, again=again)
    )
    if len(broken) == len(wanted):
        raise broken[-1]
    print_result([_as_json(d) for d in done], as_json, lambda: _print(done), notes=_notes(done))
    given_up = [
        f"{d.source}: " + (f"quarantined: {d.quarantined}" if d.quarantined else str(d.failed))
        for d in done
        if d.failed or d.quarantined
    ]
    if broken:
        say("\n".join(given_up))
        raise broken[-1]
    if given_up:
        raise CheckFailed("; ".join(given_up), hint="`medlive source check` says what its threads lack")


def _moment(option: str, given: str | None) -> datetime | None:
    try:
        return parse_moment(given) if given else None
    except ValueError as exc:
        raise UsageError(f"{option} {given}: not an ISO date such as 2026-11-01") from exc


def _print_plan(settings: Settings, wanted: Wanted, again: bool, as_json: bool) -> None:
    from medlive.service.harvest.harvest import describe_next_harvest
    from medlive.service.harvest.sources import fetch_settings
    from medlive.sources.registry import build_site

    async def look(database: "Database") -> dict[str, str]:
        return {name: await describe_next_harvest(database, name, again=again) for name in wanted}

    sites = {name: build_site(name, overrides) for name, overrides in wanted.items()}
    agent = fetch_settings(settings).user_agent
    standing = with_database(settings, look)
    plan = [
        {"source": name, "would": standing[name], "user_agent": agent,
         "lists": [request.url for request in site.listing_requests(site.settings.base_url)]}
        for name, site in sites.items()
    ]  # fmt: skip
    rows = [[p["source"], p["would"], "\n".join(p["lists"])] for p in plan]
    print_result(plan, as_json, lambda: print_table(["source", "would", "lists"], rows), notes=[f"as {agent}"])


async def _harvest(
    database: "Database", settings: Settings, wanted: Wanted, **how: Any
) -> "tuple[list[HarvestResult], list[BaseException]]":
    """Harvest sources side by side; the errors that ended some, a fault of medlive or the highest status last."""
    from medlive.service.harvest.harvest import HarvestResult, harvest_source

    total: dict[str, int] = {}
    with progress("threads") as tick:

        def count(source: str, threads: int) -> None:
            total[source] = threads
            tick(sum(total.values()))

        work = [
            harvest_source(database, settings, name, overrides, **how, tick=partial(count, name))
            for name, overrides in wanted.items()
        ]
        ended = await asyncio.gather(*work, return_exceptions=True)
    done, broken = [], []
    for name, one in zip(wanted, ended, strict=True):
        if isinstance(one, BaseException):
            broken.append(one)
            message = one.message if isinstance(one, MedliveError) else f"{type(one).__name__}: {one}"
            done.append(HarvestResult(name, iso_week(now()), failed=message))
        else:
            done.append(one)
    return done, sorted(broken, key=lambda e: e.exit_status if isinstance(e, MedliveError) else 100)


def _print(done: "list[HarvestResult]") -> None:
    print_table(
        ["source", *COLUMNS, "304 share", "problems"],
        [[d.source, *(d.counts[c] for c in COLUMNS), _share(d), len(d.problems)] for d in done],
    )


def _notes(done: "list[HarvestResult]") -> Iterator[str]:
    for d in done:
        for problem in d.problems[:SHOWN_PROBLEMS]:
            yield f"{d.source}: {problem.kind.value}: {problem.message} ({problem.url})"
        if len(d.problems) > SHOWN_PROBLEMS:
            yield f"{d.source}: and {len(d.problems) - SHOWN_PROBLEMS} problems more, all in the table `fetches`"
        if d.already_done:
            yield f"{d.source}: {d.iso_week} was harvested already; --again harvests it once more"
        if d.limited:
            yield f"{d.source}: stopped at --limit; without it, the next harvest of {d.iso_week} goes on from here"


def _share(d: Any) -> str:
    return "" if d.not_modified_share is None else f"{d.not_modified_share:.0%}"


def _as_json(d: Any) -> dict[str, Any]:
    plain = ("source", "iso_week", "not_modified_share", "already_done", "limited", "failed", "quarantined")
    problems = [
        {"url": p.url, "kind": p.kind.value, "message": p.message, "thread_id": p.thread_id} for p in d.problems
    ]
    return {**{name: getattr(d, name) for name in plain}, "counts": dict(d.counts), "problems": problems}


def import_(
    files: Annotated[list[Path], Argument(help="Thread files, one JSON object a line.")],
    assume_posted_at: Annotated[str | None, Option(metavar="DATE", help="For threads without a date.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Import threads from JSON Lines files; a bad line is reported and the others are imported.

    Importing a file twice changes nothing; a thread that changed becomes a new revision.
    """
    from medlive.service.database import handle_key
    from medlive.service.harvest.import_files import ImportResult, import_file

    settings = load_settings().settings
    moment, key = _moment("--assume-posted-at", assume_posted_at), handle_key(settings)

    async def work(database: "Database") -> list[ImportResult]:
        done = []
        for path in files:
            with progress(f"import {path.name}") as tick:
                done.append(await import_file(database, path, assume_posted_at=moment, handle_key=key, tick=tick))
        return done

    done = with_database(settings, work)
    value = [
        {"file": d.file, **d.counts,
         "lines": [{"line": p.line, "reason": p.reason.value, "detail": p.detail} for p in d.problems]}
        for d in done
    ]  # fmt: skip
    columns = ("new", "revised", "unchanged", "taken_down", "problems")
    rows = [[d.file.name, *(d.counts[c] for c in columns)] for d in done]
    print_result(value, as_json, lambda: print_table(["file", *columns], rows))
    for d in done:
        for problem in d.problems[:SHOWN_PROBLEMS]:
            say(f"{d.file.name}:{problem.line}: {problem.reason.value}: {problem.detail}")
        if len(d.problems) > SHOWN_PROBLEMS:
            say(f"{d.file.name}: {len(d.problems) - SHOWN_PROBLEMS} more bad lines; all are in import_problems")
