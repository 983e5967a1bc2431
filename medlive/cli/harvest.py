"""`medlive harvest`, `import` and `source`: threads from communities and files, and their raw pages."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from medlive.clock import iso_week, now
from medlive.config import Settings
from medlive.db.session import Database
from medlive.errors import CheckFailed, UsageError, describe
from medlive.instance.loading import read_settings
from medlive.integrity.log import read_bytes
from medlive.service.database import handle_key
from medlive.service.harvest.harvest import (
    HarvestResult,
    harvest_source,
    import_file,
    lift_source_quarantine,
)
from medlive.service.harvest.reparse import reparse_sources
from medlive.service.harvest.sources import (
    check_page,
    fetch_settings,
    select_sources,
    source_health,
)
from medlive.sources.source import LayoutError, NotAThread, Site

from .audit.thread import messages_table
from .options import ByOption, DryRunOption, MomentOption, OptionalCount
from .output import (
    Grid,
    Result,
    failed,
    fields_of,
    first_of,
    progress,
    say,
    table_of,
    wait_for,
    with_database,
    with_instance,
)

SourcesArgument = Annotated[
    list[str] | None, Argument(help="The communities; default: all.")
]
Wanted = Mapping[str, Site]
"""The sites to harvest, by source."""
SHOWN_PROBLEMS = 20
"""Problems that are shown for each source or file."""
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
    since: MomentOption = None,
    limit: OptionalCount = None,
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
    settings = read_settings()
    if since and since > now():
        raise UsageError("--since lies ahead: no thread was opened after it")
    wanted = select_sources(settings, sources or [])
    if not wanted:
        raise UsageError(
            "every source is switched off",
            hint="[sources.NAME] enabled = true in sources.toml",
        )
    fetching = fetch_settings(settings)
    if dry_run:
        plan = []
        for name, site in wanted.items():
            requests = site.listing_requests()
            lists = [request.url for request in requests]
            plan.append({"source": name, "lists": lists})
        table = table_of(plan, ("source", "lists"))
        return Result(plan, [table], [f"as {fetching.user_agent}"])
    if fetching.contact is None and not fetching.allow_loopback:
        raise UsageError(
            "a harvest needs a contact address, which every request names",
            hint="MEDLIVE_HARVEST__CONTACT=you@example.org, or [harvest] contact in config/sources.toml",
        )
    ended = with_instance(_harvest, wanted, since=since, limit=limit, again=again)
    return _describe_harvests(wanted, ended)


def _describe_harvests(
    wanted: Wanted, ended: list[HarvestResult | BaseException]
) -> Result:
    """The result of a harvest of several sources, which fails where a source was given up or met an error."""
    notes: list[str] = []
    results, rows, given_up, broken = [], [], [], []
    for name, result in zip(wanted, ended, strict=True):
        if isinstance(result, BaseException):
            broken.append(result)
            result = HarvestResult(name, iso_week(now()), failed=describe(result))
        results.append(result)
        counts = [result.counts[column] for column in COLUMNS]
        asked = result.counts["conditional"]
        share = f"{result.counts['not_modified'] / asked:.0%}" if asked else None
        rows.append([name, *counts, share, len(result.problems)])
        notes += _notes(result)
        if result.quarantined:
            given_up.append(f"{name}: quarantined: {result.quarantined}")
        elif result.failed:
            given_up.append(f"{name}: {result.failed}")
    hint = "`medlive source check` says what its threads lack"
    failure: BaseException | None = failed(given_up, hint)
    if broken:
        # A fault of medlive itself has no exit status and goes first, before what an operator can mend.
        failure = max(broken, key=lambda error: getattr(error, "exit_status", 100))
        notes += given_up
    table = Grid(["source", *COLUMNS, "304 share", "problems"], rows)
    return Result(results, [table], notes, failure)


async def _harvest(
    database: Database, settings: Settings, wanted: Wanted, /, **how: Any
) -> list[HarvestResult | BaseException]:
    """Harvest sources side by side; of each its result, or the error that ended it."""
    total: dict[str, int] = {}
    with progress("threads") as tick:

        def count(source: str, threads: int) -> None:
            total[source] = threads
            tick(sum(total.values()))

        work = []
        for name, site in wanted.items():
            own = partial(count, name)
            work.append(harvest_source(database, settings, site, **how, tick=own))
        return await asyncio.gather(*work, return_exceptions=True)


def _notes(done: HarvestResult) -> Iterator[str]:
    """A source's problems, and whether it was harvested already or stopped at --limit."""
    problems = []
    for problem in done.problems:
        problems.append(f"{problem.kind}: {problem.message} ({problem.url})")
    for text in first_of(problems, SHOWN_PROBLEMS):
        yield f"{done.source}: {text}"
    if done.already_done:
        yield f"{done.source}: {done.iso_week} was harvested already; --again harvests it once more"
    if done.limited:
        yield f"{done.source}: stopped at --limit; without it, the next harvest of {done.iso_week} goes on from here"


