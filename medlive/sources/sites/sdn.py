"""Student Doctor Network: a XenForo 2 forum, read post by post."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from selectolax.lexbor import LexborHTMLParser, LexborNode

from medlive.sources.dates import shown_date
from medlive.sources.markup import ancestors, clean, line, parse, readable, required
from medlive.sources.source import (
    Anonymiser,
    IncompleteThread,
    LayoutError,
    ListEntry,
    Listing,
    Page,
    PageRequest,
    SourceSettings,
    link,
)
from medlive.threads.model import Message, Role, Thread

DEFAULTS = SourceSettings(
    base_url="https://forums.studentdoctor.net",
    boards=(
        "internal-medicine-and-im-subspecialties.41",
        "anesthesiology.45",
        "other-subspecialties.150",
    ),
    min_interval_s=5.0,
    verified_labels=("attending", "resident", "fellow"),
)

_THREAD_PATH = re.compile(r"threads/(?:[^/?#]*\.)?(\d+)(?:[/?#]|$)")
_PAGE_PATH = re.compile(r"/page-(\d{1,6})(?:[/?#]|$)")
_NUMBER = re.compile(r"#(\d[\d.,\s]{0,9})")
# What XenForo puts into a post that its author did not write: quotations, link previews, "Click to
# expand...".
_NOT_WRITTEN = ("bbCodeBlock--quote", "bbCodeBlock--unfurl", "bbCodeBlock-expandLink", "js-extraPhrases")
_POST_MARKS = '[data-content^="post-"], [id^="js-post-"], .message-userContent'


@dataclass(frozen=True, slots=True)
class Post:
    """One post as its page shows it, its author not yet hashed."""

    post_id: str
    author: str
    status: str | None
    """SDN's own field "current status", as shown."""
    number: int | None
    """Its place in the thread, counted from 1, where the page shows it."""
    posted_at: datetime | None
    text: str
    media: tuple[str, ...]


