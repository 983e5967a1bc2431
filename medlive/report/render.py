"""The report: a folder of pages that need nothing but themselves, with every figure and number as a file too.

Its first sentences say who leads and what is missing or wrong; one page has several protocols side by side.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from medlive.errors import BadInput
from medlive.evaluation.protocols.model import format_cell
from medlive.evaluation.protocols.portfolio import PORTFOLIO, Portfolio
from medlive.evaluation.scoring.estimates import FEW
from medlive.evaluation.scoring.fresh import FreshScore
from medlive.evaluation.scoring.score import ModelScore, ScoreTable
from medlive.integrity.log import some, writing
from medlive.llm.registry import EMPTY, Registry
from medlive.report.cases import LIST, case_list, entries, write_case_pages
from medlive.report.html import (
    page,
    points,
    render,
    upper_first,
    utf8,
)
from medlive.report.model import MetaFile, Report, analyse, read_json, unpublishable
from medlive.report.sections import SECTIONS, others
from medlive.report.tables import WRITERS, write_whole
from medlive.statistics.bootstrap import Comparison, pairs_below
from medlive.text.html import interval, percent

PLACE = Path("protocols")
"""Where `protocol all` writes by default."""


def portfolio_page(
    portfolio: Portfolio,
    nav: Sequence[tuple[str, str]] = (),
) -> str:
    """The page; `nav` are other pages."""
    body = render(
        "portfolio.html",
        portfolio=portfolio,
        overridden=portfolio.overridden,
        numeric=lambda table, place: (
            not any(isinstance(row[place], str) for row in table.rows)
        ),
        cell=format_cell,
        states=lambda reasons: "; ".join(f"{n}: {why}" for why, n in reasons.items()),
        slug=_slug,
        upper_first=upper_first,
    )
    parts = [("#ranks", "Ranks"), ("#alike", "How alike tasks are")]
    for task in portfolio.tasks:
        parts.append((f"#{_slug(task.task)}", task.task))
    return page("medlive: protocols", body, [*nav, *parts])


def write_portfolio(portfolio: Portfolio, folder: Path) -> Path:
    """Write `portfolio.json` and `portfolio.html` into a folder; return the page. Raises BadInput."""
    files = {
        PORTFOLIO: portfolio.model_dump_json(indent=1) + "\n",
        "portfolio.html": portfolio_page(portfolio),
    }
    for name, text in files.items():
        write_whole(folder / name, utf8(text))
    return folder / "portfolio.html"


def read_portfolio(path: Path) -> Portfolio:
    """A `portfolio.json`, or that of a folder. Raises BadInput."""
    return read_json(
        path / PORTFOLIO if path.is_dir() else path,
        Portfolio,
        PORTFOLIO,
    )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


Ranked = Sequence[ModelScore | FreshScore]


def summarise(report: Report) -> dict[str, str]:
    """What each sentence is about, and the sentence.

    The ranking after every cutoff goes first where it rests on enough cases.
    """
    table, fresh = report.table, report.table.fresh
    scored = _scored(table.models)
    later = _scored(fresh.models) if fresh else []
    ranked, pairs, where = scored, table.comparisons, "On all cases"
    if fresh and later and not later[0].overall.few:
        ranked, pairs = later, fresh.comparisons
        where = f"On cases posted after every cutoff ({fresh.after})"
    leads = "Nobody: no model has a score."
    if ranked:
        leads = f"{where}, {_lead(ranked, pairs)}"
        if ranked[0].overall.few:
            leads += f" Fewer than {FEW} cases: no result."
        first = scored[0]
        if first.label != ranked[0].label:
            leads += f" On all cases {first.label} is first with {percent(first.overall.value)} %."
    return {"Who leads": leads, "Missing or wrong": _missing(report)}


def _scored(models: Ranked) -> Ranked:
    return [model for model in models if model.overall.value is not None]


def tied_with(
    leader: str,
    others: Sequence[str],
    pairs: Sequence[Comparison],
) -> list[str]:
    """The others that are not significantly below the leader, those that nothing compares it with among them."""
    below = pairs_below(pairs)
    return [other for other in others if (other, leader) not in below]


def _lead(ranked: Ranked, pairs: Sequence[Comparison]) -> str:
    first, others = ranked[0], [model.label for model in ranked[1:]]
    score = first.overall
    value = f"{percent(score.value)} % (95 % interval {interval(score.low, score.high)}, n={score.n})"
    if not others:
        return f"{first.label} scores {value}; no other model is ranked."
    tied = tied_with(first.label, others, pairs)
    if not tied:
        every = f"all {len(others)} other models" if len(others) > 1 else others[0]
        return f"{first.label} leads with {value}, significantly ahead of {every}."
    return f"{first.label} scores highest, {value}, and is tied with {some(tied)}."


def _missing(report: Report) -> str:
    models = report.models
    missing = []
    if banned := [model.label for model in models if unpublishable(model)]:
        missing.append(f"not publishable: {some(banned)}")
    for label, drop in report.table.drops.items():
        better = points(drop.difference)
        missing.append(
            f"{label} is {better} points better up to its cutoff than after it"
        )
    missing += uncounted(models)
    if unknown := [model.label for model in models if model.cutoff is None]:
        missing.append(
            f"no cutoff is known for {some(unknown)}, so nothing shows what was seen in training"
        )
    if not report.metas:
        missing.append("the grader was not compared with people")
    if warnings := len(report.table.warnings):
        missing.append(f"{warnings} warning{'s' * (warnings > 1)} below")
    if not missing:
        return "Nothing: every answer is there and every criterion graded."
    return "; ".join(missing) + "."


def uncounted(models: Sequence[ModelScore]) -> Iterator[str]:
    """What has no verdict, no answer or no score, over all models."""
    cases = sum(model.rates.cases for model in models)
    criteria = sum(model.rates.criteria for model in models)
    for name, total, what in (
        ("ungraded", criteria, "verdicts are ungraded"),
        ("unanswered", cases, "cases are unanswered"),
        ("unscorable", cases, "cases have no positive criterion to score"),
    ):
        if count := sum(getattr(model.rates, name) for model in models):
            yield f"{count:,} of {total:,} {what}"


_TITLE = "medlive: scores on "
_OURS = f"<title>{_TITLE}".encode()
"""What the first page of a report holds, those of earlier versions too."""
PROTOCOLS = "protocols.html"
_NAMES = frozenset(
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
