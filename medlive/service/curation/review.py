"""What people decide: approve, reject or edit a case, drop an element, overrule a rejection, dispute, resolve."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Annotated, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from medlive.clock import now
from medlive.curation.chain import curate_without_element
from medlive.curation.identified import ids_of
from medlive.curation.model import CaseText, Curation, Outcome, Reason, Side
from medlive.db.curation.cases import (
    StoredCase,
    add_revision,
    apply_review,
    lock_case,
    set_status,
)
from medlive.db.curation.curations import (
    latest_curation,
    load_curation,
    lock_revision,
)
from medlive.db.curation.funnel import filter_reason_of
from medlive.db.curation.reviews import (
    add_overrule,
    add_review,
    close_dispute,
    open_dispute,
    overrules_of,
)
from medlive.db.release.withdrawals import text_digest, withdrawn_criteria
from medlive.db.session import Database, Session
from medlive.db.tables.decisions import CurationRow, OverruleRow
from medlive.db.tables.people import Act
from medlive.db.tables.release import CaseStatus, DisputeRow, ReviewAction, ReviewRow
from medlive.db.threads.threads import load_thread, revisions_of
from medlive.digest import digest_json
from medlive.errors import CheckFailed, EndpointUnavailable, UsageError
from medlive.filters.model import FilterReason
from medlive.rubric.model import (
    SPECIALTIES,
    UNKNOWN_SPECIALTY,
    Axis,
    Criterion,
    Difficulty,
    Origin,
    Register,
    Rubric,
    Theme,
)
from medlive.rubric.write import lint_case
from medlive.service.curation.complete import CompletedCase
from medlive.service.curation.curate import complete_in, save_decision
from medlive.service.release.withdraw import (
    check_person_name,
    check_reason,
    find_criterion,
    load_latest_case,
)
from medlive.service.wiring import Pipeline
from medlive.service.work.jobs import defer_revisions, open_app
from medlive.threads.prepare import deidentified, normalised, thread_language

REDACTED = "[redacted]"
_INDISPENSABLE = frozenset(
    {
        FilterReason.EMPTY_THREAD,
        FilterReason.POSTED_UNKNOWN,
        FilterReason.LANGUAGE,
        FilterReason.NO_VERIFIED_REPLY,
        Reason.NO_QUERY,
        Reason.NO_NARRATIVE,
        Reason.NO_ADVICE,
    }
)
"""Reasons that nobody overrules: the thread lacks what a case is made of."""
_OVERRULED = (Outcome.REJECTED, Outcome.PARKED)

_Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)
]


_TEXTS = ("narrative", "query", "advice")


class _Edited(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


E = TypeVar("E", bound=_Edited)


class CriterionEdit(_Edited):
    """A criterion as a person wants it."""

    id: str | None = Field(
        default=None, description="The criterion that is changed; None: a new one."
    )
    criterion: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)
    ]
    axis: Axis
    points: int = Field(ge=-10, le=10)
    advice_id: str | None = Field(
        default=None, description="The advice element; None where it rests on none."
    )
    fact: str | None = None
    origin: Origin = Origin.ADVICE
    source: str = Field(
        default="",
        max_length=1000,
        description="Of evidence: the passage; of consensus: the models; else empty.",
    )

    @model_validator(mode="after")
    def _check_origin(self) -> Self:
        of_advice = self.origin is Origin.ADVICE
        if of_advice != bool(self.advice_id) or of_advice == bool(self.source):
            raise ValueError(
                "expected an advice_id and no source where the origin is advice, "
                "and a source and no advice_id elsewhere"
            )
        return self


class CaseEdit(_Edited):
    """A case as a person wants it; what is None stays as it is."""

    narrative: _Text | None = None
    query: _Text | None = None
    advice: _Text | None = None
    theme: Theme | None = None
    specialty: str | None = None
    difficulty: Difficulty | None = None
    dialogue_register: Register | None = None
    no_negative: str | None = None
    criteria: tuple[CriterionEdit, ...] | None = Field(
        default=None,
        description="The whole rubric in its order; a criterion that is left out is retired.",
    )

    @classmethod
    def of(cls, case: StoredCase) -> "CaseEdit":
        """The case as it is."""
        edit = cls.model_validate(case.rubric, from_attributes=True)
        return edit.model_copy(update=asdict(case.text))

    def apply(self, case: StoredCase) -> tuple[CaseText, Rubric]:
        """The edited texts and rubric. Raises UsageError for an unknown specialty, an unknown or repeated id."""
        given = self.model_dump(exclude_none=True, exclude={"criteria"})
        known = (UNKNOWN_SPECIALTY, *SPECIALTIES)
        if self.specialty is not None and self.specialty not in known:
            raise UsageError(
                f"unknown specialty {self.specialty[:80]!r}",
                hint="docs/method.md lists the 38",
            )
        if self.criteria is not None:
            given["criteria"] = _numbered(self.criteria, ids_of(case.rubric.criteria))
        texts = {name: given.pop(name) for name in _TEXTS if name in given}
        text, rubric = replace(case.text, **texts), replace(case.rubric, **given)
        if (text, rubric.criteria) != (case.text, case.rubric.criteria):
            rubric = rubric.unproved()
        return text, rubric


def _numbered(
    edited: tuple[CriterionEdit, ...], known: list[str]
) -> tuple[Criterion, ...]:
    """Criteria in their order; new ones get ids that the case's latest revision does not have."""
    ids = [c.id for c in edited if c.id is not None]
    unknown = sorted(set(ids) - set(known) or {i for i in ids if ids.count(i) > 1})
    if unknown:
        raise UsageError(
            f"unknown or repeated criterion {', '.join(unknown)}",
            hint=f"it has {', '.join(known)}",
        )
    last = max((int(i[1:]) for i in known), default=0)
    criteria = []
    for position, edit in enumerate(edited, start=1):
        last += edit.id is None
        wanted = edit.model_dump() | {"id": edit.id or f"c{last}"}
        criteria.append(Criterion(**wanted, position=position))
    return tuple(criteria)


