"""The grader's tasks (LiveMedBench §3.3; the reply shape is ours, the quote is required)."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Reasoning = Annotated[str, StringConstraints(max_length=4000)]


class GradeReply(BaseModel):
    """`grader.criterion`: whether the answer meets one criterion.

    Inputs: language, question (narrative, blank line, query), answer, criterion. `met` is a JSON boolean and
    nothing else. `quote` is verbatim from the answer when met (what fulfils the criterion, or commits the
    error of a negative one), else "".
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    met: bool
    quote: Annotated[str, StringConstraints(max_length=4000)]
    reasoning: Reasoning


class RubricGradeItem(BaseModel):
    """One criterion's grade in rubric mode."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: str
    met: bool
    quote: Annotated[str, StringConstraints(max_length=4000)]
    reasoning: Reasoning


class RubricGradeReply(BaseModel):
    """`grader.rubric`: one grade for each criterion given. Inputs: language, question, answer,
    criteria [{id, criterion}]."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    grades: Annotated[tuple[RubricGradeItem, ...], Field(max_length=60, strict=False)]
