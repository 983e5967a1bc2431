"""The pages: templates with everything escaped, and the files beside them."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from operator import attrgetter
from typing import Final, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from medlive import __version__
from medlive.evaluation.scoring.estimates import ScoreEstimate
from medlive.integrity.digest import canonical_json
from medlive.site.data import FILTERS, board_json, verdict_bytes
from medlive.site.hard import HARD, hard_bytes
from medlive.site.model import BoardEntry, Content, ModelEntry
from medlive.site.scale import SharedScale, hard_weeks, shared_scales
from medlive.snapshot.describe.feed import Place, feed_xml
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion
from medlive.statistics.bootstrap import Estimate
from medlive.statistics.scale import Ability

SECTIONS: Final = (
    ("index.html", "Start", "A living benchmark of clinical questions"),
    ("leaderboard.html", "Leaderboard", "Leaderboard"),
    ("scale.html", "One scale", "All weeks on one scale"),
    ("cases.html", "Cases", "Cases"),
    ("weeks.html", "Weeks", "Week by week"),
    ("method.html", "Method", "The method"),
    ("downloads.html", "Downloads", "Downloads and citation"),
    ("enter.html", "Enter a result", "Enter a result"),
)
"""Name, text of the link, heading."""
CASES_A_PAGE: Final = 100
"""Cases in one page of the list: what a slow line brings in one view."""
_SLICES: Final = {
    "cutoff": "Past its cutoff",
    "month": "By month of posting",
    "first release": "By first release",
    "axis": "By axis",
    "theme": "By theme",
    "specialty": "By specialty",
    "language": "By language",
    "difficulty": "By difficulty",
}
"""Kind of slice → its heading on a model's page, in that order."""
_STEPS: Final = (
    ("Thread", "as posted"),
    ("Screener", "facts, advice"),
    ("Validator", "enough? sound?"),
    ("Controller", "nothing invented"),
    ("Rubric", "proved"),
    ("Snapshot", "frozen weekly"),
)


class SiteFile(NamedTuple):
    """A file of the site."""

    name: str
    data: bytes


class Mark(NamedTuple):
    """How a model did on a criterion."""

    kind: str
    sign: str
    label: str


def site_files(
    content: Content,
    *,
    links: Sequence[tuple[str, str]] = (),
    downloads: str | None = None,
) -> Iterator[SiteFile]:
    """Every file of the site; the same content makes the same bytes.

    Args:
        content: What it shows.
        links: Further entries of the navigation: address and text.
        downloads: The address that ends where the folders of snapshots begin; None: their files are not linked.
    """
    scales = shared_scales(content.boards, content.hard)
    site = _Site(content, scales, links, downloads)
    for path in sorted(files("medlive.site").joinpath("static").iterdir(), key=str):
        yield SiteFile(f"assets/{path.name}", path.read_bytes())
    for board in content.boards:
        abilities = site.abilities(board)
        yield SiteFile(f"data/{board.slug}.json", board_json(board, abilities))
        yield SiteFile(f"data/{board.slug}.bin", verdict_bytes(board))
    weeks = hard_weeks(scales, content.hard)
    yield SiteFile(f"data/{HARD}", hard_bytes(weeks))
    cases = list_order(content)
    yield SiteFile("data/cases.json", _case_list(cases))
    yield SiteFile("data/texts.json", _case_texts(cases))
    releases = [week.release for week in content.weeks if week.release is not None]
    yield SiteFile("feed.xml", feed_xml(releases, Place(downloads), content.errata))
    yield from site.pages()


class _Site:
    """Renders the pages of one content."""

    def __init__(
        self,
        content: Content,
        scales: Sequence[SharedScale],
        links: Sequence[tuple[str, str]],
        downloads: str | None,
    ) -> None:
        self.content = content
        self.scales = scales
        self.links = links
        self.downloads = downloads

    def abilities(self, board: BoardEntry) -> dict[str, Ability]:
        """What each model of a board would score on all cases of all weeks."""
        (shared,) = (scale for scale in self.scales if board.slug in scale.boards)
        return {model.name: shared.ability(model.name) for model in board.models}

    def pages(self) -> Iterator[SiteFile]:
        """Every page."""
        abilities = {board.slug: self.abilities(board) for board in self.content.boards}
        for name, _, title in SECTIONS:
            if name != "cases.html":
                yield self._page(
                    name, name, title, scales=self.scales, abilities=abilities
                )
        yield from self._lists()
        for board in self.content.boards:
            for model in board.models:
                yield self._page(
                    f"models/{board.slug}-{model.slug}.html",
                    "model.html",
                    model.name,
                    section="leaderboard.html",
                    board=board,
                    model=model,
                )
        asked = {}
        for board in self.content.boards:
            for scored in board.cases:
                criteria = {c.id: c.criterion for c in scored.criteria}
                asked[board.slug, scored.case_id] = criteria
        for case in self.content.cases.values():
            results = []
            for board in self.content.boards:
                if own := asked.get((board.slug, case.case_id)):
                    results.append((board, _rows(board, case, own)))
            yield self._page(
                case_page(case),
                "case.html",
                case.case_id,
                section="cases.html",
                case=case,
                results=results,
            )

    def _lists(self) -> Iterator[SiteFile]:
        """The cases in pages of `CASES_A_PAGE`, which need no script."""
        cases = list_order(self.content)
        starts = range(0, max(1, len(cases)), CASES_A_PAGE)
        names = ["cases.html"]
        for number in range(2, len(starts) + 1):
            names.append(f"lists/cases-{number}.html")
        for number, start in enumerate(starts, start=1):
            yield self._page(
                names[number - 1],
                "cases.html",
                "Cases" if number == 1 else f"Cases, page {number}",
                section="cases.html",
                cases=cases[start : start + CASES_A_PAGE],
                start=start,
                number=number,
                names=names,
            )

    def _page(self, name: str, template: str, title: str, **values: object) -> SiteFile:
        shown = {
            "content": self.content,
            "downloads": self.downloads,
            "links": self.links,
            "root": "../" * name.count("/"),
            "section": name,
            "title": title,
        }
        text = TEMPLATES.get_template(template).render(shown | values)
        return SiteFile(name, text.encode("utf-8"))


