"""Read published human ratings: K-QA (physicians on statements) and FRANK (annotators on summaries)."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard

from medlive.digest import digest_bytes, digest_json
from medlive.errors import BadInput
from medlive.evaluation.agreement.human_tables import Row, csv_rows, decode_text, read_bytes
from medlive.evaluation.agreement.humans import HumanRatings, Place, RatingCollector, merge_ratings, read_ratings
from medlive.evaluation.model import Answer, AnswerState, CaseSet, EvaluationCase, EvaluationCriterion

KQA_COLUMNS: Final = ("Question", "llm_x", "answer", "claim", "category_x")
_KQA_LABELS: Final[Mapping[str, bool | None]] = {
    "Entailment": True, "Neutral": False, "Contradiction": False, "": None,
}  # fmt: skip
_KQA_POINTS: Final[Mapping[str, float]] = {"Must_have": 2.0, "Nice_to_have": 1.0}
_FRANK_OWN: Final = frozenset({"hash", "model_name", "dataset", "split"})


def read_humans(*paths: Path, items: Mapping[str, Place] | None = None) -> HumanRatings:
    """Read and merge human ratings in medlive's own format, K-QA's CSV of physicians, or FRANK's JSON.

    Args:
        paths: The files.
        items: The criteria of a run's item ids (`sheets.places_of`).

    Raises:
        BadInput: If a file is invalid, or two files contradict each other.
    """
    return merge_ratings([_read(path, items) for path in paths])


def _read(path: Path, items: Mapping[str, Place] | None) -> HumanRatings:
    data = read_bytes(path)
    text = decode_text(data, path.name)
    if text.lstrip().startswith("[") and '"model_name"' in text and '"Factuality"' in text:
        return _frank_humans(data, path.name)
    head = text.split("\n", 1)[0]
    if all(column in head for column in (*KQA_COLUMNS, "label_0")):
        return read_kqa(path).humans
    return read_ratings(data, path.name, items)


@dataclass(frozen=True, slots=True)
class KqaSet:
    """K-QA's rated statements as cases: a question with its answer, and a criterion for each statement."""

    cases: CaseSet
    answers: tuple[Answer, ...]
    humans: HumanRatings


def read_kqa(path: Path) -> KqaSet:
    """K-QA's `NLI_medical_annotator.csv` (Manes et al. 2024): physicians on whether an answer entails a statement.

    Entailment is met; Neutral and Contradiction are not met; an empty label is no decision. Raters are the columns
    `label_0`, `label_1` …; `majority_label` is not a rater. A case is one answer to one question, a must-have
    statement has 2 points and a nice-to-have 1. Raises BadInput with the lines that cannot be read.
    """
    data = read_bytes(path)
    found = RatingCollector(path.name)
    needed = [(column,) for column in (*KQA_COLUMNS, "label_0")]
    # Short rows have empty columns.
    blank = dict.fromkeys(KQA_COLUMNS, "")
    read = csv_rows(decode_text(data, path.name), path.name, needed, fold=False)
    rows = [Row(row.line, blank | dict(row.values)) for row in read]
    groups: dict[str, tuple[Mapping[str, Any], list[EvaluationCriterion]]] = {}
    for row in rows:
        case_id = "kqa-" + digest_json([row.values[name] for name in KQA_COLUMNS[:3]])[7:19]
        _, criteria = groups.setdefault(case_id, (row.values, []))
        criterion_id = f"r{row.values.get('') or row.line}"
        _kqa_labels(row, (case_id, criterion_id), found)
        points = _KQA_POINTS.get(row.values["category_x"], 1.0)
        criteria.append(EvaluationCriterion(criterion_id, row.values["claim"], points))
    cases = tuple(
        EvaluationCase(case_id, "en", "", str(first["Question"]), "", tuple(criteria), "", None, source="kqa")
        for case_id, (first, criteria) in groups.items()
    )
    answers = tuple(
        Answer(case_id, AnswerState.OK, str(first["answer"]), "stop", str(first["llm_x"]))
        for case_id, (first, _) in groups.items()
    )
    digest = digest_bytes(data)
    humans = found.humans(digest, "kqa")
    return KqaSet(CaseSet(cases, "kqa", path.name, digest, False), answers, humans)


def _kqa_labels(row: Row, place: tuple[str, str], found: RatingCollector) -> None:
    for column, label in row.values.items():
        if not column.startswith("label_"):
            continue
        if label.strip() not in _KQA_LABELS:
            found.fault(row.line, f"{column}: {label[:40]!r} is not a K-QA label")
        else:
            found.verdict(row.line, place, column, _KQA_LABELS[label.strip()])


@dataclass(frozen=True, slots=True)
class FrankItem:
    """Human and metric scores of one FRANK summary."""

    article: str
    model: str
    dataset: str
    split: str
    factuality: float
    """The share of its sentences that the majority of three annotators found without a factual error, 0 to 1."""
    metrics: Mapping[str, float]
    """By metric; absent where the file has no number."""


def read_frank(humans: Path, metrics: Path) -> tuple[FrankItem, ...]:
    """FRANK's `human_annotations.json` joined with `baseline_factuality_metrics_outputs.json` (Pagnoni et al.
    2021), in the order of the first. Raises BadInput if an item is in one file only or occurs twice."""
    people, scores = _frank_rows(read_bytes(humans), humans.name), _frank_rows(read_bytes(metrics), metrics.name)
    if people.keys() != scores.keys():
        apart = sorted(people.keys() ^ scores.keys())
        raise BadInput(f"{len(apart)} summaries are in one file only, e.g. {apart[0]}")
    return tuple(
        FrankItem(
            key[0], key[1], str(row.get("dataset")), str(row.get("split")), _factuality(row, humans.name),
            {name: float(v) for name, v in scores[key].items() if name not in _FRANK_OWN and _is_number(v)},
        )
        for key, row in people.items()
    )  # fmt: skip


def _frank_rows(data: bytes, name: str) -> dict[tuple[str, str], Mapping[str, Any]]:
    try:
        rows = json.loads(decode_text(data, name))
        found = {(str(row["hash"]), str(row["model_name"])): row for row in rows}
    except (ValueError, RecursionError, TypeError, KeyError) as exc:
        raise BadInput(f"{name} is not a FRANK file: {str(exc)[:120]}") from exc
    if len(found) < len(rows):
        raise BadInput(f"{name}: {len(rows) - len(found)} summaries occur twice")
    return found


def _frank_humans(data: bytes, name: str) -> HumanRatings:
    found = RatingCollector(name)
    for (article, model), row in _frank_rows(data, name).items():
        found.score(1, f"{article}/{model}", "annotators", _factuality(row, name))
    return found.humans(digest_bytes(data), "frank")


def _factuality(row: Mapping[str, Any], name: str) -> float:
    value = row.get("Factuality")
    if not _is_number(value) or not 0 <= float(value) <= 1:
        raise BadInput(
            f"{name}: summary {row.get('hash')!r}: Factuality must be a number from 0 to 1, found {value!r}"
        )
    return float(value)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
