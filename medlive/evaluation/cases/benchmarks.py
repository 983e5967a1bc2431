"""Files of cases: LiveMedBench's, HealthBench's, K-QA's, LLMEval-Med's, and medlive's own JSON Lines.

The rows of every format become rows of medlive's own (`_CaseRow`), whose fields docs/importing.md documents. A row
that does not fit is left out whole, with its line and the cause: a rubric without one of its criteria would give
other scores than its authors'.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from medlive.errors import BadInput
from medlive.evaluation.cases.livemedbench import HAN, month_of
from medlive.evaluation.cases.llmeval import is_llmeval, llmeval_rows
from medlive.evaluation.model import (
    CaseSet,
    EvaluationCase,
    EvaluationCriterion,
    Turn,
    conversation,
)
from medlive.evaluation.tables import csv_rows, decode_text, read_table
from medlive.integrity.digest import digest_bytes, digest_json
from medlive.integrity.log import read_bytes

Place = tuple[str, str]
"""(case id, criterion id)."""

Row = dict[str, Any]

KQA_COLUMNS: Final = ("Question", "llm_x", "answer", "claim", "category_x")
_KQA_LISTS: Final = ("Must_have", "Nice_to_have")
_UNREAD: Final = {"canary", "Sources", "ICD_10_diag"}
_LIVEMEDBENCH: Final = {
    "narrative": "narrative",
    "core_request": "query",
    "doctor_advice": "advice",
    "post_time": "post_time",
}
"""LiveMedBench's names of a case's texts, and medlive's."""
_IDEAL: Final = "ideal_completion"


class Format(StrEnum):
    """Whose file it is (docs/importing.md)."""

    LIVEMEDBENCH = "livemedbench"
    HEALTHBENCH = "healthbench"
    KQA = "kqa"
    LLMEVAL = "llmeval"
    JSONL = "jsonl"


_Text = Annotated[str, Field(pattern=r"\S")]


def _named(ours: str, theirs: str, default: Any = ...) -> Any:
    return Field(default, validation_alias=AliasChoices(theirs, ours))


def _as_text(value: object) -> object:
    return (
        str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    )


