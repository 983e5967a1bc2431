"""Adapter of Student Doctor Network: a XenForo 2 forum, read post by post."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from weakref import WeakKeyDictionary

from selectolax.lexbor import LexborHTMLParser, LexborNode

from medlive.sources import reading
from medlive.sources.source import (
    Anonymiser,
    IncompleteThread,
    LayoutError,
    ListEntry,
    Listing,
    Page,
    PageRequest,
    Posted,
    Site,
    SourceSettings,
    link,
)
from medlive.threads.model import Thread

_THREAD_PATH = re.compile(r"threads/(?:[^/?#]*\.)?(\d{1,20})(?:[/?#]|$)")
_PAGE_PATH = re.compile(r"/page-(\d{1,6})(?:[/?#]|$)")
# A thread or board, and its number
_PLACE = re.compile(r"\b(threads|forums)/(?:[^/?#]*\.)?(\d+)(?:[/?#]|$)")
# A post's place in its thread, such as #1,234; \x1f stands between the texts.
_NUMBER = re.compile(r"(?:^|\x1f)\s*#(\d[\d.,\s]{0,9}?)\s*(?:\x1f|$)")
# What XenForo puts into a post that its author did not write: quotations, link previews, "Click to
# expand...".
_NOT_WRITTEN = frozenset(
    [
        "bbCodeBlock--quote",
        "bbCodeBlock--unfurl",
        "bbCodeBlock-expandLink",
        "js-extraPhrases",
    ]
)
_LABELS = frozenset(["label", "label-append"])
_FOLLOWING = "head link[rel=next], a.pageNav-jump--next, a.pageNavSimple-el--next"


class ThreadPage(NamedTuple):
    """What one page of a thread shows."""

    url: str
    """The thread's own address, where the page states it."""
    thread_id: str
    number: int
    """Its place among the thread's pages, counted from 1."""
    following: str | None
    """The address of the next page; None on the last."""
    title: str
    tags: tuple[str, ...]
    posts: Mapping[str, tuple[int | None, Posted]]
    """By their numbers in the forum: each with its place in the thread, counted from 1, where the page shows it.
    `verified_by` is SDN's own field "current status", as shown; who asks is read later."""


class Sdn(Site):
    """The adapter of forums.studentdoctor.net, layout XenForo 2.0 to 2.3."""

    name = "sdn"
    language = "en"
    allowed_hosts = frozenset({"forums.studentdoctor.net"})

    defaults = SourceSettings(
        base_url="https://forums.studentdoctor.net",
        boards=(
            "internal-medicine-and-im-subspecialties.41",
            "anesthesiology.45",
            "other-subspecialties.150",
        ),
        min_interval_s=5.0,
        verified_labels=("attending", "resident", "fellow"),
    )

    def listing_requests(self) -> Sequence[PageRequest]:
        """Each board in the order of its threads' last posts, so that late replies are seen."""
        order = "?order=last_post_date&direction=desc"
        return [
            PageRequest(f"{self.settings.base_url}/forums/{board}/{order}")
            for board in self.settings.boards
        ]

    def parse_listing(self, page: Page) -> Listing:
        """The rows of a board; a label beside a title may be a link too. Raises LayoutError."""
        tree = reading.parse(page)
        entries = []
        for row in tree.css(".structItem--thread"):
            primary = row.css(".structItem-title a[data-tp-primary=on]")
            anchors = primary or row.css(".structItem-title a")[-1:]
            url = link(page, anchors[0].attributes.get("href")) if anchors else None
            path = _THREAD_PATH.search(url or "")
            if url is None or path is None:
                raise LayoutError(page, ".structItem-title a to /threads/<slug>.<id>/")
            entry = ListEntry(
                url=url,
                thread_id=path[1],
                posted_at=_moment(row.css_first(".structItem-startDate time")),
                last_post_at=_moment(row.css_first("time.structItem-latestDate")),
            )
            entries.append(entry)
        template = _template(tree)
        # A thread lists similar threads below its posts, and is no list.
        if "thread_view" in template or (not entries and "forum_view" not in template):
            raise LayoutError(page, ".structItem--thread", found=template or None)
        following = _next_url(page, tree, _page_number(page, tree))
        others = (
            '.structItemContainer .structItem, .p-body-content a[href*="/threads/"]'
        )
        if not entries and (following or tree.css_first(others) is not None):
            raise LayoutError(
                page,
                ".structItem--thread",
                found="a board that is not empty without any",
            )
        next_page = PageRequest(following) if following else None
        return Listing(tuple(entries), next_page)

    def next_page(self, page: Page) -> str | None:
        """The thread's following page. Raises LayoutError for a page whose posts cannot be read."""
        return read_page(page).following

    def parse_thread(
        self,
        pages: Sequence[Page],
        anonymise: Anonymiser,
    ) -> Thread:
        """The thread. The opener asks: only other people's posts can be verified advice."""
        read_pages = list(map(read_page, pages))
        first = read_pages[0]
        by_id: dict[str, tuple[int | None, Posted]] = {}
        # Pages of one thread, in order from its first
        for position, read in enumerate(read_pages, start=1):
            url = pages[position - 1].url
            if read.number != position:
                raise IncompleteThread(
                    f"{url} is page {read.number} of its thread, expected page {position}"
                )
            if read.thread_id != first.thread_id:
                raise IncompleteThread(
                    f"{url} is a page of thread {read.thread_id}, not {first.thread_id}"
                )
            by_id |= read.posts
        physicians = set(map(str.lower, self.settings.verified_labels))
        posts: list[Posted] = []
        for position, (number, post) in enumerate(by_id.values(), start=1):
            if number not in (None, position):
                raise IncompleteThread(
                    f"{pages[0].url}: post #{number} found where #{position} was expected"
                )
            # SDN's status, if its first word is a physician's ("Fellowship applicant" is not).
            first_word = re.search(r"[a-z]+", (post.verified_by or "").lower())
            if first_word is None or first_word[0] not in physicians:
                post = post._replace(verified_by=None)
            opener = posts[0] if posts else post
            posts.append(post._replace(asks=post.handle == opener.handle))
        return self.build_thread(
            first.thread_id,
            first.url,
            first.title,
            first.tags,
            posts[0].posted_at,
            posts,
            anonymise,
        )


