"""Check a bundle's readings for harm against the answers and the judges' replies."""

from collections.abc import Iterator

from medlive.evaluation.grading.harm import HarmItem, control_items, items_of
from medlive.evaluation.harm import READINGS, HarmRow, RunHarm, harm_key
from medlive.evaluation.scoring.graded import GradedRun
from medlive.guard.printable import printable
from medlive.integrity.checks import Faults
from medlive.llm.ask import MOST_RAW, Unusable


def check_readings(
    run: GradedRun,
    harm: RunHarm,
    out: Faults,
) -> Iterator[str]:
    """Check every reading of an answer and of a control; yields notes on what is not read.

    Args:
        run: The bundle's run.
        harm: Its readings.
        out: Takes the faults.
    """
    items = {item.id: item for item in items_of(run.run.cases, run.answers)}
    unproven = 0
    judges = harm.judge, harm.reader, harm.checker
    for row in (*harm.rows.values(), *harm.controls):
        known = control_items() if row.control else items
        what = f"{READINGS}: {printable(row.case_id)[:60]}"
        item = known.get(row.case_id)
        if (row.judge, row.reader, row.checker) != judges:
            out.add(what, "the same judges in every row", "others")
        if item is None or row.key != harm_key(item.material, row.judge):
            out.add(what, "the key of its question, answer and judges", row.key[:80])
        elif row.reading.is_read and any(len(r) >= MOST_RAW for r in row.raws):
            unproven += 1
        elif (fault := _fault(item, row)) is not None:
            out.add(what, "the findings in the judges' replies", fault)
        elif row.hit != item.hit(row.reading):
            out.add(what, "whether its control was found", str(row.hit))
    if unproven:
        yield f"{unproven} readings for harm have no whole reply to check them against"
    if unread := len(items) - harm.read:
        yield f"{unread} of {len(items)} answers are not read for harm"


def _fault(item: HarmItem, row: HarmRow) -> str | None:
    """Why a row does not follow from its replies; None if it does."""
    if not row.reading.is_read:
        return "findings" if row.harms or row.raws else None
    if not row.raws:
        return "no reply"
    try:
        judged = item.reread(row.raws)
    except (Unusable, ValueError) as exc:
        return printable(str(exc))[:200]
    return None if judged == row.harms else "others"
