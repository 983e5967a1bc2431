"""Slots at a model endpoint, shared by all processes of an instance: each is an advisory lock of one number.

A process holds its slots on a connection of its own, so that they are free again as soon as it ends, however that
happens.
"""

from dataclasses import dataclass, field

from sqlalchemy import exc, text

from medlive.db.jobs import announce_serving, count_servers
from medlive.db.session import Connection
from medlive.errors import DatabaseUnavailable
from medlive.integrity.digest import digest_text

TURN = 10
"""How often a slot is kept, where there are fewer than processes, before it is left to another one."""
RESTS = 3
"""How often none is taken afterwards."""
_OURS = "locktype = 'advisory' AND objsubid = 2 AND classid = CAST(:place AS oid) AND granted"
_TAKEN = text(
    "SELECT objid FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
    f" WHERE datname = current_database() AND {_OURS}"
)
_TAKE = text(
    "SELECT slot FROM (SELECT slot, pg_try_advisory_lock(CAST(:place AS int), slot) AS taken"
    " FROM unnest(CAST(:slots AS int[])) AS slot) AS tried WHERE taken"
)
_RETURN = text(
    "SELECT pg_advisory_unlock(CAST(:place AS int), slot) FROM unnest(CAST(:slots AS int[])) AS slot"
)


@dataclass
class Slots:
    """The slots of one endpoint that a process holds."""

    connection: Connection
    name: str  # What the processes that share the endpoint call it
    held: list[int] = field(default_factory=list)
    _kept: int = 0  # How often they were kept while others have none
    _resting: int = 0  # How often none is taken yet, so that others can

    @property
    def _place(self) -> int:
        return int(digest_text(self.name).removeprefix("sha256:")[:7], 16)

    async def join(self) -> None:
        """Count among those who share the endpoint from now on."""
        await announce_serving(self.connection, [self.name])

    async def settle(self, most: int, under_way: int, waiting: int = 0) -> int:
        """Take or return slots until this process has its share; how many it holds, of which it may use its share.

        `most` is all slots of the endpoint, numbered from 0; of those held here, `under_way` are in use and not
        returned. Where more processes share the endpoint than it has slots, they take turns: who wants none
        (`waiting` calls) or has kept one for a while returns it.

        Raises DatabaseUnavailable when the connection was lost, and with it all slots.
        """
        try:
            return await self._settle(most, under_way, waiting)
        except exc.SQLAlchemyError as error:
            raise DatabaseUnavailable(
                "the connection that shares out an endpoint's calls was lost"
            ) from error

    async def _settle(self, most: int, under_way: int, waiting: int) -> int:
        sharers = await count_servers(self.connection, self.name)
        if sharers > most and not self._has_a_turn(under_way, waiting):
            if under_way == 0 and self.held:
                await self.connection.execute(
                    _RETURN, {"place": self._place, "slots": self.held}
                )
                self.held, self._kept, self._resting = [], 0, RESTS
            return 0
        share = max(1, most // max(1, sharers))
        if len(self.held) < share:
            taken = set(await self.connection.scalars(_TAKEN, {"place": self._place}))
            free = [slot for slot in range(most) if slot not in taken][
                : share - len(self.held)
            ]
            numbers = await self.connection.scalars(
                _TAKE, {"place": self._place, "slots": free}
            )
            self.held += list(numbers)
        elif excess := self.held[max(share, under_way) :]:
            await self.connection.execute(
                _RETURN, {"place": self._place, "slots": excess}
            )
            del self.held[max(share, under_way) :]
        return min(share, len(self.held))

    def _has_a_turn(self, under_way: int, waiting: int) -> bool:
        """Whether this process may have slots now, where there are fewer than processes."""
        self._kept = self._kept + 1 if self.held else 0
        self._resting = max(0, self._resting - 1)
        return under_way + waiting > 0 and self._kept <= TURN and self._resting == 0
