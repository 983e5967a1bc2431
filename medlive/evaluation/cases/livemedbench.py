"""Read and write LiveMedBench's files: benchmark, responses and grades."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from medlive.errors import BadInput
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    EvaluationCase,
    EvaluationCriterion,
)
from medlive.evaluation.tables import decode_text
from medlive.integrity.log import read_bytes, read_found

HAN = re.compile("[\u4e00-\u9fff]")
_UNSAFE = re.compile(r"[^\w.+@=-]")
_ANSWER = ("model_response", "response")
"""The field of an answer, LiveMedBench's and ours."""
FAILED_PREFIX = "ERROR:"
"""Prefix of failed answers in the published script's files."""


def read_json(path: Path, *, given: bool = True) -> Any:
    """Parse a JSON file that a user named (`given`), or that lies in a run's folder.

    Raises:
        BadInput: If it cannot be read, with the file and the position.
    """
    text = decode_text(read_bytes(path) if given else read_found(path), path.name)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BadInput(f"{path} is not valid JSON: {str(exc)[:200]}") from exc


def posting_day(post_time: object) -> str | None:
    """The day of a posting time, `YYYY-MM-DD` as it spells it; None where that cannot be read."""
    try:
        text = post_time if isinstance(post_time, str) else ""
        posted = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return posted.date().isoformat()
    except ValueError:
        return None


def month_of(post_time: object) -> str | None:
    """The month of a posting time as the published script reads it, or None where it calls it unknown."""
    day = posting_day(post_time)
    return day and day[:7]


def read_answers(
    rows: Sequence[Mapping[str, Any]],
    name: str,
    model: str,
    notes: list[str],
) -> list[Answer]:
    """The answers of a responses file's entries; irregular ones are listed in `notes`.

    Answers that begin with "ERROR:" are `failed`; the last of duplicate ids counts.
    Raises BadInput if no entry has an answer.
    """
    answers: dict[str, Answer] = {}
    if rows and not any(row.keys() & {*_ANSWER} for row in rows):
        raise BadInput(f"{name} holds no responses: no entry has a {_ANSWER[0]!r}")
    for number, entry in enumerate(rows, start=1):
        where = f"{name}, entry {number}"
        if entry.get("case_id") in (None, ""):
            notes.append(f"{where}: a response without a case_id; left out")
            continue
        answer = _answer(entry, model)
        if answer.case_id in answers:
            notes.append(
                f"{where}: case {answer.case_id!r}: answered more than once; the last one counts"
            )
        answers[answer.case_id] = answer
    return list(answers.values())


def _answer(
    entry: Mapping[str, Any],
    model: str,
) -> Answer:
    """An entry of a responses file as an answer by `model`."""
    texts = [entry[name] for name in _ANSWER if entry.get(name)]
    text = str(texts[0]) if texts else ""
    finish = str(entry.get("finish_reason") or "unknown")
    failed = finish == "error" or text.startswith(FAILED_PREFIX)
    return Answer(
        case_id=str(entry["case_id"]),
        state=AnswerState.FAILED if failed else state_of(text, finish),
        response="" if failed else text,
        finish_reason=finish,
        model=model,
        reason=text.removeprefix(FAILED_PREFIX).strip() if failed else "",
    )


def state_of(text: str, finish_reason: str) -> AnswerState:
    """The state of an answer that an endpoint gave."""
    if finish_reason in ("content_filter", "refusal"):
        return AnswerState.REFUSED
    if not text.strip():
        return AnswerState.EMPTY
    return AnswerState.TRUNCATED if finish_reason == "length" else AnswerState.OK


def _shared_fields(case: EvaluationCase) -> dict[str, Any]:
    return {
        "case_id": case.case_id,
        "post_time": case.post_time,
        "narrative": case.narrative,
        "core_request": case.query,
        "doctor_advice": case.advice,
    }


def case_entry(case: EvaluationCase) -> dict[str, Any]:
    """A case as an entry of the benchmark file."""
    rubric = list(map(_criterion_entry, case.criteria))
    return _shared_fields(case) | {"rubric_items": rubric}


def response_entry(case: EvaluationCase, answer: Answer) -> dict[str, Any]:
    """An answer as an entry of a responses file; a failed one as the published script writes it."""
    text = answer.response
    if answer.state is AnswerState.FAILED:
        text = f"{FAILED_PREFIX} {answer.reason}"
    given = {"model_response": text, "finish_reason": answer.finish_reason}
    return _shared_fields(case) | given


def grade_entry(
    case: EvaluationCase,
    met: Mapping[str, bool | None],
) -> dict[str, Any]:
    """A case's verdicts by criterion id as an entry of a grades file.

    Ungraded criteria are left out, since the format cannot express them (the published script writes 0).
    """
    evaluations = {}
    for place, criterion in enumerate(case.criteria, start=1):
        verdict = met.get(criterion.id)
        if verdict is None:
            continue
        entry = _criterion_entry(criterion)
        entry["score"] = score = int(verdict)
        entry["weighted_score"] = entry["points"] * score
        evaluations[f"rubric_{place}"] = entry
    return {"case_id": case.case_id, "evaluations": evaluations}


def _criterion_entry(criterion: EvaluationCriterion) -> dict[str, Any]:
    points = criterion.points
    whole = int(points) if points.is_integer() else points
    entry: dict[str, Any] = {"criterion": criterion.criterion, "points": whole}
    if criterion.axis:
        entry["axe"] = criterion.axis
    return entry


def list_bytes(entries: Iterable[Mapping[str, Any]]) -> bytes:
    """Entries as a JSON list, indented by two and without a last line end, as LiveMedBench's files are."""
    text = json.dumps(
        list(entries),
        ensure_ascii=False,
        indent=2,
    )
    return text.encode("utf-8", "backslashreplace")


def file_stem(model: str) -> str:
    """A model's name as a part of a file's name."""
    return _UNSAFE.sub("_", model)[:120] or "model"
