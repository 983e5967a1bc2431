"""The routes of acts: a case's own page with the form to edit it, one address for every act, the log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from medlive.db.accounts import Account
from medlive.db.audit_log import list_entries
from medlive.db.curation.cases import (
    StoredCase,
    find_case,
    latest_case,
)
from medlive.db.curation.proofs import unproved_since
from medlive.db.tables.people import AuditLogRow
from medlive.errors import MedliveError, UsageError
from medlive.rubric.model import (
    SPECIALTIES,
    UNKNOWN_SPECIALTY,
    Axis,
    Difficulty,
    Origin,
    Register,
    Theme,
)
from medlive.web.accounts.access import Admin, Viewer
from medlive.web.acts import final
from medlive.web.acts.actions import Actions, Asked, case_actions, perform
from medlive.web.acts.final import sentence
from medlive.web.pages import TEMPLATES, Page, local_path, render
from medlive.web.site import Room, Section, Site, SiteOf, Text

if TYPE_CHECKING:
    from medlive.service.curation.editing import StaleEdit

router: Final = APIRouter(prefix="/acts", include_in_schema=False)
router.include_router(final.router)
ACTS: Final = Room(False, router, (Section("Log", "/acts/log"),))
NEW_ROWS: Final = 2  # Empty rows for further criteria

Kind = Literal["case", "thread", "source", "step", "dispute"]


_TEXTS: Final = ("narrative", "query", "advice")
_CRITERION: Final = (
    "id",
    "criterion",
    "axis",
    "points",
    "advice_id",
    "fact",
    "origin",
    "source",
)
"""The fields of a criterion in the form to edit a case."""
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "theme": tuple(Theme),
    "specialty": (UNKNOWN_SPECIALTY, *SPECIALTIES),
    "difficulty": tuple(Difficulty),
    "dialogue_register": tuple(Register),
}


TEMPLATES.globals |= {
    "axis_choices": tuple(Axis),
    "origin_choices": tuple(Origin),
    "kind_choices": _KINDS,
}


@dataclass(frozen=True)
class CasePage(Page):
    """A case with the form to edit it, what else may be done, and what was done before."""

    template = "acts/case.html"
    case_id: str
    status: str
    status_reason: str | None
    revision: int
    language: str
    # The fields of the form, as the case has them or as they were sent
    values: Mapping[str, object]
    criteria: tuple[Mapping[str, object], ...]
    actions: Actions
    entries: tuple[AuditLogRow, ...]
    reason: str = ""
    error: str | None = None
    stale: "StaleEdit | None" = None  # What somebody else changed meanwhile


@dataclass(frozen=True)
class RefusedPage(Page):
    """Why an act changed nothing, and what was done before."""

    template = "acts/refused.html"
    message: str
    back: str
    entries: tuple[AuditLogRow, ...]


@dataclass(frozen=True)
class QueuedPage(Page):
    """That the proof of a rubric waits for whoever curates."""

    template = "acts/queued.html"
    case_id: str
    revision: int
    back: str


@dataclass(frozen=True)
class LogPage(Page):
    """What people did, the latest first."""

    template = "acts/log.html"
    entries: tuple[AuditLogRow, ...]
    # Before which number the next page begins; None: this is the last one
    older: int | None
    newest: bool  # Whether it is the first page


@router.get("/log")
async def show_log(
    request: Request, site: SiteOf, account: Viewer, before: int | None = None
) -> Response:
    """A page of the audit log."""
    async with site.database.begin() as session:
        entries = await list_entries(session, before=before, limit=101)
    return render(
        request,
        LogPage(
            tuple(entries[:100]),
            entries[99].number if len(entries) > 100 else None,
            before is None,
        ),
    )


@router.get("/case/{case_id}")
async def show_case(
    request: Request, site: SiteOf, account: Admin, case_id: str
) -> Response:
    """A case, to be edited or decided."""
    return await _case_page(request, site, account, case_id)


@router.post("/case/{case_id}/edit")
async def edit(
    request: Request, site: SiteOf, account: Admin, case_id: str
) -> Response:
    """Give the case a new revision; a criterion whose text is emptied is retired."""
    from medlive.service.curation.editing import CaseEdit, edit_case

    form = {name: str(value) for name, value in (await request.form()).items()}
    criteria = _criteria_of(form)
    changes = {name: form.get(name, "") for name in (*_TEXTS, *_KINDS)}
    try:
        kept = tuple(
            {
                **c,
                "id": c["id"] or None,
                "fact": c["fact"] or None,
                "advice_id": c["advice_id"] or None,
            }
            for c in criteria
            if c["criterion"].strip()
        )
        wanted = CaseEdit.model_validate(changes | {"criteria": kept})
        reason, revision = form.get("reason", ""), _number(form.get("revision", ""))
        if revision is None:
            raise UsageError("the form does not say which revision was edited")
        await edit_case(
            site.database, case_id, wanted, reason, of=revision, by=account.name
        )
    except (ValidationError, MedliveError) as error:
        return await _case_page(
            request,
            site,
            account,
            case_id,
            changes,
            criteria,
            form.get("reason", ""),
            error,
        )
    return RedirectResponse(f"/acts/case/{case_id}", 303)


@router.post("/case/{case_id}/prove")
async def prove(
    request: Request, site: SiteOf, account: Admin, case_id: str
) -> Response:
    """Have the case's rubric proved again, in the background."""
    from medlive.service.curation.prove import queue_proof

    back = f"/acts/case/{case_id}"
    try:
        revision, _ = await queue_proof(site.database, site.settings, case_id)
    except MedliveError as error:
        return render(request, RefusedPage(sentence(error), back, ()), 422)
    return render(request, QueuedPage(case_id, revision, back))


