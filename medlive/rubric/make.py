"""`make_rubric`: a case's rubric is written, completed by what the advice lacks, and proved.

Source: docs/method.md §1, Rubric. In a proof answers of known quality are graded and compared; the reviewer rules on
doubtful criteria, and what fails is revised. `classify` asks for a case's difficulty and dialogue register, on which
nothing else depends.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field, StringConstraints

from medlive.curation.agent import Agent, AgentFailure, ids_of
from medlive.curation.model import CaseText, Curation, Side
from medlive.curation.tasks import Reason
from medlive.curation.validator import Library, cited_passages
from medlive.errors import CircuitOpen
from medlive.evidence.passage import Passage
from medlive.harm.model import Material
from medlive.harm.read import read_harm, shown_passages
from medlive.llm.ask import EachItem, Loose, ReplyModel

from .completion import complete_rubric
from .lint import Finding
from .model import (
    Criterion,
    Difficulty,
    Origin,
    Register,
    Rubric,
    numbered,
)
from .probe import write_probes
from .proof import (
    MISTAKEN,
    Examination,
    GradedProbe,
    Probe,
    ProbeVerdict,
    Proof,
    ProofFinding,
    examine,
)
from .review import case_inputs
from .write import Drafting, omit

MOST_PASSAGES = 8
"""Passages that the reviewer of a proof is shown."""
MOST_REVISIONS = 2
"""How often a rubric goes back to its writer."""

GradeProbes = Callable[
    [CaseText, Sequence[Criterion], Sequence[str], Agent],
    Awaitable[Sequence[Mapping[str, ProbeVerdict]]],
]
"""Grades answers by all criteria: for each answer the verdicts, by criterion id. Raises AgentFailure where a criterion
stays ungraded."""


class MadeRubric(NamedTuple):
    """A rubric, and what still speaks against it, which holds its case for a person."""

    rubric: Rubric
    faults: tuple[Finding, ...]
    proof: Proof | None  # None where none was made


async def make_rubric(
    curation: Curation,
    text: CaseText,
    agents: Mapping[str, Agent],
    *,
    library: Library | None,
    grade: GradeProbes | None,
) -> MadeRubric:
    """Write, complete and prove the rubric of a case.

    The answers that prove it come first: penalties are drawn from their mistakes.

    Args:
        curation: The curated thread.
        text: The case's texts.
        agents: By role: "rubric" and "reader", "validator" with a library, "prober" and "grader" with `grade`.
        library: Where points that the advice lacks are searched; None: the rubric is not completed.
        grade: Grades the proof's answers; None: no proof is made.

    Raises:
        AgentFailure: If an engine gives no usable reply.
    """
    probes: tuple[GradedProbe, ...] = ()
    errors: list[str] = []
    if grade is not None:
        probes = await write_probes(text, agents["prober"])
        written = [*probes]
        # Answers with a mistake by a second model, where one is configured; they are not graded.
        for role in ("rubric", "reader"):
            identity = agents[role].identity
            is_other = identity.model != agents["prober"].identity.model
            if is_other and identity.engine != "rules":
                written += await write_probes(text, agents[role], MISTAKEN)
                break
        errors = [p.note for p in written if p.probe in MISTAKEN]
    advice = curation.side(Side.ADVICE)
    drafting = Drafting(text, advice, agents["rubric"], agents["reader"], errors)

    rubric = await drafting.write()
    complete = None
    if library is not None:
        judge = agents["validator"]
        complete = partial(complete_rubric, drafting, curation, judge, library)
        rubric = await complete(rubric)
    if grade is None:
        return MadeRubric(rubric, drafting.lint(rubric), None)
    proving = Proving(
        drafting=drafting,
        passages=cited_passages(curation.claims)[:MOST_PASSAGES],
        complete=complete,
        prober=agents["prober"],
        grader=agents["grader"],
        grade=grade,
    )
    rubric, proof = await proving.prove(rubric, probes)
    return MadeRubric(rubric, drafting.lint(rubric), proof)


class RulingItem(EachItem):
    """Whether a criterion is needed that answers of known quality speak against.

    Inputs: query, narrative, advice [{id, statement}], passages [{id, title, text}], criteria [{id, criterion,
    points, advice_id, likely, doubt [str]}].
    """

    task: ClassVar = "rubric.defend"
    each: ClassVar = "rulings"
    id: str = Field(alias="criterion_id")
    needed: bool
    basis: Annotated[str, StringConstraints(max_length=200)]
    """The advice element or passage that makes it needed; empty where it is not."""
    reason: Reason


@dataclass
class Proving:
    """The proof of one case's rubric."""

    drafting: Drafting
    passages: Sequence[Passage]  # Those that the claims' verdicts cite
    complete: Callable[[Rubric, Sequence[str]], Awaitable[Rubric]] | None
    """`complete_rubric`, called with a rubric and what an ordinary answer lacks; None: rubrics are not completed."""
    prober: Agent
    grader: Agent
    grade: GradeProbes
    findings: list[ProofFinding] = field(default_factory=list)
    verdicts: dict[tuple[Probe, str], ProbeVerdict] = field(default_factory=dict)
    """By answer and criterion text: criteria that a revision keeps are not graded again."""

    async def prove(
        self, rubric: Rubric, probes: tuple[GradedProbe, ...]
    ) -> tuple[Rubric, Proof]:
        """Prove a rubric by answers that are not graded yet, revising it at most twice.

        Criteria that a reviewer rules out are dropped, where the rubric can do without them; a rubric that still
        fails is revised. A proved rubric is returned with its figures.

        Raises:
            AgentFailure: If an engine gives no usable reply, an ungraded criterion included.
        """
        probes = await read_for_harm(
            self.drafting.text, probes, self.grader, self.drafting.reviewer
        )
        for number in range(MOST_REVISIONS + 1):
            probes = await self._grade(rubric.criteria, probes)
            doubts = await self._rule_on(examine(rubric.criteria, probes), rubric)
            rubric = self._drop(rubric, doubts)
            # The same verdicts, under the ids that are left
            probes = await self._grade(rubric.criteria, probes)
            examination = examine(rubric.criteria, probes)
            for finding in (*doubts, *examination.failures):
                self.findings.append(replace(finding, round=number))
            if not examination.failing or number == MOST_REVISIONS:
                break
            rubric = await self._revise(rubric, probes, examination, doubts)
        figures = examination.figures
        proof = Proof(
            passed=examination.passed,
            rounds=number,
            figures=figures,
            probes=probes,
            criteria=rubric.criteria,
            findings=tuple(self.findings),
            engines={
                "prober": self.prober.identity.as_json(),
                "grader": self.grader.identity.as_json(),
            },
        )
        if examination.passed:
            rubric = replace(rubric, **asdict(figures))
        return rubric, proof

    async def _revise(
        self,
        rubric: Rubric,
        probes: Sequence[GradedProbe],
        examination: Examination,
        doubts: Sequence[ProofFinding],
    ) -> Rubric:
        """The rubric revised with the failing answers in view.

        What an ordinary answer lacks is mostly what the advice lacks too, so the models that complete a rubric are
        asked for it; the writer is asked where other answers fail as well, or nothing was added.
        """
        failing = examination.failing
        if Probe.ORDINARY in failing and self.complete is not None:
            lacks = [p.note for p in probes if p.probe is Probe.ORDINARY]
            completed = await self.complete(rubric, lacks)
            is_all = failing == (Probe.ORDINARY,)
            if is_all and completed.criteria != rubric.criteria:
                return completed
            rubric = completed
        answers = []
        for probe in probes:
            if probe.probe not in failing:
                continue
            met = []
            for criterion in rubric.criteria:
                verdict = self.verdicts.get((probe.probe, criterion.criterion))
                if verdict is not None and verdict.met:
                    met.append(criterion.id)
            shown = {"probe": probe.probe.value, "answer": probe.answer}
            answers.append({**shown, "note": probe.note, "meets": met})
        # The failures, and the rulings on criteria that are still there
        ids = {c.criterion: c.id for c in rubric.criteria} | {"": ""}
        findings = []
        for finding in (*examination.failures, *doubts):
            if finding.text in ids:
                name = ids[finding.text]
                findings.append({"criterion": name, "finding": finding.words})
        return await self.drafting.write(rubric, findings, answers)

    async def _grade(
        self, criteria: Sequence[Criterion], probes: Sequence[GradedProbe]
    ) -> tuple[GradedProbe, ...]:
        """Grade the answers by the criteria that are new; return them with their verdicts on all of `criteria`."""
        known = self.verdicts
        new = [c for c in criteria if (probes[0].probe, c.criterion) not in known]
        if new:
            answers = [probe.answer for probe in probes]
            grades = await self.grade(self.drafting.text, new, answers, self.grader)
            for probe, verdicts in zip(probes, grades, strict=True):
                for criterion in new:
                    known[probe.probe, criterion.criterion] = verdicts[criterion.id]
        graded = []
        for probe in probes:
            own = {c.id: known[probe.probe, c.criterion] for c in criteria}
            graded.append(replace(probe, verdicts=own))
        return tuple(graded)

    async def _rule_on(
        self, examination: Examination, rubric: Rubric
    ) -> list[ProofFinding]:
        """The doubts about criteria with the reviewer's rulings; one that was ruled needed before keeps its ruling."""
        earlier = {(f.fault, f.text): f for f in self.findings if f.needed}
        known, new = list[ProofFinding](), list[ProofFinding]()
        for doubt in examination.doubts:
            if ruled_before := earlier.get((doubt.fault, doubt.text)):
                known.append(replace(ruled_before, criterion=doubt.criterion))
            else:
                new.append(doubt)
        rulings = await self._ask_reviewer(new, rubric.criteria) if new else {}
        ruled = []
        for doubt in new:
            ruling = rulings[doubt.criterion or ""]
            basis = ruling.basis if ruling.needed else ""
            reason = ruling.reason.strip()
            decided = replace(doubt, needed=ruling.needed, basis=basis, reason=reason)
            ruled.append(decided)
        return [*ruled, *known]

    async def _ask_reviewer(
        self, doubts: Sequence[ProofFinding], criteria: Sequence[Criterion]
    ) -> dict[str, RulingItem]:
        """The ruling on each doubted criterion, by its id."""
        doubted: dict[str, list[str]] = {}
        for doubt in doubts:
            doubted.setdefault(doubt.criterion or "", []).append(doubt.fault)
        bases = {*ids_of(self.drafting.advice), *ids_of(self.passages)}
        inputs = case_inputs(self.drafting.text, self.drafting.advice)
        inputs |= {"passages": shown_passages(self.passages), "criteria": []}
        for criterion in criteria:
            if criterion.id not in doubted:
                continue
            shown = {
                "id": criterion.id,
                "criterion": criterion.criterion,
                "points": criterion.points,
                "advice_id": criterion.advice_id or criterion.source,
            }
            if criterion.points < 0:
                shown["likely"] = criterion.likely
            inputs["criteria"].append(shown | {"doubt": doubted[criterion.id]})
            if criterion.origin is Origin.EVIDENCE:
                bases.add(criterion.source)

        def fault_of(ruling: RulingItem) -> str | None:
            if ruling.needed and ruling.basis not in bases:
                basis = f"basis {ruling.basis[:40]!r}"
                return f"{ruling.id}: {basis} is not the id of an advice element or passage"
            if not ruling.reason.strip():
                return f"{ruling.id}: the reason is empty"
            return None

        reviewer = self.drafting.reviewer
        return await reviewer.ask_each(RulingItem, inputs, doubted, fault_of)

    def _drop(self, rubric: Rubric, doubts: Sequence[ProofFinding]) -> Rubric:
        """The rubric without the criteria that the reviewer ruled out, unless dropping one adds a fault."""
        lint = self.drafting.lint
        for doubt in doubts:
            by_text = {c.criterion: c for c in rubric.criteria}
            criterion = by_text.get(doubt.text)
            if doubt.needed is not False or criterion is None:
                continue
            kept = numbered(c for c in rubric.criteria if c != criterion)
            why = f"{doubt.fault}: {doubt.reason}"
            omitted = (*rubric.omitted, omit(criterion, why, "proof"))
            smaller = replace(rubric, criteria=kept, omitted=omitted)
            if all(c.points > 0 for c in kept) and doubt.fault == "idle":
                smaller = replace(smaller, no_negative=doubt.reason)
            if len(lint(smaller)) <= len(lint(rubric)):
                rubric = smaller
        return rubric


