"""What a report is made of: the score table, the analyses that go with it where they could be made, and `meta.json` of
`medlive eval meta`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

from markupsafe import Markup
from pydantic import BaseModel, ValidationError

from medlive.errors import BadInput, UsageError, first_fault
from medlive.evaluation.agreement.meta import CaseLevel
from medlive.evaluation.root_causes import (
    AUDIT,
    AuditTable,
    NamedCause,
    RootCause,
    load_audit,
)
from medlive.evaluation.scoring.contamination import (
    BookArm,
    ContaminationTable,
    contamination,
    score_arms,
)
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.overlap import (
    Profiles,
    WorstCases,
    profiles,
    worst_cases,
)
from medlive.evaluation.scoring.refusals import Objection, marked, unpublishable_reasons
from medlive.evaluation.scoring.score import (
    ModelScore,
    ScoreTable,
)
from medlive.integrity.log import read_bytes
from medlive.llm.registry import EMPTY, Registry
from medlive.report.html import lang_of, render
from medlive.statistics.bootstrap import Comparison
from medlive.statistics.raters import Reliability

Shape = TypeVar("Shape", bound=BaseModel)


class MetaGrader(BaseModel):
    """Who graded."""

    name: str
    engine: str
    judge: str
    """The digest of what makes the grader itself."""


class MetaFile(BaseModel):
    """What this report shows of a `meta.json`; fields that are added later are passed over."""

    format: Literal["medlive-meta"]
    format_version: Literal[1]
    run: dict[str, Any]
    """What was graded: model, cases."""
    grader: MetaGrader
    human: dict[str, Any] | None = None
    """Where people's verdicts come from."""
    criteria: Reliability | None = None
    cases: tuple[CaseLevel, ...] = ()
    notes: tuple[str, ...] = ()
    overridden: tuple[Objection, ...] = ()
    """What would mislead and was allowed, to be printed with the figures."""


def read_json(
    path: Path,
    shape: type[Shape],
    name: str,
) -> Shape:
    """A file as that model; `name` is what medlive calls such files. Raises BadInput."""
    try:
        return shape.model_validate_json(read_bytes(path))
    except ValidationError as exc:
        raise BadInput(
            f"{path} is not a {name} of medlive: {first_fault(exc)}"
        ) from exc


def read_meta(
    path: Path,
    judges: Collection[str] | None = None,
) -> MetaFile:
    """A `meta.json` of `medlive eval meta`, of one of these judges.

    Raises:
        BadInput: If the file is not one.
        UsageError: If it is of a judge that graded none of the runs.
    """
    meta = read_json(path, MetaFile, "meta.json")
    grader = meta.grader
    if judges is not None and grader.judge not in judges:
        known = ", ".join(sorted(judge[:19] for judge in judges)) or "nobody"
        raise UsageError(
            f"{path} is about {grader.name} ({grader.judge[:19]}), which graded none of the runs",
            hint=f"these runs were graded by {known}",
        )
    return meta


A_PART = 6
"""Models in one part of a table with a column for each model: as many as a sheet of paper is wide."""

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
_ADVICE_ONLY = "every criterion rests on the physician's advice, so the complete score is the paper score"
_BASIS = {
    "own": "each model on its own",
    "common": "those that all are scored on",
}


