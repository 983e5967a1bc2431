"""`medlive review suspects`: list criteria that better models miss more often, and open disputes about them."""

from contextlib import suppress
from typing import Any

from medlive import api
from medlive.cli.evaluation.options import GradedRuns
from medlive.cli.options import ByOption
from medlive.cli.output import Result, table_of, with_database, with_session
from medlive.db.curation.reviews import list_disputes
from medlive.errors import UsageError
from medlive.evaluation.scoring.ability import suspects_of
from medlive.service.curation.review import dispute_case
from medlive.service.release.withdraw import check_person_name

_CELLS = ("case_id", "criterion_id", "points", "good", "correlation", "p", "criterion")


def suspects(
    graded: GradedRuns,
    dispute: bool = False,
    by: ByOption = None,
) -> Result:
    """List criteria that better models miss more often than worse ones: each may be wrong, or a trap; a person decides.

    Needs graded runs of at least five models. About 1 in 100 sound criteria is listed too.
    `medlive eval report` shows each answer beside its verdict.

    Args:
        dispute: Open a dispute about each criterion that never had one: it waits at the review desk, and keeps the
            case out of the next freeze until somebody resolves it.
    """
    scored = api.score(graded.load(), allow=graded.allow or ())
    rows: list[dict[str, Any]] = []
    for item, good, bad in suspects_of(scored):
        criterion, figures = item.criterion, item.figures
        assert criterion
        row = {
            "case_id": item.case.case_id,
            "criterion_id": criterion.id,
            "points": criterion.points,
            "good": figures.mean,
            "correlation": figures.correlation,
            "p": figures.p,
            "criterion": criterion.criterion,
            "good_models": good,
            "bad_models": bad,
        }
        rows.append(row)
    notes = [f"{len(rows)} suspects among criteria of {len(scored.models)} models"]
    shown = [table_of(rows, _CELLS)]
    if not dispute:
        return Result(rows, shown, notes)
    check_person_name(by)
    disputes = with_session(list_disputes, closed=True)
    disputed = {f"{row.case_id}-{row.criterion_id}" for row in disputes}
    opened = 0
    for suspected in rows:
        criterion_id = suspected["criterion_id"]
        if criterion_id in disputed:
            continue
        case_id = suspected["case_id"]
        words = (
            f"suspect: missed by {', '.join(suspected['bad_models'])}; "
            f"right by {', '.join(suspected['good_models'])}"
            f" (the best first); correlation {suspected['correlation']:.2f}"
        )[:2000]
        with suppress(UsageError):  # A case of another database
            with_database(
                dispute_case, case_id, words, criterion_id=criterion_id, by=by
            )
            opened += 1
    notes.append(
        f"{opened} disputes opened (medlive review disputes); the others had one, or their case is not in this database"
    )
    return Result(rows, shown, notes)
