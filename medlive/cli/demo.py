"""`medlive demo`: the whole loop once."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from medlive.cli.options import JsonOption
from medlive.cli.output import (
    echo,
    print_result,
    print_table,
    say,
    wait_for,
)
from medlive.config import load_settings
from medlive.errors import UsageError
from medlive.llm.wire import JsonMode

if TYPE_CHECKING:
    from medlive.demo.loop import DemoResult
    from medlive.service.release.freeze import FreezeResult


def command(
    live: Annotated[
        bool, Option("--live", help="Curate with your own endpoint, not a recording.")
    ] = False,
    base_url: Annotated[
        str | None, Option(help="The endpoint of --live, up to /v1.")
    ] = None,
    model: Annotated[str | None, Option(help="The model of --live.")] = None,
    api_key_env: Annotated[
        str | None, Option(help="The variable that holds the endpoint's key.")
    ] = None,
    json_mode: Annotated[
        JsonMode, Option(help="How the endpoint is asked for JSON.")
    ] = JsonMode.SCHEMA,
    record: Annotated[
        Path | None, Option(metavar="FILE", help="Record the endpoint's replies here.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the whole loop once on sample communities that this machine serves: harvest, filter, curate, freeze,
    verify, evaluate, report.

    The curation replays what a language model answered to the sample threads, and says so; the rules engine stands
    in where nothing is recorded. Everything it makes lies under MEDLIVE_HOME, or .medlive/demo here when that is
    not set. A second run reports what exists already.
    """
    from medlive.demo.loop import LiveEndpoint, run_demo
    from medlive.report.tables import scores_json

    if live != (base_url is not None and model is not None) or (
        record is not None and not live
    ):
        raise UsageError(
            "--live needs --base-url and --model, and --record and these need --live"
        )
    endpoint = None
    if base_url is not None and model is not None:
        endpoint = LiveEndpoint(base_url, model, api_key_env, json_mode.value, record)
    home = os.environ.get("MEDLIVE_HOME") or str(Path(".medlive", "demo").absolute())
    settings = load_settings({**os.environ, "MEDLIVE_HOME": home}).settings
    started = time.perf_counter()
    done = wait_for(run_demo(settings, say, endpoint))
    frozen, scores = done.frozen, done.scores
    assert frozen is not None
    assert scores is not None
    assert done.curated is not None
    paths: dict[str, Any] = {
        "snapshot": frozen.path,
        "report": done.report,
        "runs": [m.run.run.path for m in scores.models],
        "home": settings.home,
    }
    value = {
        "harvest": {h.source: dict(h.counts) for h in done.harvested},
        "funnel": [row.cells for row in done.curated.funnel],
        "calls": done.curated.counts.calls,
        "replayed": done.curated.counts.replayed,
        "new_threads": done.new_threads,
        "verified_steps": done.verified_steps,
        "skipped_steps": done.skipped_steps,
        "seconds": done.seconds,
        "snapshot": {
            "version": frozen.version,
            "cases": frozen.cases,
            "criteria": frozen.criteria,
            "publishable": frozen.publishable,
            "already_frozen": frozen.already,
        },
        "scores": scores_json(scores),
        "paths": paths,
    }
    print_result(
        value, as_json, lambda: _print(done, frozen, paths, recorded=endpoint is None)
    )
    if not as_json:
        echo(f"Done in {time.perf_counter() - started:.1f} s. Look at it in a browser:")
        echo(f"MEDLIVE_HOME={settings.home} medlive serve --preview")


def _print(
    done: "DemoResult", frozen: "FreezeResult", paths: dict[str, Any], *, recorded: bool
) -> None:
    from medlive.cli.evaluation.score import print_scores

    echo()
    names = ("new", "revised", "unchanged", "not_modified")
    print_table(
        ["source", *(name.replace("_", " ") for name in names), "problems"],
        [
            [h.source, *(h.counts[name] for name in names), len(h.problems)]
            for h in done.harvested
        ],
        title="Harvest"
        + ("" if done.new_threads else ": nothing new, every thread was here already"),
    )
    echo()
    assert done.curated is not None
    funnel = done.curated.funnel
    rows = [row.cells for row in funnel]
    rows.append(["", "", "in all", sum(row.count for row in funnel)])
    print_table(
        ["stage", "outcome", "reason", "threads"],
        rows,
        title="Funnel: what became of each thread",
    )
    echo()
    state = "was frozen already" if frozen.already else "frozen"
    echo(
        f"Snapshot {frozen.version} {state}: {frozen.cases} cases, {frozen.criteria} criteria."
    )
    echo(f"Verified from its files alone: {done.verified_steps} steps passed.")
    for why in done.skipped_steps:
        echo(f"Skipped: {why}.")
    if not frozen.publishable:
        echo("Not publishable: " + "; ".join(frozen.why_not) + ".")
    echo()
    if done.scores is not None:
        print_scores(done.scores)
    if recorded:
        echo(
            "Curated from recorded replies of a language model; where none is recorded, by the rules engine."
        )
    echo(
        "Sample models and the rules engine as grader: these figures show the loop, not a model's worth."
    )
    echo()
    echo(f"snapshot  {frozen.path}")
    for run in paths["runs"]:
        echo(f"run       {run}")
    echo(f"report    {done.report}")
    inspect = f"MEDLIVE_HOME={paths['home']} medlive"
    echo(f"inspect   {inspect} status; {inspect} thread show SOURCE/ID")