_Id = Annotated[_Text, BeforeValidator(_as_text)]
_WHY: Final = {
    "string_pattern_mismatch": "it is empty",
    "string_unicode": "it has half of a surrogate pair, which is not a character",
}
"""Causes in plainer words than pydantic's, by its type of error."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _TurnRow(_Part):
    role: Literal["system", "user", "assistant"]
    content: _Text


class _CriterionRow(_Part):
    criterion: _Text
    points: Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
    id: _Text | None = None
    axis: str | None = None
    tags: list[str] = []


class _CaseRow(_Part):
    """A case; each second name is HealthBench's, or K-QA's."""

    case_id: _Id = _named("case_id", "prompt_id")
    turns: list[_TurnRow] = _named("turns", "prompt", [])
    narrative: str = ""
    query: str = ""
    advice: str = _named("advice", "Free_form_answer", "")
    rubric: list[_CriterionRow] = _named("rubric", "rubrics", [])
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
    tags: list[str] = _named("tags", "example_tags", [])

    @model_validator(mode="after")
    def _asks(self) -> "_CaseRow":
        if self.turns and self.turns[-1].role != "user":
            raise ValueError("the last turn must be the user's")
        if bool(self.turns) is bool(self.narrative.strip() or self.query.strip()):
            raise ValueError("expected either turns, or narrative and query")
        if len(set(self._ids())) < len(self.rubric):
            raise ValueError("two criteria have the same id")
        return self

    def _ids(self) -> list[str]:
        return [
            c.id or f"rubric_{place}" for place, c in enumerate(self.rubric, start=1)
        ]

    def case(self) -> EvaluationCase:
        """The row as a case; the language is told by its characters where the row does not say."""
        turns = tuple(Turn(turn.role, turn.content) for turn in self.turns)
        narrative = conversation(turns[:-1]) if turns else self.narrative
        query = turns[-1].content if turns else self.query
        criteria = []
        for criterion_id, row in zip(self._ids(), self.rubric, strict=True):
            criterion = EvaluationCriterion(
                id=criterion_id,
                criterion=row.criterion,
                points=row.points,
                axis=row.axis or _tagged(row.tags, "axis:"),
                tags=tuple(row.tags),
            )
            criteria.append(criterion)
        ideal = (self.ideal_completions_data or {}).get(_IDEAL)
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

    def unknown(self) -> Iterator[str]:
        """The names of fields that medlive does not know; of turns and criteria after `turns.` and `rubric.`."""
        names: dict[str, None] = {}
        parts: dict[str, Sequence[_Part]] = {
            "": [self],
            "turns.": self.turns,
            "rubric.": self.rubric,
        }
        for prefix, rows in parts.items():
            for row in rows:
                for name in (row.model_extra or {}).keys() - _UNREAD:
                    names[prefix + name] = None
        yield from sorted(names)


def format_of(path: Path) -> Format:
    """Whose format a file is in, by its first characters. Raises BadInput where it is text of no format."""
    head = decode_text(read_bytes(path), path.name)[0].lstrip()[:65_536]
    line = head.partition("\n")[0]
    if all(column in line for column in KQA_COLUMNS) or '"Must_have"' in head:
        return Format.KQA
    if not head.startswith(("{", "[")):
        raise BadInput(f"{path.name}: expected JSON, found {head[:40]!r}")
    if is_llmeval(head):
        return Format.LLMEVAL
    if '"prompt_id"' in head or (line.startswith("{") and '"prompt"' in head):
        return Format.HEALTHBENCH
    ours = line.startswith("{") and '"rubric_items"' not in head
    return Format.JSONL if ours else Format.LIVEMEDBENCH


def read_benchmark(path: Path, format_: Format) -> CaseSet:
    """Read the cases of a file.

    Rows that are malformed or repeat an id are left out; `notes` say where and why, and name unknown fields,
    prompts that stand twice, repeated turns and a cluster that only some rows have.

    Raises:
        BadInput: If the file is not of the format, or has no case.
    """
    notes: list[str] = []
    by_id: dict[str, tuple[str, EvaluationCase]] = {}
    unknown: dict[str, list[str]] = {}
    for where, raw in _case_rows(path, format_):
        try:
            if isinstance(raw, str):
                raise ValueError(raw)
            row = _CaseRow.model_validate(_CONVERTED.get(format_, dict)(raw))
        except ValueError as exc:
            notes.append(f"{path.name}, {where}: {_cause(exc)}; left out")
            continue
        for name in row.unknown():
            unknown.setdefault(name, []).append(where)
        case = row.case()
        before, kept = by_id.setdefault(case.case_id, (where, case))
        if kept is not case:
            notes.append(
                f"{path.name}, {where}: case {case.case_id!r} is in {before}; left out"
            )
    if not by_id:
        raise BadInput(
            f"{path} holds no {format_.value} case"
            + (f" ({notes[0]})" if notes else "")
        )
    for name, places in unknown.items():
        what = f"not read: {name!r} ({len(places)} rows, first {places[0]})"
        notes.append(f"{path.name}: {what}")
    cases = tuple(case for _, case in by_id.values())
    notes += _irregular(list(by_id.values()))
    return CaseSet(
        cases,
        format_.value,
        path.name,
        digest_bytes(read_bytes(path)),
        None,
        tuple(notes),
    )


def _cause(exc: ValueError) -> str:
    if not isinstance(exc, ValidationError):
        return str(exc)
    first = exc.errors(include_url=False)[0]
    why = _WHY.get(first["type"], first["msg"])
    # Places count from 1, as lines do.
    where = ".".join(
        str(part + 1) if isinstance(part, int) else part for part in first["loc"]
    )
    return f"{where}: {why}".removeprefix(": ").replace("Value error, ", "")


def _irregular(entries: Sequence[tuple[str, EvaluationCase]]) -> Iterator[str]:
    """Notes on what is odd in cases that are asked all the same."""
    yield from _repeated(entries)
    unscored: list[str] = []
    unweighted: list[str] = []
    undated: list[str] = []
    alone: list[str] = []
    for where, case in entries:
        if not case.criteria:
            unscored.append(where)
        elif all(criterion.points <= 0 for criterion in case.criteria):
            unweighted.append(where)
        if case.post_time and not case.month:
            undated.append(where)
        if case.cluster is None:
            alone.append(where)
    lacks = {
        "criterion; they are asked and have no score": unscored,
        "positive points; they are asked and have no score": unweighted,
        "post_time that can be read; they are in no month": undated,
    }
    if len(alone) < len(entries):
        lacks["cluster, as others have; each stands for itself"] = alone
    for what, without in lacks.items():
        if without:
            yield f"{len(without)} of {len(entries)} cases have no {what} (first: {without[0]})"


def _repeated(entries: Sequence[tuple[str, EvaluationCase]]) -> Iterator[str]:
    """Notes on what is there twice in cases, each with its place: prompts, turns and criteria."""
    first: dict[str, tuple[str, str | None]] = {}
    for place, case in entries:
        where = f"{place}: case {case.case_id!r}"
        prompt = " ".join(case.question.split())
        before, cluster = first.setdefault(prompt, (where, case.cluster))
        if before != where and (cluster is None or cluster != case.cluster):
            yield f"{where} has the prompt of {before}, and no cluster that joins them"
        if len(set(case.turns)) < len(case.turns):
            yield f"{where} has a turn twice"
        if len({c.criterion for c in case.criteria}) < len(case.criteria):
            yield f"{where} has a criterion twice"


def _case_rows(
    path: Path, format_: Format
) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    """The rows of a file that are a case each, with their places; or why one is none."""
    text = decode_text(read_bytes(path), path.name)[0]
    if format_ is Format.LLMEVAL:
        yield from llmeval_rows(text, path.name)
    elif format_ is Format.KQA and not text.lstrip().startswith(("{", "[")):
        yield from _kqa_statements(text, path.name)
    else:
        yield from _json(text, path.name)


def _json(text: str, name: str) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    if not text.lstrip().startswith(("{", "[")):
        raise BadInput(f"{name}: expected JSON Lines")
    return read_table(text, name, ())


def _livemedbench_case(raw: Mapping[str, Any]) -> Row:
    """An entry of LiveMedBench's benchmark as a case; what is null or not there is empty."""
    row = dict(raw)
    for theirs, ours in _LIVEMEDBENCH.items():
        row[ours] = row.pop(theirs, None) or ""
    rubric_items = row.pop("rubric_items", None) or []
    if not isinstance(rubric_items, list) or not all(
        isinstance(entry, dict) for entry in rubric_items
    ):
        raise ValueError("rubric_items: expected a list of objects")
    row["rubric"] = items = []
    for item in rubric_items:
        own = dict(item) | {"points": item.get("points", 0)}
        if "axe" in own:
            own["axis"] = own.pop("axe")
        items.append(own)
    return row


