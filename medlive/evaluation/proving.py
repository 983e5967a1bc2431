"""`medlive snapshot prove`: how the rubrics of a frozen week measure, by any prober and grader.

The same answers of known quality, grader and bounds as before a release (docs/method.md §1, Proof), on the rubrics
as they were frozen. A folder keeps what was asked: `probes.jsonl`, `grades.jsonl` and, where models' answers are
read for errors too, `errors.jsonl`, so that a run that was stopped goes on where it was, and `report.json`. The
answers must not be published.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from medlive.errors import UsageError
from medlive.evaluation.asking.plan import Plan, plan_calls, sent_text
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.grading.grade import (
    Record,
    ask_work,
    open_asker,
    open_work,
    read_record,
)
from medlive.evaluation.grading.questions import (
    JudgeReplies,
    Question,
    ask_questions,
    plan_questions,
    read_findings,
)
from medlive.evaluation.grading.work import Work
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CallsMade,
    EvaluationCase,
    grade_keys,
)
from medlive.evaluation.penalties import (
    ERRORS,
    AnsweredCase,
    Penalties,
    read_penalties,
)
from medlive.grader.judge import Judge, Mode
from medlive.integrity.log import open_log
from medlive.llm.ask import Asker
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine, EngineIdentity
from medlive.llm.pool import Progress, work_through
from medlive.llm.wire import Price
from medlive.rubric.model import Criterion
from medlive.rubric.probe import (
    LENGTHS,
    TASK,
    ProbeReply,
    find_fault,
    probe_inputs,
    probe_of,
    probe_prompt,
)
from medlive.rubric.proof import (
    Examination,
    Figures,
    GradedProbe,
    Probe,
    ProbeVerdict,
    ProofFault,
    examine,
    without_criteria,
)
from medlive.snapshot.load import Snapshot
from medlive.snapshot.manifest import pretty_json
from medlive.snapshot.model import PROOF_FIELDS, SnapshotCase

PROBES: Final = "probes.jsonl"
GRADES: Final = "grades.jsonl"
REPORT: Final = "report.json"
FORMAT_VERSION: Final = 1
_WHY: Final = {
    ProofFault.MISSED: "two excellent answers leave out what it pays for",
    ProofFault.REWARDS_WRONG: "a plausibly wrong answer meets what it pays for",
    ProofFault.PENALISES_GOOD: "two excellent answers do what it punishes",
    ProofFault.IDLE: "no answer of known quality does what it punishes",
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """An erratum that a person may issue by `medlive snapshot withdraw`; nothing is withdrawn here."""

    case_id: str
    criterion_id: str | None  # None: the whole case
    reason: str  # As it could be published
    kind: str = "erratum"

    @property
    def command(self) -> str:
        """The command that would withdraw it."""
        chosen = f" --criterion {self.criterion_id}" if self.criterion_id else ""
        return (
            f"medlive snapshot withdraw {self.case_id} --kind {self.kind}{chosen}"
            f' --reason "{self.reason}"'
        )


@dataclass(frozen=True, slots=True)
class CaseProof:
    """How the frozen rubric of one case measures."""

    case_id: str
    frozen: Figures | None  # As the snapshot states them; None: not proved then
    now: Figures | None  # None: an answer or a verdict is missing
    scores: Mapping[str, float]  # By answer; empty where one is missing
    passed: bool | None  # None: as `now`
    findings: tuple[str, ...]  # What speaks against the rubric
    missing: str = ""  # What is missing, where `now` is None

    @property
    def moved(self) -> Mapping[str, float] | None:
        """By how much each figure is higher than the frozen one; None where one of both is missing."""
        if self.frozen is None or self.now is None:
            return None
        old, new = asdict(self.frozen), asdict(self.now)
        return {name: round(new[name] - old[name], 4) for name in PROOF_FIELDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotProof:
    """How the rubrics of a snapshot measure."""

    path: Path
    version: str
    digest: str
    prober: EngineIdentity
    grader: EngineIdentity
    cases: tuple[CaseProof, ...]
    proposals: tuple[Proposal, ...]
    penalties: Penalties | None  # None: no model's answers were read
    work: tuple[CallsMade, ...]  # Of prober and grader, then of reading answers

    @property
    def proved(self) -> tuple[CaseProof, ...]:
        """The cases whose answers are all graded."""
        return tuple(case for case in self.cases if case.now is not None)

    @property
    def unfinished(self) -> int:
        """Cases of which an answer or a verdict is missing, or whose models' answers were not read."""
        left = {case.case_id for case in self.cases if case.now is None}
        unread = self.penalties.unread if self.penalties else ()
        return len(left.union(unread))

    def means(self) -> dict[str, dict[str, float | None]]:
        """The mean figures: as frozen, now, and of the cases that have both, what moved."""
        rows: dict[str, list[Mapping[str, float]]] = {
            "frozen": [],
            "now": [],
            "moved": [],
        }
        for case in self.cases:
            if case.frozen:
                rows["frozen"].append(asdict(case.frozen))
            if case.now:
                rows["now"].append(asdict(case.now))
            if case.moved:
                rows["moved"].append(case.moved)
        return {name: _means(of_name) for name, of_name in rows.items()}

    def as_json(self) -> dict[str, Any]:
        """The report."""
        cases = []
        for case in self.cases:
            cases.append(asdict(case) | {"moved": case.moved})
        proposals = []
        for proposal in self.proposals:
            proposals.append(asdict(proposal) | {"command": proposal.command})
        penalties = {}
        if self.penalties:
            penalties["penalties"] = self.penalties.as_json()
        return {
            "format": "medlive-snapshot-proof",
            "format_version": FORMAT_VERSION,
            "snapshot": {"version": self.version, "digest": self.digest},
            "prober": self.prober.as_json(),
            "grader": self.grader.as_json(),
            "cases": cases,
            "means": self.means(),
            "passed": sum(case.passed is True for case in self.cases),
            "failed": sum(case.passed is False for case in self.cases),
            "unfinished": self.unfinished,
            "proposals": proposals,
            **penalties,
        }


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for name in PROOF_FIELDS:
        means[name] = round(fmean(row[name] for row in rows), 4) if rows else None
    return means


