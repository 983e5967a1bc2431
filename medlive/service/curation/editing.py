"""Cases as people edit them: each edit is a new revision, made of the latest one or refused."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from medlive.curation.identified import by_id
from medlive.curation.model import CaseText, Side
from medlive.db.curation.cases import (
    StoredCase,
    add_revision,
    find_revision,
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
_KINDS = ("theme", "specialty", "difficulty", "dialogue_register", "no_negative")


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
    asked: str | None = Field(
        default=None,
        max_length=20,
        description="The part of the query that it answers; None: as it was.",
    )
    likely: str | None = Field(
        default=None,
        max_length=1000,
        description="Of a penalty: why answers commit it; None: as it was.",
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
        changes = self.model_dump(exclude_none=True, exclude={"criteria", "revision"})
        known = (UNKNOWN_SPECIALTY, *SPECIALTIES)
        if self.specialty is not None and self.specialty not in known:
            raise UsageError(
                f"unknown specialty {self.specialty[:80]!r}",
                hint="docs/method.md lists the 38",
            )
        if self.criteria is not None:
            changes["criteria"] = _numbered(self.criteria, by_id(case.rubric.criteria))
        texts = {name: changes.pop(name) for name in _TEXTS if name in changes}
        text, rubric = replace(case.text, **texts), replace(case.rubric, **changes)
        if (text, rubric.criteria) != (case.text, case.rubric.criteria):
            rubric = rubric.unproved()
        return text, rubric


class EditFile(CaseEdit):
    """A case as a person wants it, and the revision that it was made of."""

    revision: int = Field(ge=1, description="The revision that the edit was made of.")


def _numbered(
    edited: tuple[CriterionEdit, ...], known: Mapping[str, Criterion]
) -> tuple[Criterion, ...]:
    """Criteria in their order; new ones get ids that the case's latest revision does not have."""
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


@dataclass(frozen=True, slots=True)
class EditedPart:
    """What a part of a case says in the revision that was edited, in the latest one, and in the edit."""

    part: str  # A text or a kind by its name, or a criterion's id
    base: str
    latest: str
    edited: str

    @property
    def contested(self) -> bool:
        """Whether two people changed it, and not alike."""
        return len({self.base, self.latest, self.edited}) == 3


class StaleEdit(CheckFailed):
    """The case was edited since the revision that an edit was made of."""

    def __init__(
        self, case_id: str, base: int, latest: int, differences: tuple[EditedPart, ...]
    ) -> None:
        """Keep both revisions' numbers, and what differs."""
        self.base, self.latest, self.differences = base, latest, differences
        super().__init__(
            f"case {case_id} has changed since: its revision is {latest} now, and this edit was made of {base}",
            hint="nothing was saved; edit the latest revision",
        )


async def _check_latest(
    session: Session, case: StoredCase, edit: CaseEdit, of: int
) -> None:
    """See that an edit was made of the latest revision. Raises StaleEdit, UsageError for an unknown revision."""
    if of == case.revision:
        return
    base = await find_revision(session, case.case_id, of)
    if base is None:
        raise UsageError(
            f"case {case.case_id} has no revision {of}",
            hint=f"its latest is {case.revision}",
        )
    differences = tuple(_differences(base, case, edit))
    raise StaleEdit(case.case_id, of, case.revision, differences)


def _differences(
    base: StoredCase, latest: StoredCase, edit: CaseEdit
) -> Iterator[EditedPart]:
    """What somebody else, the edit, or both changed."""
    stated = {name: getattr(edit, name) for name in CaseEdit.model_fields}
    changed = {name: value for name, value in stated.items() if value is not None}
    old = CaseEdit.of(base)
    parts = [_parts(each) for each in (old, CaseEdit.of(latest))]
    parts.append(_parts(old.model_copy(update=changed)))
    for name in dict.fromkeys(name for each in parts for name in each):
        texts = [each.get(name, "") for each in parts]
        if len(set(texts)) > 1:
            yield EditedPart(name, *texts)


def _parts(edit: CaseEdit) -> Mapping[str, str]:
    """The texts, kinds and criteria of an edit, by name or id."""
    parts = {name: str(getattr(edit, name)) for name in (*_TEXTS, *_KINDS)}
    for place, criterion in enumerate(edit.criteria or (), start=1):
        name = criterion.id or f"new criterion in place {place}"
        parts[name] = f"{criterion.points:+} {criterion.axis}: {criterion.criterion}"
    return parts


async def load_edit(database: Database, case_id: str) -> EditFile:
    """A case as it can be edited. Raises UsageError for an unknown case."""
    async with database.begin() as session:
        await lock_case(session, case_id)
        case = await load_latest_case(session, case_id)
    return EditFile(revision=case.revision, **CaseEdit.of(case).model_dump())


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
        status = await lock_case(session, case_id)
        if status is CaseStatus.WITHDRAWN:
            raise CheckFailed(f"case {case_id} is withdrawn")
        case = await load_latest_case(session, case_id)
        if of is not None:
            await _check_latest(session, case, edit, of)
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
            asked=rubric.asked,
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
        of=case.revision,
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
