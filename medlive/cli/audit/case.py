"""`medlive case`: which cases there are, and one with all it rests on."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument, Option

from medlive.cli.audit import review
from medlive.cli.audit.listing import Places, View, Window, print_list
from medlive.cli.options import JsonOption, grouped
from medlive.cli.output import print_result, print_table, with_session

if TYPE_CHECKING:
    from medlive.db.curation.cases import ComparedCase

_SCORES = (
    "coverage",
    "conformity",
    "consistency",
    "conciseness",
    "summary",
    "stability",
)

app = typer.Typer(no_args_is_help=True)
_COLUMNS: Final = (
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
@grouped
def list_(places: Places, window: Window, view: View) -> None:
    """List cases, the latest decision first."""
    from medlive.db.audit.threads import CASES

    print_list(
        CASES,
        places,
        window,
        view,
        _COLUMNS,
    )


@app.command()
def compare(
    version: Annotated[
        str | None, Argument(help="A snapshot's cases; else the latest of all.")
    ] = None,
    lowest: Annotated[int, Option(min=1, help="Cases that are listed.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the cases that keep least to their threads, by the cross-examination at curation.

    The figure is the mean of coverage, conformity and consistency, in percent.
    """
    from medlive.db.curation.cases import compared_cases

    cases = with_session(lambda session: compared_cases(session, version))
    value = sorted(
        (row for case in cases if (row := _compared(case))),
        key=lambda row: row["figure"],
    )
    without = len(cases) - len(value)
    notes = [f"{without} cases were not compared, or edited since"] if without else []
    names = ("case_id", "revision", "figure", *_SCORES)
    rows = [
        [f"{row[n]:z.0f}" if isinstance(row[n], float) else row[n] for n in names]
        for row in value[:lowest]
    ]
    print_result(value[:lowest], as_json, lambda: print_table(names, rows), notes=notes)


def _compared(case: "ComparedCase") -> dict[str, Any] | None:
    """A case's figures; None where there are none of its present text."""
    if case.scores is None or case.edited:
        return None
    scores = {name: getattr(case.scores, name) for name in _SCORES}
    figure = (scores["coverage"] + scores["conformity"] + scores["consistency"]) / 3
    return {
        "case_id": case.case_id,
        "revision": case.revision,
        "figure": figure,
        **scores,
    }