_pages_in_use: WeakKeyDictionary[Page, ThreadPage] = WeakKeyDictionary()


def read_page(page: Page) -> ThreadPage:
    """What one page of a thread shows. Raises LayoutError.

    A page is asked for its successor, then read as part of its thread: it is parsed once while it is in use.
    """
    if (known := _pages_in_use.get(page)) is not None:
        return known
    tree = reading.parse(page)
    if "thread_view" not in (template := _template(tree)):
        raise LayoutError(
            page, "html#XF of template thread_view", found=template or None
        )
    articles = _articles(page, tree)
    posts = dict(_post(page, article) for article in articles)
    if len(posts) < len(articles):
        raise LayoutError(page, "a number of its own for every post")
    heading = reading.required(page, tree, ["h1.p-title-value"])
    names = map(reading.line, tree.css(".p-breadcrumbs [itemprop=name]"))
    boards = [name for name in names if name.lower() not in ("home", "forums")]
    labels = map(reading.line, heading.css("span.label"))
    stated = tree.head.css_first("link[rel=canonical]") if tree.head else None
    url = link(page, stated.attributes.get("href")) if stated is not None else None
    # The thread's own address, without the page number.
    canonical = None
    if url and _THREAD_PATH.search(url):
        canonical = _PAGE_PATH.sub("/", url)
    number = _page_number(page, tree)
    shown = _pages_in_use[page] = ThreadPage(
        url=canonical or page.url,
        thread_id=_thread_id(page, tree, canonical),
        number=number,
        following=_next_url(page, tree, number),
        title=" ".join(reading.readable(heading, skip_classes=_LABELS).text.split()),
        tags=(*boards, *labels),
        posts=posts,
    )
    return shown


def _articles(page: Page, tree: LexborHTMLParser) -> list[LexborNode]:
    """The elements of the posts in page order, without the highlighted solution, which repeats one.

    A post that lost its class would make a thread with a hole: every mark of a post must lie in one. Raises
    LayoutError.
    """
    repeats = tree.css('[id*="solutionHighlight"]')
    repeated = {
        article.mem_id
        for article in tree.css('[id*="solutionHighlight"] article.message--post')
    }
    articles = []
    for node in tree.css("article.message--post"):
        if node.mem_id not in repeated:
            articles.append(node)
    if not articles:
        raise LayoutError(page, "article.message--post")
    known = {node.mem_id for node in (*articles, *repeats)}
    for mark in tree.css('.message-userContent, [data-content^="post-"]'):
        outer: LexborNode | None = mark
        while outer is not None and outer.mem_id not in known:
            outer = outer.parent
        if outer is None:
            raise LayoutError(
                page,
                "article.message--post around every post",
                found=f"<{mark.tag}> outside",
            )
    return articles