async def prove_snapshot(
    snapshot: Snapshot,
    out: Path,
    prober: Engine,
    grader: Engine,
    *,
    candidates: Sequence[AnsweredCase] = (),
    concurrency: int = 16,
    allow_unpinned: bool = False,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> SnapshotProof:
    """Write the answers, grade them by the frozen rubrics, and report; nothing on record is asked again.

    Args:
        snapshot: The snapshot, or a part of one.
        out: The folder of the logs and the report, made if missing.
        prober: Writes the answers, and reads those of the candidates for errors.
        grader: Grades them in rubric mode.
        candidates: Cases with models' answers, in which errors are looked for.
        concurrency: Calls at once.
        allow_unpinned: Whether replies of other models than the named count.
        budget: Of both together.
        progress: Called with answers, then criteria, then cases with models' answers.

    Raises:
        UsageError: If `out` lies in the snapshot's folder.
        Locked: If another process uses the folder.
        EndpointUnavailable: If an endpoint seems dead; what was answered is kept.
    """
    _check_place(snapshot, out)
    cases = tuple(snapshot)
    written = await ask_questions(
        lambda findings: _questions(cases, findings),
        out / PROBES,
        prober,
        concurrency=concurrency,
        allow_unpinned=allow_unpinned,
        budget=budget,
        progress=progress,
    )
    probes = _written(cases, out, prober.identity, allow_unpinned)
    judge = Judge(grader.identity, Mode.RUBRIC, allow_unpinned=allow_unpinned)
    evaluated, answers = from_snapshot(snapshot).cases, _answers(probes)
    asked = CallsMade(calls=0, stopped=written.stopped)
    if written.stopped is None:
        asker = open_asker(grader, 1, concurrency, allow_unpinned, budget)
        asked = await _grade(
            out / GRADES, judge, evaluated, answers, asker, concurrency, progress
        )
    work, penalties = [written, asked], None
    if candidates and asked.stopped is None:
        read = await ask_questions(
            lambda _: _errors(candidates),
            out / ERRORS,
            prober,
            concurrency=concurrency,
            allow_unpinned=allow_unpinned,
            budget=budget,
            progress=progress,
        )
        work.append(read)
    if candidates:
        penalties = read_penalties(
            candidates, out, prober.identity, allow_unpinned=allow_unpinned
        )
    record = read_record(out / GRADES, judge.digest)
    proofs, proposals = [], list[Proposal]()
    for case, known in zip(cases, evaluated, strict=True):
        own = _graded(judge, known, probes.get(case.case_id, {}), answers, record)
        proof, proposed = _prove(case, own, grader.identity.model)
        proofs.append(proof)
        proposals += proposed
    done = SnapshotProof(
        path=out,
        version=snapshot.version,
        digest=snapshot.digest,
        prober=prober.identity,
        grader=grader.identity,
        cases=tuple(proofs),
        proposals=tuple(proposals),
        penalties=penalties,
        work=tuple(work),
    )
    (out / REPORT).write_text(pretty_json(done.as_json()), encoding="utf-8")
    return done


def plan_proof(
    snapshot: Snapshot,
    out: Path,
    prober: EngineIdentity,
    grader: EngineIdentity,
    *,
    candidates: Sequence[AnsweredCase] = (),
    allow_unpinned: bool = False,
    prices: tuple[Price | None, Price | None] = (None, None),
) -> dict[str, Plan]:
    """What `prove_snapshot` would ask, if no reply had to be asked for twice: "answers", "grades", "errors".

    An answer that is not there yet is taken to be as long as its assignment allows.
    """
    cases = tuple(snapshot)
    answers = plan_questions(
        lambda _: _all_questions(cases),
        out / PROBES,
        prober,
        allow_unpinned=allow_unpinned,
        price=prices[0],
    )
    judge = Judge(grader, Mode.RUBRIC, allow_unpinned=allow_unpinned)
    evaluated = from_snapshot(snapshot).cases
    probes = _written(cases, out, prober, allow_unpinned)
    for case in cases:
        for probe in Probe:
            own = probes.setdefault(case.case_id, {})
            own.setdefault(probe, _assumed(case.language, probe))
    record = read_record(out / GRADES, judge.digest)
    calls, verdicts = [], 0
    for work in _left(judge, evaluated, _answers(probes), record):
        calls.append((sent_text(judge.request(work.call)), len(work.criteria)))
        verdicts += len(work.criteria)
    grades = plan_calls(calls, about={"verdicts": verdicts}, price=prices[1])
    plans = {"answers": answers, "grades": grades}
    if candidates:
        plans["errors"] = plan_questions(
            lambda _: _errors(candidates),
            out / ERRORS,
            prober,
            allow_unpinned=allow_unpinned,
            price=prices[0],
        )
    return plans


def _check_place(snapshot: Snapshot, out: Path) -> None:
    """Raise UsageError for a folder of the snapshot, which is published as it is."""
    if out.resolve().is_relative_to(snapshot.path.resolve()):
        raise UsageError(
            f"{out} is inside the snapshot",
            hint="name another folder: the answers must not be published",
        )


def _errors(candidates: Sequence[AnsweredCase]) -> list[Question]:
    return [candidate.question for candidate in candidates]


def _assumed(language: str, probe: Probe) -> GradedProbe:
    word = "字" if language == "zh" else "word "
    return GradedProbe(probe, word * LENGTHS[language][probe].most, "", {})


def _questions(
    cases: Sequence[SnapshotCase], findings: JudgeReplies
) -> Iterator[Question]:
    """The answers that can be asked for: each must differ from those before it."""
    for case in cases:
        written: list[GradedProbe] = []
        for probe in Probe:
            question = _question(case, probe, tuple(written))
            yield question
            reply = findings.get(question, ProbeReply)
            if reply is None:
                break
            written.append(probe_of(probe, reply))


def _all_questions(cases: Sequence[SnapshotCase]) -> Iterator[Question]:
    for case in cases:
        for probe in Probe:
            yield _question(case, probe, ())


def _question(
    case: SnapshotCase, probe: Probe, written: Sequence[GradedProbe]
) -> Question:
    criteria = [criterion.criterion for criterion in case.criteria]

    def check(reply: ProbeReply) -> str | None:
        return find_fault(reply, probe, case.language, criteria, written)

    inputs = probe_inputs(probe, case.query, case.narrative)
    return Question(
        case_id=case.case_id,
        part=probe.value,
        task=TASK,
        inputs={"language": case.language, **inputs},
        reply=ProbeReply,
        check=check,
        prompt=probe_prompt(probe, case.language),
    )


def _written(
    cases: Sequence[SnapshotCase],
    out: Path,
    prober: EngineIdentity,
    allow_unpinned: bool,
) -> dict[str, dict[Probe, GradedProbe]]:
    """The answers on record, by case."""
    findings, _ = read_findings(out / PROBES, prober, allow_unpinned=allow_unpinned)
    written: dict[str, dict[Probe, GradedProbe]] = {}
    for question in _all_questions(cases):
        reply = findings.get(question, ProbeReply)
        if reply is not None:
            probe = Probe(question.part)
            written.setdefault(question.case_id, {})[probe] = probe_of(probe, reply)
    return written


_Answers = Mapping[Probe, Mapping[str, Answer]]
"""By assignment and case."""


def _answers(probes: Mapping[str, Mapping[Probe, GradedProbe]]) -> _Answers:
    answers: dict[Probe, dict[str, Answer]] = {probe: {} for probe in Probe}
    for case_id, own in probes.items():
        for probe, written in own.items():
            answer = Answer(case_id, AnswerState.OK, written.answer, "stop", "")
            answers[probe][case_id] = answer
    return answers


def _left(
    judge: Judge, cases: Sequence[EvaluationCase], answers: _Answers, record: Record
) -> Iterator[Work]:
    """The calls that are left to make."""
    for own in answers.values():
        yield from open_work(cases, own, judge, record)


async def _grade(
    path: Path,
    judge: Judge,
    cases: Sequence[EvaluationCase],
    answers: _Answers,
    asker: Asker,
    concurrency: int,
    progress: Progress | None,
) -> CallsMade:
    """Ask for every verdict that is not on record."""
    with open_log(path) as log:
        record = read_record(path, judge.digest)
        todo = list(_left(judge, cases, answers, record))
        asker.readable = bool(record.latest)
        ask = partial(ask_work, judge, asker, lambda _, grade: log.add(grade.row()))
        total = sum(len(work.criteria) for work in todo)
        stopped = await work_through(
            todo, ask, concurrency, done=0, total=total, progress=progress
        )
    return CallsMade(calls=asker.calls, stopped=stopped, silence=asker.silence)


def _graded(
    judge: Judge,
    case: EvaluationCase,
    probes: Mapping[Probe, GradedProbe],
    answers: _Answers,
    record: Record,
) -> list[GradedProbe]:
    """A case's answers with the verdicts on record."""
    graded = []
    for probe, written in probes.items():
        verdicts = {}
        keys = grade_keys(case, answers[probe][case.case_id], judge.digest)
        for criterion_id, key in keys.items():
            settled = record.latest.get(key)
            if settled and judge.settles(settled):
                verdicts[criterion_id] = ProbeVerdict(bool(settled.met))
        graded.append(replace(written, verdicts=verdicts))
    return graded


def _prove(
    case: SnapshotCase, probes: Sequence[GradedProbe], grader: str
) -> tuple[CaseProof, list[Proposal]]:
    """A case's proof, and the errata that it proposes."""
    frozen = None
    if case.ceiling is not None:
        figures = {name: getattr(case, name) for name in PROOF_FIELDS}
        frozen = Figures(**figures, ordinary=case.ordinary)
    if missing := _missing(case, probes):
        proof = CaseProof(
            case_id=case.case_id,
            frozen=frozen,
            now=None,
            scores={},
            passed=None,
            findings=(),
            missing=missing,
        )
        return proof, []
    criteria = tuple(criterion.written() for criterion in case.criteria)
    examination = examine(criteria, probes)
    scores = {}
    for probe, score in examination.scores.items():
        scores[probe.value] = round(float(score), 4)
    proof = CaseProof(
        case_id=case.case_id,
        frozen=frozen,
        now=examination.figures,
        scores=scores,
        passed=examination.passed,
        findings=_findings(examination),
    )
    return proof, _propose(case.case_id, criteria, probes, examination, grader)


def _missing(case: SnapshotCase, probes: Sequence[GradedProbe]) -> str:
    """What is missing for a proof, in words; empty where nothing is."""
    if absent := set(Probe) - {probe.probe for probe in probes}:
        return f"no answer: {', '.join(sorted(absent))}"
    ids = {criterion.criterion_id for criterion in case.criteria}
    ungraded = sum(len(ids - probe.verdicts.keys()) for probe in probes)
    return f"{ungraded} verdicts are missing" if ungraded else ""


def _findings(examination: Examination) -> tuple[str, ...]:
    findings = []
    for finding in (*examination.failures, *examination.doubts):
        about = f" {finding.criterion}" if finding.criterion else ""
        findings.append(f"{finding.fault.value}{about}: {finding.detail}")
    return tuple(findings)


def _propose(
    case_id: str,
    criteria: tuple[Criterion, ...],
    probes: Sequence[GradedProbe],
    examination: Examination,
    grader: str,
) -> list[Proposal]:
    """The errata that would mend a rubric that is not proved: single criteria where that suffices, else the case."""
    if examination.passed or examination.grader_meets_all:
        return []
    doubted = {doubt.criterion: doubt for doubt in examination.doubts}
    rest, regraded = without_criteria(criteria, probes, set(filter(None, doubted)))
    has_reward = any(criterion.points > 0 for criterion in rest)
    if doubted and has_reward and examine(rest, regraded).passed:
        proposals = []
        for criterion, doubt in doubted.items():
            reason = f"{_WHY[doubt.fault]} (graded by {grader})"
            proposals.append(Proposal(case_id, criterion, reason))
        return proposals
    faults = sorted({failure.fault.value for failure in examination.failures})
    reason = f"the rubric does not tell good answers from bad: {', '.join(faults)}"
    return [Proposal(case_id, None, f"{reason} (graded by {grader})")]
