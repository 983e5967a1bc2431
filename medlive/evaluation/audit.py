"""Root-cause audit: an engine says why a run's lowest-scoring answers went wrong, one primary cause each.

The seven types are those of LiveMedBench's error analysis (docs/error-analysis.md says how they are counted); each
is supported by a quote from the answer and by wrong criteria. `audit.jsonl` in the run folder is both record and
cache: a repeated audit asks only for cases that are new, were graded again, or remained unaudited.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from medlive.digest import digest_json
from medlive.errors import UsageError
from medlive.evaluation.asking.plan import Call, Plan, Sample, plan_calls, sent_text
from medlive.evaluation.grading.quotes import quoted
from medlive.evaluation.grading.verdict import doubt
from medlive.evaluation.log import open_log, values_of
from medlive.evaluation.model import Answer, CallsMade, LogRow
from medlive.evaluation.scoring.graded import GradedRun, fullest
from medlive.evaluation.scoring.metrics import CaseScore, Metric
from medlive.llm.ask import MOST_RAW, Asker, Unusable, read_as
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine, EngineIdentity, Reply, Request
from medlive.llm.pool import Progress, work_through
from medlive.llm.prompts import load_prompt
from medlive.llm.wire import Price

AUDIT: Final = "audit.jsonl"
TASK: Final = "audit.cause"
BOTTOM: Final = 100
"""How many of the lowest-scoring cases are audited."""
OUTPUT_A_CAUSE: Final = 160
"""Output tokens of a finding, assumed if none is on record."""
_IN_EXAMPLES: Final = ("case_id", "score", "quote", "criteria", "reasoning")


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


@dataclass(frozen=True, slots=True)
class Finding(LogRow):
    """An auditor's finding on one case, as a line of `audit.jsonl`."""

    case_id: str
    key: str
    """The digest of question, advice, answer, criteria and verdicts: all that was shown."""
    cause: RootCause | None
    """None is unaudited: no cause, nor `unclear`, with its reason."""
    quote: str
    """Stands in the answer; "" only where the cause is unclear or there is none."""
    criteria: tuple[str, ...]
    reasoning: str
    reason: str
    """Why it is unaudited, else ""."""
    score: Annotated[float, Field(ge=0, le=1, strict=True)]
    raw: str
    """What the auditor said, cut at 20,000 characters."""
    answered_by: str
    """The model as the reply names it; "" where no reply came."""
    engine: str
    """"rules": no clinical judgement was made."""
    model: str
    prompt: str
    auditor: str
    """The digest of engine, model, parameters and prompt: what makes two auditors one."""
    judge: str
    """The grader whose verdicts were shown (`Grade.judge`)."""
    usage: Mapping[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """The finding as JSON."""
        return super(Finding, self).row() | {
            "criteria": list(self.criteria),
            "usage": dict(self.usage),
        }


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
        met, criteria = self.score.met, self.score.case.criteria
        return frozenset(
            c.id for c in criteria if c.points and met[c.id] is (c.points < 0)
        )

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
                {
                    "id": c.id,
                    "criterion": c.criterion,
                    "points": c.points,
                    "met": met[c.id],
                    "error": c.id in errors,
                }
                for c in case.criteria
            ],
        }

    @property
    def key(self) -> str:
        """The digest of everything that a finding depends on, except the auditor."""
        return digest_json([self.case_id, self.inputs])


