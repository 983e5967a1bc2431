"""`medlive demo`: the whole loop once."""

import os
import time
from pathlib import Path
from typing import Any

from medlive.cli.output import JsonOption, print_json, print_table, say, wait_for
from medlive.config import load_settings


def command(as_json: JsonOption = False) -> None:
    """Run the whole loop once on sample communities that this machine serves: harvest, filter, curate, freeze,
    verify, evaluate, report.

    Everything it makes lies under MEDLIVE_HOME, or .medlive/demo here when that is not set. Run it again, and it
    says what was there already.
    """
    from medlive.cli.evaluation_score import print_scores
    from medlive.demo.loop import Demo, run_demo
    from medlive.report.tables import scores_json

    home = os.environ.get("MEDLIVE_HOME") or str(Path(".medlive", "demo").absolute())
    settings = load_settings({**os.environ, "MEDLIVE_HOME": home}).settings
    started = time.perf_counter()
    done: Demo = wait_for(run_demo(settings, say))
    frozen, scores = done.frozen, done.scores
    assert frozen is not None
    assert scores is not None
    paths: dict[str, Any] = {
        "snapshot": frozen.path,
        "report": done.report,
        "runs": [m.run.run.path for m in scores.models],
        "home": settings.home,
    }
    if as_json:
        print_json(
            {
                "harvest": {h.source: dict(h.counts) for h in done.harvested},
                "funnel": done.curated["funnel"],
                "new_threads": done.new_threads,
                "calls": done.curated["calls"],
                "replayed": done.curated["replayed"],
                "snapshot": {
                    "version": frozen.version, "cases": frozen.cases, "criteria": frozen.criteria,
                    "publishable": frozen.publishable, "already_frozen": frozen.already,
                },
                "verified_steps": done.verified_steps, "skipped_steps": done.skipped_steps,
                "scores": scores_json(scores),
                "paths": paths,
                "seconds": done.seconds,
            }
        )  # fmt: skip
        return
    print()
    print_table(
        ["source", "new", "revised", "unchanged", "not modified", "problems"],
        [
            [h.source, h.counts["new"], h.counts["revised"], h.counts["unchanged"], h.counts["not_modified"],
             len(h.problems)]
            for h in done.harvested
        ],
        title="Harvest" + ("" if done.new_threads else ": nothing new, every thread was here already"),
    )  # fmt: skip
    print()
    funnel = done.curated["funnel"]
    total = sum(row[3] for row in funnel)
    print_table(
        ["stage", "outcome", "reason", "threads"],
        [*funnel, ["", "", "in all", total]],
        title="Funnel: what became of each thread",
    )
    print()
    state = "was frozen already" if frozen.already else "frozen"
    print(f"Snapshot {frozen.version} {state}: {frozen.cases} cases, {frozen.criteria} criteria.")
    print(f"Verified from its files alone: {done.verified_steps} steps passed.")
    for why in done.skipped_steps:
        print(f"Not taken: {why}.")
    if not frozen.publishable:
        print("Not publishable: " + "; ".join(frozen.why_not) + ".")
    print()
    print_scores(scores, warnings=False)
    print("Sample models and the rules engine as grader: these figures show the loop, not a model's worth.")
    print()
    print(f"snapshot  {frozen.path}")
    for run in paths["runs"]:
        print(f"run       {run}")
    print(f"report    {done.report}")
    inspect = f"MEDLIVE_HOME={settings.home} medlive"
    print(f"inspect   {inspect} status; {inspect} thread show SOURCE/ID")
    print(f"Done in {time.perf_counter() - started:.1f} s.")
