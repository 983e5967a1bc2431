"""`medlive thread`: where threads stand, and every decision about one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from medlive.cli.audit.case import Listed, list_rows
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
    table_of,
    with_database,
    with_instance,
    with_session,
)
from medlive.db.audit.tables import THREADS
from medlive.rubric.model import unproved_words
from medlive.service.curation.inspect import ThreadTakenDown, inspect_thread
from medlive.service.harvest.takedown import TakedownResult, allow_return, take_down

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


def list_(which: Listed) -> Result | None:
    """List threads by where they are, the latest decision first, with what their claims were contradicted by."""
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
    """What people see of what `inspect_thread` returns; a part without anything is left out."""
    thread, origin = record["thread"], record["origin"]
    yield messages_table(thread["messages"], f"{name}: {thread['title']}")
    pages = [f"{page['path']} at {page['place']['offset']}" for page in origin["pages"]]
    counts = [f"{kind} {count}" for kind, count in origin["identifiers"].items()]
    about = {"pages": pages, "identifiers": counts or "none found"}
    yield from _table("Where it is from", _facts({**origin, **about}))
    verdicts = record["filters"]
    failures = [verdict for verdict in verdicts if not verdict["passed"]]
    state = f"all {len(verdicts)} passed" if verdicts else "none made"
    if failures:
        state = f"{len(failures)} of {len(verdicts)} failed"
    yield f"Filters: {state}"
    yield from _table("Failed", failures)
    yield from _table("Parked", _facts(record["parked"] or {}))
    yield from _table("Overruled", record["overruled"])
    if curation := record["curation"]:
        yield from _describe_curation(curation, record["decided"])
    if record["proof"]:
        yield from _describe_proof(record["proof"], record["case"])
    if len(record["decisions"]) > 1:
        title = "Decisions, the latest first (--decision N shows one)"
        yield from _table(title, record["decisions"])
    if case := record["case"]:
        yield from _describe_case(case)
        yield from _table("Rubric", record["criteria"])
    yield from _table("Reviews", record["reviews"])


def messages_table(messages: Sequence[Row], title: str | None = None) -> Grid:
    """The messages of a thread."""
    rows = []
    for number, message in enumerate(messages):
        verified = message.get("verified_by") or message["verified"]
        rows.append([f"m{number}", message["role"], verified, message["text"]])
    return Grid(["id", "role", "verified", "text"], rows, title)


def _table(title: str, rows: Sequence[Row]) -> Iterator[Grid]:
    """Rows with all their values that are no records themselves; nothing without a row."""
    if rows:
        shown = set.intersection(*map(_plain, rows))
        yield table_of(rows, [name for name in rows[0] if name in shown], title)


def _facts(record: Row) -> list[Row]:
    """The values of a record that are no records themselves, a row each."""
    shown = _plain(record)
    rows: list[Row] = []
    for name, value in record.items():
        if name in shown:
            rows.append({"what": name.replace("_", " "), "value": value})
    return rows


def _plain(record: Row) -> set[str]:
    """The names of a record's values that are no records themselves."""
    names = set()
    for name, value in record.items():
        parts = value if isinstance(value, list | tuple) else [value]
        if not any(isinstance(part, dict) for part in parts):
            names.add(name)
    return names


def _describe_case(case: Row) -> Shown:
    title = (
        f"Case {case['case_id']} revision {case['revision']}: {case['theme']}, {case['specialty']}, "
        f"difficulty {case['difficulty']}, register {case['dialogue_register']}{_figures(case)}"
    )
    if unproved := unproved_words(case["unproved_since"]):
        title += f", {unproved}"
    yield from _table(title, _facts(case))
    yield from _table("What the query asks", case["asked"])
    yield from _table("Contradictions", case["conflicts"])
    yield from _table("What the rubric leaves out, in order", case["omitted"])
    if completion := case["completion"]:
        title = f"Points that the advice lacks {completion['note']}"
        yield from _table(title, completion["points"])


def _figures(figures: Row) -> str:
    """What the proof says of the rubric, after a comma; empty where it was not proved."""
    text = ""
    for name in ("ceiling", "floor", "separation", "ordinary"):
        if figures["ceiling"] is not None and figures[name] is not None:
            text += f", {name} {figures[name]:.2f}"
    return text


def _describe_proof(proof: Row, case: Row | None) -> Shown:
    """The answers of known quality, how the rubric grades them, and what spoke against it."""
    state = "passed" if proof["passed"] else "failed"
    if case and not proof["applies"]:
        state = (
            f"{unproved_words(case['unproved_since'])}; of the rubric before, {state}"
        )
    engines = proof["engines"]
    yield from _table(
        f"Proof of the rubric: {state}{_figures(proof['figures'])},"
        f" revised {proof['rounds']} times; answers by {engines['prober']['model']},"
        f" graded by {engines['grader']['model']}",
        proof["probes"],
    )
    yield from _table("What spoke against the rubric", proof["findings"])