def _kqa_case(raw: Mapping[str, Any]) -> Row:
    """A row of K-QA's questions, or of its statements, as a case."""
    row = dict(raw)
    if "Question" in row:
        question = row.pop("Question")
        rubric = []
        for name in _KQA_LISTS:
            statements = row.pop(name, [])
            if not isinstance(statements, list):
                raise ValueError(f"{name}: expected a list")
            for text in statements:
                if isinstance(text, str) and not text.strip():
                    row["empty statements"] = True
                else:
                    rubric.append(_statement(text, name))
        row |= {"case_id": kqa_id(question), "query": question, "rubric": rubric}
    return row


_CONVERTED: Final[Mapping[Format, Callable[[Mapping[str, Any]], Row]]] = {
    Format.LIVEMEDBENCH: _livemedbench_case,
    Format.KQA: _kqa_case,
}
"""How rows of other formats become rows of medlive's own."""


def _tagged(tags: Sequence[str], prefix: str) -> str | None:
    """The rest of the first tag that begins so."""
    for tag in tags:
        if tag.startswith(prefix):
            return tag.removeprefix(prefix)
    return None


def _statement(text: object, category: str) -> Row:
    # K-QA's comprehensiveness counts what an answer must have, each the same, and nothing else.
    return {
        "criterion": text,
        "points": float(category == _KQA_LISTS[0]),
        "axis": category,
    }


