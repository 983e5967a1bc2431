"""Make pages: `render` fills a template, everything escaped, `notice` shows sentences; and helpers for addresses."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from urllib.parse import quote

from fastapi import HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from jinja2.filters import do_truncate
from markupsafe import Markup

from medlive import __version__
from medlive.db.accounts import Account
from medlive.db.tables.people import AuditLogRow
from medlive.errors import MedliveError
from medlive.guard.bounds import (
    BACK_CHARS,
    MESSAGE_CHARS_SHOWN,
    REPLY_CHARS_SHOWN,
    REQUEST_CHARS_SHOWN,
)
from medlive.rubric.model import unproved_words
from medlive.text.html import environment

from .site import Section


def back_to(request: Request) -> str:
    """Return the path of a request with its query, to lead back to it; of a long one the path alone."""
    path = quote_path(request.scope["path"])
    whole = f"{path}?{request.url.query}" if request.url.query else path
    return whole if len(whole) <= BACK_CHARS else path[:BACK_CHARS]


def quote_path(path: str) -> str:
    """Percent-encode a path so that no browser or proxy resolves an empty, `.` or `..` segment of it."""
    return _DOT_SEGMENT.sub("%2F", quote(path))


def local_path(place: str) -> str:
    """Return a path of this site as it is, and anything else as `/`: `//host` and `/\\host` lead elsewhere."""
    is_local = re.match(r"/(?![/\\])", place) and place.isprintable()
    return place if is_local else "/"


@contextmanager
def refusing(status: int, *kinds: type[MedliveError]) -> Iterator[None]:
    """Raise errors of these kinds as HTTPException with this status."""
    try:
        yield
    except kinds as error:
        raise HTTPException(status, error.whole) from error


def csv_file(name: str, text: str) -> Response:
    """A table as a file to be saved, which no browser keeps."""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.csv"',
        "Cache-Control": "no-store",
    }
    return Response(text, media_type="text/csv", headers=headers)


def render(
    request: Request, template: str, status: int = 200, /, **context: object
) -> HTMLResponse:
    """Fill a template with its context; browsers ask again each time, since what it shows may change.

    No browser stores a page for somebody signed in, or one with a form. `accounts` sets `account` and `csrf_token`
    of the request's state.
    """
    account: Account | None = getattr(request.state, "account", None)
    # The sections that the account may see, and whether the page belongs to them
    sections: list[tuple[Section, bool]] = []
    for section in request.app.state.sections:
        if account is None or section.role is None or account.may(section.role):
            is_current = f"{request.url.path}/".startswith(f"{section.href}/")
            sections.append((section, is_current))
    csrf = getattr(request.state, "csrf_token", None)
    text = TEMPLATES.get_template(template).render(
        context,
        sections=sections,
        user_name=None if account is None else account.name,
        csrf=csrf,
    )
    kept = "no-store" if account or csrf else "no-cache"
    return HTMLResponse(text, status, headers={"Cache-Control": kept, "Vary": "Cookie"})


Link = tuple[str, str]
"""Text and address."""


def notice(
    request: Request,
    title: str,
    text: str,
    status: int = 200,
    *,
    links: Sequence[Link] = (("Back to the start", "/"),),
    entries: Sequence[AuditLogRow] = (),
) -> HTMLResponse:
    """A page of sentences: an error, a refusal, what was done; `entries`: earlier entries of the audit log."""
    return render(
        request,
        "notice.html",
        status,
        title=title,
        text=text,
        links=links,
        is_error=status >= 400,
        entries=entries,
    )


def _moment(moment: datetime | str) -> Markup:
    """Mark up a moment, or one in ISO 8601, in UTC; times.js shows it in the reader's zone."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    utc = f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
    shown = f"{utc[:10]} {utc[11:16]} UTC"
    return Markup('<time datetime="{}Z">{}</time>').format(utc, shown)


def _label(name: object) -> str:
    return str(name).replace("_", " ")


def _badge(name: str) -> Markup:
    return Markup('<span class="{}badge">{}</span>').format(_JUDGED.get(name, ""), name)


def _value(value: object, name: str = "") -> str:
    """Write the value of a column of this name, whatever its type; long texts are cut."""
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value)
        case float():
            return f"{value:.4g}"
        case datetime():
            return _moment(value)
        case _ if not value:
            return Markup('<span class="soft">–</span>')
        case str() if name in _BADGED:
            return _badge(value)
        case str():
            shown = _label(value) if name in _NAMED else value
            return do_truncate(TEMPLATES, shown, _LONGEST)
        case Mapping():
            return ", ".join(f"{key} {n}" for key, n in value.items())
    assert isinstance(value, Iterable)
    lines = Markup()
    for item in value:
        text = do_truncate(TEMPLATES, str(item), _LONGEST)
        lines += Markup("<div>{}</div>").format(text)
    return lines


_DOT_SEGMENT = re.compile(r"(?<=.)/(?=\.{0,2}(?:/|$))(?!$)")
"""A slash before a segment that is empty, `.` or `..`."""
_JUDGED = {
    **dict.fromkeys(("kept", "ready", "supported"), "good "),
    **dict.fromkeys(("contradicted", "rejected", "failed", "withdrawn"), "bad "),
}
"""Outcome or status → how it is coloured."""
_BADGED = ("outcome", "status")
_NAMED = ("reason", "stage", "kind")
"""Columns whose values are names, not texts."""
_LONGEST = 240

TEMPLATES = environment("medlive.web")
TEMPLATES.globals |= {
    "version": __version__,
    "most_of_message": MESSAGE_CHARS_SHOWN,
    "most_of_reply": REPLY_CHARS_SHOWN,
    "most_of_request": REQUEST_CHARS_SHOWN,
}
TEMPLATES.filters |= {
    "moment": _moment,
    "number": lambda value: f"{value:,}",
    "label": _label,
    "badge": _badge,
    "unproved": unproved_words,
    "value": _value,
    "path": lambda text: quote_path(str(text)),
}
