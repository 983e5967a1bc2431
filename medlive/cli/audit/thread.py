"""`medlive thread`: where threads stand, and every decision about one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from typer import Option

from medlive.cli.audit.listing import Listed, list_rows
from medlive.cli.options import (
    ByOption,
    Commands,
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
    echo,
    say,
    table_of,
    with_database,
    with_instance,
    with_session,
)
from medlive.db.audit.tables import THREADS
from medlive.errors import CheckFailed
from medlive.rubric.model import unproved_words
from medlive.service.curation.inspect import ThreadTakenDown, inspect_thread
from medlive.service.harvest.takedown import TakedownResult, allow_return, take_down

app = Commands()
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


@app.command("list")
def list_(which: Listed) -> Result | None:
    """List threads by where they are, the latest decision first, with what their claims were contradicted by."""
    return list_rows(THREADS, which, _COLUMNS)


@app.command()
def show(thread: ThreadArgument, decision: DecisionOption = None) -> Result:
    """Show a thread, its filter verdicts, elements with quotes, evidence verdicts, checks, case and rubric."""
    source, thread_id = split_name(thread)
    try:
        record = with_session(inspect_thread, source, thread_id, decision=decision)
    except ThreadTakenDown as gone:
        taken_down = {"at": gone.taken_down_at.isoformat(), "reason": gone.reason}
        return Result({"thread": None, "taken_down": taken_down}, failure=gone)
    return Result(record, describe_thread(thread, record))


def describe_thread(name: str, record: Row) -> Iterator[Grid | str]:
    """What people see of what `inspect_thread` returns; a part without anything is left out."""
    thread = record["thread"]
    yield messages_table(thread["messages"], f"{name}: {thread['title']}")
    origin, pages = record["origin"], []
    for page in origin["pages"]:
        pages.append(f"{page['path']} at {page['place']['offset']}")
    identifiers = [f"{kind} {count}" for kind, count in origin["identifiers"].items()]
    facts = [
        ["first seen", origin["first_seen_at"]],
        ["last seen", origin["last_seen_at"]],
        ["gone from its source since", origin["gone_at"]],
        ["identifiers in its raw text", identifiers or "none found"],
        ["pages kept as they came", pages],
    ]
    yield Grid(["what", "found"], facts, "Where it is from")
    verdicts = record["filters"]
    failed = [verdict for verdict in verdicts if not verdict["passed"]]
    state = f"all {len(verdicts)} passed" if verdicts else "none made"
    if failed:
        state = f"{len(failed)} of {len(verdicts)} failed"
    title = f"Filters: {state}"
    columns = ("rule", "reason", "evidence")
    yield table_of(failed, columns, title) if failed else title
    if parked := record["parked"]:
        searched = f"{parked['libraries']} libraries were searched since"
        yield f"Parked since {parked['since'][:10]}; {searched}"
    for title, rows, names in _tables(record):
        if rows:
            yield table_of(rows, names, title)
        elif title.startswith(_TOLD):
            yield title


def messages_table(messages: Sequence[Row], title: str | None = None) -> Grid:
    """The messages of a thread."""
    rows = []
    for number, message in enumerate(messages):
        verified = message.get("verified_by") or message["verified"]
        rows.append([f"m{number}", message["role"], verified, message["text"]])
    return Grid(["id", "role", "verified", "text"], rows, title)


_TOLD = ("Curation: ", "S_cc ")
"""Beginnings of the titles that say something by themselves."""
Table = tuple[str, Sequence[Row], Sequence[str]]
"""Title, rows, and which of their values are shown."""


def _tables(record: Row) -> Iterator[Table]:
    yield "Overruled", record["overruled"], ("overruled", "reason", "decided_by")
    if curation := record["curation"]:
        yield from _curation_tables(curation, record["decided"])
    if record["proof"]:
        yield from _proof_tables(record["proof"], record["case"])
    if len(record["decisions"]) > 1:
        yield (
            "Decisions, the latest first (--decision N shows one)",
            record["decisions"],
            ("number", "at", "outcome", "stage", "reason", "attempt"),
        )
    if record["case"]:
        yield from _case_tables(record["case"], record["criteria"])
    yield (
        "Reviews",
        record["reviews"],
        ("revision", "action", "element_id", "reason", "decided_by", "decided_at"),
    )


def _facts(title: str, record: Row) -> Table:
    """The values of a record that are no records themselves."""
    rows = []
    for name, value in record.items():
        parts = value if isinstance(value, list | tuple) else [value]
        if not any(isinstance(part, dict) for part in parts):
            rows.append({"what": name.replace("_", " "), "value": value})
    return title, rows, ("what", "value")


def _case_tables(case: Row, criteria: Sequence[Row]) -> Iterator[Table]:
    title = (
        f"Case {case['case_id']} revision {case['revision']}: {case['theme']}, {case['specialty']}, "
        f"difficulty {case['difficulty']}, register {case['dialogue_register']}{_figures(case)}"
    )
    if unproved := unproved_words(case["unproved_since"]):
        title += f", {unproved}"
    yield _facts(title, case)
    yield (
        "Rubric",
        criteria,
        (
            "points",
            "tier",
            "asked",
            "axis",
            "criterion",
            "fact",
            "origin",
            "advice_id",
            "source",
            "likely",
        ),
    )
    yield "What the query asks", case["asked"], ("id", "text")
    yield (
        "Contradictions",
        case["conflicts"],
        ("criterion", "other", "advice_id", "detail"),
    )
    title = "What the rubric leaves out, in the order of its steps"
    yield (
        title,
        case["omitted"],
        ("step", "fact", "criterion", "advice_id", "reason", "detail"),
    )
    if completion := case["completion"]:
        title = f"Points that the advice lacks {completion['note']}".strip()
        yield title, completion["points"], ("point", "outcome", "source", "detail")


def _figures(figures: Row) -> str:
    """What the proof says of the rubric, after a comma; empty where it was not proved."""
    text = ""
    for name in ("ceiling", "floor", "separation", "ordinary"):
        if figures["ceiling"] is not None and figures[name] is not None:
            text += f", {name} {figures[name]:.2f}"
    return text


def _proof_tables(proof: Row, case: Row | None) -> Iterator[Table]:
    """The answers of known quality, how the rubric grades them, and what spoke against it."""
    state = "passed" if proof["passed"] else "failed"
    if case and not proof["applies"]:
        state = (
            f"{unproved_words(case['unproved_since'])}; of the rubric before, {state}"
        )
    engines = proof["engines"]
    title = (
        f"Proof of the rubric: {state}{_figures(proof['figures'])},"
        f" revised {proof['rounds']} times; answers by {engines['prober']['model']},"
        f" graded by {engines['grader']['model']}"
    )
    yield title, proof["probes"], ("probe", "score", "answer", "note")
    yield (
        "What spoke against the rubric",
        proof["findings"],
        ("round", "fault", "text", "detail", "needed", "basis", "reason"),
    )


def _curation_tables(curation: Row, decided: Row) -> Iterator[Table]:
    title = (
        f"Curation: {curation['outcome']} at {curation['stage']}"
        f" on {decided['at'][:10]}, attempt {decided['attempt']}"
    )
    if curation["reason"]:
        title += f", {curation['reason']}: {curation['detail']}"
    yield (
        title,
        curation["elements"],
        ("id", "kind", "statement", "message_id", "quote", "status", "left_out"),
    )
    yield (
        _scores(curation),
        curation["requirements"],
        ("requirement", "prudent", "present", "element_ids"),
    )
    judged, cited = [], []
    for claim in curation["claims"]:
        second = claim["second"] or {}
        judged.append({**claim, "second_check": second and _second_check(second)})
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
                cited.append(citation | about)
    yield (
        "Evidence",
        judged,
        (
            "element_id",
            "verdict",
            "claim",
            "flag",
            "queries",
            "lacks",
            "on_subject",
            "nearest",
            "reason",
            "second_check",
        ),
    )
    yield "Cited", cited, ("claim", "by", "passage_id", "quote", "address")
    if examined := curation["cross_examination"]:
        yield _facts("Cross-examination", examined)
        yield (
            "Its questions",
            examined["questions"],
            ("made_from", "question", "own", "other"),
        )
    failed = [check for check in curation["checks"] if not check["passed"]]
    title = f"Checks: {len(failed)} of {len(curation['checks'])} failed"
    yield title, failed, ("check", "subject", "round", "detail")
    if reading := curation["second_reading"]:
        yield _facts(f"Second reading by {reading['engine']['model']}", reading)
        yield (
            "Wrong",
            reading["wrong"],
            ("element_id", "kind", "sure", "reason", "standard"),
        )
        yield (
            "Third voice",
            reading["voices"],
            (
                "element_id",
                "reason",
                "verdict",
                "sure",
                "case_for",
                "case_against",
                "standard",
            ),
        )
        yield _facts("Rests on what the text does not hold", reading["unseen"])
    yield "Held for a person", curation["holds"], ("reason", "elements", "detail")


def _second_check(second: Row) -> str:
    """What the second check answers, and why."""
    answers = []
    if second["false_by_passage"]:
        answers.append("false by the passage")
    if second["could_hurt"]:
        answers.append("could hurt")
    return f"{', '.join(answers) or 'not confirmed'}: {second['reason']}"


def _scores(curation: Row) -> str:
    """The scores, and what they have to exceed; one that was not needed has no figure."""
    limits = curation["thresholds"]
    parts = []
    for name in ("s_cc", "s_inf", "s_align"):
        score = curation[name]
        figure = "not judged" if score is None else f"{score:.3g}"
        parts.append(f"S{name[1:]} {figure}")
    limit = f"sufficiency {limits['sufficiency']:g}, alignment {limits['alignment']:g}"
    return f"{', '.join(parts)} (have to exceed: {limit})"


@app.command()
def takedown(
    source: str,
    thread_id: str,
    reason: Annotated[str, Option()],
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
    frozen, damaged, left = [], [], []
    for version, case_id in done.frozen:
        frozen.append({"version": version, "case_id": case_id})
        left.append(f"snapshot {version} holds its case {case_id}, which is withdrawn")
    for error in done.damaged:
        damaged.append(error.message)
        left.append(f"a file may still hold its pages: {error.message}")
    value = {
        "source": source,
        "thread_id": thread_id,
        "dry_run": dry_run,
        "erased": done.counts,
        "files": done.files,
        "frozen": frozen,
        "damaged": damaged,
    }
    failure = None
    if left:
        hint = "restore or remove the file, then `medlive source prune`"
        if done.frozen:
            hint = "errata.json says so, and later snapshots leave the case out; publish the errata"
        failure = CheckFailed(f"{name}: {'; '.join(left)}", hint=hint)
    state = "nothing was erased, this is what would be" if dry_run else "taken down"
    title, erased = f"{name}: {state}", sorted(done.counts.items())
    return Result(value, [Grid(["what", "erased"], erased, title)], failure=failure)


@app.command("lift-takedown")
def lift_takedown(
    thread: ThreadArgument,
    reason: Annotated[str, Option()],
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
