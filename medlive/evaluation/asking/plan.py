"""Tokens and cost of calls: estimated before any is made (`plan_calls`), or added up from logs (`spent_of`).

Nothing is sent. Tokens are estimated, since each endpoint has a tokeniser of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from medlive.integrity.digest import canonical_json
from medlive.integrity.log import rows_of
from medlive.llm.engine import Request
from medlive.llm.prompts import render
from medlive.llm.registry import Price
from medlive.llm.wire import response_format

BYTES_A_TOKEN = 4
"""In UTF-8: tokenisers of 100,000 and more entries make a token of 4 Latin, 2 Cyrillic or 1.4 Chinese characters."""
OUTPUT_A_CRITERION = 70
"""Tokens that a plan assumes of a verdict with its quote and reasoning."""

_LOGS = (
    "responses.jsonl",
    "grades.jsonl",
    "repeats.jsonl",
    "direct.jsonl",
    "audit.jsonl",
    "harm.jsonl",
)
_SHARED = ("cache", "import")
"""Origins of verdicts that were not paid for here."""


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has."""
    return round(len(text.encode("utf-8", "replace")) / BYTES_A_TOKEN)


@dataclass(frozen=True)
class Plan:
    """The number of calls to make, their tokens and cost."""

    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    """US dollars without any prefix cache; None: the model has no price."""


def plan_calls(
    calls: Iterable[tuple[str, int]],
    *,
    price: Price | None,
    output_tokens: int = OUTPUT_A_CRITERION,
) -> Plan:
    """Add up calls; each is (all text that is sent, how many replies of `output_tokens` it asks for).

    The cost is unknown without a `price`, also for the rules engine: an endpoint may charge for it.
    """
    n = asked = answered = 0
    for text, replies in calls:
        n += 1
        asked += estimate_tokens(text)
        answered += replies * output_tokens
    usd = price.cost(asked, 0, answered) if price else None
    return Plan(n, asked, answered, usd)


def sent_text(request: Request) -> str:
    """All the text of a request, in the order it is read: the shape of the reply, then the messages."""
    shape = response_format("schema", request)
    messages = [message["content"] for message in render(request)]
    return "\n".join([canonical_json(shape), *messages])


def run_logs(run_dir: Path) -> list[Path]:
    """The logs of a run folder whose rows hold the usage of calls."""
    return [run_dir / name for name in _LOGS]


def spent_of(
    logs: Iterable[Path],
    price: Price | None = None,
) -> tuple[float, int]:
    """US dollars that calls cost, and the number of calls with neither a cost on record nor a price.

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
    """US dollars a case of a run took, to ask and to grade; None if a call's cost is unknown or a row was imported.

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
