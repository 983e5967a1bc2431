"""`medlive snapshot prove`: how the rubrics of a frozen week measure."""

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from medlive.cli.evaluation.options import (
    Calls,
    Grader,
    check_runs,
    find_incomplete,
    price_of,
)
from medlive.cli.options import SnapshotArgument, UnverifiedOption, read_settings
from medlive.cli.output import Grid, Result, progress, wait_for
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.evaluation.penalties import AnsweredCase, Penalties
    from medlive.evaluation.proving import SnapshotProof
    from medlive.llm.budget import Budget
    from medlive.llm.engine import Engine
    from medlive.snapshot.load import Snapshot


def prove(
    snapshot: SnapshotArgument,
    out: Annotated[Path, Option()],
    prober: str | None = None,
    prober_url: str | None = None,
    prober_key_env: Annotated[str | None, Option(metavar="NAME")] = None,
    answers: Annotated[list[Path] | None, Option(metavar="RUN_DIR")] = None,
    unverified: UnverifiedOption = False,
    *,
    by: Grader,
    calls: Calls,
) -> Result:
    """Prove the rubrics of a frozen week again, with any models: ceiling, floor, separation, and what moved.

    Writes four answers of known quality to each case, grades them, and proposes errata; with --answers also
    penalties for errors that models really make. Nothing is withdrawn or changed.
    Without options the roles of config/models.toml are asked. Exit status 1 while cases are unfinished, 3 where no
    call was answered.

    Args:
        out: The folder of logs and report; goes on with what is there.
        prober: The model that writes the answers.
        prober_url: Its endpoint.
        prober_key_env: The variable of its key.
        answers: A run on this snapshot, whose answers the prober reads for harmful errors; repeatable.
    """
    from medlive.evaluation.penalties import ERRORS, find_candidates
    from medlive.evaluation.proving import GRADES, PROBES
    from medlive.evaluation.runs.folder import open_run
    from medlive.instance.paths import snapshot_folder
    from medlive.snapshot.load import open_snapshot

    folder = snapshot_folder(read_settings(), snapshot)
    loaded = open_snapshot(folder, verify=not unverified)
    runs = [open_run(path) for path in check_runs(answers or [])]
    candidates = find_candidates(loaded, runs) if runs else ()
    if calls.dry_run:
        raise UsageError("a proof has no --dry-run; --max-calls and --max-usd end it")
    budget = calls.budget(logs=[out / PROBES, out / GRADES, out / ERRORS])
    named = (prober, prober_url, prober_key_env)
    work = _prove(loaded, out, named, candidates, by, calls, budget)
    outcome = wait_for(work)
    value = outcome.as_json() | {"path": out, "spent": budget.as_json()}
    failure = find_incomplete(
        outcome.unfinished, "cases are unfinished", list(outcome.work), always=True
    )
    return Result(value, _tables(outcome), failure=failure)


async def _prove(
    snapshot: "Snapshot",
    out: Path,
    named: tuple[str | None, str | None, str | None],
    candidates: Sequence["AnsweredCase"],
    by: Grader,
    calls: Calls,
    budget: "Budget",
) -> "SnapshotProof":
    from medlive.evaluation.proving import prove_snapshot
    from medlive.instance.opening import check_priced

    async with AsyncExitStack() as stack:
        grader = await stack.enter_async_context(
            aclosing(calls.grader(by.grader, by.base_url))
        )
        prober = await stack.enter_async_context(aclosing(_prober(named, calls)))
        for engine, option in ((prober, "--prober"), (grader, "--grader")):
            _check_model(engine, option)
        prices = price_of(prober), price_of(grader)
        priced = dict(
            zip((prober.identity.model, grader.identity.model), prices, strict=True)
        )
        check_priced(budget.max_usd, priced)
        with progress("answers, then criteria", budget) as tick:
            return await prove_snapshot(
                snapshot,
                out,
                prober,
                grader,
                candidates=candidates,
                budget=budget,
                progress=tick,
                concurrency=calls.concurrency,
                allow_unpinned=by.allow_unpinned,
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


def _tables(proof: "SnapshotProof") -> Iterator[Grid]:
    rows = []
    for case in proof.cases:
        now = case.now
        moved = case.moved
        figures: list[float | None] = [None, None, None]
        if now is not None:
            figures = [now.ceiling, now.floor, now.separation]
        change = moved["separation"] if moved else None
        state = case.missing or ("passed" if case.passed else "failed")
        rows.append([case.case_id, *figures, change, state, case.findings])
    columns = ["case", "ceiling", "floor", "separation", "moved", "state", "findings"]
    title = (
        f"medlive {proof.version}: answers by {proof.prober.model}, graded by"
        f" {proof.grader.model}"
    )
    yield Grid(columns, rows, title)
    means = [[name, *figures.values()] for name, figures in proof.means().items()]
    yield Grid(["mean", "ceiling", "floor", "separation"], means)
    if proof.proposals:
        commands = [[proposal.command] for proposal in proof.proposals]
        yield Grid(["proposed erratum, for a person to issue"], commands)
    if proof.penalties:
        yield _penalties(proof.penalties)


def _penalties(penalties: "Penalties") -> Grid:
    rows = []
    for proposal in penalties.proposals:
        quotes = [f"{model}: {text}" for model, text in proposal.quotes]
        row = [proposal.criterion, proposal.points, proposal.axis, quotes]
        rows.append([proposal.case_id, *row, proposal.command])
    made_by = "the one model that was read"
    if penalties.least > 1:
        made_by = f"at least {penalties.least} models"
    title = f"penalties proposed for errors of {made_by}, in {penalties.cases} cases"
    columns = ["case", "criterion", "points", "axis", "quotes", "to add it"]
    return Grid(columns, rows, title)
