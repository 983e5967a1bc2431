"""The report: a folder of pages that need nothing but themselves, with every figure and number as a file too."""

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from medlive.errors import BadInput
from medlive.evaluation.protocols.portfolio import Portfolio
from medlive.evaluation.root_causes import RootCause
from medlive.evaluation.scoring.estimates import FEW
from medlive.evaluation.scoring.score import ScoreTable
from medlive.integrity.log import writing
from medlive.llm.registry import EMPTY, Registry
from medlive.report.cases import LIST, case_list, entries, write_case_pages
from medlive.report.html import Section, missing, page, render, soft, utf8
from medlive.report.meta import MetaFile
from medlive.report.model import Report, analyse
from medlive.report.portfolio import portfolio_page
from medlive.report.sections.contamination import contamination
from medlive.report.sections.costs import costs
from medlive.report.sections.criteria import criteria
from medlive.report.sections.overlap import overlap
from medlive.report.sections.ranking import pairs, ranking
from medlive.report.sections.scale import one_scale
from medlive.report.sections.slices import others, slices
from medlive.report.summary import summarise
from medlive.report.tables import WRITERS

_LENGTH: Final = (
    "Characters of an answer against its score. Partial: Pearson's r given the model and the case, so that neither "
    "long-winded models nor questions that need much count (ClinConsensus, Table 11). A score that pays for length "
    "has a high one; the core score is there to be compared."
)


def _written(
    name: str,
    title: str,
    template: str,
    caption: str = "",
) -> Callable[[Report], Section]:
    """What makes a section that has no figure."""

    def make(report: Report) -> Section:
        drawn = report.render(template, causes=tuple(RootCause))
        return Section(name, title, [soft(caption), drawn] if caption else [drawn])

    return make


def reliability(report: Report) -> Section:
    """How far graders agree with people; each table says what its meta.json overrode too."""
    parts = []
    for meta in report.metas:
        overridden = (*report.table.overridden, *meta.overridden)
        parts.append(
            render(
                "reliability.html",
                meta=meta,
                overridden=overridden,
            )
        )
    title = "Reliability of the grader"
    return Section("reliability", title, parts or [missing(_NO_META)])


SECTIONS: Final[tuple[Callable[[Report], Section], ...]] = (
    ranking,
    pairs,
    one_scale,
    _written("length", "Length of answers", "length.html", _LENGTH),
    _written("missing", "What is missing", "rates.html"),
    partial(slices, kind="month", name="months", title="Over time"),
    contamination,
    _written("books", "Open and closed book", "books.html"),
    partial(slices, kind="specialty", name="specialties", title="By specialty"),
    partial(slices, kind="theme", name="themes", title="By theme"),
    criteria,
    costs,
    _written("causes", "Root causes", "causes.html"),
    reliability,
    overlap,
)
"""What makes each part of the first page, in order; other slices come last, where there are any."""

_TITLE: Final = "medlive: scores on "
_OURS: Final = f"<title>{_TITLE}".encode()
"""What the first page of a report holds, those of earlier versions too."""
_NO_META: Final = (
    "The grader was not held against people. Run medlive eval meta RUN --human FILE --out DIR, and give "
    "DIR/meta.json to this report with --meta."
)
PROTOCOLS: Final = "protocols.html"
_NAMES: Final = frozenset(
    (
        PROTOCOLS,
        "index.html",
        "cases.html",
        "cases",
        "figures",
        "search",
        "scores.json",
        "scores.csv",
        "scores.tsv",
    )
)


def write_report(
    table: ScoreTable,
    out: Path,
    *,
    registry: Registry = EMPTY,
    metas: tuple[MetaFile, ...] = (),
    portfolio: Portfolio | None = None,
    case_pages: bool = True,
) -> Path:
    """Write the report of a score table into the folder `out`; return its first page.

    `index.html` with the figures, `protocols.html` of a portfolio if there is one, `cases.html`, `cases/` with a
    page for each case unless `case_pages` is false, and `scores.json`, `scores.csv`, `scores.tsv`. An earlier report
    is replaced. Raises BadInput when the folder cannot be written, or holds files of these names that no report
    wrote, and DiskFull.
    """
    with writing(out):
        _check_place(out)
    report = analyse(
        table,
        registry,
        metas=metas,
        case_pages=case_pages,
    )
    case_entries = entries(report)
    pages = {
        "index.html": index(report, len(case_entries), protocols=bool(portfolio)),
        LIST: case_list(report, case_entries),
    }
    if portfolio:
        nav = (("index.html", "Scores"), (LIST, "Cases"))
        pages[PROTOCOLS] = portfolio_page(portfolio, nav)
    files = {name: utf8(text) for name, text in pages.items()}
    for suffix, write in WRITERS.items():
        files[f"scores.{suffix}"] = write(table, None)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".report-", dir=out) as temporary:
            made = Path(temporary)
            for name, data in files.items():
                (made / name).write_bytes(data)
            if case_pages:
                (made / "cases").mkdir()
                write_case_pages(report, case_entries, made / "cases")
            _replace(made, out)
    return out / "index.html"


def _replace(made: Path, out: Path) -> None:
    """Put what was made in the place of what an earlier report left, and take away what it alone had."""
    for old in {out / name for name in _NAMES} | set(out.glob("cases-*.html")):
        if old.is_dir():
            shutil.rmtree(old)
        elif old.name != "index.html":
            old.unlink(missing_ok=True)
    # The first page is what an earlier report is known by, should the rest be cut off.
    for path in sorted(made.iterdir(), key=lambda path: path.name != "index.html"):
        os.replace(path, out / path.name)


def _check_place(out: Path) -> None:
    """Raise BadInput where writing would take away or mix with what is not a report's."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file: a report is a folder")
    first = out / "index.html"
    if first.is_file() and _OURS in first.read_bytes()[:20_000]:
        return
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    if "run.json" in names:
        raise BadInput(f"{out} is a run folder", hint="give --out a folder of its own")
    if taken := sorted(names & _NAMES):
        raise BadInput(
            f"{out} holds {', '.join(taken)}, which no report of medlive wrote: nothing was replaced",
            hint="give --out a folder that is new, empty or an earlier report",
        )


def index(
    report: Report,
    cases: int,
    *,
    protocols: bool = False,
) -> str:
    """The first page: what was measured, every section, where the cases are."""
    table = report.table
    sections = [*(make(report) for make in SECTIONS), *others(report)]
    facts = {
        "metric": report.metric_in_words,
        "cases": f"{report.cases_named}: {cases}, of which {table.common} are scored for every model",
        "digest of the cases": report.digests_named,
        "models": len(report.models),
        "grader": report.graders_named,
        "intervals": f"95 %, bootstrap over cases, {table.draws} draws, seed {table.seed}",
        "few cases": f"Fewer than {FEW} cases: grey and slanted in tables, hollow in figures.",
    }
    nav = [(f"#{own.name}", own.title) for own in sections if not own.lacking]
    if len(nav) < len(sections):
        nav.append(("#absent", "Not in this report"))
    if protocols:
        nav.append((PROTOCOLS, "Protocols"))
    nav.append((LIST, "Cases"))
    body = report.render(
        "index.html",
        sections=sections,
        facts=facts,
        summary=summarise(report),
    )
    return page(f"{_TITLE}{report.cases_named}", body, nav)
