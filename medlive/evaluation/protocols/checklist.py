"""LLMEval-Med's checklist scoring: an answer is usable where the mean of three rounds is 4 or more of 5.

On its own questions core and secondary requirements are the published checklist's; on medlive's cases they are the
positive criteria, core where they have 7 points or more (seed 003 §3.2, appendices C, D; docs/method.md §4).

People's ratings of answers may stand beside the judge's. Their table (`evaluation.tables`) has a row for each answer
and rater: `case_id`, `rater`, `model` where several models answered, and `usable` or the five dimensions, whole
numbers from 0 to 5.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Unpack

import numpy as np
from pydantic import AfterValidator, Field

from medlive.errors import BadInput
from medlive.evaluation.grading.questions import JudgeReplies, Question
from medlive.evaluation.model import Answer, EvaluationCase, cluster_array
from medlive.evaluation.scoring.metrics import CORE_POINTS
from medlive.evaluation.tables import (
    add_rows,
    cell_text,
    decode_text,
    read_table,
    read_verdict,
)
from medlive.grader.reply import Words
from medlive.integrity.log import read_bytes
from medlive.llm.ask import ReplyModel
from medlive.statistics.agreement import equal_of_tables
from medlive.statistics.bootstrap import Draws
from medlive.statistics.estimate import estimate

from .model import (
    Figures,
    Material,
    Records,
    Results,
    Rows,
    SampledProtocol,
    Table,
    cases_of,
    has_reference,
    mean,
    whole_mean,
)

DIMENSIONS = (
    "instructions",
    "correctness",
    "effectiveness",
    "readability",
    "safety",
)
"""What people rate from 0 to 5."""
FORMAT = f"columns case_id, rater, model (of several), and usable or {', '.join(DIMENSIONS)} from 0 to 5"
USABLE = 5
"""The total from which on people's ratings call a generated text usable."""
USABLE_MEAN = 4
"""The mean of a judge's rounds from which on an answer is usable."""
LOW = 0.6
"""Cases are listed for refining where a smaller share of the labels is equal."""


@dataclass(frozen=True)
class Judged:
    """Whether the judge calls an answer usable, and whether people do where the two are compared."""

    model: str
    case: EvaluationCase
    usable: bool
    people: bool = False
    """Whether most of the raters call it usable."""


def mapped(
    instructions: int,
    correctness: int,
    effectiveness: int,
    readability: int,
) -> int:
    """The paper's total of a generated text, 0 to 7, by four dimensions of 0 to 5 (appendix D: B, C, D, E)."""
    first, second = min(instructions, correctness), min(effectiveness, readability)
    lowest = min(first, second)
    if lowest < 2:
        return lowest
    if lowest == 5:
        return 7
    steps = ((5, 4, 6), (4, 4, 5), (5, 3, 5), (4, 3, 4), (3, 2, 3))
    for least, rest, total in steps:
        if first >= least and second >= rest:
            return total
    return 2


def read_people(path: Path) -> dict[tuple[str, str], dict[str, bool]]:
    """What each rater calls usable, by model ("" where the file does not say) and case.

    Raises BadInput for invalid lines, contradictions, and a file without ratings.
    """
    by_answer: dict[tuple[str, str], dict[str, bool]] = {}

    def add(where: str, row: Mapping[str, Any]) -> None:
        names = ("case_id", "rater", "model")
        case_id, rater, model = (cell_text(row.get(name)) for name in names)
        if not case_id or not rater:
            raise ValueError("case_id and rater are required")
        usable = _is_usable(row)
        by_rater = by_answer.setdefault((model, case_id), {})
        if by_rater.setdefault(rater, usable) is not usable:
            raise ValueError(f"{rater!r} rated this answer otherwise before")

    text = decode_text(read_bytes(path), path.name)
    rows = read_table(text, path.name, ("case_id", "rater"))
    add_rows(rows, path.name, add)
    if not by_answer:
        raise BadInput(f"{path.name} has no ratings", hint=FORMAT)
    return by_answer


