"""`medlive eval score`: runs side by side."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from rich.text import Text

from medlive.cli.evaluation.options import Scoring
from medlive.cli.options import ReplaceOption
from medlive.cli.output import Grid, Result, new_file
from medlive.errors import UsageError


def score(
    format_: str | None = None,
    slice_: str | None = None,
    *,
    how: Scoring,
    out: Path | None = None,
    replace: ReplaceOption = False,
) -> Result:
    """Score runs side by side, with intervals, bounds and what is missing. Exit status 1 where none has a score.

    What was withdrawn since a run's snapshot was frozen is in the errata.json beside it; without one there, in
    that of the snapshots frozen here.

    Args:
        format_: table, tsv, json or csv [as --out ends, or table].
        slice_: month, theme, specialty, language, source, first-release, difficulty, dialogue-register, axis,
            cutoff or errors-by-axis.
        out: Write there instead of to stdout.
    """
    # Its help needs neither numpy nor what is scored.
    from medlive.cli.evaluation.tables import (
        ERRORS,
        describe_scores,
        describe_slice,
        find_unscored,
        scored,
    )
    from medlive.evaluation.scoring.estimates import KINDS
    from medlive.report.tables import WRITERS, scores_json, write_whole

    kind = slice_ and slice_.replace("-", " ").replace("_", " ")
    if kind and kind not in (*KINDS, ERRORS):
        choices = ", ".join(name.replace(" ", "-") for name in (*KINDS, ERRORS))
        raise UsageError(f"--slice {slice_}: choose {choices}")
    form, forms = format_ or "table", ["table", *WRITERS]
    if out is not None:
        form, forms = format_ or out.suffix.lower().removeprefix("."), [*WRITERS]
        new_file(out, replace)
    if form not in forms:
        raise UsageError(f"--format {form}: choose {', '.join(forms)}")
    if kind and form != "table":
        raise UsageError(f"--slice picks rows of a table; {form} holds all slices")
    table = scored(how)
    shown: Iterable[Grid | Text | str] = ()
    notes = [*table.warnings]
    if form == "table":
        shown = describe_slice(table, kind) if kind else describe_scores(table)
    elif out is not None:
        write_whole(out, WRITERS[form](table))
        notes.insert(0, f"written: {out}")
    else:
        shown = [Text(WRITERS[form](table).decode("utf-8").removesuffix("\n"))]
    return Result(partial(scores_json, table), shown, notes, find_unscored(table))
