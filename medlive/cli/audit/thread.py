"""`medlive thread`: where threads stand, and every decision about one."""

from typing import Annotated, Any, Final

import typer
from typer import Argument, Option

from medlive.cli.audit.listing import Places, View, Window, print_list
from medlive.cli.options import (
    DecisionOption,
    JsonOption,
    ThreadArgument,
    grouped,
    split_name,
)
from medlive.cli.output import (
    echo,
    pick,
    print_json,
    print_result,
    print_table,
    with_database,
    with_session,
)
from medlive.errors import CheckFailed

app = typer.Typer(no_args_is_help=True)
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


@app.command("list")
@grouped
def list_(places: Places, window: Window, view: View) -> None:
    """List threads by where they are, the latest decision first, with what their claims were contradicted by."""
    from medlive.db.audit.threads import THREADS

    print_list(
        THREADS,
        places,
        window,
        view,
        _COLUMNS,
    )


@app.command()
def show(
    thread: ThreadArgument, decision: DecisionOption = None, as_json: JsonOption = False
) -> None:
    """Show a thread, its filter verdicts, elements with quotes, evidence verdicts, checks, case and rubric."""
    from medlive.service.curation.inspect import ThreadTakenDown, inspect_thread

    source, thread_id = split_name(thread)
    try:
        found: dict[str, Any] = with_session(
            lambda session: inspect_thread(
                session, source, thread_id, decision=decision
            )
        )
    except ThreadTakenDown as gone:
        if as_json:
            taken_down = {"at": gone.taken_down_at.isoformat(), "reason": gone.reason}
            print_json({"thread": None, "taken_down": taken_down})
        raise
    print_result(found, as_json, lambda: show_thread(thread, found))


def show_thread(name: str, found: dict[str, Any]) -> None:
    """Print what `inspect_thread` found, as tables."""
    thread, origin = found["thread"], found["origin"]
    messages = enumerate(thread["messages"])
    rows = [
        [f"m{i}", m["role"], m.get("verified_by") or m["verified"], m["text"]]
        for i, m in messages
    ]
    print_table(
        ["id", "role", "verified", "text"], rows, title=f"{name}: {thread['title']}"
    )
    identifiers = ", ".join(
        f"{kind} {count}" for kind, count in origin["identifiers"].items()
    )
    print_table(
        ["what", "found"],
        [
            ["first seen", origin["first_seen_at"]],
            ["last seen", origin["last_seen_at"]],
            ["gone from its source since", origin["gone_at"]],
            ["identifiers in its raw text", identifiers or "none found"],
            *(
                ["page kept as it came", f"{p['path']} at {p['place']['offset']}"]
                for p in origin["pages"]
            ),
        ],
        title="Where it is from",
    )
    _print_failed("Filters", found["filters"], "rule reason evidence")
    if found["overruled"]:
        rows = pick(found["overruled"], "overruled reason decided_by")
        print_table(
            ["rejected for", "overruled because", "by"], rows, title="Overruled"
        )
    if parked := found["parked"]:
        searched = f"{parked['libraries']} libraries were searched since"
        echo(f"Parked since {parked['since'][:10]}; {searched}")
    if found["curation"]:
        _show_curation(found["curation"], found["decided"])
    if found["proof"]:
        _show_proof(found["proof"])
    if len(found["decisions"]) > 1:
        rows = pick(found["decisions"], "number at outcome stage reason attempt")
        columns = ["number", "at", "outcome", "stage", "reason", "attempt"]
        print_table(
            columns, rows, title="Decisions, the latest first (--decision N shows one)"
        )
    if found["case"]:
        _show_case(found["case"], found["criteria"])
    if found["reviews"]:
        rows = pick(
            found["reviews"], "revision action element_id reason decided_by decided_at"
        )
        columns = ["revision", "decision", "of", "reason", "by", "at"]
        print_table(
            columns, [[*row, f"{at:%Y-%m-%d}"] for *row, at in rows], title="Reviews"
        )


