"""Adapter of Medlive (医脉通): case articles, their outcome and the comments below."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from medlive.sources import reading
from medlive.sources.source import (
    Anonymiser,
    LayoutError,
    ListEntry,
    Listing,
    NotAThread,
    Page,
    PageRequest,
    Posted,
    Site,
    SourceSettings,
    link,
    only_page,
)
from medlive.threads.model import Thread

_PAGE_SIZE = 20
"""Rows asked for in one list request."""

_TOPIC_PATH = re.compile(r"/topic/(\d{1,20})(?:/|$)")
_LAST_SEGMENT = re.compile(r"/([^/]{0,99}\d[^/]{0,99}?)(?:\.s?html?)?/?$")
_LIST_PATH = re.compile(r"/new(?:/articlelist)?/?\Z")
_HEAD = ".title_cms, .info_cms, .content_body, .case_result, .inc_c"
_COMMENT_PARTS = ".com_user, .com_user_say, dl"
_MAX_STRAY_TEXT = 20  # Characters of an unknown element below the case


_Entry = tuple[str, Posted]
"""The address of the author's profile, which tells the authors of a page apart; and the post, `verified_by` the
site's mark of a certified physician beside the link."""


class Medlive(Site):
    """The adapter of www.medlive.cn and its older case and news hosts."""

    name = "medlive"
    language = "zh"
    allowed_hosts = frozenset({"www.medlive.cn", "case.medlive.cn", "news.medlive.cn"})

    defaults = SourceSettings(
        base_url="https://www.medlive.cn",
        boards=("case",),
        min_interval_s=10.0,
        stop_statuses=frozenset({403, 429}),
        verified_labels=("认证医师", "认证医生", "医师认证", "医生认证", "已认证医师"),
    )

    def listing_requests(self) -> Sequence[PageRequest]:
        """The front page of each branch, which carries the token that its list request repeats."""
        fronts = []
        for board in self.settings.boards:
            query = urlencode({"branch": board})
            fronts.append(PageRequest(f"{self.settings.base_url}/new/?{query}"))
        return fronts

    def parse_listing(self, page: Page) -> Listing:
        """The rows of a list answer; a front page has none and leads to the first. Raises LayoutError."""
        if page.form is None:
            return Listing((), _first_list(page))
        try:
            answer = json.loads(page.text, strict=False)
        except (ValueError, RecursionError) as error:
            raise LayoutError(page, "a JSON answer") from error
        data = answer.get("data") if isinstance(answer, dict) else None
        rows = data.get("data") if isinstance(data, dict) else None
        if not isinstance(rows, list):
            raise LayoutError(page, "data.data[] in the JSON answer")
        entries = tuple(filter(None, (_row(page, row) for row in rows)))
        if rows and not entries:
            raise LayoutError(page, "title and url in data.data[]")
        following = None
        # An answer of fewer rows than asked for is the last.
        if len(rows) >= _PAGE_SIZE:
            form = dict(page.form)
            form["page"] = str(int(form.get("page", "1")) + 1)
            following = PageRequest(page.url, tuple(form.items()))
        return Listing(entries, following)

    def parse_thread(
        self,
        pages: Sequence[Page],
        anonymise: Anonymiser,
    ) -> Thread:
        """The case, its outcome and the comments. The case as presented counts as the question.

        Raises LayoutError, and NotAThread for an article without an outcome and without comments.
        """
        page = only_page(pages)
        tree = reading.parse(page)
        title = reading.line(
            reading.required(
                page, tree, [".title_cms > span", ".title_cms", "#content h1"]
            )
        )
        body = reading.required(page, tree, [".content_body"])
        case = reading.readable(body, skip_classes=frozenset(["case_result", "inc_c"]))
        if not title or not (case.text or case.media):
            raise LayoutError(page, "text in .title_cms and .content_body")
        _check_strays(page, tree, body)
        comments = self._comments(page, tree)
        author = reading.required(page, tree, [".info_cms a.color_888", "a.color_888"])
        posted_at = _article_date(tree)
        address, opening = self._entry(page, author, case, posted_at)
        opening = opening._replace(asks=True)
        outcome = list(map(reading.readable, tree.css(".case_result")[:1]))
        if not all(read.text for read in outcome):
            raise LayoutError(page, "text in .case_result")
        if not outcome and not comments:
            raise NotAThread(
                f"{page.url}: an article without an outcome and without comments"
            )
        entries = [(address, opening)]
        for text in outcome:
            settled = opening._replace(**text._asdict(), posted_at=None, asks=False)
            entries.append((address, settled))
        for place, post in comments:
            # In the discussion the author goes on asking; what they settle on stands in the outcome. They are known
            # by the link where both have one, else by the name.
            is_author = post.handle == opening.handle
            if place and address:
                is_author = place == address
            entries.append((place, post._replace(asks=is_author)))
        posts = _posts(entries)
        tags = map(reading.line, tree.css(".tag_cms a"))
        thread_id = _thread_id(page.url)
        if thread_id is None:
            raise LayoutError(page, "a case's number in the address")
        return self.build_thread(
            thread_id,
            page.url,
            title,
            tags,
            posted_at,
            posts,
            anonymise,
        )

    def _comments(self, page: Page, tree: LexborHTMLParser) -> list[_Entry]:
        """Every comment and the replies below it, in page order. Raises LayoutError."""
        comments: list[_Entry] = []
        read: set[int] = set()
        for area in tree.css(".inc_c"):
            items = [node for node in area.iter() if node.tag == "dl"]
            stated = area.attributes.get("data-count") or ""
            if stated.isascii() and stated.isdigit() and int(stated) != len(items):
                raise LayoutError(page, f"{stated} .inc_c > dl", found=str(len(items)))
            for item in items:
                read |= {node.mem_id for node in (item, *item.css(_COMMENT_PARTS))}
                comments += self._comment(page, item)
        for node in tree.css(_COMMENT_PARTS):
            is_comment = node.tag != "dl" or (
                node.css_first("dd > a") and node.css_first("dd > span")
            )
            if is_comment and node.mem_id not in read:
                raise LayoutError(page, ".inc_c > dl around every comment")
        return comments

    def _comment(self, page: Page, item: LexborNode) -> Iterator[_Entry]:
        """A comment, then the replies below it. Raises LayoutError."""
        parts = [node for node in item.iter() if node.tag == "dd"]
        anchor = parts[0].css_first("a") if parts else None
        if (
            anchor is None
            or len(parts) < 2
            or "com_return" in reading.classes(parts[1])
        ):
            raise LayoutError(
                page, ".inc_c > dl with a user's link in dd 1 and text in dd 2"
            )
        date = next(filter(None, map(_date, parts[0].css("span"))), None)
        words = _words(page, parts[1], ".inc_c > dl > dd 2")
        yield self._entry(page, anchor, words, date)
        users, replies = item.css(".com_user"), item.css(".com_user_say")
        if len(users) != len(replies):
            raise LayoutError(page, "a .com_user for every .com_user_say")
        for user, reply in zip(users, replies, strict=True):
            words = _words(page, reply, ".com_user_say")
            yield self._entry(page, user, words, None)

    def _entry(
        self,
        page: Page,
        anchor: LexborNode,
        content: reading.Readable,
        posted_at: datetime | None,
    ) -> _Entry:
        """What a person wrote, by their link and the site's mark of a certified physician that may follow it."""
        handle = reading.line(anchor)
        if not handle:
            raise LayoutError(page, "a name in a user's link")
        mark = None
        for beside in takewhile(lambda n: n.tag != "a", reading.following(anchor)):
            for node in (beside, *beside.css("[title], [alt], i, em, span")):
                shown = node.attributes.get("title"), node.attributes.get("alt")
                for text in (*shown, node.text()):
                    words = (text or "").strip()
                    if not mark and words in self.settings.verified_labels:
                        mark = words
        address = link(page, anchor.attributes.get("href")) or ""
        posted = Posted(handle, *content, posted_at, asks=False, verified_by=mark)
        return address, posted


