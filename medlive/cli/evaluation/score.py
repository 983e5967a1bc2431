"""`medlive eval score`: scores of runs side by side, as a table, TSV, JSON or CSV."""

from functools import partial

from rich.text import Text

from medlive.cli.output import Result
from medlive.errors import UsageError

from .options import Scoring


def score(
    format_: str = "table",
    slice_: str | None = None,
    *,
    how: Scoring,
) -> Result:
    """Score runs side by side, with intervals, bounds and what is missing. Exit status 1 where none has a score.

    What was withdrawn since a run's snapshot was frozen is in the errata.json beside it; without one there, in
    that of the snapshots frozen here.

    Args:
        format_: table, tsv, json or csv.
        slice_: month, theme, specialty, language, source, first-release, difficulty, dialogue-register, axis,
            cutoff or errors-by-axis.
    """
    # Imported here: --help needs neither numpy nor the scoring.
    from medlive.evaluation.scoring.estimates import KINDS
    from medlive.report.tables import WRITERS, scores_json

    from .tables import (
        ERRORS,
        describe_scores,
        describe_slice,
        find_unscored,
        scored,
    )

    kind = slice_ and slice_.replace("-", " ").replace("_", " ")
    if kind and kind not in (*KINDS, ERRORS):
        choices = ", ".join(name.replace(" ", "-") for name in (*KINDS, ERRORS))
        raise UsageError(f"--slice {slice_}: choose {choices}")
    if format_ not in ("table", *WRITERS):
        raise UsageError(f"--format {format_}: choose table, {', '.join(WRITERS)}")
    if kind and format_ != "table":
        raise UsageError(f"--slice picks rows of a table; {format_} holds all slices")
    table = scored(how)
    if format_ == "table":
        shown = describe_slice(table, kind) if kind else describe_scores(table)
    else:
        text = WRITERS[format_](table).decode("utf-8")
        shown = iter([Text(text.removesuffix("\n"))])
    failure = find_unscored(table)
    return Result(partial(scores_json, table), shown, table.warnings, failure)
