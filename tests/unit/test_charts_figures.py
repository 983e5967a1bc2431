"""The report's charts: to scale, inside their edges, whole with any text, and readable without colour."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.charts import (
    WIDTH,
    Cell,
    Frame,
    Interval,
    IntervalGroup,
    IntervalRow,
    Line,
    Point,
    Polygon,
    Scale,
    intervals,
    lines,
    matrix,
    radar,
)

SVG = "{http://www.w3.org/2000/svg}"
FRAME = Frame("A title", "What it shows.")
texts = st.one_of(
    st.text(max_size=40), st.sampled_from(["<b>", "\x00", "\ud800", "心" * 60, "&amp;", '"', "\u202e"])
)
values = st.floats(-1, 1, allow_subnormal=False)


def drawn(svg: str) -> ElementTree.Element:
    """The parsed chart; every mark and every text's anchor is within its edges."""
    root = ElementTree.fromstring(svg)
    wide, high = float(root.get("width", "nan")), float(root.get("height", "nan"))
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(name, "nan")) for name in ("x", "y", "width", "height"))
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
    return [e for e in root.iter() if mark in (e.get("class") or "").split() and e.tag != f"{SVG}text"]


@st.composite
def interval(draw: st.DrawFn) -> Interval | None:
    if draw(st.booleans()):
        return None
    low, value, high = sorted(draw(st.tuples(values, values, values)))
    return Interval(value, low, high, draw(texts), draw(st.booleans()))


frames = st.builds(Frame, texts, texts, texts, texts)


@settings(max_examples=30)
@given(frames, st.lists(texts, min_size=1, max_size=3), st.data())
def test_intervals_of_any_text_and_value_stay_inside(frame: Frame, names: list[str], data: st.DataObject) -> None:
    row = st.builds(IntervalRow, texts, st.lists(interval(), min_size=len(names), max_size=len(names)))
    groups = data.draw(st.lists(st.builds(IntervalGroup, texts, st.lists(row, max_size=3)), max_size=3))
    drawn(intervals(frame, names, groups))


@settings(max_examples=30)
@given(frames, st.lists(texts, min_size=1, max_size=6), st.data())
def test_lines_and_matrices_of_any_text_and_value_stay_inside(
    frame: Frame, months: list[str], data: st.DataObject
) -> None:
    point = st.builds(
        lambda v, n, faint: Point(v, None if v is None else v - 0.1, None if v is None else v + 0.1, n, faint),
        st.none() | values, st.integers(0, 50), st.booleans(),
    )  # fmt: skip
    line = st.builds(
        Line, texts, st.lists(point, min_size=len(months), max_size=len(months)),
        st.none() | st.integers(1, len(months)), texts,
    )  # fmt: skip
    drawn(lines(frame, months, data.draw(st.lists(line, max_size=3))))

    cell = st.builds(Cell, st.none() | values, st.sampled_from(["", "57", "-.31", "1.00"]), texts, st.booleans())
    grid = [data.draw(st.lists(cell, min_size=len(months), max_size=len(months))) for _ in months]
    drawn(matrix(frame, months, months, grid, scale=data.draw(st.sampled_from(Scale))))


@settings(max_examples=30)
@given(frames, st.lists(texts, min_size=3, max_size=8), st.data())
def test_radars_of_any_text_and_value_stay_inside(frame: Frame, axes: list[str], data: st.DataObject) -> None:
    polygon = st.builds(
        Polygon,
        texts,
        st.lists(st.none() | st.floats(0, 1, allow_subnormal=False), min_size=len(axes), max_size=len(axes)),
    )
    drawn(radar(frame, axes, data.draw(st.lists(polygon, max_size=6))))


