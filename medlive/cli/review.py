"""`medlive review`: disputes about cases; a case with an open one stays out of the next snapshot."""

from typing import Annotated, Any

import typer

from medlive.cli.output import JsonOption, print_json, print_table, wait_for
from medlive.config import load_settings

app = typer.Typer(no_args_is_help=True)

ByOption = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who says so.")]


@app.command()
def dispute(
    case_id: Annotated[str, typer.Argument(help="The case's id.")],
    reason: Annotated[str, typer.Option("--reason", help="What is wrong; it stays in the database.")],
    criterion: Annotated[
        str | None, typer.Option("--criterion", metavar="ID", help="About this criterion: <case id>-c3, or c3.")
    ] = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Dispute a case, or a criterion of it: it stays out of the next snapshots until the dispute is resolved."""
    from medlive.db.disputes import Dispute
    from medlive.service.database import open_database
    from medlive.service.reviewing import dispute_case

    settings = load_settings().settings

    async def run() -> Dispute:
        async with open_database(settings) as database:
            return await dispute_case(database, case_id, reason, criterion_id=criterion, by=by)

    done = wait_for(run())
    if as_json:
        print_json(_row(done))
    else:
        print(f"dispute {done.number} about {_subject(done)} is open")


@app.command()
def resolve(
    number: Annotated[int, typer.Argument(min=1, max=2**31 - 1, help="The dispute's number.")],
    resolution: Annotated[str, typer.Option("--resolution", help="What came of it.")],
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Close a dispute. What is to be withdrawn is withdrawn with `medlive snapshot withdraw`."""
    from medlive.db.disputes import Dispute
    from medlive.service.database import open_database
    from medlive.service.reviewing import resolve_dispute

    settings = load_settings().settings

    async def run() -> Dispute:
        async with open_database(settings) as database:
            return await resolve_dispute(database, number, resolution, by=by)

    done = wait_for(run())
    if as_json:
        print_json(_row(done))
    else:
        print(f"dispute {done.number} about {_subject(done)} is closed: {done.resolution}")


@app.command("list")
def list_(
    everything: Annotated[bool, typer.Option("--all", help="Closed ones too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the open disputes, oldest first."""
    from medlive.db.disputes import Dispute, list_disputes
    from medlive.service.database import open_database

    settings = load_settings().settings

    async def run() -> list[Dispute]:
        async with open_database(settings) as database, database.begin() as session:
            return await list_disputes(session, closed=everything)

    found = wait_for(run())
    if as_json:
        print_json([_row(one) for one in found])
        return
    print_table(
        ["number", "about", "reason", "opened", "by", "resolution"],
        [[d.number, _subject(d), d.reason, f"{d.opened_at:%Y-%m-%d}", d.opened_by, d.resolution] for d in found],
    )


def _subject(dispute: Any) -> str:
    """The id of the case, or of the criterion as snapshots spell it."""
    if dispute.criterion_id is None:
        return str(dispute.case_id)
    return f"{dispute.case_id}-{dispute.criterion_id}"


def _row(dispute: Any) -> dict[str, Any]:
    return {
        "number": dispute.number,
        "case_id": dispute.case_id,
        "criterion_id": None if dispute.criterion_id is None else _subject(dispute),
        "reason": dispute.reason,
        "opened_by": dispute.opened_by,
        "opened_at": dispute.opened_at.isoformat(),
        "closed_at": dispute.closed_at.isoformat() if dispute.closed_at else None,
        "closed_by": dispute.closed_by,
        "resolution": dispute.resolution,
    }
