"""The problems of this moment, for whoever asks; nothing is sent."""

from datetime import timedelta
from typing import Final

from medlive.config import Settings
from medlive.db import watch
from medlive.db.session import Database
from medlive.db.tables.watch import OpenProblemRow
from medlive.service.watch.checks import CHECKS, find_problems
from medlive.service.watch.facts import read_facts
from medlive.service.watch.model import Facts

ENDS_AFTER: Final = timedelta(minutes=5)
"""A problem that was not seen for so long has ended; one that comes and goes is one problem."""
_LOCAL: Final = frozenset(check.code for check in CHECKS if check.is_local)


async def read_problems(database: Database, facts: Facts) -> list[OpenProblemRow]:
    """Every problem now; of another machine those that its scheduler has stored. Raises DatabaseUnavailable."""
    problems = find_problems(facts)
    async with database.read() as session:
        stored = {problem.key: problem for problem in await watch.list_open(session)}
    for problem in problems:
        if (known := stored.pop(problem.key, None)) is not None:
            problem.acknowledged_at = known.acknowledged_at
            problem.acknowledged_until = known.acknowledged_until
    for known in stored.values():
        if known.code in _LOCAL and facts.moment - known.seen_at < ENDS_AFTER:
            problems.append(known)
    return problems


async def store_problems(database: Database, settings: Settings) -> None:
    """Store what the checks find where no scheduler does. Raises ConfigError and DatabaseUnavailable."""
    problems = await read_problems(database, await read_facts(database, settings))
    async with database.begin() as session:
        await watch.save_seen(session, problems)
        await watch.end_unseen(
            session, {problem.key for problem in problems}, ENDS_AFTER
        )