def test_bars_and_their_intervals_are_to_one_scale_below_zero_too() -> None:
    rows = [
        IntervalRow("a", [Interval(0.4, 0.3, 0.5, "a"), None]),
        IntervalRow("b", [Interval(-0.2, -0.3, 0.1), None]),
    ]
    root = drawn(intervals(FRAME, ["all", "after"], [IntervalGroup("tie group 1", rows)]))
    first, second = of(root, "mc-v0")[1:]  # the legend's comes first
    size = float(first.get("width", "nan"))
    assert float(second.get("width", "nan")) == pytest.approx(size / 2, abs=0.2)
    zero = float(first.get("x", "nan"))
    assert float(second.get("x", "nan")) == pytest.approx(zero - size / 2, abs=0.2)
    spans = [e for e in of(root, "mc-e") if e.get("y1") == e.get("y2")]
    ends = [(float(e.get("x1", "nan")), float(e.get("x2", "nan"))) for e in spans]
    expected = [(0.3, 0.5), (-0.3, 0.1)]
    assert ends == [tuple(pytest.approx(zero + v / 0.4 * size, abs=0.3) for v in pair) for pair in expected]
    assert "tie group 1" in [t.text for t in root.iter(f"{SVG}text")]


def test_series_of_intervals_differ_in_more_than_colour() -> None:
    svg = intervals(FRAME, ["a", "b", "c"], [IntervalGroup("", [IntervalRow("r", [Interval(0.5)] * 3)])])
    style = svg.split("<style>")[1].split("</style>")[0].split("@media")[-2]
    rules = {k: re.search(rf"\.mc-v{k}\{{([^}}]*)\}}", style) for k in range(3)}
    shapes = {re.sub(r"#[0-9a-f]+", "", rule[1]) for rule in rules.values() if rule}
    assert len(shapes) == 3


def test_points_of_few_cases_are_hollow_and_have_no_band_and_gaps_stay_gaps() -> None:
    points = [Point(0.5, 0.4, 0.6, 40), Point(0.6, 0.5, 0.7, 50), Point(None), Point(0.2, 0.0, 0.9, 3, True)]
    root = drawn(lines(FRAME, ["1", "2", "3", "4"], [Line("m", points, mark=2, mark_text="cutoff")]))
    assert (len(of(root, "mc-d")), len(of(root, "mc-o"))) == (2, 1)
    (band,) = of(root, "mc-a")
    assert len(re.findall("[ML]", band.get("d", ""))) == 4
    assert len([e for e in of(root, "mc-l") if e.tag == f"{SVG}path"]) == 1
    heights = [float(e.get("height", "nan")) for e in of(root, "mc-n")]
    assert heights == pytest.approx([14 * n / 50 for n in (40, 50, 3)], abs=0.2)
    assert "cutoff" in [t.text for t in root.iter(f"{SVG}text")]


def test_a_matrix_writes_every_number_and_shades_in_its_order() -> None:
    shares = [0.1, 0.2, 0.5, 0.9]
    root = drawn(matrix(FRAME, ["r"], list("abcd"), [[Cell(v, f"{100 * v:.0f}") for v in shares]]))
    shown = [t.text for t in root.iter(f"{SVG}text")]
    assert {"10", "20", "50", "90", "r", "a", "d"} <= set(shown)
    depth = [
        int((e.get("class") or "")[4:]) for e in root.iter(f"{SVG}rect") if (e.get("class") or "")[:4] == "mc-h"
    ]
    cells, legend = depth[: len(shares)], depth[len(shares) :]
    assert cells == sorted(cells)
    assert (cells[0], cells[-1]) == (0, 6)
    assert legend == list(range(7))
    assert shown[-2:] == ["10", "90"], "the legend names what its shades are spread over"
    signs = matrix(FRAME, ["r"], ["a", "b"], [[Cell(-0.9, "-.90"), Cell(0.9, ".90")]], scale=Scale.AROUND_ZERO)
    assert len(of(drawn(signs), "mc-k6")) == len(of(drawn(signs), "mc-h6")) == 2


def test_a_matrix_of_many_columns_grows_and_says_that_it_scrolls() -> None:
    few = drawn(matrix(FRAME, ["r"], ["c"], [[Cell(0.5, "50")]]))
    many = drawn(matrix(FRAME, ["r"], ["c"] * 38, [[Cell(0.5, "50")] * 38]))
    assert (few.get("width"), few.get("class")) == (str(WIDTH), "mc")
    assert float(many.get("width", "nan")) > 900
    assert many.get("class") == "mc mc-w"


