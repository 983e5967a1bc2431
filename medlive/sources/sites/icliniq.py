"""Adapter of iCliniq: a patient's query and a named doctor's answer on one page, now and then with follow-ups."""

import re
from collections.abc import Sequence

from selectolax.lexbor import LexborHTMLParser, LexborNode

from medlive.sources import reading
from medlive.sources.source import (
    Anonymiser,
    LayoutError,
    Listing,
    Page,
    PageRequest,
    Posted,
    Site,
    SourceSettings,
    only_page,
)
from medlive.threads.model import Thread

# Links of a list, by the site's layout: 2020 and later, about 2019, 2018.
_ROWS = (".card-title a", "div.post-health-issue > a", 'a.biglink[href*="/qa/"]')
_QUESTION_PATH = re.compile(
    r"/qa/((?!speciali[tz]ies/)[^/?#]{1,100}/[^/?#]{1,300})/?(?:[?#]|$)"
)
_LABEL = re.compile(
    r"\A\s*Patient\W{0,2}s?\s+(?:Query|Question)\b\s*:?\s*", re.IGNORECASE
)
_ANY_LABEL = re.compile(r"\bPatient\W{0,2}s?\s+(?:Query|Question)\b", re.IGNORECASE)
_PUBLISHED = re.compile(r"\bpublished\s+on\s*:?\s*([^\n]{6,40})", re.IGNORECASE)
# Text beside the known blocks with more characters than this is a message whose block was renamed, not a caption.
_MAX_STRAY_LINE, _MAX_STRAY_TEXT = 200, 600
_TITLE = re.compile(r"\A(?:Dr|Prof|Doctor|Professor)\b\.?", re.IGNORECASE)


class Icliniq(Site):
    """The adapter of www.icliniq.com."""

    name = "icliniq"
    language = "en"
    allowed_hosts = frozenset({"www.icliniq.com", "icliniq.com"})

    defaults = SourceSettings(base_url="https://www.icliniq.com", min_interval_s=5.0)

    def listing_requests(self) -> Sequence[PageRequest]:
        """The first list page of all questions, or of each topic that the settings name."""
        paths = [f"/{board}" for board in self.settings.boards] or [""]
        return [
            PageRequest(f"{self.settings.base_url}/qa{path}?page=1") for path in paths
        ]

    def parse_listing(self, page: Page) -> Listing:
        """The questions of a list page; the list shows no dates. Raises LayoutError."""
        tree = reading.parse(page)
        for selector in _ROWS:
            entries = reading.linked_threads(page, tree, selector, _QUESTION_PATH)
            if entries:
                return Listing(entries, reading.following_list_page(page, tree, "page"))
        raise LayoutError(page, " or ".join(_ROWS) + " to /qa/<topic>/<question>")

    def parse_thread(
        self,
        pages: Sequence[Page],
        anonymise: Anonymiser,
    ) -> Thread:
        """The query, the answers and the follow-ups in page order. Raises LayoutError."""
        page = only_page(pages)
        tree = reading.parse(page)
        discussions = reading.discussions(tree, reading.INDIA)
        stated = next((d for d in discussions if d.kind == "Question"), None)
        path = _QUESTION_PATH.search(page.url)
        if path is None:
            raise LayoutError(page, "an address /qa/<topic>/<question>")
        title, posts = _discussion(page, tree, stated)
        # The day that the page says it was published on; its structured data's where it does not say.
        match = _PUBLISHED.search(reading.readable(tree.body).text)
        posted_at = reading.shown_date(match[1], reading.INDIA) if match else None
        if posted_at is None and stated is not None:
            posted_at = stated.opening.posted_at
        tags = [path[1].partition("/")[0].replace("-", " ")]
        return self.build_thread(
            path[1],
            page.url,
            title,
            tags,
            posted_at,
            posts,
            anonymise,
        )


