"""Read rubric benchmarks' files: cases (`read_benchmark`), answers and verdicts (`answer_rows`).

`READERS` has a reader for each format.

The rows of every format become rows of medlive's own (`_CaseRow`), whose fields docs/importing.md documents. A row
that does not fit is left out whole, with its line and the cause: a rubric without one of its criteria would give
other scores than its authors'.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)

from medlive.errors import BadInput, first_fault
from medlive.evaluation.model import (
    CaseSet,
    EvaluationCase,
    EvaluationCriterion,
    Turn,
    conversation,
)
from medlive.evaluation.tables import Rows, csv_rows, decode_text, read_table
from medlive.integrity.digest import digest_bytes, digest_json
from medlive.integrity.log import read_bytes, some

from .livemedbench import HAN, month_of

Place = tuple[str, str]
"""(case id, criterion id)."""
Row = dict[str, Any]

KQA_COLUMNS = ("Question", "llm_x", "answer", "claim", "category_x")
_MUST_HAVE = "Must_have"


Format = Literal["livemedbench", "healthbench", "kqa", "jsonl"]
"""The format of a file, by the benchmark that it is of (docs/importing.md)."""


# --- a case's row, in medlive's fields or in others' names of them

_Text = Annotated[str, Field(pattern=r"\S")]
_Id = Annotated[
    _Text, BeforeValidator(lambda value: str(value) if type(value) is int else value)
]


def _named(*names: str, default: Any = ...) -> Any:
    """A field that a row may have under any of these names."""
    return Field(default, validation_alias=AliasChoices(*names))


class _TurnRow(BaseModel, strict=True):
    role: Literal["system", "user", "assistant"]
    content: _Text


class _CriterionRow(BaseModel, strict=True):
    criterion: _Text
    points: float = Field(ge=-1e6, le=1e6, allow_inf_nan=False)
    id: _Text | None = None
    axis: str | None = _named("axis", "axe", default=None)
    tags: list[str] = []


class _CaseRow(BaseModel, strict=True):
    """A case in medlive's own fields, or under HealthBench's, K-QA's or LiveMedBench's names of them."""

    case_id: _Id = _named("prompt_id", "case_id")
    turns: list[_TurnRow] = _named("prompt", "turns", default=[])
    narrative: str = ""
    query: str = _named("core_request", "query", default="")
    advice: str = _named("Free_form_answer", "doctor_advice", "advice", default="")
    rubric: list[_CriterionRow] = _named(
        "rubrics", "rubric_items", "rubric", default=[]
    )
    ideal_completions_data: dict[str, Any] | None = None
    language: str | None = None
    post_time: str = ""
    source: str | None = None
    theme: str | None = None
    specialty: str | None = None
    difficulty: str | None = None
    dialogue_register: str | None = None
    cluster: _Id | None = None
    after: _Id | None = None
    tags: list[str] = _named("example_tags", "tags", default=[])

    @model_validator(mode="after")
    def _asks(self) -> "_CaseRow":
        """Check that the row asks something in one way, and number criteria without an id."""
        if self.turns and self.turns[-1].role != "user":
            raise ValueError("the last turn must be the user's")
        if bool(self.turns) is bool(self.narrative.strip() or self.query.strip()):
            raise ValueError("expected either turns, or narrative and query")
        for place, criterion in enumerate(self.rubric, start=1):
            criterion.id = criterion.id or f"rubric_{place}"
        if len({criterion.id for criterion in self.rubric}) < len(self.rubric):
            raise ValueError("two criteria have the same id")
        return self

    def case(self) -> EvaluationCase:
        """The row as a case; its characters show the language where the row does not say it."""
        turns = tuple(Turn(turn.role, turn.content) for turn in self.turns)
        narrative = conversation(turns[:-1]) if turns else self.narrative
        query = turns[-1].content if turns else self.query
        criteria = []
        for row in self.rubric:
            criterion = EvaluationCriterion(
                id=row.id or "",
                criterion=row.criterion,
                points=row.points,
                axis=row.axis or _tagged(row.tags, "axis:"),
                tags=tuple(row.tags),
            )
            criteria.append(criterion)
        ideal = (self.ideal_completions_data or {}).get("ideal_completion")
        return EvaluationCase(
            case_id=self.case_id,
            language=self.language or ("zh" if HAN.search(narrative + query) else "en"),
            narrative=narrative,
            query=query,
            advice=self.advice or str(ideal or ""),
            criteria=tuple(criteria),
            post_time=self.post_time,
            month=month_of(self.post_time),
            source=self.source,
            theme=self.theme or _tagged(self.tags, "theme:"),
            specialty=self.specialty,
            cluster=self.cluster,
            turns=turns,
            after=self.after,
            tags=tuple(self.tags),
            difficulty=self.difficulty,
            dialogue_register=self.dialogue_register,
        )


def _tagged(tags: Sequence[str], prefix: str) -> str | None:
    """The rest of the first tag that begins with `prefix`; None if none does."""
    for tag in tags:
        if tag.startswith(prefix):
            return tag.removeprefix(prefix)
    return None


# --- reading any format


def format_of(path: Path) -> Format:
    """The format of a file, recognised by its first characters."""
    head = _text_of(path).lstrip()[:65_536]
    line = head.partition("\n")[0]
    if all(column in line for column in KQA_COLUMNS) or f'"{_MUST_HAVE}"' in head:
        return "kqa"
    if '"prompt_id"' in head:
        return "healthbench"
    ours = line.startswith("{") and '"rubric_items"' not in head
    return "jsonl" if ours else "livemedbench"


def read_benchmark(path: Path, format_: Format) -> CaseSet:
    """Read the cases of a file.

    Rows that are malformed or repeat an id are left out; `notes` say where and why, and name cases that can have no
    score.

    Raises:
        BadInput: If the file is not of the format, or has no case.
    """
    notes: list[str] = []
    cases: dict[str, EvaluationCase] = {}
    for place, raw in READERS[format_].rows(_text_of(path), path.name):
        try:
            if isinstance(raw, str):
                raise ValueError(raw)
            # What is null is empty.
            given = {name: value for name, value in raw.items() if value is not None}
            row = _CaseRow.model_validate(given)
            _check_place(row, cases)
        except ValueError as exc:
            fault = first_fault(exc, "row") if isinstance(exc, ValidationError) else exc
            notes.append(f"{path.name}, {place}: {fault}; left out")
            continue
        cases[row.case_id] = row.case()
    if not cases:
        first = f" ({notes[0]})" if notes else ""
        raise BadInput(f"{path} holds no {format_} case{first}")
    unscored = [name for name, case in cases.items() if case.positive_points <= 0]
    if unscored:
        notes.append(
            f"{len(unscored)} of {len(cases)} cases have no positive points ({some(unscored)}); they are asked and "
            "have no score"
        )
    return CaseSet(
        cases=tuple(cases.values()),
        origin=format_,
        name=path.name,
        digest=digest_bytes(read_bytes(path)),
        publishable=None,
        notes=tuple(notes),
    )


def _check_place(row: _CaseRow, earlier: Collection[str]) -> None:
    """Raises ValueError for a second case of the same id, or one that continues a case which is not before it."""
    if row.case_id in earlier:
        raise ValueError(f"a second case {row.case_id!r}")
    if row.after is not None and row.after not in earlier:
        raise ValueError(f"after: no case {row.after!r} before it")


def answer_rows(path: Path, format_: str, notes: list[str]) -> list[Row]:
    """The answers of a file, with their verdicts if it has some, in LiveMedBench's form; damaged rows are listed in
    `notes`.

    HealthBench's are the rows of `…_allresults.json` (simple-evals), with their verdicts as LiveMedBench's
    `evaluations`. Raises BadInput for a file that is not of the format.
    """
    text = _text_of(path)
    if (read := READERS[format_].answers) is not None:
        return [row for row in read(text, path.name) if row["response"] is not None]
    rows: list[Row] = []
    for place, row in json_rows(text, path.name):
        if isinstance(row, str):
            notes.append(f"{path.name}, {place}: {row}; left out")
        elif row and all(isinstance(entry, dict) for entry in row.values()):
            # Responses by the ids of their cases
            for name, entry in row.items():
                rows.append({**entry, "case_id": entry.get("case_id") or name})
        else:
            rows.append(dict(row))
    if notes and not rows:
        raise BadInput(f"{path.name} holds no entry: {notes[0]}")
    return rows


def _text_of(path: Path) -> str:
    return decode_text(read_bytes(path), path.name)


def _is_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


def json_rows(text: str, name: str) -> Rows:
    """The rows of JSON or JSON Lines, as they are. Raises BadInput for other text."""
    if not _is_json(text):
        raise BadInput(f"{name}: expected JSON or JSON Lines")
    return read_table(text, name, ())


def _valid(rows: Rows, name: str) -> Iterator[Mapping[str, Any]]:
    """The rows without their places. Raises BadInput for an invalid row."""
    for where, row in rows:
        if isinstance(row, str):
            raise BadInput(f"{name}, {where}: {row}")
        yield row


# --- LiveMedBench


def livemedbench_cases(text: str, name: str) -> Rows:
    """The entries of its benchmark; missing points are 0, as in its script."""
    for place, row in json_rows(text, name):
        items = None if isinstance(row, str) else row.get("rubric_items")
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict):
                item.setdefault("points", 0)
        yield place, row


# --- HealthBench


def healthbench_answers(
    text: str,
    name: str,
) -> Iterator[Row]:
    """For each example of a results file, the last message of its completion, and its verdicts."""
    for row in _valid(json_rows(text, name), name):
        # simple-evals' file is one object, with a row for each example.
        examples: Sequence[object] = [row]
        if isinstance(metadata := row.get("metadata"), dict):
            listed = metadata.get("example_level_metadata")
            examples = listed if isinstance(listed, list) else ()
        for example in examples:
            if not isinstance(example, dict):
                raise BadInput(f"{name}: expected an object for each example")
            completion = example.get("completion")
            if isinstance(completion, list) and completion:
                completion = completion[-1]
            if isinstance(completion, dict):
                completion = completion.get("content")
            yield {
                "case_id": example.get("prompt_id"),
                "response": completion,
                "evaluations": _healthbench_verdicts(example.get("rubric_items")),
            }


def _healthbench_verdicts(items: object) -> Row:
    """Graded rubric items as LiveMedBench's `evaluations`."""
    verdicts = {}
    for place, item in enumerate(items if isinstance(items, list) else (), start=1):
        if isinstance(item, dict) and "criteria_met" in item:
            verdicts[f"rubric_{place}"] = {
                "criterion": item.get("criterion"),
                "points": item.get("points"),
                "score": item["criteria_met"],
            }
    return verdicts


