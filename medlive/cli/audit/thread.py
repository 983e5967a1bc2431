"""`medlive thread`: where threads stand, and every decision about one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

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
from medlive.db.audit.threads import THREADS
from medlive.errors import CheckFailed
from medlive.rubric.model import unproved_words
from medlive.service.curation.inspect import ThreadTakenDown, inspect_thread
from medlive.service.harvest.takedown import TakedownResult, allow_return, take_down

app = Commands()
Row = Mapping[str, Any]
"""A part of what `inspect_thread` returns: JSON values."""
_COLUMNS: Final = (
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
_CROSS_EXAMINATION: Final = (
    "coverage",
    "conformity",
    "consistency",
    "conciseness",
    "summary",
    "stability",
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
    """What people see of what `inspect_thread` returns."""
    thread = record["thread"]
    messages = []
    for number, message in enumerate(thread["messages"]):
        verified = message.get("verified_by") or message["verified"]
        messages.append([f"m{number}", message["role"], verified, message["text"]])
    columns = ["id", "role", "verified", "text"]
    yield Grid(columns, messages, f"{name}: {thread['title']}")
    yield _describe_origin(record["origin"])
    yield _failed("Filters", record["filters"], ("rule", "reason", "evidence"))
    yield from _some(
        "Overruled", record["overruled"], ("overruled", "reason", "decided_by")
    )
    if parked := record["parked"]:
        searched = f"{parked['libraries']} libraries were searched since"
        yield f"Parked since {parked['since'][:10]}; {searched}"
    if record["curation"]:
        yield from _describe_curation(record["curation"], record["decided"])
    if record["proof"]:
        yield from _describe_proof(record["proof"], record["case"])
    if len(decisions := record["decisions"]) > 1:
        names = ["number", "at", "outcome", "stage", "reason", "attempt"]
        title = "Decisions, the latest first (--decision N shows one)"
        yield table_of(decisions, names, title)
    if record["case"]:
        yield from _describe_case(record["case"], record["criteria"])
    names = ["revision", "action", "element_id", "reason", "decided_by", "decided_at"]
    yield from _some("Reviews", record["reviews"], names)


def _some(title: str, rows: Sequence[Row], names: Sequence[str]) -> Iterator[Grid]:
    """A table where there is anything to show."""
    if rows:
        yield table_of(rows, names, title)


def _describe_origin(origin: Row) -> Grid:
    identifiers = [f"{kind} {count}" for kind, count in origin["identifiers"].items()]
    pages = []
    for page in origin["pages"]:
        pages.append(f"{page['path']} at {page['place']['offset']}")
    rows = [
        ["first seen", origin["first_seen_at"]],
        ["last seen", origin["last_seen_at"]],
        ["gone from its source since", origin["gone_at"]],
        ["identifiers in its raw text", identifiers or "none found"],
        ["pages kept as they came", pages],
    ]
    return Grid(["what", "found"], rows, "Where it is from")


def _describe_case(case: Row, criteria: Sequence[Row]) -> Iterator[Grid]:
    title = (
        f"Case {case['case_id']} revision {case['revision']}: {case['theme']}, {case['specialty']}, "
        f"difficulty {case['difficulty']}, register {case['dialogue_register']}{_figures(case)}"
    )
    if unproved := unproved_words(case["unproved_since"]):
        title += f", {unproved}"
    if not case["publishable"]:
        title += ", not publishable"
    title += f", {case['status']}"
    if case["status_reason"]:
        title += f": {case['status_reason']}"
    parts = [[part, case[part]] for part in ("narrative", "query", "advice")]
    yield Grid(["part", "text"], parts, title)
    title = "Rubric"
    if case["no_negative"]:
        title += f" (no criterion costs points: {case['no_negative']})"
    names = ["points", "tier", "asked", "axis", "criterion", "fact", "origin"]
    names += ["advice_id", "source", "likely"]
    yield table_of(criteria, names, title)
    yield from _some("What the query asks", case["asked"], ("id", "text"))
    names = ["criterion", "other", "advice_id", "detail"]
    yield from _some("Contradictions", case["conflicts"], names)
    names = ["step", "fact", "criterion", "advice_id", "reason", "detail"]
    title = "What the rubric leaves out, in the order of its steps"
    yield from _some(title, case["omitted"], names)
    if completion := case["completion"]:
        note = f" ({completion['note']})" if completion["note"] else ""
        if note or completion["points"]:
            names = ["point", "outcome", "source", "detail"]
            title = f"Points that the advice lacks{note}"
            yield table_of(completion["points"], names, title)


def _figures(figures: Row) -> str:
    """What the proof says of the rubric, after a comma; empty where it was not proved."""
    text = ""
    for name in ("ceiling", "floor", "separation", "ordinary"):
        if figures["ceiling"] is not None and figures[name] is not None:
            text += f", {name} {figures[name]:.2f}"
    return text


def _describe_proof(proof: Row, case: Row | None) -> Iterator[Grid]:
    """The answers of known quality, how the rubric grades them, and what spoke against it."""
    probes = proof["probes"]
    rows = [["score", "", *(f"{probe['score']:.2f}" for probe in probes)]]
    for criterion in proof["criteria"]:
        row = [criterion["criterion"], f"{criterion['points']:+d}"]
        for probe in probes:
            met = probe["verdicts"][criterion["id"]]["met"]
            row.append("met" if met else "unmet")
        rows.append(row)
    state = "passed" if proof["passed"] else "failed"
    if case is not None and not proof["applies"]:
        state = (
            f"{unproved_words(case['unproved_since'])}; of the rubric before, {state}"
        )
    engines = proof["engines"]
    title = (
        f"Proof of the rubric: {state}{_figures(proof['figures'])},"
        f" revised {proof['rounds']} times; answers by {engines['prober']['model']},"
        f" graded by {engines['grader']['model']}"
    )
    names = [probe["probe"].replace("_", " ") for probe in probes]
    yield Grid(["criterion", "points", *names], rows, title)
    yield table_of(probes, ("probe", "answer", "note"), "Answers, not published")
    names = ["round", "fault", "text", "detail", "needed", "basis", "reason"]
    yield from _some("What spoke against the rubric", proof["findings"], names)


def _failed(what: str, records: Sequence[Row], names: Sequence[str]) -> Grid:
    """A table of the records that did not pass; its title says how many those are."""
    failed = [record for record in records if not record["passed"]]
    state = f"all {len(records)} passed" if records else "none made"
    if failed:
        state = f"{len(failed)} of {len(records)} failed"
    return table_of(failed, names, f"{what}: {state}")


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
    failure = None
    if left:
        hint = "restore or remove the file, then `medlive source prune`"
        if done.frozen:
            hint = "errata.json says so, and later snapshots leave the case out; publish the errata"
        failure = CheckFailed(f"{name}: {'; '.join(left)}", hint=hint)
    state = "nothing was erased, this is what would be" if dry_run else "taken down"
    erased = sorted(done.counts.items())
    table = Grid(["what", "erased"], erased, f"{name}: {state}")
    return Result(value, [table], failure=failure)


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


def _describe_curation(curation: Row, decided: Row) -> Iterator[Grid]:
    title = (
        f"Curation: {curation['outcome']} at {curation['stage']}"
        f" on {decided['at'][:10]}, attempt {decided['attempt']}"
    )
    if curation["reason"]:
        title += f", {curation['reason']}: {curation['detail']}"
    names = ["id", "kind", "statement", "message_id", "quote", "status", "left_out"]
    yield table_of(curation["elements"], names, title)
    names = ["requirement", "prudent", "present", "element_ids"]
    yield table_of(curation["requirements"], names, _scores(curation))
    yield from _describe_evidence(curation["claims"], curation["index"])
    if examined := curation["cross_examination"]:
        scores = [f"{name} {examined[name]:.0f}" for name in _CROSS_EXAMINATION]
        title = f"Cross-examination: {', '.join(scores)}"
        yield table_of(
            examined["questions"], ("made_from", "question", "own", "other"), title
        )
    checks = ("check", "subject", "round", "detail")
    yield _failed("Checks", curation["checks"], checks)
    if reading := curation["second_reading"]:
        yield _describe_reading(reading)
    names = ["reason", "elements", "detail"]
    yield from _some("Held for a person", curation["holds"], names)


def _describe_evidence(claims: Sequence[Row], index: Row | None) -> Iterator[Grid]:
    judged, cited = [], []
    for claim in claims:
        second = claim["second"] or {}
        judged.append({**claim, "second_check": second and _second_check(second)})
        citations = {
            "verdict": claim["citations"],
            "second check: false": second.get("citations"),
            "second check: could hurt": second.get("harm_citations"),
        }
        hits = {hit["passage"]["id"]: hit for hit in claim["hits"]}
        for check, quoted in citations.items():
            for citation in quoted or ():
                passage = citation["passage_id"]
                row = [claim["element_id"], check, passage, citation["quote"]]
                hit = hits.get(passage)
                cited.append([*row, hit and hit["passage"]["url"], hit and hit["rank"]])
    names = ["element_id", "verdict", "claim", "flag", "queries", "lacks"]
    names += ["on_subject", "nearest", "reason", "second_check"]
    yield table_of(judged, names, "Evidence")
    by = f", by {index['retriever']} {index['index_digest'][:19]}…" if index else ""
    columns = ["claim", "by", "passage", "quote", "address", "rank"]
    yield Grid(columns, cited, f"Cited{by}")


def _second_check(second: Row) -> str:
    """What the second check answers, and why."""
    answers = []
    if second["false_by_passage"]:
        answers.append("false by the passage")
    if second["could_hurt"]:
        answers.append("could hurt")
    return f"{', '.join(answers) or 'not confirmed'}: {second['reason']}"


def _describe_reading(reading: Row) -> Grid:
    rows = []
    for name in ("asked", "clinical", "enough", "answered", "understandable"):
        rows.append([name, reading[name]])
    for wrong in reading["wrong"]:
        sure = "" if wrong["sure"] else ", not sure"
        words = f"{wrong['reason']} {wrong['standard']}".strip()
        rows.append([f"{wrong['element_id']} {wrong['kind']}{sure}", words])
    rows += [["danger", reading["danger"] or None], ["reason", reading["reason"]]]
    for element, words in reading["unseen"].items():
        rows.append([f"{element} rests on what the text does not hold", words])
    if reading["damaged"]:
        rows.append(["garbled", ", ".join(reading["damaged"])])
    for voice in reading["voices"]:
        what = voice["element_id"] or voice["reason"]
        sure = "" if voice["sure"] else ", not sure"
        words = f"{voice['verdict']}{sure}: {voice['case_for']} / {voice['case_against']} {voice['standard']}"
        rows.append([f"third voice on {what}", words.strip()])
    if reading["voices_note"]:
        rows.append(["third voice", reading["voices_note"]])
    engine = f"{reading['engine']['engine']} {reading['engine']['model']}"
    return Grid(["question", "answer"], rows, f"Second reading by {engine}")


def _scores(curation: Row) -> str:
    """The scores, and what one that decided had to exceed; one that was not needed has no figure."""
    limits, reason = curation["thresholds"], curation["reason"]
    above = {"s_cc": "", "s_inf": "", "s_align": ""}
    if reason == "insufficient_narrative":
        above["s_inf"] = f" (has to exceed {limits['sufficiency']:g})"
    elif reason in ("not_aligned", "no_evidence"):
        above["s_align"] = f" (has to exceed {limits['alignment']:g})"
    parts = []
    for name, limit in above.items():
        score = curation[name]
        figure = "not judged" if score is None else f"{score:.3g}"
        parts.append(f"S{name[1:]} {figure}{limit}")
    return ", ".join(parts)
