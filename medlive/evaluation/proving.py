"""`medlive snapshot prove`: how the rubrics of a frozen week measure, by any prober and grader.

The same answers of known quality, grader and bounds as before a release (docs/method.md §1, Proof), on the rubrics
as they were frozen. A folder keeps what was asked: `probes.jsonl`, `grades.jsonl` and, where models' answers are
read for errors too, `errors.jsonl`, so that a run that was stopped goes on where it was, and `report.json`. The
answers must not be published.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from medlive.errors import UsageError
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.grading.grade import Record, grade_sets, open_asker, read_record
from medlive.evaluation.grading.questions import (
    JudgeReplies,
    Question,
    ask_questions,
    read_findings,
)
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
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine, EngineIdentity
from medlive.llm.pool import Progress
from medlive.rubric.probe import (
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
    missing: str = ""  # Which answers or verdicts are missing; the rest is then empty
    now: Figures | None = None
    scores: Mapping[str, float] | None = None  # By answer
    passed: bool | None = None
    findings: tuple[str, ...] = ()  # What speaks against the rubric

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

    version: str
    digest: str
    prober: EngineIdentity
    grader: EngineIdentity
    cases: tuple[CaseProof, ...]
    proposals: tuple[Proposal, ...]
    penalties: Penalties | None  # None: no model's answers were read
    work: tuple[CallsMade, ...]  # Of prober and grader, then of reading answers

    @property
    def unfinished(self) -> int:
        """Cases of which an answer or a verdict is missing, or whose models' answers were not read."""
        left = {case.case_id for case in self.cases if case.now is None}
        return len(left.union(self.penalties.unread if self.penalties else ()))

    def means(self) -> dict[str, dict[str, float | None]]:
        """The mean figures: as frozen, now, and of the cases that have both, what moved."""
        means: dict[str, dict[str, float | None]] = {}
        for name in ("frozen", "now", "moved"):
            figures = [getattr(case, name) for case in self.cases]
            rows = [f if name == "moved" else asdict(f) for f in figures if f]
            means[name] = dict.fromkeys(PROOF_FIELDS)
            for field in PROOF_FIELDS if rows else ():
                means[name][field] = round(fmean(row[field] for row in rows), 4)
        return means

    def as_json(self) -> dict[str, Any]:
        """The report."""
        penalties = {}
        if self.penalties:
            penalties["penalties"] = self.penalties.as_json()
        return {
            "format": "medlive-snapshot-proof",
            "format_version": 1,
            "snapshot": {"version": self.version, "digest": self.digest},
            "prober": self.prober.as_json(),
            "grader": self.grader.as_json(),
            "cases": [asdict(case) | {"moved": case.moved} for case in self.cases],
            "means": self.means(),
            "passed": sum(case.passed is True for case in self.cases),
            "failed": sum(case.passed is False for case in self.cases),
            "unfinished": self.unfinished,
            "proposals": [asdict(p) | {"command": p.command} for p in self.proposals],
            **penalties,
        }


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
    how: dict[str, Any] = {
        "concurrency": concurrency,
        "allow_unpinned": allow_unpinned,
        "budget": budget,
        "progress": progress,
    }
    work: list[CallsMade] = []
    written = await ask_questions(
        lambda findings: _questions(cases, findings), out / PROBES, prober, **how
    )
    work.append(written)
    findings, _ = read_findings(
        out / PROBES, prober.identity, allow_unpinned=allow_unpinned
    )
    probes = {case.case_id: _written(case, findings) for case in cases}
    judge = Judge(grader.identity, Mode.RUBRIC, allow_unpinned=allow_unpinned)
    evaluated = from_snapshot(snapshot).cases
    if written.stopped is None:
        asker = open_asker(grader, 1, concurrency, allow_unpinned, budget)
        sets = []
        for probe in Probe:
            answers = {}
            for case_id, own in probes.items():
                if probe in own:
                    answers[case_id] = _answer(case_id, own[probe])
            sets.append((evaluated, answers))
        graded = await grade_sets(
            out / GRADES, judge, asker, sets, concurrency, progress
        )
        silence = asker.silence
        work.append(
            CallsMade(calls=asker.calls, stopped=graded.stopped, silence=silence)
        )
    penalties = None
    if candidates:
        if work[-1].stopped is None:
            read = await ask_questions(
                lambda _: [candidate.question for candidate in candidates],
                out / ERRORS,
                prober,
                **how,
            )
            work.append(read)
        penalties = read_penalties(
            candidates, out, prober.identity, allow_unpinned=allow_unpinned
        )
    record = read_record(out / GRADES, judge.digest)
    proofs: list[CaseProof] = []
    proposals: list[Proposal] = []
    for case, known in zip(cases, evaluated, strict=True):
        with_verdicts = _graded(judge, known, probes[case.case_id], record)
        proof = _prove(case, with_verdicts, grader.identity.model, proposals)
        proofs.append(proof)
    done = SnapshotProof(
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


def _check_place(snapshot: Snapshot, out: Path) -> None:
    """Raise UsageError for a folder of the snapshot, which is published as it is."""
    if out.resolve().is_relative_to(snapshot.path.resolve()):
        raise UsageError(
            f"{out} is inside the snapshot",
            hint="name another folder: the answers must not be published",
        )


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


def _written(case: SnapshotCase, findings: JudgeReplies) -> dict[Probe, GradedProbe]:
    """The answers on record."""
    written = {}
    for probe in Probe:
        reply = findings.get(_question(case, probe, ()), ProbeReply)
        if reply is not None:
            written[probe] = probe_of(probe, reply)
    return written


def _answer(case_id: str, probe: GradedProbe) -> Answer:
    return Answer(case_id, AnswerState.OK, probe.answer, "stop", "")


def _graded(
    judge: Judge,
    case: EvaluationCase,
    probes: Mapping[Probe, GradedProbe],
    record: Record,
) -> list[GradedProbe]:
    """A case's answers with the verdicts on record."""
    graded = []
    for written in probes.values():
        verdicts = {}
        keys = grade_keys(case, _answer(case.case_id, written), judge.digest)
        for criterion_id, key in keys.items():
            settled = record.latest.get(key)
            if settled and judge.settles(settled):
                verdicts[criterion_id] = ProbeVerdict(bool(settled.met))
        graded.append(replace(written, verdicts=verdicts))
    return graded


def _prove(
    case: SnapshotCase,
    probes: Sequence[GradedProbe],
    grader: str,
    proposals: list[Proposal],
) -> CaseProof:
    """A case's proof; the errata that it proposes are added to `proposals`."""
    frozen = None
    if case.ceiling is not None:
        figures = {name: getattr(case, name) for name in PROOF_FIELDS}
        frozen = Figures(**figures, ordinary=case.ordinary)
    if absent := set(Probe) - {probe.probe for probe in probes}:
        missing = f"no answer: {', '.join(sorted(absent))}"
        return CaseProof(case.case_id, frozen, missing)
    ids = {criterion.criterion_id for criterion in case.criteria}
    if ungraded := sum(len(ids - probe.verdicts.keys()) for probe in probes):
        return CaseProof(case.case_id, frozen, f"{ungraded} verdicts are missing")
    examination = examine([c.written() for c in case.criteria], probes)
    if not examination.passed and not examination.grader_meets_all:
        proposals += _propose(case, probes, examination, f"(graded by {grader})")
    findings = []
    for finding in (*examination.failures, *examination.doubts):
        about = f" {finding.criterion}" if finding.criterion else ""
        findings.append(f"{finding.fault.value}{about}: {finding.detail}")
    scores = {}
    for probe, score in examination.scores.items():
        scores[probe.value] = round(float(score), 4)
    return CaseProof(
        case_id=case.case_id,
        frozen=frozen,
        now=examination.figures,
        scores=scores,
        passed=examination.passed,
        findings=tuple(findings),
    )


def _propose(
    case: SnapshotCase,
    probes: Sequence[GradedProbe],
    examination: Examination,
    by: str,
) -> list[Proposal]:
    """The errata that would mend a rubric that is not proved: single criteria where that suffices, else the case."""
    doubted = {doubt.criterion: doubt for doubt in examination.doubts}
    criteria = [criterion.written() for criterion in case.criteria]
    rest, regraded = without_criteria(criteria, probes, set(filter(None, doubted)))
    has_reward = any(criterion.points > 0 for criterion in rest)
    if doubted and has_reward and examine(rest, regraded).passed:
        proposals = []
        for criterion, doubt in doubted.items():
            reason = f"{_WHY[doubt.fault]} {by}"
            proposals.append(Proposal(case.case_id, criterion, reason))
        return proposals
    faults = sorted({failure.fault.value for failure in examination.failures})
    reason = f"the rubric does not tell good answers from bad: {', '.join(faults)}"
    return [Proposal(case.case_id, None, f"{reason} {by}")]