def _show_case(case: dict[str, Any], criteria: list[dict[str, Any]]) -> None:
    print_table(
        ["part", "text"],
        [[part, case[part]] for part in ("narrative", "query", "advice")],
        title=f"Case {case['case_id']} revision {case['revision']}: {case['theme']}, {case['specialty']}, "
        f"difficulty {case['difficulty']}, register {case['dialogue_register']}"
        + format_figures(case)
        + ("" if case["publishable"] else ", not publishable")
        + f", {case['status']}"
        + (f": {case['status_reason']}" if case["status_reason"] else ""),
    )
    print_table(
        ["points", "axis", "criterion", "fact", "origin", "from"],
        [
            [*pick([c], "points axis criterion fact origin")[0], _rests_on(c)]
            for c in criteria
        ],
        title="Rubric"
        + (
            f" (no criterion costs points: {case['no_negative']})"
            if case["no_negative"]
            else ""
        ),
    )
    _show_omitted(case)


def _show_omitted(case: dict[str, Any]) -> None:
    """What of the advice the rubric leaves out, and what became of points that the advice lacks."""
    if case["omitted"]:
        print_table(
            ["fact", "from", "reason", "detail"],
            pick(case["omitted"], "fact advice_id reason detail"),
            title="Facts of the advice that the rubric leaves out",
        )
    completion = case["completion"]
    if completion is None:
        return
    if completion["points"] or completion["note"]:
        note = f" ({completion['note']})" if completion["note"] else ""
        print_table(
            ["point", "outcome", "source", "detail"],
            pick(completion["points"], "point outcome source detail"),
            title=f"Points that the advice lacks{note}",
        )


def _rests_on(criterion: dict[str, Any]) -> str:
    """The advice element, the passage, or the models."""
    return str(criterion["advice_id"] or criterion["source"])


def format_figures(figures: dict[str, Any]) -> str:
    """What the proof says of the rubric, after a comma; empty where it was not proved."""
    if figures["ceiling"] is None:
        return ""
    names = ("ceiling", "floor", "separation")
    return "".join(f", {name} {figures[name]:.2f}" for name in names)


def _show_proof(proof: dict[str, Any]) -> None:
    """The answers of known quality, how the rubric grades them, and what spoke against it."""
    names = [probe["probe"].replace("_", " ") for probe in proof["probes"]]
    scores = [f"{probe['score']:.2f}" for probe in proof["probes"]]
    rows: list[list[Any]] = [["score", "", *scores]]
    for criterion in proof["criteria"]:
        row = [criterion["criterion"], f"{criterion['points']:+d}"]
        for probe in proof["probes"]:
            met = probe["verdicts"][criterion["id"]]["met"]
            row.append("met" if met else "unmet")
        rows.append(row)
    state = "passed" if proof["passed"] else "failed"
    engines = proof["engines"]
    title = (
        f"Proof of the rubric: {state}{format_figures(proof['figures'])},"
        f" revised {proof['rounds']} times; answers by {engines['prober']['model']},"
        f" graded by {engines['grader']['model']}"
    )
    print_table(["criterion", "points", *names], rows, title=title)
    answers = []
    for name, probe in zip(names, proof["probes"], strict=True):
        answers.append([name, probe["answer"], probe["mistake"] or None])
    print_table(["answer", "text", "mistake"], answers, title="Answers, not published")
    if proof["findings"]:
        print_table(
            ["round", "finding", "criterion", "detail", "needed", "by", "reason"],
            pick(proof["findings"], "round fault text detail needed basis reason"),
            title="What spoke against the rubric",
        )


def _print_failed(what: str, records: list[dict[str, Any]], names: str) -> None:
    """A table of the records that did not pass; its title says how many those are."""
    failed = [record for record in records if not record["passed"]]
    state = (
        f"{len(failed)} of {len(records)} failed"
        if failed
        else f"all {len(records)} passed"
    )
    columns = names.replace("subject", "of").split()
    print_table(
        columns,
        pick(failed, names),
        title=f"{what}: {state if records else 'none made'}",
    )