# --- K-QA (Manes et al. 2024): questions, or a table of people's labels on statements


def kqa_id(*parts: object) -> str:
    """The id of K-QA's case, of its question, or of question, model and answer."""
    return "kqa-" + digest_json(list(parts))[7:19]


def kqa_rows(
    text: str,
    name: str,
) -> Iterator[tuple[int, Place, Mapping[str, Any]]]:
    """The rows of K-QA's `NLI_medical_annotator.csv`, each with its line and its criterion.

    A case is one answer to one question, a criterion one statement. Raises BadInput as `csv_rows`.
    """
    for line, values in csv_rows(text, name, (*KQA_COLUMNS, "label_0")):
        # Short rows have empty columns.
        row = dict.fromkeys(KQA_COLUMNS, "") | dict(values)
        case_id = kqa_id(*(row[column] for column in KQA_COLUMNS[:3]))
        yield line, (case_id, f"r{row.get('') or line}"), row


def kqa_cases(text: str, name: str) -> Rows:
    """The cases: K-QA's questions, or of its table of labels one for each answer, who gave it being the `source`."""
    if _is_json(text):
        for place, row in json_rows(text, name):
            yield place, row if isinstance(row, str) else _kqa_question(row)
        return
    cases: dict[str, tuple[str, Row]] = {}
    for line, (case_id, criterion_id), row in kqa_rows(text, name):
        case: Row = {
            "case_id": case_id,
            "query": row["Question"],
            "source": row["llm_x"],
            "cluster": kqa_id(row["Question"]),
            "rubric": [],
        }
        _, case = cases.setdefault(case_id, (f"line {line}", case))
        statement = _kqa_statement(row["claim"], row["category_x"])
        case["rubric"].append(statement | {"id": criterion_id})
    yield from cases.values()


