"""The routes of acts: a case's own page with the form to edit it, one address for every act, the log."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Form, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from medlive.db.accounts import Account
from medlive.db.audit_log import list_entries
from medlive.db.curation.cases import (
    CaseContent,
    find_case,
    latest_case,
)
from medlive.db.curation.proofs import unproved_since
from medlive.db.tables.people import AuditLogRow
from medlive.errors import MedliveError, UsageError, first_fault
from medlive.rubric.model import Origin
from medlive.snapshot.model import ENUMERATIONS
from medlive.web.accounts.access import Admin, Viewer
from medlive.web.pages import (
    TEMPLATES,
    local_path,
    notice,
    refusing,
    render,
)
from medlive.web.site import Room, Section, Site, SiteOf

from . import final
from .actions import ActForm, case_actions, parse_number, perform

router = APIRouter(prefix="/acts")
router.include_router(final.router)
ACTS = Room(False, router, (Section("Log", "/acts/log"),))
NEW_ROWS = 2  # Empty rows for further criteria

Kind = Literal["case", "thread", "source", "step", "dispute"]


_TEXTS = ("narrative", "query", "advice")
_CRITERION = (
    "id",
    "criterion",
    "axis",
    "points",
    "advice_id",
    "fact",
    "origin",
    "source",
)
"""The fields of a criterion in the form to edit a case, which sends each once for every criterion."""
_KINDS = ("theme", "specialty", "difficulty", "dialogue_register")
"""The fields of a case that are chosen from a list."""


TEMPLATES.globals |= {"choices": ENUMERATIONS, "kinds_of_case": _KINDS}


@router.get("/log")
async def show_log(
    request: Request, site: SiteOf, account: Viewer, before: int | None = None
) -> Response:
    """A page of the audit log."""
    entries = await site.database.ask(list_entries, before=before, limit=101)
    return render(
        request,
        "acts/log.html",
        entries=entries[:100],
        older=entries[99].number if len(entries) > 100 else None,
        newest=before is None,
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

    form = await request.form()

    def sent(name: str) -> list[str]:
        # A browser sends every line's end as two characters.
        return [str(text).replace("\r\n", "\n") for text in form.getlist(name)]

    def last(name: str) -> str:
        return ["", *sent(name)][-1]

    criteria, asked = [], []
    try:
        for values in zip(*map(sent, _CRITERION), strict=True):
            criteria.append(dict(zip(_CRITERION, values, strict=True)))
        for name, text in zip(sent("asked_id"), sent("asked"), strict=True):
            asked.append({"id": name, "text": text.strip()})
    except ValueError as error:
        # The fields cannot be told apart by criterion.
        text = "A field of the form is missing or repeated. Load the page again."
        raise HTTPException(422, text) from error
    changes: dict[str, object] = {name: last(name) for name in (*_TEXTS, *_KINDS)}
    changes["asked"] = asked or None
    reason = last("reason")
    try:
        kept = []
        for row in criteria:
            if row["criterion"].strip():
                unset = {
                    name: row[name] or None for name in ("id", "fact", "advice_id")
                }
                kept.append({**row, **unset})
        wanted = CaseEdit.model_validate(changes | {"criteria": kept})
        revision = parse_number(last("revision"))
        if revision is None:
            raise UsageError("the form does not say which revision was edited")
        await edit_case(
            site.database, case_id, wanted, reason, of=revision, by=account.name
        )
    except (ValidationError, MedliveError) as error:
        return await _case_page(
            request, site, account, case_id, changes, criteria, reason, error
        )
    return RedirectResponse(f"/acts/case/{case_id}", 303)


@router.post("/case/{case_id}/prove")
async def prove(
    request: Request, site: SiteOf, account: Admin, case_id: str
) -> Response:
    """Have the case's rubric proved again, in the background."""
    from medlive.service.curation.complete import queue_proof

    back = f"/acts/case/{case_id}"
    try:
        revision, _ = await queue_proof(site.database, site.settings, case_id)
    except MedliveError as error:
        return _refusal(request, error, back)
    text = (
        f"Revision {revision} of {case_id} is proved by the next `medlive curate`, or by a worker at once. "
        "If it passes, the case has a further revision, the same but for its figures."
    )
    links = [("Back to the case", back)]
    return notice(request, "The proof is queued", text, links=links)


@router.post("/{kind}/{subject:path}")
async def act(
    request: Request,
    site: SiteOf,
    account: Admin,
    kind: Kind,
    subject: str,
    form: Annotated[ActForm, Form()],
) -> Response:
    """Do one of `actions.perform`; what cannot be done is said with its reason."""
    back = local_path(form.back or f"/acts/case/{subject}")
    try:
        if not form.reason.strip():
            raise UsageError("an act needs a reason")
        await perform(site, account.name, kind, subject, form)
    except MedliveError as error:
        about = f"{kind}:{subject}"
        log = await site.database.ask(list_entries, subject=about, limit=5)
        return _refusal(request, error, back, log)
    return RedirectResponse(back, 303)


def _refusal(
    request: Request, error: MedliveError, back: str, log: Sequence[AuditLogRow] = ()
) -> Response:
    """Why an act changed nothing, and what was done before."""
    title, links = "Nothing was changed", [("Back to where you were", back)]
    return notice(request, title, error.whole, 422, links=links, entries=log)


async def _case_page(
    request: Request,
    site: Site,
    account: Account,
    case_id: str,
    values: Mapping[str, object] | None = None,
    criteria: Sequence[Mapping[str, object]] = (),
    reason: str = "",
    error: Exception | None = None,
) -> Response:
    """A case's page; after an edit that was refused, with what was sent and the error."""
    from medlive.service.curation.editing import StaleEdit

    async with site.database.begin() as session:
        with refusing(404, UsageError):
            row = await find_case(session, case_id)
        case = await latest_case(session, case_id)
        if case is None:
            raise HTTPException(404)
        log = await list_entries(session, subject=f"case:{case_id}")
        unproved = await unproved_since(session, case_id)
    actions = case_actions(
        case_id,
        row.status.value,
        case.revision,
        tuple(criterion.id for criterion in case.rubric.criteria),
        unproved_since=unproved,
    )
    if not values:
        values = {name: getattr(case.text, name) for name in _TEXTS}
        values |= {name: getattr(case.rubric, name) for name in (*_KINDS, "asked")}
    message = None
    if isinstance(error, ValidationError):
        message = first_fault(error)
    elif isinstance(error, MedliveError):
        message = error.whole
    return render(
        request,
        "acts/case.html",
        200 if error is None else 422,
        case_id=case_id,
        status=row.status.value,
        status_reason=row.status_reason,
        revision=case.revision,
        language=case.language,
        values=values,
        criteria=criteria or _rows_of(case),
        actions=actions,
        entries=log,
        reason=reason,
        error=message,
        stale=error if isinstance(error, StaleEdit) else None,
    )


def _rows_of(case: CaseContent) -> Sequence[Mapping[str, object]]:
    """The rubric's rows as the form shows them, and empty ones for further criteria."""
    rows: list[dict[str, object]] = []
    for criterion in case.rubric.criteria:
        rows.append({name: getattr(criterion, name) or "" for name in _CRITERION})
    advice_id = rows[0]["advice_id"] if rows else ""
    new: dict[str, object] = dict.fromkeys(_CRITERION, "")
    new |= {
        "points": 5,
        "advice_id": advice_id,
        "origin": Origin.ADVICE,
    }
    return [*rows, *[new] * NEW_ROWS]
