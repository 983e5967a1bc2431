"""The report's charts: to scale, inside their edges, whole with any text, and readable without colour."""

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.charts import (
    WIDE,
    WIDTH,
    Cell,
    Frame,
    Interval,
    IntervalGroup,
    IntervalRow,
    Line,
    Point,
    Scale,
    intervals,
    lines,
    matrix,
)
from medlive.charts.bars import ticks_of
from medlive.charts.drawing import fit_middle

SVG = "{http://www.w3.org/2000/svg}"
FRAME = Frame("A title", "What it shows.")
texts = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["<b>", "\x00", "\ud800", "心" * 60, "&amp;", '"', "\u202e"]),
)
values = st.floats(-1, 1, allow_subnormal=False)


def drawn(svg: str) -> ElementTree.Element:
    """The parsed chart; every mark and every text's anchor is within its edges."""
    root = ElementTree.fromstring(svg)
    wide, high = float(root.get("width", "nan")), float(root.get("height", "nan"))
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (
            float(rect.get(name, "nan")) for name in ("x", "y", "width", "height")
        )
        assert -0.1 <= x <= x + w <= wide + 0.1
        assert 0 <= y <= y + h <= high
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", "nan")) <= wide
        assert 0 <= float(text.get("y", "nan")) <= high
    for path in root.iter(f"{SVG}path"):
        numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", path.get("d", ""))]
        assert all(0 <= x <= wide for x in numbers[0::2])
        assert all(0 <= y <= high for y in numbers[1::2])
    return root


def of(root: ElementTree.Element, mark: str) -> list[ElementTree.Element]:
    return [
        e
        for e in root.iter()
        if mark in (e.get("class") or "").split() and e.tag != f"{SVG}text"
    ]


@st.composite
def interval(draw: st.DrawFn) -> Interval | None:
    if draw(st.booleans()):
        return None
    low, value, high = sorted(draw(st.tuples(values, values, values)))
    return Interval(value, low, high, draw(texts), draw(texts), draw(st.booleans()))


frames = st.builds(Frame, texts, texts, texts, texts, st.sampled_from([WIDTH, WIDE]))


@settings(max_examples=30)
@given(frames, st.lists(texts, min_size=1, max_size=2), st.data())
def test_intervals_of_any_text_and_value_stay_inside(
    frame: Frame, names: list[str], data: st.DataObject
) -> None:
    row = st.builds(
        IntervalRow,
        texts,
        st.lists(interval(), min_size=len(names), max_size=len(names)),
    )
    groups = data.draw(
        st.lists(st.builds(IntervalGroup, texts, st.lists(row, max_size=3)), max_size=3)
    )
    drawn(intervals(frame, names, groups))


@settings(max_examples=30)
@given(frames, st.lists(texts, min_size=1, max_size=6), st.data())
def test_lines_and_matrices_of_any_text_and_value_stay_inside(
    frame: Frame, months: list[str], data: st.DataObject
) -> None:
    point = st.builds(
        lambda v, n, faint: Point(
            v, None if v is None else v - 0.1, None if v is None else v + 0.1, n, faint
        ),
        st.none() | values,
        st.integers(0, 50),
        st.booleans(),
    )
    line = st.builds(
        Line,
        texts,
        st.lists(point, min_size=len(months), max_size=len(months)),
        st.none() | st.integers(1, len(months)),
    )
    drawn(lines(frame, months, data.draw(st.lists(line, max_size=9))))

    short = st.sampled_from(["", "57", "-.31", "1.00"])
    cell = st.builds(Cell, st.none() | values, short, texts, texts, st.booleans())
    grid = [
        data.draw(st.lists(cell, min_size=len(months), max_size=len(months)))
        for _ in months
    ]
    drawn(matrix(frame, months, months, grid, scale=data.draw(st.sampled_from(Scale))))