def _posts(entries: Sequence[_Entry]) -> list[Posted]:
    """The messages, each verified by the site's mark of its person anywhere below the case."""
    marks: dict[str, str] = {}
    for address, post in entries[1:]:
        if post.verified_by and address:
            marks[address] = post.verified_by
    posts = []
    for address, post in entries:
        proof = post.verified_by or marks.get(address)
        posts.append(post._replace(verified_by=proof))
    return posts


def _words(page: Page, node: LexborNode, selector: str) -> reading.Readable:
    """What a comment says, without the replies below it. Raises LayoutError for none."""
    read = reading.readable(node, skip_classes=frozenset(["com_return"]))
    if not (read.text or read.media):
        raise LayoutError(page, f"text in {selector}")
    return read


def _check_strays(page: Page, tree: LexborHTMLParser, body: LexborNode) -> None:
    """Raise LayoutError for unknown text between the case and the last known block below it."""
    known = {node.mem_id for node in tree.css(_HEAD)}
    stray: LexborNode | None = None
    for sibling in reading.following(body):
        if sibling.mem_id in known or sibling.css_first(_HEAD) is not None:
            if stray is not None:
                raise LayoutError(
                    page, ".case_result after .content_body", found=f"<{stray.tag}>"
                )
        elif stray is None and len(reading.readable(sibling).text) > _MAX_STRAY_TEXT:
            stray = sibling