class Sdn:
    """The adapter of forums.studentdoctor.net, layout XenForo 2.0 to 2.3."""

    name = "sdn"
    allowed_hosts = frozenset({"forums.studentdoctor.net"})

    def __init__(self, settings: SourceSettings = DEFAULTS) -> None:
        self.settings = settings

    def listing_requests(self, base_url: str) -> Sequence[PageRequest]:
        """Each board in the order of its threads' last posts, so that late replies are seen."""
        order = "?order=last_post_date&direction=desc"
        return [PageRequest(f"{base_url}/forums/{board}/{order}") for board in self.settings.boards]

    def parse_listing(self, page: Page) -> Listing:
        """The rows of a board; labels beside titles are no titles. Raises LayoutError."""
        tree = parse(page)
        entries = []
        for row in tree.css(".structItem--thread"):
            anchor = row.css_first(".structItem-title a[data-tp-primary=on]")
            if anchor is None:
                anchors = row.css(".structItem-title a")
                anchor = anchors[-1] if anchors else None
            url = link(page, anchor.attributes.get("href")) if anchor is not None else None
            found = _THREAD_PATH.search(url or "")
            if url is None or found is None:
                raise LayoutError(page.url, ".structItem-title a to /threads/<slug>.<id>/")
            opened = _time(row, ".structItem-startDate time")
            entries.append(
                ListEntry(url, found[1], line(anchor), opened, _time(row, "time.structItem-latestDate"))
            )
        if not entries and "forum_view" not in _template(tree):
            raise LayoutError(page.url, ".structItem--thread")
        if not entries and tree.css_first(".structItemContainer .structItem") is not None:
            raise LayoutError(page.url, ".structItem--thread", found=".structItem of another kind")
        following = _next_url(page, tree)
        return Listing(tuple(entries), PageRequest(following) if following else None)

    def next_page(self, page: Page) -> str | None:
        """The thread's following page."""
        return _next_url(page, parse(page))

    def parse_thread(self, pages: Sequence[Page], anonymise: Anonymiser) -> Thread:
        """The whole thread. The opener asks: only other people's posts can be verified advice."""
        if not pages:
            raise IncompleteThread("no page of the thread was given")
        trees = [parse(page) for page in pages]
        for position, (page, tree) in enumerate(zip(pages, trees, strict=True), start=1):
            number = _page_number(page, tree)
            if number != position:
                raise IncompleteThread(f"{page.url} is page {number} of its thread where {position} was due")
        if (missing := _next_url(pages[-1], trees[-1])) is not None:
            raise IncompleteThread(f"{pages[-1].url} is followed by {missing}, which was not given")
        posts: dict[str, Post] = {}
        for page, tree in zip(pages, trees, strict=True):
            posts |= {post.post_id: post for post in _posts(page, tree)}
        for position, post in enumerate(posts.values(), start=1):
            if post.number is not None and post.number != position:
                raise IncompleteThread(f"{pages[0].url}: post #{post.number} stands where #{position} was due")
        page, tree = pages[0], trees[0]
        heading = required(page, tree, ["h1.p-title-value"])
        labels = [line(label) for label in heading.css("span.label")]
        title = readable(heading, skip_classes=["label", "label-append"]).text
        breadcrumbs = tree.css_first(".p-breadcrumbs")
        names = [line(n) for n in breadcrumbs.css("[itemprop=name]")] if breadcrumbs is not None else []
        boards = [name for name in names if name.lower() not in ("home", "forums")]
        opener = next(iter(posts.values()))
        return Thread(
            source=self.name,
            thread_id=_thread_id(page, tree),
            url=_canonical(page, tree) or page.url,
            title=" ".join(title.split()),
            language="en",
            tags=tuple(dict.fromkeys(t for t in (*boards, *labels) if t)),
            posted_at=opener.posted_at,
            messages=tuple(
                self._message(n, post, post.author == opener.author, anonymise)
                for n, post in enumerate(posts.values())
            ),
        )

    def _message(self, position: int, post: Post, asks: bool, anonymise: Anonymiser) -> Message:
        verified = not asks and self._is_physician(post.status)
        return Message(
            id=f"m{position}",
            author=anonymise(post.author),
            role=Role.PATIENT if asks else Role.PHYSICIAN if verified else Role.OTHER,
            verified=verified,
            text=post.text,
            posted_at=post.posted_at,
            media=post.media,
            verified_by=post.status if verified else None,
        )

    def _is_physician(self, status: str | None) -> bool:
        """Whether the first word of SDN's status is a physician's ("Fellowship applicant" is none)."""
        words = re.findall(r"[a-z]+", (status or "").lower())
        return bool(words) and words[0] in {label.lower() for label in self.settings.verified_labels}


def read_posts(page: Page) -> tuple[Post, ...]:
    """The posts of one page of a thread, in page order. Raises LayoutError."""
    return tuple(_posts(page, parse(page)))


def _posts(page: Page, tree: LexborHTMLParser) -> list[Post]:
    if "thread_view" not in _template(tree):
        raise LayoutError(page.url, "html#XF of template thread_view", found=_template(tree) or None)
    # The highlighted solution of a question repeats one of its posts.
    posts = []
    taken: set[int] = set()
    repeats = {
        node.mem_id
        for solution in tree.css('[id*="solutionHighlight"]')
        for node in (solution, *solution.css("article.message--post"), *solution.css(_POST_MARKS))
    }
    for article in tree.css("article.message--post"):
        if article.mem_id in repeats:
            continue
        taken.add(article.mem_id)
        posts.append(_post(page, article))
    if not posts:
        raise LayoutError(page.url, "article.message--post")
    # A post that lost its class would make a thread with a hole: every mark of a post must lie in one we
    # took.
    for mark in tree.css(_POST_MARKS):
        if mark.mem_id in taken or mark.mem_id in repeats:
            continue
        if not any(outer.mem_id in taken for outer in ancestors(mark)):
            raise LayoutError(page.url, "article.message--post around every post", found=f"<{mark.tag}> outside")
    return posts


