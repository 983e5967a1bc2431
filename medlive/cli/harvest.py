"""`medlive harvest`, `import` and `source`: threads from communities and files, and their raw pages."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from medlive.cli.options import JsonOption
from medlive.cli.output import (
    attributes,
    print_json,
    print_result,
    print_table,
    progress,
    say,
    wait_for,
    with_database,
)
from medlive.clock import iso_week, now, parse_moment
from medlive.config import Settings, load_settings
from medlive.errors import BadInput, CheckFailed, MedliveError, UsageError, describe
from medlive.integrity.folder import TooLong
from medlive.integrity.given import read_given

if TYPE_CHECKING:
    from medlive.db.session import Database
    from medlive.service.harvest.harvest import HarvestResult
    from medlive.service.harvest.reparse import ReparseResult
    from medlive.service.harvest.sources import SourceHealth

app = typer.Typer(no_args_is_help=True)
Wanted = Mapping[str, Mapping[str, Any]]
SHOWN_PROBLEMS = 20
COLUMNS = (
    "pages",
    "new",
    "revised",
    "unchanged",
    "not_modified",
    "gone",
    "older_than_since",
)


def harvest(
    sources: Annotated[
        list[str] | None, Argument(help="Sources to harvest; default: all.")
    ] = None,
    since: Annotated[
        str | None,
        Option(metavar="DATE", help="Only threads opened on or after this day."),
    ] = None,
    limit: Annotated[
        int | None, Option(min=1, help="Ask for at most so many threads a source.")
    ] = None,
    again: Annotated[
        bool, Option("--again", help="Harvest again although this week's is done.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Say what would be asked, and ask nothing.")
    ] = False,
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
        hint = "MEDLIVE_HARVEST__CONTACT=you@example.org, or [harvest] contact in config/sources.toml"
        raise UsageError(
            "a harvest needs a contact address, which every request names", hint=hint
        )
    done, broken = with_database(
        lambda database, settings: _harvest(
            database,
            settings,
            wanted,
            since=moment,
            limit=limit,
            again=again,
        )
    )
    if len(broken) == len(wanted):
        raise broken[-1]
    print_result(
        [_as_json(d) for d in done], as_json, lambda: _print(done), notes=_notes(done)
    )
    given_up = _given_up(done)
    if broken:
        say("\n".join(given_up))
        raise broken[-1]
    if given_up:
        raise CheckFailed(
            "; ".join(given_up),
            hint="`medlive source check` says what its threads lack",
        )


def _given_up(harvests: "Sequence[HarvestResult]") -> list[str]:
    """A line for each source that was given up or is quarantined."""
    lines = []
    for harvest in harvests:
        if harvest.quarantined:
            lines.append(f"{harvest.source}: quarantined: {harvest.quarantined}")
        elif harvest.failed:
            lines.append(f"{harvest.source}: {harvest.failed}")
    return lines


def _moment(option: str, given: str | None) -> datetime | None:
    try:
        return parse_moment(given) if given else None
    except ValueError as exc:
        raise UsageError(
            f"{option} {given}: not an ISO date such as 2026-11-01"
        ) from exc


def _print_plan(settings: Settings, wanted: Wanted, again: bool, as_json: bool) -> None:
    from medlive.service.harvest.harvest import describe_next_harvest
    from medlive.service.harvest.sources import fetch_settings
    from medlive.sources.registry import build_site

    async def look(database: "Database", _: Settings) -> dict[str, str]:
        return {
            name: await describe_next_harvest(database, name, again=again)
            for name in wanted
        }

    sites = {name: build_site(name, overrides) for name, overrides in wanted.items()}
    agent = fetch_settings(settings).user_agent
    standing = with_database(look)
    plan, rows = [], []
    for name, site in sites.items():
        requests = site.listing_requests(site.settings.base_url)
        lists = [request.url for request in requests]
        planned = {
            "source": name,
            "would": standing[name],
            "user_agent": agent,
            "lists": lists,
        }
        plan.append(planned)
        rows.append([name, standing[name], "\n".join(lists)])
    print_result(
        plan,
        as_json,
        lambda: print_table(["source", "would", "lists"], rows),
        notes=[f"as {agent}"],
    )


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
            harvest_source(
                database, settings, name, overrides, **how, tick=partial(count, name)
            )
            for name, overrides in wanted.items()
        ]
        ended = await asyncio.gather(*work, return_exceptions=True)
    done, broken = [], []
    for name, one in zip(wanted, ended, strict=True):
        if isinstance(one, BaseException):
            broken.append(one)
            done.append(HarvestResult(name, iso_week(now()), failed=describe(one)))
        else:
            done.append(one)
    return done, sorted(
        broken, key=lambda e: e.exit_status if isinstance(e, MedliveError) else 100
    )


def _print(done: "list[HarvestResult]") -> None:
    shares = [
        "" if d.not_modified_share is None else f"{d.not_modified_share:.0%}"
        for d in done
    ]
    rows = [
        [d.source, *(d.counts[c] for c in COLUMNS), x, len(d.problems)]
        for d, x in zip(done, shares, strict=True)
    ]
    print_table(["source", *COLUMNS, "304 share", "problems"], rows)


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


def _as_json(done: "HarvestResult") -> dict[str, object]:
    problems = []
    for problem in done.problems:
        stated = {
            "url": problem.url,
            "kind": problem.kind,
            "message": problem.message,
            "thread_id": problem.thread_id,
        }
        problems.append(stated)
    return {
        "source": done.source,
        "iso_week": done.iso_week,
        "not_modified_share": done.not_modified_share,
        "already_done": done.already_done,
        "limited": done.limited,
        "failed": done.failed,
        "quarantined": done.quarantined,
        "counts": done.counts,
        "problems": problems,
    }


def import_(
    files: Annotated[
        list[Path], Argument(help="Thread files, one JSON object a line.")
    ],
    assume_posted_at: Annotated[
        str | None, Option(metavar="DATE", help="For threads without a date.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Import threads from JSON Lines files; a bad line is reported and the others are imported.

    Importing a file twice changes nothing; a thread that changed becomes a new revision.
    """
    from medlive.service.database import handle_key
    from medlive.service.harvest.harvest import ImportResult, import_file

    moment = _moment("--assume-posted-at", assume_posted_at)

    async def work(database: "Database", settings: Settings) -> list[ImportResult]:
        done, key = [], handle_key(settings)
        for path in files:
            with progress(f"import {path.name}") as tick:
                done.append(
                    await import_file(
                        database,
                        path,
                        assume_posted_at=moment,
                        handle_key=key,
                        tick=tick,
                    )
                )
        return done

    done = with_database(work)
    columns = ("new", "revised", "unchanged", "taken_down", "problems")
    value, rows = [], []
    for d in done:
        lines = [
            {"line": p.line, "reason": p.reason, "detail": p.detail} for p in d.problems
        ]
        value.append({"file": d.file, **d.counts, "lines": lines})
        rows.append([d.file.name, *(d.counts[column] for column in columns)])
    print_result(value, as_json, lambda: print_table(["file", *columns], rows))
    for d in done:
        for problem in d.problems[:SHOWN_PROBLEMS]:
            say(
                f"{d.file.name}:{problem.line}: {problem.reason.value}: {problem.detail}"
            )
        if len(d.problems) > SHOWN_PROBLEMS:
            say(
                f"{d.file.name}: {len(d.problems) - SHOWN_PROBLEMS} more bad lines; all are in import_problems"
            )


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the communities with their address and boards."""
    from medlive.service.harvest.sources import select_sources
    from medlive.sources.registry import build_site

    settings = load_settings().settings
    wanted = select_sources(settings, [])
    sites = {
        name: build_site(name, overrides).settings for name, overrides in wanted.items()
    }
    rows = [
        [name, s.base_url, ", ".join(s.boards) or "all", s.min_interval_s]
        for name, s in sites.items()
    ]
    print_result(
        {name: site.model_dump(mode="json") for name, site in sites.items()},
        as_json,
        lambda: print_table(
            ["source", "address", "boards", "least interval (s)"], rows
        ),
    )


@app.command()
def check(
    source: Annotated[
        str | None, Argument(help="The community; default: all that were harvested.")
    ] = None,
    url: Annotated[
        str | None, Option(help="Check this page instead: a thread's address.")
    ] = None,
    file: Annotated[
        Path | None,
        Option(help="With --url: read this saved page instead of fetching it."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of the communities, or with --url what one page yields, field by field.

    Without --url: of each community's last harvest the share of threads with each field and the reasons of
    failures, beside the median of the harvests before. Exit status 1 when one is quarantined, failed or stale,
    with what fell and when; with --url, when the page is not a thread, with a typed reason.
    """
    if url is not None:
        if source is None:
            raise UsageError(
                "--url needs the community",
                hint="medlive source check SOURCE --url URL",
            )
        _check_page(source, url, file, as_json=as_json)
    elif file is not None:
        raise UsageError("--file needs --url, the address that the page was saved from")
    else:
        _check_health(source, as_json=as_json)


