"""A bundle that verifies as a run folder: to be scored with other options, reported on, or graded again."""

from pathlib import Path

from medlive.errors import BadInput, UsageError
from medlive.evaluation.bundles.bundle import rows_of
from medlive.evaluation.bundles.files import BOOK, pretty, spelt
from medlive.evaluation.bundles.verify import BundleReport
from medlive.evaluation.runs.folder import GRADES, RESPONSES, RunFolder, open_run, write_whole


def unbundle(report: BundleReport, out: Path) -> RunFolder:
    """Write what a verified bundle holds, and the snapshot's cases, as a run folder that is opened again.

    Raises UsageError where the bundle did not verify wholly or `out` holds something, BadInput when it cannot be
    written.
    """
    if report.run is None:
        raise UsageError(f"{report.path} makes no run: {report.why_not}")
    run = report.run
    grades = (run.grades.get(case.case_id, {}).get(c.id) for case in run.run.cases for c in case.criteria)
    files = {
        "cases.jsonl": rows_of(run.run.cases),
        **({} if report.book is None else {BOOK: report.book}),
        RESPONSES: b"".join(spelt(answer.row()) for answer in run.answers.values()),
        GRADES: b"".join(spelt(grade.row()) for grade in grades if grade is not None),
        # Last: a folder without it is no run.
        "run.json": pretty(run.run.info.model_dump(mode="json")),
    }
    try:
        if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
            raise UsageError(f"{out} is there and is not empty", hint="give a folder that is not there yet")
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_whole(out / name, data)
    except OSError as exc:
        raise BadInput(f"{out} cannot be written: {exc.strerror or exc}") from exc
    return open_run(out)