def _is_usable(row: Mapping[str, Any]) -> bool:
    """Whether a row calls its answer usable. Raises ValueError."""
    label = read_verdict(row.get("usable"), "usable")
    if label is not None:
        return label
    values = []
    for name in DIMENSIONS:
        text = cell_text(row.get(name)).removesuffix(".0")
        if text not in map(str, range(6)):
            raise ValueError(
                f"{name} must be a whole number from 0 to 5, found {text[:40]!r}"
            )
        values.append(int(text))
    *dimensions, safety = values
    return safety > 0 and mapped(*dimensions) >= USABLE


def compare_with_people(
    path: Path,
    judged: Sequence[Judged],
    **how: Unpack[Draws],
) -> tuple[list[Table], list[str]]:
    """How far people and the judge agree on what is usable, which cases to refine, and notes.

    An answer's label by people is the majority of its raters; equal halves are left out and counted. Raises
    BadInput where the file names no model although several answered, or no answer that the judge scored.
    """
    models = list(dict.fromkeys(judgement.model for judgement in judged))
    by_answer = read_people(path)
    if len(models) > 1 and not all(model for model, _ in by_answer):
        raise BadInput(
            f"{path.name}: expected a model in each row, one of {', '.join(models)}",
            hint=FORMAT,
        )
    compared: list[Judged] = []
    common = tied = 0
    for judgement in judged:
        labels: list[bool] = []
        for model in ("", judgement.model):
            by_rater = by_answer.get((model, judgement.case.case_id), {})
            labels += by_rater.values()
        common += bool(labels)
        yes = 2 * labels.count(True)
        if yes == len(labels):
            tied += bool(labels)
        else:
            compared.append(replace(judgement, people=yes > len(labels)))
    if not common:
        raise BadInput(
            f"{path.name} rates no answer that the judge scored",
            hint="case_id and model as in the runs",
        )
    notes = []
    if strange := len(by_answer) - common:
        notes.append(
            f"{path.name}: {strange} answers are not among those that the judge scored; left out"
        )
    if tied:
        notes.append(
            f"{path.name}: on {tied} answers as many people say usable as not; left out"
        )
    return [_agreement(compared, **how), _to_refine(compared)], notes


def _agreement(
    compared: Sequence[Judged],
    **how: Unpack[Draws],
) -> Table:
    """Counts of answers by both labels, and the share of equal ones."""
    cells = np.zeros((len(compared), 2, 2))
    for place, member in enumerate(compared):
        cells[place, int(not member.people), int(not member.usable)] = 1
    clusters = cluster_array([member.case for member in compared])
    equal = estimate(cells, equal_of_tables, clusters, **how)
    counts = cells.sum(axis=0).astype(int).ravel().tolist()
    rows: Rows = [[len(compared), equal.value, equal.low, equal.high, *counts]]
    columns = ["answers", "equal", "low", "high"]
    columns += ["both usable", "people only", "judge only", "neither"]
    note = "People's label is the majority of the raters. The paper finds equal labels for 92.36 % of the answers."
    return Table("Usable by people and by the judge", columns, rows, note)


def _to_refine(compared: Sequence[Judged]) -> Table:
    """Cases on whose answers people and the judge often differ."""
    by_case: dict[str, list[Judged]] = {}
    for member in compared:
        by_case.setdefault(member.case.case_id, []).append(member)
    rows: Rows = []
    for case_id, members in by_case.items():
        equal = mean([member.usable is member.people for member in members])
        if equal is not None and equal < LOW:
            people = mean([member.people for member in members])
            judge = mean([member.usable for member in members])
            rows.append([equal, case_id, len(members), people, judge])
    rows.sort(key=itemgetter(0))
    columns = ["equal", "case", "answers", "usable, people", "usable, judge"]
    note = f"Cases whose labels are equal on less than {LOW:.0%} of the answers, the worst first."
    return Table("Cases to refine", columns, rows, note)


CATEGORIES = (
    "Medical Knowledge",
    "Medical Language Understanding",
    "Medical Reasoning",
    "Medical Safety and Ethics",
    "Medical Text Generation",
)
"""The published categories of questions."""
CORE = "core"
SECONDARY = "secondary"
"""The axes of a rubric that is LLMEval-Med's own checklist."""
DEFAULT_CATEGORY = "Medical Reasoning"
"""The category of cases that no published one fits: a patient's question is answered by inference."""


