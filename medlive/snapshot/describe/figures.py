"""The figures of a snapshot's card: what the cases are about and where they come from (LiveMedBench, Figure 3)."""

from collections.abc import Mapping

from medlive.snapshot.manifest import Counts, Manifest
from medlive.statistics.charts import (
    Bar,
    Frame,
    bars,
    columns,
    histogram,
    number,
)

MOST_MONTHS = 1_200
"""A hundred years; only a wrong date, such as one of the year 1, makes the months span more."""
LANGUAGE_NAMES: Mapping[str, str] = {"en": "English", "zh": "Chinese (中文)"}


def figures(manifest: Manifest) -> dict[str, str]:
    """Return path → SVG text; the same manifest makes the same text."""
    counts = manifest.counts
    name = f"medlive {manifest.version}"
    cases = counted(counts.cases, "case", "cases")
    criteria = counted(counts.criteria, "criterion", "criteria")

    def frame(
        title: str,
        description: str,
        note: str = cases,
    ) -> Frame:
        return Frame(
            title,
            f"{name}: {description}",
            manifest.canary,
            f"{name}, {note}",
        )

    sizes = by_size(counts)
    per_case = cases
    if rated := sum(sizes.values()):
        mean = sum(size * n for size, n in sizes.items()) / rated
        per_case += f", mean {mean:.2f} criteria, from {min(sizes)} to {max(sizes)}"
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
                "Cases per month",
                "how many cases were opened in each month, by the posting date in UTC.",
            ),
            [Bar(label, n) for label, n in by_month(counts).items()],
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
    """Number of criteria → how many cases have that number, in order."""
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
    """A number with its noun: `1 case`, `2,756 cases`."""
    return f"{number(n)} {singular if n == 1 else more}"


def by_month(counts: Counts) -> dict[str, int]:
    """Month → cases posted in it, from the first to the last.

    Months without cases are there too, except where all would be more than MOST_MONTHS.
    """
    months = dict(sorted(counts.by_month.items()))
    places = [int(month[:4]) * 12 + int(month[5:]) - 1 for month in months]
    if not places or places[-1] - places[0] >= MOST_MONTHS:
        return months
    tally = {}
    for place in range(places[0], places[-1] + 1):
        month = f"{place // 12:04d}-{place % 12 + 1:02d}"
        tally[month] = months.get(month, 0)
    return tally


def by_rank(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """(name, count), the most frequent first, equal counts by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _bars(counts: Mapping[str, int]) -> list[Bar]:
    """Bars, the most frequent first, each with its share."""
    whole = sum(counts.values())
    bars = []
    for name, n in by_rank(counts):
        share = f" ({n / whole:.1%})" if whole else ""
        bars.append(Bar(name, n, f"{number(n)}{share}"))
    return bars