def import_(
    files: list[Path],
    assume_posted_at: MomentOption = None,
) -> Result:
    """Import threads from JSON Lines files; a bad line is reported and the others are imported.

    Importing a file twice changes nothing; a thread that changed becomes a new revision. Exit status 1 when no
    line of a file became a thread.

    Args:
        files: Thread files, one JSON object a line.
        assume_posted_at: The date for threads that have none.
    """
    columns = ("new", "revised", "unchanged", "taken_down", "problems")
    key = handle_key(read_settings())
    notes: list[str] = []
    rows, refused = [], []
    for file in files:
        name = file.name
        with progress(f"import {name}") as tick:
            counts, problems = with_database(
                import_file,
                file,
                assume_posted_at=assume_posted_at,
                handle_key=key,
                tick=tick,
            )
        row = {column: counts[column] for column in columns}
        rows.append({"file": name, **row, "lines": problems})
        if counts.total() == len(problems):
            refused.append(f"no line of {name} became a thread")
        lines = []
        for problem in problems:
            what = f"{problem.reason}: {problem.detail}"
            lines.append(f"{name}:{problem.line}: {what}")
        notes += first_of(lines, SHOWN_PROBLEMS)
    return Result(rows, [table_of(rows, ("file", *columns))], notes, failed(refused))


def list_() -> Result:
    """List the communities with their address and boards."""
    names = ("base_url", "boards", "min_interval_s")
    rows = []
    for name, site in select_sources(read_settings(), []).items():
        rows.append({"source": name, **fields_of(site.settings, names)})
    return Result(rows, [table_of(rows, ("source", *names))])


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
    if url is not None and source is not None:
        return _check_page(source, url, file)
    if url is not None or file is not None:
        raise UsageError(
            "a page is checked by its community and its address",
            hint="medlive source check SOURCE --url URL [--file SAVED]",
        )
    names = select_sources(read_settings(), [source] if source else [])
    checked, faults = [], []
    for health in with_database(source_health, source):
        name = health["info"].name
        if names.pop(name, None):
            checked.append(health)
            faults += [f"{name}: {fault}" for fault in health["faults"]]
    notes = [f"never harvested: {name}" for name in sorted(names)]
    hint = "look at a page with --url; mend the adapter, `medlive source reparse`, `medlive source lift`"
    return Result(checked, _health_tables(checked), notes, failed(faults, hint))


def _health_tables(sources: list[dict[str, Any]]) -> Iterator[Grid]:
    """The last harvest of each source, and a table of its figures; `sources` are from `source_health`."""
    rows = []
    for source in sources:
        info = source["info"]
        outcome = [info.last_run, info.last_outcome, source["last_done_at"]]
        rows.append([info.name, *outcome])
    columns = ["source", "last week", "outcome", "read to its end"]
    yield Grid(columns, rows)
    for source in sources:
        names = ("name", "value", "median", "n", "collapsed")
        yield table_of(
            source["figures"], names, f"{source['info'].name}, {source['week']}"
        )


def lift(
    source: str,
    accept: bool = False,
    reason: str | None = None,
    by: ByOption = None,
) -> None:
    """Take a quarantined community into harvests again; the next harvest goes on where the last one ended.

    Args:
        source: The quarantined community.
        accept: Compare only with harvests from now on.
        reason: Why; it stays in the database.
    """
    select_sources(read_settings(), [source])
    quarantined = with_database(
        lift_source_quarantine, source, compare_anew=accept, reason=reason, by=by
    )
    again = f"{source} is harvested again; it was out: {quarantined}"
    say(again if quarantined else f"{source} was not quarantined")


def _check_page(source: str, url: str, file: Path | None) -> Result:
    """What one page yields, field by field; the result fails if the page is not a thread."""
    body = read_bytes(file) if file else None
    try:
        page = wait_for(check_page(read_settings(), source, url, body))
    except (LayoutError, NotAThread) as exc:
        reason = "layout_error" if isinstance(exc, LayoutError) else "not_a_thread"
        value = {"thread": None, "reason": reason, "message": exc.message}
        return Result(value, failure=CheckFailed(f"{reason}: {exc.message}"))
    notes = []
    if following := page["fields"]["next page"]:
        notes.append(f"this is its first page: a harvest goes on at {following}")
    cells = [[name, str(value)[:300]] for name, value in page["fields"].items()]
    fields = Grid(["field", "found"], cells)
    return Result(page, [fields, messages_table(page["thread"]["messages"])], notes)


def reparse(sources: SourcesArgument = None) -> Result:
    """Read every kept page again with today's parsers; a thread that comes out differently gets a new revision.

    Nothing is fetched. Threads whose reading failed are tried again; a thread that could be read before and cannot
    now is reported and left as it was. Exit status 1 when a file of pages is damaged or a community is being
    harvested; the others are read all the same.
    """
    done = with_instance(
        reparse_sources,
        [*select_sources(read_settings(), sources or [])],
        progress=lambda source: progress(f"reparse {source}"),
    )
    notes: list[str] = []
    problems: list[str] = []
    for result in done:
        notes += result.problems
        if result.busy:
            problems.append(f"{result.source} is being harvested")
        for path in sorted(result.damaged):
            problems.append(f"{path} is damaged or missing")
    hint = "restore damaged files from a backup, then reparse again"
    shown = [table_of(done, ("source", "counts"))]
    return Result(done, shown, notes, failed(problems, hint))
