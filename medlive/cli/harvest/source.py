"""`medlive source`: the communities, what a page of one yields, and the raw pages that harvests keep."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from medlive.cli.database import with_database
from medlive.cli.options import JsonOption
from medlive.cli.output import print_json, print_result, print_table, progress, say, wait_for
from medlive.config import load_settings
from medlive.errors import BadInput, CheckFailed, UsageError

if TYPE_CHECKING:
    from medlive.db.session import Database
    from medlive.service.harvest.sources import SourceHealth

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the communities with their address and boards."""
    from medlive.service.harvest.sources import select_sources
    from medlive.sources.registry import build_site

    settings = load_settings().settings
    sites = {
        name: build_site(name, overrides).settings for name, overrides in select_sources(settings, []).items()
    }
    rows = [[name, s.base_url, ", ".join(s.boards) or "all", s.min_interval_s] for name, s in sites.items()]
    print_result(
        {name: site.model_dump(mode="json") for name, site in sites.items()},
        as_json,
        lambda: print_table(["source", "address", "boards", "least interval (s)"], rows),
    )


@app.command()
def check(
    source: Annotated[str | None, Argument(help="The community; default: all that were harvested.")] = None,
    url: Annotated[str | None, Option(help="Check this page instead: a thread's address.")] = None,
    file: Annotated[Path | None, Option(help="With --url: read this saved page instead of fetching it.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of the communities, or with --url what one page yields, field by field.

    Without --url: of each community's last harvest the share of threads with each field and the reasons of
    failures, beside the median of the harvests before. Exit status 1 when one is quarantined, failed or stale,
    with what fell and when; with --url, when the page is not a thread, with a typed reason.
    """
    if url is not None:
        if source is None:
            raise UsageError("--url needs the community", hint="medlive source check SOURCE --url URL")
        _check_page(source, url, file, as_json=as_json)
    elif file is not None:
        raise UsageError("--file needs --url, the address that the page was saved from")
    else:
        _check_health(source, as_json=as_json)


def _check_health(source: str | None, *, as_json: bool) -> None:
    from medlive.service.harvest.sources import select_sources, source_health

    settings = load_settings().settings
    names = list(select_sources(settings, [source] if source else []))
    found = with_database(settings, lambda database: source_health(database, source))
    never = [name for name in names if found and source is None and name not in {one.info.name for one in found}]
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
    print_table(
        ["source", "last week", "outcome", "read to its end", "faults"],
        [[o.info.name, o.info.last_run, o.info.last_outcome, _day(o.last_done_at), len(o.faults)] for o in found],
    )
    for one in found:
        figures = [f for f in one.figures if f.collapsed or not f.name.startswith("end:") or f.value]
        if figures:
            print_table(
                ["figure", "now", "median before", "threads", ""],
                [
                    [f.name, round(f.value, 3), None if f.median is None else round(f.median, 3), f.n,
                     "collapsed" if f.collapsed else ""]
                    for f in figures
                ],
                title=f"{one.info.name}, {one.week}",
            )  # fmt: skip


def _day(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


@app.command()
def lift(
    source: Annotated[str, Argument(help="The quarantined community.")],
    accept: Annotated[bool, Option("--accept", help="Compare only with harvests from now on.")] = False,
) -> None:
    """Take a quarantined community into harvests again; the next one goes on where the last one stood."""
    from medlive.service.harvest.harvest import lift_source_quarantine
    from medlive.service.harvest.sources import select_sources

    settings = load_settings().settings
    select_sources(settings, [source])

    reason = with_database(
        settings, lambda database: lift_source_quarantine(database, source, compare_anew=accept)
    )
    say(
        f"{source} was not quarantined" if reason is None else f"{source} is harvested again; it was out: {reason}"
    )


def _check_page(source: str, url: str, file: Path | None, *, as_json: bool) -> None:
    from medlive.service.harvest.sources import check_page
    from medlive.sources.source import LayoutError, NotAThread

    settings = load_settings().settings
    try:
        body = file.read_bytes() if file else None
    except OSError as exc:
        raise BadInput(f"{file} cannot be read: {exc.strerror}") from exc
    try:
        found: dict[str, Any] = wait_for(check_page(settings, source, url, body))
    except (LayoutError, NotAThread) as exc:
        reason = "layout_error" if isinstance(exc, LayoutError) else "not_a_thread"
        if as_json:
            print_json({"thread": None, "reason": reason, "message": exc.message})
        raise CheckFailed(f"{reason}: {exc.message}") from exc
    print_result(found, as_json, lambda: _print_page(found))


def _print_page(found: dict[str, Any]) -> None:
    print_table(["field", "found"], [[name, str(value)[:300]] for name, value in found["fields"].items()])
    print_table(
        ["message", "role", "verified", "text"],
        [
            [i, m["role"], m.get("verified_by") or m["verified"], m["text"][:200]]
            for i, m in enumerate(found["thread"]["messages"])
        ],
    )


_ENDS = ("unchanged", "new", "revised", "layout", "fault", "not_a_thread", "incomplete", "bytes_gone", "damaged",
         "skipped", "waiting", "taken_down")  # fmt: skip


@app.command()
def reparse(
    sources: Annotated[list[str] | None, Argument(help="The communities; default: all.")] = None,
    thread: Annotated[str | None, Option(help="Only this thread of the one community.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would change; change nothing.")] = False,
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
        raise UsageError("--thread needs its community", hint="medlive source reparse SOURCE --thread ID")
    settings = load_settings().settings
    wanted = select_sources(settings, sources or [])
    ids = [thread] if thread else []

    done = with_database(
        settings,
        lambda database: reparse_sources(
            database, settings, [*wanted], thread_ids=ids, dry_run=dry_run,
            progress=lambda source: progress(f"reparse {source}"),
        ),
    )  # fmt: skip
    problems = [f"{d.source} is being harvested" for d in done if d.busy]
    problems += [f"{path} is damaged or missing" for d in done for path in sorted(d.damaged)]
    print_result(
        [_as_json(d, dry_run=dry_run) for d in done],
        as_json,
        lambda: _print_reparsed(done, dry_run),
        notes=_reparse_notes(done),
        failure=CheckFailed("; ".join(problems), hint="restore damaged files from a backup, then reparse again")
        if problems
        else None,
    )


def _reparse_notes(done: Sequence[Any]) -> Iterator[str]:
    for d in done:
        for thread_id, kind, message in d.problems:
            yield f"{d.source}/{thread_id}: {kind}: {message}"
        if d.quarantined is not None and not d.busy:
            fallen = "; ".join(figure.message for figure in d.drift if figure.collapsed)
            state = f"still has {fallen}" if fallen else "has all that earlier ones have"
            yield f"{d.source} is quarantined: {d.quarantined}"
            yield f"  with these readings its last harvest {state}"
            yield f"  `medlive source lift {d.source}` takes it in again"


def _print_reparsed(done: Sequence[Any], dry_run: bool) -> None:
    columns = [end for end in _ENDS if end in _ENDS[:3] or any(d.counts[end] for d in done)]
    print_table(
        ["source", "pages", *columns],
        [[d.source, d.counts["pages"], *(d.counts[c] for c in columns)] for d in done],
        title="Nothing was changed: this is what would be" if dry_run else None,
    )
    changes = [(d.source, *change) for d in done for change in _changes(d)]
    if changes:
        print_table(["source", "field", "threads before", "threads now"], changes)


def _changes(done: Any) -> list[tuple[str, int, int]]:
    fields = sorted(set(done.before) | set(done.after))
    return [(f, done.before[f], done.after[f]) for f in fields if done.before[f] != done.after[f]]


def _as_json(done: Any, *, dry_run: bool) -> dict[str, Any]:
    return {
        "source": done.source, "dry_run": dry_run, "busy": done.busy, "counts": dict(done.counts),
        "fields": {f: {"before": before, "now": after} for f, before, after in _changes(done)},
        "problems": [{"thread_id": i, "kind": kind, "message": message} for i, kind, message in done.problems],
        "damaged": [str(path) for path in sorted(done.damaged)],
        "quarantined": done.quarantined,
        "figures": [
            {name: getattr(f, name) for name in ("name", "value", "n", "median", "collapsed")} for f in done.drift
        ],
    }  # fmt: skip


@app.command()
def warc(
    out: Annotated[Path, Option(help="The folder to write to; created if it is missing.")],
    sources: Annotated[list[str] | None, Argument(help="The communities; default: all.")] = None,
    week: Annotated[str | None, Option(help="Only this ISO week's harvests, as 2026.W47.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Export the raw pages: WARC files, checked page by page, with SHA256SUMS and a CDXJ index.

    An existing file is left as it is; one with other bytes is a problem. Exit status 1 for a file
    that is damaged or in the way; the others are exported.
    """
    from medlive.service.harvest.warc_export import export_warc
    from medlive.snapshot.model import week_end

    if week is not None and week_end(week) is None:
        raise UsageError(f"{week!r} is not an ISO week such as 2026.W47")
    settings = load_settings().settings

    with progress("export") as tick:
        done = with_database(
            settings, lambda database: export_warc(database, settings, sources or [], out, week=week, tick=tick)
        )

    def show() -> None:
        rows = [[name, "written"] for name in done.written] + [[name, "unchanged"] for name in done.unchanged]
        print_table(["file", ""], rows)
        say(f"{done.pages} pages, {done.bytes} bytes in {out}")

    removed = "is of an earlier export; retention or a takedown removed it here: remove it there as well"
    print_result(
        {
            "out": str(out),
            "already": done.unchanged,
            **{name: getattr(done, name) for name in ("written", "pages", "bytes", "problems", "stale")},
        },
        as_json,
        show,
        notes=[f"{name} {removed}" for name in done.stale],
        failure=CheckFailed("; ".join(done.problems)) if done.problems else None,
    )


@app.command()
def prune(
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would go; remove nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove files of raw pages that are older than `archive.keep_days`, and finish what takedowns left.

    Threads stay. Exit status 1 when a community that is being harvested was left for the next time, or a file is
    damaged.
    """
    from medlive.service.harvest.raw_files import apply_retention
    from medlive.service.schedule.weekly import prune_by_hand

    settings = load_settings().settings

    async def work(database: "Database") -> Mapping[str, int]:
        if dry_run:
            return await apply_retention(database, settings, dry_run=True)
        return await prune_by_hand(database, settings)

    counts = with_database(settings, work)
    failure = CheckFailed(
        f"{counts['busy']} communities are being harvested, {counts['damaged']} files are damaged",
        hint="try again when the harvest is done; restore damaged files from a backup, or remove them",
    )
    title = "Nothing was removed" if dry_run else None
    print_result(
        {"dry_run": dry_run, "keep_days": settings.archive.keep_days, **counts},
        as_json,
        lambda: print_table([*counts], [[*counts.values()]], title=title),
        failure=failure if counts["busy"] or counts["damaged"] else None,
    )
