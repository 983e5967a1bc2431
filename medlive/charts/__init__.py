"""Charts as SVG text: bars, columns, histograms, intervals, lines over time, matrices.

The same values make the same bytes on every machine: no clock, no font is measured, no script, nothing fetched.
Every chart brings its own background, in light and in dark where the viewer says which, so that it reads on any
page. It is 440 units wide, so that its text is still about 10 px where a telephone shows it on 328 px, or as its
frame says; a matrix of many columns is wider and is scrolled. The numbers stand beside or on the marks, and in
`<desc>` for who hears the chart instead of seeing it.
"""

from medlive.charts.bars import Bar, Group, bars, columns, histogram
from medlive.charts.drawing import COLOURS, WIDE, WIDTH, Frame, number, plain
from medlive.charts.intervals import (
    Interval,
    IntervalGroup,
    IntervalRow,
    interval_lines,
    intervals,
)
from medlive.charts.lines import Line, Point, lines
from medlive.charts.matrix import Cell, Scale, matrix

__all__ = [
    "COLOURS",
    "WIDE",
    "WIDTH",
    "Bar",
    "Cell",
    "Frame",
    "Group",
    "Interval",
    "IntervalGroup",
    "IntervalRow",
    "Line",
    "Point",
    "Scale",
    "bars",
    "columns",
    "histogram",
    "interval_lines",
    "intervals",
    "lines",
    "matrix",
    "number",
    "plain",
]
