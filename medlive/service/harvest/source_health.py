"""The health of sources: their last harvest, its figures beside earlier ones, and quarantines."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from medlive.clock import now
from medlive.db.harvest.harvests import SourceInfo, harvest_times, latest_measures, list_sources
from medlive.db.session import Database
from medlive.db.tables.intake import RunOutcome, SourceKind
from medlive.errors import UsageError
from medlive.sources.drift import Compared

STALE_AFTER = timedelta(days=8)
"""A week, and a day for a harvest that takes long or is retried."""


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """One source that has been harvested."""

    info: SourceInfo
    last_done_at: datetime | None
    """When a harvest last succeeded; None if never."""
    last_problem: str | None
    """Why the latest harvest failed; None if it did not."""
    week: str | None
    """The ISO week of `figures`; None without any."""
    figures: tuple[Compared, ...]
    stale: bool

    @property
    def faults(self) -> list[str]:
        """What a maintainer must look at, one sentence each."""
        info = self.info
        found = []
        if info.quarantine_reason is not None and info.quarantined_at is not None:
            found.append(f"quarantined since {info.quarantined_at:%Y-%m-%d %H:%M} UTC: {info.quarantine_reason}")
        elif info.last_outcome is RunOutcome.FAILED:
            found.append(f"its harvest of {info.last_run} failed: {self.last_problem}")
        if self.stale:
            when = "never" if self.last_done_at is None else f"{self.last_done_at:%Y-%m-%d}"
            found.append(f"stale: last harvested to its end {when}")
        return found


async def source_health(database: Database, source: str | None = None) -> list[SourceHealth]:
    """Every harvested source, or the one named. Raises UsageError if that was never harvested."""
    found = []
    async with database.begin() as session:
        for info in await list_sources(session):
            if info.kind is not SourceKind.SITE or source not in (None, info.name):
                continue
            times = await harvest_times(session, info.name)
            latest = await latest_measures(session, info.name)
            since = times.last_done_at or times.first_started_at
            found.append(
                SourceHealth(
                    info,
                    times.last_done_at,
                    times.last_problem,
                    latest[0] if latest else None,
                    tuple(latest[1]) if latest else (),
                    stale=since is not None and now() - since > STALE_AFTER,
                )
            )
    if source is not None and not found:
        raise UsageError(
            f"{source} was never harvested", hint=f"run `medlive harvest {source}`, or check one page with --url"
        )
    return found
