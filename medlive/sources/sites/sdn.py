"""Student Doctor Network: a XenForo 2 forum, read post by post."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from medlive.sources.reading.dates import shown_date
from medlive.sources.reading.markup import clean, line, parse, readable, required
from medlive.sources.source import (
    Anonymiser,
    IncompleteThread,
    LayoutError,
    ListEntry,
    Listing,
    Memo,
    Page,
    PageRequest,
    SourceSettings,
    link,
)
from medlive.threads.model import Message, Role, Thread

DEFAULTS = SourceSettings(
    base_url="https://forums.studentdoctor.net",
    boards=("internal-medicine-and-im-subspecialties.41", "anesthesiology.45", "other-subspecialties.150"),
    min_interval_s=5.0,
    verified_labels=("attending", "resident", "fellow"),
)

_THREAD_PATH = re.compile(r"threads/(?:[^/?#]*\.)?(\d+)(?:[/?#]|$)")
_PAGE_PATH = re.compile(r"/page-(\d{1,6})(?:[/?#]|$)")
_PLACE = re.compile(r"\b(threads|forums)/(?:[^/?#]*\.)?(\d+)(?:[/?#]|$)")
_NUMBER = re.compile(r"(?:^|\x1f)\s*#(\d[\d.,\s]{0,9}?)\s*(?:\x1f|$)")
_NO_DIGIT = re.compile(r"\D")
_FIRST_WORD = re.compile(r"[a-z]+")
# What XenForo puts into a post that its author did not write: quotations, link previews, "Click to
# expand...".
_NOT_WRITTEN = frozenset(
    ["bbCodeBlock--quote", "bbCodeBlock--unfurl", "bbCodeBlock-expandLink", "js-extraPhrases"]
)
# One query for everything that is read of the posts of a page: a query for each post and field takes several
# times as long as parsing the page does.
_PARTS = (
    "article.message--post, .message-userContent, .message-userContent .bbWrapper, header.message-attribution, "
    ".message-attribution time, section.message-attachments, [data-field=current_status] li, "
    '[data-content^="post-"]'
)
_LABELS = frozenset(["label", "label-append"])
_FOLLOWING = "a.pageNav-jump--next, a.pageNavSimple-el--next"


class Post(NamedTuple):
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
    posts: tuple[Post, ...]


@dataclass(slots=True)
class _Parts:
    """A post's element and what `_PARTS` found in it, the first of each kind."""

    article: LexborNode
    body: LexborNode | None = None
    attribution: LexborNode | None = None
    time: LexborNode | None = None
    status: LexborNode | None = None
    attachments: list[LexborNode] = field(default_factory=list)
    has_content: bool = False


