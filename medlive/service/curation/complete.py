"""From a curation to a case that can be released: rubric and proof, then identifiers, then the kind of case."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.holds import with_holds
from medlive.curation.model import CaseText, Curation, Hold, Outcome, Reason, Stage
from medlive.curation.second_reader import redact_texts
from medlive.curation.validator import Library
from medlive.llm.engine import Engine
from medlive.rubric.classify import classify
from medlive.rubric.make import make_rubric
from medlive.rubric.model import Conflict, Rubric
from medlive.rubric.proof import Proof
from medlive.rubric.prove import GradeProbes
from medlive.rubric.write import MadeRubric

_DETAIL = 2000
"""Characters of a hold's detail, at most."""


class CompletedCase(NamedTuple):
    """A curation whose case can be released, or what keeps it from that."""

    curation: Curation
    rubric: Rubric | None  # None where an engine gave no usable reply
    proof: Proof | None = None  # None where none was made


class RedactedCase(NamedTuple):
    """A case's texts and rubric without identifiers of people."""

    text: CaseText
    rubric: Rubric
    found: tuple[str, ...]  # Identifiers found, as "<text id>: <kind>"
    remaining: tuple[str, ...]  # Identifiers that code could not replace, likewise


async def complete_case(
    curation: Curation,
    language: str,
    respondents: Mapping[str, Engine],
    *,
    library: Library | None = None,
    grade: GradeProbes | None = None,
) -> CompletedCase:
    """A kept or held curation with its rubric, proof and kind, its texts without identifiers.

    The curation is held where the rubric stays faulty or unproven or a name could not be removed; it failed, and
    has no rubric, when an engine gave no usable reply.

    Args:
        curation: What the chain made of a thread.
        language: "en" or "zh".
        respondents: Has the roles "rubric" and "reader"; with `library` also "validator", with `grade` "prober" and
            "grader".
        library: Where points that the advice lacks are searched; None: the rubric is not completed.
        grade: Grades the proof's answers; None makes no proof.
    """
    text, journal = curation.text, list(curation.calls)
    assert text is not None
    roles = ["rubric", "reader"]
    if library is not None:
        roles.append("validator")
    if grade is not None:
        roles += ["prober", "grader"]
    agents: dict[str, Agent] = {}
    engines = dict(curation.engines)
    for role in roles:
        agents[role] = Agent(respondents[role], journal, language)
        engines[role] = agents[role].identity.as_json()
    try:
        made = await make_rubric(
            curation,
            text,
            agents,
            library=library,
            grade=grade,
        )
        redacted = await redact_case(text, made.rubric, agents["reader"])
    except AgentFailure as failure:
        failed = replace(
            curation,
            outcome=Outcome.FAILED,
            stage=Stage.RUBRIC,
            reason=failure.reason,
            detail=failure.detail,
            holds=(),
            calls=tuple(journal),
            engines=engines,
        )
        return CompletedCase(failed, None)
    rubric = await classify(redacted.text, redacted.rubric, agents["rubric"])
    done = replace(curation, text=redacted.text, calls=tuple(journal), engines=engines)
    holds = tuple(_holds_of(made, redacted.remaining))
    return CompletedCase(with_holds(done, holds), rubric, made.proof)


async def redact_case(text: CaseText, rubric: Rubric, reader: Agent) -> RedactedCase:
    """Remove identifiers from every text that a release would hold of a case. Raises AgentFailure."""
    texts = asdict(text)
    for criterion in rubric.criteria:
        texts[criterion.id] = criterion.criterion
    redacted = await redact_texts(texts, reader)
    criteria = [
        replace(criterion, criterion=redacted.texts[criterion.id])
        for criterion in rubric.criteria
    ]
    return RedactedCase(
        text=CaseText(**{name: redacted.texts[name] for name in asdict(text)}),
        rubric=replace(rubric, criteria=tuple(criteria)),
        found=redacted.found,
        remaining=redacted.remaining,
    )


def _lasting(rubric: Rubric) -> Iterator[Conflict]:
    """The contradictions of which both sides are still there."""
    texts = {criterion.criterion for criterion in rubric.criteria}
    for conflict in rubric.conflicts:
        is_other_kept = bool(conflict.advice_id) or conflict.other in texts
        if conflict.criterion in texts and is_other_kept:
            yield conflict


def _holds_of(made: MadeRubric, remaining: Sequence[str]) -> Iterator[Hold]:
    """Why a case waits: what is wrong with its rubric, and names that code could not replace (`remaining`)."""
    conflicts = list(_lasting(made.rubric))
    if conflicts:
        details, criteria = [], []
        for conflict in conflicts:
            source = conflict.advice_id or "criterion"
            details.append(
                f"criterion “{conflict.criterion}” against {source} “{conflict.other}”:"
                f" {conflict.detail}"
            )
            criteria += [conflict.advice_id] if conflict.advice_id else []
        detail = "; ".join(details)[:_DETAIL]
        yield Hold(Reason.ADVICE_CONTRADICTED, detail, tuple(criteria))
    if made.faults:
        details, criteria = [], []
        for fault in made.faults:
            subject = fault.criterion or "rubric"
            details.append(f"{subject}: {fault.fault.value}: {fault.detail}")
            if fault.criterion:
                criteria.append(fault.criterion)
        detail = "; ".join(details)[:_DETAIL]
        yield Hold(Reason.RUBRIC_FAULTY, detail, tuple(criteria))
    if made.proof is not None and not made.proof.passed:
        failures = made.proof.last_failures
        detail = "; ".join(f"{f.fault.value}: {f.detail}" for f in failures)
        yield Hold(Reason.RUBRIC_UNPROVEN, detail[:_DETAIL])
    if remaining:
        yield Hold(Reason.IDENTIFIER, "; ".join(remaining)[:_DETAIL])