@dataclass(frozen=True, slots=True)
class Bottom:
    """The lowest-scoring cases of a run, and counts of the others."""

    asked: int
    lowest: tuple[Candidate, ...]
    """By score, ties by id."""
    left_out: Mapping[str, int]
    """Counts of cases without a score, by state."""
    scored: int
    edge: float | None
    """The highest score among the lowest cases; None without any."""
    tied: int
    """How many of the lowest were chosen by id among equal scores, some of which were left out."""
    equals: int
    """How many cases have the score `edge`, if some of them were left out."""
    metric: Metric = Metric.COMPLETE
    """By which they are the lowest."""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Those with a wrong criterion."""
        return tuple(c for c in self.lowest if c.errors)

    @property
    def without_error(self) -> tuple[str, ...]:
        """The ids of those without one, which leave nothing to audit."""
        return tuple(c.case_id for c in self.lowest if not c.errors)


def find_bottom(
    run: GradedRun, asked: int = BOTTOM, metric: Metric = Metric.COMPLETE
) -> Bottom:
    """Find the lowest-scoring cases of a run; ties are broken by id.

    Args:
        run: The graded run.
        asked: How many of the lowest.
        metric: Which score; of another metric than `complete` and `paper` Equation 1 over the criteria that it
            counts, since a mean that alone is clipped orders no cases.

    Raises:
        UsageError: If nothing of the run is graded.
    """
    if run.grader is None:
        raise UsageError(
            f"{run.run.path}: nothing is graded", hint="run medlive eval grade first"
        )
    metric = metric.equation_1
    all_scores = run.case_scores(metric)
    known = ((s.score, s.case.case_id, s) for s in all_scores if s.score is not None)
    order = sorted(known, key=lambda k: k[:2])
    lowest = tuple(Candidate(s, run.answers[name]) for _, name, s in order[:asked])
    states = Counter(s.state.value for s in all_scores if s.score is None)
    edge = _edge([score for score, _, _ in order], asked)
    left_out = dict(sorted(states.items()))
    return Bottom(asked, lowest, left_out, len(order), *edge, metric)


def _edge(scores: Sequence[float], asked: int) -> tuple[float | None, int, int]:
    """Return `edge`, `tied` and `equals` of the lowest of scores in order."""
    if not scores:
        return None, 0, 0
    lowest = scores[:asked]
    tied, equals = lowest.count(lowest[-1]), scores.count(lowest[-1])
    return (lowest[-1], tied, equals) if tied < equals else (lowest[-1], 0, 0)


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
        known = Counter(
            f.reason.split(":")[0] for f in self.findings if f.cause is None
        )
        missing = len(self.bottom.candidates) - len(self.findings)
        return dict(known.most_common()) | (
            {"not asked yet": missing} if missing else {}
        )

    def of(self, cause: RootCause) -> tuple[Finding, ...]:
        """The findings of one cause, the lowest score first."""
        return tuple(f for f in self.findings if f.cause is cause)

    def as_json(self, examples: int = 3) -> dict[str, Any]:
        """Return counts by cause with examples, and the data that they are based on."""
        one = self.auditor
        info = self.run.run.info
        return {
            "model": self.run.label,
            "cases": {
                "name": info.cases.name,
                "digest": info.cases.digest,
                "count": info.cases.count,
            },
            "grader": None if self.run.grader is None else self.run.grader.judge,
            "auditor": one
            and {
                "engine": one.engine,
                "model": one.model,
                "answered_by": sorted({f.answered_by for f in self.findings} - {""}),
                "prompt": one.prompt,
                "digest": one.auditor,
                "clinical_judgement": self.clinical,
            },
            "metric": self.bottom.metric.value,
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
            "causes": [self._cause_json(cause, examples) for cause in RootCause],
            "notes": list(self.notes),
        }

    def _cause_json(self, cause: RootCause, examples: int) -> dict[str, Any]:
        """How often a cause was named, with its first examples."""
        findings = self.of(cause)
        shown = []
        for finding in findings[:examples]:
            row = finding.row()
            shown.append({name: row[name] for name in _IN_EXAMPLES})
        return {
            "cause": cause.value,
            "n": len(findings),
            "share": len(findings) / self.audited if self.audited else None,
            "examples": shown,
        }


class AuditReply(BaseModel):
    """`audit.cause`: the primary cause, with words of the answer and the errors that show it.

    Inputs: language, question, advice, answer, criteria [{id, criterion, points, met, error}].
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    cause: Literal[
        "contextual_neglect",
        "guideline_overgeneralisation",
        "reasoning_and_synthesis_deficit",
        "instruction_misinterpretation",
        "knowledge_gap",
        "excessive_caution",
        "hallucination_or_misclassification",
        "unclear",
    ]
    quote: Annotated[str, StringConstraints(max_length=4000)]
    criteria: Annotated[tuple[str, ...], Field(max_length=200, strict=False)]
    reasoning: Annotated[str, StringConstraints(min_length=1, max_length=4000)]


_SCHEMA: Final = AuditReply.model_json_schema()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult(CallsMade):
    """The result of an audit."""

    table: AuditTable
    reused: int
    """Findings of earlier audits, which were not asked for again."""