async def decide_case(
    database: Database,
    case_id: str,
    action: ReviewAction,
    reason: str,
    *,
    of: int | None = None,
    by: str | None = None,
) -> ReviewRow:
    """Approve a held or rejected case for the next freeze, or reject a held or ready one until it changes.

    Raises UsageError, and CheckFailed for a case in another status, or one with a later revision than `of`, which
    was seen.
    """
    reason, by = check_reason(reason), check_person_name(by)
    async with database.begin() as session:
        status = await lock_case(session, case_id)
        other = (
            CaseStatus.REJECTED if action is ReviewAction.APPROVE else CaseStatus.READY
        )
        if status is not other:
            _check_held(case_id, status)
        case = await load_latest_case(session, case_id)
        _check_unchanged(case, of)
        review = await add_review(
            session,
            case_id,
            case.revision,
            action,
            reason,
            decided_by=by,
        )
        await apply_review(session, case_id, action, reason)
        return review


def _check_unchanged(case: StoredCase, of: int | None) -> None:
    if of not in (None, case.revision):
        raise CheckFailed(
            f"case {case.case_id} has changed since: its revision is {case.revision} now, not {of}",
            hint="look at it again and decide on that revision",
        )


def _check_held(case_id: str, status: CaseStatus) -> None:
    if status is not CaseStatus.HELD:
        raise CheckFailed(
            f"case {case_id} is {status.value}, not held",
            hint="medlive review list shows the held cases",
        )