def kqa_id(*parts: object) -> str:
    """The id of K-QA's case, of its question, or of question, model and answer."""
    return "kqa-" + digest_json(list(parts))[7:19]


def kqa_rows(text: str, name: str) -> Iterator[tuple[int, Place, Mapping[str, Any]]]:
    """The rows of K-QA's `NLI_medical_annotator.csv` (Manes et al. 2024), each with its line and its criterion.

    A case is one answer to one question, a criterion one statement. Raises BadInput as `csv_rows`.
    """
    for line, values in csv_rows(text, name, (*KQA_COLUMNS, "label_0"), fold=False):
        # Short rows have empty columns.
        row = dict.fromkeys(KQA_COLUMNS, "") | dict(values)
        yield (
            line,
            (
                kqa_id(*(row[column] for column in KQA_COLUMNS[:3])),
                f"r{row.get('') or line}",
            ),
            row,
        )


def _kqa_statements(text: str, name: str) -> Iterator[tuple[str, Row]]:
    """K-QA's labelled statements as cases: one for each answer, of the source that gave it."""
    cases: dict[str, tuple[str, Row]] = {}
    for line, (case_id, criterion_id), row in kqa_rows(text, name):
        head = {
            "query": row["Question"],
            "source": row["llm_x"],
            "cluster": kqa_id(row["Question"]),
            "rubric": [],
        }
        _, case = cases.setdefault(
            case_id, (f"line {line}", {"case_id": case_id, **head})
        )
        case["rubric"].append(
            {"id": criterion_id, **_statement(row["claim"], row["category_x"])}
        )
    yield from cases.values()


def answer_rows(path: Path, format_: Format, field: str) -> list[Row] | None:
    """The answers of a file in a benchmark's own format, as LiveMedBench's responses; None: it has no own format.

    HealthBench's are the rows of `…_allresults.json` (simple-evals), with their verdicts as LiveMedBench's
    `evaluations`; with `field` "ideal_completion" the physicians' own answers in the file of cases. Raises
    BadInput for a file that is not of the format.
    """
    if format_ in (Format.LIVEMEDBENCH, Format.JSONL, Format.LLMEVAL):
        return None
    text = decode_text(read_bytes(path), path.name)[0]
    if format_ is Format.KQA and not text.lstrip().startswith(("{", "[")):
        return _kqa_answers(text, path.name)
    answered = []
    for row in _json_answers(text, path.name, format_, field):
        if row["response"] is not None:
            answered.append(row)
    if not answered:
        raise BadInput(f"{path.name} has no answer in {format_.value}'s format")
    return answered


def _kqa_answers(text: str, name: str) -> list[Row]:
    """The answers of K-QA's table, the last of each question."""
    answers: dict[str, object] = {}
    for _, (case_id, _), row in kqa_rows(text, name):
        answers[case_id] = row["answer"]
    return [
        {"case_id": case_id, "response": answer} for case_id, answer in answers.items()
    ]


def _json_answers(text: str, name: str, format_: Format, field: str) -> Iterator[Row]:
    """The answers of a file of JSON objects, K-QA's or HealthBench's."""
    for where, row in _json(text, name):
        if isinstance(row, str):
            raise BadInput(f"{name}, {where}: {row}")
        if format_ is Format.KQA:
            case_id = kqa_id(row.get("Question"))
            yield {"case_id": case_id, "response": row.get("result")}
            continue
        for place, example in enumerate(_examples(row), start=1):
            if not isinstance(example, dict):
                raise BadInput(f"{name}, {where}, example {place}: expected an object")
            yield _result(example, field)


