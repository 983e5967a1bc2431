"""Pairs of a document and a text about it, from a file, as what protocols work on.

A row has `document` and `text`, and optionally `id`, `model` (who wrote the text; else the file's name) and
`language` (en or zh; else the document's). The pairs of one document are drawn together by intervals.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from medlive.digest import digest_text
from medlive.errors import BadInput
from medlive.evaluation.model import Answer, AnswerState, EvaluationCase
from medlive.evaluation.protocols.model import Subject
from medlive.evaluation.tables import add_rows
from medlive.llm.ask import first_fault
from medlive.text.normalise import dominant_language

_Text = Annotated[str, StringConstraints(pattern=r"\S")]


class _Pair(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    document: _Text
    text: _Text
    id: Annotated[str, Field(min_length=1)]
    model: Annotated[str, Field(min_length=1)]
    language: Literal["en", "zh"] | None = None


def read_pairs(path: Path) -> list[Subject]:
    """Read JSON Lines, a JSON array or CSV; a subject for each model, in the order of the file.

    Raises:
        BadInput: If there is no pair, or there are invalid lines, which it names.
    """
    found: dict[str, dict[str, tuple[EvaluationCase, Answer]]] = {}

    def add(place: str, row: Mapping[str, Any]) -> None:
        pair = _parse(row, place, path.stem)
        mine = found.setdefault(pair.model, {})
        if pair.id in mine:
            raise ValueError(f"{pair.model} has the id {pair.id[:40]!r} twice")
        mine[pair.id] = _as_case(pair)

    add_rows(
        path,
        ("document", "text"),
        add,
        hint='a line is {"id": …, "document": …, "text": …}',
    )
    if not found:
        raise BadInput(f"{path.name} has no pairs")
    return [
        Subject(
            model,
            tuple(case for case, _ in mine.values()),
            {key: answer for key, (_, answer) in mine.items()},
        )
        for model, mine in found.items()
    ]


def _parse(row: Mapping[str, Any], place: str, name: str) -> _Pair:
    """Raises ValueError if it is not a pair."""
    try:
        return _Pair.model_validate(
            {"id": place, "model": name}
            | {k: v for k, v in row.items() if v is not None}
        )
    except ValidationError as exc:
        raise ValueError(first_fault(exc)) from exc


def _as_case(pair: _Pair) -> tuple[EvaluationCase, Answer]:
    language = pair.language or (
        "zh" if dominant_language(pair.document) == "zh" else "en"
    )
    case = EvaluationCase(
        pair.id,
        language,
        "",
        "",
        pair.document,
        (),
        "",
        None,
        cluster=digest_text(pair.document),
    )
    return case, Answer(pair.id, AnswerState.OK, pair.text, "stop", pair.model)
