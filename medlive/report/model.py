"""The material of a report (`Report`, made by `analyse`): a score table, the analyses of it that could be made, and
`meta.json` of `medlive eval meta`."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from markupsafe import Markup
from pydantic import TypeAdapter, ValidationError

from medlive.errors import BadInput, UsageError, first_fault
from medlive.evaluation.agreement.meta import Meta
from medlive.evaluation.model import AnswerState
from medlive.evaluation.root_causes import (
    AUDIT,
    AuditTable,
    load_audit,
)
from medlive.evaluation.scoring.contamination import (
    BookArm,
    ContaminationTable,
    contamination,
    score_arms,
)
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.overlap import (
    Profiles,
    WorstCases,
    profiles,
    worst_cases,
)
from medlive.evaluation.scoring.refusals import marked, unpublishable_reasons
from medlive.evaluation.scoring.score import (
    ModelScore,
    ScoreTable,
)
from medlive.integrity.log import read_bytes
from medlive.llm.registry import EMPTY, Registry

from .html import render

Shape = TypeVar("Shape")


@dataclass(frozen=True, kw_only=True)
class MetaFile(Meta):
    """What a `meta.json` holds; fields of later versions are ignored."""

    format: Literal["medlive-meta"]
    format_version: Literal[1]


def read_json(
    path: Path,
    shape: type[Shape],
    name: str,
) -> Shape:
    """Read a JSON file as a `shape`; `name` is what medlive calls such files. Raises BadInput."""
    try:
        return TypeAdapter(shape).validate_json(read_bytes(path))
    except ValidationError as exc:
        raise BadInput(
            f"{path} is not a {name} of medlive: {first_fault(exc)}"
        ) from exc


def read_meta(
    path: Path,
    judges: Collection[str],
) -> Meta:
    """Read a `meta.json` of `medlive eval meta`, which must be about one of `judges`.

    Raises:
        BadInput: If the file is no valid `meta.json`.
        UsageError: If it is of a judge that graded none of the runs.
    """
    meta = read_json(path, MetaFile, "meta.json")
    for name in ("name", "engine", "judge"):
        if name not in meta.grader:
            raise BadInput(f"{path} is not a meta.json of medlive: no grader.{name}")
    judge = meta.grader["judge"]
    if judge not in judges:
        raise UsageError(f"{path} is about {judge}, which graded none of the runs")
    return meta


def spent_on(run: GradedRun, name: str) -> float | None:
    """The sum of a field of `Usage` over a run's answers; None if one lacks it, since a part would pass for the whole.

    A failed answer that lacks the field counts as 0.
    """
    total: float = 0
    for answer in run.answers.values():
        value = answer.usage.get(name)
        if isinstance(value, int | float):
            total += value
        elif answer.state is not AnswerState.FAILED:
            return None
    return total


# Metric → what it is, in words
_METRIC = {
    Metric.SAFE: "safe score (complete, but 0 with a confirmed severe harm and at most one half with a moderate "
    "one, mean over cases that are wholly graded and read for harm)",
    Metric.COMPLETE: "complete score (Equation 1 over all criteria: clipped to [0, 1] by case, mean over wholly graded "
    "cases)",
    Metric.PAPER: "paper score (Equation 1 over the criteria of advice: clipped to [0, 1] by case, mean over wholly "
    "graded cases)",
    Metric.PUBLISHED: "published-code score over the criteria of advice (not clipped by case; what is ungraded or "
    "unanswered counts nothing)",
    Metric.HEALTHBENCH: "HealthBench score (not clipped by case, mean over wholly graded cases clipped to [0, 1])",
}


ONE_RUN = "One run alone is compared with nothing: give the run folders of two models or more."
# Basis of a score table → the cases that are scored, in words
_BASIS = {
    "own": "each model on its own",
    "common": "those that all are scored on",
}


@dataclass(frozen=True)
class Report:
    """The material of one report, and the figures as the sections draw them."""

    table: ScoreTable
    arms: tuple[BookArm, ...] = ()  # models with and without evidence
    contamination: ContaminationTable | None = None
    """None: no registry names a cutoff."""
    worst: WorstCases | None = None
    """How alike the models fail; None with fewer than two models."""
    profiles: tuple[Profiles, ...] = ()
    """How alike their scores are over themes and over specialties."""
    audits: Mapping[str, AuditTable] = field(default_factory=dict)
    """Label → the root causes of that model's lowest scores, where anything is on record."""
    metas: tuple[Meta, ...] = ()
    """How far graders agree with people, as `medlive eval meta` measured it."""

    def render(
        self,
        name: str,
        **values: Any,
    ) -> Markup:
        """Render a template about this report; its tables say what was overridden to show them."""
        return render(
            name,
            report=self,
            overridden=self.table.overridden,
            **values,
        )

    def marked(self, title: str) -> str:
        """A figure's title with what was overridden to show it."""
        return marked(title, self.table.overridden)

    @property
    def models(self) -> tuple[ModelScore, ...]:
        """Best first."""
        return self.table.models

    @property
    def cases_named(self) -> str:
        """The names of the cases' snapshots or files."""
        return _listed(model.run.info.cases.name for model in self.models)

    @property
    def digests_named(self) -> str:
        """The digests of the cases' snapshots or files, whole."""
        return _listed(model.run.info.cases.digest for model in self.models)

    @property
    def graders_named(self) -> str:
        """The graders, with their mode."""
        return _listed(map(judged, self.models))

    @property
    def metric_in_words(self) -> str:
        """The metric in words."""
        return _METRIC[self.table.metric]

    @property
    def basis(self) -> str:
        """The basis of every figure and table: metric, interval, cases, grader."""
        return (
            f"{self.table.metric.value} metric; 95 % intervals, bootstrap over cases, {self.table.draws} draws, "
            f"seed {self.table.seed}; cases {self.cases_named} ({_BASIS[self.table.basis]}); "
            f"grader {self.graders_named}"
        )

    @property
    def axes(self) -> list[str]:
        """The axes of all models' criteria."""
        return sorted({axis for model in self.models for axis in model.axes})

    @property
    def errata_files(self) -> list[str]:
        """For each snapshot, where errata were looked for and what was found."""
        looked_in = set()
        for run in self.table.errata.runs if self.table.errata else ():
            if run.path is None:
                found = "none at hand, so nothing of it is known to be withdrawn"
            else:
                checked = f"checked with key {run.key}" if run.key else "not checked"
                found = f"{run.path.name} ({run.digest}; its signature {checked})"
            looked_in.add(f"{run.version}: {found}")
        return sorted(looked_in)


