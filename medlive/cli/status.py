"""`medlive status`: where the threads are, what failed, what it cost."""

from typing import Any

from medlive.cli.output import JsonOption, print_json, print_table, say, wait_for
from medlive.config import load_settings


def command(as_json: JsonOption = False) -> None:
    """Where the threads are, what failed, what it cost, and when each source was last harvested."""
    from medlive.service.status import read_status

    status: dict[str, Any] = wait_for(read_status(load_settings().settings))
    if as_json:
        print_json(status)
        return
    print_table(["stage", "outcome", "reason", "threads"], status["funnel"], title="Threads")
    print_table(
        ["source", "last week", "outcome", "quarantined"],
        [[s["name"], s["last_run"], s["last_outcome"], s["quarantine_reason"]] for s in status["sources"]],
        title="Sources",
    )
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
