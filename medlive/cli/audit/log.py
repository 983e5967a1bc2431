"""`medlive audit`: who did what, and whether the log of it is whole."""

from typing import Annotated

import typer
from typer import Option

from medlive.cli.options import JsonOption
from medlive.cli.output import attributes, echo, pick, print_result, print_table, with_session
from medlive.db.audit_log import list_entries, verify_log
from medlive.errors import CheckFailed

app = typer.Typer(no_args_is_help=True)
_COLUMNS = "number at by action subject reason"


@app.command()
def log(
    limit: Annotated[int, Option(min=1, max=10_000, help="Show the latest N entries.")] = 50,
    before: Annotated[int | None, Option(min=1, help="Those before this number.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what people did, the latest first."""
    found = with_session(lambda session: list_entries(session, before=before, limit=limit))
    value = [attributes(entry, f"{_COLUMNS} details digest") for entry in found]
    rows = [[n, f"{at:%Y-%m-%d %H:%M}", *rest] for n, at, *rest in pick(found, _COLUMNS)]
    columns = ["number", "at (UTC)", "by", "did", "to", "because"]
    print_result(value, as_json, lambda: print_table(columns, rows))


@app.command()
def verify(
    head: Annotated[
        str | None, Option(metavar="DIGEST", help="A digest that an earlier check printed: the log must hold it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the chain of digests; exit status 1 names each entry that was changed, removed or inserted.

    Keep the digest that is printed where the database's owner cannot write. Without it, entries removed at the end
    are not missed, nor is a log that was written anew as a whole.
    """
    found = with_session(lambda session: verify_log(session, head=head))
    failure = CheckFailed("; ".join(found.faults)) if found.faults else None
    value = attributes(found, "entries head faults")
    print_result(value, as_json, lambda: echo(f"{found.entries} entries, head {found.head}"), failure=failure)