class ChecklistReply(ReplyModel):
    """`protocol.checklist`: a score of 1 to 5.

    Inputs: language, category, reference, core, secondary, question, answer.
    """

    task = "protocol.checklist"
    reasoning: Words
    score: int = Field(ge=1, le=5)


def _checked(people: Path | None) -> Path | None:
    """The file of people's ratings. Raises BadInput, before anything is asked, where it cannot be read."""
    if people:
        read_people(people)
    return people


class Checklist(SampledProtocol):
    """Usable or not, by reference and checklist; see the module."""

    name = "checklist"
    about = "usable or not, by reference and checklist, three rounds (LLMEval-Med)"
    figure = "usability rate, 0 to 1"

    rounds: int = Field(
        default=3,
        ge=1,
        le=20,
        description="how often each answer is scored",
    )
    people: Annotated[
        Path | None,
        AfterValidator(_checked),
        Field(description="people's ratings, a CSV or JSON Lines file"),
    ] = None

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Whether the cases have a reference, with no error planted in it."""
        return has_reference(material)

    def questions_about(
        self,
        case: EvaluationCase,
        answer: Answer,
        replies: JudgeReplies,
    ) -> Iterator[Question]:
        """Every answer, once for each round."""
        core: list[str] = []
        secondary: list[str] = []
        published = {c.axis for c in case.criteria} <= {CORE, SECONDARY}
        for criterion in case.criteria:
            is_core = criterion.points >= CORE_POINTS
            if published:
                is_core = criterion.axis == CORE
            if is_core:
                core.append(criterion.criterion)
            elif published or criterion.points > 0:
                secondary.append(criterion.criterion)
        inputs = {
            "language": case.language,
            "category": case.theme if case.theme in CATEGORIES else DEFAULT_CATEGORY,
            "reference": case.advice,
            "core": core,
            "secondary": secondary,
            "question": case.question,
            "answer": answer.response,
        }
        for n in range(self.rounds):
            yield Question(
                case_id=case.case_id,
                part=f"round {n + 1}",
                inputs=inputs,
                reply=ChecklistReply,
                round=n,
            )

    def results(
        self,
        material: Material,
        replies: JudgeReplies,
    ) -> Results:
        """Usability by model and category, and beside people's ratings."""
        categories = dict.fromkeys(case.theme or "none" for case in cases_of(material))
        usability: Records = []
        by_category: Rows = []
        figures: Figures = {}
        judged: list[Judged] = []
        for run in material:
            answered = 0
            own = []
            scores = []
            for case, answer in run.answered():
                answered += 1
                rounds = self.questions_about(case, answer, replies)
                scored = replies.get_all(rounds, ChecklistReply) or ()
                score = mean([reply.score for reply in scored])
                if score is not None:
                    scores.append(score)
                    own.append(Judged(run.label, case, score >= USABLE_MEAN))
            judged += own
            usable = [judgement.usable for judgement in own]
            share = figures[run.label] = mean(usable)
            low, high = self.interval(usable, [judgement.case for judgement in own])
            usability.append(
                {
                    "model": run.label,
                    "answers": len(own),
                    "usable": share,
                    "low": low,
                    "high": high,
                    "mean score": mean(scores),
                    "ungraded": answered - len(own),
                    "unanswered": len(run.cases) - answered,
                }
            )
            by_theme: dict[str, list[bool]] = {name: [] for name in categories}
            for judgement in own:
                by_theme[judgement.case.theme or "none"].append(judgement.usable)
            shares = list(map(mean, by_theme.values()))
            by_category.append([run.label, *shares, whole_mean(shares)])
        note = f"Usable: the mean of {self.rounds} rounds is {USABLE_MEAN} or more. Every answer counts the same."
        plain = "The share of usable answers. Plain mean: of the categories, whatever their size, as in the paper."
        columns = ["model", *categories, "plain mean"]
        tables = [
            Table.of_rows("Usability", usability, note),
            Table("Usability by category", columns, by_category, plain),
        ]
        notes: list[str] = []
        if self.people:
            people_tables, notes = compare_with_people(
                self.people,
                judged,
                draws=self.draws,
                seed=self.seed,
            )
            tables += people_tables
        return Results(tables, figures, notes)
