"""Tables of how a case was examined: its second reading, the proof of its rubric, why it waits, cross-examination."""

from sqlalchemy import ForeignKey, SmallInteger
from sqlalchemy.orm import Mapped

from medlive.curation.model import Answer, Origin, Reason
from medlive.rubric.proof import Probe

from .base import (
    Base,
    checks,
    column,
    flag_column,
    float_column,
    integer_column,
    integer_key,
    list_column,
    object_column,
    optional_float,
    optional_object,
    refers_to,
    text_column,
)
from .decisions import CURATION, curation_key


class SecondReadingRow(Base):
    """Second readings of threads and the cases made of them."""

    __tablename__ = "second_readings"
    curation_id = curation_key()
    asked = flag_column("Whether something is asked")
    clinical = flag_column("Whether it is a clinical question")
    enough = flag_column("Whether the history is enough to answer it")
    answered = flag_column("Whether the advice answers the main thing asked")
    understandable = flag_column("Whether a stranger would make sense of the case")
    wrong = list_column(
        "Advice found wrong: [{element_id, kind harmful|false|minor, reason, standard, sure}]"
    )
    danger = text_column("An alarming sign that no advice answers; empty for none")
    reason = text_column("What decides, in words")
    engine = object_column("The reader's engine, model and parameters")
    sure = flag_column(
        "Whether it is sure of danger and of answered", server_default="true"
    )
    unseen = object_column(
        "Advice that rests on what the text does not hold: element to a physician's words",
        server_default="{}",
    )
    damaged = list_column("Words that a machine garbled", server_default="[]")
    voices = list_column(
        "The third voice on each objection: [{reason, element_id, verdict, sure, standard, case_for, case_against}]",
        server_default="[]",
    )
    voices_note = text_column(
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
    revision = integer_key(_PROVED, server_default="0")
    passed = flag_column("Whether the rubric is proved")
    rounds = integer_column(
        "How often the rubric was revised for it", type_=SmallInteger
    )
    ceiling = float_column("The score of the long good answer")
    floor = float_column("The higher score of the bad answers")
    separation = float_column("The lower score of the good answers, less the floor")
    ordinary = optional_float(
        "The score of the ordinary answer; NULL: an earlier proof, without one"
    )
    criteria = list_column(
        "The rubric that the answers were last graded by: [{id, criterion, axis, points, …}]"
    )
    findings = list_column(
        "What spoke against the rubric, by round: [{round, fault, criterion, needed, reason, …}]"
    )
    engines = object_column(
        "Who wrote the answers and who graded them: {prober, grader}"
    )


class RubricProbeRow(Base):
    """Answers of known quality to cases, which are never published."""

    __tablename__ = "rubric_probes"
    __table_args__ = (refers_to("rubric_proofs", "curation_id", "revision"),)

    curation_id = integer_key(CURATION)
    revision = integer_key(_PROVED, server_default="0")
    position = integer_key("Its place, from 1", type_=SmallInteger)
    probe: Mapped[Probe] = column(", ".join(Probe))
    answer = text_column("The answer")
    note = text_column(
        "What it lacks or has wrong, by its writer's word; empty where nothing"
    )
    score = float_column("Its score by the rubric that the proof ended with")
    verdicts = object_column("The grader's verdicts: {criterion: {met, quote}}")
    harm = optional_object("What reading it for harm came to; NULL: not read")


class HoldRow(Base):
    """Why curated cases wait for a person, the gravest reason first."""

    __tablename__ = "holds"

    curation_id = curation_key()
    position = integer_key("Its place, from 1", type_=SmallInteger)
    reason: Mapped[Reason] = column("Why")
    detail = text_column("The reason in words")
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
    coverage = float_column("What of the thread the case speaks of")
    conformity = float_column("What of the thread the case does not deny")
    conformity_strict = float_column("What of the thread the case confirms")
    consistency = float_column("What of the case the thread speaks of")
    conciseness = float_column("By how much the case is shorter; below 0: longer")
    summary = float_column("The summary score")
    stability = float_column("Questions that their own text answers with yes")


class CrossQuestionRow(Base):
    """The questions of cross-examinations, and what both texts answered."""

    __tablename__ = "cross_questions"

    curation_id = integer_key(CURATION, ForeignKey("cross_examinations.curation_id"))
    position = integer_key("The question's place, from 1")
    made_from: Mapped[Origin] = column(
        "The text that answers it with yes: thread or case"
    )
    question = text_column("The question")
    own: Mapped[Answer] = column(
        "What that text answered when asked again", "own_answer"
    )
    other: Mapped[Answer] = column("What the other text answered", "other_answer")
