"""The whole loop once: harvest, filter, curate, freeze, verify, evaluate and report, on sample communities.

Everything is what a maintainer runs on real communities: the same fetcher over real HTTP, the same PostgreSQL,
the same queue, agents, gates and grader. Only the threads, the evidence and the two models are samples.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medlive.clock import now
from medlive.config import Settings
from medlive.db import embedded
from medlive.demo.communities import serve_communities
from medlive.demo.samples import load_sample_threads, sample_evidence_path
from medlive.errors import CheckFailed
from medlive.evaluation.cases import load_cases
from medlive.evaluation.grade import grade_run
from medlive.evaluation.run import ModelUse, run_model
from medlive.evaluation.score import ScoreTable, load_graded, score_runs
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.report.render import write_report
from medlive.service.database import open_database
from medlive.service.endpoint import serve_rules
from medlive.service.endpoints import build_engine, open_endpoint
from medlive.service.evaluations import record
from medlive.service.freezing import Frozen, freeze
from medlive.service.harvesting import Harvested, harvest_source
from medlive.service.paths import index_path, runs_path
from medlive.service.runs import run_curation
from medlive.snapshot.verify import StepState, verify_snapshot

SAMPLE_MODELS = ("sample-evidence", "sample-generic")


@dataclass(slots=True)
class Demo:
    """What the loop did and made."""

    harvested: list[Harvested] = field(default_factory=list)
    curated: dict[str, Any] = field(default_factory=dict)
    frozen: Frozen | None = None
    verified_steps: int = 0
    """Steps that passed."""
    skipped_steps: tuple[str, ...] = ()
    """Why each of the others was not taken."""
    scores: ScoreTable | None = None
    report: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """Stage → seconds."""

    @property
    def new_threads(self) -> int:
        """Threads that this run saw first, or changed."""
        return sum(h.counts["new"] + h.counts["revised"] for h in self.harvested)


def demo_settings(settings: Settings) -> Settings:
    """The settings of the demo: always its own embedded database, and this machine's addresses allowed."""
    return settings.model_copy(update={"database_url": None, "harvest": {"allow_loopback": True}})


async def run_demo(settings: Settings, say: Callable[[str], None]) -> Demo:
    """Run the loop; `say` is told each stage as it begins. Raises CheckFailed when the snapshot fails."""
    done = Demo()
    settings = demo_settings(settings)
    was_running = embedded.status(settings.home).running
    stages: list[tuple[str, str, Callable[[Settings, Demo], Any]]] = [
        ("evidence", "indexing the sample evidence", _evidence),
        ("harvest", "harvesting four sample communities over HTTP into PostgreSQL", _harvest),
        ("curate", "filtering and curating (rules engine unless config/models.toml says otherwise)", _curate),
        ("freeze", "freezing the week's snapshot", _freeze),
        ("verify", "verifying the snapshot from its files alone", _verify),
        ("evaluate", "evaluating two sample models", _evaluate),
        ("report", "writing the report", _report),
    ]
    try:
        for number, (name, what, stage) in enumerate(stages, 1):
            say(f"[{number}/{len(stages)}] {what}")
            started = time.perf_counter()
            await stage(settings, done)
            done.seconds[name] = time.perf_counter() - started
    finally:
        if not was_running:
            await asyncio.to_thread(embedded.stop, settings.home)
    return done


async def _evidence(settings: Settings, done: Demo) -> None:
    corpus = open_corpus(sample_evidence_path(), name="demo")
    await asyncio.to_thread(build_index, [corpus], index_path(settings))


async def _harvest(settings: Settings, done: Demo) -> None:
    async with serve_communities(load_sample_threads()) as communities, open_database(settings) as database:
        for site, base_url in communities.base_urls.items():
            overrides = {"base_url": base_url, "boards": communities.boards[site], "min_interval_s": 0.0}
            if site == "icliniq":
                overrides["boards"] = ()  # its front list holds every topic
            done.harvested.append(await harvest_source(database, settings, site, overrides, again=True))


async def _curate(settings: Settings, done: Demo) -> None:
    done.curated = await run_curation(settings)
    if done.curated["faults"]:
        raise CheckFailed(f"curation met faults: {done.curated['faults'][0]}")


async def _freeze(settings: Settings, done: Demo) -> None:
    async with open_database(settings) as database:
        done.frozen = await freeze(database, settings)


async def _verify(settings: Settings, done: Demo) -> None:
    assert done.frozen is not None
    report = await asyncio.to_thread(verify_snapshot, done.frozen.path)
    if not report.ok:
        raise CheckFailed(report.summary())
    done.skipped_steps = tuple(step.why for step in report.steps if step.state is StepState.SKIPPED)
    done.verified_steps = len(report.steps) - len(done.skipped_steps)


async def _evaluate(settings: Settings, done: Demo) -> None:
    assert done.frozen is not None
    cases = load_cases(done.frozen.path, verify=False)
    folders = []
    async with serve_rules(settings) as base_url:
        for model in SAMPLE_MODELS:
            folder = runs_path(settings) / f"{done.frozen.version}-{model}"
            engine = open_endpoint(model, base_url, api_key_env=None, parameters={}, concurrency=8)
            try:
                # The port is a new one each time, so the endpoint's name leaves it out.
                use = ModelUse(model, engine.identity.engine, "http://127.0.0.1/v1")
                await run_model(cases, engine.complete, folder, use=use, created_at=now(), template="open")
            finally:
                await engine.aclose()
            grader = build_engine("grader", settings.roles.grader)
            try:
                await grade_run(folder, grader)
            finally:
                await grader.aclose()
            folders.append(folder)
    done.scores = score_runs([load_graded(folder) for folder in folders])
    await record(settings, done.scores)


async def _report(settings: Settings, done: Demo) -> None:
    assert done.scores is not None
    assert done.frozen is not None
    out = settings.home / "reports" / done.frozen.version
    done.report = (await asyncio.to_thread(write_report, done.scores, out)).page