def _post(
    page: Page,
    article: LexborNode,
) -> tuple[str, tuple[int | None, Posted]]:
    """A post as `ThreadPage.posts` holds it. Raises LayoutError."""
    attributes = article.attributes
    stated = attributes.get("data-content") or attributes.get("id") or ""
    post_id = stated.rpartition("post-")[2]
    if not (post_id.isascii() and post_id.isdigit()):
        raise LayoutError(
            page, 'article.message--post with data-content or id "…post-<number>"'
        )
    author = reading.clean(
        attributes.get("data-author")
        or reading.line(article.css_first(".message-name"))
    )
    if not author:
        raise LayoutError(
            page, ".message-name", found=f"post {post_id} without an author"
        )
    text, media = _written(page, article)
    status = reading.line(article.css_first("[data-field=current_status] li")) or None
    number = posted_at = None
    if (attribution := article.css_first(".message-attribution")) is not None:
        if shown := _NUMBER.search(attribution.text(separator="\x1f")):
            number = int(re.sub(r"\D", "", shown[1]))
        posted_at = _moment(attribution.css_first("time"))
    post = Posted(author, text, media, posted_at, asks=False, verified_by=status)
    return post_id, (number, post)


def _written(page: Page, article: LexborNode) -> reading.Readable:
    """What the author wrote and attached. Raises LayoutError."""
    contents = article.css(".message-userContent")
    body = (contents[0] if contents else article).css_first(".bbWrapper")
    if len(contents) > 1 or body is None:
        raise LayoutError(
            page, "one .message-userContent with a .bbWrapper in every post"
        )
    text, media = reading.readable(body, skip_classes=_NOT_WRITTEN)
    kinds = dict.fromkeys(media)
    for part in article.css("section.message-attachments"):
        for item in (part.html or "").split("<li")[1:]:
            kinds["image" if "<img" in item else "file"] = None
    return reading.Readable(text, tuple(kinds))


def _moment(node: LexborNode | None) -> datetime | None:
    """The moment in a `time` element's `datetime`; `data-time` changed its meaning between releases."""
    stated = node.attributes.get("datetime") if node is not None else None
    return reading.shown_date(stated, UTC) if stated else None


def _template(tree: LexborHTMLParser) -> str:
    """XenForo's name for the kind of page, from the attribute or the class that repeats it, or ""."""
    root = tree.root
    if root is None or root.attributes.get("id") != "XF":
        return ""
    stated = root.attributes.get("data-template")
    if stated:
        return stated
    for name in reading.classes(root):
        if name.startswith("template-"):
            return name.removeprefix("template-")
    return ""


def _thread_id(page: Page, tree: LexborHTMLParser, canonical: str | None) -> str:
    """The thread's number in the forum. Raises LayoutError."""
    key = tree.root.attributes.get("data-content-key") if tree.root else None
    stated = re.fullmatch(r"thread-(\d+)", key or "")
    match = (
        stated or _THREAD_PATH.search(canonical or "") or _THREAD_PATH.search(page.url)
    )
    if match is None:
        raise LayoutError(
            page,
            "a thread's number in html[data-content-key], link[rel=canonical] or address",
        )
    return match[1]


def _page_number(page: Page, tree: LexborHTMLParser) -> int:
    current = re.fullmatch(
        "([0-9]{1,7})", reading.line(tree.css_first(".pageNav-page--current"))
    )
    match = current or _PAGE_PATH.search(page.url)
    return int(match[1]) if match else 1


def _next_url(page: Page, tree: LexborHTMLParser, number: int) -> str | None:
    """The address of the page after page `number`, of a thread or of a list. Raises LayoutError."""
    if (following := tree.css_first(_FOLLOWING)) is not None:
        if url := link(page, following.attributes.get("href")):
            return url
        raise LayoutError(page, f"an address in {_FOLLOWING}")
    # The pager may change its classes: the page after this one is still named in a link outside the posts.
    address_part = f"/page-{number + 1}"
    if address_part.encode() not in page.body:
        return None
    written = tree.css(f'.message-userContent a[href*="{address_part}"]')
    in_posts = {anchor.mem_id for anchor in written}
    for anchor in tree.css(f'a[href*="{address_part}"]'):
        url = link(page, anchor.attributes.get("href")) or ""
        stated, place, own_place = (
            _PAGE_PATH.search(url),
            _PLACE.search(url),
            _PLACE.search(page.url),
        )
        # A page of another thread or board is named so too.
        elsewhere = place and own_place and place.groups() != own_place.groups()
        follows = stated is not None and int(stated[1]) == number + 1
        if follows and not elsewhere and anchor.mem_id not in in_posts:
            return url
    return None
