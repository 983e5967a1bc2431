"""`medlive status`: where the threads are, what failed, what it cost, which steps are due."""

from typing import Any

from medlive.cli.output import JsonOption, print_json, print_table, say, wait_for
from medlive.cli.steps import print_steps
from medlive.config import load_settings
from medlive.errors import CheckFailed


def command(as_json: JsonOption = False) -> None:
    """Where the threads are, what failed, what it cost, and when each weekly step last ran and is due next.

    Exit status 1 when a source is quarantined, or when a step is overdue: not done a day after its time in
    config/schedule.toml, by the scheduler or by cron. Nothing is overdue where nothing was ever harvested.
    """
    from medlive.service.status import read_status

    status: dict[str, Any] = wait_for(read_status(load_settings().settings))
    if as_json:
        print_json(status)
    else:
        _print(status)
    if status["problems"]:
        raise CheckFailed("\n".join(status["problems"]))


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
        ["task", "replies", "tokens in", "cached", "tokens out", "USD", "mean ms"],
        [
            [c["task"], c["replies"], c["input_tokens"], c["cached_tokens"], c["output_tokens"],
             "unknown" if c["cost_usd"] is None else round(c["cost_usd"], 4), round(c["latency_ms"], 1)]
            for c in status["costs"]
        ],
        title="Engines",
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
    kept, money = status["kept"], status["cost_usd"]
    say(
        f"{kept} cases kept; cost "
        + (
            "unknown"
            if money is None
            else f"{money:.4f} USD" + (f", {money / kept:.4f} a kept case" if kept else "")
        )
    )
