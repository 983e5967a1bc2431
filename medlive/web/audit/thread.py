"""What the page of a thread or a case shows."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus

from fastapi import Request
from starlette.datastructures import QueryParams

from medlive.curation.model import Reason
from medlive.db.accounts import Account
from medlive.db.audit.details import (
    CaseRevision,
    find_replies,
    list_memberships,
    list_revisions,
)
from medlive.db.audit.listing import load_page
from medlive.db.audit_log import list_entries
from medlive.db.mapping import Record
from medlive.db.session import Session
from medlive.db.studies import has_open_study, is_checked_blind
from medlive.rubric.model import Criterion, Origin
from medlive.service.listings import without_identifiers
from medlive.web.acts.actions import Actions, case_actions, thread_actions
from medlive.web.audit.marking import Change, compare, mark_thread
from medlive.web.audit.pages import (
    Advice,
    Link,
    RevisionStep,
    ThreadPage,
)
from medlive.web.audit.state import TABLE, State
from medlive.web.audit.tables import TABLES
from medlive.web.audit.window import Place, messages_shown, pages_of, parts_shown
from medlive.web.site import site_of

_FIELDS: Final = (
    "narrative",
    "query",
    "advice",
    "theme",
    "specialty",
    "difficulty",
    "dialogue_register",
)
_Record = Mapping[str, Any]
_NO_CURATION: Final[_Record] = {"elements": (), "claims": (), "calls": (), "checks": ()}


async def load_thread_page(
    session: Session,
    record: dict[str, Any],
    account: Account,
    request: Request,
    part: Place,
    *,
    of_case: bool,
) -> ThreadPage:
    """The page about what `inspect_thread` found of a part of a thread: its case, if `of_case`, or the thread.

    The query of the request says which list led to it.
    """
    curation = record["curation"] or _NO_CURATION
    shown = messages_shown(request, part, record["thread"])
    parts = parts_shown(request, record["thread"]["messages"])
    title, messages = await asyncio.to_thread(
        mark_thread, record["thread"], curation["elements"]
    )
    quoted = {element["message_id"] for element in curation["elements"]}
    elements = _group(curation["elements"], "side")
    criteria = _group(record["criteria"], "advice_id")
    advice = _advice(elements.get("advice", ()), curation["claims"], criteria)
    calls = curation["calls"]
    requests = {call["request_digest"] for call in calls}
    failed_checks = [check for check in curation["checks"] if not check["passed"]]
    query = QueryParams(request.url.query)
    table = query.get(TABLE, "")
    state = State.parse(table if table in TABLES else "threads", query)
    before, after = await _neighbours(session, state)
    subject = _subject(request, account, record, of_case=of_case)
    history = await _history(session, account, record["case"])
    return ThreadPage(
        record=record,
        language=_language(record["thread"]["title"]),
        title=title,
        messages=messages,
        shown=shown,
        parts=parts,
        elsewhere=pages_of(request, part, quoted),
        elements=elements,
        flags=_group(failed_checks, "subject"),
        advice=advice,
        loose=[c for rest in criteria.values() for c in rest],
        calls=calls,
        replies=await find_replies(session, requests),
        decision_links=_decision_links(request, record["decisions"]),
        revisions=history.steps,
        memberships=history.memberships,
        withheld=history.withheld,
        entries=await list_entries(session, subject=subject.name),
        actions=subject.actions,
        before=before,
        after=after,
        back=(TABLES[state.table].title, state.page()),
    )


def _language(title: str) -> str:
    has_han = any("\u4e00" <= character <= "\u9fff" for character in title)
    return "zh" if has_han else "en"


def _advice(
    elements: Iterable[_Record],
    claims: Iterable[_Record],
    criteria: dict[str, list[_Record]],
) -> list[Advice]:
    """Each advice with its claim and its criteria, which are taken out of `criteria`."""
    claim_of = {claim["element_id"]: claim for claim in claims}
    advice = []
    for element in elements:
        own_criteria = criteria.pop(element["id"], [])
        advice.append(Advice(element, claim_of.get(element["id"]), own_criteria))
    return advice


def _decision_links(request: Request, decisions: Iterable[_Record]) -> dict[int, str]:
    """The address of this page with each decision."""
    here = request.url.replace(scheme="", netloc="")
    links = {}
    for decision in decisions:
        number = decision["number"]
        links[number] = str(here.include_query_params(decision=number))
    return links


class _Subject(NamedTuple):
    """What a page is about, by its name in the log, and what the account may do to it."""

    name: str
    actions: Actions | None


def _subject(
    request: Request, account: Account, record: _Record, *, of_case: bool
) -> _Subject:
    url, thread, case = request.url, record["thread"], record["case"]
    place = f"{url.path}?{url.query}" if url.query else url.path
    if of_case:
        case_id = case["case_id"]
        criteria = tuple(criterion["id"] for criterion in record["criteria"])
        actions = case_actions(
            account,
            case_id,
            case["status"],
            case["revision"],
            criteria,
            unproved_since=case["unproved_since"],
            settings=site_of(request).settings,
            back=place,
        )
        return _Subject(f"case:{case_id}", actions)
    source, thread_id = thread["source"], thread["thread_id"]
    curation = record["curation"]
    actions = thread_actions(
        account,
        source,
        thread_id,
        _outcome(record),
        back=place,
        waits=_waiting(record),
        veto=curation is not None and curation["reason"] == Reason.CONTRADICTED,
    )
    return _Subject(f"thread:{source}/{thread_id}", actions)


def _waiting(record: _Record) -> tuple[str, ...]:
    """Who overruled the latest decision, a veto that takes more people."""
    if not record["decisions"]:
        return ()
    latest = record["decisions"][0]["number"]
    names = {}
    for overrule in record["overruled"]:
        if overrule["curation_id"] == latest:
            names[overrule["decided_by"]] = overrule["people"]
    return tuple(names) if len(names) < max(names.values(), default=0) else ()


class _History(NamedTuple):
    """What became of a case."""

    steps: list[RevisionStep]
    memberships: Sequence[Record]
    withheld: bool


async def _history(
    session: Session, account: Account, case: _Record | None
) -> _History:
    """A case's revisions and releases; empty without a case."""
    if case is None:
        return _History([], [], withheld=False)
    case_id = case["case_id"]
    revisions = await list_revisions(session, case_id)
    rates = await has_open_study(session, account.name)
    return _History(
        steps=await asyncio.to_thread(_steps, revisions),
        memberships=await list_memberships(session, case_id),
        withheld=rates or await is_checked_blind(session, case_id),
    )


