"""Which jobs are done: whoever may write the table of jobs must not make a worker do what its queue is not for."""

import re
from collections.abc import Mapping

from medlive.db.jobs import Queue
from medlive.errors import CheckFailed
from medlive.guard.printable import printable
from medlive.service.schedule.steps import QUEUES, source_of
from medlive.snapshot.model import week_end
from medlive.sources.registry import SITES

CURATE = "medlive:curate_revision"
PROVE = "medlive:prove_case"
STEP = "medlive:step"

_ARGUMENTS: Mapping[str, Mapping[str, type]] = {
    CURATE: {"revision": int},
    PROVE: {"case_id": str, "revision": int},
    STEP: {"step": str, "week": str},
}
_CASE_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


def check_job(task: str, queue: str, arguments: Mapping[str, object]) -> None:
    """Raise CheckFailed for a job of another queue, or with arguments that no program of ours writes."""
    expected: Queue | None = None
    types = {name: type(value) for name, value in arguments.items()}
    if types == _ARGUMENTS.get(task):
        match arguments:
            case {"step": str(step), "week": str(week)} if week_end(week):
                harvest = Queue.HARVEST if source_of(step) in SITES else None
                expected = QUEUES.get(step, harvest)
            case {"revision": int(revision), **rest} if revision > 0:
                if _CASE_ID.fullmatch(str(rest.get("case_id", "none"))):
                    expected = Queue.CURATE
    if queue != expected:
        text = printable(f"{task} {dict(arguments)} in the queue {queue}")[:200]
        queued = f"one in the queue {expected}" if expected else "one of medlive's"
        raise CheckFailed(f"refused: expected {queued}, got {text}")
