"""Adapter of DXY (丁香医生): one patient's consultation with one doctor, from a page's JSON state or its markup."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from medlive.sources import reading
from medlive.sources.source import (
    Anonymiser,
    LayoutError,
    Listing,
    NotAThread,
    Page,
    PageRequest,
    Posted,
    Site,
    SourceSettings,
    only_page,
)
from medlive.threads.model import Thread

_QUESTION_PATH = re.compile(r"/question/(\d{1,20})/?(?:[?#]|$)")
_STATE = re.compile(r"window\.\$\$data\s*=\s*(?=\{)")
_DIALOGS = ".question-detail-dialogs"
_MAX_STRAY_LINE = 60  # Characters of a line outside the turns
_THEMES = {"theme-white", "theme-dark"}
"""Classes around a doctor's turn, and around a patient's."""


class Dxy(Site):
    """The adapter of dxy.com and the older ask.dxy.com."""

    name = "dxy"
    language = "zh"
    allowed_hosts = frozenset({"dxy.com", "www.dxy.com", "ask.dxy.com"})

    defaults = SourceSettings(
        base_url="https://dxy.com",
        boards=("neike",),
        # One scraper's author was blocked after about a hundred requests.
        min_interval_s=15.0,
        stop_statuses=frozenset({403, 429}),
    )

    def listing_requests(self) -> Sequence[PageRequest]:
        """The first page of each section."""
        return [
            PageRequest(f"{self.settings.base_url}/questions/{board}?page_index=1")
            for board in self.settings.boards
        ]

    def parse_listing(self, page: Page) -> Listing:
        """The questions of a section page; the list shows no dates. Raises LayoutError."""
        tree = reading.parse(page)
        entries = reading.linked_threads(
            page, tree, "div.content-list > a", _QUESTION_PATH
        )
        if not entries:
            raise LayoutError(page, "div.content-list > a to /question/<id>")
        return Listing(entries, reading.following_list_page(page, tree, "page_index"))

    def parse_thread(
        self,
        pages: Sequence[Page],
        anonymise: Anonymiser,
    ) -> Thread:
        """The consultation in order. Raises LayoutError, and NotAThread when no doctor has answered."""
        page = only_page(pages)
        path = _QUESTION_PATH.search(page.url)
        if path is None:
            raise LayoutError(page, "an address /question/<id>")
        tree = reading.parse(page)
        state = _state(tree)
        turns = _turns(page, tree, state)
        doctor, rank, department, hospital = _doctor(page, tree, state)
        disease = _field(state, "disease", "title")
        title = (
            _field(state, "question", "title")
            or reading.line(tree.css_first("h1.question-title"))
            or disease
        )
        if not title:
            raise LayoutError(
                page, "question.title, h1.question-title or disease.title"
            )
        stated = reading.stated_moment(
            _value(state, "question", "createTime"), reading.CHINA
        )
        posted_at = (
            stated
            or turns[0].posted_at
            or reading.shown_date(
                reading.line(tree.css_first(".question-time")), reading.CHINA
            )
        )
        # The doctor is verified where the page shows both a title and a hospital.
        proof = f"{rank}, {hospital}" if rank and hospital else None
        posts = []
        for turn in turns:
            answer = turn._replace(handle=doctor, verified_by=proof)
            posts.append(turn if turn.asks else answer)
        tags = (disease, department)
        return self.build_thread(
            path[1],
            page.url,
            title,
            tags,
            posted_at,
            posts,
            anonymise,
        )


def _state(tree: LexborHTMLParser) -> dict[str, Any] | None:
    """The page state (`window.$$data`, JSON), or None where there is none or it is cut off."""
    for script in tree.css("script"):
        script_text = script.text()
        if match := _STATE.search(script_text):
            with suppress(ValueError, RecursionError):
                value: dict[str, Any] = json.JSONDecoder(strict=False).raw_decode(
                    script_text, match.end()
                )[0]
                return value
    return None


def _value(state: Any, *path: str) -> Any:
    """The value at a path of keys; None where there is none."""
    for key in path:
        state = state.get(key) if isinstance(state, dict) else None
    return state


def _field(state: dict[str, Any] | None, *path: str) -> str:
    """A text of the page state on one line; "" where there is none."""
    value = _value(state, *path)
    return " ".join(reading.clean(value).split()) if isinstance(value, str) else ""


def _turns(
    page: Page,
    tree: LexborHTMLParser,
    state: dict[str, Any] | None,
) -> list[Posted]:
    """The turns in the page state, else those that the page shows. Raises LayoutError and NotAThread."""
    dialogs = _value(state, "questionDialog")
    if isinstance(dialogs, list) and dialogs:
        turns = []
        for dialog in dialogs:
            content = _value(dialog, "content")
            if not isinstance(content, str) or "type" not in dialog:
                raise LayoutError(page, "type and content in every questionDialog")
            read = reading.readable(reading.parse(content).body)
            if not read.text and not read.media:
                raise LayoutError(page, "content in every questionDialog")
            moment = reading.stated_moment(dialog.get("createTime"), reading.CHINA)
            turns.append(_turn(read, moment, by_patient=not dialog["type"]))
        if (shown_turns := len(tree.css(f"{_DIALOGS} .dialog-content"))) > len(turns):
            raise LayoutError(
                page, f"{shown_turns} turns in questionDialog", found=str(len(turns))
            )
    else:
        turns = _turns_of_markup(page, tree)
    if not turns[0].asks:
        raise LayoutError(page, "the patient's turn first")
    if all(turn.asks for turn in turns):
        raise NotAThread(f"{page.url}: no doctor has answered")
    return turns


def _turn(
    content: reading.Readable,
    moment: datetime | None,
    *,
    by_patient: bool,
) -> Posted:
    """A turn; the doctor's name and proof are filled in later."""
    return Posted("asker", *content, moment, by_patient, verified_by=None)


