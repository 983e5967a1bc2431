"""Things with an id, as replies and decisions hold them: their ids in order, and the things by id."""

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Identified(Protocol):
    """Has an id."""

    @property
    def id(self) -> str:
        """Unique among its kind."""
        ...


T = TypeVar("T", bound=Identified)


def ids_of(items: Iterable[Identified]) -> list[str]:
    """Return the ids in order."""
    return [item.id for item in items]


def by_id(items: Iterable[T]) -> dict[str, T]:
    """Return the items by their ids, in order."""
    return {item.id: item for item in items}
