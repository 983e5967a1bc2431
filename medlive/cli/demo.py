"""`medlive demo`: the whole loop once on sample communities, from harvest to report."""

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
    endpoint = None
    if live or base_url or model or api_key_env:
        if not (live and base_url and model):
            raise UsageError("an endpoint needs --live, --base-url and --model")
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
    names = ("harvested", "new_threads", "frozen", "report")
    runs = [model.run.run.path for model in done.scores.models]
    value = fields_of(done, names) | {
        "curated": done.curated.as_json() | {"funnel": done.curated.funnel},
        "scores": scores_json(done.scores),
        "runs": runs,
        "home": settings.home,
    }
    shown = [*_describe(done)]
    # Name medlive by its path where the shell does not find it.
    program = "medlive" if which("medlive") else sys.argv[0]
    command = f"MEDLIVE_HOME={settings.home} {program}"
    shown += [
        "",
        f"snapshot  {done.frozen.path}",
        *(f"run       {path}" for path in runs),
        f"report    {done.report}",
        f"inspect   {command} status; {command} thread show SOURCE/ID",
        f"Done in {time.perf_counter() - started:.1f} s. Look at it in a browser:",
        f"{command} serve --preview",
    ]
    return Result(value, shown)


def _describe(done: DemoResult) -> Shown:
    """What each step of the demo did: harvest, funnel, snapshot, scores."""
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
    columns = ["stage", "outcome", "reason", "threads"]
    yield ""
    yield Grid(columns, curated.funnel, "Funnel: what became of each thread")
    yield ""
    state = "was frozen already" if frozen.already else "frozen"
    yield f"Snapshot {frozen.version} {state}: {frozen.cases} cases, {frozen.criteria} criteria."
    skipped = done.verified.skipped
    passed = len(done.verified.steps) - len(skipped)
    yield f"Verified from its files alone: {passed} steps passed."
    for step in skipped:
        yield f"Skipped: {step.why}."
    if not frozen.publishable:
        yield f"Not publishable: {'; '.join(frozen.why_not)}."
    yield ""
    yield from describe_scores(done.scores)
    if done.is_recorded:
        yield "Curated from recorded replies of a language model; where none is recorded, by the rules engine."
    yield "Sample models and the rules engine as grader: these figures show the loop, not a model's worth."
