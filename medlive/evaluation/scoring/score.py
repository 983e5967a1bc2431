"""Score runs in one table (`score_runs`): every figure with its n, 95 % interval and bounds, and with warnings."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from medlive.errors import UsageError
from medlive.evaluation.harm import control_figures
from medlive.evaluation.model import AnswerState
from medlive.llm.registry import EMPTY, Cutoff, Registry
from medlive.statistics.bootstrap import Draws
from medlive.statistics.comparison import Comparison, Standing
from medlive.statistics.contamination import Drop
from medlive.statistics.estimate import Estimate

from .companions import (
    Companions,
    HarmRates,
    LengthControl,
    beside,
    equation_1_scores,
    harm_rates,
    narrow_runs,
    rest_on_advice,
)
from .errata import ErrataMode, ErrataUse, without
from .estimates import (
    ScoreEstimate,
    ScoreGrid,
    Slices,
    cases_by_id,
)
from .fresh import (
    ALWAYS,
    FreshRanking,
    Window,
    rank_fresh,
    significant_drops,
)
from .graded import GradedRun
from .metrics import (
    CaseBasis,
    CaseScore,
    CaseState,
    Metric,
    Scored,
)
from .published import (
    as_published,
    month_table,
)
from .refusals import (
    Allow,
    Objection,
    check_figures,
    harm_warnings,
    pair_warnings,
    run_warnings,
    unscorable_warnings,
)


@dataclass(frozen=True)
class Rates:
    """Counts reported beside a score, of `cases` and of `criteria`."""

    cases: int
    criteria: int
    """The criteria of gradable answers."""
    ungraded: int
    partly_graded: int
    unanswered: int
    truncated: int
    refused: int
    unscorable: int
    """Cases whose rubric has no positive criterion."""


@dataclass(frozen=True)
class ScoredCases:
    """The cases that a model is scored on, and those that only other models have."""

    label: str
    cases: int
    scored: int
    missing: tuple[str, ...]
    """Cases that another model has a score for and this one does not, in the runs' order."""


@dataclass(frozen=True)
class ModelScore:
    """One run's figures under one metric."""

    label: str
    run: GradedRun
    overall: ScoreEstimate
    standing: Standing | None
    rates: Rates
    slices: Slices
    axes: Mapping[str, Estimate]
    """How often the criteria of each axis went wrong; `ScoreGrid.axis_errors`."""
    cases: tuple[CaseScore, ...]
    companions: Companions
    harm: HarmRates
    cutoff: Cutoff | None = None

    def slice(
        self,
        kind: str,
        value: str,
    ) -> ScoreEstimate | None:
        """The estimate of one slice; None where the model has no such slice."""
        return self.slices.get(kind, {}).get(value)


@dataclass(frozen=True)
class ScoreTable:
    """Every model's score, best first, and how they compare."""

    metric: Metric
    draws: int
    seed: int
    models: tuple[ModelScore, ...]
    comparisons: tuple[Comparison, ...]
    common: int
    """Cases that every model has a score for."""
    advice_only: bool
    """Whether every criterion is based on the advice, so that the complete score is the paper's."""
    lengths: tuple[LengthControl, ...]
    warnings: tuple[str, ...]
    """Reasons not to publish or compare this table, to be printed with it."""
    errata: ErrataUse | None = None
    """How errata were handled, in the order of the given runs; None: errata were not looked up."""
    labels: tuple[str, ...] = ()
    """The models' labels, in the order of the given runs."""
    basis: CaseBasis = "own"
    coverage: tuple[ScoredCases, ...] = ()
    """Each model's cases, in the order of `labels`, before a restriction to common cases."""
    fresh: FreshRanking | None = None
    """The ranking on what was posted after every model's cutoff; None: no cutoff is known."""
    drops: Mapping[str, Drop] = field(default_factory=dict)
    """Label → the drop past the model's cutoff, where it survives Holm's correction; its p is the corrected one."""
    window: Window = ALWAYS
    overridden: tuple[Objection, ...] = ()
    """What would mislead and was allowed, to be printed with every figure."""

    @property
    def grid(self) -> ScoreGrid:
        """The table's cases and scores, and how cases are drawn."""
        return ScoreGrid(
            self.scored,
            self.metric,
            draws=self.draws,
            seed=self.seed,
        )

    @property
    def scored(self) -> Scored:
        """Label → the model's case scores."""
        return {model.label: model.cases for model in self.models}

    @property
    def companion_metrics(self) -> tuple[Metric, ...]:
        """Complete and paper, without the headline; where the two are equal, complete alone and only beside safe."""
        if self.advice_only:
            return (Metric.COMPLETE,) if self.metric is Metric.SAFE else ()
        return tuple(m for m in (Metric.COMPLETE, Metric.PAPER) if m is not self.metric)

    def tsv(self) -> str:
        """The table as LiveMedBench prints it (`published.month_table`); for the published metric to the digit.

        The published metric's figures are of the files that a run was imported from, else of the run as if exported.
        """
        scored = self.scored
        figures: dict[str, list[tuple[str | None, float]]] = {}
        for label in self.labels:
            own = figures[label] = []
            for case in scored[label]:
                if case.figure is not None:
                    own.append((case.case.month, case.figure))
        if self.metric is Metric.PUBLISHED:
            return month_table(figures)
        # Every model of a row could have had the month's cases.
        months = Counter(case.month for case in cases_by_id(scored).values())
        return month_table(figures, months)