def _first_list(page: Page) -> PageRequest:
    """The first list request of a front page, with the token that the page gives every visitor."""
    parts = urlsplit(page.url)
    if not _LIST_PATH.search(parts.path):
        raise LayoutError(page, "the front page /new/")
    token = reading.parse(page).css_first('meta[name="csrf-token"]')
    form = (
        ("branch", dict(parse_qsl(parts.query)).get("branch", "")),
        ("page", "1"),
        ("size", str(_PAGE_SIZE)),
        (
            "_token",
            (token.attributes.get("content") or "") if token is not None else "",
        ),
    )
    path = _LIST_PATH.sub("/new/articlelist", parts.path)
    return PageRequest(
        parts._replace(
            path=path,
            query="",
            fragment="",
        ).geturl(),
        form,
    )


def _row(page: Page, row: Any) -> ListEntry | None:
    """A row of a list answer; None for one without an address of its own, such as an advertisement."""
    if not isinstance(row, dict):
        return None
    address, title = row.get("url"), row.get("title")
    url = link(page, reading.clean(address)) if isinstance(address, str) else None
    thread_id = _thread_id(url) if url is not None else None
    if url is None or thread_id is None or not isinstance(title, str):
        return None
    posted_at = reading.stated_moment(row.get("inputtime"), reading.CHINA)
    return ListEntry(url, thread_id, posted_at)


def _article_date(tree: LexborHTMLParser) -> datetime | None:
    """The date in the article's head, not in its comments."""
    in_comments = {node.mem_id for node in tree.css(".inc_c span")}
    for node in tree.css("span.date_time, .info_cms span"):
        if node.mem_id not in in_comments and (day := _date(node)):
            return day
    return None


def _date(node: LexborNode) -> datetime | None:
    return reading.shown_date(reading.line(node), reading.CHINA)


def _thread_id(url: str) -> str | None:
    """The number of a topic, or the last part of the path that has a digit; None without one."""
    path = urlsplit(url).path
    if match := _TOPIC_PATH.search(path):
        return f"topic-{match[1]}"
    match = _LAST_SEGMENT.search(path)
    return match[1] if match else None