def auditor_digest(identity: EngineIdentity) -> str:
    """The digest of engine, model, parameters and prompt, which identifies an auditor."""
    prompt = load_prompt("medlive.evaluation", TASK)
    return digest_json(
        [identity.engine, identity.model, dict(identity.parameters), prompt.digest]
    )


async def audit_run(
    run: GradedRun,
    engine: Engine,
    *,
    bottom: int = BOTTOM,
    metric: Metric = Metric.COMPLETE,
    concurrency: int = 16,
    allow_unpinned: bool = False,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Find the root causes of the lowest-scoring cases that this auditor has not audited yet.

    An unusable reply is returned to the engine once with its fault; if it stays unusable, the case is unaudited.
    `bottom` is how many of the lowest-scoring cases are audited, `metric` by which score; the other arguments and
    errors are those of `grade_run`. Raises UsageError if nothing is graded.
    """
    candidates, path, who = (
        find_bottom(run, bottom, metric).candidates,
        run.run.path / AUDIT,
        engine.identity,
    )
    asker = Asker(
        engine,
        "auditor",
        concurrency=concurrency,
        allow_unpinned=allow_unpinned,
        budget=budget,
    )
    auditor = auditor_digest(who)
    with open_log(path) as log:
        found, _ = read_audit(path)
        unusable = Counter(
            f.key
            for f in found
            if f.auditor == auditor and f.cause is None and f.answered_by
        )
        todo = open_candidates(candidates, found, who, allow_unpinned=allow_unpinned)
        reused = len(candidates) - len(todo)

        async def find(candidate: Candidate) -> int:
            request = audit_request(candidate, unusable[candidate.key])
            asked = await asker.ask(
                request, lambda reply: _read(reply, request, candidate)
            )
            read, last = asked.value, asked.last
            finding = Finding(
                case_id=candidate.case_id,
                key=candidate.key,
                cause=RootCause(read.cause) if read else None,
                quote=read.quote if read else "",
                criteria=read.criteria if read else (),
                reasoning=read.reasoning if read else "",
                reason=asked.reason,
                score=candidate.score.score or 0.0,
                raw=last.text[:MOST_RAW] if last else "",
                answered_by=last.model if last else "",
                engine=who.engine,
                model=who.model,
                prompt=request.prompt.digest,
                auditor=auditor,
                judge=run.grader.judge if run.grader else "",
                usage=asked.usage | {"calls": len(asked.replies)},
            )
            log.add(finding.row())
            return 1

        stopped = await work_through(
            todo,
            find,
            concurrency,
            done=reused,
            total=len(candidates),
            progress=progress,
        )
    table = load_audit(run, bottom=bottom, metric=metric, auditor=auditor)
    return AuditResult(
        table=table,
        reused=reused,
        calls=asker.calls,
        stopped=stopped,
        silence=asker.silence,
    )


def open_candidates(
    candidates: Sequence[Candidate],
    found: Sequence[Finding],
    who: EngineIdentity,
    *,
    allow_unpinned: bool,
) -> list[Candidate]:
    """The candidates for which an auditor has no valid cause on record from an accepted model."""
    auditor = auditor_digest(who)
    latest = {f.key: f for f in found if f.auditor == auditor}

    def settled(candidate: Candidate) -> bool:
        one = latest.get(candidate.key)
        if (
            one is None
            or one.cause is None
            or not who.accepts(one.answered_by, allow_unpinned)
        ):
            return False
        return finding_fault(one.cause, one.quote, one.criteria, candidate) is None

    return [candidate for candidate in candidates if not settled(candidate)]


def plan_audit(
    runs: Sequence[GradedRun],
    identity: EngineIdentity,
    *,
    bottom: int = BOTTOM,
    metric: Metric = Metric.COMPLETE,
    concurrency: int = 16,
    allow_unpinned: bool = False,
    price: Price | None = None,
) -> Plan:
    """Plan the calls of `audit_run` for all runs, without repairs. Raises UsageError if a run is not graded."""
    auditor, todo, record, n = auditor_digest(identity), list[Call](), list[Sample](), 0
    for run in runs:
        candidates = find_bottom(run, bottom, metric).candidates
        found, _ = read_audit(run.run.path / AUDIT)
        calls = {
            one.key: Call(one.score.case.language, sent_text(audit_request(one)))
            for one in candidates
        }
        left = open_candidates(
            candidates, found, identity, allow_unpinned=allow_unpinned
        )
        todo += [calls[candidate.key] for candidate in left]
        for finding in found:
            if finding.key not in calls or finding.auditor != auditor:
                continue
            if finding.usage.get("calls") == 1:
                record.append(Sample(calls[finding.key], finding.usage))
        n += len(candidates)
    return plan_calls(
        todo,
        record,
        about={"runs": len(runs), "cases": n, "audited": n - len(todo)},
        price=price,
        concurrency=concurrency,
        output_tokens=OUTPUT_A_CAUSE,
    )


def audit_request(candidate: Candidate, round_: int = 0) -> Request:
    """The request about a candidate."""
    return Request(
        TASK,
        load_prompt("medlive.evaluation", TASK),
        candidate.inputs,
        _SCHEMA,
        round=round_,
    )


def _read(reply: Reply, request: Request, candidate: Candidate) -> AuditReply:
    """Parse a reply and check it against the request. Raises Unusable."""
    read = read_as(AuditReply, request)(reply)
    fault = doubt(
        reply.text, "cause", read.cause, read.reasoning, candidate.answer.response
    )
    if fault := fault or finding_fault(
        RootCause(read.cause), read.quote, read.criteria, candidate
    ):
        raise Unusable(fault)
    return read


def read_audit(path: Path) -> tuple[list[Finding], list[str]]:
    """Return all findings in log order, and the lines that could not be parsed."""
    notes: list[str] = []
    return list(values_of(path, Finding.from_row, notes)), notes


def load_audit(
    run: GradedRun,
    *,
    bottom: int = BOTTOM,
    metric: Metric = Metric.COMPLETE,
    auditor: str | None = None,
) -> AuditTable:
    """Load the findings on a run's lowest-scoring cases, for the current answers and grades.

    `auditor` is a digest (`Finding.auditor`); None: the one with the most causes of these cases, of equals the
    last. A finding whose quote is not in the answer, or whose criteria are not errors, counts as unaudited.
    """
    found, notes = read_audit(run.run.path / AUDIT)
    chosen = find_bottom(run, bottom, metric)
    if auditor is None and found:
        auditor, others = _choose_auditor(
            found, {candidate.key for candidate in chosen.candidates}
        )
        notes += others
    latest = {f.key: f for f in found if f.auditor == auditor}
    shown = []
    for candidate in chosen.candidates:
        if (one := latest.get(candidate.key)) is None:
            continue
        fault = (
            None
            if one.cause is None
            else finding_fault(one.cause, one.quote, one.criteria, candidate)
        )
        if fault is None:
            shown.append(one)
        else:
            notes.append(f"{AUDIT}: case {one.case_id}: {fault}; left out")
    if strange := sorted(
        {f.answered_by for f in shown if f.cause and f.answered_by != f.model}
    ):
        notes.append(f"audited by {', '.join(strange)}, not by the pinned model")
    return AuditTable(run, chosen, tuple(shown), tuple(notes))


def _choose_auditor(found: Sequence[Finding], keys: Set[str]) -> tuple[str, list[str]]:
    """The auditor with the most causes of these candidates, of equals the last; a note where there are several."""
    causes: dict[tuple[str, str], bool] = {}
    # The auditor that wrote last at the end.
    counts: dict[str, int] = {}
    for finding in found:
        counts.pop(finding.auditor, None)
        counts[finding.auditor] = 0
        if finding.key in keys:
            causes[finding.auditor, finding.key] = finding.cause is not None
    for (auditor, _), has_cause in causes.items():
        counts[auditor] += has_cause
    chosen = fullest(counts)
    if len(counts) == 1:
        return chosen, []
    names = {f.auditor: f.model for f in found}
    auditors = ", ".join(f"{names[a]} ({n} causes)" for a, n in counts.items())
    return chosen, [
        f"audited by {auditors}; shown is {names[chosen]}, with the most, or of equals the last"
    ]


def finding_fault(
    cause: RootCause, quote: str, criteria: Sequence[str], candidate: Candidate
) -> str | None:
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