def score_runs(
    runs: Sequence[GradedRun],
    *,
    metric: Metric | None = None,
    draws: int = 1000,
    seed: int = 0,
    errata: ErrataUse | None = None,
    basis: CaseBasis = "own",
    registry: Registry = EMPTY,
    window: Window = ALWAYS,
    allow: Collection[Allow] = (),
) -> ScoreTable:
    """Score runs in one table, with the same bootstrap draws of cases for all of them.

    Args:
        runs: The graded runs; runs of one model are labelled with their folder's name as well.
        metric: The headline's; `ModelScore.companions` holds the figures beside it. None: as `headline` chooses.
        draws: Bootstrap draws.
        seed: Seed of the draws.
        errata: What was withdrawn since each run (`use_errata`); applied errata are scored as if the snapshot had
            never held those cases and criteria.
        basis: Score each model on its own cases, or all on their common cases.
        registry: The models' knowledge cutoffs, for the slices before and after them.
        window: The days of posting that are scored.
        allow: What would make figures mislead and is overridden; the table says so.

    Raises:
        CheckFailed: If the figures would mislead, and `allow` does not override why; or errata leave no case of a run.
        UsageError: If there is no run, or the models have no case in common.
    """
    if not runs:
        raise UsageError("expected at least one run to score")
    metric = metric or headline(runs)
    runs = labelled(runs)
    overridden = tuple(check_figures(runs, allow))
    whole_cases = {run.label: run.cases for run in runs}
    if errata is not None and errata.mode is ErrataMode.APPLY:
        runs = [
            replace(run, run=without(run.run, withdrawn))
            for run, withdrawn in zip(runs, errata.runs, strict=True)
        ]
    if window != ALWAYS:
        runs = window.narrow(runs)
    in_runs = {}
    for run in narrow_runs(runs, metric.counted):
        in_runs[run.label] = run.case_scores(metric)
    scored = in_runs
    notes: list[str] = []
    if metric is Metric.PUBLISHED:
        scored, notes = as_published(runs, in_runs, whole_cases)
    coverage = tuple(_coverage(in_runs, scored))
    if basis == "common":
        shared = _common_ids(scored)
        scored = _only(shared, scored)
        in_runs = _only(shared, in_runs)
    how: Draws = {"draws": draws, "seed": seed}
    grid = ScoreGrid(scored, metric, **how)
    overall, comparisons, standings = grid.rank()
    cutoffs = {run.label: registry.cutoff(run.info.model) for run in runs}
    slices = grid.slices(cutoffs)
    axes = grid.axis_errors()
    complete = equation_1_scores(runs, scored)
    companions, lengths = beside(
        runs,
        scored,
        complete,
        metric,
        **how,
    )
    harm = harm_rates(runs, complete, **how)
    models = []
    for run in runs:
        label = run.label
        model = ModelScore(
            label=label,
            run=run,
            overall=overall[label],
            standing=standings.get(label),
            rates=_rates(in_runs[label]),
            slices=slices[label],
            axes=axes[label],
            cases=scored[label],
            companions=companions[label],
            harm=harm[label],
            cutoff=cutoffs[label],
        )
        models.append(model)
    models.sort(key=lambda model: model.overall.rank(model.label))
    warnings = [
        *(objection.why for objection in overridden),
        *run_warnings(runs, grid.common, len(grid.score)),
        *pair_warnings(comparisons),
        *harm_warnings(harm, metric),
        *notes,
        *unscorable_warnings(in_runs),
        *(errata.warnings(scored) if errata else ()),
    ]
    return ScoreTable(
        metric=metric,
        draws=draws,
        seed=seed,
        models=tuple(models),
        comparisons=tuple(comparisons),
        common=grid.common,
        advice_only=rest_on_advice(runs),
        lengths=lengths,
        warnings=tuple(dict.fromkeys(warnings)),
        errata=errata,
        labels=tuple(scored),
        basis=basis,
        coverage=coverage,
        fresh=rank_fresh(scored, cutoffs, metric, **how),
        drops=significant_drops(grid, cutoffs),
        window=window,
        overridden=overridden,
    )


