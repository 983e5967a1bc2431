"""Edit and redact cases: an edit of the latest revision becomes a new one, or is refused."""

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from medlive.curation.agent import by_id
from medlive.curation.model import CaseText, Side
from medlive.db.curation.cases import (
    CaseContent,
    add_revision,
    lock_case,
    set_status,
)
from medlive.db.curation.curations import load_curation
from medlive.db.curation.reviews import add_review
from medlive.db.release.withdrawals import text_digest, withdrawn_criteria
from medlive.db.session import Database, Session
from medlive.db.tables.people import Act
from medlive.db.tables.release import CaseStatus, ReviewAction, ReviewRow
from medlive.errors import CheckFailed, UsageError
from medlive.rubric.model import (
    SPECIALTIES,
    UNKNOWN_SPECIALTY,
    AskedPart,
    Axis,
    Criterion,
    Difficulty,
    Origin,
    Register,
    Rubric,
    Theme,
)
from medlive.rubric.write import lint_case
from medlive.service.release.withdraw import (
    check_person_name,
    check_reason,
    load_latest_case,
)

REDACTED = "[redacted]"

_Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)
]
_TEXTS = ("narrative", "query", "advice")
_STRICT = ConfigDict(frozen=True, extra="forbid")


class CriterionEdit(BaseModel):
    """A criterion as a person wants it."""

    model_config = _STRICT
    id: str | None = None  # The criterion that is changed; None: a new one
    criterion: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)
    ]
    axis: Axis
    points: int = Field(ge=-10, le=10)
    advice_id: str | None = None  # The advice element that it is based on; None: none
    fact: str | None = None
    origin: Origin = Origin.ADVICE
    # Of evidence: the passage; of consensus: the models; else empty
    source: str = Field(default="", max_length=1000)
    # The part of the query that it answers; None: as it was
    asked: str | None = Field(default=None, max_length=20)
    # Of a penalty: why answers commit it; None: as it was
    likely: str | None = Field(default=None, max_length=1000)

    @model_validator(mode="after")
    def _check_origin(self) -> Self:
        """A criterion of advice has an advice element, any other a source, and none has both."""
        of_advice = self.origin is Origin.ADVICE
        if of_advice != bool(self.advice_id) or of_advice == bool(self.source):
            raise ValueError(
                "expected an advice_id and no source where the origin is advice, "
                "and a source and no advice_id elsewhere"
            )
        return self


class CaseEdit(BaseModel):
    """A case as a person wants it; what is None stays as it is."""

    model_config = _STRICT
    revision: int | None = Field(
        default=None, ge=1
    )  # The one that the edit was made of
    narrative: _Text | None = None
    query: _Text | None = None
    advice: _Text | None = None
    theme: Theme | None = None
    specialty: str | None = None
    difficulty: Difficulty | None = None
    dialogue_register: Register | None = None
    no_negative: str | None = None
    # The parts of the query, which criteria answer
    asked: tuple[AskedPart, ...] | None = None
    # The whole rubric in its order; a criterion that is left out is retired
    criteria: tuple[CriterionEdit, ...] | None = None

    @classmethod
    def of(cls, case: CaseContent) -> "CaseEdit":
        """The case as it is."""
        edit = cls.model_validate(case.rubric, from_attributes=True)
        return edit.model_copy(update=asdict(case.text) | {"revision": case.revision})

    def apply(self, case: CaseContent) -> tuple[CaseText, Rubric]:
        """The edited texts and rubric. Raises UsageError for what cannot be."""
        changes = self.model_dump(
            exclude_none=True, exclude={"criteria", "asked", "revision"}
        )
        known = (UNKNOWN_SPECIALTY, *SPECIALTIES)
        if self.specialty is not None and self.specialty not in known:
            raise UsageError(
                f"unknown specialty {self.specialty[:80]!r}",
                hint="docs/method.md lists the 38",
            )
        if self.criteria is not None:
            changes["criteria"] = _numbered(self.criteria, by_id(case.rubric.criteria))
        if self.asked is not None:
            if not all(part.text.strip() for part in self.asked):
                raise UsageError("a part of the query has no text")
            if len({part.id for part in self.asked}) < len(self.asked):
                raise UsageError("two parts of the query share an id")
            changes["asked"] = self.asked
        texts = {name: changes.pop(name) for name in _TEXTS if name in changes}
        text, rubric = replace(case.text, **texts), replace(case.rubric, **changes)
        if (text, rubric.criteria) != (case.text, case.rubric.criteria):
            rubric = rubric.unproved()
        return text, rubric


