"""What a report asks of its charts: whole names, labels apart, a colour scale that tells two ends."""

import re
from xml.etree import ElementTree

from medlive.charts import Cell, Frame, Scale, matrix

SVG = "{http://www.w3.org/2000/svg}"
FRAME = Frame("t", "d")


def texts(svg: str) -> list[tuple[str, float]]:
    root = ElementTree.fromstring(svg)
    return [(e.text or "", float(e.get("y", "nan"))) for e in root.iter(f"{SVG}text")]


def shades(svg: str) -> list[str]:
    return re.findall(r'class="mc-(h\d)', svg)


def test_a_colour_scale_names_two_ends_that_differ_or_none() -> None:
    def ends(svg: str) -> list[str]:
        return [text for text, _ in texts(svg)][-2:]

    pair = [
        [Cell(1.0, "1.00"), Cell(0.9, ".90")],
        [Cell(0.9, ".90"), Cell(1.0, "1.00")],
    ]
    assert ends(matrix(FRAME, ["a", "b"], ["a", "b"], pair)) == [".90", "1.00"]
    same = [[Cell(1.0, "1.00")] * 2] * 2
    assert len(shades(matrix(FRAME, ["a", "b"], ["a", "b"], same))) == 4, (
        "a scale of one value is none"
    )
    shared = matrix(FRAME, ["a", "b"], ["a", "b"], same, scale=Scale.SHARE)
    assert ends(shared) == ["0", "1"]
    assert shades(shared)[:4] == ["h6"] * 4


def test_matrices_read_beside_one_another_are_shaded_alike() -> None:
    low, high = Cell(0.2, "20.0"), Cell(0.8, "80.0")
    alone = shades(matrix(FRAME, ["r"], ["a", "b"], [[low, Cell(0.3, "30.0")]]))
    among = shades(
        matrix(FRAME, ["r"], ["a", "b"], [[low, Cell(0.3, "30.0")]], among=[low, high])
    )
    assert alone[:2] == ["h0", "h6"]
    assert among[:2] == ["h0", "h1"]