class Sdn:
    """The adapter of forums.studentdoctor.net, layout XenForo 2.0 to 2.3."""

    name = "sdn"
    allowed_hosts = frozenset({"forums.studentdoctor.net"})

    def __init__(self, settings: SourceSettings = DEFAULTS) -> None:
        self.settings = settings
        self._verified = frozenset(label.lower() for label in settings.verified_labels)
        self._pages = Memo[ThreadPage]()

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
            opened = _moment(row.css_first(".structItem-startDate time"))
            active = _moment(row.css_first("time.structItem-latestDate"))
            entries.append(ListEntry(url, found[1], line(anchor), opened, active))
        template = _template(tree)
        # A thread lists similar threads below its posts, and is no list.
        if "thread_view" in template or (not entries and "forum_view" not in template):
            raise LayoutError(page.url, ".structItem--thread", found=template or None)
        if not entries and tree.css_first(".structItemContainer .structItem") is not None:
            raise LayoutError(page.url, ".structItem--thread", found=".structItem of another kind")
        following = _next_url(page, tree, _page_number(page, tree))
        if not entries and (following or tree.css_first('.p-body-content a[href*="/threads/"]') is not None):
            raise LayoutError(page.url, ".structItem--thread", found="a board that is not empty without any")
        return Listing(tuple(entries), PageRequest(following) if following else None)

    def next_page(self, page: Page) -> str | None:
        """The thread's following page. Raises LayoutError for a page whose posts cannot be read."""
        return self._read(page).following

    def parse_thread(self, pages: Sequence[Page], anonymise: Anonymiser) -> Thread:
        """The whole thread. The opener asks: only other people's posts can be verified advice."""
        if not pages:
            raise IncompleteThread("expected at least one page of the thread")
        read_pages = [self._read(page) for page in pages]
        first, last = read_pages[0], read_pages[-1]
        for position, (page, read) in enumerate(zip(pages, read_pages, strict=True), start=1):
            if read.number != position:
                raise IncompleteThread(f"{page.url} is page {read.number} of its thread, expected page {position}")
            if read.thread_id != first.thread_id:
                raise IncompleteThread(f"{page.url} is a page of thread {read.thread_id}, not {first.thread_id}")
        if last.following is not None:
            raise IncompleteThread(f"{pages[-1].url} is followed by {last.following}, which is missing")
        posts = list({post.post_id: post for read in read_pages for post in read.posts}.values())
        for position, post in enumerate(posts, start=1):
            if post.number is not None and post.number != position:
                raise IncompleteThread(f"{pages[0].url}: post #{post.number} found where #{position} was expected")
        opener = posts[0]
        # Few people write many posts: each handle is hashed once, each status judged once.
        hashed = {author: anonymise(author) for author in dict.fromkeys(post.author for post in posts)}
        physicians = {status: self._is_physician(status) for status in {post.status for post in posts}}
        return Thread(
            source=self.name,
            thread_id=first.thread_id,
            url=first.url,
            title=first.title,
            language="en",
            tags=first.tags,
            posted_at=opener.posted_at,
            messages=tuple(
                _message(n, post, post.author == opener.author, hashed[post.author], physicians)
                for n, post in enumerate(posts)
            ),
        )

    def _read(self, page: Page) -> ThreadPage:
        """A page is asked for its successor, then read: it is parsed once."""
        return self._pages.get(page, read_page)

    def _is_physician(self, status: str | None) -> bool:
        """Whether the first word of SDN's status is a physician's ("Fellowship applicant" is none)."""
        word = _FIRST_WORD.search(status.lower()) if status else None
        return word is not None and word[0] in self._verified


def _message(
    position: int, post: Post, is_opener: bool, author: str, physicians: Mapping[str | None, bool]
) -> Message:
    verified = physicians[post.status] and not is_opener
    return Message(
        f"m{position}",
        author,
        Role.PATIENT if is_opener else Role.PHYSICIAN if verified else Role.OTHER,
        verified,
        post.text,
        post.posted_at,
        post.media,
        post.status if verified else None,
    )


def read_page(page: Page) -> ThreadPage:
    """What one page of a thread shows. Raises LayoutError."""
    tree = parse(page)
    template = _template(tree)
    if "thread_view" not in template:
        raise LayoutError(page.url, "html#XF of template thread_view", found=template or None)
    posts = _posts(page, tree)
    heading = required(page, tree, ["h1.p-title-value"])
    labels = [line(label) for label in heading.css("span.label")]
    title = readable(heading, skip_classes=_LABELS).text
    breadcrumbs = tree.css_first(".p-breadcrumbs")
    names = [line(n) for n in breadcrumbs.css("[itemprop=name]")] if breadcrumbs is not None else []
    boards = [name for name in names if name.lower() not in ("home", "forums")]
    canonical = _canonical(page, tree)
    thread_id = _thread_id(page, tree, canonical)
    number = _page_number(page, tree)
    return ThreadPage(
        url=canonical or page.url,
        thread_id=thread_id,
        number=number,
        following=_next_url(page, tree, number),
        title=" ".join(title.split()),
        tags=tuple(dict.fromkeys(t for t in (*boards, *labels) if t)),
        posts=posts,
    )


