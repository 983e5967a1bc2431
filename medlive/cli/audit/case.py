"""`medlive case`: which cases there are, and one with all it rests on."""

from medlive.cli.audit import review
from medlive.cli.audit.listing import Listed, list_rows
from medlive.cli.options import Commands
from medlive.cli.output import Result, table_of, with_session
from medlive.db.audit.tables import CASES
from medlive.db.curation.cases import list_overruled
from medlive.errors import UsageError

app = Commands()
_COLUMNS = (
    "case_id",
    "status",
    "source",
    "language",
    "specialty",
    "theme",
    "changed_at",
    "query",
)
app.command("show")(review.show)


@app.command("list")
def list_(which: Listed, overruled: bool = False) -> Result | None:
    """List cases, the latest decision first.

    Args:
        overruled: Only those whose confirmed veto people overruled, with their reasons; no other filter.
    """
    if overruled:
        if which != Listed():
            raise UsageError("--overruled lists all such cases: no filter beside it")
        rows = with_session(list_overruled)
        names = ("case_id", "revision", "status", "query", "overruled")
        return Result({"rows": rows}, [table_of(rows, names)])
    return list_rows(CASES, which, _COLUMNS)