def _kqa_question(raw: Mapping[str, Any]) -> Row | str:
    """A question with its statements as a case, or why it cannot be read; a row that is a case, unchanged."""
    row = dict(raw)
    if "Question" not in row:
        return row
    question = row.pop("Question")
    rubric = []
    for name in (_MUST_HAVE, "Nice_to_have"):
        statements = row.pop(name, [])
        if not isinstance(statements, list):
            return f"{name}: expected a list"
        for text in statements:
            # Some of its lists hold empty texts.
            if not isinstance(text, str) or text.strip():
                rubric.append(_kqa_statement(text, name))
    return row | {
        "case_id": kqa_id(question),
        "query": question,
        "rubric": rubric,
    }


def _kqa_statement(text: object, category: str) -> Row:
    # K-QA's comprehensiveness counts what an answer must have, each the same, and nothing else.
    points = float(category == _MUST_HAVE)
    return {
        "criterion": text,
        "points": points,
        "axis": category,
    }


def kqa_answers(
    text: str,
    name: str,
) -> Iterator[Row]:
    """The answers: of JSON the last to each question, of the table of labels one for each case."""
    answers: dict[str, object] = {}
    if _is_json(text):
        for row in _valid(json_rows(text, name), name):
            answers[kqa_id(row.get("Question"))] = row.get("result")
    else:
        for _line, (case_id, _criterion), row in kqa_rows(text, name):
            answers[case_id] = row["answer"]
    for case_id, answer in answers.items():
        yield {"case_id": case_id, "response": answer}


# --- the table of formats


class Reader(NamedTuple):
    """How the files of a format are read."""

    rows: Callable[[str, str], Rows] = json_rows
    """The rows of a file of cases, by its text and name."""
    answers: Callable[[str, str], Iterable[Row]] | None = None
    """The answers of a file, by its text and name; None: LiveMedBench's form."""


READERS: Mapping[str, Reader] = {
    "livemedbench": Reader(rows=livemedbench_cases),
    "healthbench": Reader(answers=healthbench_answers),
    "kqa": Reader(rows=kqa_cases, answers=kqa_answers),
    "jsonl": Reader(),
}
"""A new format is a reader here, and how its files begin in `format_of`."""
