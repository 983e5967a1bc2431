"""For notebooks: snapshots, runs, bundles and their figures as typed objects.

Everything here is also an attribute of the package: `import medlive; medlive.score("runs/a")`. Each function does
what the command of the same name does; `medlive.frames` makes data frames of the results.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .clock import now
from .config import RoleSettings
from .errors import CheckFailed, UsageError
from .evaluation.cases.load import from_snapshot, load_cases
from .evaluation.grading.questions import (
    JudgeReplies,
    ask_questions,
    read_findings,
)
from .evaluation.model import CaseSet
from .evaluation.runs.folder import ModelUse
from .evaluation.runs.templates import default_template
from .evaluation.scoring.ability import AbilityTable, abilities_of
from .evaluation.scoring.contamination import ContaminationTable
from .evaluation.scoring.contamination import contamination as contaminations
from .evaluation.scoring.errata import ErrataMode, use_errata
from .evaluation.scoring.fresh import Window
from .evaluation.scoring.graded import GradedRun, load_graded
from .evaluation.scoring.metrics import Metric
from .evaluation.scoring.refusals import Allow, Objection
from .evaluation.scoring.score import (
    ScoreTable,
    labelled,
    score_runs,
)
from .grader.judge import Mode
from .instance.loading import read_settings
from .instance.opening import choose_candidate, grader_engine, open_endpoint
from .instance.paths import snapshots_path
from .integrity.signing import PublicKey, public_key_of
from .llm.engine import Engine, EngineIdentity
from .llm.registry import Registry
from .snapshot.load import Snapshot, load_snapshot
from .statistics.comparison import Comparison
from .statistics.planning import (
    Spread,
    cases_for_drop,
    cases_for_pair,
    spread_of,
)

if TYPE_CHECKING:
    from .evaluation.asking.run import RunResult
    from .evaluation.grading.grade import GradeResult
    from .evaluation.grading.harm import HarmResult
    from .evaluation.protocols.model import Results

# What one function alone needs is imported by it, so that commands that import this module answer `--help` sooner.

__all__ = [
    "CasesNeeded",
    "ability",
    "answer",
    "compare",
    "contamination",
    "grade",
    "load_bundle",
    "load_run",
    "load_snapshot",
    "open_judge",
    "power",
    "protocol",
    "read_harm",
    "score",
]

Run = str | Path | GradedRun
"""A run folder, or a run that was loaded."""
Runs = Run | Sequence[Run]
"""One run or several."""
Cases = str | Path | Snapshot | CaseSet
"""A snapshot or a benchmark file, by its place or loaded."""
Choice = TypeVar("Choice", bound=StrEnum)
UNASKED = JudgeReplies(EngineIdentity("", ""))
"""No replies, for protocols that ask no judge."""


def load_run(
    path: str | Path,
    *,
    judge: str | None = None,
) -> GradedRun:
    """Open a run folder with the verdicts of one grader.

    Args:
        path: The folder that `answer` or `medlive eval run` made.
        judge: Which grader's verdicts, by its digest or model; needed where several graded it.

    Raises:
        BadInput: If it is not a run folder, or damaged.
        UsageError: If that judge did not grade here.
    """
    return load_graded(Path(path), judge=judge)


def load_bundle(
    path: str | Path,
    *,
    snapshot: Snapshot | str | Path | None = None,
    public_key: PublicKey | str | Path | None = None,
) -> GradedRun:
    """Verify a bundle, its scores recomputed, and return the run that it holds.

    Args:
        path: The .zip that `medlive eval bundle` made.
        snapshot: The snapshot of the run's cases, or its folder; None: the version that the bundle names is looked up.
        public_key: The key that must have signed it; None: the one that the bundle names.

    Raises:
        BadInput: If there is no bundle.
        CheckFailed: If a step of its verification failed or could not be taken.
    """
    from .evaluation.bundles.verify import verify_bundle

    key = public_key_of(public_key)
    if isinstance(snapshot, Snapshot):
        snapshot = snapshot.path
    place = None if snapshot is None else Path(snapshot)
    report = verify_bundle(
        Path(path),
        public_keys=[key] if key else [],
        snapshot=place,
    )
    if report.run is None or report.why_not:
        raise CheckFailed(f"{path}: {report.why_not or 'its signature is not valid'}")
    return report.run


def score(
    runs: Runs,
    *,
    metric: str | None = None,
    since: date | str | None = None,
    until: date | str | None = None,
    common: bool = False,
    judge: str | None = None,
    models: Registry | None = None,
    errata: str = ErrataMode.WARN.value,
    errata_file: str | Path | None = None,
    public_key: PublicKey | str | Path | None = None,
    allow: Collection[str] = (),
    draws: int = 1000,
    seed: int = 0,
) -> ScoreTable:
    """Score runs side by side, as `medlive eval score` does.

    Args:
        runs: One run or several.
        metric: "safe", "complete", "paper", "published" or "healthbench" (docs/method.md §2); None: safe where
            every run was read for harm, else complete.
        since: The first day of posting that counts; None: no end.
        until: The last day, inclusive.
        common: Score all models on the cases that all of them have a score for.
        judge: Whose verdicts, by digest or model, in folders that several graded.
        models: The models' training cutoffs, which split cases by their day of posting [models.toml].
        errata: "warn", "apply" or "ignore" what was withdrawn since the snapshot was frozen.
        errata_file: The file of errata; None: the one beside the snapshot, else beside those frozen here.
        public_key: The key that must have signed the errata.
        allow: What would make figures mislead and is overridden: "mixed-graders", "not-publishable",
            "several-judges".
        draws: Bootstrap draws of threads, the same for all models.
        seed: Their seed.

    Raises:
        CheckFailed: If figures would mislead, and `allow` does not override why.
        UsageError: If there is no run, or the runs cannot be compared.
    """
    mode = _choose("errata", ErrataMode, errata)
    if draws < 1 or seed < 0:
        raise UsageError("expected at least one draw, and a seed of at least 0")
    window = Window(_day("since", since), _day("until", until))
    if window.since and window.until and window.since > window.until:
        raise UsageError(f"no day is {window}")
    graded = load_runs(runs, judge)
    use = None
    if mode is not ErrataMode.IGNORE:
        use = use_errata(
            [run.run for run in graded],
            mode,
            file=None if errata_file is None else Path(errata_file),
            home=snapshots_path(read_settings()),
            public_key=public_key_of(public_key),
        )
    return score_runs(
        graded,
        metric=None if metric is None else _choose("metric", Metric, metric),
        draws=draws,
        seed=seed,
        errata=use,
        basis="common" if common else "own",
        registry=models or open_registry(),
        window=window,
        allow=[_choose("allow", Allow, name) for name in allow],
    )


def ability(runs: Runs | ScoreTable, **how: Any) -> AbilityTable:
    """Put models that answered differing cases on one scale, with weeks, cases and criteria (docs/scale.md).

    Args:
        runs: Runs, or what `score` returned.
        how: As for `score`.
    """
    table = runs if isinstance(runs, ScoreTable) else score(runs, **how)
    return abilities_of(table)


def compare(
    first: Run,
    second: Run,
    **how: Any,
) -> Comparison:
    """The paired difference of two runs on the cases that both have, with interval and p.

    `how` is as for `score`. Raises UsageError where they cannot be compared.
    """
    return score([first, second], **how).comparisons[0]


def contamination(
    runs: Runs | ScoreTable,
    *,
    models: Registry | None = None,
    **how: Any,
) -> ContaminationTable:
    """How scores change past each model's cutoff, as `medlive eval contamination` says.

    Args:
        runs: One run or several, or what `score` returned.
        models: The models' training cutoffs [models.toml].
        how: As for `score`.
    """
    registry = models or open_registry()
    if not isinstance(runs, ScoreTable):
        runs = score(runs, models=registry, **how)
    return contaminations(runs, registry)


@dataclass(frozen=True)
class CasesNeeded:
    """How many cases are needed to show a difference of some points."""

    points: float
    to_tell_two_apart: int
    after_the_cutoff: int | None
    """None: no number is enough, since too few cases were posted before it."""
    spread: Spread
    overridden: Sequence[Objection] = ()
    """What would mislead about the runs and was allowed."""


def power(
    points: float,
    runs: Runs = (),
    *,
    spread: float | Spread = 30.0,
    correlation: float = 0.5,
    power: float = 0.8,
    alpha: float = 0.05,
    models: int = 2,
    before: int | None = None,
    allow: Collection[str] = (),
) -> CasesNeeded:
    """How many cases are needed to tell two models some points apart, as `medlive eval power` says.

    Args:
        points: The difference, in points of 100.
        runs: Graded runs that show the spread; none: `spread` and `correlation` are assumed.
        spread: The standard deviation of scores by case, in points of 100, or the `spread` of an earlier result.
        correlation: The correlation of two models' scores.
        power: The probability to detect a true difference.
        alpha: The two-sided significance level.
        models: How many models are compared: the level is for all their pairs (Holm).
        before: Cases up to the cutoff; None: as many as after it.
        allow: What would mislead about the runs and is overridden, as for `score`.

    Raises:
        CheckFailed: If the runs' scores would mislead, and `allow` does not override why.
        UsageError: If no number of cases follows, as from 0 points or a correlation of 1, the runs' scores show no
            spread, power and alpha are not in (0, 1), or power is not above alpha.
    """
    overridden: Sequence[Objection] = ()
    if graded := load_runs(runs) if runs else []:
        table = score(graded, draws=1, allow=allow)
        overridden = table.overridden
        grid = table.grid
        observed = spread_of(grid.score, grid.how.get("clusters"))
        if observed is None or observed.score == 0:
            raise UsageError(
                "the scores of these runs show no spread", hint="give a spread"
            )
        spread = observed
    pairs = models * (models - 1) / 2
    difference = points / 100
    try:
        is_possible = 0 < points <= 100 and (before is None or before > 0)
        if not is_possible or models < 2 or not -1 <= correlation < 1:
            raise ValueError(
                "points have to be above 0 and at most 100, before above 0, models above 1, "
                "the correlation from -1 to below 1"
            )
        seen = spread
        if not isinstance(seen, Spread):
            seen = Spread(seen / 100 * sqrt(2 - 2 * correlation), seen / 100)
        if seen.score <= 0:
            raise ValueError("the spread has to be above 0")
        apart = cases_for_pair(
            difference, seen.difference, power=power, alpha=alpha / pairs
        )
        fresh = cases_for_drop(
            difference, seen.score, before=before, power=power, alpha=alpha / models
        )
    except (ValueError, ArithmeticError) as exc:
        raise UsageError(f"no number of cases follows from this: {exc}") from exc
    return CasesNeeded(
        points=points,
        to_tell_two_apart=apart,
        after_the_cutoff=fresh,
        spread=seen,
        overridden=overridden,
    )


async def protocol(
    name: str,
    runs: Runs,
    *,
    judge: Engine | None = None,
    out: str | Path = "protocols",
    concurrency: int = 16,
    **options: Any,
) -> "Results":
    """Apply another paper's method to runs, as `medlive eval protocol run` does.

    Args:
        name: The protocol; `medlive eval protocol list` shows them.
        runs: One run or several.
        judge: Who is asked (`open_judge`); None for protocols that ask nobody.
        out: The folder of what judges said: nothing on record is asked again.
        concurrency: Most calls at once.
        options: The protocol's own.

    Raises:
        UsageError: If there is no such protocol or option, or it needs a judge.
    """
    from .evaluation.protocols.registry import make_protocol

    method = make_protocol(name, options)
    material = labelled(load_runs(runs))
    if not method.asks:
        return method.results(material, UNASKED)
    if judge is None:
        raise UsageError(f"{name} asks a judge: give judge=open_judge(…)")
    questions, log = method.work(material, Path(out))
    await ask_questions(questions, log, judge, concurrency=concurrency)
    replies, _ = read_findings(log, judge.identity)
    return method.results(material, replies)


def open_judge(
    model: str,
    base_url: str,
    *,
    api_key_env: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    concurrency: int = 16,
) -> Engine:
    """A model at an OpenAI-compatible endpoint as a judge or grader.

    Args:
        model: Its id at the endpoint.
        base_url: The endpoint, ending in /v1.
        api_key_env: The variable that holds the key; None: OPENAI_API_KEY, which may be unset.
        parameters: Sent with each call, such as temperature.
        concurrency: Most calls at once.
    """
    return grader_engine(
        read_settings().roles.grader,
        model=model,
        base_url=base_url,
        api_key_env=api_key_env,
        concurrency=concurrency,
        parameters=parameters,
    )


async def answer(
    cases: Cases,
    model: str,
    out: str | Path,
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    template: str | None = None,
    concurrency: int = 16,
) -> "RunResult":
    """Ask a model about every case, as `medlive eval run` does; called again, it goes on where it stopped.

    Args:
        cases: The snapshot or benchmark file.
        model: A name of models.toml, or the id at the endpoint.
        out: The run folder.
        base_url: The endpoint; None: as models.toml says.
        api_key_env: The variable that holds the key.
        parameters: Sent with each call.
        template: The template that makes a case a prompt; None: by the cases.
        concurrency: Most calls at once.

    Raises:
        UsageError: If the folder is another run.
        EndpointUnavailable: If the endpoint seems dead; what was answered is kept.
    """
    from .evaluation.asking.run import run_model

    chosen = choose_candidate(
        read_settings(),
        model,
        base_url=base_url,
        api_key_env=api_key_env,
        parameters=parameters,
    )
    engine = open_endpoint(chosen.model_copy(update={"concurrency": concurrency}))
    use = model_use(model, chosen, engine)
    case_set = _cases(cases)
    async with aclosing(engine):
        return await run_model(
            case_set,
            engine.complete,
            Path(out),
            use=use,
            created_at=now(),
            template=template or default_template(case_set),
            concurrency=concurrency,
        )


def model_use(
    name: str,
    chosen: RoleSettings,
    engine: Engine,
    arm: str | None = None,
) -> ModelUse:
    """What a run folder records of the model that is asked; `arm` is as in `ModelUse`."""
    return ModelUse(
        name,
        engine.identity.engine,
        # A query may hold a key, and run.json is published.
        (chosen.base_url or "").partition("?")[0],
        chosen.parameters,
        chosen.model if chosen.model != name else None,
        arm,
    )


async def grade(
    run: str | Path,
    judge: Engine,
    *,
    mode: str = Mode.RUBRIC.value,
) -> "GradeResult":
    """Grade a run's answers, as `medlive eval grade` does; what is graded is not asked again.

    Args:
        run: The run folder.
        judge: The grader (`open_judge`); it is closed at the end.
        mode: "rubric", a call an answer, or "criterion", a call a criterion.

    Raises:
        EndpointUnavailable: If the endpoint seems dead; what was graded is kept.
    """
    from .evaluation.grading.grade import grade_run

    async with aclosing(judge):
        return await grade_run(Path(run), judge, mode=_choose("mode", Mode, mode))


async def read_harm(
    run: str | Path,
    judge: Engine,
    checker: Engine | None = None,
) -> "HarmResult":
    """Read a run's answers for harm, as `medlive eval grade --harm-only` does; what is read is not asked again.

    Args:
        run: The run folder.
        judge: Names harmful statements (`open_judge`); it is closed at the end.
        checker: Confirms or clears each, closed too; None: the judge does.

    Raises:
        EndpointUnavailable: If an endpoint seems dead; what was read is kept.
    """
    from .evaluation.grading.harm import read_run

    async with aclosing(judge), aclosing(checker or judge) as second:
        return await read_run(Path(run), judge, second)


def load_runs(runs: Runs, judge: str | None = None) -> list[GradedRun]:
    """The runs in their order; a folder is opened with the verdicts of one grader."""
    several = [runs] if isinstance(runs, str | Path | GradedRun) else runs
    loaded = []
    for run in several:
        if not isinstance(run, GradedRun):
            run = load_run(run, judge=judge)
        loaded.append(run)
    return loaded


def _cases(cases: Cases) -> CaseSet:
    if isinstance(cases, CaseSet):
        return cases
    if isinstance(cases, Snapshot):
        return from_snapshot(cases)
    if Path(cases).exists():
        return load_cases(Path(cases))
    return from_snapshot(load_snapshot(cases))


def open_registry() -> Registry:
    """The configured models under evaluation, with their endpoints and training cutoffs."""
    return Registry(candidates=read_settings().candidates)


def _choose(name: str, kind: type[Choice], value: str) -> Choice:
    try:
        return kind(value)
    except ValueError as exc:
        choices = ", ".join(member.value for member in kind)
        raise UsageError(f"{name}: expected {choices}, got {value!r}") from exc


def _day(name: str, day: date | str | None) -> date | None:
    try:
        return None if day is None else date.fromisoformat(str(day)[:10])
    except ValueError as exc:
        raise UsageError(f"{name}: expected YYYY-MM-DD, got {day!r}") from exc
