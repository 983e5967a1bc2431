"""`medlive harvest`: fetch new threads of the communities."""

from typing import Annotated, Any

import typer

from medlive.cli.output import JsonOption, print_json, print_table, progress, say, wait_for
from medlive.clock import parse_moment
from medlive.config import load_settings
from medlive.errors import CheckFailed, UsageError

COLUMNS = ("pages", "new", "revised", "unchanged", "not_modified", "older_than_since")


def command(
    sources: Annotated[list[str] | None, typer.Argument(help="Sources to harvest; default: all.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="Only threads opened on or after this day.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask for at most so many threads a source.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked, and ask nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch new and changed threads of the communities, politely, and store them.

    A page that cannot be read is reported and the others go on; exit status 1 when a source had to be given up.
    """
    from medlive.service.database import open_database
    from medlive.service.harvesting import Harvested, chosen, fetch_settings, harvest_source
    from medlive.sources.registry import build_site

    settings = load_settings().settings
    try:
        moment = parse_moment(since) if since else None
    except ValueError as exc:
        raise UsageError(f"--since {since}: no ISO date such as 2026-11-01") from exc
    wanted = chosen(settings, sources or [])
    fetching = fetch_settings(settings)
    if dry_run:
        sites = {name: build_site(name, overrides) for name, overrides in wanted.items()}
        plan = [
            {"source": name, "url": request.url, "user_agent": fetching.user_agent}
            for name, site in sites.items()
            for request in site.listing_requests(site.settings.base_url)
        ]
        if as_json:
            print_json(plan)
        else:
            print_table(["source", "would ask for", "as"], [list(row.values()) for row in plan])
        return
    if fetching.contact is None and not fetching.allow_loopback:
        raise UsageError(
            "a harvest needs a contact address, which every request names",
            hint="MEDLIVE_HARVEST__CONTACT=you@example.org, or [harvest] contact in config/sources.toml",
        )

    async def run() -> list[Harvested]:
        done = []
        async with open_database(settings) as database:
            for name, overrides in wanted.items():
                with progress(f"harvest {name}") as tick:
                    done.append(
                        await harvest_source(
                            database, settings, name, overrides, since=moment, limit=limit, tick=tick
                        )
                    )
        return done

    done = wait_for(run())
    if as_json:
        print_json([_as_json(d) for d in done])
    else:
        print_table(
            ["source", *COLUMNS, "problems"],
            [[d.source, *(d.counts[c] for c in COLUMNS), len(d.problems)] for d in done],
        )
    for d in done:
        for problem in d.problems[:20]:
            say(f"{d.source}: {problem.kind.value}: {problem.message} ({problem.url})")
        if d.quarantined:
            say(f"{d.source}: not asked, it is quarantined: {d.quarantined}")
    if given_up := [d for d in done if d.failed or d.quarantined]:
        raise CheckFailed("; ".join(f"{d.source}: {d.failed or d.quarantined}" for d in given_up))


def _as_json(d: Any) -> dict[str, Any]:
    return {
        "source": d.source,
        "counts": dict(d.counts),
        "failed": d.failed,
        "quarantined": d.quarantined,
        "problems": [
            {"url": p.url, "kind": p.kind.value, "message": p.message, "thread_id": p.thread_id}
            for p in d.problems
        ],
    }
