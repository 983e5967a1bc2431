"""Figures of the benchmarks as SVG, drawn with matplotlib: the same values make the same bytes."""

import io
import warnings
from collections.abc import Callable

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def svg(draw: Callable[[Axes], object]) -> str:
    """A figure."""
    sink = io.StringIO()
    style = rc_context(
        {
            "axes.titlesize": "medium",
            "font.size": 9,
            # Text stays text: the viewer has the fonts of characters that matplotlib's own lacks.
            "svg.fonttype": "none",
            "svg.hashsalt": "medlive",
            "text.parse_math": False,
        }
    )
    with style, warnings.catch_warnings(action="ignore"):
        figure = Figure(figsize=(7, 3.5), layout="constrained")
        draw(figure.subplots())
        figure.savefig(sink, format="svg", metadata={"Date": None})
    return sink.getvalue()
