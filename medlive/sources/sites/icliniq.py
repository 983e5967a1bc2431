"""iCliniq: a patient's query and a named doctor's answer on one page, now and then with follow-ups."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from selectolax.lexbor import LexborHTMLParser, LexborNode

from medlive.sources.reading.dates import INDIA, shown_date
from medlive.sources.reading.markup import Readable, following_list_page, line, parse, readable, required
from medlive.sources.reading.structured import Discussion, discussions
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

DEFAULTS = SourceSettings(base_url="https://www.icliniq.com", min_interval_s=5.0)

# By era, newest first: 2020 and later, about 2019, 2018.
_ROWS = (".card-title a", "div.post-health-issue > a", 'a.biglink[href*="/qa/"]')
_QUESTION_PATH = re.compile(r"/qa/(?!speciali[tz]ies/)([^/?#]+)/([^/?#]+)/?(?:[?#]|$)")
_LABEL = re.compile(r"\A\s*Patient\W{0,2}s?\s+(?:Query|Question)\b\s*:?\s*", re.IGNORECASE)
_ANY_LABEL = re.compile(r"\bPatient\W{0,2}s?\s+(?:Query|Question)\b", re.IGNORECASE)
_PUBLISHED = re.compile(r"\bpublished\s+on\s*:?\s*([^\n]{6,40})", re.IGNORECASE)
_BLOCKS = frozenset(["qContent", "answerDiv"])
# Text beside the known blocks that is longer than this is a message whose block was renamed, not a caption.
_MAX_STRAY_LINE, _MAX_STRAY_TEXT = 200, 600
_ASKER = "asker"
_TITLE = re.compile(r"\A(?:Dr|Prof|Doctor|Professor)\b\.?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A block of the page."""

    doctor: str | None
    """The answering doctor's name; None for the patient."""
    content: Readable
    specialty: str = ""


class Icliniq:
    """The adapter of www.icliniq.com."""

    name = "icliniq"
    allowed_hosts = frozenset({"www.icliniq.com", "icliniq.com"})

    def __init__(self, settings: SourceSettings = DEFAULTS) -> None:
        self.settings = settings

    def listing_requests(self, base_url: str) -> Sequence[PageRequest]:
        """All questions, or each topic that the settings name."""
        paths = [f"/{board}" for board in self.settings.boards] or [""]
        return [PageRequest(f"{base_url}/qa{path}?page=1") for path in paths]

    def parse_listing(self, page: Page) -> Listing:
        """The questions of a list page; the list shows no dates. Raises LayoutError."""
        tree = parse(page)
        for selector in _ROWS:
            entries: dict[str, ListEntry] = {}
            for anchor in tree.css(selector):
                url = link(page, anchor.attributes.get("href"))
                thread_id = _thread_id(url or "")
                if url is not None and thread_id is not None:
                    entries.setdefault(thread_id, ListEntry(url, thread_id, line(anchor)))
            if entries:
                return Listing(tuple(entries.values()), following_list_page(page, tree, "page"))
        raise LayoutError(page.url, " or ".join(_ROWS) + " to /qa/<topic>/<question>")

    def next_page(self, page: Page) -> str | None:
        """A question has one page."""
        return None

    def parse_thread(self, pages: Sequence[Page], anonymise: Anonymiser) -> Thread:
        """The query, the answers and the follow-ups in page order. Raises LayoutError."""
        if len(pages) != 1:
            raise IncompleteThread(f"a question has one page, {len(pages)} were given")
        page = pages[0]
        tree = parse(page)
        stated = next((d for d in discussions(tree) if d.kind == "Question"), None)
        thread_id = _thread_id(page.url)
        if thread_id is None:
            raise LayoutError(page.url, "an address /qa/<topic>/<question>")
        container = tree.css_first("div.articleConDiv")
        if container is not None:
            title = line(required(page, tree, ["h1.article-details-heading", "h1"]))
            turns = _turns(page, container, stated)
        elif stated is not None and stated.whole and all(reply.author for reply in stated.replies):
            title = stated.title
            turns = [_Turn(None, Readable(stated.opening.text, ()))]
            turns += [_Turn(reply.author, Readable(reply.text, ())) for reply in stated.replies]
        else:
            raise LayoutError(page.url, "div.articleConDiv or a whole JSON-LD QAPage")
        posted_at = _published(tree, stated)
        return Thread(
            source=self.name,
            thread_id=thread_id,
            url=page.url,
            title=title,
            language="en",
            tags=(thread_id.partition("/")[0].replace("-", " "),),
            posted_at=posted_at,
            messages=tuple(_message(n, turn, posted_at, anonymise) for n, turn in enumerate(turns)),
        )


