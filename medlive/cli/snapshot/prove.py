"""`medlive snapshot prove`: how the rubrics of a frozen week measure."""

from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from medlive.cli.evaluation.options import (
    Calls,
    Grader,
    check_complete,
    price_of,
    print_plans,
)
from medlive.cli.options import JsonOption, grouped, read_settings
from medlive.cli.output import print_result, print_table, progress, wait_for
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.proving import SnapshotProof
    from medlive.llm.budget import Budget
    from medlive.llm.engine import Engine
    from medlive.snapshot.load import Snapshot


@grouped
def prove(
    snapshot: Annotated[
        str, Argument(help="A snapshot's folder, or the version of one frozen here.")
    ],
    out: Annotated[
        Path,
        Option(help="The folder of logs and report; goes on with what is there."),
    ],
    prober: Annotated[
        str | None, Option(help="The model that writes the answers.")
    ] = None,
    prober_url: Annotated[str | None, Option(help="Its endpoint.")] = None,
    prober_key_env: Annotated[
        str | None, Option(metavar="NAME", help="The variable of its key.")
    ] = None,
    unverified: Annotated[
        bool, Option("--unverified", help="Do not verify the snapshot first.")
    ] = False,
    *,
    by: Grader,
    calls: Calls,
    as_json: JsonOption = False,
) -> None:
    """Prove the rubrics of a frozen week again, with any models: ceiling, floor, separation, and what moved.

    Writes four answers of known quality to each case, grades them, and proposes errata; nothing is withdrawn.
    Without options the roles of config/models.toml are asked. Exit status 1 while cases are unfinished, 3 where no
    call was answered.
    """
    from medlive.evaluation.proving import GRADES, PROBES
    from medlive.service.paths import snapshot_folder
    from medlive.snapshot.load import open_snapshot

    folder = snapshot_folder(read_settings(), snapshot)
    loaded = open_snapshot(folder, verify=not unverified)
    budget = calls.budget(logs=[out / PROBES, out / GRADES])
    work = _prove(loaded, out, (prober, prober_url, prober_key_env), by, calls, budget)
    found = wait_for(work)
    if isinstance(found, dict):
        print_plans(found, budget, as_json)
        return
    value = found.as_json() | {"path": out, "spent": budget.as_json()}
    print_result(value, as_json, lambda: _print(found))
    check_complete(
        found.unfinished, "cases are unfinished", list(found.work), always=True
    )


async def _prove(
    snapshot: "Snapshot",
    out: Path,
    named: tuple[str | None, str | None, str | None],
    by: Grader,
    calls: Calls,
    budget: "Budget",
) -> "SnapshotProof | dict[str, Plan]":
    from medlive.evaluation.proving import plan_proof, prove_snapshot
    from medlive.service.wiring import check_priced

    async with AsyncExitStack() as stack:
        grader = await stack.enter_async_context(
            aclosing(calls.grader(by.grader, by.base_url))
        )
        prober = await stack.enter_async_context(aclosing(_prober(named, calls)))
        for engine, option in ((prober, "--prober"), (grader, "--grader")):
            _check_model(engine, option)
        prices = price_of(prober), price_of(grader)
        how: dict[str, Any] = {
            "concurrency": calls.concurrency,
            "allow_unpinned": by.allow_unpinned,
        }
        if calls.dry_run:
            who = prober.identity, grader.identity
            return plan_proof(snapshot, out, *who, prices=prices, **how)
        priced = dict(
            zip((prober.identity.model, grader.identity.model), prices, strict=True)
        )
        check_priced(budget.max_usd, priced)
        with progress("answers, then criteria", budget) as tick:
            return await prove_snapshot(
                snapshot, out, prober, grader, budget=budget, progress=tick, **how
            )


def _prober(named: tuple[str | None, str | None, str | None], calls: Calls) -> "Engine":
    """The model that writes the answers, by its name or as configured."""
    from medlive.service.wiring import prober_role

    model, url, key = named
    if (model is None) != (url is None):
        raise UsageError(
            "give --prober and --prober-url together, or neither to use the configured prober"
        )
    settings = read_settings()
    return calls.engine(prober_role(settings), model, url, key)


def _check_model(engine: "Engine", option: str) -> None:
    if engine.identity.engine == "rules":
        raise UsageError(
            f"the rules engine cannot take the part of {option}: it makes no clinical judgement",
            hint=f"give {option} and its endpoint, or name a model in models.toml",
        )


def _print(found: "SnapshotProof") -> None:
    rows = []
    for case in found.cases:
        now, moved = case.now, case.moved
        figures = ["", "", ""]
        if now is not None:
            figures = [
                f"{now.ceiling:.2f}",
                f"{now.floor:.2f}",
                f"{now.separation:.2f}",
            ]
        change = f"{moved['separation']:+.2f}" if moved else ""
        state = case.missing or ("passed" if case.passed else "failed")
        faults = "\n".join(case.findings)
        rows.append([case.case_id, *figures, change, state, faults])
    names = ["case", "ceiling", "floor", "separation", "moved", "state", "findings"]
    title = (
        f"medlive {found.version}: answers by {found.prober.model}, graded by"
        f" {found.grader.model}"
    )
    print_table(names, rows, title=title)
    means = found.means()
    print_table(
        ["mean", "ceiling", "floor", "separation"],
        [[name, *_rounded(figures)] for name, figures in means.items()],
    )
    if found.proposals:
        print_table(
            ["proposed erratum, for a person to issue"],
            [[proposal.command] for proposal in found.proposals],
        )


def _rounded(figures: dict[str, float | None]) -> list[str | None]:
    return [None if value is None else f"{value:.3f}" for value in figures.values()]
