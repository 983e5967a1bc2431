"""A reviewer's ruling on criteria that answers of known quality speak against.

Source: docs/method.md §1, Rubric, Proof.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import StringConstraints

from medlive.curation.agent import Agent, check_ids
from medlive.curation.elements import element_inputs
from medlive.curation.identified import ids_of
from medlive.curation.model import CaseText, Element
from medlive.curation.tasks import Reason
from medlive.evidence.passage import Passage
from medlive.harm.read import shown_passages
from medlive.llm.ask import AtMost40, ReplyModel
from medlive.rubric.model import Criterion, Origin
from medlive.rubric.proof import ProofFinding


class RulingItem(ReplyModel):
    """Whether one criterion is needed."""

    criterion_id: str
    needed: bool
    basis: Annotated[str, StringConstraints(max_length=200)]
    """The advice element or passage that makes it needed; empty where it is not."""
    reason: Reason


class DefenceReply(ReplyModel):
    """Whether criteria are needed that answers of known quality speak against.

    Inputs: query, narrative, advice [{id, statement}], passages [{id, title, text}], criteria [{id, criterion,
    points, advice_id, likely, doubt [str]}].
    """

    task: ClassVar = "rubric.defend"
    rulings: AtMost40[RulingItem]


async def rule_on(
    doubts: Sequence[ProofFinding],
    criteria: Sequence[Criterion],
    text: CaseText,
    advice: Sequence[Element],
    passages: Sequence[Passage],
    reviewer: Agent,
) -> tuple[ProofFinding, ...]:
    """The doubts with the reviewer's rulings; nobody is asked where there are none.

    Raises:
        AgentFailure: If no usable reply was given.
    """
    if not doubts:
        return ()
    by_criterion: dict[str, list[str]] = {}
    for doubt in doubts:
        by_criterion.setdefault(doubt.criterion or "", []).append(doubt.fault.value)
    known = {*ids_of(advice), *ids_of(passages)}
    shown = []
    for criterion in criteria:
        if criterion.id not in by_criterion:
            continue
        values = {
            "id": criterion.id,
            "criterion": criterion.criterion,
            "points": criterion.points,
            "advice_id": criterion.advice_id or criterion.source,
        }
        if criterion.points < 0:
            values["likely"] = criterion.likely
        shown.append(values | {"doubt": by_criterion[criterion.id]})
        if criterion.origin is Origin.EVIDENCE:
            known.add(criterion.source)

    def check(reply: DefenceReply) -> str | None:
        ids = [ruling.criterion_id for ruling in reply.rulings]
        return check_ids(ids, list(by_criterion)) or _fault_of(reply, known)

    inputs = {
        "query": text.query,
        "narrative": text.narrative,
        "advice": element_inputs(advice),
        "passages": shown_passages(passages),
        "criteria": shown,
    }
    reply = await reviewer.ask(DefenceReply, inputs, check)
    rulings = {ruling.criterion_id: ruling for ruling in reply.rulings}
    ruled = []
    for doubt in doubts:
        ruling = rulings[doubt.criterion or ""]
        basis = ruling.basis if ruling.needed else ""
        reason = ruling.reason.strip()
        decided = replace(doubt, needed=ruling.needed, basis=basis, reason=reason)
        ruled.append(decided)
    return tuple(ruled)


def _fault_of(reply: DefenceReply, known: set[str]) -> str | None:
    """Why the rulings cannot be used: one that keeps a criterion says why, and by what."""
    for ruling in reply.rulings:
        if ruling.needed and ruling.basis not in known:
            basis = f"basis {ruling.basis[:40]!r}"
            return f"{ruling.criterion_id}: {basis} is not the id of an advice element or passage"
        if not ruling.reason.strip():
            return f"{ruling.criterion_id}: the reason is empty"
    return None
