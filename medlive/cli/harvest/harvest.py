"""`medlive harvest`: fetch new threads of the communities."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import typer

from medlive.cli.options import JsonOption
from medlive.cli.output import print_json, print_table, progress, say, wait_for
from medlive.clock import iso_week, now, parse_moment
from medlive.config import load_settings
from medlive.errors import CheckFailed, MedliveError, UsageError

COLUMNS = ("pages", "new", "revised", "unchanged", "not_modified", "gone", "older_than_since")


def command(
    sources: Annotated[list[str] | None, typer.Argument(help="Sources to harvest; default: all.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="Only threads opened on or after this day.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask for at most so many threads a source.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Harvest once more although this week's harvest is done.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked, and ask nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch new and changed threads of the communities, politely, and store them.

    Once per source and ISO week: a week that is done is not harvested again, and one that was interrupted goes on
    where it stood, so that cron may start this as often as it likes. A page that cannot be read is reported and
    the others go on; exit status 1 when a source was given up or is quarantined, with its reason on stderr.
    """
    from medlive.service.database import open_database
    from medlive.service.harvest.harvest import Harvested, harvest_source, harvest_standing
    from medlive.service.harvest.settings import chosen, fetch_settings
    from medlive.sources.registry import build_site

    settings = load_settings().settings
    try:
        moment = parse_moment(since) if since else None
    except ValueError as exc:
        raise UsageError(f"--since {since}: no ISO date such as 2026-11-01") from exc
    if moment is not None and moment > now():
        raise UsageError(f"--since {since} lies ahead: no thread was opened after it")
    wanted = chosen(settings, sources or [])
    fetching = fetch_settings(settings)
    if dry_run:

        async def look() -> dict[str, str]:
            async with open_database(settings) as database:
                return {name: await harvest_standing(database, name, again=again) for name in wanted}

        sites = {name: build_site(name, overrides) for name, overrides in wanted.items()}
        standing = wait_for(look())
        plan = [
            {
                "source": name,
                "would": standing[name],
                "lists": [request.url for request in site.listing_requests(site.settings.base_url)],
                "user_agent": fetching.user_agent,
            }
            for name, site in sites.items()
        ]
        if as_json:
            print_json(plan)
        else:
            print_table(
                ["source", "would", "lists"], [[p["source"], p["would"], "\n".join(p["lists"])] for p in plan]
            )
            say(f"as {fetching.user_agent}")
        return
    if fetching.contact is None and not fetching.allow_loopback:
        raise UsageError(
            "a harvest needs a contact address, which every request names",
            hint="MEDLIVE_HARVEST__CONTACT=you@example.org, or [harvest] contact in config/sources.toml",
        )

    async def run() -> list[Harvested | BaseException]:
        async with open_database(settings) as database:
            with progress("threads") as tick:
                total: dict[str, int] = {}

                def ticks(source: str) -> Callable[[int], None]:
                    def count(threads: int) -> None:
                        total[source] = threads
                        tick(sum(total.values()))

                    return count

                # Sources are strangers: one that waits for its host, or fails, must not hold up the others.
                work = [
                    harvest_source(
                        database,
                        settings,
                        name,
                        overrides,
                        since=moment,
                        limit=limit,
                        again=again,
                        tick=ticks(name),
                    )
                    for name, overrides in wanted.items()
                ]
                return await asyncio.gather(*work, return_exceptions=True)

    ended = wait_for(run())
    broken = {name: one for name, one in zip(wanted, ended, strict=True) if isinstance(one, BaseException)}
    if len(broken) == len(wanted):
        raise _worst(list(broken.values()))
    week = iso_week(now())
    done = [
        one if isinstance(one, Harvested) else Harvested(name, week, failed=_told(one))
        for name, one in zip(wanted, ended, strict=True)
    ]
    if as_json:
        print_json([_as_json(d) for d in done])
    else:
        print_table(
            ["source", *COLUMNS, "304 share", "problems"],
            [[d.source, *(d.counts[c] for c in COLUMNS), _share(d), len(d.problems)] for d in done],
        )
    for d in done:
        for problem in d.problems[:20]:
            say(f"{d.source}: {problem.kind.value}: {problem.message} ({problem.url})")
        if len(d.problems) > 20:
            say(f"{d.source}: and {len(d.problems) - 20} problems more, all in the table `fetches`")
        if d.already_done:
            say(f"{d.source}: {d.iso_week} was harvested already; --again harvests it once more")
        if d.limited:
            say(f"{d.source}: stopped at --limit; without it, the next harvest of {d.iso_week} goes on from here")
    if broken:
        for d in done:
            if d.failed or d.quarantined:
                say(f"{d.source}: {_given_up(d)}")
        raise _worst(list(broken.values()))
    if given_up := [d for d in done if d.failed or d.quarantined]:
        told = "; ".join(f"{d.source}: {_given_up(d)}" for d in given_up)
        raise CheckFailed(told, hint="`medlive source check` says what its threads lack")


def _told(error: BaseException) -> str:
    return error.message if isinstance(error, MedliveError) else f"{type(error).__name__}: {error}"


def _worst(errors: list[BaseException]) -> BaseException:
    """The error to end with: a fault of medlive before any other, then the highest exit status."""
    return max(errors, key=lambda e: e.exit_status if isinstance(e, MedliveError) else 100)


def _share(d: Any) -> str:
    return "" if d.not_modified_share is None else f"{d.not_modified_share:.0%}"


def _given_up(d: Any) -> str:
    return f"quarantined: {d.quarantined}" if d.quarantined else str(d.failed)


def _as_json(d: Any) -> dict[str, Any]:
    return {
        "source": d.source,
        "iso_week": d.iso_week,
        "counts": dict(d.counts),
        "not_modified_share": d.not_modified_share,
        "already_done": d.already_done,
        "limited": d.limited,
        "failed": d.failed,
        "quarantined": d.quarantined,
        "problems": [
            {"url": p.url, "kind": p.kind.value, "message": p.message, "thread_id": p.thread_id}
            for p in d.problems
        ],
    }