@router.post("/{kind}/{subject:path}")
async def act(
    request: Request,
    site: SiteOf,
    account: Admin,
    kind: Kind,
    subject: str,
    act: Text = "",
    reason: Text = "",
    criterion: Text = "",
    words: Text = "",
    back: Text = "",
    revision: Text = "",
) -> Response:
    """Do one of `actions.perform`; what cannot be done is said with its reason."""
    back = local_path(back or f"/acts/case/{subject}")
    reason, seen = reason.strip(), _number(revision)
    try:
        if not reason:
            raise UsageError("an act needs a reason")
        asked = Asked(
            site,
            account.name,
            subject,
            reason,
            criterion,
            words,
            seen,
        )
        await perform(kind, act, asked)
    except MedliveError as error:
        async with site.database.begin() as session:
            log = await list_entries(session, subject=f"{kind}:{subject}", limit=5)
        whole = not words and not criterion
        if not (whole and _is_repeated(log, act, account, reason)):
            page = RefusedPage(sentence(error), back, tuple(log))
            return render(request, page, 422)
    return RedirectResponse(back, 303)


def _is_repeated(
    log: Sequence[AuditLogRow], act: str, account: Account, reason: str
) -> bool:
    """Whether the latest entry is this very act: the form was sent twice."""
    if not log:
        return False
    return (log[0].action, log[0].by, log[0].reason) == (act, account.name, reason)


async def _case_page(
    request: Request,
    site: Site,
    account: Account,
    case_id: str,
    values: Mapping[str, object] | None = None,
    criteria: tuple[Mapping[str, object], ...] = (),
    reason: str = "",
    error: Exception | None = None,
) -> Response:
    from medlive.service.curation.editing import StaleEdit

    async with site.database.begin() as session:
        try:
            row = await find_case(session, case_id)
        except UsageError as unknown:
            raise HTTPException(404, sentence(unknown)) from unknown
        case = await latest_case(session, case_id)
        if case is None:
            raise HTTPException(404)
        log = await list_entries(session, subject=f"case:{case_id}")
        unproved = await unproved_since(session, case_id)
    actions = case_actions(
        account,
        case_id,
        row.status.value,
        case.revision,
        tuple(c.id for c in case.rubric.criteria),
        unproved_since=unproved,
        settings=site.settings,
    )
    assert actions is not None  # The route is for admins
    page = CasePage(
        case_id,
        row.status.value,
        row.status_reason,
        case.revision,
        case.language,
        values or _values_of(case),
        criteria or _rows_of(case),
        actions,
        tuple(log),
        reason=reason,
        error=None if error is None else _sentence(error),
        stale=error if isinstance(error, StaleEdit) else None,
    )
    return render(request, page, 200 if error is None else 422)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _values_of(case: StoredCase) -> Mapping[str, object]:
    return {name: getattr(case.text, name) for name in _TEXTS} | {
        n: getattr(case.rubric, n) for n in _KINDS
    }


def _rows_of(case: StoredCase) -> tuple[Mapping[str, object], ...]:
    """The rubric's rows as the form shows them, and empty ones for further criteria."""
    rows = []
    for criterion in case.rubric.criteria:
        rows.append({name: getattr(criterion, name) or "" for name in _CRITERION})
    advice_id = rows[0]["advice_id"] if rows else ""
    new: dict[str, object] = dict.fromkeys(_CRITERION, "")
    new |= {"points": 5, "advice_id": advice_id, "origin": Origin.ADVICE}
    return (*rows, *[new] * NEW_ROWS)


def _criteria_of(form: Mapping[str, str]) -> tuple[Mapping[str, str], ...]:
    """The rubric's rows as they were sent, in their order."""
    numbers = sorted(
        {int(name[1:].partition("-")[0]) for name in form if _is_row(name)}
    )
    return tuple(
        {name: form.get(f"c{number}-{name}", "") for name in _CRITERION}
        for number in numbers
    )


def _is_row(name: str) -> bool:
    number, dash, _ = name.removeprefix("c").partition("-")
    return (
        name.startswith("c")
        and bool(dash)
        and number.isascii()
        and number.isdigit()
        and len(number) < 4
    )


def _sentence(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(
            f"{' '.join(map(str, fault['loc']))}: {fault['msg']}"
            for fault in error.errors()
        )
    assert isinstance(error, MedliveError)
    return sentence(error)
