"""Writes the report (`write_report`): a folder of pages that need nothing else, with every figure as data too.

Its first sentences say who leads and what is missing or wrong; one page has several protocols side by side.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from medlive.errors import BadInput
from medlive.evaluation.agreement.meta import Meta
from medlive.evaluation.protocols.model import format_cell
from medlive.evaluation.protocols.portfolio import PORTFOLIO, Portfolio
from medlive.evaluation.scoring.estimates import FEW
from medlive.evaluation.scoring.fresh import FreshScore
from medlive.evaluation.scoring.score import ModelScore, ScoreTable
from medlive.integrity.log import some, writing
from medlive.llm.registry import EMPTY, Registry
from medlive.statistics.comparison import Comparison, pairs_below
from medlive.text.html import interval, percent

from .cases import LIST, case_list, entries, write_case_pages
from .html import (
    page,
    points,
    render,
    utf8,
)
from .model import Report, analyse, read_json, unpublishable
from .sections import SECTIONS, other_slices
from .tables import WRITERS


def portfolio_page(portfolio: Portfolio) -> str:
    """The page of a portfolio: several protocols side by side."""
    body = render(
        "portfolio.html",
        portfolio=portfolio,
        overridden=portfolio.overridden,
        cell=format_cell,
        slug=_slug,
    )
    nav = [("index.html", "Scores"), (LIST, "Cases")]
    nav += [("#ranks", "Ranks"), ("#alike", "How alike tasks are")]
    for task in portfolio.tasks:
        nav.append((f"#{_slug(task.task)}", task.task))
    return page("medlive: protocols", body, nav)


def read_portfolio(path: Path) -> Portfolio:
    """Read a `portfolio.json`; `path` is the file or its folder. Raises BadInput."""
    return read_json(
        path / PORTFOLIO if path.is_dir() else path,
        Portfolio,
        PORTFOLIO,
    )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


Ranked = Sequence[ModelScore | FreshScore]


def summarise(report: Report) -> dict[str, str]:
    """The report's first sentences, each under what it is about.

    Who leads is by the ranking after every cutoff if that has enough cases, else by the one on all cases.
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
    return {"Who leads": leads, "Missing or wrong": _missing(report)}


def _scored(models: Ranked) -> Ranked:
    """The models that have a score."""
    return [model for model in models if model.overall.value is not None]


def tied_with(
    leader: str,
    others: Sequence[str],
    pairs: Sequence[Comparison],
) -> list[str]:
    """The others that are not significantly below the leader, also those that were not compared with it."""
    below = pairs_below(pairs)
    return [other for other in others if (other, leader) not in below]


def _lead(ranked: Ranked, pairs: Sequence[Comparison]) -> str:
    """Who leads, by how much, and who is tied, in a sentence."""
    first, others = ranked[0], [model.label for model in ranked[1:]]
    score = first.overall
    value = f"{percent(score.value)} % (95 % interval {interval(score.low, score.high)}, n={score.n})"
    if not others:
        return f"{first.label} scores {value}; no other model is ranked."
    tied = tied_with(first.label, others, pairs)
    if not tied:
        return f"{first.label} leads with {value}, significantly ahead of all others."
    return f"{first.label} scores highest, {value}, and is tied with {some(tied)}."


def _missing(report: Report) -> str:
    """What is missing or wrong, in a sentence."""
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
    if report.table.warnings:
        missing.append("the warnings below")
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
"""Bytes that tell a report's first page from other files."""
PROTOCOLS = "protocols.html"


def write_report(
    table: ScoreTable,
    out: Path,
    *,
    registry: Registry = EMPTY,
    metas: tuple[Meta, ...] = (),
    portfolio: Portfolio | None = None,
) -> Path:
    """Write the report of a score table into the folder `out`; return its first page.

    `index.html` with the figures, `protocols.html` of a portfolio if there is one, `cases.html`, `cases/` with a
    page for each case, and `scores.json`, `scores.csv`, `scores.tsv`. An earlier report is replaced. Raises BadInput
    when the folder cannot be written, or holds something other than a report, and DiskFull.
    """
    with writing(out):
        _check_place(out)
    report = analyse(table, registry, metas)
    case_entries = entries(report)
    pages = {
        "index.html": index(report, len(case_entries), protocols=bool(portfolio)),
        LIST: case_list(report, case_entries),
    }
    if portfolio:
        pages[PROTOCOLS] = portfolio_page(portfolio)
    files = {name: utf8(text) for name, text in pages.items()}
    for suffix, write in WRITERS.items():
        files[f"scores.{suffix}"] = write(table)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".report-", dir=out) as temporary:
            made = Path(temporary)
            for name, data in files.items():
                (made / name).write_bytes(data)
            (made / "cases").mkdir()
            write_case_pages(report, case_entries, made / "cases")
            shutil.rmtree(out / "cases", ignore_errors=True)
            (out / PROTOCOLS).unlink(missing_ok=True)
            # The first page goes first: by it the folder is known as a report, should the rest be cut off.
            os.replace(made / "index.html", out / "index.html")
            for path in made.iterdir():
                os.replace(path, out / path.name)
    return out / "index.html"


def _check_place(out: Path) -> None:
    """Raise BadInput if the folder holds files other than an earlier report's."""
    first = out / "index.html"
    is_report = first.is_file() and _OURS in first.read_bytes()[:20_000]
    if is_report or not out.exists():
        return
    # A report that was broken off left a hidden folder.
    if any(not path.name.startswith(".") for path in out.iterdir()):
        raise BadInput(
            f"{out} is not empty and not a report of medlive: nothing was replaced",
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
    sections = [*(make(report) for make in SECTIONS), *other_slices(report)]
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
