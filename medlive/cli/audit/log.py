"""`medlive audit`: who did what, and whether the log of it is whole."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from medlive.cli.options import JsonOption
from medlive.cli.output import (
    Grid,
    echo,
    in_minutes,
    print_result,
    render,
    with_database,
    with_session,
)
from medlive.db.audit_log import list_entries
from medlive.db.tables.people import AuditLogRow
from medlive.errors import CheckFailed
from medlive.service.audit_log import verify_audit_log

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class _Log:
    """Entries of the log, the latest first."""

    entries: Sequence[AuditLogRow]

    def as_json(self) -> object:
        """Each entry without what its digest is made with."""
        return [
            {
                "number": entry.number,
                "at": entry.at,
                "by": entry.by,
                "action": entry.action,
                "subject": entry.subject,
                "reason": entry.reason,
                "details": entry.details,
                "digest": entry.digest,
            }
            for entry in self.entries
        ]

    def tables(self) -> Iterable[Grid]:
        """A row for each entry."""
        rows = []
        for entry in self.entries:
            at = in_minutes(entry.at)
            row = [
                entry.number,
                at,
                entry.by,
                entry.action,
                entry.subject,
                entry.reason,
            ]
            rows.append(row)
        yield Grid(["number", "at (UTC)", "by", "did", "to", "because"], rows)

    def remarks(self) -> Iterable[str]:
        """None."""
        return ()


@app.command()
def log(
    limit: Annotated[
        int, Option(min=1, max=10_000, help="Show the latest N entries.")
    ] = 50,
    before: Annotated[
        int | None, Option(min=1, help="Those before this number.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what people did, the latest first."""
    found = with_session(
        lambda session: list_entries(session, before=before, limit=limit)
    )
    render(_Log(found), as_json)


@app.command()
def verify(
    head: Annotated[
        str | None,
        Option(
            metavar="DIGEST",
            help="A digest that an earlier check printed: the log must hold it.",
        ),
    ] = None,
    snapshots: Annotated[
        Path | None,
        Option(
            exists=True,
            file_okay=False,
            metavar="FOLDER",
            help="Folder of snapshots, e.g. a mirror's; default: this instance's own.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the chain of digests; exit status 1 names each entry that was changed, removed or inserted.

    Each snapshot's manifest states how many entries the log had and the last one's digest: entries that were cut
    off at the end are missed by it. Compare with copies that the database's owner cannot write, a mirror's by
    --snapshots. Entries newer than the latest snapshot are covered by --head alone.
    """
    found, anchors = with_database(
        lambda database, settings: verify_audit_log(
            database, settings, head=head, snapshots=snapshots
        )
    )
    failure = CheckFailed("; ".join(found.faults)) if found.faults else None
    value = {
        "entries": found.entries,
        "head": found.head,
        "faults": found.faults,
        "anchors": anchors,
    }
    summary = f"{found.entries} entries, head {found.head}; compared with {anchors} statements of snapshots"
    print_result(value, as_json, lambda: echo(summary), failure=failure)
