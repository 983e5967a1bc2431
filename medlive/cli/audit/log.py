"""`medlive audit`: who did what, and whether the log of it is whole."""

from pathlib import Path
from typing import Annotated

from typer import Option

from medlive.cli.options import Commands
from medlive.cli.output import (
    Result,
    counted,
    failed,
    fields_of,
    table_of,
    with_instance,
    with_session,
)
from medlive.db.audit_log import list_entries
from medlive.service.audit_log import verify_audit_log

app = Commands()
_SHOWN = ("number", "at", "by", "action", "subject", "reason")


@app.command()
def log(
    limit: Annotated[int, Option(min=1, max=10_000)] = 50,
    before: Annotated[int | None, Option(min=1)] = None,
) -> Result:
    """Show what people did, the latest first.

    Args:
        limit: Show the latest N entries.
        before: Those before this number.
    """
    names = (*_SHOWN, "details", "digest")
    entries = with_session(list_entries, before=before, limit=limit)
    rows = [fields_of(entry, names) for entry in entries]
    return Result(rows, [table_of(rows, _SHOWN)])


@app.command()
def verify(
    head: Annotated[str | None, Option(metavar="DIGEST")] = None,
    snapshots: Annotated[
        Path | None, Option(exists=True, file_okay=False, metavar="FOLDER")
    ] = None,
) -> Result:
    """Check the chain of digests; exit status 1 names each entry that was changed, removed or inserted.

    Each snapshot's manifest states how many entries the log had and the last one's digest: entries that were cut
    off at the end are missed by it. Compare with copies that the database's owner cannot write, a mirror's by
    --snapshots. Entries newer than the latest snapshot are covered by --head alone.

    Args:
        head: A digest that an earlier check printed: the log must hold it.
        snapshots: Folder of snapshots, e.g. a mirror's; default: this instance's own.
    """
    log, anchors = with_instance(verify_audit_log, head=head, snapshots=snapshots)
    value = fields_of(log, ("entries", "head", "faults")) | {"anchors": anchors}
    entries = counted(log.entries, "entry", "entries")
    summary = (
        f"{entries}, head {log.head}; compared with {anchors} statements of snapshots"
    )
    return Result(value, [summary], failure=failed(log.faults))