async def drop_element(
    pipeline: Pipeline,
    case_id: str,
    element_id: str,
    reason: str,
    *,
    by: str | None = None,
) -> Curation:
    """Rewrite a held case without one of its advice elements, and store it with the person's decision.

    The case is ready when nothing else holds it. Nothing is changed when an error is raised: UsageError if the
    case cannot do without the element, CheckFailed if it is not held, EndpointUnavailable without usable replies.
    """
    reason, by = check_reason(reason), check_person_name(by)
    async with pipeline.database.begin() as session:
        _check_held(case_id, await lock_case(session, case_id))
        case = await load_latest_case(session, case_id)
        decided = await load_curation(session, case.curation_id)
        made = await session.get_one(CurationRow, case.curation_id)
        stored = await load_thread(session, made.revision_id)
    started = now()
    raw = normalised(stored.thread)
    language = thread_language(raw)
    curation = await curate_without_element(
        decided,
        element_id,
        deidentified(raw, language),
        language,
        pipeline.respondents,
        pipeline.curation,
    )
    completed = CompletedCase(curation, None)
    if curation.outcome is not Outcome.FAILED:
        completed = await complete_in(pipeline, curation, language, started)
    curation = completed.curation
    if completed.rubric is None or curation.text is None:
        raise EndpointUnavailable(f"the case could not be rewritten: {curation.detail}")
    dropped = sorted(e.id for e in curation.elements if e.status.value == "dropped")
    digest = digest_json([pipeline.digest, "without", dropped])
    async with pipeline.database.begin() as session:
        await lock_case(session, case_id)
        await add_review(
            session,
            case_id,
            case.revision,
            ReviewAction.DROP_ELEMENT,
            reason,
            element_id=element_id,
            decided_by=by,
        )
        await save_decision(
            session,
            pipeline,
            stored,
            language,
            completed,
            started=started,
            digest=digest,
        )
    return curation


async def load_edit(database: Database, case_id: str) -> CaseEdit:
    """A case as it can be edited. Raises UsageError for an unknown case."""
    async with database.begin() as session:
        await lock_case(session, case_id)
        return CaseEdit.of(await load_latest_case(session, case_id))


async def edit_case(
    database: Database,
    case_id: str,
    edit: CaseEdit,
    reason: str,
    *,
    of: int | None = None,
    by: str | None = None,
    act: Act = Act.EDIT,
) -> ReviewRow:
    """Give a case a new revision with a person's wording; a held one stays held until it is approved.

    A rejected case waits again, a ready one is in the next freeze as edited. Raises UsageError when nothing is
    changed or the linter finds a fault, and CheckFailed for a withdrawn case, or one with a later revision than
    `of`, which the edit was made of.
    """
    reason, by = check_reason(reason), check_person_name(by)
    async with database.begin() as session:
        status = await lock_case(session, case_id)
        if status is CaseStatus.WITHDRAWN:
            raise CheckFailed(f"case {case_id} is withdrawn")
        case = await load_latest_case(session, case_id)
        _check_unchanged(case, of)
        text, rubric = edit.apply(case)
        decided = await load_curation(session, case.curation_id)
        advice = decided.side(Side.ADVICE)
        faults = []
        for fault in lint_case(
            case.language,
            rubric.criteria,
            text,
            advice,
            rubric.no_negative,
        ):
            faults.append(f"{fault.criterion or 'rubric'}: {fault.detail}")
        gone = await withdrawn_criteria(session, case_id)
        for criterion in rubric.criteria:
            if text_digest(criterion.criterion) in gone:
                faults.append(f"{criterion.id}: was withdrawn")
        if faults:
            raise UsageError(f"{case_id} cannot be edited so: {'; '.join(faults)}")
        saved = await add_revision(
            session, case_id, replace(case, text=text, rubric=rubric)
        )
        if saved.revision == case.revision:
            raise UsageError(f"nothing in case {case_id} would change")
        if status is CaseStatus.REJECTED:
            await set_status(
                session, case_id, CaseStatus.HELD, "edited since it was rejected"
            )
        return await add_review(
            session,
            case_id,
            saved.revision,
            ReviewAction.EDIT,
            reason,
            decided_by=by,
            act=act,
        )


async def overrule_rejection(
    database: Database,
    source: str,
    thread_id: str,
    reason: str,
    *,
    by: str | None = None,
) -> OverruleRow:
    """Let a rejected or parked thread go on from there, and queue it; what follows may reject it again.

    Raises UsageError for an unknown thread, and CheckFailed for one that is not rejected, that waits already, or
    that lacks what a case is made of.
    """
    reason, by = check_reason(reason), check_person_name(by)
    async with open_app(database).open_async() as app, database.begin() as session:
        name = f"{source}/{thread_id}"
        revision = await _latest_revision(session, source, thread_id)
        curation_id, rejected_for = await _find_rejection(session, revision, name)
        if rejected_for in _INDISPENSABLE:
            raise CheckFailed(
                f"{name} was rejected for {rejected_for}: it lacks what a case is made of"
            )
        done = await add_overrule(
            session,
            name,
            revision,
            curation_id,
            rejected_for,
            reason,
            by,
        )
        await defer_revisions(app, session, [revision])
    return done


