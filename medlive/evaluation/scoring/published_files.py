"""Keep imported LiveMedBench files in the run folder, to compute the figures of its published script.

The published script counts entries that a run folder does not keep, such as failed answers
(docs/metric-parity.md), so its table is computed from its own files.
"""

import json
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from medlive.errors import BadInput
from medlive.evaluation.cases.livemedbench import read_grades, read_json
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.folder import write_whole
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import CaseScore, CaseState, with_figure
from medlive.evaluation.scoring.published import CaseFigure, case_figures

_FOLDER: Final = "livemedbench"


@dataclass(frozen=True, slots=True)
class PublishedFiles:
    """The benchmark and the gradings of one import, entry by entry as they stand in the files."""

    benchmark: list[Any]
    gradings: list[dict[str, Any]]


def keep_files(run: Path, judge: str, benchmark: Path, grades: Path) -> None:
    """Keep the files that a run's verdicts of `judge` (`Grade.judge`) came from. Raises BadInput."""
    content = {"judge": judge, "benchmark": read_json(benchmark), "gradings": read_grades(grades)}
    data = json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace")
    place = _place(run, judge)
    try:
        place.parent.mkdir(exist_ok=True)
        if not place.is_file() or place.read_bytes() != data:
            write_whole(place, data)
    except OSError as exc:
        raise BadInput(f"{place} cannot be written: {exc.strerror or exc}") from exc


def kept_files(run: Path, judge: str | None) -> PublishedFiles | None:
    """The files that a run's verdicts of `judge` came from; None where they came from elsewhere.

    A run without any verdict (None) has those of its only import with grades: of these none could be read as one.
    """
    if judge is None:
        places = list((run / _FOLDER).glob("*.json"))
        place = places[0] if len(places) == 1 else None
    else:
        place = _place(run, judge)
    if place is None or not place.is_file():
        return None
    content = read_json(place)
    valid = isinstance(content, dict) and all(isinstance(content.get(k), list) for k in ("benchmark", "gradings"))
    if not valid or judge not in (None, content.get("judge")):
        raise BadInput(f"{place} does not contain LiveMedBench files")
    return PublishedFiles(content["benchmark"], content["gradings"])


def scores_of_files(run: GradedRun, in_run: Sequence[CaseScore]) -> tuple[CaseScore, ...] | None:
    """A run's cases as the published script has them of the files it was imported from; None without such files.

    In the script's order: those that the gradings name and no others, cases that the benchmark lacks among them.
    `in_run` are the cases as scored from the run folder, for states, verdicts and bounds.
    """
    files = kept_files(run.run.path, run.grader.judge if run.grader else None)
    if files is None:
        return None
    known = {score.case.case_id: score for score in in_run}
    found: list[CaseScore] = []
    taken: set[str] = set()
    for figure in case_figures(files.benchmark, files.gradings):
        score = known.get(figure.case_id)
        if score is None or figure.case_id in taken:
            score = _added_case(figure, taken, score)
        taken.add(score.case.case_id)
        found.append(with_figure(score, figure.value))
    return tuple(found)


def _added_case(figure: CaseFigure, taken: Set[str], same: CaseScore | None) -> CaseScore:
    """A case that the benchmark lacks, or one that the gradings name a second time in another type (1 and "1")."""
    case_id = figure.case_id
    while case_id in taken:
        case_id += "′"
    if same is not None:
        return replace(same, case=replace(same.case, case_id=case_id))
    case = EvaluationCase(case_id, "", "", "", "", (), "", figure.month)
    return CaseScore(case, CaseState.UNSCORABLE, None, {}, None, 0.0, 0.0)


def _place(run: Path, judge: str) -> Path:
    return run / _FOLDER / f"{judge.removeprefix('sha256:')[:16]}.json"