def _discussion(
    page: Page,
    tree: LexborHTMLParser,
    stated: reading.Discussion | None,
) -> tuple[str, list[Posted]]:
    """The title and messages of a page's blocks, or else of its structured data. Raises LayoutError."""
    container = tree.css_first("div.articleConDiv")
    if container is not None:
        posts = _posts(page, container)
        answers = sum(not post.asks for post in posts)
        if stated is not None and len(stated.replies) > answers:
            raise LayoutError(
                page, f"{len(stated.replies)} div.answerDiv", found=f"{answers}"
            )
        title = reading.required(page, tree, ["h1.article-details-heading", "h1"])
        return reading.line(title), posts
    if (
        stated is None
        or not stated.whole
        or not all(reply.author for reply in stated.replies)
    ):
        raise LayoutError(page, "div.articleConDiv or a whole JSON-LD QAPage")
    posts = [_asked(reading.Readable(stated.opening.text, ()))]
    for reply in stated.replies:
        text = reading.Readable(reply.text, ())
        posts.append(_answered(reply.author or "", text, specialty=""))
    return stated.title, posts


def _posts(page: Page, container: LexborNode) -> list[Posted]:
    """The messages in page order. Raises LayoutError."""
    # A page with one doctor may name them once for all answers; with several, each answer names its own.
    names = set(map(reading.line, container.css(".doctor-name"))) - {""}
    specialties = set(map(reading.line, container.css(".doctor-spec"))) - {""}
    doctor = min(names) if len(names) == 1 else ""
    specialty = min(specialties) if doctor and len(specialties) == 1 else ""
    posts = []
    for block in container.css("div.qContent, div.answerDiv"):
        if "qContent" in reading.classes(block):
            text, media = reading.readable(block)
            text = _LABEL.sub("", text)
            if not (text or media):
                raise LayoutError(page, "text in div.qContent")
            posts.append(_asked(reading.Readable(text, media)))
        else:
            posts.append(_answer(page, block, doctor, specialty))
    if not posts or not posts[0].asks:
        raise LayoutError(page, "div.qContent before any div.answerDiv")
    if all(post.asks for post in posts):
        raise LayoutError(page, "div.answerDiv")
    _check_strays(page, container)
    return posts


def _asked(content: reading.Readable) -> Posted:
    return Posted("asker", *content, None, asks=True, verified_by=None)


def _answered(doctor: str, content: reading.Readable, specialty: str) -> Posted:
    """Who answers on iCliniq is one of its doctors, shown by a specialty or by a doctor's title."""
    title = _TITLE.match(doctor)
    proof = specialty or (title[0] if title else "")
    return Posted(doctor, *content, None, asks=False, verified_by=proof)


def _answer(
    page: Page,
    block: LexborNode,
    doctor: str,
    specialty: str,
) -> Posted:
    """An answer, by its own doctor and specialty or else the page's. Raises LayoutError."""
    answer = reading.readable(block.css_first(".ansExtCon"))
    if not answer.text:
        raise LayoutError(page, "text in div.answerDiv .ansExtCon")
    doctor = reading.line(block.css_first(".doctor-name")) or doctor
    if not doctor:
        raise LayoutError(page, "p.doctor-name of every div.answerDiv")
    own_specialty = reading.line(block.css_first(".doctor-spec"))
    return _answered(doctor, answer, own_specialty or specialty)


def _check_strays(page: Page, container: LexborNode) -> None:
    """Raise LayoutError if anything beside the known blocks looks like a message."""
    stray = reading.readable(
        container, skip_classes=frozenset(["qContent", "answerDiv"])
    ).text
    if _ANY_LABEL.search(stray):
        raise LayoutError(page, "div.qContent around every patient's query")
    if len(container.css(".ansExtCon")) > len(
        container.css("div.answerDiv .ansExtCon")
    ):
        raise LayoutError(page, "div.answerDiv around every .ansExtCon")
    lengths = [len(text) for text in stray.split("\n") if not _PUBLISHED.search(text)]
    if max(lengths, default=0) > _MAX_STRAY_LINE or sum(lengths) > _MAX_STRAY_TEXT:
        raise LayoutError(page, "div.qContent or div.answerDiv around every message")
