"""`medlive status`: where the threads are, what failed, what it cost, which steps are due."""

from typing import Any

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, say, wait_for
from medlive.cli.schedule import print_steps
from medlive.config import load_settings
from medlive.errors import CheckFailed


def command(as_json: JsonOption = False) -> None:
    """Where the threads are, what failed, what it cost, and when each weekly step last ran and is due next.

    Exit status 1 when a source is quarantined, or when a step is overdue: not done a day after its time in
    config/schedule.toml, by the scheduler or by cron. Nothing is overdue where nothing was ever harvested.
    """
    from medlive.service.status import read_status

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
    if not status["scheduler_active"]:
        say("no scheduler is running: the steps are taken by cron, by hand, or not at all")
    print_table(
        ["stage", "replies", "tokens in", "cached", "tokens out", "USD", "a curated thread", "a kept case",
         "p50 ms", "p95 ms"],
        [
            [c["name"], c["replies"], c["input_tokens"], _share(c["cached_share"]), c["output_tokens"],
             _money(c["cost_usd"]), _money(c["usd_a_curated_thread"], c), _money(c["usd_a_kept_case"], c),
             round(c["latency_p50_ms"], 1), round(c["latency_p95_ms"], 1)]
            for c in status["stages"]
        ],
        title="Engines: what stored replies cost",
    )  # fmt: skip
    print_table(
        ["stage", "calls", "repairs", "invalid", "refused", "truncated", "no answer", "over budget", "replayed"],
        [
            [a["name"], a["calls"], _share(a["repairs_share"]), _share(a["invalid_share"]),
             _share(a["refused_share"]), _share(a["truncated_share"]), a["unavailable"], a["over_budget"],
             a["replayed"]]
            for a in status["answers"]
        ],
        title="Engines: how calls ended",
    )  # fmt: skip
    print_table(
        ["task", "replies", "tokens in", "cached", "tokens out", "USD", "p50 ms", "p95 ms"],
        [
            [c["name"], c["replies"], c["input_tokens"], _share(c["cached_share"]), c["output_tokens"],
             _money(c["cost_usd"]), round(c["latency_p50_ms"], 1), round(c["latency_p95_ms"], 1)]
            for c in status["costs"]
        ],
        title="Engines: by task",
    )  # fmt: skip
    if status["failures"]:
        print_table(
            ["thread", "stage", "reason", "detail", "attempts"],
            [
                [f"{f['source']}/{f['thread_id']}", f["stage"], f["reason"], f["detail"], f["attempt"]]
                for f in status["failures"]
            ],
            title="Failed, and to be retried",
        )
    _say_cost(status)


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
