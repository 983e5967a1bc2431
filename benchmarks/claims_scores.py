"""Verdicts on public claims against people's labels: tables, macro-F1 with intervals, paired differences."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from medlive.curation.model import Alignment
from medlive.errors import BadInput
from medlive.statistics.agreement import equal_of_tables, macro_f1_of_tables
from medlive.statistics.estimate import Estimate, estimate
from medlive.statistics.intervals import Floats

LABELS: Final = (Alignment.SUPPORTED, Alignment.NEUTRAL, Alignment.CONTRADICTED)
# The column of what is none of the three: wrong, and no rating of a label
OTHER: Final = len(LABELS)
DRAWS: Final = 1000
COUNTED_AS: Final[Mapping[str, int]] = {
    "supported": 0,
    "neutral": 1,
    "not_standard": 1,  # No passage decides, which people call neutral
    "contradicted": 2,
}
"""Verdict → column."""

PUBLISHED: Final = {
    "healthver": (
        "HealthVer, T5-base: macro-F1 .796, SciBERT .772 (Sarrouti et al., Findings of EMNLP 2021; leaderboard of"
        " github.com/sarrouti/HealthVer), trained on the set and tested on its own test split"
    ),
    "healthfc": (
        "HealthFC: the best baseline of Vladika et al., LREC-COLING 2024 (aclanthology.org/2024.lrec-main.709),"
        " trained on the set; its figure could not be looked up here and is not given from memory"
    ),
}
"""Set → the published baseline. None of them read this sample; they show the order of size."""


class LabelledClaim(NamedTuple):
    """A claim, the passage that people judged it by, and their label."""

    key: str
    name: str
    """The set: "healthver", "healthfc" or "made"."""
    part: str
    """"tuned" or "held_out"."""
    language: str
    claim: str
    question: str
    """The question that the claim answers; empty if none."""
    evidence: str
    source: str
    """What dependent claims share: a claim's text (HealthVer), an article (HealthFC), kind and number (made)."""
    label: Alignment


class Setup(NamedTuple):
    """What gave a verdict: two verdicts may be compared where only one of these differs."""

    engine: str
    alignment: str
    """The first digits of the prompt's digest."""
    veto: str
    passage: str
    """"whole" or "excerpt"."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one setup said of a claim; no text, so that a file of these may be published."""

    key: str
    engine: str
    alignment: str
    veto: str
    passage: str
    first: str
    """Before the second check."""
    second: str
    """"confirmed", "disputed" (before: "overturned", and counted as neutral), or empty where the first verdict is no
    contradiction."""
    after: str
    """What curation counts, second check included."""

    @property
    def setup(self) -> Setup:
        """Who judged with what."""
        return Setup(self.engine, self.alignment, self.veto, self.passage)


def read_verdicts(path: Path) -> list[Verdict]:
    """The verdicts of a file, the last line of a claim and setup counting.

    Raises:
        BadInput: If a line is not a verdict.
    """
    verdicts: dict[tuple[str, Setup], Verdict] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            verdict = Verdict(**json.loads(line))
        except (ValueError, TypeError) as exc:
            raise BadInput(
                f"{path.name}:{number}: not a verdict on a claim: {exc}"
            ) from exc
        verdicts[verdict.key, verdict.setup] = verdict
    return list(verdicts.values())


def append_verdict(path: Path, verdict: Verdict) -> None:
    """Add a verdict to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(verdict)) + "\n")


def by_setup(verdicts: Iterable[Verdict]) -> dict[Setup, dict[str, Verdict]]:
    """Setup → key → verdict."""
    groups: dict[Setup, dict[str, Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.setup, {})[verdict.key] = verdict
    return groups


def first_of(verdict: Verdict) -> str:
    """The verdict before the second check."""
    return verdict.first


def after_of(verdict: Verdict) -> str:
    """The verdict after the second check."""
    return verdict.after


STEPS: Final[Mapping[str, Callable[[Verdict], str]]] = {
    "first verdict": first_of,
    "after the second check": after_of,
}


def column_of(verdict: str) -> int:
    """The column of a verdict."""
    return COUNTED_AS.get(verdict, OTHER)


def cells_of(
    claims: Sequence[LabelledClaim],
    verdicts: Mapping[str, Verdict],
    step: Callable[[Verdict], str],
) -> Floats:
    """(claims x labels x verdicts): 1 where people's label and the verdict meet."""
    cells = np.zeros((len(claims), len(LABELS), len(LABELS) + 1))
    for row, claim in enumerate(claims):
        column = column_of(step(verdicts[claim.key]))
        cells[row, LABELS.index(claim.label), column] = 1
    return cells


