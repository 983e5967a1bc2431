"""`medlive eval contamination`: what a model may have seen beside what it cannot have seen."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

from typer import Option

from medlive.cli.evaluation.options import (
    OutOption,
    RunsArgument,
    Scoring,
    SignedErrata,
)
from medlive.cli.evaluation.records import (
    Interval,
    p_value,
    percent,
    points,
    points_around,
    records,
    rests_on,
)
from medlive.cli.evaluation.score import scored
from medlive.cli.options import ReplaceOption
from medlive.cli.output import Grid, Result, dimmed, new_file

if TYPE_CHECKING:
    from medlive.evaluation.scoring.books import BookArm
    from medlive.evaluation.scoring.contamination import (
        ContaminationTable,
        ModelContamination,
    )


def contamination(
    runs: RunsArgument,
    *,
    how: Scoring,
    permutations: Annotated[int, Option(min=99, max=1_000_000)] = 4999,
    out: OutOption = None,
    replace: ReplaceOption = False,
    errata: SignedErrata,
) -> Result:
    """Compare each model on what it may have seen in training with what it cannot have seen.

    The cutoffs are in the tables [candidates."MODEL"] of config/models.toml; a model without one is "unknown".
    docs/contamination.md defines every figure.

    Args:
        permutations: Random permutations of a p-value.
    """
    from medlive import api
    from medlive.evaluation.scoring.books import score_arms
    from medlive.evaluation.scoring.refusals import marked
    from medlive.report.tables import (
        arms_rows,
        contamination_json,
        json_bytes,
        write_whole,
    )

    if out is not None:
        new_file(out, replace)
    registry = api.open_registry(how.models)
    table = scored(runs, how, errata)
    study = api.contamination(table, models=registry, permutations=permutations)
    arms = score_arms(table, registry)
    plain = contamination_json(study) | {"open_book_against_closed": arms_rows(arms)}
    notes = [*study.warnings]
    if out is not None:
        write_whole(out, json_bytes(plain))
        notes.append(f"written: {out}")
    for model in study.models:
        if model.cutoff:
            notes += [f"{model.label}: {note}" for note in model.notes]
    on = marked(rests_on(model.run for model in table.models), table.overridden)
    return Result(plain, _describe_contamination(study, arms, on), notes)


def _describe_contamination(
    study: "ContaminationTable",
    arms: "Sequence[BookArm]",
    cases_and_graders: str,
) -> Iterator[Grid | str]:
    metric = f"{study.metric.value} metric"
    clipped = "" if study.metric.clips_cases else ", cases and means not clipped"
    columns = ["model", "cutoff", "basis", "n pre/post", "pre %", "post %", "drop"]
    yield Grid(
        [*columns, "95 % interval", "p", "p (Holm)"],
        map(_drop_cells, study.models),
        f"drop past the cutoff ({metric}{clipped}, points of 100) on {cases_and_graders}; dim: under 30 "
        "cases on a side",
    )
    known = [model for model in study.models if model.cutoff is not None]
    if not known:
        return
    yield Grid(
        [
            "model",
            "beyond others",
            "95 % interval",
            "held against (n seen/fresh)",
            "adjusted for mix",
            "95 % interval",
            "lost",
            "placebos as large",
            "full % − post % (the paper's)",
        ],
        map(_more_cells, known),
        "beside it: difference-in-differences, mix adjustment, placebos, the paper's own figure; "
        f"on {cases_and_graders}",
    )
    if (pooled := study.pooled) is not None:
        effect = f"{points(pooled.effect)} {_rests(pooled)}"
        yield f"Having seen a case, over {pooled.models} models: {effect}"
    for arm in study.arms:
        beyond = f"{points(arm.drop.difference) or '–'} {_rests(arm.drop)}"
        yield f"{arm.model}: drop of {arm.raw} beyond that of {arm.rewritten}: {beyond}"
    if arms:
        yield records(
            f"open book against closed ({metric}) on {cases_and_graders}; dim: under 30 cases",
            arms,
            {
                "model": lambda a: a.model,
                "cases": lambda a: (
                    "after the cutoff" if a.cutoff else "all (cutoff unknown)"
                ),
                "n": lambda a: a.pair.n,
                "baseline %": lambda a: percent(a.baseline.mean),
                "closed book %": lambda a: percent(a.closed_score.mean),
                "open book %": lambda a: percent(a.open_score.mean),
                "difference": lambda a: points(a.pair.difference),
                "95 % interval": lambda a: points_around(a.pair),
                "p (Holm)": lambda a: p_value(a.p_holm),
            },
            dim=lambda a: a.few,
        )


class _Sides(Interval, Protocol):
    """One of two sides, with their sizes."""

    @property
    def n_pre(self) -> int: ...
    @property
    def n_post(self) -> int: ...


def _rests(sides: _Sides) -> str:
    """What a difference of two sides rests on."""
    few = ", which is few" if _few(sides) else ""
    return f"({points_around(sides) or 'no interval'}; n {sides.n_pre}/{sides.n_post}{few})"


def _drop_cells(m: "ModelContamination") -> Sequence[object]:
    if m.cutoff is None or m.drop is None:
        return [m.label, "unknown", *[None] * 8]
    d = m.drop
    cells = [
        m.label,
        m.cutoff.text,
        m.cutoff.basis,
        f"{d.n_pre}/{d.n_post}",
        percent(d.pre),
        percent(d.post),
        points(d.difference),
        points_around(d),
        p_value(d.p),
        p_value(m.p_holm),
    ]
    return dimmed(cells) if m.few else cells


def _more_cells(m: "ModelContamination") -> Sequence[object]:
    against = f"{len(m.did_against)} models"
    beyond: list[object] = [None, None, against]
    if (did := m.did) is not None:
        against += f" ({did.n_pre}/{did.n_post})"
        beyond = _faint_if_few([points(did.effect), points_around(did), against], did)
    adjusted: list[object] = [None, None, None]
    # The finest mix that leaves both sides anything.
    for mix in m.mixes:
        if (estimate := mix.adjusted).difference is not None:
            lost = f"{estimate.lost_pre}/{estimate.lost_post} ({mix.by})"
            cells = [points(estimate.difference), points_around(estimate), lost]
            adjusted = _faint_if_few(cells, estimate)
    rest = [
        m.placebo and f"{m.placebo.at_least} of {len(m.placebo.drops)}",
        m.paper and points(m.paper.difference),
    ]
    whole = [m.label, *beyond, *adjusted, *rest]
    return dimmed(whole) if m.few else whole


def _faint_if_few(cells: Sequence[object], sides: _Sides) -> list[object]:
    return [*dimmed(cells)] if _few(sides) else [*cells]


def _few(sides: _Sides) -> bool:
    from medlive.evaluation.scoring.estimates import FEW

    return min(sides.n_pre, sides.n_post) < FEW
