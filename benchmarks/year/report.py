"""The report of the year: a page and its pictures."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from drawing import svg
from matplotlib.axes import Axes
from measured import measured_line

from year.candidates import LEVEL, Outcome
from year.scenario import Week, Year

_HEAD = """# A year in an hour

{measured}

Written by `make year` (`benchmarks/year`), by a seed. It simulates {weeks} weeks of
one instance: the real scheduler, two workers, PostgreSQL, harvests over HTTP, gates, signatures and a folder to
publish to, on a clock that both the program and its database take for the time. The freeze falls due beside the
queue, each Tuesday at 3:00, and waits until the week is whole. Four communities grow from one
new thread a week to three; the threads are made of the demo's sentences, and the models are the rules engine
behind an endpoint that wants a key, so the *content* says nothing of medicine. The maintainer reads
`medlive status --check` on Monday and Thursday mornings and whatever the webhook is sent, and does what the
table says. `make year YEAR="--weeks 3"` plays the first weeks alone, without the candidates, in a minute.

![Cases in each week's snapshot]({pictures}/year-cases.svg)

![What each week's replies cost]({pictures}/year-cost.svg)
"""
_CANDIDATES = """
## Twelve candidates, {planted} of which remember

On the last release ({cases} cases) twelve synthetic candidates say each criterion's text with a chance of their
own; {planted} of them with a higher one where the case was posted by their cutoff. The rules engine grades them,
and the analysis of `medlive eval contamination` names a candidate whose drop has an interval above 0 and a p
below {level}, corrected by Holm's method over all twelve.

![The drop past the cutoff of each candidate]({pictures}/year-contamination.svg)

| candidate | cutoff | planted | drop | 95 % interval | p (Holm) | named |
|---|---|---:|---:|---|---:|---|
{rows}

{verdict} Over 100 made worlds of the same cases and candidates, some candidate without memory is named in
{false:.1%} (stated: at most {level:.0%}), and {missed:.1%} of the planted memories are missed.
"""


def write_report(year: Year, outcome: Outcome | None, out: Path) -> None:
    """Write `year.md` and its pictures under a folder; without candidates that part is left out."""
    pictures = out / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    (pictures / "year-cases.svg").write_text(_draw_cases(year), encoding="utf-8")
    (pictures / "year-cost.svg").write_text(_draw_cost(year), encoding="utf-8")
    parts = [
        _HEAD.format(
            measured=measured_line(), weeks=len(year.weeks), pictures="pictures"
        ),
        *_promises(year),
        *_weeks(year),
    ]
    if outcome is not None:
        (pictures / "year-contamination.svg").write_text(
            _draw_drops(outcome), encoding="utf-8"
        )
        parts.append(_candidates(outcome))
    (out / "year.md").write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")


def _promises(year: Year) -> Iterator[str]:
    yield "## What held\n"
    for what, holds in year.promises:
        yield f"- {'' if holds else '**broken**: '}{what}"
    usd, calls = sum(w.usd for w in year.weeks), sum(w.calls for w in year.weeks)
    refused = sum(w.refused for w in year.weeks)
    yield f"- {calls:,} replies were paid, ${usd:.2f} in all; {refused} calls were refused for the key"


def _weeks(year: Year) -> Iterator[str]:
    yield "\n## What happened, and what the maintainer was told\n"
    yield "| week | posted | cases | USD | |\n|---|---:|---:|---:|---|"
    for week in year.weeks:
        cases = "–" if week.cases is None else week.cases
        yield f"| {week.name} | {week.posted} | {cases} | {week.usd:.2f} | {'<br>'.join(_lines(year, week))} |"


def _lines(year: Year, week: Week) -> Iterator[str]:
    for number, kind, line in year.log:
        if number != week.number or (kind == "told" and " is published: " in line):
            continue
        text = line.replace("|", "\\|")
        if kind == "event":
            yield f"**{text}**"
        elif kind in ("told", "status"):
            yield f"{'webhook' if kind == 'told' else 'status'}: {text}"


def _candidates(outcome: Outcome) -> str:
    rows = []
    for place, (one, found) in enumerate(
        zip(outcome.candidates, outcome.found, strict=True)
    ):
        drop = found.drop
        assert drop is not None
        planted, named = (
            f"+{one.leak:.2f}" if one.leak else "",
            "yes" if outcome.named(place) else "",
        )
        rows.append(
            f"| {one.name} | {one.cutoff} | {planted} | {_figure(drop.difference)} "
            f"| {_figure(drop.low)} to {_figure(drop.high)} | {_figure(found.p_holm)} | {named} |"
        )
    verdict = (
        "It names the planted ones and no others."
        if outcome.right
        else "**It does not name the planted alone.**"
    )
    return _CANDIDATES.format(
        planted=sum(c.leak > 0 for c in outcome.candidates),
        cases=outcome.cases,
        level=LEVEL,
        rows="\n".join(rows),
        pictures="pictures",
        false=outcome.false_worlds,
        missed=outcome.missed,
        verdict=verdict,
    )


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _draw_cases(year: Year) -> str:
    return _columns(
        year, "Cases in the week's snapshot", [w.cases or 0 for w in year.weeks]
    )


def _draw_cost(year: Year) -> str:
    return _columns(
        year, "US dollars of the week's replies", [w.usd for w in year.weeks]
    )


def _columns(year: Year, title: str, values: Sequence[float]) -> str:
    def draw(axes: Axes) -> None:
        axes.bar([w.name[-3:] for w in year.weeks], values)
        axes.tick_params(axis="x", rotation=90)
        axes.set_title(title)

    return svg(draw)


def _draw_drops(outcome: Outcome) -> str:
    def draw(axes: Axes) -> None:
        names = []
        pairs = zip(outcome.candidates, outcome.found, strict=True)
        for place, (one, found) in enumerate(pairs):
            drop = found.drop
            assert drop is not None
            assert drop.difference is not None
            colour = "C1" if one.leak > 0 else "C0"
            if drop.low is not None and drop.high is not None:
                axes.plot([drop.low, drop.high], [place, place], color=colour)
            axes.plot(
                [drop.difference], [place], "s" if one.leak else "o", color=colour
            )
            memory = ", planted" if one.leak else ""
            names.append(f"{one.name}, {one.cutoff:%B}{memory}")
        axes.axvline(0, color="grey", linewidth=0.8)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("mean up to the cutoff − mean after it, 95 % interval")

    return svg(draw)
