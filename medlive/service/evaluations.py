"""Record evaluations in the database, beside their run folders."""

from dataclasses import asdict
from typing import Any

from medlive.config import Settings
from medlive.db.release.evaluations import record_evaluation
from medlive.digest import digest_json
from medlive.evaluation.runs.folder import RunInfo
from medlive.evaluation.scoring.score import ScoreTable
from medlive.service.database import open_database


def _identity(info: RunInfo) -> dict[str, Any]:
    """The identity of a run; unset fields are left out, so that older runs keep theirs."""
    return info.model_dump(mode="json", exclude={"snapshots"}, exclude_unset=True)


async def record_evaluations(settings: Settings, table: ScoreTable) -> None:
    """Record every run of a score table, updating those scored before."""
    async with open_database(settings) as database, database.begin() as session:
        for model in table.models:
            run, grader = model.run.run, model.run.grader
            await record_evaluation(
                session,
                run_digest=digest_json(_identity(run.info)),
                snapshot_version=run.info.cases.name,
                model=run.info.model,
                grader=grader.model if grader else "none",
                path=str(run.path),
                scores={"metric": table.metric.value, "overall": asdict(model.overall)},
            )
