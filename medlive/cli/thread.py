"""`medlive thread`: every decision about a thread."""

from typing import Annotated, Any

import typer

from medlive.cli.output import JsonOption, print_json, print_table, wait_for
from medlive.config import load_settings
from medlive.errors import UsageError

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Every decision about a thread, down to the sentence it rests on."""


@app.command()
def show(
    thread: Annotated[str, typer.Argument(metavar="SOURCE/ID", help="E.g. icliniq/a1b2.")],
    as_json: JsonOption = False,
) -> None:
    """Show a thread, its filter verdicts, elements with quotes, evidence verdicts, checks, case and rubric."""
    from medlive.service.inspecting import inspect_thread

    source, slash, thread_id = thread.partition("/")
    if not slash:
        raise UsageError(f"{thread}: give the source and the id, as in icliniq/a1b2")
    found: dict[str, Any] = wait_for(inspect_thread(load_settings().settings, source, thread_id))
    if as_json:
        print_json(found)
        return
    told = found["thread"]
    print_table(
        ["id", "role", "verified", "text"],
        [[f"m{i}", m["role"], m["verified"], m["text"]] for i, m in enumerate(told["messages"])],
        title=f"{thread}: {told['title']}",
    )
    failed = [v for v in found["filters"] if not v["passed"]]
    print_table(
        ["rule", "reason", "evidence"],
        [[v["rule"], v["reason"], v["evidence"]] for v in failed],
        title="Filters failed",
    )
    if curation := found["curation"]:
        _show_curation(curation)
    if case := found["case"]:
        print_table(
            ["part", "text"],
            [["narrative", case["narrative"]], ["query", case["query"]], ["advice", case["advice"]]],
            title=f"Case {case['case_id']} revision {case['revision']}: {case['theme']}, {case['specialty']}"
            + ("" if case["publishable"] else ", not publishable"),
        )
        print_table(
            ["points", "axis", "criterion", "from"],
            [[c["points"], c["axis"], c["criterion"], c["advice_id"]] for c in found["criteria"]],
            title="Rubric",
        )


def _show_curation(curation: dict[str, Any]) -> None:
    print_table(
        ["id", "kind", "statement", "message", "quote"],
        [[e["id"], e["kind"], e["statement"], e["message_id"], e["quote"]] for e in curation["elements"]],
        title=f"Curation: {curation['outcome']} at {curation['stage']}"
        + (f", {curation['reason']}: {curation['detail']}" if curation["reason"] else ""),
    )
    print_table(
        ["S_inf item", "present", "by"],
        [[r["requirement"], r["present"], ", ".join(r["element_ids"])] for r in curation["requirements"]],
        title=f"S_cc {curation['s_cc']}, S_inf {curation['s_inf']}, S_align {curation['s_align']}",
    )
    print_table(
        ["claim", "verdict", "passages", "quote", "reason"],
        [
            [c["element_id"], c["verdict"], ", ".join(c["passage_ids"]), c["quote"], c["reason"]]
            for c in curation["claims"]
        ],
        title="Evidence",
    )
    print_table(
        ["check", "of", "detail"],
        [[c["check"], c["subject"], c["detail"]] for c in curation["checks"] if not c["passed"]],
        title="Checks failed",
    )
