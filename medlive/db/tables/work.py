"""Tables of those who do the jobs: which workers there are and what keeps them, and why jobs failed."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.orm import Mapped

from medlive.db.tables.base import (
    Base,
    checks,
    column,
    key_column,
    now_column,
    number_column,
)


class WorkerState(StrEnum):
    """What a worker does now."""

    WORKING = "working"
    """It takes jobs of all its queues."""
    WAITING = "waiting"
    """It takes no jobs of some of its queues, for a reason, and goes on by itself."""
    STOPPING = "stopping"
    """It takes no more jobs and ends those that it has."""


class WorkerRow(Base):
    """Worker processes; one that ends in order removes its row, a killed one is no longer heard of."""

    __tablename__ = "workers"
    __table_args__ = checks(
        waiting_has_a_reason="(state = 'waiting') = (reason IS NOT NULL)"
    )
    id: Mapped[int] = number_column("The worker's number")
    host: Mapped[str] = column("The name of its machine")
    pid: Mapped[int] = column("Its process there")
    queues: Mapped[list[Any]] = column("The queues that it serves")
    paused: Mapped[list[Any]] = column("Those of them whose jobs it does not take now")
    began_at: Mapped[datetime] = now_column("When it started")
    heard_at: Mapped[datetime] = now_column(
        "Its last sign of life, by the database's clock"
    )
    state: Mapped[WorkerState] = column("working, waiting or stopping")
    reason: Mapped[str | None] = column("Why it waits; NULL: it does not")
    since: Mapped[datetime] = now_column(
        "Since when it is in this state for this reason"
    )


class JobFailureRow(Base):
    """Why jobs failed, which the job queue itself does not keep."""

    __tablename__ = "job_failures"
    job_id: Mapped[int] = key_column("The job", BigInteger, autoincrement=False)
    queue: Mapped[str] = column("Its queue")
    reason: Mapped[str] = column("What went wrong, in one line without secrets")
    failed_at: Mapped[datetime] = now_column("When")