def _outcome(record: _Record) -> str:
    if any(not verdict["passed"] for verdict in record["filters"]):
        return "rejected"
    return str(record["curation"]["outcome"]) if record["curation"] else "pending"


async def _neighbours(
    session: Session, state: State
) -> tuple[Link | None, Link | None]:
    """The rows beside the one that led here, in its list; None where there is none."""
    if state.at is None:
        return None, None
    neighbours: list[Link | None] = []
    for place in ("before", "after"):
        page = await load_page(
            session,
            state.listing,
            state.where,
            **state.order,
            size=1,
            before=state.at if place == "before" else None,
            after=state.at if place == "after" else None,
        )
        neighbours += row_links(state, without_identifiers(page.rows), page.keys) or [
            None
        ]
    return neighbours[0], neighbours[1]


def row_links(
    state: State, rows: Sequence[object], keys: Sequence[str]
) -> list[Link | None]:
    """Each row's own page, which knows the list that led to it; None: it has none."""
    table, query = TABLES[state.table], state.query(**{TABLE: state.table})
    links: list[Link | None] = []
    for row, key in zip(rows, keys, strict=True):
        path = table.link(row)
        if path is None:
            links.append(None)
            continue
        if path.startswith(("/audit/threads/", "/audit/cases/")):
            path, mark, fragment = path.partition("#")
            path += f"?{query}&at={quote_plus(key)}{mark}{fragment}"
        links.append((str(getattr(row, table.columns[0]) or "–"), path))
    return links


def _group(records: Iterable[_Record], name: str) -> dict[str, list[_Record]]:
    groups: dict[str, list[_Record]] = {}
    for record in records:
        groups.setdefault(str(record[name]), []).append(record)
    return groups


def _steps(revisions: Sequence[CaseRevision]) -> list[RevisionStep]:
    """What each revision changed in the one before, the newest first."""
    steps: list[RevisionStep] = []
    for (old, had), (new, has) in pairwise(revisions):
        fields = {}
        for name in _FIELDS:
            before, after = str(getattr(old, name)), str(getattr(new, name))
            if before != after:
                fields[name] = compare(before, after)
        criteria = _changed_criteria(had, has)
        steps.insert(0, RevisionStep(new.revision, new.created_at, fields, criteria))
    return steps


def _criterion_text(c: Criterion) -> str:
    origin = "" if c.origin is Origin.ADVICE else f" ({c.origin.value}: {c.source})"
    return f"{c.points:+} {c.axis}: {c.criterion}{origin}"


def _changed_criteria(
    old: Sequence[Criterion], new: Sequence[Criterion]
) -> dict[str, Sequence[Change]]:
    before = {c.id: _criterion_text(c) for c in old}
    after = {c.id: _criterion_text(c) for c in new}
    changed: dict[str, Sequence[Change]] = {}
    for name in before | after:
        texts = before.get(name, ""), after.get(name, "")
        if texts[0] != texts[1]:
            changed[name] = compare(*texts)
    return changed
