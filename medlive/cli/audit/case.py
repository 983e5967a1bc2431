"""`medlive case`: which cases there are, and one with all it rests on."""

from medlive.cli.audit import review
from medlive.cli.audit.listing import Places, View, Window, print_list
from medlive.cli.options import Commands
from medlive.cli.output import Result, show_result, table_of, with_session

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
def list_(places: Places, window: Window, view: View, overruled: bool = False) -> None:
    """List cases, the latest decision first.

    Args:
        overruled: Only those whose confirmed veto people overruled, with their reasons; no other filter.
    """
    from medlive.db.audit.threads import CASES
    from medlive.db.curation.cases import list_overruled

    if overruled:
        rows = with_session(list_overruled)
        names = ("case_id", "revision", "status", "query", "overruled")
        show_result(Result({"rows": rows}, [table_of(rows, names)]), view.as_json)
        return
    print_list(CASES, places, window, view, _COLUMNS)
