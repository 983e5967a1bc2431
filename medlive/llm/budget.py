"""What a run may spend; past it no further call is made."""

from dataclasses import dataclass, field

from medlive.errors import MedliveError
from medlive.llm.engine import Usage


class BudgetSpent(MedliveError):
    """The run's budget is spent."""


@dataclass(slots=True)
class Budget:
    """Limits for one process, each None where there is none; what is replayed costs nothing.

    `check` stands before every call and counts it, so that `max_calls` holds exactly under any concurrency.
    Tokens and dollars are known only afterwards: calls that are under way when a limit is reached still end.
    """

    max_calls: int | None = None
    max_usd: float | None = None
    max_tokens: int | None = None
    """Input and output together."""
    calls: int = field(default=0, init=False)
    usd: float = field(default=0.0, init=False)
    tokens: int = field(default=0, init=False)
    unpriced: int = field(default=0, init=False)
    """Calls whose cost is unknown."""

    def check(self) -> None:
        """Count one call that is about to be made; raises BudgetSpent when it may not be."""
        if self.max_calls is not None and self.calls >= self.max_calls:
            raise BudgetSpent(f"The budget of {self.max_calls} calls is spent")
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            raise BudgetSpent(f"The budget of {self.max_tokens} tokens is spent")
        if self.max_usd is not None:
            if self.unpriced:
                raise BudgetSpent(
                    "A budget in dollars cannot be kept: a call had no price",
                    hint="Give the model its price in config/models.toml, or limit calls or tokens instead.",
                )
            if self.usd >= self.max_usd:
                raise BudgetSpent(f"The budget of {self.max_usd:g} US dollars is spent")
        self.calls += 1

    def charge(self, usage: Usage) -> None:
        """Add what a call cost."""
        self.tokens += usage.input_tokens + usage.output_tokens
        if usage.cost_usd is None:
            self.unpriced += 1
        else:
            self.usd += usage.cost_usd
