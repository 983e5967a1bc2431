"""DXY (丁香医生): one patient's consultation with one doctor, kept as page state and as markup."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from medlive.sources.reading.dates import CHINA, shown_date, stated_moment
from medlive.sources.reading.markup import Readable, ancestors, clean, following_list_page, line, parse, readable
from medlive.sources.source import (
    Anonymiser,
    IncompleteThread,
    LayoutError,
    ListEntry,
    Listing,
    NotAThread,
    Page,
    PageRequest,
    SourceSettings,
    link,
)
from medlive.threads.model import Message, Role, Thread

DEFAULTS = SourceSettings(
    base_url="https://dxy.com",
    boards=("neike",),
    # One scraper's author was blocked after about a hundred requests.
    min_interval_s=15.0,
    stop_statuses=frozenset({403, 429}),
)

_QUESTION_PATH = re.compile(r"/question/(\d+)/?(?:[?#]|$)")
_STATE = re.compile(r"window\.\$\$data\s*=\s*(?=\{)")
_DIALOGS = ".question-detail-dialogs"
_MAX_STRAY_LINE = 60
_ASKER = "asker"


@dataclass(frozen=True, slots=True)
class _Turn:
    by_doctor: bool
    content: Readable
    posted_at: datetime | None


@dataclass(frozen=True, slots=True)
class _Doctor:
    name: str
    title: str
    department: str
    hospital: str


class Dxy:
    """The adapter of dxy.com and the older ask.dxy.com."""

    name = "dxy"
    allowed_hosts = frozenset({"dxy.com", "www.dxy.com", "ask.dxy.com"})

    def __init__(self, settings: SourceSettings = DEFAULTS) -> None:
        self.settings = settings

    def listing_requests(self, base_url: str) -> Sequence[PageRequest]:
        """Each section."""
        return [PageRequest(f"{base_url}/questions/{board}?page_index=1") for board in self.settings.boards]

    def parse_listing(self, page: Page) -> Listing:
        """The questions of a section page; the list shows no dates. Raises LayoutError."""
        tree = parse(page)
        entries: dict[str, ListEntry] = {}
        for anchor in tree.css("div.content-list > a"):
            url = link(page, anchor.attributes.get("href"))
            found = _QUESTION_PATH.search(url or "")
            if url is not None and found is not None:
                title = readable(anchor).text.partition("\n")[0]
                entries.setdefault(found[1], ListEntry(url, found[1], title))
        if not entries:
            raise LayoutError(page.url, "div.content-list > a to /question/<id>")
        return Listing(tuple(entries.values()), following_list_page(page, tree, "page_index"))

    def next_page(self, page: Page) -> str | None:
        """A consultation has one page."""
        return None

    def parse_thread(self, pages: Sequence[Page], anonymise: Anonymiser) -> Thread:
        """The consultation in order. Raises LayoutError, and NotAThread when no doctor has answered."""
        if len(pages) != 1:
            raise IncompleteThread(f"a consultation has one page, {len(pages)} were given")
        page = pages[0]
        found = _QUESTION_PATH.search(page.url)
        if found is None:
            raise LayoutError(page.url, "an address /question/<id>")
        tree = parse(page)
        state = _state(tree)
        turns = _turns_of_state(page, state)
        shown_turns = len(tree.css(f"{_DIALOGS} .dialog-content"))
        if turns is None:
            turns = _turns_of_markup(page, tree)
        elif shown_turns > len(turns):
            raise LayoutError(page.url, f"{shown_turns} turns in questionDialog", found=str(len(turns)))
        if turns[0].by_doctor:
            raise LayoutError(page.url, "the patient's turn first")
        if not any(turn.by_doctor for turn in turns):
            raise NotAThread(f"{page.url}: no doctor has answered")
        doctor = _doctor(page, tree, state)
        disease = _field(state, "disease", "title")
        title = _field(state, "question", "title") or line(tree.css_first("h1.question-title")) or disease
        if not title:
            raise LayoutError(page.url, "question.title, h1.question-title or disease.title")
        asked_at = stated_moment(_value(state, "question", "createTime"), CHINA) or turns[0].posted_at
        posted_at = asked_at or shown_date(line(tree.css_first(".question-time")), CHINA)
        return Thread(
            source=self.name,
            thread_id=found[1],
            url=page.url,
            title=title,
            language="zh",
            tags=tuple(dict.fromkeys(tag for tag in (disease, doctor.department) if tag)),
            posted_at=posted_at,
            messages=tuple(_message(n, turn, doctor, posted_at, anonymise) for n, turn in enumerate(turns)),
        )


def _message(
    position: int, turn: _Turn, doctor: _Doctor, asked_at: datetime | None, anonymise: Anonymiser
) -> Message:
    """One turn; the doctor is verified where the page shows both a title and a hospital."""
    verified = turn.by_doctor and bool(doctor.title and doctor.hospital)
    role = Role.PATIENT if not turn.by_doctor else Role.PHYSICIAN if verified else Role.OTHER
    return Message(
        id=f"m{position}",
        author=anonymise(doctor.name if turn.by_doctor else _ASKER),
        role=role,
        verified=verified,
        text=turn.content.text,
        posted_at=turn.posted_at or (asked_at if position == 0 else None),
        media=turn.content.media,
        verified_by=f"{doctor.title}, {doctor.hospital}" if verified else None,
    )


def _state(tree: LexborHTMLParser) -> dict[str, Any] | None:
    """The page state, or None where there is none or it is cut off."""
    for script in tree.css("script"):
        source = script.text()
        match = _STATE.search(source)
        if match is None:
            continue
        try:
            value, _ = json.JSONDecoder(strict=False).raw_decode(source, match.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _value(state: dict[str, Any] | None, *path: str) -> Any:
    value: Any = state
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _field(state: dict[str, Any] | None, *path: str) -> str:
    """A text of the page state on one line; "" where there is none."""
    value = _value(state, *path)
    return " ".join(clean(value).split()) if isinstance(value, str) else ""


def _turns_of_state(page: Page, state: dict[str, Any] | None) -> list[_Turn] | None:
    """The turns in the page state, or None where it holds none. Raises LayoutError."""
    dialogs = _value(state, "questionDialog")
    if not isinstance(dialogs, list) or not dialogs:
        return None
    turns = []
    for dialog in dialogs:
        content = _value(dialog, "content")
        if not isinstance(content, str) or "type" not in dialog:
            raise LayoutError(page.url, "type and content in every questionDialog")
        body = parse(content).body
        read = readable(body) if body is not None else Readable("", ())
        if not read.text and not read.media:
            raise LayoutError(page.url, "content in every questionDialog")
        turns.append(_Turn(bool(dialog["type"]), read, stated_moment(dialog.get("createTime"), CHINA)))
    return turns


def _turns_of_markup(page: Page, tree: LexborHTMLParser) -> list[_Turn]:
    """The turns that the page shows. Raises LayoutError."""
    area = tree.css_first(_DIALOGS)
    bubbles = area.css(".dialog-content") if area is not None else []
    if area is None or not bubbles:
        raise LayoutError(page.url, f"window.$$data.questionDialog or {_DIALOGS} .dialog-content")
    turns = []
    for bubble in bubbles:
        themes: set[str] = set()
        for outer in ancestors(bubble):
            themes = {"theme-white", "theme-dark"} & set((outer.attributes.get("class") or "").split())
            if themes or outer.mem_id == area.mem_id:
                break
        read = readable(bubble)
        if len(themes) != 1 or not (read.text or read.media):
            raise LayoutError(page.url, ".theme-white or .theme-dark around a .dialog-content with content")
        turns.append(_Turn("theme-white" in themes, read, None))
    stray = readable(area, skip_classes=frozenset(["dialog-content"]))
    if len(area.css(".theme-white, .theme-dark")) > len(bubbles) or any(
        len(text) > _MAX_STRAY_LINE for text in stray.text.split("\n")
    ):
        raise LayoutError(page.url, f"{_DIALOGS} .dialog-content around every turn")
    return turns


def _doctor(page: Page, tree: LexborHTMLParser, state: dict[str, Any] | None) -> _Doctor:
    """Who answers, as the page shows it. Raises LayoutError where it shows nobody."""
    shown_turns = tree.css_first(".doctor-info .doctor-detail")
    if shown_turns is not None:
        name = line(shown_turns.css_first(".doctor-header > div"))
        facts = [line(node) for node in shown_turns.css(".doctor-body > div")]
        # Title, department and hospital are known by their place only: of fewer, none can be told.
        if name and len(facts) >= 3:
            return _Doctor(name, *facts[:3])
    name = _field(state, "doctor", "nickname") or _field(state, "doctor", "name")
    if not name:
        raise LayoutError(page.url, ".doctor-info > .doctor-detail or the page state's doctor")
    return _Doctor(
        name,
        _field(state, "doctor", "jobTitle"),
        _field(state, "doctor", "department"),
        _field(state, "doctor", "hospital"),
    )
