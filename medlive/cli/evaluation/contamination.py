"""`medlive eval contamination`: what of the scores goes with texts that a model may have seen."""

from pathlib import Path
from typing import Annotated, Any

import typer

from medlive.cli.evaluation.options import RunsArgument, Scoring, SignedErrata
from medlive.cli.evaluation.score import registry_of, rests_on, scored
from medlive.cli.options import JsonOption, ReplaceOption, grouped
from medlive.cli.output import dimmed, new_file, print_result, print_table, say


@grouped
def contamination(
    runs: RunsArgument,
    *,
    how: Scoring,
    permutations: Annotated[
        int, typer.Option("--permutations", min=99, max=1_000_000, help="Random permutations of a p-value.")
    ] = 4999,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the JSON there as well.")
    ] = None,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    errata: SignedErrata,
) -> None:
    """Compare each model on what it may have seen in training with what it cannot have seen.

    The cutoffs stand in the tables [candidates."MODEL"] of config/models.toml; a model without one is "unknown".
    docs/contamination.md defines every figure.
    """
    import json

    from medlive.evaluation.scoring.contamination import contamination as analyse
    from medlive.evaluation.scoring.contamination import score_arms
    from medlive.report.tables import arms_rows, contamination_json, write_whole

    if out is not None:
        new_file(out, replace)
    registry = registry_of(how.models)
    table = scored(runs, how, errata)
    found = analyse(table, registry, permutations=permutations)
    arms = score_arms(table, registry)
    plain = contamination_json(found) | {"open_book_against_closed": arms_rows(arms)}
    if out is not None:
        text = json.dumps(plain, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
        write_whole(out, text.encode("utf-8", "backslashreplace"))
        say(f"written: {out}")
    notes = [f"{model.label}: {note}" for model in found.models if model.cutoff for note in model.notes]
    on = rests_on([model.run for model in table.models])
    print_result(plain, as_json, lambda: _print(found, arms, on), notes=[*found.warnings, *notes])


def _print(found: Any, arms: Any, on: str) -> None:
    clipped = ", cases and means not clipped" if found.metric.value == "published" else ""
    print_table(
        ["model", "cutoff", "basis", "n pre/post", "pre %", "post %", "drop", "95 % interval", "p", "p (Holm)"],
        [_drop_cells(m) for m in found.models],
        title=f"drop past the cutoff ({found.metric.value} metric{clipped}, points of 100) on {on}; dim: under 30 "
        "cases on a side",
    )
    known = [m for m in found.models if m.cutoff is not None]
    if not known:
        return
    print_table(
        ["model", "beyond others", "95 % interval", "held against (n seen/fresh)", "adjusted for mix",
         "95 % interval", "lost", "placebos as large", "full % − post % (the paper's)", "newer than the model %",
         "n"],
        [_more_cells(m) for m in known],
        title="beside it: difference-in-differences, mix adjustment, placebos, the paper's own figure",
    )  # fmt: skip
    if found.pooled is not None:
        e = found.pooled
        print(f"Having seen a case, over {e.models} models: {_points(e.effect)} {_rests(e)}")
    for arm in found.arms:
        beyond = f"{_points(arm.drop.difference) or '–'} {_rests(arm.drop)}"
        print(f"{arm.model}: drop of {arm.raw} beyond that of {arm.rewritten}: {beyond}")
    if arms:
        print_table(
            ["model", "cases", "n", "baseline %", "closed book %", "open book %", "difference", "95 % interval",
             "p (Holm)"],
            [dimmed(_arm_cells(a)) if a.few else _arm_cells(a) for a in arms],
            title=f"open book against closed ({found.metric.value} metric) on {on}; dim: under 30 cases",
        )  # fmt: skip


def _rests(of: Any) -> str:
    """What a difference of two sides rests on."""
    return f"({_span(of) or 'no interval'}; n {of.n_pre}/{of.n_post}{', which is few' if _few(of) else ''})"


def _arm_cells(a: Any) -> list[Any]:
    return [
        a.model, "after the cutoff" if a.fresh else "all (cutoff unknown)", a.n, _percent(a.baseline.mean),
        _percent(a.closed_score.mean), _percent(a.open_score.mean), _points(a.difference), _span(a), _p(a.p_holm),
    ]  # fmt: skip


def _drop_cells(m: Any) -> list[Any]:
    if m.cutoff is None or m.drop is None:
        return [m.label, "unknown", *[None] * 8]
    d = m.drop
    cells = [
        m.label, m.cutoff.text, m.cutoff.basis.value, f"{d.n_pre}/{d.n_post}", _percent(d.pre), _percent(d.post),
        _points(d.difference), _span(d), _p(d.p), _p(m.p_holm),
    ]  # fmt: skip
    return dimmed(cells) if m.few else cells


def _more_cells(m: Any) -> list[Any]:
    # The finest mix that leaves both sides anything.
    mix = next((x for x in reversed(m.mixes) if x.adjusted.difference is not None), None)
    lost = None if mix is None else f"{mix.adjusted.lost_pre}/{mix.adjusted.lost_post} ({mix.by})"
    beyond = [
        None if m.did is None else _points(m.did.effect),
        None if m.did is None else _span(m.did),
        f"{len(m.did_against)} models" + (f" ({m.did.n_pre}/{m.did.n_post})" if m.did else ""),
    ]
    adjusted = [
        None if mix is None else _points(mix.adjusted.difference),
        None if mix is None else _span(mix.adjusted),
        lost,
    ]
    rest = [
        None if m.placebo is None else f"{m.placebo.at_least} of {len(m.placebo.drops)}",
        None if m.paper is None else _points(m.paper.difference),
        None if m.newer is None else _percent(m.newer.mean),
        None if m.newer is None else m.newer.n,
    ]
    if m.few:
        return dimmed([m.label, *beyond, *adjusted, *rest])
    return [
        m.label,
        *(dimmed(beyond) if _few(m.did) else beyond),
        *(dimmed(adjusted) if mix is not None and _few(mix.adjusted) else adjusted),
        *rest,
    ]


def _few(of: Any) -> bool:
    from medlive.evaluation.scoring.estimates import FEW

    return of is not None and min(of.n_pre, of.n_post) < FEW


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:z.1f}"


def _points(difference: float | None) -> str | None:
    return None if difference is None else f"{100 * difference:+z.1f}"


def _span(of: Any) -> str | None:
    return None if of.low is None else f"{100 * of.low:+z.1f} to {100 * of.high:+z.1f}"


def _p(p: float | None) -> str | None:
    from medlive.report.html import p_said

    return None if p is None else p_said(p)