def _check_health(source: str | None, *, as_json: bool) -> None:
    from medlive.service.harvest.sources import select_sources, source_health

    settings = load_settings().settings
    names = list(select_sources(settings, [source] if source else []))
    health = with_database(lambda database, _: source_health(database, source))
    found = [one for one in health if one.info.name in names]
    never = [
        name
        for name in names
        if found and source is None and name not in {one.info.name for one in found}
    ]
    faults = [f"{one.info.name}: {fault}" for one in found for fault in one.faults]
    hint = "look at a page with --url; mend the adapter, `medlive source reparse`, `medlive source lift`"
    print_result(
        [{**asdict(one), "faults": one.faults} for one in found],
        as_json,
        lambda: _print_health(found),
        notes=[f"never harvested: {', '.join(never)}"] if never else (),
        failure=CheckFailed("; ".join(faults), hint=hint) if faults else None,
    )


def _print_health(found: "Sequence[SourceHealth]") -> None:
    if not found:
        say("no community was harvested yet; `medlive harvest` does")
        return
    rows: list[list[Any]]
    rows = [
        [
            o.info.name,
            o.info.last_run,
            o.info.last_outcome,
            f"{o.last_done_at:%Y-%m-%d %H:%M}" if o.last_done_at else "never",
            len(o.faults),
        ]
        for o in found
    ]
    print_table(["source", "last week", "outcome", "read to its end", "faults"], rows)
    for one in found:
        figures = [
            f
            for f in one.figures
            if f.collapsed or not f.name.startswith("end:") or f.value
        ]
        if figures:
            rows = [
                [
                    f.name,
                    round(f.value, 3),
                    f.median and round(f.median, 3),
                    f.n,
                    "collapsed" if f.collapsed else "",
                ]
                for f in figures
            ]
            head = ["figure", "now", "median before", "threads", ""]
            print_table(head, rows, title=f"{one.info.name}, {one.week}")


