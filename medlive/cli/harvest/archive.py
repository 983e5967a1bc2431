"""`medlive source reparse|warc|prune`: the raw pages that harvests keep."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medlive.cli.database import with_database
from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, progress, say
from medlive.config import load_settings
from medlive.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from medlive.db.session import Database

_ENDS = ("unchanged", "new", "revised", "layout", "fault", "not_a_thread", "incomplete", "bytes_gone", "damaged",
         "skipped", "waiting", "taken_down")  # fmt: skip


def reparse(
    sources: Annotated[list[str] | None, typer.Argument(help="The communities; default: all.")] = None,
    thread: Annotated[str | None, typer.Option("--thread", help="Only this thread of the one community.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change; change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read every kept page again with today's parsers; a thread that comes out otherwise gets a new revision.

    Nothing is fetched. Threads whose reading failed are tried again; one that could be read before and cannot now
    is told and left as it was. Exit status 1 when a file of pages is damaged or a community is being harvested;
    the others are read all the same.
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
    print_result([_as_json(d, dry_run=dry_run) for d in done], as_json, lambda: _print(done, dry_run))
    for d in done:
        for thread_id, kind, message in d.problems:
            say(f"{d.source}/{thread_id}: {kind}: {message}")
        if d.quarantined is not None and not d.busy:
            _say_quarantine(d)
    problems = [f"{d.source} is being harvested" for d in done if d.busy]
    problems += [f"{path} is damaged or missing" for d in done for path in sorted(d.damaged)]
    if problems:
        raise CheckFailed("; ".join(problems), hint="restore damaged files from a backup, then reparse again")


def _print(done: Sequence[Any], dry_run: bool) -> None:
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


def _say_quarantine(done: Any) -> None:
    say(f"{done.source} is quarantined: {done.quarantined}")
    fallen = [figure.message for figure in done.drift if figure.collapsed]
    if fallen:
        say(f"  with these readings its last harvest still has {'; '.join(fallen)}")
    else:
        say("  with these readings nothing in its last harvest falls behind earlier ones")
    say(f"  `medlive source lift {done.source}` takes it in again")


def _as_json(done: Any, *, dry_run: bool) -> dict[str, Any]:
    return {
        "source": done.source,
        "dry_run": dry_run,
        "busy": done.busy,
        "counts": dict(done.counts),
        "fields": {f: {"before": before, "now": after} for f, before, after in _changes(done)},
        "problems": [{"thread_id": i, "kind": kind, "message": message} for i, kind, message in done.problems],
        "damaged": [str(path) for path in sorted(done.damaged)],
        "quarantined": done.quarantined,
        "figures": [
            {"name": f.name, "value": f.value, "n": f.n, "median": f.median, "collapsed": f.collapsed}
            for f in done.drift
        ],
    }


def warc(
    out: Annotated[Path, typer.Option("--out", help="The folder to write to; made when it is not there.")],
    sources: Annotated[list[str] | None, typer.Argument(help="The communities; default: all.")] = None,
    week: Annotated[str | None, typer.Option("--week", help="Only this ISO week's harvests, as 2026.W47.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Export the raw pages: WARC files, checked page by page, with SHA256SUMS and a CDXJ index.

    A file that is there already is left as it is; one with other bytes is a problem. Exit status 1 for a file
    that is damaged or in the way; the others are exported.
    """
    from medlive.service.harvest.warc_export import export_warc
    from medlive.snapshot.model import week_end

    if week is not None and week_end(week) is None:
        raise UsageError(f"{week!r} is no ISO week such as 2026.W47")
    settings = load_settings().settings

    with progress("export") as tick:
        done = with_database(
            settings, lambda database: export_warc(database, settings, sources or [], out, week=week, tick=tick)
        )

    def show() -> None:
        rows = [[name, "written"] for name in done.written] + [[name, "was there"] for name in done.unchanged]
        print_table(["file", ""], rows)
        say(f"{done.pages} pages, {done.bytes} bytes in {out}")

    removed = "is of an earlier export; retention or a takedown removed it here: remove it there as well"
    print_result(
        {
            "out": str(out),
            "written": done.written,
            "already": done.unchanged,
            "pages": done.pages,
            "bytes": done.bytes,
            "problems": done.problems,
            "stale": done.stale,
        },
        as_json,
        show,
        notes=[f"{name} {removed}" for name in done.stale],
        failure=CheckFailed("; ".join(done.problems)) if done.problems else None,
    )


def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")] = False,
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
