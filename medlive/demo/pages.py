"""Render sample threads in the markup of the four sites (docs/sources.md); all text is escaped."""

import json
import zlib
from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Any

from medlive.demo.samples import SampleMessage, SampleThread

ROWS_PER_PAGE = 10
"""Threads on one page of a list."""
POSTS_PER_PAGE = 4
"""Posts on one page of an SDN thread: few, so that a sample thread has a second page."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""Month names on iCliniq, independent of the locale."""


def _paragraphs(text: str) -> str:
    """Blank lines separate paragraphs, single line ends become breaks."""
    return "".join(f"<p>{escape(part).replace(chr(10), '<br>')}</p>" for part in text.split("\n\n") if part)


def _link(href: str, text: str) -> str:
    return f'<a href="{escape(href)}">{escape(text)}</a>'


def _person(handle: str) -> int:
    """A stable user number for a handle."""
    return zlib.crc32(handle.encode())


def _page(title: str, body: str, *, head: str = "", root: str = "<html>") -> str:
    return (
        f'<!DOCTYPE html>\n{root}<head><meta charset="utf-8"><title>{escape(title)}</title>{head}</head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _images(message: SampleMessage, thread: SampleThread) -> str:
    return "".join(
        f'<img src="/img/{escape(thread.thread_id.rsplit("/", 1)[-1][:40])}-{number}.gif" alt="">'
        for number, kind in enumerate(message.media, start=1)
        if kind == "image"
    )


def icliniq_list(threads: Sequence[SampleThread], path: str, page: int, last: int) -> str:
    """A list of questions, page `page` (from 1) of `last`."""
    cards = "\n".join(
        f'<div class="card"><h5 class="card-title">{_link(t.path, t.title)}</h5></div>' for t in threads
    )
    links = ""
    if page > 1:
        links += f'<li><a href="{escape(path)}?page={page - 1}" rel="prev">Previous</a></li>'
    if page < last:
        links += f'<li><a href="{escape(path)}?page={page + 1}" rel="next">Next</a></li>'
    return _page("Questions and answers", f'{cards}\n<ul class="pagination">{links}</ul>')


def icliniq_thread(thread: SampleThread) -> str:
    """A question and its answers."""
    blocks: list[str] = []
    for message in thread.messages:
        if message.role == "patient":
            blocks.append(
                f'<div class="qContent"><h2>Patient\'s Query</h2>{_paragraphs(message.text)}'
                f"{_images(message, thread)}</div>"
            )
        else:
            blocks.append(
                f'<div class="answerDiv"><p class="doctor-name">{_link("/p/doctor", message.author)}</p>'
                f'<p class="doctor-spec">{escape(message.specialty or "")}</p>'
                f'<div class="ansExtCon">{_paragraphs(message.text)}</div></div>'
            )
    doctor = next((m.author for m in thread.messages if m.verified), "")
    published = f"Answered by {escape(doctor)} and medically reviewed by iCliniq medical review team."
    if thread.posted_at is not None:
        day = f"{MONTHS[thread.posted_at.month - 1]} {thread.posted_at.day:02d}, {thread.posted_at.year}"
        published += f" This is a premium question &amp; answer published on {day}"
    return _page(
        thread.title,
        f'<h1 class="article-details-heading">{escape(thread.title)}</h1>\n<div class="articleConDiv">\n'
        f'<p class="doctor-published">{published}</p>\n' + "\n".join(blocks) + "\n</div>",
    )


def _xenforo_time(moment: datetime | None, css: str = "u-dt") -> str:
    if moment is None:
        return ""
    return f'<time class="{css}" datetime="{moment.strftime("%Y-%m-%dT%H:%M:%S%z")}">{moment:%Y-%m-%d}</time>'


def _xenforo_paging(path: str, page: int, last: int, query: str = "") -> str:
    links = f'<a href="{escape(path)}{escape(query)}">1</a>'
    if page < last:
        following = escape(f"{path}page-{page + 1}{query}")
        links += f'<a href="{following}" class="pageNav-jump pageNav-jump--next">Next</a>'
    return f'<nav class="pageNavWrapper">{links}</nav>' if last > 1 else ""


def _node(board: str) -> str:
    return board.rsplit(".", 1)[-1]


def sdn_list(board: str, threads: Sequence[SampleThread], page: int, last: int, query: str) -> str:
    """A board's list of threads, page `page` (from 1) of `last`; `query` is kept in the paging links."""
    rows = "\n".join(
        f'<div class="structItem structItem--thread js-threadListItem-{t.thread_id}" '
        f'data-author="{escape(t.messages[0].author)}">\n<div class="structItem-title">'
        f'<a href="{escape(t.path)}" data-tp-primary="on">{escape(t.title)}</a></div>\n'
        f'<ul class="structItem-parts"><li class="structItem-startDate">'
        f"{_xenforo_time(t.posted_at)}</li></ul>"
        f"<div>{_xenforo_time(t.last_post, 'structItem-latestDate u-dt')}</div></div>"
        for t in threads
    )
    path = f"/forums/{board}/"
    return _page(
        board,
        f"{rows}\n{_xenforo_paging(path, page, last, query)}",
        root=f'<html id="XF" data-template="forum_view" data-container-key="node-{_node(board)}">',
    )


def _quote(message: SampleMessage) -> str:
    return (
        f'<blockquote class="bbCodeBlock bbCodeBlock--expandable bbCodeBlock--quote">'
        f'<div class="bbCodeBlock-title">{escape(message.author)} said:</div>'
        f'<div class="bbCodeBlock-content">{escape(message.text[:160])}</div>'
        f'<div class="bbCodeBlock-expandLink"><a>Click to expand...</a></div></blockquote>'
    )


def _sdn_post(thread: SampleThread, position: int) -> str:
    message = thread.messages[position]
    number = f"{thread.thread_id}{position:02d}"
    # Later posts quote the one before, to test that quoted words are not counted again.
    quote = _quote(thread.messages[position - 1]) if position >= 2 else ""
    body = escape(message.text).replace("\n", "<br />\n")
    return (
        f'<article class="message message--post js-post" data-author="{escape(message.author)}" '
        f'data-content="post-{number}" id="js-post-{number}">\n'
        f'<div class="message-cell--user"><h4 class="message-name">'
        f'<a class="username" data-user-id="{_person(message.author)}">{escape(message.author)}</a></h4>'
        f'<h5 class="message-userTitle">Full Member</h5><span class="sdn_status current_status">'
        f'<ol data-field="current_status"><li>{escape(message.status or "")}</li></ol></span></div>\n'
        f'<header class="message-attribution"><ul class="message-attribution-main"><li>'
        f"{_xenforo_time(message.posted_at)}</li></ul></header>\n"
        f'<div class="message-userContent"><article class="message-body">'
        f'<div class="bbWrapper">{quote}{body}</div></article></div>\n'
        f'<aside class="message-signature"><div class="bbWrapper">Be kind on call.</div></aside>\n</article>'
    )


def sdn_thread(thread: SampleThread, page: int, last: int) -> str:
    """Page `page` (from 1) of `last` of a thread."""
    start = (page - 1) * POSTS_PER_PAGE
    posts = "\n".join(
        _sdn_post(thread, position) for position in range(start, min(start + POSTS_PER_PAGE, len(thread.messages)))
    )
    crumbs = "".join(
        f'<li><a itemprop="item"><span itemprop="name">{escape(name)}</span></a></li>'
        for name in ("Forums", *thread.tags)
    )
    return _page(
        thread.title,
        f'<ul class="p-breadcrumbs">{crumbs}</ul>\n<h1 class="p-title-value">{escape(thread.title)}</h1>\n'
        f"{posts}\n{_xenforo_paging(thread.path, page, last)}",
        head=f'<link rel="canonical" href="{escape(thread.path)}">',
        root=f'<html id="XF" data-template="thread_view" data-content-key="thread-{thread.thread_id}" '
        f'data-container-key="node-{_node(thread.board)}">',
    )


def dxy_list(section: str, threads: Sequence[SampleThread], page: int, last: int) -> str:
    """A section's list of questions, page `page` (from 1) of `last`."""
    rows = "\n".join(
        f'<a href="{escape(t.path)}"><h3 class="title">{escape(t.title)}</h3>'
        f'<p class="desc">{escape(t.messages[0].text[:60]) if t.messages else ""}</p></a>'
        for t in threads
    )
    link = f'<a href="/questions/{escape(section)}?page_index={page + 1}">下一页</a>' if page < last else ""
    return _page(
        section,
        f'<div class="content-list">\n{rows}\n</div>\n<div class="pagination">{link}</div>',
        root="<html lang=zh>",
    )


def dxy_thread(thread: SampleThread) -> str:
    """A question and its dialogue, as script state and as markup."""
    doctor = next((m for m in thread.messages if m.verified), None)
    state: dict[str, Any] = {
        "question": {
            "id": int(thread.thread_id),
            "title": thread.title,
            "createTime": f"{thread.posted_at:%Y-%m-%d %H:%M:%S}" if thread.posted_at else None,
        },
        "disease": {"title": thread.disease},
        "doctor": None,
        "questionDialog": [
            {
                "type": 0 if m.role == "patient" else 1,
                "content": _paragraphs(m.text) + _images(m, thread),
                "createTime": f"{m.posted_at:%Y-%m-%d %H:%M:%S}" if m.posted_at else None,
            }
            for m in thread.messages
        ],
    }
    info = ""
    if doctor is not None:
        state["doctor"] = {
            "nickname": doctor.author,
            "jobTitle": doctor.title,
            "department": doctor.department,
            "hospital": doctor.hospital,
        }
        places = (doctor.title, doctor.department, doctor.hospital)
        body = "".join(f"<div>{escape(place or '')}</div>" for place in places)
        info = (
            f'<div class="doctor-info"><div class="doctor-detail">'
            f'<div class="doctor-header"><div>{escape(doctor.author)}</div></div>'
            f'<div class="doctor-body">{body}</div></div></div>'
        )
    turns = "".join(
        f'<div class="{"theme-dark" if m.role == "patient" else "theme-white"}">'
        f'<div class="dialog-content">{_paragraphs(m.text)}{_images(m, thread)}</div></div>'
        for m in thread.messages
    )
    when = f'<div class="question-time">提问时间：{thread.posted_at:%Y-%m-%d}</div>' if thread.posted_at else ""
    # "</" would end the script.
    script = json.dumps(state, ensure_ascii=False).replace("</", "<\\/")
    return _page(
        thread.title,
        f"<script>window.$$data={script};</script>\n"
        f'<h1 class="question-title">{escape(thread.title)}</h1>\n{info}\n'
        f'<div class="question-detail-dialogs"><div class="dialogs">{turns}</div></div>\n{when}',
        root="<html lang=zh>",
    )


def medlive_front(token: str) -> str:
    """The page with the token for the list request."""
    return _page("病例", "<h1>病例</h1>", head=f'<meta name="csrf-token" content="{escape(token)}">')


def medlive_rows(threads: Sequence[SampleThread]) -> dict[str, Any]:
    """A response to the list request."""
    return {
        "code": 200,
        "data": {
            "data": [
                {
                    "title": t.title,
                    "url": t.path,
                    "inputtime": int(t.posted_at.timestamp()) if t.posted_at else None,
                    "comment_count": sum(m.placement == "comment" for m in t.messages),
                    "content": t.messages[0].text[:60] if t.messages else "",
                }
                for t in threads
            ]
        },
    }


def _medlive_author(message: SampleMessage, css: str) -> str:
    mark = f'<i class="icon_rz" title="{escape(message.certification)}"></i>' if message.certification else ""
    return f'<a class="{css}" href="/user/{_person(message.author)}">{escape(message.author)}</a>{mark}'


def medlive_thread(thread: SampleThread) -> str:
    """A case article with its comments, and the comments' replies."""
    opening, *rest = thread.messages
    comments: list[list[str]] = []
    for message in rest:
        when = f"{message.posted_at:%Y-%m-%d %H:%M}" if message.posted_at else ""
        if message.placement == "reply":
            comments[-1].append(
                f'<dd class="com_return">{_medlive_author(message, "com_user")}'
                f'<p class="com_user_say">{escape(message.text)}</p></dd>'
            )
        else:
            comments.append(
                [
                    f'<dt><img class="avatar" src="/img/avatar.gif" alt=""></dt>'
                    f"<dd>{_medlive_author(message, 'user')}<span>{when}</span></dd>"
                    f"<dd>{escape(message.text)}</dd>"
                ]
            )
    lists = "\n".join(f"<dl>{''.join(parts)}</dl>" for parts in comments)
    when = f'<span class="date_time">{thread.posted_at:%Y-%m-%d %H:%M}</span>' if thread.posted_at else ""
    page = _page(
        thread.title,
        f'<div class="title_cms"><span>{escape(thread.title)}</span></div>\n'
        f'<div class="info_cms">{_medlive_author(opening, "color_888")}{when}</div>\n'
        f'<div class="tag_cms">{"".join(_link("/tag/", tag) for tag in thread.tags)}</div>\n'
        f'<div class="content_body">{_paragraphs(opening.text)}{_images(opening, thread)}</div>\n'
        f'<div class="inc_c" data-count="{len(comments)}">\n{lists}\n</div>',
    )
    if thread.charset == "utf-8":
        return page
    declared = f'<meta http-equiv="Content-Type" content="text/html; charset={thread.charset}">'
    return page.replace('<meta charset="utf-8">', declared, 1)
