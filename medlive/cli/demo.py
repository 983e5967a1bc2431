"""`medlive demo`: the whole loop once."""

import os
import sys
import time
from pathlib import Path
from shutil import which

from medlive.config import RoleSettings
from medlive.demo.loop import DemoResult, run_demo
from medlive.errors import UsageError
from medlive.home import default_home
from medlive.instance.loading import read_settings
from medlive.report.tables import scores_json

from .evaluation.tables import describe_scores
from .output import Grid, Result, Shown, fields_of, say, wait_for


def demo(
    live: bool = False,
    base_url: str | None = None,
    model: str | None = None,
    api_key_env: str | None = None,
    record: Path | None = None,
) -> Result:
    """Run the whole loop once on sample communities that this machine serves: harvest, filter, curate, freeze,
    verify, evaluate, report.

    The curation replays what a language model answered to the sample threads, and says so; the rules engine stands
    in where nothing is recorded, and a role to which config/models.toml gives a model is asked instead. Everything it
    makes lies in a home of its own: MEDLIVE_HOME, which has to be new or the demo's, or `medlive-demo` among the
    user's data when that is not set. A second run reports what exists already.

    Args:
        live: Curate with your own endpoint, not a recording.
        base_url: The endpoint of --live, up to /v1.
        model: The model of --live.
        api_key_env: The variable that holds the endpoint's key [OPENAI_API_KEY].
        record: Record the replies of the models here.
    """
    if not live and any((base_url, model, api_key_env)):
        raise UsageError("an endpoint needs --live")
    if live and not (base_url and model):
        raise UsageError("--live needs --base-url and --model")
    endpoint = None
    if live:
        endpoint = RoleSettings(
            engine="openai", base_url=base_url, model=model, api_key_env=api_key_env
        )
    home = os.environ.get("MEDLIVE_HOME") or str(
        default_home().with_name("medlive-demo")
    )
    settings = read_settings({**os.environ, "MEDLIVE_HOME": home})
    say(f"the demo's home: {settings.home}")
    started = time.perf_counter()
    done = wait_for(run_demo(settings, say, endpoint, record))
    frozen, scores, curated = done.frozen, done.scores, done.curated
    runs = [model.run.run.path for model in scores.models]
    frozen_names = ("version", "cases", "criteria", "publishable")
    names = ("new_threads", "verified_steps", "skipped_steps")
    value = fields_of(done, names) | {
        "harvest": {h.source: h.counts for h in done.harvested},
        "funnel": list(map(list, curated.funnel)),
        "calls": curated.counts.calls,
        "replayed": curated.counts.replayed,
        "snapshot": fields_of(frozen, frozen_names)
        | {"already_frozen": frozen.already},
        "scores": scores_json(scores),
        "paths": {
            "snapshot": frozen.path,
            "report": done.report,
            "runs": runs,
            "home": settings.home,
        },
    }
    shown = [*_describe(done)]
    # By its path where the shell does not find its name
    program = "medlive" if which("medlive") else sys.argv[0]
    command = f"MEDLIVE_HOME={settings.home} {program}"
    shown += [
        "",
        f"snapshot  {frozen.path}",
        *(f"run       {path}" for path in runs),
        f"report    {done.report}",
        f"inspect   {command} status; {command} thread show SOURCE/ID",
        f"Done in {time.perf_counter() - started:.1f} s. Look at it in a browser:",
        f"{command} serve --preview",
    ]
    return Result(value, shown)


def _describe(done: DemoResult) -> Shown:
    frozen, curated = done.frozen, done.curated
    names = ("new", "revised", "unchanged", "not_modified")
    rows: list[list[object]] = []
    for harvested in done.harvested:
        counts = [harvested.counts[name] for name in names]
        rows.append([harvested.source, *counts, len(harvested.problems)])
    title = "Harvest"
    if not done.new_threads:
        title += ": nothing new, every thread was here already"
    yield ""
    yield Grid(["source", *names, "problems"], rows, title)
    rows = list(map(list, curated.funnel))
    rows.append(["", "", "in all", sum(row.threads for row in curated.funnel)])
    columns = ["stage", "outcome", "reason", "threads"]
    yield ""
    yield Grid(columns, rows, "Funnel: what became of each thread")
    yield ""
    state = "was frozen already" if frozen.already else "frozen"
    yield f"Snapshot {frozen.version} {state}: {frozen.cases} cases, {frozen.criteria} criteria."
    yield f"Verified from its files alone: {done.verified_steps} steps passed."
    for why in done.skipped_steps:
        yield f"Skipped: {why}."
    if not frozen.publishable:
        yield f"Not publishable: {'; '.join(frozen.why_not)}."
    yield ""
    yield from describe_scores(done.scores)
    if done.is_recorded:
        yield "Curated from recorded replies of a language model; where none is recorded, by the rules engine."
    yield "Sample models and the rules engine as grader: these figures show the loop, not a model's worth."
