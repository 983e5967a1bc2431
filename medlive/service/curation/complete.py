"""Make a curation a case for release (`complete_case`: rubric, proof, no identifiers), save it, prove rubrics again.

The rubric of a case that a person edited is proved again: `queue_proof` queues it, and whoever curates
runs `prove_again`.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC

from medlive.config import Settings
from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.chain import ROLES
from medlive.curation.holds import with_holds
from medlive.curation.model import CaseText, Curation, Hold, Outcome, Reason
from medlive.curation.second_reading import Redacted, redact_texts
from medlive.curation.validator import Library
from medlive.db.curation.cases import (
    CaseContent,
    SavedCase,
    add_revision,
    apply_review,
    latest_case,
    lock_thread_case,
    pending_decisions,
    set_status,
)
from medlive.db.curation.proofs import save_proof
from medlive.db.mapping import Record
from medlive.db.release.withdrawals import (
    too_thin,
    withdrawn_criteria,
    without_criteria,
)
from medlive.db.session import Database, Session
from medlive.db.tables.release import CaseStatus
from medlive.errors import (
    CheckFailed,
    EndpointUnavailable,
    LiteratureUnavailable,
    UsageError,
)
from medlive.grader.probes import grade_probes
from medlive.llm.engine import Engine
from medlive.rubric.make import (
    MadeRubric,
    classify,
    make_rubric,
    read_for_harm,
)
from medlive.rubric.model import AskedPart, Criterion, Rubric
from medlive.rubric.probe import write_probes
from medlive.rubric.proof import Proof, examine
from medlive.service.wiring import Pipeline, proof_roles
from medlive.service.work.jobs import defer_proof

from .editing import lock_latest

_log = logging.getLogger(__name__)
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
) -> CompletedCase:
    """Complete a kept or held curation: give it a rubric with proof and labels, and remove identifiers from texts.

    The curation is held where the rubric stays faulty, unproven or contradictory, or a name could not be removed; it
    failed, and has no rubric, when an engine or a literature service gave no usable reply.

    Args:
        curation: What the chain made of a thread.
        language: "en" or "zh".
        respondents: Has the roles "rubric" and "reader"; with `library` also "validator". Where it has "prober" and
            "grader", the rubric is proved.
        library: Where points that the advice lacks are searched; None: the rubric is not completed.
    """
    text, journal = curation.text, list(curation.calls)
    assert text
    agents: dict[str, Agent] = {}
    engines = dict(curation.engines)
    for role, respondent in respondents.items():
        agents[role] = Agent(respondent, journal, language)
        # The curation has the engines of the chain's roles already.
        if role not in ROLES:
            engines[role] = agents[role].identity.as_json()
    grade = grade_probes if "prober" in respondents else None
    try:
        made = await make_rubric(curation, text, agents, library=library, grade=grade)
        drafted, _, proof = made
        text, rubric, redacted = await redact_case(text, drafted, agents["reader"])
    except (AgentFailure, LiteratureUnavailable) as error:
        failure = error
        if isinstance(failure, LiteratureUnavailable):
            failure = AgentFailure(Reason.ENDPOINT_UNAVAILABLE, failure.message)
        failed = replace(
            curation,
            outcome=Outcome.FAILED,
            stage="rubric",
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
    return with_holds(done, holds), rubric, proof


async def redact_case(
    text: CaseText, rubric: Rubric, reader: Agent
) -> tuple[CaseText, Rubric, Redacted]:
    """Remove identifiers from every text that a release would hold of a case. Raises AgentFailure."""
    texts = asdict(text)
    names = [*texts]
    for criterion in rubric.criteria:
        texts[criterion.id] = criterion.criterion
    # A release holds the parts of the query too, which repeat the query's words.
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
    rubric, faults, proof = made
    texts = [criterion.criterion for criterion in rubric.criteria]
    details, elements = list[str](), list[str | None]()
    for conflict in rubric.conflicts:
        # Both the criterion and what it conflicts with are still there
        is_other_kept = conflict.advice_id or conflict.other in texts
        if conflict.criterion in texts and is_other_kept:
            details.append(
                f"criterion “{conflict.criterion}” against {conflict.advice_id or 'criterion'} “{conflict.other}”:"
                f" {conflict.detail}"
            )
            elements.append(conflict.advice_id)
    if details:
        yield _hold(Reason.ADVICE_CONTRADICTED, details, elements)
    if faults:
        details, criteria = [], []
        for fault in faults:
            details.append(
                f"{fault.criterion or 'rubric'}: {fault.fault}: {fault.detail}"
            )
            criteria.append(fault.criterion)
        yield _hold(Reason.RUBRIC_FAULTY, details, criteria)
    if proof and not proof.passed:
        failures = [f"{f.fault}: {f.detail}" for f in proof.last_failures]
        yield _hold(Reason.RUBRIC_UNPROVEN, failures)
    if remaining:
        yield _hold(Reason.IDENTIFIER, remaining)


def _hold(
    reason: Reason, details: Sequence[str], concerns: Sequence[str | None] = ()
) -> Hold:
    """A hold with its details in one line; `concerns`: advice elements or criteria."""
    detail = "; ".join(details)[:_DETAIL]
    return Hold(reason, detail, tuple(filter(None, concerns)))


# Why a case waits for a person
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

    A person's decision about the very same content remains in force; a case that a person rejected waits again when
    its content changes, and a reinstated case waits for an approval. A withdrawn case stays withdrawn, and criteria
    that were withdrawn from it are left out of the rubric; when too few are left, the case is held with its latest
    revision as it was. A case is held when a person's edit of it is replaced.

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
    kept = without_criteria(content.rubric, await withdrawn_criteria(session, case.id))
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
    """Apply what people decided about this content, or hold the case for them where its content changed."""
    case_id = case.id
    pending = await pending_decisions(session, case_id, saved.revision)
    if pending.action and not pending.is_reinstated:
        await apply_review(session, case_id, pending.action, pending.reason)
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


async def queue_proof(
    database: Database, settings: Settings, case_id: str
) -> tuple[int, bool]:
    """Queue the proof of a case's latest revision; the revision's number, and whether it was queued already.

    Raises UsageError for an unknown case or where nobody proves rubrics, CheckFailed for a proved revision.
    """
    if not proof_roles(settings):
        raise UsageError(
            "no model proves rubrics here",
            hint="[rubric] prove is off, or the role `rubric` is the rules engine",
        )
    async with database.begin() as session:
        _, case = await lock_latest(session, case_id)
        if case.rubric.ceiling is not None:
            raise CheckFailed(
                f"revision {case.revision} of case {case_id} is proved already"
            )
        is_new = await defer_proof(session, case_id, case.revision)
    return case.revision, not is_new


async def prove_again(pipeline: Pipeline, case_id: str, revision: int) -> str | None:
    """Prove a revision of a case that is still its latest, and store the proof.

    If the rubric passes, the case gets a further revision, the same but for the proof's figures. Returns why the proof
    failed if it is to be tried again, else None. Raises UsageError where nobody proves rubrics, EndpointUnavailable
    where the budget is spent, and CheckFailed without usable replies, which keeps no other job waiting.
    """
    if not pipeline.proves:
        raise UsageError("no model proves rubrics here")
    case = await pipeline.database.ask(latest_case, case_id)
    if case is None or case.revision != revision or case.rubric.ceiling is not None:
        return None
    limit_s = pipeline.settings.curation.thread_timeout_s
    try:
        async with pipeline.settled(), asyncio.timeout(limit_s):
            proof = await _prove(pipeline, case)
    except TimeoutError:
        _log.warning("%s was not proved within %g s", case_id, limit_s)
        return Reason.ENDPOINT_UNAVAILABLE.value
    except AgentFailure as failure:
        text = f"{case_id} was not proved: {failure.detail}"
        if failure.reason is Reason.ENDPOINT_UNAVAILABLE:
            _log.warning("%s", text)
            return failure.reason.value
        if failure.is_outage:
            raise EndpointUnavailable(text) from failure
        raise CheckFailed(text) from failure
    async with pipeline.database.begin() as session:
        _, latest = await lock_latest(session, case_id)
        if latest.revision != revision:
            _log.info("%s was edited while it was proved", case_id)
            return None
        if proof.passed:
            proved = replace(case.rubric, **asdict(proof.figures))
            saved = await add_revision(session, case_id, replace(case, rubric=proved))
            revision = saved.revision
        await save_proof(session, case.curation_id, proof, revision=revision)
    return None


async def _prove(pipeline: Pipeline, case: CaseContent) -> Proof:
    """Have probes (answers of known quality) written, and graded by the rubric as it is. Raises AgentFailure."""
    prober, grader, reader = (
        Agent(pipeline.respondents[role], [], case.language)
        for role in ("prober", "grader", "reader")
    )
    criteria = case.rubric.criteria
    written = await write_probes(case.text, prober)
    written = await read_for_harm(case.text, written, grader, reader)
    answers = [probe.answer for probe in written]
    grades = await grade_probes(case.text, criteria, answers, grader)
    probes = [replace(p, verdicts=v) for p, v in zip(written, grades, strict=True)]
    examination = examine(criteria, probes)
    return Proof(
        passed=examination.passed,
        rounds=0,
        figures=examination.figures,
        probes=tuple(probes),
        criteria=criteria,
        findings=(*examination.doubts, *examination.failures),
        engines={
            "prober": prober.identity.as_json(),
            "grader": grader.identity.as_json(),
        },
    )
