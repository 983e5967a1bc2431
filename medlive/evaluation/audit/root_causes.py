"""Root causes of low scores, each supported by a quote from the answer and by wrong criteria.

The seven types are those of LiveMedBench's error analysis; docs/error-analysis.md says how they are counted.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from medlive.digest import digest_json
from medlive.errors import UsageError
from medlive.evaluation.grading.verdict import quoted
from medlive.evaluation.log import values_of
from medlive.evaluation.model import Answer
from medlive.evaluation.scoring.graded import GradedRun, fullest
from medlive.evaluation.scoring.metrics import CaseScore, CaseState, Metric, case_score

AUDIT: Final = "audit.jsonl"
BOTTOM: Final = 100
"""How many of the lowest-scoring cases are audited."""


class RootCause(StrEnum):
    """Why an answer scored low: the seven types, and `unclear`."""

    CONTEXTUAL_NEGLECT = "contextual_neglect"
    GUIDELINE_OVERGENERALISATION = "guideline_overgeneralisation"
    REASONING_DEFICIT = "reasoning_and_synthesis_deficit"
    INSTRUCTION_MISINTERPRETATION = "instruction_misinterpretation"
    KNOWLEDGE_GAP = "knowledge_gap"
    EXCESSIVE_CAUTION = "excessive_caution"
    HALLUCINATION = "hallucination_or_misclassification"
    UNCLEAR = "unclear"
    """The auditor found no cause that the material shows."""

    @property
    def label(self) -> str:
        """The cause in words."""
        return self.value.replace("_", " ")


_TEXT_FIELDS: Final = (
    "case_id", "key", "quote", "reasoning", "reason", "raw", "answered_by", "engine", "model", "prompt", "auditor",
    "judge",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """An auditor's finding on one case, as a line of `audit.jsonl`."""

    case_id: str
    key: str
    """The digest of question, advice, answer, criteria and verdicts: all that was shown."""
    cause: RootCause | None
    """None is unaudited: no cause, nor `unclear`, with its reason."""
    quote: str
    """Stands in the answer; "" only where the cause is unclear or there is none."""
    criteria: tuple[str, ...]
    """Ids of errors that show the cause."""
    reasoning: str
    reason: str
    """Why it is unaudited, else ""."""
    score: float
    """The case's score by the paper's metric."""
    raw: str
    """What the auditor said, cut at 20,000 characters."""
    answered_by: str
    """The model as the reply names it; "" where no reply came."""
    engine: str
    """"rules": no clinical judgement was made."""
    model: str
    """The pinned model that was asked."""
    prompt: str
    """The prompt's digest."""
    auditor: str
    """The digest of engine, model, parameters and prompt: what makes two auditors one."""
    judge: str
    """The grader whose verdicts were shown (`Grade.judge`)."""
    usage: Mapping[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """The finding as JSON."""
        row = {name: getattr(self, name) for name in Finding.__dataclass_fields__}
        return row | {"criteria": list(self.criteria), "usage": dict(self.usage)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Finding":
        """Parse a finding. Raises TypeError, KeyError or ValueError if it is invalid."""
        given = {name: row[name] for name in cls.__dataclass_fields__ if name in row}
        given.setdefault("usage", {})
        texts = [given[name] for name in _TEXT_FIELDS]
        if not all(isinstance(text, str) for text in (*texts, *row["criteria"])):
            raise ValueError("a text field is not a string")
        score = given["score"]
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise ValueError("score must be a number from 0 to 1")
        if not isinstance(row["criteria"], list) or not isinstance(given["usage"], dict):
            raise ValueError("criteria must be a list and usage an object")
        cause = None if row["cause"] is None else RootCause(row["cause"])
        return cls(**{**given, "cause": cause, "criteria": tuple(row["criteria"])})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A low-scoring case to audit, with its errors."""

    score: CaseScore
    answer: Answer

    @property
    def case_id(self) -> str:
        """The case."""
        return self.score.case.case_id

    @property
    def errors(self) -> frozenset[str]:
        """Criteria with positive points that are not met, and with negative points that are."""
        return frozenset(c.id for c in self.score.case.criteria if _wrong(c.points, self.score.met[c.id]))

    @property
    def inputs(self) -> dict[str, Any]:
        """What the auditor is shown."""
        case, met, errors = self.score.case, self.score.met, self.errors
        return {
            "language": case.language,
            "question": case.question,
            "advice": case.advice,
            "answer": self.answer.response,
            "criteria": [
                {"id": c.id, "criterion": c.criterion, "points": c.points, "met": met[c.id],
                 "error": c.id in errors}
                for c in case.criteria
            ],
        }  # fmt: skip

    @property
    def key(self) -> str:
        """The digest of everything that a finding depends on, except the auditor."""
        return digest_json([self.case_id, self.inputs])


@dataclass(frozen=True, slots=True)
class Bottom:
    """The lowest-scoring cases of a run, and counts of the others."""

    asked: int
    """The requested number."""
    candidates: tuple[Candidate, ...]
    """By score, ties by id."""
    without_error: tuple[str, ...]
    """Lowest-scoring cases without a wrong criterion, which leave nothing to audit."""
    left_out: Mapping[str, int]
    """Counts of cases without a score, by state."""
    scored: int
    """Cases with a score."""
    edge: float | None = None
    """The highest score among the lowest cases; None without any."""
    tied: int = 0
    """How many of the lowest were chosen by id among equal scores, some of which were left out."""
    equals: int = 0
    """How many cases have the score `edge`, if some of them were left out."""

    @property
    def short(self) -> bool:
        """Whether the run has fewer scored cases than requested."""
        return self.scored < self.asked


@dataclass(frozen=True, slots=True)
class AuditTable:
    """The root causes of one run's lowest-scoring cases, by one auditor."""

    run: GradedRun
    bottom: Bottom
    findings: tuple[Finding, ...]
    """One for each candidate with a recorded finding, in the candidates' order, including unaudited ones."""
    notes: tuple[str, ...]

    @property
    def auditor(self) -> Finding | None:
        """Any finding, each of which names the auditor; None without findings."""
        return self.findings[0] if self.findings else None

    @property
    def clinical(self) -> bool:
        """Whether a model judged; the rules engine makes no clinical judgement."""
        return self.auditor is not None and self.auditor.engine != "rules"

    @property
    def audited(self) -> int:
        """Cases with a cause, or found unclear."""
        return sum(1 for f in self.findings if f.cause is not None)

    @property
    def unaudited(self) -> int:
        """Candidates without a finding."""
        return len(self.bottom.candidates) - self.audited

    @property
    def reasons(self) -> dict[str, int]:
        """Why candidates are unaudited, the most frequent first."""
        known = Counter(f.reason.split(":")[0] for f in self.findings if f.cause is None)
        missing = len(self.bottom.candidates) - len(self.findings)
        return dict(known.most_common()) | ({"not asked yet": missing} if missing else {})

    def of(self, cause: RootCause) -> tuple[Finding, ...]:
        """The findings of one cause, the lowest score first."""
        return tuple(f for f in self.findings if f.cause is cause)

    def as_json(self, examples: int = 3) -> dict[str, Any]:
        """Return counts by cause with examples, and the data that they are based on."""
        one = self.auditor
        info = self.run.run.info
        return {
            "model": self.run.label,
            "cases": {"name": info.cases.name, "digest": info.cases.digest, "count": info.cases.count},
            "grader": None if self.run.grader is None else self.run.grader.judge,
            "auditor": None
            if one is None
            else {
                "engine": one.engine,
                "model": one.model,
                "answered_by": sorted({f.answered_by for f in self.findings} - {""}),
                "prompt": one.prompt,
                "digest": one.auditor,
                "clinical_judgement": self.clinical,
            },
            "metric": Metric.PAPER.value,
            "bottom": self.bottom.asked,
            "scored": self.bottom.scored,
            "highest_score": self.bottom.edge,
            "chosen_by_id": self.bottom.tied,
            "tied": self.bottom.equals,
            "candidates": len(self.bottom.candidates),
            "without_error": list(self.bottom.without_error),
            "not_candidates": dict(self.bottom.left_out),
            "audited": self.audited,
            "unaudited": self.unaudited,
            "reasons": self.reasons,
            "causes": [
                {
                    "cause": cause.value,
                    "n": len(found := self.of(cause)),
                    "share": len(found) / self.audited if self.audited else None,
                    "examples": [_example(f) for f in found[:examples]],
                }
                for cause in RootCause
            ],
            "notes": list(self.notes),
        }


def _example(found: Finding) -> dict[str, Any]:
    return {
        "case_id": found.case_id,
        "score": found.score,
        "quote": found.quote,
        "criteria": list(found.criteria),
        "reasoning": found.reasoning,
    }


def _wrong(points: float, met: bool | None) -> bool:
    return met is False if points > 0 else met is True and points < 0


def find_bottom(run: GradedRun, asked: int = BOTTOM) -> Bottom:
    """Find the lowest-scoring cases of a run by the paper's metric; ties are broken by id.

    Raises UsageError if nothing of the run is graded.
    """
    if run.grader is None:
        raise UsageError(f"{run.run.path}: nothing is graded", hint="run medlive eval grade first")
    scores = [
        case_score(case, run.answers.get(case.case_id), run.verdicts(case.case_id), Metric.PAPER)
        for case in run.run.cases
    ]
    known = [(s.score, s.case.case_id, s) for s in scores if s.state is CaseState.SCORED and s.score is not None]
    order = sorted(known, key=lambda k: k[:2])
    lowest = [Candidate(s, run.answers[name]) for _, name, s in order[:asked]]
    edge = order[:asked][-1][0] if lowest else None
    outside = any(score == edge for score, _, _ in order[asked:])
    states = Counter(s.state.value for s in scores if s.state is not CaseState.SCORED)
    return Bottom(
        asked,
        tuple(c for c in lowest if c.errors),
        tuple(c.case_id for c in lowest if not c.errors),
        dict(sorted(states.items())),
        len(known),
        edge,
        sum(1 for score, _, _ in order[:asked] if score == edge) if outside else 0,
        sum(1 for score, _, _ in order if score == edge) if outside else 0,
    )


def read_audit(path: Path) -> tuple[list[Finding], list[str]]:
    """Return all findings in log order, and the lines that could not be parsed."""
    notes: list[str] = []
    return list(values_of(path, Finding.from_row, notes)), notes


def load_audit(run: GradedRun, *, bottom: int = BOTTOM, auditor: str | None = None) -> AuditTable:
    """Load the findings on a run's lowest-scoring cases, for the current answers and grades.

    `auditor` is a digest (`Finding.auditor`); None: the one with the most causes of these cases, of equals the
    last. A finding whose quote is not in the answer, or whose criteria are not errors, counts as unaudited.
    """
    found, notes = read_audit(run.run.path / AUDIT)
    chosen = find_bottom(run, bottom)
    if auditor is None and found:
        keys = {candidate.key for candidate in chosen.candidates}
        latest_by_auditor = {(f.auditor, f.key): f for f in found if f.key in keys}
        counts = dict.fromkeys(reversed(dict.fromkeys(f.auditor for f in reversed(found))), 0)
        for finding in latest_by_auditor.values():
            counts[finding.auditor] += finding.cause is not None
        auditor = fullest(counts)
        if len(counts) > 1:
            names = {f.auditor: f.model for f in found}
            auditors = ", ".join(f"{names[a]} ({n} causes)" for a, n in counts.items())
            notes.append(f"audited by {auditors}; shown is {names[auditor]}, with the most, or of equals the last")
    latest = {f.key: f for f in found if f.auditor == auditor}
    shown = []
    for candidate in chosen.candidates:
        one = latest.get(candidate.key)
        if one is None:
            continue
        fault = None if one.cause is None else finding_fault(one.cause, one.quote, one.criteria, candidate)
        if fault is not None:
            notes.append(f"{AUDIT}: case {one.case_id}: {fault}; left out")
            continue
        shown.append(one)
    if strange := sorted({f.answered_by for f in shown if f.cause and f.answered_by != f.model}):
        notes.append(f"audited by {', '.join(strange)}, not by the pinned model")
    return AuditTable(run, chosen, tuple(shown), tuple(notes))


def finding_fault(cause: RootCause, quote: str, criteria: Sequence[str], candidate: Candidate) -> str | None:
    """Why a finding is invalid, or None."""
    known = {c.id for c in candidate.score.case.criteria}
    if strange := [cid for cid in criteria if cid not in known]:
        return f"there is no criterion {strange[0][:80]!r}"
    if right := [cid for cid in criteria if cid not in candidate.errors]:
        return f"criterion {right[0]!r} is no error"
    if len(set(criteria)) != len(criteria):
        return "a criterion is named twice"
    if quote.strip() and not quoted(quote, candidate.answer.response):
        return "the quote is not in the answer letter for letter"
    if cause is not RootCause.UNCLEAR and not quote.strip():
        return "a cause without words of the answer to show for it"
    if cause is not RootCause.UNCLEAR and not criteria:
        return "a cause without a criterion that shows it"
    return None
