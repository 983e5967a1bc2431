"""`medlive status`: where the threads are, what failed, what it cost, which steps are due."""

from typing import Annotated, Any

import typer
from typer import Option

from medlive.cli.operations.schedule import print_steps
from medlive.cli.options import JsonOption
from medlive.cli.output import pick, print_result, print_table, say, wait_for
from medlive.config import load_settings
from medlive.errors import CheckFailed


def command(
    check: Annotated[
        bool, Option("--check", help="Print problems alone, one a line, and nothing when there is none.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Where the threads are, what failed, what it cost, and when each weekly step last ran and is due next.

    Exit status 1 when a source is quarantined, a step failed and is not done since, or a step is overdue: not done
    a day after its time in config/schedule.toml, by the scheduler or by cron. Nothing is overdue where nothing was
    ever harvested. With --check it is silent when all is well, so that cron writes to nobody.
    """
    from medlive.service.status import read_problems, read_status

    if check:
        problems = wait_for(read_problems(load_settings().settings))
        print_result(problems, as_json, lambda: print("\n".join(problems), end="\n" if problems else ""))
        raise typer.Exit(1 if problems else 0)
    status: dict[str, Any] = wait_for(read_status(load_settings().settings))
    failure = CheckFailed("\n".join(status["problems"])) if status["problems"] else None
    print_result(status, as_json, lambda: _print(status), failure=failure)


def _print(status: dict[str, Any]) -> None:
    print_table(["stage", "outcome", "reason", "threads"], status["funnel"], title="Threads")
    print_table(
        ["source", "last week", "outcome", "unchanged (304)", "quarantined"],
        [
            [s["name"], s["last_run"], s["last_outcome"],
             None if s["not_modified_share"] is None else f"{s['not_modified_share']:.0%}",
             s["quarantined_at"] and f"since {s['quarantined_at']:%Y-%m-%d}"]
            for s in status["sources"]
        ],
        title="Sources",
    )  # fmt: skip
    print_steps(status["steps"])
    say(f"retriever: {status['retriever']}")
    if not status["scheduler_active"]:
        say("no scheduler is running: the steps are taken by cron, by hand, or not at all")
    paid = ["replies", "tokens in", "cached", "tokens out", "USD"]
    rates, latencies = ["a curated thread", "a kept case"], ["p50 ms", "p95 ms"]
    rows = [[*_paid(c), _money(c["usd_a_curated_thread"], c), _money(c["usd_a_kept_case"], c), *_latencies(c)]
            for c in status["stages"]]  # fmt: skip
    print_table(["stage", *paid, *rates, *latencies], rows, title="Engines: what stored replies cost")
    print_table(
        ["stage", "calls", "repairs", "invalid", "refused", "truncated", "no answer", "over budget", "replayed"],
        [
            [a["name"], a["calls"], *(_share(a[f"{end}_share"]) for end in ("repairs", "invalid", "refused",
             "truncated")), a["unavailable"], a["over_budget"], a["replayed"]]
            for a in status["answers"]
        ],
        title="Engines: how calls ended",
    )  # fmt: skip
    rows = [[*_paid(c), *_latencies(c)] for c in status["costs"]]
    print_table(["task", *paid, *latencies], rows, title="Engines: by task")
    if status["failures"]:
        failures = pick(status["failures"], "source thread_id stage reason detail attempt")
        print_table(
            ["thread", "stage", "reason", "detail", "attempts"],
            [[f"{source}/{thread_id}", *rest] for source, thread_id, *rest in failures],
            title="Failed, and to be retried",
        )
    _say_cost(status)
    _say_week(status["week"])


def _say_week(week: dict[str, Any]) -> None:
    budget = "" if week["budget_usd"] is None else f" of {week['budget_usd']:g}"
    text = f"{week['week']}: {week['usd']:.4f}{budget} USD spent"
    if week["projected_usd"] is not None:
        text += f", {week['projected_usd']:.4f} projected with {week['waiting']} threads that wait"
        if week["delayed"]:
            text += (
                f", {week['delayed']} of them delayed, the first until {week['delayed_until']:%Y-%m-%d %H:%M} UTC"
            )
    if week["usd_a_kept_case"] is not None:
        text += f"; {week['kept']} cases kept, {week['usd_a_kept_case']:.4f} each"
    say(text)


def _paid(cost: dict[str, Any]) -> list[Any]:
    tokens = [cost["input_tokens"], _share(cost["cached_share"]), cost["output_tokens"]]
    return [cost["name"], cost["replies"], *tokens, _money(cost["cost_usd"])]


def _latencies(cost: dict[str, Any]) -> list[float]:
    return [round(cost["latency_p50_ms"], 1), round(cost["latency_p95_ms"], 1)]


def _say_cost(status: dict[str, Any]) -> None:
    whole = status["stages"][-1]
    text = "cost unknown"
    if whole["cost_usd"] is not None:
        text = f"cost {whole['cost_usd']:.4f} USD"
        for key, of in (("usd_a_curated_thread", "a curated thread"), ("usd_a_kept_case", "a kept case")):
            if whole[key] is not None:
                text += f", {whole[key]:.4f} {of}"
    elif whole["known_usd"]:
        text += f": {whole['known_usd']:.4f} USD and {whole['unpriced']} replies without a price"
    else:
        text += f": {whole['unpriced']} replies without a price"
    say(f"{status['kept']} cases kept; {text}")


def _money(usd: float | None, of: dict[str, Any] | None = None) -> str | float | None:
    """Dollars; "unknown" for want of a price, nothing for want of threads to divide by."""
    if usd is None:
        return "unknown" if of is None or of["cost_usd"] is None else None
    return round(usd, 4)


def _share(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"
