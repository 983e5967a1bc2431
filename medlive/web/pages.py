"""Pages: a typed context for each template, rendered with everything escaped."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import ClassVar, Final
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.filters import do_truncate
from markupsafe import Markup

from medlive import __version__
from medlive.db.accounts import Account
from medlive.guard.bounds import BACK_CHARS, REPLY_CHARS_SHOWN, REQUEST_CHARS_SHOWN
from medlive.rubric.model import unproved_words
from medlive.web.site import Section
from medlive.web.static_files import static_url


@dataclass(frozen=True, slots=True)
class Frame:
    """What `base.html` shows around every page, as `frame`."""

    path: str  # Of the page, with its query
    sections: tuple[Section, ...]
    user: str | None  # Who is signed in
    csrf: str | None  # The token of forms; None where nobody is signed in
    version: str = __version__

    def is_current(self, section: Section) -> bool:
        """Whether the page belongs to a section of the navigation."""
        path = self.path.partition("?")[0]
        return path == section.href or (
            section.href != "/" and path.startswith(f"{section.href}/")
        )


@dataclass(frozen=True)
class Page:
    """A template's context: its fields, and `frame`, are all that the template may use."""

    template: ClassVar[str]


@dataclass(frozen=True)
class ErrorPage(Page):
    """What a reader meets instead of a page."""

    template = "error.html"
    status: int
    title: str
    text: str


def frame_of(request: Request) -> Frame:
    """Return what surrounds a page; `accounts` sets `account` and `csrf_token` of the request's state."""
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    account: Account | None = getattr(request.state, "account", None)
    sections: tuple[Section, ...] = request.app.state.sections
    return Frame(
        path=path,
        sections=tuple(
            s
            for s in sections
            if account is None or s.role is None or account.may(s.role)
        ),
        user=None if account is None else account.name,
        csrf=getattr(request.state, "csrf_token", None),
    )


def back_to(request: Request) -> str:
    """Return the path of a request with its query, to lead back to it; of a long one the path alone."""
    path = quote_path(request.scope["path"])
    whole = f"{path}?{request.url.query}" if request.url.query else path
    return whole if len(whole) <= BACK_CHARS else path[:BACK_CHARS]


def quote_path(path: str) -> str:
    """Return a path as an address holds it; a browser or a proxy takes no part of it for the way to another page."""
    return _DOT_SEGMENT.sub("%2F", quote(path))


def local_path(place: str) -> str:
    """Return a path of this site as it is, and anything else as `/`: `//host` and `/\\host` lead elsewhere."""
    return (
        place
        if place.startswith("/")
        and place[1:2] not in ("/", "\\")
        and place.isprintable()
        else "/"
    )


def render(request: Request, page: Page, status: int = 200) -> HTMLResponse:
    """Render a page; it is asked for again each time, since what it shows may change.

    What somebody signed in sees, or a form holds, is kept by no browser.
    """
    values, frame = (
        {field.name: getattr(page, field.name) for field in fields(page)},
        frame_of(request),
    )
    text = TEMPLATES.get_template(page.template).render(values, frame=frame)
    kept = "no-store" if frame.user or frame.csrf else "no-cache"
    return HTMLResponse(text, status, headers={"Cache-Control": kept, "Vary": "Cookie"})


def _moment(moment: datetime | str) -> Markup:
    """Mark up a moment, or one in ISO 8601, in UTC; times.js shows it in the reader's zone."""
    utc = (
        (datetime.fromisoformat(moment) if isinstance(moment, str) else moment)
        .astimezone(UTC)
        .replace(tzinfo=None)
        .isoformat(timespec="seconds")
    )
    return Markup(f'<time datetime="{utc}Z">{utc[:10]} {utc[11:16]} UTC</time>')


def _size(count: int) -> str:
    """Write a number of bytes for people: 1,023 B, 1.0 kB, 23.4 MB."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count:,} B" if unit == "B" else f"{size:.1f} {unit}"


def _label(name: object) -> str:
    return str(name).replace("_", " ")


def _badge(name: str) -> Markup:
    kind = next((kind for kind, names in _JUDGED.items() if name in names), "")
    return Markup('<span class="%sbadge">%s</span>') % (kind, name)


def _value(value: object, name: str = "") -> str:
    """Write the value of a column of this name, whatever its type; long texts are cut."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and value:
        return _text_value(value, name)
    if isinstance(value, int | float):
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    if isinstance(value, datetime):
        return _moment(value)
    if not value or not isinstance(value, Iterable):
        return Markup('<span class="soft">–</span>')
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {n}" for key, n in value.items())
    return Markup("").join(
        Markup("<div>%s</div>") % do_truncate(TEMPLATES, str(item), _LONGEST)
        for item in value
    )


def _text_value(text: str, name: str) -> str:
    if name in _NAMED and len(text) < 60:
        return _badge(text) if name in _BADGED else _label(text)
    return do_truncate(TEMPLATES, text, _LONGEST)


_DOT_SEGMENT: Final = re.compile(r"(?<=.)/(?=\.{0,2}(?:/|$))(?!$)")
"""A slash before a segment that is empty, `.` or `..`."""
_JUDGED: Final = {
    "good ": ("kept", "ready", "supported"),
    "bad ": ("contradicted", "rejected", "failed", "withdrawn"),
}
_BADGED: Final = ("outcome", "status")
# Columns whose values are names, not texts
_NAMED: Final = *_BADGED, "reason", "stage", "kind"
_LONGEST: Final = 240

TEMPLATES: Final = Environment(
    loader=PackageLoader("medlive.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals |= {
    "static_url": static_url,
    "most_of_reply": REPLY_CHARS_SHOWN,
    "most_of_request": REQUEST_CHARS_SHOWN,
}
TEMPLATES.filters |= {
    "moment": _moment,
    "size": _size,
    "number": lambda value: f"{value:,}",
    "label": _label,
    "badge": _badge,
    "unproved": unproved_words,
    "value": _value,
    "percent": lambda share: "–" if share is None else f"{100 * share:.1f}",
    "path": lambda text: quote_path(str(text)),
}
