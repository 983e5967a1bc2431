"""Charts: SVG that parses, says its numbers and stays inside its edges, whatever it is given."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.statistics.charts import (
    WIDTH,
    Bar,
    Frame,
    bars,
    columns,
    histogram,
    number,
    plain,
)

SVG = "{http://www.w3.org/2000/svg}"
FRAME = Frame("A title", "What it shows.", "some-canary")

HOSTILE = [
    "a|b",
    "<script>x</script>",
    "`c`",
    "d\ne",
    '"',
    "'",
    "&amp;",
    "]]>",
    "\x00\x1b",
    "\ud800",
    "\u202e",
    "心" * 90,
]
texts = st.one_of(st.text(max_size=60), st.sampled_from(HOSTILE))
values = st.one_of(st.integers(0, 10**9), st.floats(0, 1e6, allow_subnormal=False))
named = st.lists(st.builds(Bar, texts, values), max_size=12)
frames = st.builds(Frame, texts, texts, texts, texts)


def drawn(svg: str) -> ElementTree.Element:
    """The parsed chart, after what holds of every chart was checked."""
    root = ElementTree.fromstring(svg)
    assert svg.endswith("</svg>\n")
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    drawn_with = {e.tag.removeprefix(SVG) for e in root.iter()}
    assert drawn_with <= {
        "svg",
        "title",
        "desc",
        "metadata",
        "style",
        "rect",
        "text",
        "line",
        "g",
    }
    assert "url(" not in svg
    assert svg.count("http") == svg.count("http://www.w3.org/2000/svg") + "".join(
        root.itertext()
    ).count("http")
    high = float(root.get("height", "0"))
    assert root.get("viewBox") == f"0 0 {WIDTH} {high:.0f}"
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (
            float(rect.get(name, "nan")) for name in ("x", "y", "width", "height")
        )
        assert 0 <= x <= x + w <= WIDTH
        assert 0 <= y <= y + h <= high
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", "nan")) <= WIDTH
        assert 0 <= float(text.get("y", "nan")) <= high
    return root


def marks(root: ElementTree.Element, mark: str = "mc-0") -> list[float]:
    """The lengths of the marks of that class along the value's direction, for horizontal charts."""
    return [
        float(r.get("width", "nan"))
        for r in root.iter(f"{SVG}rect")
        if r.get("class") == mark
    ]


@settings(max_examples=12)
@given(
    frames,
    st.dictionaries(texts, named, max_size=3),
    st.dictionaries(st.integers(0, 60), st.integers(0, 10**6)),
)
def test_any_text_and_any_number_make_a_chart_that_parses(
    frame: Frame, groups: dict[str, list[Bar]], counts: dict[int, int]
) -> None:
    every = [bar for group in groups.values() for bar in group]
    for draw in (
        lambda: bars(frame, groups),
        lambda: columns(frame, every),
        lambda: histogram(frame, counts),
    ):
        root = drawn(draw())
        assert draw() == draw()
        assert (root.findtext(f"{SVG}metadata") or "") == plain(frame.metadata)


def test_bars_are_as_long_as_their_values_and_say_them() -> None:
    root = drawn(
        bars(
            FRAME,
            {
                "One": [Bar("a", 100), Bar("b", 50)],
                "": [Bar("c", 0), Bar("d", 25)],
            },
        )
    )
    longest, half, quarter = marks(root)
    assert half == pytest.approx(longest / 2, abs=0.2)
    assert quarter == pytest.approx(longest / 4, abs=0.2)
    said = [t.text for t in root.iter(f"{SVG}text")]
    assert said == ["A title", "One", "a", "100", "b", "50", "c", "0", "d", "25"]
    assert root.findtext(f"{SVG}desc") == "What it shows. a: 100; b: 50; c: 0; d: 25."
    assert root.findtext(f"{SVG}metadata") == "some-canary"


def test_a_tiny_value_still_shows() -> None:
    assert (
        min(marks(drawn(bars(FRAME, {"": [Bar("much", 10**6), Bar("one", 1)]})))) == 1.0
    )


