"""`medlive snapshot prove`: how the rubrics of a frozen week measure."""

from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Annotated

from typer import Option

from medlive.cli.evaluation.options import (
    Grading,
    check_runs,
    find_incomplete,
    price_of,
)
from medlive.cli.options import SnapshotArgument, UnverifiedOption, read_settings
from medlive.cli.output import Grid, Result, progress, wait_for
from medlive.errors import UsageError
from medlive.evaluation.penalties import ERRORS, Penalties, find_candidates
from medlive.evaluation.proving import (
    GRADES,
    PROBES,
    SnapshotProof,
    prove_snapshot,
)
from medlive.evaluation.runs.folder import open_run
from medlive.instance.opening import check_priced
from medlive.instance.paths import snapshot_folder
from medlive.snapshot.load import open_snapshot


def prove(
    snapshot: SnapshotArgument,
    out: Annotated[Path, Option()],
    prober: str | None = None,
    prober_url: str | None = None,
    prober_key_env: Annotated[str | None, Option(metavar="NAME")] = None,
    answers: Annotated[list[Path] | None, Option(metavar="RUN_DIR")] = None,
    unverified: UnverifiedOption = False,
    *,
    by: Grading,
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
    from medlive.service.wiring import prober_role

    if (prober is None) != (prober_url is None):
        raise UsageError(
            "give --prober and --prober-url together, or neither to use the configured prober"
        )
    folder = snapshot_folder(read_settings(), snapshot)
    loaded = open_snapshot(folder, verify=not unverified)
    runs = [open_run(path) for path in check_runs(answers or [])]
    candidates = find_candidates(loaded, runs) if runs else ()
    if by.dry_run:
        raise UsageError("a proof has no --dry-run; --max-calls and --max-usd end it")
    budget = by.budget(logs=[out / PROBES, out / GRADES, out / ERRORS])
    role = prober_role(read_settings())

    async def work() -> SnapshotProof:
        async with AsyncExitStack() as stack:
            writer = by.engine(role, prober, prober_url, prober_key_env)
            grader = by.open()
            prices = []
            for option, engine in {"--prober": writer, "--grader": grader}.items():
                await stack.enter_async_context(aclosing(engine))
                if engine.identity.engine == "rules":
                    raise UsageError(
                        f"the rules engine cannot take the part of {option}: it makes no clinical judgement",
                        hint=f"give {option} and its endpoint, or name a model in models.toml",
                    )
                prices.append(price_of(engine))
            models = writer.identity.model, grader.identity.model
            check_priced(budget.max_usd, dict(zip(models, prices, strict=True)))
            with progress("answers, then criteria", budget) as tick:
                return await prove_snapshot(
                    loaded,
                    out,
                    writer,
                    grader,
                    candidates=candidates,
                    budget=budget,
                    progress=tick,
                    concurrency=by.concurrency,
                    allow_unpinned=by.allow_unpinned,
                )

    outcome = wait_for(work())
    value = outcome.as_json() | {"path": out, "spent": budget.as_json()}
    failure = find_incomplete(
        outcome.unfinished,
        "case is unfinished",
        "cases are unfinished",
        list(outcome.work),
        always=True,
    )
    return Result(value, _tables(outcome), failure=failure)


def _tables(proof: SnapshotProof) -> Iterator[Grid]:
    rows = []
    for case in proof.cases:
        figures: list[float | None] = [None, None, None]
        if (now := case.now) is not None:
            figures = [now.ceiling, now.floor, now.separation]
        change = case.moved["separation"] if case.moved else None
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


def _penalties(penalties: Penalties) -> Grid:
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