@app.command()
def takedown(
    source: Annotated[str, Argument(help="The community.")],
    thread_id: Annotated[str, Argument(help="The thread's id there.")],
    reason: Annotated[str, Option(help="Why, for the record that stays.")],
    by: Annotated[
        str | None, Option("--by", metavar="NAME", help="Who says so.")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Count what would go; erase nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Erase a thread for good, raw pages and all, and keep it from coming back.

    What cannot be erased is named: a case of it in a frozen snapshot is withdrawn, and errata.json says so without
    the reason. Exit status 1 when something of the thread is left. Doing it again finishes what was interrupted.
    """
    from medlive.service.harvest.takedown import take_down

    done = with_database(
        lambda db, settings: take_down(
            db, settings, source, thread_id, reason, by=by, dry_run=dry_run
        )
    )
    value = {
        "source": source,
        "thread_id": thread_id,
        "dry_run": dry_run,
        "erased": dict(done.counts),
        "files": done.files,
        "frozen": [
            {"version": version, "case_id": case_id} for version, case_id in done.frozen
        ],
        "damaged": [error.message for error in done.damaged],
    }
    state = "nothing was erased, this is what would be" if dry_run else "taken down"
    rows, title = sorted(done.counts.items()), f"{source}/{thread_id}: {state}"
    print_result(
        value, as_json, lambda: print_table(["what", "erased"], rows, title=title)
    )
    left = [
        f"snapshot {version} holds its case {case_id}, which is withdrawn"
        for version, case_id in done.frozen
    ]
    left += [
        f"a file may still hold its pages: {error.message}" for error in done.damaged
    ]
    if left:
        hint = "restore or remove the file, then `medlive source prune`"
        if done.frozen:
            hint = "errata.json says so, and later snapshots leave the case out; publish the errata"
        raise CheckFailed(f"{source}/{thread_id}: " + "; ".join(left), hint=hint)


@app.command("lift-takedown")
def lift_takedown(
    thread: ThreadArgument,
    reason: Annotated[str, Option(help="Why, for the log.")],
    by: Annotated[
        str | None, Option("--by", metavar="NAME", help="Who says so.")
    ] = None,
) -> None:
    """Let a later harvest or import bring a thread back that was taken down.

    Its text, pages and decisions are erased and stay so; a case that frozen snapshots hold stays withdrawn until
    `medlive snapshot reinstate`.
    """
    from medlive.service.harvest.takedown import allow_return

    with_database(
        lambda database, _: allow_return(database, *split_name(thread), reason, by=by)
    )
    echo(f"{thread} may come back with a later harvest; nothing that was erased does")


def _show_curation(curation: dict[str, Any], decided: dict[str, Any]) -> None:
    print_table(
        ["id", "kind", "statement", "message", "quote", "status", "not in A"],
        pick(
            curation["elements"], "id kind statement message_id quote status left_out"
        ),
        title=f"Curation: {curation['outcome']} at {curation['stage']}"
        + f" on {decided['at'][:10]}, attempt {decided['attempt']}"
        + (
            f", {curation['reason']}: {curation['detail']}"
            if curation["reason"]
            else ""
        ),
    )
    print_table(
        ["S_inf item", "present", "by"],
        [
            [
                r["requirement"] + (" (prudent)" if r["prudent"] else ""),
                r["present"],
                ", ".join(r["element_ids"]),
            ]
            for r in curation["requirements"]
        ],
        title=_scores(curation),
    )
    _show_evidence(curation["claims"], curation["index"])
    if examined := curation["cross_examination"]:
        scores = (
            "coverage",
            "conformity",
            "consistency",
            "conciseness",
            "summary",
            "stability",
        )
        print_table(
            ["made from", "question", "answered there", "answered by the other"],
            pick(examined["questions"], "made_from question own other"),
            title="Cross-examination: "
            + ", ".join(f"{name} {examined[name]:.0f}" for name in scores),
        )
    _print_failed("Checks", curation["checks"], "check subject round detail")
    if reading := curation["second_reading"]:
        _show_reading(reading)
    if curation["holds"]:
        rows = [
            [h["reason"], ", ".join(h["elements"]), h["detail"]]
            for h in curation["holds"]
        ]
        print_table(["reason", "of", "detail"], rows, title="Held for a person")


def _show_evidence(claims: list[dict[str, Any]], index: dict[str, Any] | None) -> None:
    judged, cited = [], []
    for c in claims:
        second, claim = (
            c["second"],
            c["claim"] + (f"\n({c['flag']})" if c["flag"] else ""),
        )
        judged.append(
            [
                c["element_id"],
                c["verdict"],
                claim,
                "\n".join(c["queries"]),
                "yes" if c["on_subject"] else f"no, nearest: {c['nearest'] or 'none'}",
                c["reason"],
                second and _second_check(second),
            ]
        )
        for check, citations in (
            ("verdict", c["citations"]),
            ("second check: false", second and second["citations"]),
            ("second check: could hurt", second and second["harm_citations"]),
        ):
            cited += [
                [
                    c["element_id"],
                    check,
                    _cited_passage(c["hits"], one["passage_id"]),
                    _places(c["hits"], one["passage_id"]),
                    one["quote"],
                ]
                for one in citations or ()
            ]
    columns = [
        "claim",
        "verdict",
        "judged as",
        "searched for",
        "on subject",
        "reason",
        "second check",
    ]
    print_table(columns, judged, title="Evidence")
    by = f", by {index['retriever']} {index['index_digest'][:19]}…" if index else ""
    print_table(
        ["claim", "by", "passage", "found as", "quote"], cited, title="Cited" + by
    )


def _second_check(second: dict[str, Any]) -> str:
    """What the second check answers, and why."""
    answers = []
    if second["false_by_passage"]:
        answers.append("false by the passage")
    if second["could_hurt"]:
        answers.append("could hurt")
    return f"{', '.join(answers) or 'not confirmed'}: {second['reason']}"


def _show_reading(reading: dict[str, Any]) -> None:
    rows = [
        [name, reading[name]]
        for name in ("asked", "clinical", "enough", "answered", "understandable")
    ]
    rows += [[f"{w['element_id']} {w['kind']}", w["reason"]] for w in reading["wrong"]]
    rows += [["danger", reading["danger"]]] if reading["danger"] else []
    engine = f"{reading['engine']['engine']} {reading['engine']['model']}"
    rows.append(["reason", reading["reason"]])
    print_table(["question", "answer"], rows, title=f"Second reading by {engine}")


def _scores(curation: dict[str, Any]) -> str:
    """The scores with the thresholds that they had to exceed; one that was not needed has no figure."""
    limits = curation["thresholds"]
    return ", ".join(
        f"{name} {'not judged' if curation[key] is None else f'{curation[key]:.3g}'}{above}"
        for name, key, above in (
            ("S_cc", "s_cc", ""),
            ("S_inf", "s_inf", f" (> {limits['sufficiency']:g})"),
            ("S_align", "s_align", f" (> {limits['alignment']:g})"),
        )
    )


def _cited_passage(hits: list[dict[str, Any]], passage_id: str) -> str:
    """The passage's id, and its address."""
    hit = next((h for h in hits if h["passage"]["id"] == passage_id), None)
    return f"{passage_id}\n{hit['passage']['url']}" if hit else passage_id


def _places(hits: list[dict[str, Any]], passage_id: str) -> str:
    """Rank and score of a passage, and where each side of the search put it."""
    hit = next((h for h in hits if h["passage"]["id"] == passage_id), None)
    if hit is None:
        return ""
    sides = ", ".join(
        f"{s['side']} {s['rank']} ({s['score']:.2f}) for phrase {s['phrase'] + 1}"
        for s in hit["sides"]
    )
    return f"{hit['rank']} ({hit['score']:.3f})" + (f": {sides}" if sides else "")
