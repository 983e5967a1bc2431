"""The nouns of watching: the facts that checks read, and what they find."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from medlive.config import Settings
from medlive.db.mapping import Record
from medlive.db.runs import History
from medlive.db.tables.watch import ObservationRow, OutboxRow
from medlive.db.tables.work import WorkerRow
from medlive.llm.circuit import Opening
from medlive.service.schedule.steps import StepState

SCHEDULER_HEARD = "scheduler"
EVIDENCE = "evidence"
HEARTBEAT = "heartbeat"
"""Names of observations."""


class Disk(NamedTuple):
    """A file system that medlive writes to."""

    place: str  # home, archive, backup or database
    path: str
    free: int
    size: int


@dataclass(frozen=True, slots=True)
class LocalFacts:
    """What only the machine itself knows."""

    disks: Sequence[Disk]
    evidence_missing: str | None  # Why there is no evidence index; None: there is one
    # What is wrong with it, as far as its files' names and sizes say
    evidence_corrupt: str | None
    evidence_state: str  # Names, sizes and times of its files, as one digest


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that checks read, at one moment."""

    settings: Settings
    moment: datetime  # By the database's clock
    in_use: bool  # Whether anything was ever harvested or imported
    scheduler_active: bool
    history: History
    steps: Sequence[StepState]
    workers: Mapping[str, int]  # Queue → processes that serve it
    queues: Sequence[Record]  # Of `queue_health`
    waiting_workers: Sequence[WorkerRow]  # That are heard of and take no jobs
    lost_threads: int  # Threads that nothing will take up
    decisions: Sequence[datetime]  # When the latest attempts ended, newest first
    decided: int  # Threads that engines decided within a week
    failed_jobs: Sequence[Record]
    failed_threads: Sequence[Record]
    sources: Sequence[Record]
    circuits: Sequence[Opening]
    week: Mapping[str, Any]  # Of `read_week`
    undelivered: Sequence[OutboxRow]
    missing_rights: Sequence[Record]
    observations: Mapping[str, ObservationRow]
    # That this machine's clock and the database's do not agree
    clock_problem: str | None
    # How far the newest frozen week was; None: whole, or there is none
    partial: str | None
    local: LocalFacts | None  # None: this machine does not hold MEDLIVE_HOME

    @property
    def scheduler_heard(self) -> datetime | None:
        """When a scheduler was last heard; None: never."""
        noted = self.observations.get(SCHEDULER_HEARD)
        return None if noted is None else noted.at


class Symptom(NamedTuple):
    """What a check finds: a sentence, what to do about it, and what it is about."""

    text: str
    next_step: str
    subject: str = ""
