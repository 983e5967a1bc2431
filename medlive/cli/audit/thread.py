"""`medlive thread`: where threads stand, and every decision about one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from typer import Option

from medlive.cli.asking import YesOption, confirm_by_name
from medlive.cli.audit.listing import Places, View, Window, print_list
from medlive.cli.options import (
    ByOption,
    Commands,
    DecisionOption,
    DryRunOption,
    ThreadArgument,
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
from medlive.errors import CheckFailed
from medlive.rubric.model import unproved_words

if TYPE_CHECKING:
    from medlive.service.harvest.takedown import TakedownResult

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
def list_(places: Places, window: Window, view: View) -> None:
    """List threads by where they are, the latest decision first, with what their claims were contradicted by."""
    from medlive.db.audit.threads import THREADS

    print_list(THREADS, places, window, view, _COLUMNS)


@app.command()
def show(thread: ThreadArgument, decision: DecisionOption = None) -> Result:
    """Show a thread, its filter verdicts, elements with quotes, evidence verdicts, checks, case and rubric."""
    from medlive.service.curation.inspect import ThreadTakenDown, inspect_thread

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
    if record["overruled"]:
        names = ["overruled", "reason", "decided_by"]
        yield table_of(record["overruled"], names, "Overruled")
    if parked := record["parked"]:
        searched = f"{parked['libraries']} libraries were searched since"
        yield f"Parked since {parked['since'][:10]}; {searched}"
    if record["curation"]:
        yield from _describe_curation(record["curation"], record["decided"])
    if record["proof"]:
        yield from _describe_proof(record["proof"], record["case"])
    if len(record["decisions"]) > 1:
        names = ["number", "at", "outcome", "stage", "reason", "attempt"]
        title = "Decisions, the latest first (--decision N shows one)"
        yield table_of(record["decisions"], names, title)
    if record["case"]:
        yield from _describe_case(record["case"], record["criteria"])
    if record["reviews"]:
        names = ["revision", "action", "element_id", "reason", "decided_by"]
        yield table_of(record["reviews"], [*names, "decided_at"], "Reviews")


def _describe_origin(origin: Row) -> Grid:
    identifiers = []
    for kind, count in origin["identifiers"].items():
        identifiers.append(f"{kind} {count}")
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
    unproved = unproved_words(case["unproved_since"])
    unproved = unproved and f", {unproved}"
    state = "" if case["publishable"] else ", not publishable"
    state += f", {case['status']}"
    if case["status_reason"]:
        state += f": {case['status_reason']}"
    rows = []
    for part in ("narrative", "query", "advice"):
        rows.append([part, case[part]])
    yield Grid(
        ["part", "text"],
        rows,
        f"Case {case['case_id']} revision {case['revision']}: {case['theme']}, {case['specialty']}, "
        f"difficulty {case['difficulty']}, register {case['dialogue_register']}{_figures(case)}{unproved}{state}",
    )
    title = "Rubric"
    if case["no_negative"]:
        title += f" (no criterion costs points: {case['no_negative']})"
    names = ["points", "tier", "asked", "axis", "criterion", "fact", "origin"]
    names += ["advice_id", "source", "likely"]
    yield table_of(criteria, names, title)
    if case["asked"]:
        yield table_of(case["asked"], ("id", "text"), "What the query asks")
    if case["conflicts"]:
        names = ["criterion", "other", "advice_id", "detail"]
        yield table_of(case["conflicts"], names, "Contradictions")
    if case["omitted"]:
        title = "What the rubric leaves out, in the order of its steps"
        names = ["step", "fact", "criterion", "advice_id", "reason", "detail"]
        yield table_of(case["omitted"], names, title)
    completion = case["completion"]
    if completion is not None and (completion["points"] or completion["note"]):
        title = "Points that the advice lacks"
        if completion["note"]:
            title += f" ({completion['note']})"
        names = ["point", "outcome", "source", "detail"]
        yield table_of(completion["points"], names, title)


def _figures(figures: Row) -> str:
    """What the proof says of the rubric, after a comma; empty where it was not proved."""
    if figures["ceiling"] is None:
        return ""
    text = ""
    for name in ("ceiling", "floor", "separation", "ordinary"):
        if figures[name] is not None:
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
    if proof["findings"]:
        names = ["round", "fault", "text", "detail", "needed", "basis", "reason"]
        yield table_of(proof["findings"], names, "What spoke against the rubric")


def _failed(what: str, records: Sequence[Row], names: Sequence[str]) -> Grid:
    """A table of the records that did not pass; its title says how many those are."""
    failed = [record for record in records if not record["passed"]]
    state = "none made"
    if failed:
        state = f"{len(failed)} of {len(records)} failed"
    elif records:
        state = f"all {len(records)} passed"
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
    from medlive.service.harvest.takedown import take_down

    name = f"{source}/{thread_id}"

    def take(dry_run: bool) -> "TakedownResult":
        return with_instance(
            take_down, source, thread_id, reason, by=by, dry_run=dry_run
        )

    if not dry_run and not yes:
        _show_takedown(name, take(dry_run=True))
        confirm_by_name(name)
    done = take(dry_run=dry_run)
    frozen, left = [], []
    for version, case_id in done.frozen:
        frozen.append({"version": version, "case_id": case_id})
        left.append(f"snapshot {version} holds its case {case_id}, which is withdrawn")
    for error in done.damaged:
        left.append(f"a file may still hold its pages: {error.message}")
    value = {
        "source": source,
        "thread_id": thread_id,
        "dry_run": dry_run,
        "erased": dict(done.counts),
        "files": done.files,
        "frozen": frozen,
        "damaged": [error.message for error in done.damaged],
    }
    failure = None
    if left:
        hint = "restore or remove the file, then `medlive source prune`"
        if done.frozen:
            hint = "errata.json says so, and later snapshots leave the case out; publish the errata"
        failure = CheckFailed(f"{name}: {'; '.join(left)}", hint=hint)
    state = "nothing was erased, this is what would be" if dry_run else "taken down"
    return Result(value, [_erased(name, done, state)], failure=failure)


def _show_takedown(name: str, planned: "TakedownResult") -> None:
    """Show on stderr what a takedown would do."""
    rows = [f"{table} {count}" for table, count in sorted(planned.counts.items())]
    say(
        f"{name} would be erased for good: {', '.join(rows) or 'nothing of it is here'}"
    )
    for version, case_id in planned.frozen:
        say(f"snapshot {version} holds its case {case_id}, which would be withdrawn")
    say("it is kept from coming back; a lifted takedown restores nothing")


def _erased(name: str, done: "TakedownResult", state: str) -> Grid:
    rows = sorted(done.counts.items())
    return Grid(["what", "erased"], rows, f"{name}: {state}")


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
    from medlive.service.harvest.takedown import allow_return

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
        names = ["made_from", "question", "own", "other"]
        yield table_of(examined["questions"], names, title)
    checks = ("check", "subject", "round", "detail")
    yield _failed("Checks", curation["checks"], checks)
    if reading := curation["second_reading"]:
        yield _describe_reading(reading)
    if curation["holds"]:
        names = ["reason", "elements", "detail"]
        yield table_of(curation["holds"], names, "Held for a person")


def _describe_evidence(claims: Sequence[Row], index: Row | None) -> Iterator[Grid]:
    judged, cited = [], []
    for claim in claims:
        second = claim["second"] or {}
        answers = _second_check(second) if second else None
        judged.append({**claim, "second_check": answers})
        citations = {
            "verdict": claim["citations"],
            "second check: false": second.get("citations"),
            "second check: could hurt": second.get("harm_citations"),
        }
        hits = {hit["passage"]["id"]: hit for hit in claim["hits"]}
        for check, quoted in citations.items():
            for citation in quoted or ():
                hit = hits.get(citation["passage_id"])
                row = [
                    claim["element_id"],
                    check,
                    citation["passage_id"],
                    citation["quote"],
                ]
                cited.append([*row, hit and hit["passage"]["url"], hit and hit["rank"]])
    names = ["element_id", "verdict", "claim", "flag", "queries"]
    others = ["lacks", "on_subject", "nearest", "reason", "second_check"]
    yield table_of(judged, [*names, *others], "Evidence")
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
