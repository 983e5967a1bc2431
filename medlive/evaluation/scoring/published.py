"""LiveMedBench's published metric, figure for figure, quirks included (docs/builders/measurements/metric-parity.md)."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from medlive.errors import BadInput
from medlive.evaluation.cases.livemedbench import month_of, read_json
from medlive.evaluation.model import EvaluationCase
from medlive.integrity.log import some, write_whole

from .graded import GradedRun
from .metrics import CaseScore, CaseState, with_figure

_FOLDER = "livemedbench"
_OVERALL = "Overall"


CaseFigure = tuple[str, str | None, float]
"""(case id, month, figure), of one graded case; the figure is not clipped and may be NaN or infinite."""
_FIGURES = TypeAdapter(list[CaseFigure])


def month_table(
    figures: Mapping[str, Sequence[tuple[str | None, float]]],
    counts: Counter[str | None] | None = None,
) -> str:
    """Scores by month and overall as LiveMedBench prints them: TSV of `Date`, the models, `# case`; four decimals.

    Args:
        figures: Each model's (month, unclipped figure) by case, the month None where it cannot be read.
        counts: Month → cases; a month that a model lacks is then NA. None: as published, which counts the first
            model's cases (those of the first file that the file system lists) and gives a model that lacks a month 0.
    """
    lacking = "NA"
    if counts is None:
        lacking = "0.0000"
        first = next(iter(figures.values()), ())
        counts = Counter(month for month, _ in first if month is not None)
    rows: dict[str, dict[str, list[float]]] = {}
    for row in (*filter(None, counts), _OVERALL):
        rows[row] = {}
    for name, of_model in figures.items():
        for month, figure in of_model:
            for row in filter(None, (month, _OVERALL)):
                rows.setdefault(row, {}).setdefault(name, []).append(figure)
    lines = [["Date", *sorted(figures), "# case"]]
    # A month's digits come before the letters of the last row.
    for row in sorted(rows):
        cells = []
        for name in sorted(figures):
            own = rows[row].get(name)
            cells.append(f"{published_mean(own):.4f}" if own else lacking)
        n = sum(counts.values()) if row == _OVERALL else counts[row]
        lines.append([row, *cells, str(n)])
    return "".join("\t".join(line) + "\n" for line in lines)


def published_mean(figures: Sequence[float]) -> float:
    """The clipped mean of unclipped figures, added up in their order; of none 0, and with a NaN among them 1."""
    if not figures:
        return 0.0
    # min before max, as published: a NaN comes out as 1.
    return max(0.0, min(1.0, sum(figures) / len(figures)))


def case_figures(
    benchmark: Sequence[Any],
    entries: Sequence[Mapping[str, Any]],
) -> list[CaseFigure]:
    """The figure of every case that the gradings name, in the order in which a mean adds them up.

    The ids 1 and "1" are two cases, of one benchmark entry; 1 and 1.0 are one case, whose later grading counts.
    Gradings that the published script would crash on are left out.
    """
    rubrics: dict[str, tuple[object, object]] = {}
    for case in benchmark:
        if isinstance(case, dict) and case.get("case_id") is not None:
            rubric = (case.get("post_time", ""), case.get("rubric_items", []))
            rubrics[str(case["case_id"])] = rubric
    figures: dict[Any, CaseFigure] = {}
    for entry in entries:
        case_id = entry.get("case_id")
        evaluations = entry.get("evaluations", {})
        is_name = case_id and not isinstance(case_id, list | dict)
        if is_name and isinstance(evaluations, dict):
            post_time, items = rubrics.get(
                str(case_id),
                ("", []),
            )
            value = _figure(evaluations, items)
            figures[case_id] = (str(case_id), month_of(post_time), value)
    return list(figures.values())


def _figure(
    evaluations: Mapping[str, Any],
    rubric: object,
) -> float:
    """The script's figure of one case: weighted scores on the rubric's criteria over its positive points, unclipped."""
    # Criteria whose text is not in the rubric do not count. Any value that is not empty is a "text" to the script:
    # 5, 5.0 and "5" are two.
    known = set()
    positive = []
    for item in rubric if isinstance(rubric, list) else ():
        if isinstance(item, dict):
            positive.append(max(0.0, _number(item.get("points", 0))))
            if _has_text(item):
                known.add(item["criterion"])
    weighted = []
    for graded in evaluations.values():
        if not isinstance(graded, dict) or not _has_text(graded):
            continue
        if graded["criterion"] in known:
            weighted.append(_number(graded.get("weighted_score", 0)))
    most = sum(positive)
    return sum(weighted) / most if most > 0 else 0.0


def _has_text(item: Mapping[str, Any]) -> bool:
    criterion = item.get("criterion")
    return bool(criterion) and not isinstance(criterion, list | dict)


def _number(value: object) -> float:
    """The value as a float, booleans included; 0 if it is not a number or overflows."""
    try:
        return float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        return 0.0


def keep_figures(
    run: Path,
    judge: str,
    cases: Path,
    gradings: Sequence[Mapping[str, Any]],
) -> None:
    """Store in a run's folder what the published script makes of the imported grades of `judge` (`Grade.judge`).

    It counts entries that a run folder does not keep, such as failed answers. Nothing is stored unless `cases` is
    LiveMedBench's file, a JSON list, or a snapshot's folder with one. Raises BadInput.
    """
    benchmark = cases / "livemedbench.json" if cases.is_dir() else cases
    if not benchmark.is_file():
        return
    entries = read_json(benchmark)
    if not isinstance(entries, list):
        return
    figures = case_figures(entries, gradings)
    write_whole(_place(run, judge), json.dumps(figures).encode())


def kept_figures(
    run: Path,
    judge: str | None,
) -> list[CaseFigure] | None:
    """The figures that `keep_figures` stored of the verdicts of `judge`; None if there are none.

    `judge` is None for a run without verdicts: it has the figures of its only import with grades, none of which could
    be read as a verdict.
    """
    places = list((run / _FOLDER).glob("*.json"))
    if judge is not None:
        places = [_place(run, judge)]
    if len(places) != 1 or not places[0].is_file():
        return None
    try:
        return _FIGURES.validate_python(read_json(places[0], given=False))
    except ValidationError as exc:
        raise BadInput(
            f"{places[0]} does not contain LiveMedBench's figures",
            hint="import the files once more",
        ) from exc


def _place(run: Path, judge: str) -> Path:
    return run / _FOLDER / f"{judge.removeprefix('sha256:')[:16]}.json"


def scores_of_files(
    run: GradedRun,
    in_run: Sequence[CaseScore],
) -> tuple[CaseScore, ...] | None:
    """A run's cases as the published script scores them from the imported files; None without such files.

    In the script's order: the cases that the gradings name and no others, even cases that the benchmark lacks.
    `in_run` are the cases as scored from the run folder, for states, verdicts and bounds.
    """
    figures = kept_figures(
        run.run.path,
        run.grader.judge if run.grader else None,
    )
    if figures is None:
        return None
    known = {score.case_id: score for score in in_run}
    scores: dict[str, CaseScore] = {}
    for name, month, value in figures:
        score, case_id = known.get(name), name
        # The gradings may name a case a second time in another type (1 and "1").
        while case_id in scores:
            case_id += "′"
        if score is None:
            score = CaseScore(
                case=EvaluationCase(case_id, "", "", "", "", (), "", month),
                state=CaseState.UNSCORABLE,
                answer=None,
                met={},
                score=None,
                low=0.0,
                high=0.0,
            )
        elif case_id != name:
            score = replace(
                score,
                case=replace(score.case, case_id=case_id),
            )
        scores[case_id] = with_figure(score, value)
    return tuple(scores.values())


def as_published(
    runs: Sequence[GradedRun],
    in_runs: Mapping[str, tuple[CaseScore, ...]],
    whole_cases: Mapping[str, tuple[EvaluationCase, ...]],
) -> tuple[dict[str, tuple[CaseScore, ...]], list[str]]:
    """Return each run's cases as the published script scores them, and warnings where that is not possible.

    `whole_cases` has each run's cases as they were before any were left out.
    """
    scored, warnings = {}, []
    for run in runs:
        own, before = in_runs[run.label], whole_cases[run.label]
        from_files = None
        # The imported files still contain what is left out here.
        if run.cases == before:
            from_files = scores_of_files(run, own)
        own = own if from_files is None else from_files
        scored[run.label] = own
        if from_files is None and run.imported:
            warnings.append(
                f"{run.label}: the published figures are based on the verdicts in the run folder: it has no "
                "LiveMedBench files, or some of their cases are left out"
            )
        for warning in _figure_warnings(own, before, from_files):
            warnings.append(f"{run.label}: {warning}")
    return scored, warnings


def _figure_warnings(
    scored: Sequence[CaseScore],
    before: Sequence[EvaluationCase],
    from_files: Sequence[CaseScore] | None,
) -> Iterator[str]:
    """Warn about what the published mean counts in its own way; `from_files` are the cases of the imported files."""
    if invalid := [c.case_id for c in scored if c.non_finite is not None]:
        yield (
            f"cases without a finite figure: {len(invalid)} ({some(invalid)}); the mean is the published "
            "script's, without an interval"
        )
    if from_files is None:
        return
    known = {case.case_id for case in before}
    graded = [score.case_id for score in from_files]
    unknown = [case_id for case_id in graded if case_id not in known]
    if unknown:
        yield (
            f"graded cases missing in the benchmark: {len(unknown)} ({some(unknown)}); the published mean counts "
            "them"
        )
    if missing := known.difference(graded):
        yield f"cases without a grading: {len(missing)}; the published mean leaves them out"
