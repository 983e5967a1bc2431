"""`load_thread_page`: the page of a thread or a case, its texts with the marked quotes, what was decided, which part of
a long thread, and the addresses of the other parts."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import pairwise
from typing import Any, Literal
from urllib.parse import quote_plus

from fastapi import HTTPException, Request, Response

from medlive.curation.model import Reason
from medlive.db.accounts import Account
from medlive.db.audit.listing import load_page
from medlive.db.audit_log import list_entries
from medlive.db.curation.cases import CaseRevision, list_revisions
from medlive.db.curation.replies import find_replies
from medlive.db.mapping import Record
from medlive.db.release.snapshots import list_memberships
from medlive.db.session import Session
from medlive.db.studies import has_open_study, is_checked_blind
from medlive.db.tables.accounts import Role
from medlive.db.tables.people import Act
from medlive.db.tables.release import CaseRevisionRow
from medlive.guard.bounds import MESSAGES_SHOWN
from medlive.rubric.model import Criterion, Origin
from medlive.service.listings import without_identifiers
from medlive.web.acts.actions import Actions, case_actions
from medlive.web.pages import Link, render

from .tables import TABLE, TABLES, State

_FIELDS = (
    "narrative",
    "query",
    "advice",
    "theme",
    "specialty",
    "difficulty",
    "dialogue_register",
)
_MOST_PAIRS = 25_000_000
"""Pairs of words that are compared: two texts of 5,000 words."""
_TOKENS = re.compile(r"[\u3400-\u9fff]|\s+|[^\s\u3400-\u9fff]+")
_Record = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """A stretch of a text, the elements whose quotes hold it, and those whose quotes begin with it."""

    text: str
    elements: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Marked:
    """A message or the title, with its quotes."""

    id: str
    parts: tuple[Part, ...]
    about: Mapping[str, object]  # Role, verified, posted_at …; empty for the title


Change = tuple[Literal["same", "old", "new"], str]
"""(What a revision did with a stretch of a text, the stretch)."""


async def load_thread_page(
    session: Session,
    record: dict[str, Any],
    account: Account,
    request: Request,
    page: int,
    *,
    of_case: bool,
) -> Callable[[], Response]:
    """Load what a page shows; return the function that renders it, which may be called in a worker thread.

    `record` is what `inspect_thread` or `inspect_case` returned. The page is about the case if `of_case`, else about
    the thread. The query of the request says which list led to it.
    """
    curation = record["curation"] or {}
    calls = curation.get("calls", ())
    thread, case = record["thread"], record["case"]
    if page > 1 and not thread["messages"]:
        raise HTTPException(404, "The thread has no such message.")
    title, messages = await asyncio.to_thread(
        mark_thread, thread, curation.get("elements", ())
    )
    here = request.url.replace(scheme="", netloc="")
    query = request.query_params
    table = query.get(TABLE, "")
    state = State.parse(table if table in TABLES else "threads", query)
    revisions, memberships, withheld = await _history(session, account, case)
    subject = f"thread:{thread['source']}/{thread['thread_id']}"
    if of_case:
        subject = f"case:{case['case_id']}"
        actions = case_actions(
            case["case_id"],
            case["status"],
            case["revision"],
            tuple(criterion["id"] for criterion in record["criteria"]),
            unproved_since=case["unproved_since"],
            back=str(here),
        )
    else:
        outcome = curation.get("outcome", "pending")
        if record["filter_reason"]:
            outcome = "rejected"
        actions = Actions(
            subject=f"thread/{thread['source']}/{thread['thread_id']}",
            plain=(Act.OVERRULE,) if outcome in ("rejected", "parked") else (),
            veto=curation.get("reason") == Reason.CONTRADICTED,
            back=str(here),
        )
    has_han = re.search("[\u4e00-\u9fff]", thread["title"])
    return partial(
        render,
        request,
        "audit/thread.html",
        record=record,
        language="zh" if has_han else "en",
        title=title,
        messages=messages,
        page=page,
        page_with=partial(_page_with, request, page),
        address=partial(_address, request),
        replies=await find_replies(session, {call["request_digest"] for call in calls}),
        revisions=revisions,
        memberships=memberships,
        withheld=withheld,
        entries=await list_entries(session, subject=subject),
        actions=actions if account.may(Role.ADMIN) else None,
        before=await _neighbour(session, state, "before"),
        after=await _neighbour(session, state, "after"),
        back=(TABLES[state.table].title, state.page()),
    )


async def _history(
    session: Session, account: Account, case: _Record | None
) -> tuple[list[_Record], Sequence[Record], bool]:
    """A case's revisions and releases, and whether its verdicts are withheld from the account."""
    if case is None:
        return [], [], False
    case_id = case["case_id"]
    revisions = await list_revisions(session, case_id)
    rates = await has_open_study(session, account.name)
    withheld = rates or await is_checked_blind(session, case_id)
    memberships = await list_memberships(session, case_id)
    return await asyncio.to_thread(_steps, revisions), memberships, withheld


