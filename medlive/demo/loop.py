"""`run_demo`: the whole loop once on sample communities: harvest, filter, curate, freeze, verify, evaluate and report.

The code is that of a real instance: HTTP fetcher, PostgreSQL, queue, agents, gates and grader. Only the threads,
the evidence and the two models are samples.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from medlive.clock import now
from medlive.config import RoleSettings, Settings
from medlive.db import embedded
from medlive.db.curation.funnel import funnel
from medlive.db.runs import record_evaluation
from medlive.db.schema.migrate import upgrade
from medlive.errors import CheckFailed, UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.bundles.bundle import make_bundle
from medlive.evaluation.bundles.files import write_bundle
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.runs.folder import ModelUse
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.refusals import Allow
from medlive.evaluation.scoring.score import ScoreTable, score_runs
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.instance.opening import build_engine, open_endpoint, serve_rules
from medlive.instance.paths import index_path, report_path, runs_path
from medlive.integrity.checks import Report
from medlive.integrity.digest import digest_json
from medlive.integrity.signing import load_signing_key
from medlive.llm.recorded import Recording, save_recording
from medlive.report.render import write_report
from medlive.service.curation.curate import CurationRun, run_curation
from medlive.service.database import database_url, open_database
from medlive.service.harvest.harvest import HarvestResult, harvest_source
from medlive.service.release.freeze import FreezeResult, freeze
from medlive.service.wiring import CURATION_ROLES
from medlive.site.read import BUNDLES
from medlive.snapshot.verify.steps import verify_snapshot
from medlive.sources.registry import build_site

from .communities import serve_communities
from .samples import (
    load_sample_threads,
    sample_evidence_path,
    sample_replies_path,
)

MARK = "demo-home"
"""The file that says that a home is the demo's."""
SAMPLE_MODELS = ("sample-evidence", "sample-generic")
RECORDED = "recorded replies of a language model"


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """The results of the loop."""

    harvested: Sequence[HarvestResult]
    curated: CurationRun
    frozen: FreezeResult
    verified: Report
    scores: ScoreTable
    report: Path
    is_recorded: bool  # Whether the recording answered for a role

    @property
    def new_threads(self) -> int:
        """Threads that are new or revised in this run."""
        return sum(h.counts["new"] + h.counts["revised"] for h in self.harvested)


def demo_settings(settings: Settings, live: RoleSettings | None) -> Settings:
    """The settings of the demo: an embedded database, and loopback addresses allowed.

    The live endpoint curates, else a role's engine from config/models.toml, else the recording.
    """
    if live is not None:
        roles = dict.fromkeys((*CURATION_ROLES, "prober"), live)
    else:
        recorded = RoleSettings(engine="recorded", recording=sample_replies_path())
        roles = {}
        for role in CURATION_ROLES:
            own = getattr(settings.roles, role)
            roles[role] = recorded if own.engine == "rules" else own
    return settings.model_copy(
        update={
            "database_url": None,
            "harvest": {"allow_loopback": True},
            "roles": settings.roles.model_copy(update=roles),
        }
    )


async def run_demo(
    settings: Settings,
    notify: Callable[[str], None],
    live: RoleSettings | None = None,
    record_to: Path | None = None,
) -> DemoResult:
    """Run the loop once.

    Args:
        settings: Whose home is the demo's.
        notify: Called at the start of each stage.
        live: A user's own endpoint, used instead of the recording.
        record_to: The file to record the models' replies in.

    Raises:
        CheckFailed: When a stage fails.
        UsageError: For a home that is not the demo's, or where a role has no model to record.
    """
    settings = demo_settings(settings, live)
    roles = [getattr(settings.roles, role) for role in CURATION_ROLES]
    models = {role.model or RECORDED for role in roles}
    who = ", ".join(sorted(models))
    recording = None
    if record_to:
        if RECORDED in models:
            raise UsageError(
                "--record needs a model in every role",
                hint="--live with --base-url and --model, or config/models.toml",
            )
        how = f"Replies of {who} to the demo's threads, recorded by `medlive demo --record`."
        recording = Recording(who, f"{now():%Y-%m-%d}", how)
    was_running = embedded.status(settings.home) is not None
    try:
        await _take_home(settings)
        notify("[1/7] indexing the sample evidence")
        corpus = open_corpus(sample_evidence_path(), name="demo")
        await asyncio.to_thread(build_index, [corpus], index_path(settings))
        notify("[2/7] harvesting four sample communities over HTTP into PostgreSQL")
        harvested = await _harvest(settings)
        notify(f"[3/7] filtering and curating ({who})")
        curated = await run_curation(settings, record=recording)
        if faults := curated.counts.faults:
            raise CheckFailed(f"curation failed on: {faults[0]}")
        notify("[4/7] freezing the week's snapshot")
        async with open_database(settings) as database:
            frozen = await freeze(database, settings, key=load_signing_key(os.environ))
        notify("[5/7] verifying the snapshot from its files alone")
        verified = await asyncio.to_thread(verify_snapshot, frozen.path)
        if not verified.ok:
            raise CheckFailed(verified.summary())
        notify("[6/7] evaluating two sample models")
        scores = await _evaluate(settings, frozen)
        notify("[7/7] writing the report")
        out = report_path(settings, frozen.version)
        report = await asyncio.to_thread(write_report, scores, out)
    finally:
        # A run that failed before any reply leaves an earlier recording unchanged.
        if record_to and recording and recording.replies:
            save_recording(recording, record_to)
        if not was_running:
            await asyncio.to_thread(embedded.stop, settings.home)
    return DemoResult(
        harvested=harvested,
        curated=curated,
        frozen=frozen,
        verified=verified,
        scores=scores,
        report=report,
        is_recorded=RECORDED in models,
    )


