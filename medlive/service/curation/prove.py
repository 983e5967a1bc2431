"""Prove the rubric of a case again, as a person edited it: queued, and done by whoever curates."""

import asyncio
import logging
from dataclasses import replace

from medlive.config import Settings
from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.model import Reason
from medlive.db.curation.cases import StoredCase, add_revision, latest_case, lock_case
from medlive.db.curation.proofs import save_proof
from medlive.db.session import Database
from medlive.errors import CheckFailed, EndpointUnavailable, UsageError
from medlive.grader.probes import grade_probes
from medlive.rubric.make import read_for_harm
from medlive.rubric.probe import write_probes
from medlive.rubric.proof import Proof, examine
from medlive.service.release.withdraw import load_latest_case
from medlive.service.wiring import Pipeline, proof_roles
from medlive.service.work.jobs import defer_proof, open_app

_log = logging.getLogger(__name__)


async def queue_proof(
    database: Database, settings: Settings, case_id: str
) -> tuple[int, bool]:
    """Have a case's latest revision proved in the background; its number, and whether it waited already.

    Raises UsageError for an unknown case or where nobody proves rubrics, CheckFailed for a proved revision.
    """
    if not proof_roles(settings):
        raise UsageError(
            "no model proves rubrics here",
            hint="[rubric] prove is off, or the role `rubric` is the rules engine",
        )
    async with open_app(database).open_async() as app, database.begin() as session:
        await lock_case(session, case_id)
        case = await load_latest_case(session, case_id)
        if case.rubric.ceiling is not None:
            raise CheckFailed(
                f"revision {case.revision} of case {case_id} is proved already"
            )
        queued = await defer_proof(app, session, case_id, case.revision)
    return case.revision, not queued


async def prove_again(pipeline: Pipeline, case_id: str, revision: int) -> str | None:
    """Prove a revision of a case that is still its latest, and store the proof.

    A rubric that passes gives the case a further revision, the same but for its figures. Returns why there is no
    answer, where it is to be tried again. Raises UsageError where nobody proves rubrics, EndpointUnavailable where
    the budget is spent, CheckFailed without usable replies: others are proved and curated all the same.
    """
    if not pipeline.proves:
        raise UsageError("no model proves rubrics here")
    case = await pipeline.database.ask(latest_case, case_id)
    if case is None or case.revision != revision or case.rubric.ceiling is not None:
        return None
    limit_s = pipeline.settings.curation.thread_timeout_s
    try:
        async with asyncio.timeout(limit_s):
            proof = await _prove(pipeline, case)
    except TimeoutError:
        _log.warning("%s was not proved within %g s", case_id, limit_s)
        return Reason.ENDPOINT_UNAVAILABLE.value
    except AgentFailure as failure:
        text = f"{case_id} was not proved: {failure.detail}"
        if failure.reason is Reason.ENDPOINT_UNAVAILABLE:
            _log.warning("%s", text)
            return failure.reason.value
        if failure.is_outage:
            raise EndpointUnavailable(text) from failure
        raise CheckFailed(text) from failure
    async with pipeline.database.begin() as session:
        await lock_case(session, case_id)
        latest = await load_latest_case(session, case_id)
        if latest.revision != revision:
            _log.info("%s was edited while it was proved", case_id)
            return None
        if proof.passed:
            names = ("ceiling", "floor", "separation", "ordinary")
            figures = {name: getattr(proof.figures, name) for name in names}
            rubric = replace(case.rubric, **figures)
            saved = await add_revision(session, case_id, replace(case, rubric=rubric))
            revision = saved.revision
        await save_proof(session, case.curation_id, proof, revision=revision)
    return None


async def _prove(pipeline: Pipeline, case: StoredCase) -> Proof:
    """Answers of known quality, graded by the rubric as it is; nothing is revised. Raises AgentFailure."""
    prober, grader, reader = (
        Agent(pipeline.respondents[role], [], case.language)
        for role in ("prober", "grader", "reader")
    )
    criteria = case.rubric.criteria
    written = await write_probes(case.text, prober)
    written = await read_for_harm(case.text, written, grader, reader)
    answers = [probe.answer for probe in written]
    grades = await grade_probes(case.text, criteria, answers, grader)
    probes = []
    for probe, verdicts in zip(written, grades, strict=True):
        probes.append(replace(probe, verdicts=verdicts))
    examination = examine(criteria, probes)
    return Proof(
        passed=examination.passed,
        rounds=0,
        figures=examination.figures,
        probes=tuple(probes),
        criteria=criteria,
        findings=(*examination.doubts, *examination.failures),
        engines={
            "prober": prober.identity.as_json(),
            "grader": grader.identity.as_json(),
        },
    )