@app.command()
def lift(
    source: Annotated[str, Argument(help="The quarantined community.")],
    accept: Annotated[
        bool, Option("--accept", help="Compare only with harvests from now on.")
    ] = False,
    why: Annotated[
        str | None, Option("--reason", help="Why; it stays in the database.")
    ] = None,
    by: Annotated[
        str | None, Option("--by", metavar="NAME", help="Who says so.")
    ] = None,
) -> None:
    """Take a quarantined community into harvests again; the next one goes on where the last one stood."""
    from medlive.service.harvest.harvest import lift_source_quarantine
    from medlive.service.harvest.sources import select_sources

    select_sources(load_settings().settings, [source])
    reason = with_database(
        lambda db, _: lift_source_quarantine(
            db, source, compare_anew=accept, reason=why, by=by
        )
    )
    again = f"{source} is harvested again; it was out: {reason}"
    say(f"{source} was not quarantined" if reason is None else again)


def _check_page(source: str, url: str, file: Path | None, *, as_json: bool) -> None:
    from medlive.service.harvest.sources import check_page
    from medlive.sources.source import LayoutError, NotAThread

    settings = load_settings().settings
    try:
        body = read_given(file) if file else None
    except (OSError, TooLong) as exc:
        raise BadInput(
            f"{file} cannot be read: {getattr(exc, 'strerror', None) or exc}"
        ) from exc
    try:
        found: dict[str, Any] = wait_for(check_page(settings, source, url, body))
    except (LayoutError, NotAThread) as exc:
        reason = "layout_error" if isinstance(exc, LayoutError) else "not_a_thread"
        if as_json:
            print_json({"thread": None, "reason": reason, "message": exc.message})
        raise CheckFailed(f"{reason}: {exc.message}") from exc
    following = found["fields"]["next page"]
    notes = (
        [f"this is its first page: a harvest goes on at {following}"]
        if following
        else ()
    )
    print_result(found, as_json, lambda: _print_page(found), notes=notes)


def _print_page(found: dict[str, Any]) -> None:
    print_table(
        ["field", "found"],
        [[name, str(value)[:300]] for name, value in found["fields"].items()],
    )
    messages = enumerate(found["thread"]["messages"])
    rows = [
        [i, m["role"], m.get("verified_by") or m["verified"], m["text"][:200]]
        for i, m in messages
    ]
    print_table(["message", "role", "verified", "text"], rows)


_ENDS = (
    "unchanged",
    "new",
    "revised",
    "layout",
    "fault",
    "not_a_thread",
    "incomplete",
    "bytes_gone",
    "damaged",
    "skipped",
    "waiting",
    "taken_down",
)