def sources_of(claims: Sequence[LabelledClaim]) -> list[int]:
    """A number for each claim's source, which the bootstrap draws as a whole."""
    places: dict[tuple[str, str], int] = {}
    return [
        places.setdefault((claim.name, claim.source), len(places)) for claim in claims
    ]


def f1_of_label(place: int) -> Callable[[Floats], Floats]:
    """F1 of one label as a function of tables; NaN where neither side uses it."""

    def f1(tables: Floats) -> Floats:
        used = tables[..., place, :].sum(axis=-1) + tables[..., place].sum(axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(2 * tables[..., place, place] / used)

    return f1


def figure(value: Estimate) -> str:
    """An estimate with its interval."""
    if value.value is None:
        return "-"
    bounds = f" ({value.low:.2f} to {value.high:.2f})" if value.low is not None else ""
    return f"{value.value:.3f}{bounds}"


def describe(
    claims: Sequence[LabelledClaim], verdicts: Mapping[str, Verdict]
) -> list[str]:
    """Every figure of one setup on claims that it judged, as lines."""
    sources = sources_of(claims)
    lines = [f"  {len(claims)} claims of {len(set(sources))} sources"]
    for name, step in STEPS.items():
        cells = cells_of(claims, verdicts, step)
        macro = estimate(cells, macro_f1_of_tables, sources, draws=DRAWS)
        equal = estimate(cells, equal_of_tables, sources, draws=DRAWS)
        lines.append(f"  {name}: macro-F1 {figure(macro)}, accuracy {figure(equal)}")
        for place, label in enumerate(LABELS):
            own = estimate(cells, f1_of_label(place), sources, draws=DRAWS)
            lines.append(f"    F1 {label.value:<13} {figure(own)}")
        lines += confusion(cells.sum(axis=0))
    said = [verdicts[claim.key] for claim in claims]
    second = Counter(verdict.second for verdict in said)
    unconfirmed = len(said) - second["confirmed"] - second[""]
    not_standard = sum(verdict.first == Alignment.NOT_STANDARD for verdict in said)
    lines.append(
        f"  second check: {second['confirmed']} contradictions confirmed, {unconfirmed} not;"
        f" not_standard, counted as neutral: {not_standard}"
    )
    return lines


def confusion(table: Floats) -> list[str]:
    """A table of people's labels by verdicts, as lines."""
    heads = [*(label.value for label in LABELS), "other"]
    lines = ["    people \\ judge " + " ".join(f"{head:>12}" for head in heads)]
    for label, row in zip(LABELS, table, strict=True):
        lines.append(
            f"    {label.value:<14} " + " ".join(f"{int(count):>12}" for count in row)
        )
    return lines


def compare(
    claims: Sequence[LabelledClaim],
    ours: Mapping[str, Verdict],
    theirs: Mapping[str, Verdict],
) -> list[str]:
    """Macro-F1 of two setups on the claims that both judged, and the paired difference, as lines."""
    shared = [claim for claim in claims if claim.key in ours and claim.key in theirs]
    lines = [f"  {len(shared)} claims judged by both"]
    if not shared:
        return lines
    sources = sources_of(shared)

    def difference(tables: Floats) -> Floats:
        return np.asarray(
            macro_f1_of_tables(tables[..., 0, :, :])
            - macro_f1_of_tables(tables[..., 1, :, :])
        )

    for name, step in STEPS.items():
        own, other = cells_of(shared, ours, step), cells_of(shared, theirs, step)
        macro = [
            estimate(cells, macro_f1_of_tables, sources, draws=DRAWS)
            for cells in (own, other)
        ]
        paired = estimate(
            np.stack([own, other], axis=1), difference, sources, draws=DRAWS
        )
        lines.append(
            f"  {name}: {figure(macro[0])} against {figure(macro[1])}, difference {figure(paired)}"
        )
    return lines