@dataclass(frozen=True, slots=True)
class Report:
    """The material of one report, and the figures as the sections draw them."""

    table: ScoreTable
    arms: tuple[BookArm, ...] = ()
    contamination: ContaminationTable | None = None
    """None: no registry names a cutoff."""
    worst: WorstCases | None = None
    """How alike the models fail; None with fewer than two models."""
    profiles: tuple[Profiles, ...] = ()
    """How alike their scores are over themes and over specialties."""
    audits: Mapping[str, AuditTable] = field(default_factory=dict)
    """Label → the root causes of that model's lowest scores, where anything is on record."""
    metas: tuple[MetaFile, ...] = ()
    """How far graders agree with people, as it was measured."""
    case_pages: bool = True
    """Whether each case has a page of its own, to be linked."""

    def render(
        self,
        name: str,
        **values: Any,
    ) -> Markup:
        """A template about this report; its tables say what was overridden to show them."""
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
    def pairs(self) -> list[Comparison]:
        """Every pair, the model that the table ranks higher first, in the order of the ranking."""
        rank = {model.label: place for place, model in enumerate(self.models)}
        pairs = []
        for pair in self.table.comparisons:
            is_in_order = rank[pair.first] < rank[pair.second]
            pairs.append(pair if is_in_order else pair.turned())
        return sorted(
            pairs,
            key=lambda pair: (rank[pair.first], rank[pair.second]),
        )

    @property
    def cases_named(self) -> str:
        """The names of the cases' snapshots or files, with the digests of those that share a name."""
        return _listed(self.case_name(model) for model in self.models)

    def case_name(self, model: ModelScore) -> str:
        """The name of a model's cases as `cases_named` has it."""
        used = model.run.info.cases
        for other in self.models:
            cases = other.run.info.cases
            if cases.name == used.name and cases.digest != used.digest:
                return f"{used.name} [{used.digest.removeprefix('sha256:')[:8]}]"
        return used.name

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
        words = _METRIC[self.table.metric]
        return f"{words}; {_ADVICE_ONLY}" if self.table.advice_only else words

    @property
    def basis(self) -> str:
        """What every figure and table rests on: metric, interval, cases, grader."""
        return (
            f"{self.table.metric.value} metric; 95 % intervals, bootstrap over cases, {self.table.draws} draws, "
            f"seed {self.table.seed}; cases {self.cases_named} ({_BASIS[self.table.basis]}); "
            f"grader {self.graders_named}"
        )

    @property
    def axes(self) -> list[str]:
        """The axes of all models' criteria."""
        return sorted({axis for model in self.models for axis in model.axes})

    def audited(
        self,
        labels: Sequence[str],
    ) -> list[str]:
        """The heads of a table's columns for these models: each label and how many of its cases were audited."""
        return [f"*{label} (n={self.audits[label].audited})" for label in labels]

    def examples(
        self,
        most: int,
    ) -> list[tuple[str, RootCause, str, NamedCause]]:
        """(label, cause, language tag, finding) of the lowest `most` audited cases of each model and cause."""
        langs = {}
        for model in self.models:
            for score in model.cases:
                langs[score.case_id] = lang_of(score.case)
        examples = []
        for label, audit in self.audits.items():
            for cause in RootCause:
                for finding in audit.of(cause)[:most]:
                    lang = langs.get(finding[0].case_id, "en")
                    examples.append((label, cause, lang, finding))
        return examples

    @property
    def errata_files(self) -> list[str]:
        """Where errata were looked for, and what was found there."""
        looked_in = set()
        for run in self.table.errata.runs if self.table.errata else ():
            if run.path is None:
                looked_in.add(
                    f"none are at hand for {run.version}, so that nothing of it is known to be withdrawn"
                )
            else:
                checked = f"checked with key {run.key}" if run.key else "not checked"
                what = "some of what" if run.concerned else "nothing that"
                looked_in.add(
                    f"{run.path.name} of {run.version} withdraws {what} these runs hold "
                    f"({run.digest}; its signature {checked})"
                )
        return sorted(looked_in)

    def labels(
        self,
        places: Sequence[int],
    ) -> list[str]:
        """The labels of the models at these places."""
        return [self.models[place].label for place in places]

    def parts(self) -> Iterator[tuple[str, range]]:
        """The models' places in parts of at most `A_PART`, each with what `in_parts` calls it."""
        return in_parts(len(self.models), A_PART)


def analyse(
    table: ScoreTable,
    registry: Registry = EMPTY,
    *,
    metas: tuple[MetaFile, ...] = (),
    case_pages: bool = True,
) -> Report:
    """Everything that can be worked out of a score table, a registry of cutoffs, and what the run folders hold."""
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
        case_pages=case_pages,
    )


def in_parts(
    count: int,
    size: int,
) -> Iterator[tuple[str, range]]:
    """So many models in as few parts of at most `size` as can be, none of them much smaller than another.

    Each with the end of its title: `, models 1 to 5 of 14`; nothing where one part holds all.
    """
    number = max(1, -(-count // size))
    starts = [count * k // number for k in range(number + 1)]
    for first, last in pairwise(starts):
        which = "" if number == 1 else f", models {first + 1} to {last} of {count}"
        yield which, range(first, last)


def _listed(names: Iterable[str]) -> str:
    """Each name once."""
    return ", ".join(sorted(set(names)))


def judged(model: ModelScore) -> str:
    """Who graded a model's answers, in words."""
    grader = model.run.grader
    return "not graded" if grader is None else f"{grader.model} ({grader.mode})"


def unpublishable(model: ModelScore) -> bool:
    """Whether a model's score must not be published."""
    return any(unpublishable_reasons(model.run))
