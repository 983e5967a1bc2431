"""A run's `Budget` of calls, tokens and dollars: once it is spent, no further call is made."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from medlive.errors import CircuitOpen, EndpointUnavailable, MedliveError

from .engine import Engine, Reply, Request, Usage


class BudgetSpent(MedliveError):
    """The run's budget is spent."""


@dataclass
class Budget:
    """Limits for one process, each None where there is none; what is replayed costs nothing.

    Before each call its estimate is reserved, afterwards what it really took is charged. A call whose estimate no
    longer fits beside those under way waits for one of them to end; one that is alone is made while anything is
    left. So calls are counted exactly, and tokens and dollars are exceeded by one call at most (and by as much as
    estimates were too low). One event loop at a time.
    """

    max_calls: int | None = None
    max_usd: float | None = None
    max_tokens: int | None = None  # Input and output together
    usd_before: float = 0.0
    """What earlier processes spent of `max_usd`: a run folder's budget is for all of its commands."""
    # HTTP requests: each attempt of a call counts, see `pay_again`
    calls: int = field(default=0, init=False)
    # What is known to be spent; see `unpriced`
    usd: float = field(default=0.0, init=False)
    tokens: int = field(default=0, init=False)
    unpriced: int = field(default=0, init=False)  # Calls whose cost is unknown
    estimated: int = field(default=0, init=False)
    """Calls that an endpoint reported no usage for: an upper bound was charged."""
    stopped: str | None = field(default=None, init=False)
    """Which limit stopped a call first; None as long as none did."""
    _under_way: list[Usage] = field(default_factory=list, init=False)
    _waiting: list[asyncio.Future[None]] = field(default_factory=list, init=False)

    def estimate(self, engine: Engine, request: Request) -> Usage:
        """What to reserve for a call: the engine's estimate where a limit depends on it, else nothing."""
        is_needed = self.max_usd is not None or self.max_tokens is not None
        estimate = getattr(engine, "estimate", None)
        if is_needed and estimate is not None:  # An engine without estimates is free
            usage: Usage = estimate(request)
            return usage
        return Usage(cost_usd=0.0)

    async def pay(
        self,
        estimate: Usage,
        call: Callable[[], Awaitable[Reply]],
    ) -> Reply:
        """A call's reply, its estimate reserved before and what it took charged after.

        Raises BudgetSpent, and what the call raises.
        """
        payment = _Payment(self, estimate)
        await payment.begin()
        token = _PAYMENT.set(payment)
        try:
            reply = await call()
            payment.end(reply.usage if reply.last_usage is None else reply.last_usage)
            return reply
        except EndpointUnavailable as exc:
            self.calls -= isinstance(exc, CircuitOpen)  # no request was made
            payment.end(exc.usage)
            raise
        finally:
            _PAYMENT.reset(token)
            payment.end(None)

    def __str__(self) -> str:
        money = "cost unknown" if self.unpriced else f"{self.usd:.4f} US dollars"
        before = f" ({self.usd_before:.4f} before)" if self.usd_before else ""
        return f"spent {self.calls} calls, {self.tokens:,} tokens, {money}{before}"

    def as_json(self) -> dict[str, Any]:
        """What was spent, as a run reports it; `usd` is None when a call's cost is unknown."""
        return {
            "calls": self.calls,
            "tokens": self.tokens,
            "usd": None if self.unpriced else self.usd,
            "known_usd": self.usd,
            "usd_before": self.usd_before,
            "unpriced_calls": self.unpriced,
            "estimated_calls": self.estimated,
            "stopped": self.stopped,
        }

    def fits(self, estimate: Usage) -> bool:
        """Whether a call's estimate fits beside those under way."""
        tokens = self.tokens
        usd = self.usd_before + self.usd
        for call in (*self._under_way, estimate):
            tokens += call.input_tokens + call.output_tokens
            usd += call.cost_usd or 0.0
        if self.max_tokens is not None and tokens > self.max_tokens:
            return False
        return self.max_usd is None or usd <= self.max_usd

    def check(self, estimate: Usage) -> None:
        """Raise BudgetSpent where no other call can be made."""
        spent = hint = None
        if self.max_calls is not None and self.calls >= self.max_calls:
            spent = f"{self.max_calls} calls"
        elif self.max_tokens is not None and self.tokens >= self.max_tokens:
            spent = f"{self.max_tokens} tokens"
        elif self.max_usd is not None and self.usd_before + self.usd >= self.max_usd:
            spent = f"{self.max_usd:g} US dollars"
        problem = f"The budget of {spent} is spent"
        if spent is None:
            is_unpriced = self.unpriced or estimate.cost_usd is None
            if self.max_usd is None or not is_unpriced:
                return
            problem = "A budget in US dollars cannot be kept: the model has no price"
            hint = "Give it one under [prices] in models.toml, or limit calls or tokens instead."
        self.stopped = self.stopped or problem
        raise BudgetSpent(problem, hint=hint)


@dataclass
class _Payment:
    """Pays for a call, one HTTP request after another: `begin` reserves, `end` charges."""

    budget: Budget
    estimate: Usage
    reserved: bool = False

    async def begin(self) -> None:
        """Reserve the estimate; where calls under way leave no room for it, wait until one ends."""
        budget = self.budget
        while True:
            budget.check(self.estimate)
            if not budget._under_way or budget.fits(self.estimate):
                break
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            budget._waiting.append(turn)
            await turn
        budget.calls += 1
        budget._under_way.append(self.estimate)
        self.reserved = True

    def end(self, usage: Usage | None) -> None:
        """Charge what the request took, the estimate where `usage` has no tokens; nothing where it is None."""
        if not self.reserved:
            return
        self.reserved = False
        budget = self.budget
        if usage is not None:
            counted = usage.input_tokens + usage.output_tokens > 0
            charged = usage if counted else self.estimate
            budget.tokens += charged.input_tokens + charged.output_tokens
            budget.estimated += usage.estimated or not counted
            cost = usage.cost_usd if charged.cost_usd is None else charged.cost_usd
            budget.unpriced += cost is None
            budget.usd += cost or 0.0
        budget._under_way.remove(self.estimate)
        waiting, budget._waiting = budget._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


# The payment of the call that is being made
_PAYMENT: ContextVar[_Payment | None] = ContextVar("payment", default=None)


async def pay_again(usage: Usage | None) -> None:
    """Charge an HTTP request that brought nothing usable, and reserve another one for the same call.

    `usage` is what the request took; None: nothing, as far as is known.

    Raises:
        BudgetSpent: If the budget of the surrounding `Budget.pay` is spent; without one there is no limit.
    """
    if (payment := _PAYMENT.get()) is not None:
        payment.end(usage)
        await payment.begin()
