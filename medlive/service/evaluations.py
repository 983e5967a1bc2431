"""What evaluations have in the database: their scores, and the threads behind a snapshot's cases."""

from dataclasses import asdict
from typing import Any

from medlive.config import Settings
from medlive.db.release.snapshots import thread_revisions_of
from medlive.db.runs import record_evaluation
from medlive.db.threads.threads import load_threads
from medlive.errors import UsageError
from medlive.evaluation.cases.load import in_own_words
from medlive.evaluation.model import CaseSet
from medlive.evaluation.scoring.score import ModelScore, ScoreTable
from medlive.integrity.digest import digest_json
from medlive.service.database import open_database
from medlive.threads.prepare import deidentified, normalised, thread_language


async def record_evaluations(settings: Settings, table: ScoreTable) -> None:
    """Record every run of a score table, updating those scored before."""
    async with open_database(settings) as database, database.begin() as session:
        for model in table.models:
            run, grader = model.run.run, model.run.grader
            # Unset fields are left out, so that older runs keep their identity.
            identity = run.info.model_dump(
                mode="json", exclude={"snapshots"}, exclude_unset=True
            )
            await record_evaluation(
                session,
                run_digest=digest_json(identity),
                snapshot_version=run.info.cases.name,
                model=run.info.model,
                grader=grader.model if grader else "none",
                path=str(run.path),
                scores=_recorded(table, model),
            )


def _recorded(table: ScoreTable, model: ModelScore) -> dict[str, Any]:
    """A run's scores as the database holds them."""
    own = model.companions
    return {
        "metric": table.metric.value,
        "advice_only": table.beside.advice_only,
        "overall": asdict(model.overall),
        "complete": asdict(own.complete),
        "paper": asdict(own.paper),
        "core": asdict(own.core),
    }


async def raw_cases(settings: Settings, cases: CaseSet) -> CaseSet:
    """A snapshot's cases in their threads' own words, normalised and de-identified as the agents saw them.

    Raises UsageError for cases that are not from a snapshot of this database, and DatabaseUnavailable.
    """
    if cases.origin != "snapshot":
        raise UsageError(
            "--raw needs a snapshot's folder or version as --cases, not a file"
        )
    async with open_database(settings) as database, database.begin() as session:
        revisions = await thread_revisions_of(
            session, cases.name, (case.case_id for case in cases.cases)
        )
        threads = await load_threads(session, sorted(set(revisions.values())))
    ready = {}
    for revision, thread in threads.items():
        plain = normalised(thread)
        ready[revision] = deidentified(plain, thread_language(plain))
    return in_own_words(
        cases, {case_id: ready[pk] for case_id, pk in revisions.items() if pk in ready}
    )
