"""What every chart is drawn with: its frame, its text, its colours, and the file that comes of it."""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 440
"""Units of a chart that fits a telephone; at its natural size one is a pixel."""
WIDE: Final = 960
"""Units of a chart that fills a page: its text is still read where a sheet of paper or a tablet shrinks it."""

PAD: Final = 14
SIZE: Final = 14
SMALL: Final = 12
ROW: Final = 23
_MOST_VALUES: Final = 120
"""How many values `<desc>` tells; a chart with more says how many it leaves out."""
_MOST_TEXT: Final = 300
"""Characters of one text that any chart tells; the rest of a longer one is cut with an ellipsis."""
_MOST_NOTE: Final = 1_500
"""The same for the note under a chart, which says what its figures rest on."""

# The families that hold Chinese on the usual systems come after each system's own face.
_STYLE: Final = (
    ".mc{font-family:system-ui,-apple-system,'Segoe UI','Noto Sans','PingFang SC','Hiragino Sans GB',"
    "'Microsoft YaHei','Noto Sans CJK SC','WenQuanYi Micro Hei',sans-serif;"
    "font-size:14px;max-width:100%;height:auto}"
    ".mc-p{fill:#fff;stroke:#d0d7de}.mc text{fill:#1f2328}.mc .mc-m{fill:#59636e}.mc-s{font-size:12px}"
    ".mc-h{font-size:16px;font-weight:600}.mc-b{font-weight:600}.mc-g{stroke:#d8dee4}.mc-t{fill:#eaeef2}"
    ".mc-0{fill:#2166ac}.mc-1{fill:#b35806}.mc-2{fill:#1b7837}.mc-3{fill:#8e3b8c}.mc-4{fill:#7a6a00}.mc-5{fill:#5f6b76}"
    "@media (prefers-color-scheme:dark){.mc-p{fill:#161b22;stroke:#3d444d}.mc text{fill:#e6edf3}"
    ".mc .mc-m{fill:#9da7b3}.mc-g{stroke:#3d444d}.mc-t{fill:#2a313c}.mc-0{fill:#6cb0f0}.mc-1{fill:#f0a35e}"
    ".mc-2{fill:#7cc68d}.mc-3{fill:#d59ad3}.mc-4{fill:#d6c34a}.mc-5{fill:#aab4bf}}"
)
COLOURS: Final = 6

_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""What XML cannot hold, and what turns a line's direction or breaks it."""


_PIECES: Final = re.compile(
    r"[\u1100-\uffff\U00010000-\U0010ffff]|[^\s\u1100-\U0010ffff]+|\s+"
)
_NUMBER: Final = re.compile(r"\d[\d.,]*(?:-\d[\d.,]*)*")
_AFTER_HYPHEN: Final = re.compile(r"(?<=[^\W\d_]-)(?=[^\W\d_])")


@dataclass(frozen=True, slots=True)
class Frame:
    """What a chart says of itself."""

    title: str
    description: str  # One sentence for `<desc>`; the values are added to it
    metadata: str = ""  # Kept in `<metadata>`; not shown
    note: str = ""  # A line under the chart
    width: int = WIDTH


def number(value: float) -> str:
    """A number for people: `1,568`, `0.472`."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3f}"


def plain(text: str, most: int = _MOST_TEXT) -> str:
    """A text on one line, as XML may hold it: other characters become U+FFFD, line ends and tabs a space.

    One of more than `most` characters is cut, and ends in an ellipsis.
    """
    if len(text) > most:
        text = text[: most - 1] + "…"
    text = re.sub(r"[\t\r\n]+", " ", text)
    return _UNSAFE.sub("\ufffd", text)


def escape(text: str) -> str:
    """A text for an element's content or an attribute in double quotes."""
    for raw, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(raw, name)
    return text


