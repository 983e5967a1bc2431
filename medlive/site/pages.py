"""Makes the site's files (`site_files`): pages from templates that escape everything, and data that the browser reads.

The browser scores a board from the cases (JSON) and the verdicts (two bits a criterion), and searches the cases' texts.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from medlive import __version__
from medlive.evaluation.cases.selection import day_of
from medlive.evaluation.model import ADVICE, cluster_numbers
from medlive.evaluation.scoring.metrics import Verdicts
from medlive.harm.model import Severity
from medlive.integrity.digest import canonical_json
from medlive.snapshot.describe.feed import feed_xml
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion
from medlive.text.html import environment

from .model import (
    HARD,
    BoardEntry,
    Content,
    ModelEntry,
    hard_bytes,
    hard_weeks,
    shared_scales,
)

CODES = {
    False: 0,
    True: 1,
    None: 2,
}
"""Verdict → its two bits; None is ungraded."""
UNANSWERED = 3  # The two bits where there is no answer
NOT_READ = "3"  # The digit of an answer that was not read for harm
_HARM = {
    None: "0",
    Severity.MODERATE: "1",
    Severity.SEVERE: "2",
}
"""The digit of the gravest confirmed harm."""
FILTERS = ("language", "specialty", "theme", "difficulty")


def board_json(board: BoardEntry) -> bytes:
    """The board's description: models, cases and the generator's start, without the verdicts."""
    points = []
    advice = []
    for case in board.cases:
        for criterion in case.criteria:
            points.append(criterion.points)
            advice.append(int(criterion.origin == ADVICE))
    clusters = cluster_numbers(board.cases)
    cases: dict[str, object] = {
        "days": list(map(day_of, board.cases)),
        "clusters": None if clusters is None else clusters.tolist(),
    }
    values = {}
    for kind in FILTERS:
        of_cases = [getattr(case, kind) for case in board.cases]
        values[kind] = sorted(set(of_cases) - {None, ""})
        places = {value: place for place, value in enumerate(values[kind])}
        cases[kind] = [places.get(value, -1) for value in of_cases]
    models = []
    harm = []
    for model in board.entered:
        models.append({"name": model.name, "cutoff": model.cutoff})
        digits = ""
        for case in board.cases:
            row = model.score.run.harm_of(case.case_id)
            is_read = row is not None and row.reading.is_read
            digits += _HARM[row.reading.worst] if row and is_read else NOT_READ
        harm.append(digits)
    description = {
        "title": board.title,
        "verdicts": f"{board.slug}.bin",
        "draws": board.table.draws,
        "start": generator_start(board.table.seed),
        "metric": board.table.metric.value,
        "models": models,
        "harm": harm,
        "cases": cases,
        "values": values,
        "criteria": {
            "counts": [len(case.criteria) for case in board.cases],
            "points": points,
            "advice": advice,
        },
    }
    return canonical_json(description).encode("utf-8")


def generator_start(seed: int) -> dict[str, str]:
    """The state and increment, in hexadecimal, with which NumPy's generator of this seed starts."""
    state: Any = np.random.PCG64(seed).state["state"]
    return {"state": f"{state['state']:x}", "increment": f"{state['inc']:x}"}


def verdict_bytes(board: BoardEntry) -> bytes:
    """Each model's verdicts, in the order of `entered`, four to a byte, the first in the lowest bits."""
    packed = b""
    for model in board.entered:
        codes = []
        for case in board.cases:
            met = model.score.run.answered_verdicts(case.case_id)
            for criterion in case.criteria:
                verdict = UNANSWERED if met is None else CODES[met.get(criterion.id)]
                codes.append(verdict)
        codes += [0] * (-len(codes) % 4)
        fours = np.array(codes, dtype=np.uint8).reshape(-1, 4)
        packed += (fours << [0, 2, 4, 6]).sum(axis=1).astype(np.uint8).tobytes()
    return packed


SECTIONS = (
    ("index.html", "Start", "A living benchmark of clinical questions"),
    ("leaderboard.html", "Leaderboard", "Leaderboard"),
    ("scale.html", "One scale", "All weeks on one scale"),
    ("cases.html", "Cases", "Cases"),
    ("weeks.html", "Weeks", "Week by week"),
    ("method.html", "Method", "The method"),
    ("downloads.html", "Downloads", "Downloads and citation"),
    ("enter.html", "Enter a result", "Enter a result"),
)
"""The site's sections: file name, text of the link, heading."""
CASES_A_PAGE = 100
"""Cases on one page of the list, few enough for a slow line."""

Results = Sequence[tuple[BoardEntry, Sequence[tuple[ModelEntry, Sequence[str]]]]]
"""Board → model → how it did on each criterion of a case; nothing where it did not answer."""


class Page(NamedTuple):
    """One page, not yet rendered."""

    name: str
    template: str
    about: Mapping[str, object]
    """Its title, the section that the navigation marks, and what the template shows."""