def _message(position: int, turn: _Turn, asked_at: datetime | None, anonymise: Anonymiser) -> Message:
    """One block; who answers on iCliniq is one of its doctors, shown by a specialty or by a doctor's title."""
    proof = None
    if turn.doctor is not None:
        title = _TITLE.match(turn.doctor)
        proof = turn.specialty or (title[0] if title else None)
    return Message(
        id=f"m{position}",
        author=anonymise(turn.doctor or _ASKER),
        role=Role.PATIENT if turn.doctor is None else Role.PHYSICIAN,
        verified=turn.doctor is not None,
        text=turn.content.text,
        posted_at=asked_at if position == 0 else None,
        media=turn.content.media,
        verified_by=proof,
    )


def _turns(page: Page, container: LexborNode, stated: Discussion | None) -> list[_Turn]:
    """Each block in page order. Raises LayoutError."""
    names = list(dict.fromkeys(filter(None, map(line, container.css(".doctor-name")))))
    specialties = list(dict.fromkeys(filter(None, map(line, container.css(".doctor-spec")))))
    turns: list[_Turn] = []
    for block in container.css("div.qContent, div.answerDiv"):
        if "qContent" in (block.attributes.get("class") or "").split():
            question = readable(block)
            question = Readable(_LABEL.sub("", question.text), question.media)
            if not question.text and not question.media:
                raise LayoutError(page.url, "text in div.qContent")
            turns.append(_Turn(None, question))
            continue
        body = block.css_first(".ansExtCon")
        answer = readable(body) if body is not None else None
        if answer is None or not answer.text:
            raise LayoutError(page.url, "text in div.answerDiv .ansExtCon")
        # A page with one doctor may name them once for all answers; with several, each answer names its own.
        doctor = line(block.css_first(".doctor-name")) or (names[0] if len(names) == 1 else "")
        if not doctor:
            raise LayoutError(page.url, "p.doctor-name of every div.answerDiv")
        specialty = line(block.css_first(".doctor-spec")) or (
            specialties[0] if len(specialties) == len(names) == 1 else ""
        )
        turns.append(_Turn(doctor, answer, specialty))
    if not turns or turns[0].doctor is not None:
        raise LayoutError(page.url, "div.qContent before any div.answerDiv")
    answers = sum(turn.doctor is not None for turn in turns)
    if not answers:
        raise LayoutError(page.url, "div.answerDiv")
    if stated is not None and len(stated.replies) > answers:
        raise LayoutError(page.url, f"{len(stated.replies)} div.answerDiv", found=f"{answers}")
    _check_strays(page, container)
    return turns


def _check_strays(page: Page, container: LexborNode) -> None:
    """Nothing beside the known blocks looks like a message. Raises LayoutError."""
    stray = readable(container, skip_classes=_BLOCKS).text
    if _ANY_LABEL.search(stray):
        raise LayoutError(page.url, "div.qContent around every patient's query")
    if len(container.css(".ansExtCon")) > len(container.css("div.answerDiv .ansExtCon")):
        raise LayoutError(page.url, "div.answerDiv around every .ansExtCon")
    lines = [text for text in stray.split("\n") if not _PUBLISHED.search(text)]
    if any(len(text) > _MAX_STRAY_LINE for text in lines) or sum(map(len, lines)) > _MAX_STRAY_TEXT:
        raise LayoutError(page.url, "div.qContent or div.answerDiv around every message")


def _published(tree: LexborHTMLParser, stated: Discussion | None) -> datetime | None:
    """The day that the page says it was published on; its structured data's where it does not say."""
    body = tree.body
    match = _PUBLISHED.search(readable(body).text) if body is not None else None
    shown = shown_date(match[1], INDIA) if match else None
    return shown or (stated.opening.posted_at if stated is not None else None)


def _thread_id(url: str) -> str | None:
    found = _QUESTION_PATH.search(url)
    return f"{found[1]}/{found[2]}" if found else None
