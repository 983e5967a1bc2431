"""The figures of a snapshot's card, from its counts."""

from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.integrity.folder import REQUIRED
from medlive.snapshot.describe.figures import MOST_MONTHS, by_month, figures
from medlive.snapshot.freeze import draft_manifest
from medlive.snapshot.manifest import Counts, SnapshotMeta
from medlive.snapshot.model import canary_of
from tests.unit.snapshot.conftest import PROVENANCE

SVG = "{http://www.w3.org/2000/svg}"
CANARY = canary_of("2026.W47")

FIGURES = tuple(name for name in REQUIRED if name.startswith("figures/"))

COUNTS = Counts(
    cases=2756,
    criteria=16702,
    by_language={"en": 1568, "zh": 1188},
    by_source={"dxy": 900, "icliniq": 1856},
    by_theme={"Response Depth": 2700, "Context-Seeking": 56},
    by_specialty={"Urology": 210, "Cardiology": 2546},
    by_difficulty={"low": 2000, "unknown": 756},
    by_dialogue_register={"lay": 2756},
    by_axis={"Accuracy": 16000, "Safety": 702},
    by_month={"2025-01": 756, "2025-04": 2000},
    by_first_release={"2026.W47": 2756},
    criteria_per_case={"2": 700, "6": 2000, "10": 56},
    held=12,
)

month_counts = st.dictionaries(
    st.builds(
        lambda y, m: f"{y:04d}-{m:02d}", st.integers(1, 9999), st.integers(1, 12)
    ),
    st.integers(0, 999),
)
names = st.dictionaries(st.text(max_size=30), st.integers(0, 10**6), max_size=6)


def drawn_of(counts: Counts) -> dict[str, str]:
    """The figures of a snapshot with these counts."""
    meta = SnapshotMeta(
        version="2026.W47",
        created_at=datetime(2026, 11, 21, tzinfo=UTC),
        provenance=PROVENANCE,
    )
    return figures(draft_manifest(meta).model_copy(update={"counts": counts}))


def desc(svg: str) -> str:
    return ElementTree.fromstring(svg).findtext(f"{SVG}desc") or ""


def test_the_figures_are_those_of_the_folder_each_with_the_canary_and_its_numbers() -> (
    None
):
    drawn = drawn_of(COUNTS)
    assert tuple(drawn) == FIGURES
    for svg in drawn.values():
        assert ElementTree.fromstring(svg).findtext(f"{SVG}metadata") == CANARY
        assert desc(svg).startswith("medlive 2026.W47: ")
    told = {
        "figures/axes.svg": "Accuracy: 16,000 (95.8%); Safety: 702 (4.2%).",
        "figures/criteria-per-case.svg": "2: 700; 3: 0; 4: 0; 5: 0; 6: 2,000; 7: 0; 8: 0; 9: 0; 10: 56.",
        "figures/months.svg": "2025-01: 756; 2025-02: 0; 2025-03: 0; 2025-04: 2,000.",
        "figures/sources.svg": "English: 1,568 (56.9%); Chinese (中文): 1,188 (43.1%); icliniq: 1,856 ",
        "figures/specialties.svg": "Cardiology: 2,546 (92.4%); Urology: 210 (7.6%).",
        "figures/themes.svg": "Response Depth: 2,700 (98.0%); Context-Seeking: 56 (2.0%).",
    }
    assert {
        path for path, numbers in told.items() if numbers in desc(drawn[path])
    } == set(FIGURES)
    assert "mean 5.07 criteria, from 2 to 10" in drawn["figures/criteria-per-case.svg"]


@settings(max_examples=30)
@given(
    names,
    names,
    names,
    month_counts,
    st.dictionaries(st.integers(0, 10**4).map(str), st.integers(0, 10**6)),
)
@pytest.mark.thorough
def test_any_names_and_numbers_make_figures_that_parse(
    sources: dict[str, int],
    specialties: dict[str, int],
    axes: dict[str, int],
    months: dict[str, int],
    sizes: dict[str, int],
) -> None:
    other = {
        "by_source": sources,
        "by_specialty": specialties,
        "by_theme": specialties,
        "by_axis": axes,
    }
    counts = COUNTS.model_copy(
        update={**other, "by_month": months, "criteria_per_case": sizes}
    )
    drawn = drawn_of(counts)
    assert drawn == drawn_of(counts)
    for svg in drawn.values():
        assert ElementTree.fromstring(svg).findtext(f"{SVG}metadata") == CANARY


def test_an_empty_snapshot_has_figures_that_say_so() -> None:
    empty = Counts.model_validate(
        {name: 0 if isinstance(v, int) else {} for name, v in COUNTS}
    )
    assert all("no data" in svg for svg in drawn_of(empty).values())


def test_months_without_cases_are_there_and_none_is_lost() -> None:
    counts = COUNTS.model_copy(update={"by_month": {"2024-11": 1, "2025-02": 4}})
    assert by_month(counts) == {"2024-11": 1, "2024-12": 0, "2025-01": 0, "2025-02": 4}
    assert by_month(COUNTS.model_copy(update={"by_month": {}})) == {}
    wrong = {"0001-01": 1, "9999-12": 4}
    assert by_month(COUNTS.model_copy(update={"by_month": wrong})) == wrong


@given(month_counts)
def test_no_case_is_lost_over_the_months(months: dict[str, int]) -> None:
    tally = by_month(COUNTS.model_copy(update={"by_month": months}))
    assert sum(tally.values()) == sum(months.values())
    assert [*tally] == sorted(tally)
    assert len(tally) <= max(MOST_MONTHS, len(months))