def test_names_that_differ_at_their_end_are_cut_so_that_they_still_do() -> None:
    names = [f"a-model-with-a-name-that-no-column-can-hold-whole ({k})" for k in ("closed", "open")]
    root = drawn(matrix(FRAME, names, names, [[Cell(0.5, "50")] * 2] * 2))
    shown = [t.text or "" for t in root.iter(f"{SVG}text") if "…" in (t.text or "")]
    assert len(shown) == 4
    assert {text[-6:] for text in shown} == {"losed)", "(open)"}


def test_a_long_note_is_written_to_its_end() -> None:
    note = "left out: " + ", ".join(f"a specialty of number {k}" for k in range(30)) + "; grader judge-1"
    svg = matrix(Frame("t", "d", note=note), ["r"], ["c"], [[Cell(0.5, "50")]])
    assert "judge-1" in svg


def test_charts_read_beside_one_another_share_a_scale() -> None:
    high, low = Line("h", [Point(0.9, 0.8, 1.0, 50)] * 2), Line("l", [Point(0.1, 0.0, 0.2, 25)] * 2)
    alone, among = (drawn(lines(FRAME, ["1", "2"], [low], among=a)) for a in ((), (high, low)))
    assert [float(e.get("height", "nan")) for e in of(alone, "mc-n")] == pytest.approx([14, 14], abs=0.2)
    assert [float(e.get("height", "nan")) for e in of(among, "mc-n")] == pytest.approx([7, 7], abs=0.2)
    assert "0.5" in [t.text for t in among.iter(f"{SVG}text")]
    row = [IntervalGroup("", [IntervalRow("r", [Interval(0.2, 0.1, 0.3, "x")])])]
    wide = [
        float(of(drawn(intervals(FRAME, ["a"], row, most=most)), "mc-v0")[0].get("width", "0"))
        for most in (0, 0.6)
    ]
    assert wide[0] == pytest.approx(2 * wide[1], abs=0.2)


def test_a_scale_of_intervals_is_named() -> None:
    row = [IntervalGroup("", [IntervalRow("r", [Interval(0.2, 0.1, 0.3, "x")])])]
    assert "mean score" in [
        t.text for t in drawn(intervals(FRAME, ["a"], row, axis="mean score")).iter(f"{SVG}text")
    ]


def test_a_radars_corners_lie_as_far_out_as_their_values() -> None:
    root = drawn(radar(FRAME, ["a", "b", "c"], [Polygon("m", [1.0, 0.5, 0.25])], most=1.0))
    rim = of(root, "mc-r")[-1]
    whole = next(e for e in of(root, "mc-r0") if (e.get("d") or "").endswith("Z"))

    def corners(e: ElementTree.Element) -> list[tuple[float, float]]:
        found = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", e.get("d", ""))]
        return list(zip(found[0::2], found[1::2], strict=True))

    middle = tuple(sum(c[k] for c in corners(rim)) / 3 for k in (0, 1))
    far = [((x - middle[0]) ** 2 + (y - middle[1]) ** 2) ** 0.5 for x, y in corners(whole)]
    assert far[1] / far[0] == pytest.approx(0.5, abs=0.01)
    assert far[2] / far[0] == pytest.approx(0.25, abs=0.01)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 3"):
        intervals(FRAME, list("abcd"), [])
    with pytest.raises(ValueError, match="value for each series"):
        intervals(FRAME, ["a"], [IntervalGroup("", [IntervalRow("r", [])])])
    with pytest.raises(ValueError, match="point for each"):
        lines(FRAME, ["1"], [Line("m", [])])
    with pytest.raises(ValueError, match="a cell for each"):
        matrix(FRAME, ["r"], ["c"], [[]])
    with pytest.raises(ValueError, match="at least 3"):
        radar(FRAME, ["a", "b"], [])
    with pytest.raises(ValueError, match="at most 6"):
        radar(FRAME, ["a", "b", "c"], [Polygon("m", [1, 1, 1])] * 7)