def _posts(page: Page, tree: LexborHTMLParser) -> tuple[Post, ...]:
    """The posts in page order. Raises LayoutError."""
    groups: list[list[LexborNode]] = []
    last = 0
    repeats = _Repeats()
    for node in tree.css(_PARTS):
        # An element stands in the answer once for every selector that it fits.
        if (place := node.mem_id) == last:
            continue
        last = place
        if node.tag == "article" and "message--post" in (node.attrs.get("class") or "").split():
            groups.append([node])
        elif groups:
            groups[-1].append(node)
        elif _belongs_to_post(node) and not repeats.contain(node):
            raise _outside_post(page, node)
    groups = [group for group in groups if not repeats.contain(group[0])]
    if not groups:
        raise LayoutError(page.url, "article.message--post")
    posts = tuple(_post(page, _parts(page, group, repeats)) for group in groups)
    if len({post.post_id for post in posts}) < len(posts):
        raise LayoutError(page.url, "a number of its own for every post")
    return posts


class _Repeats:
    """Where a page shows again what stands elsewhere: the highlighted solution of a question."""

    def __init__(self) -> None:
        self._outside_post: set[int] = set()

    def contain(self, node: LexborNode) -> bool:
        """Whether an element is or stands in such a repeat."""
        passed = []
        outer: LexborNode | None = node
        while outer is not None and outer.mem_id not in self._outside_post:
            if "solutionHighlight" in (outer.id or ""):
                return True
            passed.append(outer.mem_id)
            outer = outer.parent
        # Posts are siblings: what stands around one of them is looked at once.
        self._outside_post.update(passed)
        return False


def _parts(page: Page, group: list[LexborNode], repeats: _Repeats) -> _Parts:
    """A post and the parts that stand in it, of a group that begins with its element. Raises LayoutError.

    A post that lost its class would make a thread with a hole: every mark of a post must lie in one.
    """
    article = group[0]
    place = article.mem_id
    # In page order everything between an element's start and something inside it is inside it too.
    while len(group) > 1:
        outer = group[-1].parent
        while outer is not None and outer.mem_id != place:
            outer = outer.parent
        if outer is not None:
            break
        if _belongs_to_post(stray := group.pop()) and not repeats.contain(stray):
            raise _outside_post(page, stray)
    parts = _Parts(article)
    for node in group[1:]:
        tag = node.tag
        if tag == "time":
            parts.time = parts.time or node
        elif tag == "li":
            parts.status = parts.status or node
        elif "bbWrapper" in (read_pages := node.attrs.get("class") or ""):
            parts.body = parts.body or node
        elif "message-attribution" in read_pages:
            parts.attribution = parts.attribution or node
        elif "message-attachments" in read_pages:
            parts.attachments.append(node)
        elif "message-userContent" in read_pages:
            if parts.has_content:
                raise LayoutError(page.url, "one .message-userContent in a post", found="two")
            parts.has_content = True
    return parts


def _belongs_to_post(node: LexborNode) -> bool:
    """Whether an element can only stand in a post."""
    attributes = node.attributes
    return "message-userContent" in (attributes.get("class") or "").split() or (
        attributes.get("data-content") or ""
    ).startswith("post-")


def _outside_post(page: Page, node: LexborNode) -> LayoutError:
    return LayoutError(page.url, "article.message--post around every post", found=f"<{node.tag}> outside")


