"""Unpack a verified bundle into a run folder, to score, report or grade it again."""

from pathlib import Path

from medlive.errors import BadInput, UsageError
from medlive.evaluation.bundles.bundle import cases_jsonl
from medlive.evaluation.bundles.files import EVIDENCE_FILE, encode_document, encode_row
from medlive.evaluation.bundles.verify import BundleReport
from medlive.evaluation.runs.folder import GRADES, RESPONSES, RunFolder, open_run, write_whole


def unbundle(report: BundleReport, out: Path) -> RunFolder:
    """Write a verified bundle and the snapshot's cases as a run folder, and open it.

    Raises:
        UsageError: If the bundle did not verify completely, or `out` is not empty.
        BadInput: If `out` cannot be written.
    """
    if report.run is None:
        raise UsageError(f"{report.path} cannot be unpacked: {report.why_not}")
    run = report.run
    grades = (run.grades.get(case.case_id, {}).get(c.id) for case in run.run.cases for c in case.criteria)
    files = {
        "cases.jsonl": cases_jsonl(run.run.cases),
        **({} if report.book is None else {EVIDENCE_FILE: report.book}),
        RESPONSES: b"".join(encode_row(answer.row()) for answer in run.answers.values()),
        GRADES: b"".join(encode_row(grade.row()) for grade in grades if grade is not None),
        # Last, since it makes the folder a run.
        "run.json": encode_document(run.run.info.model_dump(mode="json")),
    }
    try:
        if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
            raise UsageError(f"{out} is not empty", hint="name a new folder")
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_whole(out / name, data)
    except OSError as exc:
        raise BadInput(f"{out} cannot be written: {exc.strerror or exc}") from exc
    return open_run(out)