def _rows(
    board: BoardEntry, case: SnapshotCase, asked: Mapping[str, str]
) -> list[tuple[ModelEntry, list[Mark]]]:
    """How each model did on the case's criteria; no mark where it did not answer.

    `asked` are the criteria of the board's run: id → text.
    """
    rows = []
    for model in board.models:
        marks = []
        if case.case_id in model.answered:
            met = model.verdicts.get(case.case_id, {})
            marks = [_mark(c, asked, met) for c in case.criteria]
        rows.append((model, marks))
    return rows


def _mark(
    criterion: SnapshotCriterion,
    asked: Mapping[str, str],
    met: Mapping[str, bool | None],
) -> Mark:
    if asked.get(criterion.criterion_id) != criterion.criterion:
        # Of another revision than that of the board's snapshot.
        return Mark("unmet", "·", "not part of this run")
    verdict = met.get(criterion.criterion_id)
    if verdict is None:
        return Mark("", "?", "ungraded")
    if not verdict:
        return Mark("unmet", "–", "not met")
    if criterion.points < 0:
        return Mark("error", "✗", "unwanted criterion met")
    return Mark("met", "✓", "met")


def case_page(case: SnapshotCase) -> str:
    """The address of a case's page; ids that are no plain file names become digests."""
    plain = case.case_id.replace("-", "").replace("_", "")
    if plain.isascii() and plain.isalnum() and len(case.case_id) <= 100:
        return f"cases/{case.case_id}.html"
    digest = hashlib.sha256(case.case_id.encode("utf-8")).hexdigest()
    return f"cases/x-{digest[:32]}.html"


def _choices(cases: Mapping[str, SnapshotCase]) -> list[tuple[str, list[str]]]:
    choices = []
    for kind in FILTERS:
        values = set(map(attrgetter(kind), cases.values()))
        choices.append((kind, sorted(values)))
    return choices


def list_order(content: Content) -> list[SnapshotCase]:
    """The cases as they are listed: the latest posted first."""
    cases = sorted(content.cases.values(), key=attrgetter("case_id"))
    return sorted(cases, key=attrgetter("posted_at"), reverse=True)


def _case_list(cases: Sequence[SnapshotCase]) -> bytes:
    """What the browser filters and shows of each case."""
    entries = []
    for case in cases:
        entry = {kind: getattr(case, kind) for kind in FILTERS}
        entry |= {"id": case.case_id, "page": case_page(case), "query": case.query}
        entries.append(entry | {"posted": str(case.posted_at)})
    return canonical_json(entries).encode("utf-8")


def _case_texts(cases: Sequence[SnapshotCase]) -> bytes:
    """The texts in which words are searched beside the question, fetched when the first word is typed."""
    case_texts = []
    for case in cases:
        texts = [case.narrative, case.advice]
        texts += map(attrgetter("criterion"), case.criteria)
        case_texts.append(" ".join(texts))
    return canonical_json(case_texts).encode("utf-8")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:z.1f}"


def _interval(figure: Estimate) -> str:
    """The interval; where there is none why, in two lines in a table, as leaderboard.js has it."""
    if figure.low is None:
        short, _, reason = figure.why.partition(": ")
        return Markup("{}: <small>{}</small>").format(short, reason) if reason else "–"
    return f"{_percent(figure.low)} to {_percent(figure.high)}"


def _bar(figure: ScoreEstimate) -> Markup:
    """A mean and its interval from 0 to 100 %, drawn."""
    if figure.value is None:
        return Markup("")
    line = '<line class="axis" x1="0" x2="200" y1="8" y2="8"></line>'
    if figure.low is not None and figure.high is not None:
        low, high = 200 * figure.low, 200 * figure.high
        line += (
            f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="8" y2="8"></line>'
        )
    # S704: nothing but numbers is written into it.
    return Markup(
        f'<svg class="bar" viewBox="0 0 200 16" aria-hidden="true">{line}'
        f'<circle cx="{200 * figure.value:.1f}" cy="8" r="4"></circle></svg>'
    )


TEMPLATES: Final = Environment(
    loader=PackageLoader("medlive.site"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals |= {
    "choices": _choices,
    "filters": FILTERS,
    "headings": _SLICES,
    "sections": SECTIONS,
    "steps": _STEPS,
    "version": __version__,
}
TEMPLATES.filters |= {
    "bar": _bar,
    "case_page": case_page,
    "interval": _interval,
    "percent": _percent,
    "urlencode": lambda text: quote(str(text), safe="/"),
}