def site_files(
    content: Content,
    *,
    links: Sequence[tuple[str, str]] = (),
    downloads: str | None = None,
) -> dict[str, bytes]:
    """Every file of the site by name; the same content makes the same bytes.

    Args:
        content: What it shows.
        links: Further entries of the navigation: address and text.
        downloads: The address that ends where the folders of snapshots begin; None: their files are not linked.
    """
    made = {}
    for path in sorted(files("medlive.site").joinpath("static").iterdir(), key=str):
        made[f"assets/{path.name}"] = path.read_bytes()
    for board in content.boards:
        made[f"data/{board.slug}.json"] = board_json(board)
        made[f"data/{board.slug}.bin"] = verdict_bytes(board)
    scales = shared_scales(content.boards, content.hard)
    made[f"data/{HARD}"] = hard_bytes(hard_weeks(scales, content.hard))
    # The latest posted first, then by id.
    cases = sorted(
        content.cases.values(), key=lambda case: case.posted_at, reverse=True
    )
    entries = []
    texts = []
    for case in cases:
        entry = {kind: getattr(case, kind) for kind in FILTERS}
        entry |= {
            "id": case.case_id,
            "page": case_page(case),
            "query": case.query,
            "posted": str(case.posted_at),
        }
        entries.append(entry)
        criteria = [criterion.criterion for criterion in case.criteria]
        texts.append(" ".join([case.narrative, case.advice, *criteria]))
    # What the browser filters and shows of each case, and the texts that it fetches to search for words.
    made["data/cases.json"] = canonical_json(entries).encode("utf-8")
    made["data/texts.json"] = canonical_json(texts).encode("utf-8")
    made["feed.xml"] = feed_xml(content.weeks, downloads, content.errata)

    def ability(board: BoardEntry, model: ModelEntry) -> float | None:
        """What a model of a board would score on all cases of all weeks."""
        (shared,) = (scale for scale in scales if board.slug in scale.boards)
        return shared.abilities[model.name].value

    for page in _pages(content, cases):
        text = TEMPLATES.get_template(page.template).render(
            page.about,
            name=page.name,
            root="../" * page.name.count("/"),
            content=content,
            scales=scales,
            links=links,
            downloads=downloads,
            ability=ability,
        )
        made[page.name] = text.encode("utf-8")
    return made


def _pages(
    content: Content,
    cases: Sequence[SnapshotCase],
) -> Iterator[Page]:
    """Every page; `cases` are in the order of the lists."""
    for name, _, title in SECTIONS:
        if name != "cases.html":
            yield Page(name, name, {"title": title, "section": name})
    starts = range(0, max(1, len(cases)), CASES_A_PAGE)
    lists = ["cases.html"]
    lists += [f"lists/cases-{n}.html" for n in range(2, len(starts) + 1)]
    for number, (name, start) in enumerate(zip(lists, starts, strict=True), start=1):
        about = {
            "title": "Cases" if number == 1 else f"Cases, page {number}",
            "section": "cases.html",
            "cases": cases[start : start + CASES_A_PAGE],
            "number": number,
            "lists": lists,
        }
        yield Page(name, "cases.html", about)
    for board in content.boards:
        for model in board.models:
            about = {
                "title": model.name,
                "section": "leaderboard.html",
                "board": board,
                "model": model,
            }
            address = f"models/{board.slug}-{model.slug}.html"
            yield Page(address, "model.html", about)
    results = _results(content)
    for case in content.cases.values():
        about = {
            "title": case.case_id,
            "section": "cases.html",
            "case": case,
            "results": results[case.case_id],
        }
        yield Page(case_page(case), "case.html", about)


def _results(content: Content) -> dict[str, Results]:
    """How the models of each board did on each case that it holds."""
    results: dict[str, Any] = {case_id: [] for case_id in content.cases}
    for board in content.boards:
        for scored in board.cases:
            case = content.cases.get(scored.case_id)
            if case is None or not scored.criteria:
                continue
            asked = {c.id: c.criterion for c in scored.criteria}
            rows = []
            for model in board.models:
                marks = []
                met = model.score.run.answered_verdicts(case.case_id)
                if met is not None:
                    marks = [_mark(c, asked, met) for c in case.criteria]
                rows.append((model, marks))
            results[case.case_id].append((board, rows))
    return results


def _mark(
    criterion: SnapshotCriterion,
    asked: Mapping[str, str],
    met: Verdicts,
) -> str:
    """How a model did on a criterion; `asked` are those of the board's run: id → text."""
    if asked.get(criterion.criterion_id) != criterion.criterion:
        # Of another revision than that of the board's snapshot.
        return "not part of this run"
    verdict = met.get(criterion.criterion_id)
    if verdict is None:
        return "ungraded"
    if not verdict:
        return "not met"
    return "unwanted criterion met" if criterion.points < 0 else "met"


def case_page(case: SnapshotCase) -> str:
    """The address of a case's page; ids that are no plain file names become digests."""
    plain = case.case_id.replace("-", "").replace("_", "")
    if plain.isascii() and plain.isalnum() and len(case.case_id) <= 100:
        return f"cases/{case.case_id}.html"
    digest = hashlib.sha256(case.case_id.encode("utf-8")).hexdigest()
    return f"cases/x-{digest[:32]}.html"


TEMPLATES = environment("medlive.site")
TEMPLATES.globals |= {
    "filters": FILTERS,
    "per_page": CASES_A_PAGE,
    "sections": SECTIONS,
    "version": __version__,
}
TEMPLATES.filters |= {
    "case_page": case_page,
    "urlencode": lambda text: quote(str(text), safe="/"),
}