@pytest.mark.parametrize("width", [WIDTH, WIDE])
def test_marks_and_their_intervals_are_to_one_scale_that_reaches_past_them(
    width: int,
) -> None:
    rows = [
        IntervalRow("a", [Interval(0.4, 0.3, 0.5, "a"), None]),
        IntervalRow("b", [Interval(-0.2, -0.3, 0.1), None]),
    ]
    frame = replace(FRAME, width=width)
    root = drawn(
        intervals(
            frame, ["all", "after"], [IntervalGroup("tie group 1", rows)], origin=0.0
        )
    )
    ticks = {
        float(t.text): float(t.get("x", "nan"))
        for t in root.iter(f"{SVG}text")
        if re.fullmatch(r"-?[\d.]+", t.text or "")
    }
    low, high = min(ticks), max(ticks)
    assert (low, high) == (pytest.approx(-0.4, abs=0.11), pytest.approx(0.6, abs=0.11))
    unit = (ticks[high] - ticks[low]) / (high - low)
    first, second = (
        float(e.get("cx", "nan")) for e in of(root, "mc-v0")[1:]
    )  # the legend's comes first
    spans = [e for e in of(root, "mc-e0") if e.get("y1") == e.get("y2")][1:]
    found = [
        first,
        second,
        *(float(e.get(x, "nan")) for e in spans for x in ("x1", "x2")),
    ]
    expected = [0.4, -0.2, 0.3, 0.5, -0.3, 0.1]
    assert [(x - ticks[0.0]) / unit for x in found] == pytest.approx(
        expected, abs=0.005
    )
    (zero,) = of(root, "mc-z")
    assert float(zero.get("x1", "nan")) == pytest.approx(ticks[0.0], abs=0.1)
    assert "tie group 1" in [t.text for t in root.iter(f"{SVG}text")]


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.integers(2, 9))
def test_an_axis_ends_on_round_values_past_the_data(
    low: float, span: float, about: int
) -> None:
    ticks = ticks_of(low, low + span, about)
    steps = [b - a for a, b in pairwise(ticks)]
    assert ticks[0] <= low + 1e-6 * span
    assert ticks[-1] >= low + span * (1 - 1e-6)
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-6)
    assert ticks[1] > low
    assert ticks[-2] < low + span


def test_series_of_intervals_differ_in_more_than_colour() -> None:
    svg = intervals(
        FRAME, ["a", "b"], [IntervalGroup("", [IntervalRow("r", [Interval(0.5)] * 2)])]
    )
    root = drawn(svg)
    assert [{e.tag for e in of(root, f"mc-v{k}")} for k in range(2)] == [
        {f"{SVG}circle"},
        {f"{SVG}rect"},
    ]


def test_points_of_few_cases_are_hollow_and_have_no_band_and_gaps_stay_gaps() -> None:
    points = [
        Point(0.5, 0.4, 0.6, 40),
        Point(0.6, 0.5, 0.7, 50),
        Point(None),
        Point(0.2, 0.0, 0.9, 3, True),
    ]
    root = drawn(lines(FRAME, ["1", "2", "3", "4"], [Line("m", points, mark=2)]))
    # A filled mark each in the legend and at the cutoff.
    assert (len(of(root, "mc-0")), len(of(root, "mc-o0"))) == (2 + 2, 1)
    (band,) = of(root, "mc-a")
    assert len(re.findall("[ML]", band.get("d", ""))) == 4
    # The legend's, the cutoff's, and two stretches.
    assert len(of(root, "mc-l0")) == 4
    heights = [float(e.get("height", "nan")) for e in of(root, "mc-n")]
    assert heights == pytest.approx([14 * n / 50 for n in (40, 50, 3)], abs=0.2)


