"""What the audit room and the `list` commands show beside the rows themselves."""

import csv
import io
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from medlive.clock import iso_week, now
from medlive.db.audit.listing import week_bounds
from medlive.db.audit.threads import ThreadItem
from medlive.db.curation.replies import find_prompt, find_request
from medlive.db.session import Session
from medlive.deidentify.detect import redact
from medlive.errors import UsageError
from medlive.llm.fence import render
from medlive.llm.prompts import load_prompt
from medlive.snapshot.export import guarded

R = TypeVar("R")
_TASK: Final = re.compile(r"[a-z_.]{1,80}")
_PROMPTS: Final = (
    "medlive.curation",
    "medlive.rubric",
    "medlive.grader",
    "medlive.harm",
)


def parse_week(week: str) -> str:
    """An ISO week; "this" and "last" name two. Raises UsageError."""
    if week in ("this", "last"):
        return iso_week(now() - timedelta(weeks=week == "last"))
    return iso_week(week_bounds(week)[0])


def weeks_before(week: str, count: int) -> list[str]:
    """So many ISO weeks, of which `week` is the last."""
    start = week_bounds(week)[0]
    return [iso_week(start - timedelta(weeks=back)) for back in reversed(range(count))]


def without_identifiers(rows: Iterable[R]) -> list[R]:
    """Rows as they are shown: what came from a thread without the names of people and places."""
    return [
        replace(row, title=redact(row.title, row.language or None))
        if isinstance(row, ThreadItem)
        else row
        for row in rows
    ]


async def stream_csv(rows: AsyncIterator[Any], row: type[Any]) -> AsyncIterator[str]:
    """Rows of a type as lines of CSV under a heading, without identifiers and formulas."""
    line = io.StringIO()
    writer = csv.writer(line, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([field.name for field in fields(row)])
    async for stored in rows:
        writer.writerow(cells(without_identifiers([stored])[0]))
        yield line.getvalue()
        line.seek(0)
        line.truncate()
    yield line.getvalue()


def cells(row: Any) -> list[str]:
    """A row as cells of a CSV file, none of which a spreadsheet takes for a formula."""
    return [guarded(_cell(getattr(row, field.name))) for field in fields(row)]


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return "\n".join(map(str, value))
    return "" if value is None else str(value)


async def show_prompt(
    session: Session, name: str, packages: Sequence[str] = ()
) -> dict[str, Any]:
    """A task's present prompt, or by its digest a stored prompt, or a stored request as it was rendered.

    "messages" is what the engine is sent; of a request with the reply, of a prompt with what stands for inputs.
    `packages` hold prompts beside the service's own. A digest may be cut short. Raises UsageError for an unknown or
    ambiguous one.
    """
    digest = name if name.startswith("sha256:") else f"sha256:{name}"
    for package in (*_PROMPTS, *packages) if _TASK.fullmatch(name) else ():
        try:
            prompt = load_prompt(package, name)
        except FileNotFoundError:
            continue
        return {"task": name, "digest": prompt.digest, "text": prompt.text}
    if (stored := await find_request(session, digest)) is not None:
        request, row = stored
        reply = {"text": row.text, "finish": row.finish.value, "model": row.reply_model}
        return {
            "task": row.task,
            "digest": row.request_digest,
            "messages": render(request),
            "reply": reply,
        }
    if (prompt_row := await find_prompt(session, digest)) is not None:
        return {
            "task": prompt_row.task,
            "digest": prompt_row.digest,
            "text": prompt_row.text,
        }
    raise UsageError(
        f"{name[:100]!r} names no task, and no one stored prompt or request",
        hint="name a task such as validator.query, or more of the digest",
    )
