"""`medlive source`: the communities, and what a page of one yields."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medlive.cli.database import with_database
from medlive.cli.harvest import archive as source_archive
from medlive.cli.options import JsonOption
from medlive.cli.output import print_json, print_result, print_table, say, wait_for
from medlive.config import load_settings
from medlive.errors import BadInput, CheckFailed, UsageError

if TYPE_CHECKING:
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
    source: Annotated[str | None, typer.Argument(help="The community; default: all that were harvested.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="Check this page instead: a thread's address.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="With --url: read this saved page instead of fetching it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how the communities fare, or with --url what one page yields, field by field.

    Without --url: of each community's last harvest the share of threads with each field and the reasons of
    failures, beside the median of the harvests before. Exit status 1 when one is quarantined, failed or stale,
    with what fell and when; with --url, when the page is no thread, with a typed reason.
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
    source: Annotated[str, typer.Argument(help="The quarantined community.")],
    accept: Annotated[
        bool, typer.Option("--accept", help="Its pages changed for good: compare with harvests from now on only.")
    ] = False,
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


for command in (source_archive.reparse, source_archive.warc, source_archive.prune):
    app.command()(command)