def _post(page: Page, article: LexborNode) -> Post:
    attributes = article.attributes
    post_id = (attributes.get("data-content") or attributes.get("id") or "").rpartition("post-")[2]
    if not post_id.isdigit():
        raise LayoutError(page.url, 'article.message--post with data-content or id "…post-<number>"')
    author = attributes.get("data-author") or line(article.css_first(".message-name"))
    if not author:
        raise LayoutError(page.url, ".message-name", found=f"post {post_id} without an author")
    body = required(page, article, [".message-userContent .bbWrapper", ".message-body .bbWrapper"])
    written = readable(body, skip_classes=_NOT_WRITTEN)
    attached = [
        "image" if item.css_first("img") is not None else "file"
        for item in article.css(".message-attachments .file, .message-attachments .attachmentList > li")
    ]
    status = line(article.css_first("[data-field=current_status] li"))
    numbers = map(_NUMBER.fullmatch, map(line, article.css(".message-attribution a")))
    number = next((found for found in numbers if found), None)
    return Post(
        post_id=post_id,
        author=clean(author),
        status=status or None,
        number=int(re.sub(r"\D", "", number[1])) if number else None,
        posted_at=_time(article, ".message-attribution-main time, .message-attribution time"),
        text=written.text,
        media=tuple(dict.fromkeys((*written.media, *attached))),
    )


def _time(scope: LexborNode, selector: str) -> datetime | None:
    """The moment in a `time` element's `datetime`; `data-time` changed its meaning between releases."""
    shown = scope.css_first(selector)
    stated = shown.attributes.get("datetime") if shown is not None else None
    return shown_date(stated, UTC) if stated else None


def _template(tree: LexborHTMLParser) -> str:
    """XenForo's name for the kind of page, from the attribute or the class that repeats it, or ""."""
    root = tree.css_first("html#XF")
    if root is None:
        return ""
    stated = root.attributes.get("data-template")
    classes = (root.attributes.get("class") or "").split()
    return stated or next((c.removeprefix("template-") for c in classes if c.startswith("template-")), "")


def _canonical(page: Page, tree: LexborHTMLParser) -> str | None:
    """The thread's own address, without the page number."""
    stated = tree.css_first("link[rel=canonical]")
    url = link(page, stated.attributes.get("href")) if stated is not None else None
    return _PAGE_PATH.sub("/", url) if url and _THREAD_PATH.search(url) else None


def _thread_id(page: Page, tree: LexborHTMLParser) -> str:
    root = tree.css_first("html#XF")
    key = (root.attributes.get("data-content-key") or "") if root is not None else ""
    if key.startswith("thread-") and key[7:].isdigit():
        return key[7:]
    found = _THREAD_PATH.search(_canonical(page, tree) or "") or _THREAD_PATH.search(page.url)
    if found is None:
        raise LayoutError(page.url, "a thread's number in html[data-content-key], link[rel=canonical] or address")
    return found[1]


def _page_number(page: Page, tree: LexborHTMLParser) -> int:
    current = line(tree.css_first(".pageNav-page--current"))
    if current.isascii() and current.isdigit():
        return int(current)
    in_address = _PAGE_PATH.search(page.url)
    return int(in_address[1]) if in_address else 1


def _next_url(page: Page, tree: LexborHTMLParser) -> str | None:
    for selector in ("a.pageNav-jump--next", "a.pageNavSimple-el--next", "link[rel=next]"):
        following = tree.css_first(selector)
        if following is not None:
            return link(page, following.attributes.get("href"))
    # The pager may lose its class: the page after the one it marks as current is still named in it.
    number = _page_number(page, tree) + 1
    for anchor in tree.css(f'.pageNav a[href*="/page-{number}"]'):
        url = link(page, anchor.attributes.get("href"))
        found = _PAGE_PATH.search(url or "")
        if found is not None and int(found[1]) == number:
            return url
    return None
