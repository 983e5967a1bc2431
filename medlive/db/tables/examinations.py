"""Tables of how a case was examined: its second reading, the proof of its rubric, why it waits, cross-examination."""

from typing import Any

from sqlalchemy import ForeignKey, SmallInteger
from sqlalchemy.orm import Mapped

from medlive.curation.model import Answer, Origin, Reason
from medlive.db.tables.base import Base, checks, column, key_column, refers_to
from medlive.db.tables.decisions import CURATION, curation_key
from medlive.rubric.proof import Probe


class SecondReadingRow(Base):
    """Second readings of threads and the cases made of them."""

    __tablename__ = "second_readings"
    curation_id = curation_key()
    asked: Mapped[bool] = column("Whether something is asked")
    clinical: Mapped[bool] = column("Whether it is a clinical question")
    enough: Mapped[bool] = column("Whether the history is enough to answer it")
    answered: Mapped[bool] = column("Whether the advice answers the main thing asked")
    understandable: Mapped[bool] = column(
        "Whether a stranger would make sense of the case"
    )
    wrong: Mapped[list[Any]] = column(
        "Advice found wrong: [{element_id, kind harmful|false|minor, reason, standard, sure}]"
    )
    danger: Mapped[str] = column(
        "An alarming sign that no advice answers; empty for none"
    )
    reason: Mapped[str] = column("What decides, in words")
    engine: Mapped[dict[str, Any]] = column("The reader's engine, model and parameters")
    sure: Mapped[bool] = column(
        "Whether it is sure of danger and of answered", server_default="true"
    )
    unseen: Mapped[dict[str, Any]] = column(
        "Advice that rests on what the text does not hold: element to a physician's words",
        server_default="{}",
    )
    damaged: Mapped[list[Any]] = column(
        "Words that a machine garbled", server_default="[]"
    )
    voices: Mapped[list[Any]] = column(
        "The third voice on each objection: [{reason, element_id, verdict, sure, standard, case_for, case_against}]",
        server_default="[]",
    )
    voices_note: Mapped[str] = column(
        "Why the third voice does not count, or whose it is; empty for nothing",
        server_default="",
    )


_PROVED = (
    "The case's revision that was proved again; 0: the proof was made with the decision"
)


class RubricProofRow(Base):
    """Proofs of rubrics, passed or not."""

    __tablename__ = "rubric_proofs"
    curation_id = curation_key()
    revision: Mapped[int] = key_column(_PROVED, server_default="0")
    passed: Mapped[bool] = column("Whether the rubric is proved")
    rounds: Mapped[int] = column(
        "How often the rubric was revised for it", SmallInteger
    )
    ceiling: Mapped[float] = column("The score of the long good answer")
    floor: Mapped[float] = column("The higher score of the bad answers")
    separation: Mapped[float] = column(
        "The lower score of the good answers, less the floor"
    )
    ordinary: Mapped[float | None] = column(
        "The score of the ordinary answer; NULL: an earlier proof, without one"
    )
    criteria: Mapped[list[Any]] = column(
        "The rubric that the answers were last graded by: [{id, criterion, axis, points, …}]"
    )
    findings: Mapped[list[Any]] = column(
        "What spoke against the rubric, by round: [{round, fault, criterion, needed, reason, …}]"
    )
    engines: Mapped[dict[str, Any]] = column(
        "Who wrote the answers and who graded them: {prober, grader}"
    )


class RubricProbeRow(Base):
    """Answers of known quality to cases, which are never published."""

    __tablename__ = "rubric_probes"
    __table_args__ = (refers_to("rubric_proofs", "curation_id", "revision"),)

    curation_id: Mapped[int] = key_column(CURATION)
    revision: Mapped[int] = key_column(_PROVED, server_default="0")
    position: Mapped[int] = key_column("Its place, from 1", SmallInteger)
    probe: Mapped[Probe] = column(", ".join(Probe))
    answer: Mapped[str] = column("The answer")
    note: Mapped[str] = column(
        "What it lacks or has wrong, by its writer's word; empty where nothing"
    )
    score: Mapped[float] = column("Its score by the rubric that the proof ended with")
    verdicts: Mapped[dict[str, Any]] = column(
        "The grader's verdicts: {criterion: {met, quote}}"
    )
    harm: Mapped[dict[str, Any] | None] = column(
        "What reading it for harm came to; NULL: not read"
    )


class HoldRow(Base):
    """Why curated cases wait for a person, the gravest reason first."""

    __tablename__ = "holds"

    curation_id = curation_key()
    position: Mapped[int] = key_column("Its place, from 1", SmallInteger)
    reason: Mapped[Reason] = column("Why")
    detail: Mapped[str] = column("The reason in words")
    elements: Mapped[list[str]] = column("The advice elements or criteria it rests on")


class CrossExaminationRow(Base):
    """Cross-examinations of threads and the cases written from them, in percent."""

    __tablename__ = "cross_examinations"
    __table_args__ = checks(
        conciseness_percent="conciseness <= 100",
        coverage_percent="coverage BETWEEN 0 AND 100",
        conformity_percent="conformity BETWEEN 0 AND 100",
        conformity_strict_percent="conformity_strict BETWEEN 0 AND 100",
        consistency_percent="consistency BETWEEN 0 AND 100",
        summary_percent="summary BETWEEN 0 AND 100",
        stability_percent="stability BETWEEN 0 AND 100",
    )
    curation_id = curation_key()
    coverage: Mapped[float] = column("What of the thread the case speaks of")
    conformity: Mapped[float] = column("What of the thread the case does not deny")
    conformity_strict: Mapped[float] = column("What of the thread the case confirms")
    consistency: Mapped[float] = column("What of the case the thread speaks of")
    conciseness: Mapped[float] = column(
        "By how much the case is shorter; below 0: longer"
    )
    summary: Mapped[float] = column("The summary score")
    stability: Mapped[float] = column("Questions that their own text answers with yes")


class CrossQuestionRow(Base):
    """The questions of cross-examinations, and what both texts answered."""

    __tablename__ = "cross_questions"

    curation_id: Mapped[int] = key_column(
        CURATION, ForeignKey("cross_examinations.curation_id")
    )
    position: Mapped[int] = key_column("The question's place, from 1")
    made_from: Mapped[Origin] = column(
        "The text that answers it with yes: thread or case"
    )
    question: Mapped[str] = column("The question")
    own: Mapped[Answer] = column(
        "What that text answered when asked again", "own_answer"
    )
    other: Mapped[Answer] = column("What the other text answered", "other_answer")
