"""`medlive harvest`, `import` and `source`: threads from communities and files, and their raw pages."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from medlive.cli.options import ByOption, Commands, DryRunOption
from medlive.cli.output import (
    Grid,
    Result,
    fields_of,
    progress,
    say,
    table_of,
    wait_for,
    with_database,
    with_instance,
)
from medlive.clock import iso_week, now, parse_moment
from medlive.config import Settings
from medlive.errors import BadInput, CheckFailed, MedliveError, UsageError, describe
from medlive.instance.loading import load_settings
from medlive.integrity.folder import TooLong
from medlive.integrity.given import read_given

if TYPE_CHECKING:
    from medlive.db.session import Database
    from medlive.service.harvest.harvest import HarvestResult
    from medlive.service.harvest.reparse import ReparseResult
    from medlive.service.harvest.sources import SourceHealth

app = Commands()
SourcesArgument = Annotated[
    list[str] | None, Argument(help="The communities; default: all.")
]
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
    sources: SourcesArgument = None,
    since: Annotated[str | None, Option(metavar="DATE")] = None,
    limit: Annotated[int | None, Option(min=1)] = None,
    again: bool = False,
    dry_run: DryRunOption = False,
) -> Result:
    """Fetch new and changed threads of the communities, politely, and store them.

    Once per source and ISO week: a week that is done is not harvested again, and one that was interrupted goes on
    where it stood, so that cron may start this as often as it likes. A page that cannot be read is reported and
    the others go on; exit status 1 when a source was given up or is quarantined, with its reason on stderr.

    Args:
        since: Only threads opened on or after this day.
        limit: Ask for at most so many threads a source.
        again: Harvest again although this week's is done.
    """
    from medlive.service.harvest.sources import fetch_settings, select_sources

    settings = load_settings().settings
    moment = _moment("--since", since)
    if moment is not None and moment > now():
        raise UsageError(f"--since {since} lies ahead: no thread was opened after it")
    wanted = select_sources(settings, sources or [])
    if dry_run:
        return _describe_plan(settings, wanted, again)
    fetching = fetch_settings(settings)
    if fetching.contact is None and not fetching.allow_loopback:
        hint = "MEDLIVE_HARVEST__CONTACT=you@example.org, or [harvest] contact in config/sources.toml"
        raise UsageError(
            "a harvest needs a contact address, which every request names", hint=hint
        )
    done, broken = with_instance(
        _harvest, wanted, since=moment, limit=limit, again=again
    )
    if len(broken) == len(wanted):
        raise broken[-1]
    notes = list(_notes(done))
    failure: BaseException | None = None
    given_up = _given_up(done)
    if broken:
        notes += given_up
        failure = broken[-1]
    elif given_up:
        hint = "`medlive source check` says what its threads lack"
        failure = CheckFailed("; ".join(given_up), hint=hint)
    return Result(list(map(_as_json, done)), [_harvested(done)], notes, failure)


def _given_up(harvests: "Sequence[HarvestResult]") -> list[str]:
    """A line for each source that was given up or is quarantined."""
    lines = []
    for harvest in harvests:
        if harvest.quarantined:
            lines.append(f"{harvest.source}: quarantined: {harvest.quarantined}")
        elif harvest.failed:
            lines.append(f"{harvest.source}: {harvest.failed}")
    return lines


def _moment(option: str, value: str | None) -> datetime | None:
    try:
        return parse_moment(value) if value else None
    except ValueError as exc:
        raise UsageError(
            f"{option} {value}: not an ISO date such as 2026-11-01"
        ) from exc


def _describe_plan(settings: Settings, wanted: Wanted, again: bool) -> Result:
    from medlive.service.harvest.harvest import describe_next_harvest
    from medlive.service.harvest.sources import fetch_settings
    from medlive.sources.registry import build_site

    async def look(database: "Database", _: Settings) -> dict[str, str]:
        standing = {}
        for name in wanted:
            standing[name] = await describe_next_harvest(database, name, again=again)
        return standing

    agent = fetch_settings(settings).user_agent
    standing = with_instance(look)
    plan = []
    for name, overrides in wanted.items():
        site = build_site(name, overrides)
        requests = site.listing_requests(site.settings.base_url)
        planned = {
            "source": name,
            "would": standing[name],
            "user_agent": agent,
            "lists": [request.url for request in requests],
        }
        plan.append(planned)
    table = table_of(plan, ("source", "would", "lists"))
    return Result(plan, [table], [f"as {agent}"])


async def _harvest(
    database: "Database", settings: Settings, wanted: Wanted, /, **how: Any
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
    for name, result in zip(wanted, ended, strict=True):
        if isinstance(result, BaseException):
            broken.append(result)
            done.append(HarvestResult(name, iso_week(now()), failed=describe(result)))
        else:
            done.append(result)
    return done, sorted(
        broken, key=lambda e: e.exit_status if isinstance(e, MedliveError) else 100
    )


def _harvested(done: "list[HarvestResult]") -> Grid:
    rows = []
    for d in done:
        share = None
        if d.not_modified_share is not None:
            share = f"{d.not_modified_share:.0%}"
        counts = [d.counts[column] for column in COLUMNS]
        rows.append([d.source, *counts, share, len(d.problems)])
    return Grid(["source", *COLUMNS, "304 share", "problems"], rows)


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
        problems.append(fields_of(problem, ["url", "kind", "message", "thread_id"]))
    names = ["source", "iso_week", "not_modified_share", "already_done", "limited"]
    names += ["failed", "quarantined", "counts"]
    return fields_of(done, names) | {"problems": problems}


def import_(
    files: list[Path],
    assume_posted_at: Annotated[str | None, Option(metavar="DATE")] = None,
) -> Result:
    """Import threads from JSON Lines files; a bad line is reported and the others are imported.

    Importing a file twice changes nothing; a thread that changed becomes a new revision. Exit status 1 when no
    line of a file became a thread.

    Args:
        files: Thread files, one JSON object a line.
        assume_posted_at: For threads without a date.
    """
    from medlive.service.database import handle_key
    from medlive.service.harvest.harvest import ImportResult, import_file

    moment = _moment("--assume-posted-at", assume_posted_at)

    async def work(database: "Database", settings: Settings) -> list[ImportResult]:
        done, key = [], handle_key(settings)
        for path in files:
            with progress(f"import {path.name}") as tick:
                imported = await import_file(
                    database,
                    path,
                    assume_posted_at=moment,
                    handle_key=key,
                    tick=tick,
                )
            done.append(imported)
        return done

    done = with_instance(work)
    came = ("new", "revised", "unchanged", "taken_down")
    columns = (*came, "problems")
    value, rows, notes, failed = [], [], [], []
    for d in done:
        name = d.file.name
        lines = [fields_of(p, ("line", "reason", "detail")) for p in d.problems]
        value.append({"file": d.file, **d.counts, "lines": lines})
        rows.append([name, *(d.counts[column] for column in columns)])
        if not any(d.counts[column] for column in columns):
            notes.append(f"{name} holds no threads: nothing was imported")
        if d.problems and not any(d.counts[column] for column in came):
            failed.append(name)
        for problem in d.problems[:SHOWN_PROBLEMS]:
            notes.append(
                f"{name}:{problem.line}: {problem.reason.value}: {problem.detail}"
            )
        if (more := len(d.problems) - SHOWN_PROBLEMS) > 0:
            notes.append(f"{name}: {more} more bad lines; all are in import_problems")
    failure = None
    if failed:
        failure = CheckFailed(f"no line became a thread: {', '.join(failed)}")
    return Result(value, [Grid(["file", *columns], rows)], notes, failure)


@app.command("list")
def list_() -> Result:
    """List the communities with their address and boards."""
    from medlive.service.harvest.sources import select_sources
    from medlive.sources.registry import build_site

    value, rows = {}, []
    for name, overrides in select_sources(load_settings().settings, []).items():
        settings = build_site(name, overrides).settings
        value[name] = settings.model_dump(mode="json")
        boards = ", ".join(settings.boards) or "all"
        rows.append([name, settings.base_url, boards, settings.min_interval_s])
    columns = ["source", "address", "boards", "least interval (s)"]
    return Result(value, [Grid(columns, rows)])


@app.command()
def check(
    source: Annotated[str | None, Argument()] = None,
    url: str | None = None,
    file: Path | None = None,
) -> Result:
    """Show the state of the communities, or with --url what one page yields, field by field.

    Without --url: of each community's last harvest the share of threads with each field and the reasons of
    failures, beside the median of the harvests before. Exit status 1 when one is quarantined, failed or stale,
    with what fell and when; with --url, when the page is not a thread, with a typed reason.

    Args:
        source: The community; default: all that were harvested.
        url: Check this page instead: a thread's address.
        file: With --url: read this saved page instead of fetching it.
    """
    if url is not None:
        if source is None:
            raise UsageError(
                "--url needs the community",
                hint="medlive source check SOURCE --url URL",
            )
        return _check_page(source, url, file)
    if file is not None:
        raise UsageError("--file needs --url, the address that the page was saved from")
    return _check_health(source)


def _check_health(source: str | None) -> Result:
    from medlive.service.harvest.sources import select_sources, source_health

    settings = load_settings().settings
    names = list(select_sources(settings, [source] if source else []))
    health = with_database(source_health, source)
    checked = [
        checked_source for checked_source in health if checked_source.info.name in names
    ]
    notes = []
    if not checked:
        notes.append("no community was harvested yet; `medlive harvest` does")
    elif source is None:
        never = set(names) - {checked_source.info.name for checked_source in checked}
        notes += [f"never harvested: {name}" for name in sorted(never)]
    value, faults = [], []
    for checked_source in checked:
        value.append({**asdict(checked_source), "faults": checked_source.faults})
        faults += [
            f"{checked_source.info.name}: {fault}" for fault in checked_source.faults
        ]
    failure = None
    if faults:
        hint = "look at a page with --url; mend the adapter, `medlive source reparse`, `medlive source lift`"
        failure = CheckFailed("; ".join(faults), hint=hint)
    return Result(value, _health_tables(checked), notes, failure)


def _health_tables(sources: "Sequence[SourceHealth]") -> Iterator[Grid]:
    rows = []
    for source in sources:
        info = source.info
        read_at = source.last_done_at or "never"
        faults = len(source.faults)
        rows.append([info.name, info.last_run, info.last_outcome, read_at, faults])
    if rows:
        columns = ["source", "last week", "outcome", "read to its end", "faults"]
        yield Grid(columns, rows)
    for source in sources:
        figures = []
        for figure in source.figures:
            if figure.collapsed or figure.value or not figure.name.startswith("end:"):
                state = "collapsed" if figure.collapsed else ""
                row = [figure.name, figure.value, figure.median, figure.n, state]
                figures.append(row)
        if figures:
            head = ["figure", "now", "median before", "threads", ""]
            yield Grid(head, figures, f"{source.info.name}, {source.week}")


@app.command()
def lift(
    source: str,
    accept: bool = False,
    why: Annotated[str | None, Option("--reason")] = None,
    by: ByOption = None,
) -> None:
    """Take a quarantined community into harvests again; the next one goes on where the last one stood.

    Args:
        source: The quarantined community.
        accept: Compare only with harvests from now on.
        why: Why; it stays in the database.
    """
    from medlive.service.harvest.harvest import lift_source_quarantine
    from medlive.service.harvest.sources import select_sources

    select_sources(load_settings().settings, [source])
    reason = with_database(
        lift_source_quarantine, source, compare_anew=accept, reason=why, by=by
    )
    again = f"{source} is harvested again; it was out: {reason}"
    say(f"{source} was not quarantined" if reason is None else again)


def _check_page(source: str, url: str, file: Path | None) -> Result:
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
        page = wait_for(check_page(settings, source, url, body))
    except (LayoutError, NotAThread) as exc:
        reason = "layout_error" if isinstance(exc, LayoutError) else "not_a_thread"
        value = {"thread": None, "reason": reason, "message": exc.message}
        return Result(value, failure=CheckFailed(f"{reason}: {exc.message}"))
    notes = []
    if following := page["fields"]["next page"]:
        notes.append(f"this is its first page: a harvest goes on at {following}")
    return Result(page, _page_tables(page), notes)


def _page_tables(page: Mapping[str, Any]) -> Iterator[Grid]:
    fields = []
    for name, value in page["fields"].items():
        fields.append([name, str(value)[:300]])
    yield Grid(["field", "found"], fields)
    rows = []
    for number, message in enumerate(page["thread"]["messages"]):
        verified = message.get("verified_by") or message["verified"]
        rows.append([number, message["role"], verified, message["text"][:200]])
    yield Grid(["message", "role", "verified", "text"], rows)


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
    sources: SourcesArgument = None,
    thread: str | None = None,
    dry_run: DryRunOption = False,
) -> Result:
    """Read every kept page again with today's parsers; a thread that comes out otherwise gets a new revision.

    Nothing is fetched. Threads whose reading failed are tried again; one that could be read before and cannot now
    is reported and left as it was. Exit status 1 when a file of pages is damaged or a community is being
    harvested; the others are read all the same.

    Args:
        thread: Only this thread of the one community.
    """
    from medlive.service.harvest.reparse import reparse_sources
    from medlive.service.harvest.sources import select_sources

    if thread is not None and len(sources or []) != 1:
        raise UsageError(
            "--thread needs its community",
            hint="medlive source reparse SOURCE --thread ID",
        )
    wanted = select_sources(load_settings().settings, sources or [])
    done = with_instance(
        reparse_sources,
        [*wanted],
        thread_ids=[thread] if thread else [],
        dry_run=dry_run,
        progress=lambda source: progress(f"reparse {source}"),
    )
    value, problems = [], []
    for d in done:
        value.append(_reparsed_json(d, dry_run))
        if d.busy:
            problems.append(f"{d.source} is being harvested")
        for path in sorted(d.damaged):
            problems.append(f"{path} is damaged or missing")
    failure = None
    if problems:
        hint = "restore damaged files from a backup, then reparse again"
        failure = CheckFailed("; ".join(problems), hint=hint)
    return Result(value, _reparsed(done, dry_run), _reparse_notes(done), failure)


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


def _reparsed(done: "Sequence[ReparseResult]", dry_run: bool) -> Iterator[Grid]:
    columns = list(_ENDS[:3])
    for end in _ENDS[3:]:
        if any(d.counts[end] for d in done):
            columns.append(end)
    rows = []
    for d in done:
        counts = [d.counts[column] for column in ("pages", *columns)]
        rows.append([d.source, *counts])
    title = "Nothing was changed: this is what would be" if dry_run else None
    yield Grid(["source", "pages", *columns], rows, title)


def _reparsed_json(done: "ReparseResult", dry_run: bool) -> dict[str, object]:
    problems = []
    for thread_id, kind, message in done.problems:
        problems.append({"thread_id": thread_id, "kind": kind, "message": message})
    figures = []
    for figure in done.drift:
        names = ["name", "value", "n", "median", "collapsed"]
        figures.append(fields_of(figure, names))
    return fields_of(done, ("source", "busy", "counts", "quarantined")) | {
        "dry_run": dry_run,
        "problems": problems,
        "damaged": sorted(done.damaged),
        "figures": figures,
    }


@app.command()
def prune(dry_run: DryRunOption = False) -> Result:
    """Remove files of raw pages that are older than `archive.keep_days`, and finish what takedowns left.

    Threads stay. Exit status 1 when a community that is being harvested was left for the next time, or a file is
    damaged.
    """
    from medlive.service.harvest.raw_files import apply_retention, prune_by_hand

    async def work(database: "Database", settings: Settings) -> Mapping[str, int]:
        if dry_run:
            return await apply_retention(database, settings, dry_run=True)
        return await prune_by_hand(database, settings)

    counts = with_instance(work)
    failure = None
    if counts["busy"] or counts["damaged"]:
        failure = CheckFailed(
            f"{counts['busy']} communities are being harvested, {counts['damaged']} files are damaged",
            hint="try again when the harvest is done; restore damaged files from a backup, or remove them",
        )
    title = "Nothing was removed" if dry_run else None
    keep_days = load_settings().settings.archive.keep_days
    value = {"dry_run": dry_run, "keep_days": keep_days, **counts}
    return Result(value, [table_of([counts], list(counts), title)], failure=failure)
