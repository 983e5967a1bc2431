"""`medlive cost`, `audit` and `prompt`: show spending, the audit log and stored prompts."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Argument, Option

from medlive.cli.options import OptionalCount, WeekOption
from medlive.cli.output import (
    Result,
    failed,
    fields_of,
    list_result,
    table_of,
    with_instance,
    with_session,
)
from medlive.clock import week_bounds
from medlive.curation.model import Outcome
from medlive.db.audit.spending import count_ended, spending
from medlive.db.audit_log import list_entries
from medlive.service.audit_log import verify_audit_log
from medlive.service.prompts import show_prompt

_SPENT = (
    "by",
    "name",
    "replies",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "cost_usd",
    "unpriced",
    "estimated",
)


def cost(
    week: WeekOption = None,
) -> Result:
    """Show replies, tokens and money by stage, task, engine and source; money is unknown where a reply has no price.

    Args:
        week: Replies stored in this ISO week: 2026.W47, this or last; without it all.
    """
    bounds = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    if week:
        bounds = week_bounds(week)
    kept = with_session(count_ended, Outcome.KEPT, *bounds)
    total: float | None = 0.0
    spent = with_session(spending, *bounds)
    rows = []
    for part in spent:
        price = "unknown" if part.cost_usd is None else part.cost_usd
        rows.append(fields_of(part, _SPENT) | {"cost_usd": price})
        if part.by == "all":
            total = part.cost_usd
    a_case = total / kept if kept and total is not None else None
    value = {"week": week, "spent": spent, "kept": kept, "usd_a_kept_case": a_case}
    each = "unknown" if a_case is None else f"{a_case:.4f}"
    title = f"Cost: {week or 'all weeks'}; {kept} cases kept, {each} USD each"
    return Result(value, [table_of(rows, _SPENT, title)])


_LOGGED = ("number", "at", "by", "action", "subject", "reason")


def log(
    limit: Annotated[int, Option(min=1, max=10_000)] = 50,
    before: OptionalCount = None,
) -> Result:
    """Show what people did, the latest first.

    Args:
        limit: Show the latest N entries.
        before: Only entries before this number.
    """
    entries = with_session(list_entries, before=before, limit=limit)
    return list_result(entries, _LOGGED, "details", "digest")


def verify(
    head: str | None = None,
    snapshots: Annotated[
        Path | None, Option(exists=True, file_okay=False, metavar="FOLDER")
    ] = None,
) -> Result:
    """Check the audit log's chain of digests; exit status 1 names each entry that was changed, removed or inserted.

    Each snapshot's manifest states how many entries the log had and the last one's digest, which shows when entries
    were cut off at the end. Use snapshots that the database's owner cannot change: give a mirror's with --snapshots.
    Only --head covers entries newer than the latest snapshot.

    Args:
        head: A digest that an earlier check printed: the log must hold it.
        snapshots: Folder of snapshots, e.g. a mirror's; default: this instance's own.
    """
    checked, anchors = with_instance(verify_audit_log, head=head, snapshots=snapshots)
    value = fields_of(checked, ("entries", "head", "faults")) | {"anchors": anchors}
    summary = f"{checked.entries} entries, head {checked.head}; compared with {anchors} statements of snapshots"
    return Result(value, [summary], failure=failed(checked.faults))


_OF_EVALUATION = (
    "medlive.evaluation",
    "medlive.evaluation.grading",
    "medlive.evaluation.protocols",
)
"""Packages with prompts of the evaluation, which the service does not know."""


def show(
    name: Annotated[str, Argument(metavar="TASK|DIGEST")],
) -> Result:
    """Show a task's prompt; or, by its digest, a stored prompt, or a request as it was sent, with its reply.

    Args:
        name: A task such as screener.extract, or the digest of a prompt or request.
    """
    prompt = with_session(show_prompt, name, _OF_EVALUATION)
    lines = [f"{prompt['task']} {prompt['digest']}"]
    template = {"role": "system", "content": prompt.get("text")}
    for message in prompt.get("messages", [template]):
        lines.append(f"\n--- {message['role']}\n{message['content']}")
    if reply := prompt.get("reply"):
        sent = f"reply of {reply['model']} ({reply['finish']})"
        lines.append(f"\n--- {sent}\n{reply['text']}")
    return Result(prompt, map(Text, lines))
