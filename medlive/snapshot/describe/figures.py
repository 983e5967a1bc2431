"""The figures of a snapshot's card: what the cases are about and where they come from (LiveMedBench, Figure 3)."""

from collections.abc import Mapping

from medlive.snapshot.manifest import Counts
from medlive.statistics.charts import (
    Bar,
    Frame,
    bars,
    columns,
    histogram,
    number,
)

LANGUAGE_NAMES: Mapping[str, str] = {"en": "English", "zh": "Chinese (中文)"}
_MOST_COLUMNS = 72
"""Six years of months; more of them would be thinner than a telephone can show."""


def figures(
    counts: Counts,
    canary: str,
    version: str,
) -> dict[str, str]:
    """Return path → SVG; the same counts make the same text."""
    cases = counted(counts.cases, "case", "cases")
    criteria = counted(counts.criteria, "criterion", "criteria")

    def frame(
        title: str,
        description: str,
        note: str = cases,
    ) -> Frame:
        return Frame(
            title,
            f"medlive {version}: {description}",
            canary,
            f"medlive {version}, {note}",
        )

    sizes = by_size(counts)
    per_case = cases
    if rated := sum(sizes.values()):
        mean = sum(size * n for size, n in sizes.items()) / rated
        per_case += f", mean {mean:.2f} criteria, from {min(sizes)} to {max(sizes)}"
    span, months = by_time(counts.by_month)
    languages = by_language_name(counts)
    return {
        "figures/axes.svg": bars(
            frame("Criteria by axis", "what the criteria measure.", criteria),
            {"": _bars(counts.by_axis)},
        ),
        "figures/criteria-per-case.svg": histogram(
            frame(
                "Criteria per case", "how many cases have how many criteria.", per_case
            ),
            sizes,
        ),
        "figures/months.svg": columns(
            frame(
                f"Cases per {span}",
                f"how many cases were opened in each {span}, by the posting date in UTC.",
            ),
            [Bar(label, n) for label, n in months.items()],
        ),
        "figures/sources.svg": bars(
            frame(
                "Languages and sources",
                "in which languages the cases are, and from which communities.",
            ),
            {
                "Languages": _bars(languages),
                "Sources": _bars(counts.by_source),
            },
        ),
        "figures/specialties.svg": bars(
            frame("Cases by specialty", "which specialties they belong to."),
            {"": _bars(counts.by_specialty)},
        ),
        "figures/themes.svg": bars(
            frame("Cases by theme", "what the cases chiefly test."),
            {"": _bars(counts.by_theme)},
        ),
    }


def by_size(counts: Counts) -> dict[int, int]:
    """Number of criteria → cases that have so many, in order."""
    sizes = {int(size): n for size, n in counts.criteria_per_case.items()}
    return dict(sorted(sizes.items()))


def by_language_name(counts: Counts) -> dict[str, int]:
    """Name of a language, or its code without one → cases in it."""
    named = {}
    for code, n in counts.by_language.items():
        named[LANGUAGE_NAMES.get(code, code)] = n
    return named


def counted(
    n: int,
    singular: str,
    more: str,
) -> str:
    """`1 case`, `2,756 cases`."""
    return f"{number(n)} {singular if n == 1 else more}"


def by_time(by_month: Mapping[str, int]) -> tuple[str, dict[str, int]]:
    """Return "month" and the counts of all months in order, or "year" and those of years where months are too many.

    `by_month`: `2025-03` → n; months and years without any count are in between.
    """
    months = {
        int(month[:-3]) * 12 + int(month[-2:]) - 1: n for month, n in by_month.items()
    }
    if not months:
        return "month", {}
    low = min(months)
    high = max(months)
    is_long = high - low >= _MOST_COLUMNS
    size = 12 if is_long else 1
    tally = dict.fromkeys(range(low // size, high // size + 1), 0)
    for month, n in months.items():
        tally[month // size] += n
    if is_long:
        return "year", {f"{year:04d}": n for year, n in tally.items()}
    labels = {}
    for month, n in tally.items():
        labels[f"{month // 12:04d}-{month % 12 + 1:02d}"] = n
    return "month", labels


def by_rank(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most frequent first, equals by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _bars(counts: Mapping[str, int]) -> list[Bar]:
    """The most frequent first, each with its share."""
    whole = sum(counts.values())
    bars = []
    for name, n in by_rank(counts):
        share = f" ({n / whole:.1%})" if whole else ""
        bars.append(Bar(name, n, f"{number(n)}{share}"))
    return bars
