"""What a folder has cost so far, by its logs."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Final

from medlive.integrity.log import rows_of
from medlive.llm.wire import Price

_LOGS: Final = (
    "responses.jsonl",
    "grades.jsonl",
    "repeats.jsonl",
    "direct.jsonl",
    "audit.jsonl",
    "harm.jsonl",
)
_SHARED: Final = ("cache", "import")


def run_logs(run_dir: Path) -> list[Path]:
    """The logs of a run folder whose rows hold the usage of calls."""
    return [run_dir / name for name in _LOGS]


def spent_of(logs: Iterable[Path], price: Price | None = None) -> tuple[float, int]:
    """US dollars that calls cost, and how many have neither a cost on record nor a price.

    Args:
        logs: Where the calls are on record; a missing log holds none.
        price: For calls whose cost is not on record.

    Raises:
        BadInput: If a log cannot be read.
    """
    usd, unpriced = 0.0, 0
    for _, row in chain.from_iterable(rows_of(path, []) for path in logs):
        usage = row.get("usage")
        # What was not paid for here does not count.
        if not usage or row.get("origin") in _SHARED:
            continue
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
    return usd, unpriced


def cost_per_case(run_dir: Path) -> float | None:
    """US dollars that asking about a case and grading the answer took; None where a call has no price, or what
    came from a file has no cost.

    Raises BadInput if a log cannot be read.
    """
    logs = run_logs(run_dir)
    usd, unpriced = spent_of(logs)
    answered = set()
    for _, row in rows_of(logs[0], []):
        answered.add(row.get("case_id"))
        unpriced += bool(row.get("response")) and not row.get("usage")
    for _, row in rows_of(logs[1], []):
        unpriced += "import" in (row.get("origin"), row.get("engine"))
    return None if unpriced or not answered else usd / len(answered)