def _numbered(
    edited: tuple[CriterionEdit, ...], known: Mapping[str, Criterion]
) -> tuple[Criterion, ...]:
    """Criteria in their order; new ones get ids that are not in `known`, the case's latest criteria."""
    ids = [c.id for c in edited if c.id is not None]
    unknown = sorted(set(ids) - known.keys() or {i for i in ids if ids.count(i) > 1})
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
        earlier = known.get(edit.id or "")
        for name in ("asked", "likely"):
            if wanted[name] is None:
                wanted[name] = getattr(earlier, name) if earlier else ""
        criteria.append(Criterion(**wanted, position=position))
    return tuple(criteria)


class StaleEdit(CheckFailed):
    """The case has a later revision than the one that a person saw."""

    def __init__(self, case_id: str, seen: int, latest: int) -> None:
        """Keep the number of the latest revision."""
        self.latest = latest
        super().__init__(
            f"case {case_id} has changed since: its revision is {latest} now, not {seen}",
            hint="nothing was saved; look at the latest revision",
        )


async def lock_latest(
    session: Session, case_id: str, of: int | None = None
) -> tuple[CaseStatus, CaseContent]:
    """Lock a case; its status and its latest revision.

    Raises UsageError for an unknown case, and StaleEdit where its latest revision is not `of`, which a person saw.
    """
    status = await lock_case(session, case_id)
    case = await load_latest_case(session, case_id)
    if of is not None and of != case.revision:
        raise StaleEdit(case_id, of, case.revision)
    return status, case


async def load_edit(database: Database, case_id: str) -> CaseEdit:
    """A case as it can be edited. Raises UsageError for an unknown case."""
    _, case = await database.ask(lock_latest, case_id)
    return CaseEdit.of(case)


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
    changed or the linter finds a fault, CheckFailed for a withdrawn case, and StaleEdit for one with a later
    revision than `of`, which the edit was made of.
    """
    reason, by = check_reason(reason), check_person_name(by)
    async with database.begin() as session:
        status, case = await lock_latest(session, case_id, of)
        if status is CaseStatus.WITHDRAWN:
            raise CheckFailed(f"case {case_id} is withdrawn")
        text, rubric = edit.apply(case)
        decided = await load_curation(session, case.curation_id)
        advice = decided.side(Side.ADVICE)
        faults = []
        for fault in lint_case(case.language, rubric, text, advice):
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
        review = ReviewRow(
            case_id=case_id,
            revision=saved.revision,
            action=ReviewAction.EDIT,
            reason=reason,
            decided_by=by,
        )
        return await add_review(session, review, act)


async def redact_case(
    database: Database, case_id: str, words: str, reason: str, *, by: str | None = None
) -> ReviewRow:
    """Replace words by "[redacted]" in every text of a case, in small or capital letters; otherwise as `edit_case`.

    Frozen snapshots keep them: withdraw the case for privacy as well where one holds it.
    """
    if len(words := words.strip()) < 2:
        raise UsageError("at least two characters can be redacted")
    case = await load_edit(database, case_id)
    # As they are written, and as whole words in other letters or with other spaces
    spelt = r"\s+".join(map(re.escape, words.split()))
    other = rf"(?<![A-Za-z0-9]){spelt}(?![A-Za-z0-9])"
    pattern = re.compile(rf"{re.escape(words)}|(?i:{other})")

    def without(own: object, *names: str) -> dict[str, object]:
        """The named texts of `own` without the words."""
        texts = {name: getattr(own, name) for name in names}
        return {name: t and pattern.sub(REDACTED, t) for name, t in texts.items()}

    changes = without(case, *_TEXTS, "no_negative")
    criteria, asked = list[CriterionEdit](), list[AskedPart]()
    for criterion in case.criteria or ():
        own = without(criterion, "criterion", "fact", "likely")
        criteria.append(criterion.model_copy(update=own))
    for part in case.asked or ():
        asked.append(AskedPart(part.id, pattern.sub(REDACTED, part.text)))
    changes |= {"criteria": tuple(criteria), "asked": tuple(asked)}
    return await edit_case(
        database,
        case_id,
        case.model_copy(update=changes),
        reason,
        of=case.revision,
        by=by,
        act=Act.REDACT,
    )