async def _take_home(settings: Settings) -> None:
    """Upgrade the demo's home, or mark a new one as the demo's. Raises UsageError for the home of another instance."""
    mark = settings.home / MARK
    if mark.exists():
        # Samples alone: nobody has to be asked before they are upgraded.
        await asyncio.to_thread(upgrade, database_url(settings))
        return
    async with open_database(settings) as database, database.begin() as session:
        threads = sum(row.threads for row in await funnel(session))
    if threads:
        raise UsageError(
            f"{settings.home} is the home of an instance with {threads} threads, and the demo wants one of its own",
            hint="unset MEDLIVE_HOME, or name an empty folder",
        )
    mark.write_text("The home of `medlive demo`; remove it whenever you like.\n")


async def _harvest(settings: Settings) -> list[HarvestResult]:
    """Serve the sample communities, and harvest each of them once."""
    harvested = []
    async with (
        serve_communities(load_sample_threads()) as communities,
        open_database(settings) as database,
    ):
        for name, community in communities.items():
            # The front list of iCliniq has every topic.
            boards = () if name == "icliniq" else community.boards
            place = {
                "base_url": community.base_url,
                "boards": boards,
                "min_interval_s": 0.0,
            }
            site = build_site(name, place)
            harvested.append(await harvest_source(database, settings, site, again=True))
    return harvested


async def _evaluate(settings: Settings, frozen: FreezeResult) -> ScoreTable:
    """Ask, grade and score the sample models; record their runs, and write the bundles for the site's leaderboard."""
    cases = load_cases(frozen.path)
    graded = []
    async with serve_rules(settings) as base_url:
        for model in SAMPLE_MODELS:
            folder = runs_path(settings) / f"{frozen.version}-{model}"
            role = RoleSettings(
                engine="openai", model=model, base_url=base_url, concurrency=8
            )
            engine = open_endpoint(role)
            # The port is a new one each time, so the endpoint's name leaves it out.
            use = ModelUse(model, engine.identity.engine, "http://127.0.0.1/v1")
            async with aclosing(engine):
                await run_model(
                    cases,
                    engine.complete,
                    folder,
                    use=use,
                    created_at=now(),
                    template="open",
                )
            async with aclosing(build_engine(settings.roles.grader)) as grader:
                await grade_run(folder, grader)
            # The run may also hold verdicts of an earlier version of the rules.
            graded.append(load_graded(folder, judge=grader.identity.model))
    # Rules stand in for models here, and the demo says so.
    scores = score_runs(graded, allow=[Allow.NOT_PUBLISHABLE])
    for scored in scores.models:
        files = make_bundle(scored.run, allow=[Allow.NOT_PUBLISHABLE])
        place = settings.home / BUNDLES / f"{scored.run.run.path.name}.zip"
        place.unlink(missing_ok=True)
        write_bundle(files, place)
    async with open_database(settings) as database, database.begin() as session:
        for scored in scores.models:
            run = scored.run
            # Unset fields are left out, so that older runs keep their identity.
            identity = run.info.model_dump(
                mode="json", exclude={"snapshots"}, exclude_unset=True
            )
            await record_evaluation(
                session,
                run_digest=digest_json(identity),
                snapshot_version=frozen.version,
                model=run.info.model,
                grader=run.grader.model if run.grader else "none",
                path=str(run.run.path),
                scores={
                    "metric": scores.metric.value,
                    "overall": scored.overall.row(),
                },
            )
    return scores