def _post(page: Page, parts: _Parts) -> Post:
    article = parts.article
    attributes = article.attributes
    post_id = (attributes.get("data-content") or attributes.get("id") or "").rpartition("post-")[2]
    if not (post_id.isascii() and post_id.isdigit()):
        raise LayoutError(page.url, 'article.message--post with data-content or id "…post-<number>"')
    author = clean(attributes.get("data-author") or line(article.css_first(".message-name")))
    if not author:
        raise LayoutError(page.url, ".message-name", found=f"post {post_id} without an author")
    body = parts.body or article.css_first(".message-body .bbWrapper")
    if body is None:
        raise LayoutError(page.url, ".message-userContent .bbWrapper or .message-body .bbWrapper")
    written = readable(body, skip_classes=_NOT_WRITTEN)
    number = _NUMBER.search(parts.attribution.text(separator="\x1f")) if parts.attribution else None
    media = written.media
    if parts.attachments:
        items = [item for part in parts.attachments for item in (part.html or "").split("<li")[1:]]
        media = tuple(dict.fromkeys((*media, *("image" if "<img" in item else "file" for item in items))))
    return Post(
        post_id,
        author,
        line(parts.status) or None,
        int(_NO_DIGIT.sub("", number[1])) if number else None,
        _moment(parts.time),
        written.text,
        media,
    )


def _moment(read_pages: LexborNode | None) -> datetime | None:
    """The moment in a `time` element's `datetime`; `data-time` changed its meaning between releases."""
    stated = read_pages.attrs.get("datetime") if read_pages is not None else None
    return shown_date(stated, UTC) if stated else None


def _template(tree: LexborHTMLParser) -> str:
    """XenForo's name for the kind of page, from the attribute or the class that repeats it, or ""."""
    root = tree.root
    if root is None or root.attributes.get("id") != "XF":
        return ""
    stated = root.attributes.get("data-template")
    classes = (root.attributes.get("class") or "").split()
    return stated or next((c.removeprefix("template-") for c in classes if c.startswith("template-")), "")


def _canonical(page: Page, tree: LexborHTMLParser) -> str | None:
    """The thread's own address, without the page number."""
    stated = tree.head.css_first("link[rel=canonical]") if tree.head else None
    url = link(page, stated.attributes.get("href")) if stated is not None else None
    return _PAGE_PATH.sub("/", url) if url and _THREAD_PATH.search(url) else None


def _thread_id(page: Page, tree: LexborHTMLParser, canonical: str | None) -> str:
    root = tree.root
    key = (root.attributes.get("data-content-key") or "") if root is not None else ""
    if key.startswith("thread-") and key[7:].isdigit():
        return key[7:]
    found = _THREAD_PATH.search(canonical or "") or _THREAD_PATH.search(page.url)
    if found is None:
        raise LayoutError(page.url, "a thread's number in html[data-content-key], link[rel=canonical] or address")
    return found[1]


def _page_number(page: Page, tree: LexborHTMLParser) -> int:
    current = line(tree.css_first(".pageNav-page--current"))
    if current.isascii() and current.isdigit() and len(current) < 8:
        return int(current)
    in_address = _PAGE_PATH.search(page.url)
    return int(in_address[1]) if in_address else 1


def _next_url(page: Page, tree: LexborHTMLParser, number: int) -> str | None:
    """The address of the page after page `number`, of a thread or of a list. Raises LayoutError."""
    head = tree.head
    following = head.css_first("link[rel=next]") if head else None
    if following is None and b"pageNav" in page.body:
        following = tree.css_first(_FOLLOWING)
    if following is not None:
        url = link(page, following.attributes.get("href"))
        if url is None:
            raise LayoutError(page.url, f"an address in {_FOLLOWING}")
        return url
    # The pager may change its classes: the page after this one is still named in a link outside the posts.
    address_part = f"/page-{number + 1}"
    if address_part.encode() not in page.body:
        return None
    own_place = _PLACE.search(page.url)
    in_posts = {anchor.mem_id for anchor in tree.css(f'.message-userContent a[href*="{address_part}"]')}
    for anchor in tree.css(f'a[href*="{address_part}"]'):
        url = link(page, anchor.attributes.get("href")) or ""
        place, stated = _PLACE.search(url), _PAGE_PATH.search(url)
        elsewhere = place is not None and own_place is not None and place.groups() != own_place.groups()
        if stated is not None and int(stated[1]) == number + 1 and not elsewhere and anchor.mem_id not in in_posts:
            return url
    return None
