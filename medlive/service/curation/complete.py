"""From a curation to a case that can be released: rubric and proof, identifiers, the kind of case; then saved."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC

from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.chain import ROLES
from medlive.curation.holds import with_holds
from medlive.curation.model import CaseText, Curation, Hold, Outcome, Reason, Stage
from medlive.curation.second_reading import Redacted, redact_texts
from medlive.curation.validator import Library
from medlive.db.curation.cases import (
    CaseContent,
    SavedCase,
    add_revision,
    apply_review,
    find_review,
    latest_case,
    lock_thread_case,
    pending_people,
    set_status,
)
from medlive.db.mapping import Record
from medlive.db.release.withdrawals import (
    too_thin,
    withdrawn_criteria,
    without_criteria,
)
from medlive.db.session import Session
from medlive.db.tables.release import CaseStatus, ReviewAction
from medlive.errors import LiteratureUnavailable
from medlive.llm.engine import Engine
from medlive.rubric.make import GradeProbes, classify, make_rubric
from medlive.rubric.model import AskedPart, Criterion, Rubric
from medlive.rubric.proof import Proof
from medlive.rubric.write import MadeRubric

_DETAIL = 2000
"""Characters of a hold's detail, at most."""


CompletedCase = tuple[Curation, Rubric | None, Proof | None]
"""A curation, and what makes its case fit for a release: no rubric where an engine gave no usable reply, no proof where
none was made."""


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
    has no rubric, when an engine or a literature service gave no usable reply.

    Args:
        curation: What the chain made of a thread.
        language: "en" or "zh".
        respondents: Has the roles "rubric" and "reader"; with `library` also "validator", with `grade` "prober" and
            "grader".
        library: Where points that the advice lacks are searched; None: the rubric is not completed.
        grade: Grades the proof's answers; None makes no proof.
    """
    text, journal = curation.text, list(curation.calls)
    assert text
    roles = ["rubric", "reader"]
    if library:
        roles.append("validator")
    if grade:
        roles += ["prober", "grader"]
    agents: dict[str, Agent] = {}
    engines = dict(curation.engines)
    for role in roles:
        agents[role] = Agent(respondents[role], journal, language)
        # The chain has said who its own are.
        if role not in ROLES:
            engines[role] = agents[role].identity.as_json()
    try:
        made = await make_rubric(curation, text, agents, library=library, grade=grade)
        text, rubric, redacted = await redact_case(text, made.rubric, agents["reader"])
    except (AgentFailure, LiteratureUnavailable) as error:
        failure = error
        if isinstance(failure, LiteratureUnavailable):
            failure = AgentFailure(Reason.ENDPOINT_UNAVAILABLE, failure.message)
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
        return failed, None, None
    rubric = await classify(text, rubric, agents["rubric"])
    done = replace(curation, text=text, calls=tuple(journal), engines=engines)
    holds = tuple(_holds_of(made, redacted.remaining))
    return with_holds(done, holds), rubric, made.proof


async def redact_case(
    text: CaseText, rubric: Rubric, reader: Agent
) -> tuple[CaseText, Rubric, Redacted]:
    """Remove identifiers from every text that a release would hold of a case. Raises AgentFailure."""
    names, texts = [*asdict(text)], asdict(text)
    for criterion in rubric.criteria:
        texts[criterion.id] = criterion.criterion
    # The parts of the query, which a release holds too, say again what it says.
    parts = {f"asked {part.id}": part.text for part in rubric.asked}
    redacted = await redact_texts(texts, reader, parts)
    clean = redacted.texts
    criteria, asked = list[Criterion](), list[AskedPart]()
    for criterion in rubric.criteria:
        criteria.append(replace(criterion, criterion=clean[criterion.id]))
    for part in rubric.asked:
        asked.append(replace(part, text=clean[f"asked {part.id}"]))
    rubric = replace(rubric, criteria=tuple(criteria), asked=tuple(asked))
    text = CaseText(**{name: clean[name] for name in names})
    return text, rubric, redacted


def _holds_of(made: MadeRubric, remaining: Sequence[str]) -> Iterator[Hold]:
    """Why a case waits: what is wrong with its rubric, and names that code could not replace (`remaining`)."""
    details, criteria = list[str](), list[str | None]()
    texts = [criterion.criterion for criterion in made.rubric.criteria]
    for conflict in made.rubric.conflicts:
        # Both sides are still there
        is_other_kept = conflict.advice_id or conflict.other in texts
        if conflict.criterion in texts and is_other_kept:
            details.append(
                f"criterion “{conflict.criterion}” against {conflict.advice_id or 'criterion'} “{conflict.other}”:"
                f" {conflict.detail}"
            )
            criteria.append(conflict.advice_id)
    if details:
        detail = "; ".join(details)[:_DETAIL]
        yield Hold(Reason.ADVICE_CONTRADICTED, detail, tuple(filter(None, criteria)))
    if made.faults:
        details, criteria = [], []
        for fault in made.faults:
            subject = fault.criterion or "rubric"
            details.append(f"{subject}: {fault.fault.value}: {fault.detail}")
            criteria.append(fault.criterion)
        detail = "; ".join(details)[:_DETAIL]
        yield Hold(Reason.RUBRIC_FAULTY, detail, tuple(filter(None, criteria)))
    if made.proof and not made.proof.passed:
        failures = made.proof.last_failures
        detail = "; ".join(f"{f.fault.value}: {f.detail}" for f in failures)
        yield Hold(Reason.RUBRIC_UNPROVEN, detail[:_DETAIL])
    if remaining:
        yield Hold(Reason.IDENTIFIER, "; ".join(remaining)[:_DETAIL])


_VERDICTS = (ReviewAction.APPROVE, ReviewAction.REJECT)
_EDITED = "curated anew since a person edited it"
_REINSTATED = "reinstated, and not approved since"


async def save_case(
    session: Session,
    content: CaseContent,
    *,
    thread_pk: int,
    key: bytes,
    held: str | None = None,
) -> SavedCase:
    """Save the case that a thread made, as a new revision unless its content is the latest one's.

    A person's decision about the very same content stands, and a case that a person rejected waits again when its
    content changes; one that was reinstated waits for an approval. A withdrawn case stays withdrawn, and criteria
    that were withdrawn from it are left out of the rubric; when too few are left, the case is held with its latest
    revision as it was. What a person has edited is held when it is replaced.

    Args:
        session: The transaction in which the decision about the thread is stored.
        content: What the case says.
        thread_pk: The thread's row.
        key: The instance's own, for the case's id.
        held: Why the case waits for a person; None makes it ready.
    """
    content = replace(content, posted_at=content.posted_at.astimezone(UTC))
    status = CaseStatus.READY if held is None else CaseStatus.HELD
    case = await lock_thread_case(session, thread_pk, key, status, held)
    if (case.status, case.status_reason) != (status, held):
        await set_status(session, case.id, status, held)
    withdrawn = await withdrawn_criteria(session, case.id)
    kept = without_criteria(content.rubric, withdrawn)
    if len(kept.criteria) < len(content.rubric.criteria):
        thin = too_thin(kept)
        latest = await latest_case(session, case.id) if thin else None
        if latest:
            reason = f"without its withdrawn criteria the rubric has {thin}"
            await set_status(session, case.id, CaseStatus.HELD, reason)
            return SavedCase(case.id, latest.revision, "left")
    content = replace(content, rubric=kept)
    saved = await add_revision(session, case.id, content)
    if saved.status != "new":
        await _respect_people(session, case, saved, held)
    return saved


async def _respect_people(
    session: Session, case: Record, saved: SavedCase, held: str | None
) -> None:
    """Let what people decided about the case stand, or ask them again where its content changed."""
    case_id = case.id
    pending = await pending_people(session, case_id, saved.revision)
    review = await find_review(session, case_id, saved.revision, _VERDICTS)
    if review and not pending.is_reinstated:
        await apply_review(session, case_id, review.action, review.reason)
        return
    why = held
    if pending.is_rejected or pending.is_reinstated:
        why = held or case.status_reason or _REINSTATED
        if held is None and case.status is CaseStatus.REJECTED:
            why = f"{case.status_reason}; its content has changed since"
    elif pending.is_edited:
        why = held or _EDITED
    if why != held:
        await set_status(session, case_id, CaseStatus.HELD, why)