@pytest.mark.parametrize(
    "label", ["x" * 400, "心血管内科与呼吸重症" * 40, "WWWWWWWWWW " * 30]
)
def test_a_long_label_is_cut_and_is_told_in_full_enough(
    label: str,
) -> None:
    root = drawn(bars(FRAME, {"": [Bar(label, 3)]}))
    shown = [t.text or "" for t in root.iter(f"{SVG}text")][1]
    assert shown.endswith("…")
    assert label.startswith(shown[:-1].rstrip())
    # A wide character takes a whole size of 14, any other about half of it.
    wide = sum(14 if ord(c) > 0x1100 else 7 for c in shown)
    assert wide <= WIDTH
    (tooltip,) = (g.findtext(f"{SVG}title") for g in root.iter(f"{SVG}g"))
    assert tooltip.startswith(label[:200])


def test_a_long_title_wraps_between_words() -> None:
    title = "How many cases of every specialty there are in each language " * 2
    shown = [t.text or "" for t in drawn(bars(Frame(title, ""), {})).iter(f"{SVG}text")]
    assert shown[-1] == "no data"
    assert len(shown) > 2
    assert "".join(shown[:-1]).replace(" ", "") == title.replace(" ", "")


def test_columns_label_as_many_as_fit_and_value_only_where_there_is_room() -> None:
    def of(n: int) -> list[str]:
        labels = [f"20{k // 12 + 10}-{k % 12 + 1:02d}" for k in range(n)]
        root = drawn(
            columns(FRAME, [Bar(label, 7_000 + k) for k, label in enumerate(labels)])
        )
        assert len(marks(root)) == n
        return [t.text or "" for t in root.iter(f"{SVG}text")]

    few, many = of(4), of(72)
    assert {"2010-01", "2010-04", "7,000", "7,003"} <= set(few)
    assert 3 <= sum(bool(re.fullmatch(r"20\d\d-\d\d", t)) for t in many) <= 9
    assert "7,000" not in many


def test_a_lone_column_with_an_overlong_label_shows_the_label_cut() -> None:
    shown = [
        t.text or ""
        for t in drawn(columns(FRAME, [Bar("心" * 90, 3)])).iter(f"{SVG}text")
    ]
    assert re.fullmatch("心{10,20}…", shown[-1])


def test_a_histogram_shows_the_gaps() -> None:
    narrow = drawn(histogram(FRAME, {2: 5, 4: 1, 19: 2})).findtext(f"{SVG}desc") or ""
    told = dict(
        pair.split(": ")
        for pair in narrow.removeprefix("What it shows. ").rstrip(".").split("; ")
    )
    assert list(told) == [str(k) for k in range(2, 20)]
    assert (told["2"], told["3"], told["4"], told["19"]) == ("5", "0", "1", "2")


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_no_label_under_a_column_runs_into_the_next_or_over_the_edge(
    low: int, span: int
) -> None:
    root = drawn(histogram(FRAME, {low: 1, low + span: 1}))
    labels = [
        t
        for t in root.iter(f"{SVG}text")
        if t.get("class") == "mc-m mc-s" and t.get("text-anchor") == "middle"
    ]
    # Digits of the size 12 are about 7 wide in most faces.
    edges = [(float(t.get("x", "nan")), len(t.text or "") * 7 / 2) for t in labels]
    ends = [
        0.0,
        *(edge for x, half in edges for edge in (x - half, x + half)),
        float(WIDTH),
    ]
    assert ends == sorted(ends)


@settings(max_examples=12)
@given(st.dictionaries(st.integers(0, 60), st.integers(0, 10**6), min_size=1))
def test_a_histogram_loses_no_count(counts: dict[int, int]) -> None:
    desc = drawn(histogram(Frame("t", ""), counts)).findtext(f"{SVG}desc") or ""
    told = [
        int(pair.split(": ")[1].replace(",", ""))
        for pair in desc.strip().rstrip(".").split("; ")
    ]
    assert sum(told) == sum(counts.values())


def test_two_charts_on_one_page_share_no_id() -> None:
    one, other = (drawn(bars(Frame(t, ""), {})) for t in ("one", "other"))
    assert not {e.get("id") for e in one.iter()} & {
        e.get("id") for e in other.iter()
    } - {None}


def test_numbers_are_written_for_people() -> None:
    assert [number(n) for n in (0, 1568, 2.0, 0.47, 1234.5)] == [
        "0",
        "1,568",
        "2",
        "0.470",
        "1,234.500",
    ]


def test_a_text_of_megabytes_is_cut_at_once() -> None:
    assert len(plain("x" * 5_000_000)) == 300
    assert plain("a\r\n\tb\x00\ud800") == "a b\ufffd\ufffd"