def _examples(row: Mapping[str, Any]) -> Sequence[object]:
    """The results in a row of HealthBench's: simple-evals' file is one object, with a row for each example."""
    metadata = row.get("metadata")
    if not isinstance(metadata, dict):
        return [row]
    listed = metadata.get("example_level_metadata")
    return listed if isinstance(listed, list) else ()


def _result(row: Mapping[str, Any], field: str) -> Row:
    """A row of HealthBench's results: the last message of its completion, or the ideal one, and its verdicts."""
    results = (
        (row.get("ideal_completions_data") or {}).get(_IDEAL)
        if field == _IDEAL
        else row.get("completion")
    )
    last = results[-1] if isinstance(results, list) and results else results
    answer = last.get("content") if isinstance(last, dict) else last
    verdicts = {}
    for place, item in enumerate(row.get("rubric_items") or (), start=1):
        if isinstance(item, dict) and "criteria_met" in item:
            verdicts[f"rubric_{place}"] = {
                "criterion": item.get("criterion"),
                "points": item.get("points"),
                "score": item["criteria_met"],
            }
    return {
        "case_id": row.get("prompt_id"),
        "response": answer,
        "evaluations": verdicts,
        **_asked(row),
    }


def _asked(row: Mapping[str, Any]) -> Row:
    """What a row says was asked, in LiveMedBench's fields; nothing where its prompt is not a list of turns."""
    try:
        turns = [Turn(turn["role"], turn["content"]) for turn in row["prompt"]]
        return {
            "narrative": conversation(turns[:-1]),
            "core_request": turns[-1].content,
        }
    except (KeyError, IndexError, TypeError):
        return {}


def gradings_of(
    cases: Sequence[EvaluationCase], verdicts: Mapping[Place, Mapping[str, bool | None]]
) -> dict[str, list[Row]]:
    """People's verdicts by rater as LiveMedBench's gradings; of three raters and more their majority, last.

    Verdicts on what is not a criterion of the cases are kept, for `import_run` to name.
    """
    raters: dict[str, None] = {}
    for ratings in verdicts.values():
        raters.update(dict.fromkeys(ratings))
    by_rater: dict[str, dict[str, Row]] = {rater: {} for rater in raters}
    if len(raters) > 2:
        by_rater["majority"] = {}
        verdicts = _with_majority(verdicts)
    texts = _criterion_texts(cases)
    for place, ratings in verdicts.items():
        case_id, criterion_id = place
        for rater, met in ratings.items():
            if met is not None:
                entry = {"criterion": texts.get(place), "score": met}
                by_rater[rater].setdefault(case_id, {})[criterion_id] = entry
    return {rater: _gradings(rows) for rater, rows in by_rater.items()}


def _gradings(evaluations: Mapping[str, Row]) -> list[Row]:
    """A rater's gradings from the evaluations of each case."""
    return [
        {"case_id": case_id, "evaluations": verdicts_of}
        for case_id, verdicts_of in evaluations.items()
    ]


def _criterion_texts(cases: Sequence[EvaluationCase]) -> dict[Place, str]:
    texts: dict[Place, str] = {}
    for case in cases:
        for criterion in case.criteria:
            texts[case.case_id, criterion.id] = criterion.criterion
    return texts


def _with_majority(
    verdicts: Mapping[Place, Mapping[str, bool | None]],
) -> dict[Place, Mapping[str, bool | None]]:
    """The verdicts with those of the raters' majority; None where as many say yes as no."""
    out: dict[Place, Mapping[str, bool | None]] = {}
    for place, by_rater in verdicts.items():
        lead = 0
        for met in by_rater.values():
            if met is not None:
                lead += 1 if met else -1
        out[place] = {**by_rater, "majority": lead > 0 if lead else None}
    return out