# Widths in thousandths of the size, those of the widest of the usual faces; whatever is not listed takes 640.
_WIDTHS: Final = {
    **dict.fromkeys("ijlI.,:;'|! ", 320),
    **dict.fromkeys("frt()[]-/\\", 410),
    **dict.fromkeys("cksvxyz", 600),
    **dict.fromkeys("mwMW@%", 970),
    **dict.fromkeys("+=<>~", 840),
    **dict.fromkeys("ABCDEFGHKLNOPQRSTUVXYZ&", 740),
}


def text_width(text: str, size: int) -> float:
    """About how wide a text is drawn: from a small table, since the viewer's font is not known here."""
    # By code point and not by Unicode's tables, which differ between versions of Python.
    return (
        sum(_WIDTHS.get(c, 640) if ord(c) < 0x1100 else 1000 for c in plain(text))
        * size
        / 1000
    )


def fit(text: str, room: float, size: int) -> str:
    if text_width(text, size) <= room:
        return text
    while text and text_width(text + "…", size) > room:
        text = text[:-1]
    return text.rstrip() + "…"


def fit_middle(text: str, room: float, size: int) -> str:
    """A text cut in its middle where it is too wide, but in no number: models' names often differ at their end."""
    if text_width(text, size) <= room:
        return text
    head, tail = text[: len(text) // 2], text[len(text) // 2 :]
    while (head or tail) and text_width(f"{head}…{tail}", size) > room:
        if len(head) > len(tail):
            head = head[:-1]
        else:
            tail = tail[1:]
    for number in _NUMBER.finditer(text):
        head = (
            text[: number.start()]
            if number.start() < len(head) < number.end()
            else head
        )
        tail = (
            text[number.end() :]
            if number.start() < len(text) - len(tail) < number.end()
            else tail
        )
    return f"{head.rstrip()}…{tail.lstrip()}"


def pieces(text: str) -> list[str]:
    """What `wrap` breaks a text between where it must: words, spaces, parts of a word between letters after a
    hyphen, and each character of a script that writes no spaces."""
    return [
        part for piece in _PIECES.findall(text) for part in _AFTER_HYPHEN.split(piece)
    ]


def _parts(piece: str, room: float, size: int) -> list[str]:
    """A word too wide for a line, divided after its hyphens: names of models stay whole where they can."""
    return [piece] if text_width(piece, size) <= room else _AFTER_HYPHEN.split(piece)


def wrap(text: str, room: float, size: int) -> list[str]:
    """A text as lines that fit, broken at spaces, or between any two characters of a script that writes none; a
    word that no line holds is broken after a hyphen, or cut."""
    rows = [""]
    for piece in (
        part for whole in _PIECES.findall(text) for part in _parts(whole, room, size)
    ):
        if text_width(rows[-1] + piece, size) <= room:
            rows[-1] += piece
        elif not piece.isspace():
            rows[-1] = rows[-1].rstrip()
            rows.append(fit(piece, room, size))
    return [row for row in rows if row]


def coordinate(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


class Drawing:
    """SVG as it is put together from the top down; `y` is where the next thing may begin."""

    def __init__(
        self,
        frame: Frame,
        values: Sequence[tuple[str, str]],
        *,
        width: float = 0,
        style: str = "",
    ) -> None:
        """`values`: what `<desc>` says of each value; `width`: units where the frame's are too few; `style`: CSS
        of this kind's marks."""
        self._frame, self._values, self._style = frame, values, style
        self.width = math.ceil(max(width, frame.width))
        self._parts: list[str] = []
        self.y = 12.0
        # As if of 19 units: bold text is wider than the table's.
        for row in wrap(plain(frame.title), self.width - 2 * PAD, 19):
            self.y += 21
            self.text(PAD, self.y - 4, row, classes="mc-h")
        self.y += 8

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "",
        classes: str = "",
        room: float | None = None,
    ) -> None:
        """Write a text on one line, cut with an ellipsis where it is wider than `room`."""
        size = SMALL if "mc-s" in classes else SIZE
        shown = plain(text) if room is None else fit(plain(text), room, size)
        more = (f' text-anchor="{anchor}"' if anchor else "") + (
            f' class="{classes}"' if classes else ""
        )
        self._parts.append(
            f'<text x="{coordinate(x)}" y="{coordinate(y)}"{more}>{escape(shown)}</text>'
        )

    def rect(self, x: float, y: float, wide: float, high: float, classes: str) -> None:
        """Draw a mark; one of no size is left out, one that would be too thin to see is a unit wide."""
        if wide > 0 and high > 0:
            size = f'width="{coordinate(max(wide, 1.0))}" height="{coordinate(max(high, 1.0))}"'
            self._parts.append(
                f'<rect x="{coordinate(x)}" y="{coordinate(y)}" {size} class="{classes}"/>'
            )

    def draw(self, element: str) -> None:
        """Add an element that is SVG already, its texts escaped."""
        self._parts.append(element)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, classes: str = "mc-g"
    ) -> None:
        """Draw a line, of the grid where nothing else is listed."""
        ends = zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2), strict=True)
        self._parts.append(
            "<line "
            + " ".join(f'{n}="{coordinate(v)}"' for n, v in ends)
            + f' class="{classes}"/>'
        )

    def tooltip(self, text: str) -> None:
        """Begin a group of marks that tells `text` to who points at it; `end` closes it."""
        self._parts.append(f"<g><title>{escape(plain(text))}</title>")

    def end(self) -> None:
        """Close what `tooltip` began."""
        self._parts.append("</g>")

    def heading(self, text: str) -> None:
        """Write the heading of a group."""
        self.y += 17
        # Bold text is wider than the table's.
        self.text(PAD, self.y, text, classes="mc-b", room=0.9 * (self.width - 2 * PAD))
        self.y += 4

    def empty(self) -> str:
        """The whole file of a chart without values, which says so."""
        self.y += 18
        self.text(PAD, self.y, "no data", classes="mc-m")
        self.y += 10
        return self.svg()

    def svg(self) -> str:
        """The whole file, with a line end."""
        for row in wrap(
            plain(self._frame.note, _MOST_NOTE), self.width - 2 * PAD, SMALL
        ):
            self.y += 16
            self.text(PAD, self.y, row, classes="mc-m mc-s")
        tall = math.ceil(self.y + 12)
        title, metadata = (
            escape(plain(self._frame.title)),
            escape(plain(self._frame.metadata)),
        )
        described = escape(
            " ".join(_describe(plain(self._frame.description), self._values))
        )
        # Two charts on one page must not share the ids that name and describe them.
        size = "" if self.width == WIDTH else f"\n{self.width}"
        mark = hashlib.sha256(f"{title}\n{described}{size}".encode()).hexdigest()[:12]
        # What is drawn wider than asked is scrolled: shrunk, its text could not be read.
        kind = "mc" if self.width <= self._frame.width else "mc mc-w"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" role="img" aria-labelledby="t{mark} d{mark}" '
            f'width="{self.width}" height="{tall}" viewBox="0 0 {self.width} {tall}">\n'
            f'<title id="t{mark}">{title}</title>\n<desc id="d{mark}">{described}</desc>\n'
        )
        return (
            head
            + (f"<metadata>{metadata}</metadata>\n" if metadata else "")
            + f"<style>{_STYLE}{self._style}</style>\n"
            + f'<rect x="0.5" y="0.5" width="{self.width - 1}" height="{tall - 1}" rx="6" class="mc-p"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )


def _describe(description: str, values: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield description
    listed: Iterable[str] = (
        f"{plain(label)}: {plain(text)}" for label, text in values[:_MOST_VALUES]
    )
    if values:
        yield "; ".join(listed) + (
            f"; and {len(values) - _MOST_VALUES} more."
            if len(values) > _MOST_VALUES
            else "."
        )
