"""`medlive case`: which cases there are, and one with all it rests on."""

from medlive.cli.audit import review
from medlive.cli.audit.listing import Places, View, Window, print_list
from medlive.cli.options import Commands

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
def list_(places: Places, window: Window, view: View) -> None:
    """List cases, the latest decision first."""
    from medlive.db.audit.threads import CASES

    print_list(CASES, places, window, view, _COLUMNS)