def _describe_curation(curation: Row, decided: Row) -> Shown:
    title = (
        f"Curation: {curation['outcome']} at {curation['stage']}"
        f" on {decided['at'][:10]}, attempt {decided['attempt']}"
    )
    if curation["reason"]:
        title += f", {curation['reason']}: {curation['detail']}"
    yield title
    yield from _table("Elements", curation["elements"])
    parts = []
    for name in ("s_cc", "s_inf", "s_align"):
        score = curation[name]
        figure = "not judged" if score is None else f"{score:.3g}"
        parts.append(f"S{name[1:]} {figure}")
    limits = [f"{name} {limit:g}" for name, limit in curation["thresholds"].items()]
    yield f"{', '.join(parts)} (have to exceed: {', '.join(limits)})"
    yield from _table("Needed of the history", curation["requirements"])
    yield from _describe_claims(curation["claims"])
    if examined := curation["cross_examination"]:
        yield from _table("Cross-examination", _facts(examined))
        yield from _table("Its questions", examined["questions"])
    suspicions = [check for check in curation["checks"] if not check["passed"]]
    yield from _table(f"Failed of {len(curation['checks'])} checks", suspicions)
    if reading := curation["second_reading"]:
        title = f"Second reading by {reading['engine']['model']}"
        yield from _table(title, _facts(reading))
        yield from _table("Wrong", reading["wrong"])
        yield from _table("Third voice", reading["voices"])
        title = "Rests on what the text does not hold"
        yield from _table(title, _facts(reading["unseen"]))
    yield from _table("Held for a person", curation["holds"])


def _describe_claims(claims: Sequence[Row]) -> Shown:
    judged, cited = [], []
    for claim in claims:
        second = claim["second"] or {}
        answer = _second_check(second) if second else None
        judged.append({**claim, "second": answer})
        addresses = {}
        for hit in claim["hits"]:
            addresses[hit["passage"]["id"]] = hit["passage"]["url"]
        quoted = {
            "verdict": claim["citations"],
            "second check: false": second.get("citations"),
            "second check: could hurt": second.get("harm_citations"),
        }
        for check, citations in quoted.items():
            for citation in citations or ():
                address = addresses.get(citation["passage_id"])
                about = {"claim": claim["element_id"], "by": check, "address": address}
                cited.append(about | citation)
    yield from _table("Evidence", judged)
    yield from _table("Cited", cited)


def _second_check(second: Row) -> str:
    """What the second check answers, and why."""
    answers = []
    if second["false_by_passage"]:
        answers.append("false by the passage")
    if second["could_hurt"]:
        answers.append("could hurt")
    return f"{', '.join(answers) or 'not confirmed'}: {second['reason']}"


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
        rows = [f"{table} {count}" for table, count in sorted(planned.counts.items())]
        what = ", ".join(rows) or "nothing of it is here"
        say(f"{name} would be erased for good: {what}")
        for version, case_id in planned.frozen:
            say(
                f"snapshot {version} holds its case {case_id}, which would be withdrawn"
            )
        say("it is kept from coming back; a lifted takedown restores nothing")
        confirm_by_name(name)
    done = take(dry_run=dry_run)
    frozen, left = [], []
    for version, case_id in done.frozen:
        frozen.append({"version": version, "case_id": case_id})
        left.append(f"snapshot {version} holds its case {case_id}, which is withdrawn")
    damaged = [error.message for error in done.damaged]
    left += [f"a file may still hold its pages: {message}" for message in damaged]
    value = {
        "source": source,
        "thread_id": thread_id,
        "dry_run": dry_run,
        "erased": done.counts,
        "files": done.files,
        "frozen": frozen,
        "damaged": damaged,
    }
    hint = "restore or remove a damaged file, then `medlive source prune`; publish errata.json"
    state = "nothing was erased, this is what would be" if dry_run else "taken down"
    erased = Grid(["what", "erased"], sorted(done.counts.items()), f"{name}: {state}")
    return Result(value, [erased], failure=failed(left, hint))


def lift_takedown(
    thread: ThreadArgument,
    *,
    reason: str,
    by: ByOption = None,
) -> None:
    """Let a later harvest or import bring a thread back that was taken down.

    Its text, pages and decisions are erased and stay so; a case that frozen snapshots hold stays withdrawn until
    `medlive snapshot reinstate`.

    Args:
        reason: Why, for the log.
    """
    with_database(allow_return, *split_name(thread), reason, by=by)
    echo(f"{thread} may come back with a later harvest; nothing that was erased does")
