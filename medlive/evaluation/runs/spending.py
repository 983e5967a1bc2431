"""What a folder has cost so far, by its logs."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from medlive.evaluation.model import Origin
from medlive.integrity.log import Lines, rows_of
from medlive.llm.wire import Price

_LOGS: Final = (
    "responses.jsonl",
    "grades.jsonl",
    "repeats.jsonl",
    "direct.jsonl",
    "audit.jsonl",
    "harm.jsonl",
)
_SHARED: Final = (Origin.CACHE.value, Origin.IMPORT.value)


class Spent(NamedTuple):
    """What the calls on record cost."""

    usd: float
    unpriced: int
    """Calls whose cost is not on record and that no price was given for."""


def run_logs(run_dir: Path) -> list[Path]:
    """The logs of a run folder whose rows hold the usage of calls."""
    return [run_dir / name for name in _LOGS]


def spent_of(logs: Iterable[Path], price: Price | None = None) -> Spent:
    """Sum up what calls cost.

    Args:
        logs: Where the calls are on record; a missing log holds none.
        price: For calls whose cost is not on record.

    Raises:
        BadInput: If a log cannot be read.
    """
    usd, unpriced = 0.0, 0
    for usage in _usages(logs):
        cost = usage.get("cost_usd")
        if cost is None and price is not None:
            cost = price.cost(
                usage.get("input_tokens", 0),
                usage.get("cached_tokens", 0),
                usage.get("output_tokens", 0),
            )
        if cost is None:
            unpriced += 1
        else:
            usd += cost
    return Spent(usd, unpriced)


def _usages(logs: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    """The usage of each call that was paid for here."""
    for path in logs:
        for _, row in rows_of(path, Lines()):
            usage = row.get("usage")
            if usage and row.get("origin") not in _SHARED:
                yield usage