def analyse(
    table: ScoreTable,
    registry: Registry = EMPTY,
    metas: tuple[Meta, ...] = (),
) -> Report:
    """Make the report's material from a score table, a registry of cutoffs, and what the run folders hold."""
    drops = None
    if any(registry.cutoff(m.run.info.model) for m in table.models):
        drops = contamination(table, registry)
    are_several = len(table.models) > 1
    kinds = ("theme", "specialty") if are_several else ()
    audits = {}
    for model in table.models:
        run = model.run
        if run.grader is not None and (run.run.path / AUDIT).is_file():
            audit = load_audit(run)
            if audit.findings:
                audits[model.label] = audit
    return Report(
        table=table,
        arms=score_arms(table),
        contamination=drops,
        worst=worst_cases(table) if are_several else None,
        profiles=tuple(profiles(table, kind) for kind in kinds),
        audits=audits,
        metas=metas,
    )


def _listed(names: Iterable[str]) -> str:
    """The names, each once, in order."""
    return ", ".join(sorted(set(names)))


def judged(model: ModelScore) -> str:
    """Who graded a model's answers, in words."""
    grader = model.run.grader
    return "not graded" if grader is None else f"{grader.model} ({grader.mode})"


def unpublishable(model: ModelScore) -> bool:
    """Whether a model's score must not be published."""
    return any(unpublishable_reasons(model.run))