async def _neighbour(
    session: Session, state: State, side: Literal["before", "after"]
) -> Link | None:
    """A link to the row before or after the one that led here, in the same list; None where there is none."""
    if state.at is None:
        return None
    page = await load_page(
        session,
        state.listing,
        state.where,
        size=1,
        before=state.at if side == "before" else None,
        after=state.at if side == "after" else None,
    )
    links = row_links(state, without_identifiers(page.rows), page.keys)
    return links[0] if links else None


def row_links(
    state: State, rows: Sequence[object], keys: Sequence[str]
) -> list[Link | None]:
    """A link to each row's own page; that of a thread or case names the list that led to it. None: there is no page."""
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


def _steps(revisions: Sequence[CaseRevision]) -> list[_Record]:
    """What each revision changed in the one before; the newest first."""
    steps: list[_Record] = []
    for earlier, later in pairwise(revisions):
        old, new = _texts(*earlier), _texts(*later)
        changes: dict[str, Sequence[Change]] = {}
        for name in old | new:
            before, after = old.get(name, ""), new.get(name, "")
            if before != after:
                changes[name] = compare(before, after)
        case = later[0]
        step = {"revision": case.revision, "created_at": case.created_at}
        steps.append(step | {"changes": changes})
    return steps[::-1]


def _texts(case: CaseRevisionRow, criteria: Iterable[Criterion]) -> dict[str, str]:
    """The texts of a revision by the names of its fields and the ids of its criteria."""
    texts = {name: str(getattr(case, name)) for name in _FIELDS}
    for c in criteria:
        origin = "" if c.origin is Origin.ADVICE else f" ({c.origin.value}: {c.source})"
        texts[c.id] = f"{c.points:+} {c.axis}: {c.criterion}{origin}"
    return texts


def mark_thread(
    thread: Mapping[str, Any], elements: Iterable[Mapping[str, Any]]
) -> tuple[Marked, tuple[Marked, ...]]:
    """The title and the messages of `inspect_thread`'s thread, with the quotes of its elements."""
    quotes: dict[str, dict[str, str]] = {}
    for element in elements:
        own = quotes.setdefault(element["message_id"], {})
        own[element["id"]] = element["quote"]
    title = _mark(
        "title",
        thread["title"],
        {},
        quotes.get("title", {}),
    )
    messages = []
    for message in thread["messages"]:
        name = f"m{message['place']}"
        messages.append(_mark(name, message["text"], message, quotes.get(name, {})))
    return title, tuple(messages)


def _mark(
    id_: str, text: str, about: Mapping[str, object], quotes: Mapping[str, str]
) -> Marked:
    """A text with its quotes, by element."""
    spans = {}
    edges = {0, len(text)}
    for name, quote in quotes.items():
        # Whatever the case of its letters and the spaces between its words
        words = r"\s+".join(map(re.escape, quote.split()))
        if words and (match := re.search(words, text, re.IGNORECASE)):
            spans[name] = match.span()
            edges.update(spans[name])
    parts = []
    for start, end in pairwise(sorted(edges)):
        inside = []
        begins = []
        for name, (first, last) in spans.items():
            if first <= start and end <= last:
                inside.append(name)
                if first == start:
                    begins.append(name)
        parts.append(Part(text[start:end], tuple(inside), tuple(begins)))
    return Marked(id_, tuple(parts), about)


def compare(old: str, new: str) -> list[Change]:
    """What a text lost and gained, by words, in Chinese by characters; as a whole where the texts are long."""
    before, after = _TOKENS.findall(old), _TOKENS.findall(new)
    if len(before) * len(after) > _MOST_PAIRS:
        return [("old", old), ("new", new)]
    changes: list[Change] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            changes.append(("same", "".join(before[a:b])))
        else:
            changes.append(("old", "".join(before[a:b])))
            changes.append(("new", "".join(after[c:d])))
    return changes


def _page_with(request: Request, page: int, message_id: str) -> str:
    """The address of the page that shows a message; empty for this page, and for the title."""
    number = message_id[1:]
    other = int(number) // MESSAGES_SHOWN + 1 if number.isdecimal() else page
    return "" if other == page else _address(request, page=other)


def _address(request: Request, **place: int) -> str:
    """The address of another page or decision of the thread, reached from the same list."""
    return f"?{request.url.include_query_params(**place).query}"