async def _find_rejection(
    session: Session, revision: int, name: str
) -> tuple[int | None, str]:
    """The decision that rejected or parked a revision (None: the filters), and its reason.

    Raises CheckFailed where there is none, or where it is overruled.
    """
    overruled = {o.curation_id for o in await overrules_of(session, revision)}
    decided = await latest_curation(session, revision)
    if decided is None or decided.outcome is Outcome.FAILED:
        found = None if decided else await filter_reason_of(session, revision)
        number, state = None, "failed" if decided else "waiting"
    else:
        found, number, state = decided.reason, decided.id, decided.outcome.value
        found = found if decided.outcome in _OVERRULED else None
    if found is None:
        hint = "medlive review approve takes a held case" if state == "held" else None
        raise CheckFailed(f"{name} is {state}, not rejected", hint=hint)
    if number in overruled:
        raise CheckFailed(
            f"{name} was overruled already",
            hint="the next `medlive curate` continues it",
        )
    return number, str(found)


async def redact_case(
    database: Database, case_id: str, words: str, reason: str, *, by: str | None = None
) -> ReviewRow:
    """Replace words by "[redacted]" in every text of a case; otherwise as `edit_case`.

    Frozen snapshots keep them: withdraw the case for privacy as well where one holds it.
    """
    if len(words := words.strip()) < 2:
        raise UsageError("at least two characters can be redacted")
    case = await load_edit(database, case_id)
    criteria = []
    for criterion in case.criteria or ():
        criteria.append(_without(words, criterion, ("criterion", "fact")))
    edit = _without(words, case, _TEXTS).model_copy(
        update={"criteria": tuple(criteria)}
    )
    return await edit_case(
        database,
        case_id,
        edit,
        reason,
        by=by,
        act=Act.REDACT,
    )


def _without(words: str, edit: E, names: Iterable[str]) -> E:
    """An edit whose texts of these names have "[redacted]" in place of the words."""
    texts = {}
    for name in names:
        if text := getattr(edit, name):
            texts[name] = text.replace(words, REDACTED)
    return edit.model_copy(update=texts)


async def _latest_revision(session: Session, source: str, thread_id: str) -> int:
    """The number of a thread's latest revision, locked. Raises UsageError for an unknown thread."""
    if not (revisions := await revisions_of(session, source, thread_id)):
        raise UsageError(
            f"unknown thread {source}/{thread_id}",
            hint="`medlive thread list` shows the threads",
        )
    await lock_revision(session, revisions[-1])
    return revisions[-1]


async def dispute_case(
    database: Database,
    case_id: str,
    reason: str,
    *,
    criterion_id: str | None = None,
    by: str | None = None,
) -> DisputeRow:
    """Dispute a case or a criterion (`c3` or `<case id>-c3`), which keeps it out of snapshots until resolved.

    The reason is not published. Raises UsageError for an unknown id, or a reason that is empty or longer than
    2,000 characters.
    """
    reason, by = check_reason(reason), check_person_name(by)
    async with database.begin() as session:
        await lock_case(session, case_id)
        number = None
        if criterion_id is not None:
            number = (await find_criterion(session, case_id, criterion_id))[1].id
        return await open_dispute(
            session,
            case_id,
            reason,
            criterion_id=number,
            opened_by=by,
        )


async def resolve_dispute(
    database: Database, number: int, resolution: str, *, by: str | None = None
) -> DisputeRow:
    """Close a dispute. Raises UsageError for an unknown dispute, CheckFailed for a closed one."""
    resolution, by = check_reason(resolution), check_person_name(by)
    async with database.begin() as session:
        return await close_dispute(session, number, resolution, closed_by=by)
