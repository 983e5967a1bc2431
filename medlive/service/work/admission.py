"""Which jobs are done: whoever may write the table of jobs must not make a worker do what its queue is not for."""

from collections.abc import Mapping
from typing import Final

from medlive.db.jobs import Queue
from medlive.errors import CheckFailed
from medlive.guard.printable import printable
from medlive.integrity.paths import UnsafePath, split_name
from medlive.service.schedule.steps import QUEUES, source_of
from medlive.snapshot.model import week_end
from medlive.sources.registry import SITES

CURATE: Final = "medlive:curate_revision"
PROVE: Final = "medlive:prove_case"
STEP: Final = "medlive:step"

_ARGUMENTS: Final[Mapping[str, Mapping[str, type]]] = {
    CURATE: {"revision": int},
    PROVE: {"case_id": str, "revision": int},
    STEP: {"step": str, "week": str},
}


def check_job(task: str, queue: str, arguments: Mapping[str, object]) -> None:
    """Raise CheckFailed for a job of another queue, or with arguments that no program of ours writes."""
    expected = _ARGUMENTS.get(task, {})
    kinds = {name: type(value) for name, value in arguments.items()}
    if not expected or kinds != expected or not _are_known(task, arguments):
        text = printable(f"{task} {dict(arguments)}")[:200]
        raise CheckFailed(
            f"refused: expected a job as the scheduler queues it, got {text}"
        )
    wanted = _queue_of(task, str(arguments.get("step", "")))
    if queue != wanted:
        raise CheckFailed(
            f"refused: it waits in the queue {printable(queue)[:50]}, expected {wanted}"
        )


def _queue_of(task: str, step: str) -> Queue:
    if task == STEP:
        return QUEUES.get(step, Queue.HARVEST)
    return Queue.CURATE


def _are_known(task: str, arguments: Mapping[str, object]) -> bool:
    match arguments:
        case {"step": str(step), "week": str(week)}:
            known = step in QUEUES or source_of(step) in SITES
            return known and week_end(week) is not None
        case {"case_id": str(case_id), "revision": int(revision)}:
            return _are_names(case_id) and revision > 0
        case {"revision": int(revision)}:
            return revision > 0
    return False


def _are_names(*names: str) -> bool:
    try:
        return all(map(split_name, names))
    except UnsafePath:
        return False
