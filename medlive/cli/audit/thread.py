"""`medlive thread`: list threads, show every decision about one, take one down, lift a takedown."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from medlive.cli.options import (
    ByOption,
    DecisionOption,
    DryRunOption,
    ThreadArgument,
    YesOption,
    confirm_by_name,
    split_name,
)
from medlive.cli.output import (
    Grid,
    Result,
    Shown,
    echo,
    failed,
    say,
    with_database,
    with_instance,
    with_session,
)
from medlive.db.audit.tables import THREADS
from medlive.rubric.model import unproved_words
from medlive.service.curation.inspect import ThreadTakenDown, inspect_thread
from medlive.service.harvest.takedown import TakedownResult, allow_return, take_down

from .case import Listed, list_rows

Row = Mapping[str, Any]
"""A part of what `inspect_thread` returns: JSON values."""
_COLUMNS = (
    "source",
    "thread_id",
    "outcome",
    "stage",
    "reason",
    "changed_at",
    "title",
    "detail",
    "evidence",
)
_NOT_SHOWN = ("calls", "engine", "engines", "hits", "index", "pages", "verdicts")
"""Parts of a record that are for machines: `--json` and the pages have them."""


def list_(which: Listed) -> Result | None:
    """List threads with stage and outcome, the latest decision first, and the passages that contradict their claims."""
    return list_rows(THREADS, which, _COLUMNS)


def show(thread: ThreadArgument, decision: DecisionOption = None) -> Result:
    """Show a thread, its filter verdicts, elements with quotes, evidence verdicts, checks, case and rubric."""
    source, thread_id = split_name(thread)
    try:
        record = with_session(inspect_thread, source, thread_id, decision=decision)
    except ThreadTakenDown as gone:
        taken_down = {"at": gone.taken_down_at.isoformat(), "reason": gone.reason}
        return Result({"thread": None, "taken_down": taken_down}, failure=gone)
    return Result(record, describe_thread(thread, record))


def describe_thread(name: str, record: Row) -> Shown:
    """What people see of a record that `inspect_thread` returned: tables and lines, without empty parts."""
    thread, case = record["thread"], record["case"]
    yield messages_table(thread["messages"], f"{name}: {thread['title']}")
    if case and (unproved := unproved_words(case["unproved_since"])):
        yield f"The rubric is {unproved}"
    for part, value in record.items():
        if part != "thread":
            yield from _describe(part, value)
    passages = []
    for claim in (record["curation"] or {}).get("claims", ()):
        for hit in claim["hits"]:
            passage = {field: hit["passage"][field] for field in ("id", "title", "url")}
            passages.append({"element": claim["element_id"], **passage})
    yield from _describe("passages that were retrieved", passages)


def messages_table(messages: Sequence[Row], title: str | None = None) -> Grid:
    """The messages of a thread."""
    rows = []
    for number, message in enumerate(messages):
        verified = message.get("verified_by") or message["verified"]
        rows.append([f"m{number}", message["role"], verified, message["text"]])
    return Grid(["id", "role", "verified", "text"], rows, title)


def _describe(title: str, part: object) -> Shown:
    """Records as a table, passed ones of a list only as a count; below it one for each kind of record inside them."""
    rows = all_rows = _records(part)
    if not isinstance(part, dict):
        rows = [row for row in all_rows if not row.get("passed")]
        if len(rows) < len(all_rows):
            yield f"{title}: {len(all_rows) - len(rows)} of {len(all_rows)} passed"
    if not rows:
        return
    inside = _inside(rows)
    # The rows need not have the same fields.
    names = [name for name in dict.fromkeys(chain(*rows)) if name not in inside]
    cells = [[row.get(name) for name in names] for row in rows]
    yield Grid([name.replace("_", " ") for name in names], cells, title)
    for name, records in inside.items():
        if name not in _NOT_SHOWN:
            yield from _describe(f"{title}, {name}", records)


def _inside(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The records inside `rows`, by field name; with several rows each begins with the first field of its row."""
    inside: dict[str, list[Row]] = {}
    for row in rows:
        outer = dict([next(iter(row.items()))]) if len(rows) > 1 else {}
        for name, value in row.items():
            for record in _records(value):
                inside.setdefault(name, []).append({**outer, **record})
    return inside


def _records(value: object) -> list[Row]:
    """The records in a value: itself if it is one, those of a list, else none; empty records are left out."""
    values = value if isinstance(value, list | tuple) else [value]
    return [part for part in values if part and isinstance(part, dict)]


def takedown(
    source: str,
    thread_id: str,
    *,
    reason: str,
    by: ByOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> Result:
    """Erase a thread for good, raw pages and all, and keep it from coming back.

    Shows what would be erased and asks for the thread's name. What cannot be erased is named: a case of it in a
    frozen snapshot is withdrawn, and errata.json says so without the reason. Exit status 1 when something of the
    thread is left. Doing it again finishes what was interrupted.

    Args:
        source: The community.
        thread_id: The thread's id there.
        reason: Why, for the record that stays.
    """
    name = f"{source}/{thread_id}"

    def take(dry_run: bool) -> TakedownResult:
        return with_instance(
            take_down, source, thread_id, reason, by=by, dry_run=dry_run
        )

    if not dry_run and not yes:
        planned = take(dry_run=True)
        say(f"{name} would be erased for good: {_erased(planned)}")
        for text in _frozen(planned, "would be"):
            say(text)
        say("it is kept from coming back; a lifted takedown restores nothing")
        confirm_by_name(name)
    done = take(dry_run=dry_run)
    left = _frozen(done, "would be" if dry_run else "is")
    for error in done.damaged:
        left.append(f"a file may still hold its pages: {error.message}")
    hint = "restore or remove a damaged file, then `medlive week run retention`; publish errata.json"
    state = "would be erased" if dry_run else "erased"
    text = f"{name}: {state}: {_erased(done)}"
    return Result(done, [text], failure=failed(left, hint))


def _erased(done: TakedownResult) -> str:
    """How many rows of each table are erased."""
    counts = [f"{table} {count}" for table, count in sorted(done.counts.items())]
    return ", ".join(counts) or "nothing of it is here"


def _frozen(done: TakedownResult, verb: str) -> list[str]:
    """A line for each case that a frozen snapshot keeps; `verb`, "is" or "would be", says whether it is withdrawn."""
    texts = []
    for version, case_id in done.frozen:
        texts.append(
            f"snapshot {version} holds its case {case_id}, which {verb} withdrawn"
        )
    return texts


def lift_takedown(
    thread: ThreadArgument,
    *,
    reason: str,
    by: ByOption = None,
) -> None:
    """Let a later harvest or import bring back a thread that was taken down.

    Its text, pages and decisions stay erased; a case that frozen snapshots hold stays withdrawn until
    `medlive snapshot reinstate`.

    Args:
        reason: Why, for the log.
    """
    with_database(allow_return, *split_name(thread), reason, by=by)
    echo(f"{thread} may come back with a later harvest; nothing that was erased does")