@app.command()
def reparse(
    sources: Annotated[
        list[str] | None, Argument(help="The communities; default: all.")
    ] = None,
    thread: Annotated[
        str | None, Option(help="Only this thread of the one community.")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Say what would change; change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Read every kept page again with today's parsers; a thread that comes out otherwise gets a new revision.

    Nothing is fetched. Threads whose reading failed are tried again; one that could be read before and cannot now
    is reported and left as it was. Exit status 1 when a file of pages is damaged or a community is being
    harvested; the others are read all the same.
    """
    from medlive.service.harvest.reparse import reparse_sources
    from medlive.service.harvest.sources import select_sources

    if thread is not None and len(sources or []) != 1:
        raise UsageError(
            "--thread needs its community",
            hint="medlive source reparse SOURCE --thread ID",
        )
    wanted = select_sources(load_settings().settings, sources or [])
    done = with_database(
        lambda database, settings: reparse_sources(
            database,
            settings,
            [*wanted],
            thread_ids=[thread] if thread else [],
            dry_run=dry_run,
            progress=lambda source: progress(f"reparse {source}"),
        )
    )
    problems = [f"{d.source} is being harvested" for d in done if d.busy]
    problems += [
        f"{path} is damaged or missing" for d in done for path in sorted(d.damaged)
    ]
    value, notes = [_reparsed_json(d, dry_run) for d in done], _reparse_notes(done)
    print_result(value, as_json, lambda: _print_reparsed(done, dry_run), notes=notes)
    if problems:
        raise CheckFailed(
            "; ".join(problems),
            hint="restore damaged files from a backup, then reparse again",
        )


def _reparse_notes(done: "Sequence[ReparseResult]") -> Iterator[str]:
    for d in done:
        for thread_id, kind, message in d.problems:
            yield f"{d.source}/{thread_id}: {kind}: {message}"
        if d.quarantined is not None and not d.busy:
            fallen = "; ".join(figure.message for figure in d.drift if figure.collapsed)
            state = (
                f"still has {fallen}" if fallen else "has all that earlier ones have"
            )
            yield f"{d.source} is quarantined: {d.quarantined}"
            yield f"  with these readings its last harvest {state}"
            yield f"  `medlive source lift {d.source}` takes it in again"


def _print_reparsed(done: "Sequence[ReparseResult]", dry_run: bool) -> None:
    columns = [
        end for end in _ENDS if end in _ENDS[:3] or any(d.counts[end] for d in done)
    ]
    print_table(
        ["source", "pages", *columns],
        [[d.source, d.counts["pages"], *(d.counts[c] for c in columns)] for d in done],
        title="Nothing was changed: this is what would be" if dry_run else None,
    )
    changes = [(d.source, *change) for d in done for change in _changes(d)]
    if changes:
        print_table(["source", "field", "threads before", "threads now"], changes)


def _changes(done: "ReparseResult") -> list[tuple[str, int, int]]:
    fields = sorted(set(done.before) | set(done.after))
    return [
        (f, done.before[f], done.after[f])
        for f in fields
        if done.before[f] != done.after[f]
    ]


def _reparsed_json(done: "ReparseResult", dry_run: bool) -> dict[str, Any]:
    return attributes(done, "source busy counts quarantined") | {
        "dry_run": dry_run,
        "fields": {
            f: {"before": before, "now": after} for f, before, after in _changes(done)
        },
        "problems": [
            {"thread_id": i, "kind": kind, "message": message}
            for i, kind, message in done.problems
        ],
        "damaged": sorted(done.damaged),
        "figures": [attributes(f, "name value n median collapsed") for f in done.drift],
    }


@app.command()
def prune(
    dry_run: Annotated[
        bool, Option("--dry-run", help="Say what would go; remove nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove files of raw pages that are older than `archive.keep_days`, and finish what takedowns left.

    Threads stay. Exit status 1 when a community that is being harvested was left for the next time, or a file is
    damaged.
    """
    from medlive.service.harvest.raw_files import apply_retention, prune_by_hand

    async def work(
        database: "Database", settings: Settings
    ) -> tuple[int | None, Mapping[str, int]]:
        days = settings.archive.keep_days
        if dry_run:
            return days, await apply_retention(database, settings, dry_run=True)
        return days, await prune_by_hand(database, settings)

    keep_days, counts = with_database(work)
    failure = CheckFailed(
        f"{counts['busy']} communities are being harvested, {counts['damaged']} files are damaged",
        hint="try again when the harvest is done; restore damaged files from a backup, or remove them",
    )
    title = "Nothing was removed" if dry_run else None
    print_result(
        {"dry_run": dry_run, "keep_days": keep_days, **counts},
        as_json,
        lambda: print_table([*counts], [[*counts.values()]], title=title),
        failure=failure if counts["busy"] or counts["damaged"] else None,
    )
