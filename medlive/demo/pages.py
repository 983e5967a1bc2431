"""Render sample threads in the markup of the four sites (docs/builders/sites.md) by `templates/`, escaped."""

import json
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from markupsafe import Markup

from medlive.demo.samples import SampleMessage, SampleThread
from medlive.text.html import environment

ROWS_PER_PAGE = 10
"""Threads on one page of a list."""
POSTS_PER_PAGE = 4
"""Posts on one page of an SDN thread: few, so that a sample thread has a second page."""


def _dialog(message: SampleMessage, thread: SampleThread) -> Markup:
    parts: Any = _TEMPLATES.get_template("parts.html").module
    return Markup(parts.paragraphs(message.text) + parts.images(message, thread))


_TEMPLATES: Final = environment("medlive.demo", keep_trailing_newline=True)
_TEMPLATES.filters |= {
    "breaks": lambda text, mark="<br>": Markup(mark).join(text.split("\n")),
    "dialog": _dialog,
    # A stable user number for a handle.
    "person": lambda handle: zlib.crc32(handle.encode()),
}


def render(name: str, **values: Any) -> str:
    """The page of a template."""
    return _TEMPLATES.get_template(name).render(values)


def icliniq_thread(thread: SampleThread) -> str:
    """A question and its answers."""
    doctor = next((m.author for m in thread.messages if m.verified), "")
    posted = thread.posted_at
    day = f"{posted:%b %d, %Y}" if posted else None
    return render(
        "icliniq_thread.html", title=thread.title, thread=thread, doctor=doctor, day=day
    )


def sdn_list(
    board: str, threads: Sequence[SampleThread], page: int, last: int, query: str
) -> str:
    """A board's list of threads, page `page` (from 1) of `last`; `query` is kept in the paging links."""
    return render(
        "sdn_list.html", title=board, threads=threads, page=page, last=last, query=query
    )


def sdn_thread(thread: SampleThread, page: int, last: int) -> str:
    """Page `page` (from 1) of `last` of a thread."""
    start = (page - 1) * POSTS_PER_PAGE
    posts = list(enumerate(thread.messages))[start : start + POSTS_PER_PAGE]
    return render(
        "sdn_thread.html",
        title=thread.title,
        thread=thread,
        posts=posts,
        page=page,
        last=last,
    )


def dxy_thread(thread: SampleThread) -> str:
    """A question and its dialogue, as script state and as markup."""
    doctor = next((m for m in thread.messages if m.verified), None)
    dialog = []
    for message in thread.messages:
        row = {
            "type": int(message.role != "patient"),
            "content": _dialog(message, thread),
            "createTime": _second(message.posted_at),
        }
        dialog.append(row)
    state = {
        "question": {
            "id": int(thread.thread_id),
            "title": thread.title,
            "createTime": _second(thread.posted_at),
        },
        "disease": {"title": thread.disease},
        "doctor": doctor
        and {
            "nickname": doctor.author,
            "jobTitle": doctor.title,
            "department": doctor.department,
            "hospital": doctor.hospital,
        },
        "questionDialog": dialog,
    }
    # "</" would end the script.
    script = json.dumps(state, ensure_ascii=False).replace("</", "<\\/")
    return render(
        "dxy_thread.html",
        title=thread.title,
        thread=thread,
        doctor=doctor,
        state=Markup(script),
    )


def _second(moment: datetime | None) -> str | None:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment else None


def medlive_rows(threads: Sequence[SampleThread]) -> dict[str, Any]:
    """A response to the list request."""
    rows = []
    for thread in threads:
        posted = thread.posted_at
        placements = [message.placement for message in thread.messages]
        row = {
            "title": thread.title,
            "url": thread.path,
            "inputtime": int(posted.timestamp()) if posted else None,
            "comment_count": placements.count("comment"),
            "content": thread.messages[0].text[:60] if thread.messages else "",
        }
        rows.append(row)
    return {"code": 200, "data": {"data": rows}}


def medlive_thread(thread: SampleThread) -> str:
    """A case article with its comments, and the comments' replies."""
    opening, *rest = thread.messages
    comments: list[tuple[SampleMessage, list[SampleMessage]]] = []
    for message in rest:
        if message.placement == "reply":
            comments[-1][1].append(message)
        else:
            comments.append((message, []))
    page = render(
        "medlive_thread.html",
        title=thread.title,
        thread=thread,
        opening=opening,
        comments=comments,
    )
    if thread.charset == "utf-8":
        return page
    declared = f'<meta http-equiv="Content-Type" content="text/html; charset={thread.charset}">'
    return page.replace('<meta charset="utf-8">', declared, 1)