async def read_for_harm(
    text: CaseText, probes: Sequence[GradedProbe], grader: Agent, checker: Agent
) -> tuple[GradedProbe, ...]:
    """The answers, the slip and the long one with their reading for harm.

    Args:
        text: The case.
        probes: The answers.
        grader: Names what is harmful.
        checker: Confirms or clears each finding.

    Raises:
        AgentFailure: If an engine gives no usable reply.
    """
    read = []
    for probe in probes:
        if probe.probe in (Probe.LONG, Probe.SLIP):
            material = Material(
                language=grader.language,
                question=text.question,
                answer=probe.answer,
                advice=text.advice,
            )
            harm = await read_harm(material, grader, checker)
            probe = replace(probe, harm=harm)
        read.append(probe)
    return tuple(read)


class ClassifyReply(ReplyModel):
    """Difficulty and dialogue register. Inputs: narrative, query, advice."""

    task: ClassVar = "rubric.classify"
    reason: Reason
    difficulty: Loose[Difficulty]
    dialogue_register: Loose[Register]


async def classify(text: CaseText, rubric: Rubric, agent: Agent) -> Rubric:
    """The rubric with its case's difficulty and register; both stay unknown where no usable reply came."""
    try:
        reply = await agent.ask(ClassifyReply, asdict(text))
    except (AgentFailure, CircuitOpen):
        return rubric
    return replace(
        rubric, difficulty=reply.difficulty, dialogue_register=reply.dialogue_register
    )