def _turns_of_markup(page: Page, tree: LexborHTMLParser) -> list[Posted]:
    """The turns that the markup shows, in order. Raises LayoutError."""
    area = tree.css_first(_DIALOGS)
    bubbles = area.css(".dialog-content") if area is not None else []
    if area is None or not bubbles:
        raise LayoutError(
            page, f"window.$$data.questionDialog or {_DIALOGS} .dialog-content"
        )
    turns = []
    for bubble in bubbles:
        outer = bubble.parent
        while outer is not None and outer.mem_id != area.mem_id and not _themes(outer):
            outer = outer.parent
        themes = _themes(outer)
        read = reading.readable(bubble)
        if len(themes) != 1 or not (read.text or read.media):
            raise LayoutError(
                page,
                ".theme-white or .theme-dark around a .dialog-content with content",
            )
        turns.append(_turn(read, None, by_patient="theme-dark" in themes))
    # A theme without a known turn, or a long line outside the turns, is a turn that was not recognised.
    stray = reading.readable(
        area, skip_classes=frozenset(["dialog-content"])
    ).text.split("\n")
    if (
        len(area.css(".theme-white, .theme-dark")) > len(bubbles)
        or max(map(len, stray)) > _MAX_STRAY_LINE
    ):
        raise LayoutError(page, f"{_DIALOGS} .dialog-content around every turn")
    return turns


def _themes(node: LexborNode | None) -> set[str]:
    return _THEMES.intersection(reading.classes(node)) if node is not None else set()


def _doctor(
    page: Page,
    tree: LexborHTMLParser,
    state: dict[str, Any] | None,
) -> tuple[str, str, str, str]:
    """Name, title, department and hospital of who answers, as the page shows them. Raises LayoutError for nobody."""
    detail = tree.css_first(".doctor-info .doctor-detail")
    if detail is not None:
        name = reading.line(detail.css_first(".doctor-header > div"))
        facts = list(map(reading.line, detail.css(".doctor-body > div")))
        # Title, department and hospital are known by their place only, so all three are needed.
        if name and len(facts) >= 3:
            return name, facts[0], facts[1], facts[2]
    name = _field(state, "doctor", "nickname") or _field(state, "doctor", "name")
    if not name:
        raise LayoutError(
            page, ".doctor-info > .doctor-detail or the page state's doctor"
        )
    return (
        name,
        _field(state, "doctor", "jobTitle"),
        _field(state, "doctor", "department"),
        _field(state, "doctor", "hospital"),
    )