@pytest.mark.parametrize("count", [2, 6, 7, 38])
def test_up_to_six_lines_lie_in_one_plot_and_more_in_a_plot_each_on_one_scale(
    count: int,
) -> None:
    values = [[10.0 + k, 20.0 + k] for k in range(count)]
    series = [
        Line(f"m{k}", [Point(v, v - 5, v + 5, 50) for v in pair])
        for k, pair in enumerate(values)
    ]
    root = drawn(lines(replace(FRAME, width=WIDE), ["1", "2"], series))
    assert {line.label for line in series} <= {t.text for t in root.iter(f"{SVG}text")}
    ticks = [t.text for t in root.iter(f"{SVG}text") if t.get("text-anchor") == "end"]
    plots = 1 if count <= 6 else count
    assert ticks == ticks[: len(ticks) // plots] * plots
    assert len(of(root, "mc-a")) == (0 if plots == 1 else count)
    if plots == 1:
        shapes = {
            tuple(re.findall(r"[ML]", of(root, f"mc-{k}")[0].get("d", "")))
            for k in range(count)
        }
        assert all(len(of(root, f"mc-{k}")) == 3 for k in range(count)), shapes


def test_a_matrix_writes_every_number_and_shades_in_its_order() -> None:
    shares = [0.1, 0.2, 0.5, 0.9]
    root = drawn(
        matrix(
            FRAME, ["r"], list("abcd"), [[Cell(v, f"{100 * v:.0f}") for v in shares]]
        )
    )
    shown = [t.text for t in root.iter(f"{SVG}text")]
    assert {"10", "20", "50", "90", "r", "a", "d"} <= set(shown)
    depth = [
        int((e.get("class") or "")[4:])
        for e in root.iter(f"{SVG}rect")
        if (e.get("class") or "")[:4] == "mc-h"
    ]
    cells, legend = depth[: len(shares)], depth[len(shares) :]
    assert cells == sorted(cells)
    assert (cells[0], cells[-1]) == (0, 6)
    assert legend == list(range(7))
    assert shown[-2:] == ["10", "90"], (
        "the legend names what its shades are spread over"
    )
    signs = matrix(
        FRAME,
        ["r"],
        ["a", "b"],
        [[Cell(-0.9, "-.90"), Cell(0.9, ".90")]],
        scale=Scale.AROUND_ZERO,
    )
    assert len(of(drawn(signs), "mc-k6")) == len(of(drawn(signs), "mc-h6")) == 2


def test_a_matrix_of_many_columns_grows_and_says_that_it_scrolls() -> None:
    few = drawn(matrix(FRAME, ["r"], ["c"], [[Cell(0.5, "50")]]))
    many = drawn(matrix(FRAME, ["r"], ["c"] * 38, [[Cell(0.5, "50")] * 38]))
    assert (few.get("width"), few.get("class")) == (str(WIDTH), "mc")
    assert float(many.get("width", "nan")) > 900
    assert many.get("class") == "mc mc-w"


def test_names_that_differ_at_their_end_are_cut_so_that_they_still_do() -> None:
    names = [
        f"a-model-with-a-name-that-no-column-can-hold-whole ({k})"
        for k in ("closed", "open")
    ]
    root = drawn(matrix(FRAME, names, names, [[Cell(0.5, "50")] * 2] * 2))
    shown = [t.text or "" for t in root.iter(f"{SVG}text") if "…" in (t.text or "")]
    assert len(shown) == 4
    assert {text[-6:] for text in shown} == {"losed)", "(open)"}


def test_a_long_note_is_written_to_its_end() -> None:
    note = (
        "left out: "
        + ", ".join(f"a specialty of number {k}" for k in range(30))
        + "; grader judge-1"
    )
    svg = matrix(Frame("t", "d", note=note), ["r"], ["c"], [[Cell(0.5, "50")]])
    assert "judge-1" in svg


def test_charts_read_beside_one_another_share_a_scale() -> None:
    row = [IntervalGroup("", [IntervalRow("r", [Interval(0.2, 0.1, 0.3, "x")])])]
    spans = []
    for ends in ((), (0.9,)):
        root = drawn(intervals(FRAME, ["a"], row, ends=ends))
        spans += [
            float(e.get("x2", "0")) - float(e.get("x1", "0"))
            for e in of(root, "mc-e0")[:1]
        ]
    assert spans[0] > 2 * spans[1]


def test_a_name_is_never_cut_inside_a_number() -> None:
    name = "gemini-2.5-pro-preview-2025-12-11-and-some-more-of-it-20251211-eu"
    for room in range(60, 400, 7):
        head, _, tail = fit_middle(name, room, 12).partition("…")
        numbers = r"\d[\d.]*(?:-\d+)*"
        assert set(re.findall(numbers, f"{head} {tail}")) <= set(
            re.findall(numbers, name)
        ), (head, tail)
        assert name.startswith(head)
        assert name.endswith(tail)


def test_a_scale_of_intervals_is_named() -> None:
    row = [IntervalGroup("", [IntervalRow("r", [Interval(0.2, 0.1, 0.3, "x")])])]
    assert "mean score" in [
        t.text
        for t in drawn(intervals(FRAME, ["a"], row, axis="mean score")).iter(
            f"{SVG}text"
        )
    ]


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 2"):
        intervals(FRAME, list("abc"), [])
    with pytest.raises(ValueError, match="value for each series"):
        intervals(FRAME, ["a"], [IntervalGroup("", [IntervalRow("r", [])])])
    with pytest.raises(ValueError, match="point for each"):
        lines(FRAME, ["1"], [Line("m", [])])
    with pytest.raises(ValueError, match="a cell for each"):
        matrix(FRAME, ["r"], ["c"], [[]])