def headline(runs: Sequence[GradedRun]) -> Metric:
    """The metric that ranks models by default.

    Safe if every run was read for harm by judges that pass their control, else complete.
    """
    for run in runs:
        if run.harm is None or control_figures(run.harm.controls).failed:
            return Metric.COMPLETE
    return Metric.SAFE


def _only(
    shared: set[str],
    scored: Scored,
) -> dict[str, tuple[CaseScore, ...]]:
    """The scores of the cases in `shared`, ids."""
    kept = {}
    for label, cases in scored.items():
        kept[label] = tuple(score for score in cases if score.case_id in shared)
    return kept


def labelled(runs: Sequence[GradedRun]) -> list[GradedRun]:
    """The runs with unique labels: runs of one model are labelled with their folder's name as well."""
    names = Counter(run.label for run in runs)
    unique: dict[str, GradedRun] = {}
    for run in runs:
        label = run.label
        if names[label] > 1:
            label += f" ({run.run.path.name})"
        while label in unique:
            label += "′"
        unique[label] = replace(run, label=label)
    return list(unique.values())


def _scored_ids(scored: Sequence[CaseScore]) -> dict[str, None]:
    return dict.fromkeys(s.case_id for s in scored if s.score is not None)


def _coverage(in_runs: Scored, scored: Scored) -> Iterator[ScoredCases]:
    """What each model is scored on; `in_runs` has all cases of the run folders."""
    ids = {label: _scored_ids(own) for label, own in scored.items()}
    anyone = dict.fromkeys(chain.from_iterable(ids.values()))
    for label, own in ids.items():
        yield ScoredCases(
            label=label,
            cases=len(in_runs[label]),
            scored=len(own),
            missing=tuple(case_id for case_id in anyone if case_id not in own),
        )


def _common_ids(scored: Scored) -> set[str]:
    """The cases that every model has a score for. Raises UsageError if there are none."""
    ids = {label: set(_scored_ids(own)) for label, own in scored.items()}
    shared = set.intersection(*ids.values())
    if not shared:
        raise UsageError(
            "no case is scored for every model",
            hint="--cases own scores each on its own cases",
        )
    return shared


def _rates(cases: Sequence[CaseScore]) -> Rates:
    """Count a model's cases and criteria by state."""
    states = Counter(case.state for case in cases)
    answers = Counter(case.answer for case in cases)
    return Rates(
        cases=len(cases),
        criteria=sum(len(case.met) for case in cases),
        ungraded=sum(case.ungraded for case in cases),
        partly_graded=states[CaseState.PARTLY_GRADED],
        unanswered=states[CaseState.UNANSWERED],
        truncated=answers[AnswerState.TRUNCATED],
        refused=answers[AnswerState.REFUSED],
        unscorable=sum(case.unscorable for case in cases),
    )
