"""The problems of this moment, for whoever asks; nothing is sent."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from medlive.config import Settings
from medlive.db import watch
from medlive.db.mapping import read
from medlive.db.session import Database
from medlive.service.watch.checks import CHECKS, find_problems
from medlive.service.watch.facts import read_facts
from medlive.service.watch.model import Facts, Problem

ENDS_AFTER: Final = timedelta(minutes=5)
"""A problem that was not seen for so long has ended; one that comes and goes is one problem."""
_LOCAL: Final = frozenset(check.code for check in CHECKS if check.is_local)


async def read_problems(
    database: Database, settings: Settings, facts: Facts | None = None
) -> list[Problem]:
    """Every problem now; of another machine those that its scheduler has stored. Nothing is sent.

    `facts` are those that were read just now. Raises ConfigError and DatabaseUnavailable.
    """
    facts = facts or await read_facts(database, settings)
    problems, moment = find_problems(facts), facts.moment
    async with database.read() as session:
        stored = {problem.key: problem for problem in await watch.list_open(session)}
    live = {problem.key for problem in problems}
    for known in stored.values():
        is_other = known.code in _LOCAL and known.key not in live
        if is_other and moment - known.seen_at < ENDS_AFTER:
            problems.append(read(Problem, known, is_acknowledged=False))
    for place, problem in enumerate(problems):
        if problem.key in stored and stored[problem.key].is_acknowledged(moment):
            problems[place] = replace(problem, is_acknowledged=True)
    return problems


async def store_problems(database: Database, settings: Settings) -> None:
    """Store what the checks find where no scheduler does; nothing is sent."""
    problems = await read_problems(database, settings)
    async with database.begin() as session:
        await watch.save_seen(session, problems)
        await watch.end_unseen(
            session, {problem.key for problem in problems}, ENDS_AFTER
        )
