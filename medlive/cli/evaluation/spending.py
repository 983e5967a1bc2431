"""What commands that ask a model have in common: a plan that is printed, and a budget that can be kept."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from medlive.cli.output import print_json, print_table, say
from medlive.errors import CheckFailed, EndpointUnavailable

if TYPE_CHECKING:
    from medlive.evaluation.asking.plan import Plan
    from medlive.llm.budget import Budget
    from medlive.llm.engine import Engine
    from medlive.llm.wire import Price


def price_of(engine: "Engine") -> "Price | None":
    """What an engine's model costs: nothing for the rules of this process; None: unknown, as of any endpoint's
    without a price, whatever its model is called."""
    from medlive.llm.wire import Price

    # Only an endpoint's engine has a price.
    found: Price | None = getattr(engine, "price", Price(0.0, 0.0))
    return found


def say_limits(plan: "Plan", budget: "Budget") -> None:
    """Say which limits would end the work before all calls are made."""
    if budget.max_calls is not None and budget.max_calls < plan.calls:
        say(f"--max-calls {budget.max_calls}: so many of the {plan.calls} calls would be made")
    if budget.max_tokens is not None and budget.max_tokens < plan.input_tokens + plan.output_tokens:
        say(f"--max-tokens {budget.max_tokens} would end the work before all {plan.calls} calls are made")
    if budget.max_usd is not None and plan.usd is not None and budget.max_usd < plan.usd:
        say(f"--max-usd {budget.max_usd:g} would end the work before all {plan.calls} calls are made")


def check_answered(silences: "Iterable[EndpointUnavailable | None]", calls: int) -> None:
    """Raises EndpointUnavailable where calls were made and none was answered; `silences`: of each part of the work
    that made any, why its last call failed (`Health.silence`)."""
    found = list(silences)
    if found and (last := found[-1]) is not None and None not in found:
        raise EndpointUnavailable(f"none of {calls} calls was answered, the last: {last.message}", hint=last.hint)


def check_complete(left: int, what: str, stopped: str | None, hint: str = "the same command asks again") -> None:
    """Raises CheckFailed where `left` of something are not done: `stopped` says which limit ended the work."""
    if left and stopped:
        raise CheckFailed(f"{stopped}; {left} {what}", hint="the same command goes on from here")
    if left:
        raise CheckFailed(f"{left} {what}", hint=hint)


def check_priced(engine: "Engine", budget: "Budget") -> None:
    """Raises ConfigError when the budget is in dollars and the model has no price."""
    from medlive.service.wiring import check_priced as check

    check(budget.max_usd, {engine.identity.model: price_of(engine)})


def print_plan(about: Mapping[str, Any], plan: "Plan", as_json: bool) -> None:
    """Print what calls would take, after what they are about."""
    if as_json:
        print_json({**about, **{name: n for name, n in asdict(plan).items() if name != "about"}})
        return
    shown = {name: value for name, value in about.items() if name != "path"}
    print_table(
        [*shown, "calls", "input tokens", "of these cacheable", "output tokens", "USD", "USD with a prefix cache",
         "seconds"],
        [[*shown.values(), plan.calls, plan.input_tokens, plan.cacheable_tokens, plan.output_tokens,
          *(_rounded(x) for x in (plan.usd, plan.usd_cached, plan.seconds))]],
    )  # fmt: skip
    say(f"estimated; {plan.estimator}; calls that have to be asked twice come on top")
    if plan.usd is None:
        from medlive.config import models_file

        say(f"money unknown: the model has no price under [prices] in {models_file()}")
    if plan.seconds is None and plan.calls:
        say("time unknown: too few calls of this model are on record to take its latency from")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4 if value < 1 else 2)
