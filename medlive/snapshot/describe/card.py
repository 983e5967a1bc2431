"""A snapshot for people: the dataset card with its figures, the change note, the terms.

The figures say what the cases are about and where they come from (LiveMedBench, Figure 3).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files as package_files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from medlive.snapshot.contents import CHANGES, SECTIONS
from medlive.snapshot.manifest import (
    Counts,
    EvidenceUse,
    SnapshotMeta,
    moment_text,
    warnings_of,
)
from medlive.statistics.charts import (
    Bar,
    Frame,
    bars,
    columns,
    histogram,
    number,
    plain,
)

SUMMARY = (
    "Clinical cases rewritten from public medical discussions, each with a question, the physicians' advice "
    "and a rubric of weighted criteria by which a language model's answer is graded."
)

LIMITS = (
    "A discussion is no examination: a case holds what one person chose to write.",
    "The advice was given to one person at one time. It may be wrong or out of date, and it is no guideline.",
    "People who write online in English or Chinese are not all patients: the old, the very ill, those without a "
    "network and speakers of other languages are under-represented.",
    "Cases were rewritten, and rubrics written, by language models under checks in code; errors remain.",
    "A score says how far answers meet rubrics. It is no proof that a model is safe to use with patients.",
)

MOST_ADDED = 200
"""More added cases than this are counted in CHANGES.md, not listed; `changes.json` lists them all."""
MOST_ROWS = 60
"""Rows of a table over time; where there would be more, neighbours share one."""
_MOST_REASON = 2_000
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
)

# What Markdown would take for markup: anywhere in a line, and at the beginning of a line or a list's item.
_MARKUP = re.compile(r"([\\`*_\[\]|~$])")
_OPENING = re.compile(r"^(\d*)([#+\-.)])(?=[\s#+-]|$)")
_ADDRESS = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)
"""What a forge's page makes a link of, without brackets."""

LANGUAGE_NAMES: Mapping[str, str] = {"en": "English", "zh": "Chinese (中文)"}
_MOST_COLUMNS = 72
"""Six years of months; more of them would be thinner than a telephone can show."""
_SPANS = ((1, "month"), (3, "quarter"), (12, "year"))
"""Months that share a column, and what such a column is called."""


def licence(canary: str) -> str:
    """Return `LICENSE`: the terms of use, and the canary."""
    file = package_files("medlive.snapshot").joinpath("terms.txt")
    terms = file.read_text(encoding="utf-8")
    return f"{terms}\nCanary: {canary}\n"


def changes_md(
    meta: SnapshotMeta,
    numbers: Mapping[str, int],
    added: Counts,
    entries: Callable[[str], Iterable[Mapping[str, Any]]],
) -> Iterator[str]:
    """Yield `CHANGES.md` in pieces: revised and withdrawn cases in full, added ones in full up to MOST_ADDED.

    `numbers` has for each section of a ledger how many entries it has, `added` the counts of the added cases
    alone; `entries` returns those of a section, and is not called for more than MOST_ADDED added cases.
    """
    since = f"since {meta.parent}" if meta.parent else "(the first release)"
    yield f"# Changes in medlive {meta.version} {since}\n"
    if meta.partial is not None:
        yield f"\nThe week is partial: {cell(meta.partial.in_short, _MOST_REASON)}. The rest enters a later one.\n"
    for kind in SECTIONS[CHANGES]:
        total = numbers[kind]
        yield f"\n## {kind.capitalize()}: {number(total)}\n" + ("\n" if total else "")
        if kind == "added" and total > MOST_ADDED:
            yield "Too many to list here: `changes.json` names each.\n\n"
            yield _shares("language", added.by_language) + "\n"
            yield _shares("source", added.by_source)
        elif total:
            yield "| case | revision | reason |\n| --- | --- | --- |\n"
            for entry in entries(kind):
                ends = filter(None, (entry["from_revision"], entry["to_revision"]))
                steps = " → ".join(map(str, ends))
                reason = cell(entry["reason"], _MOST_REASON)
                yield f"| {cell(entry['case_id'])} | {steps} | {reason} |\n"
    revealed = numbers["revealed"]
    dropped = numbers["dropped"]
    if revealed or dropped:
        yield "\n## Held out before\n\n"
        yield f"{counted(revealed, 'case is', 'cases are')} shown now, with the proof in `holdouts.json`; "
        yield f"{counted(dropped, 'was', 'were')} withdrawn without having been shown.\n"
    yield f"\nCanary: {meta.canary}\n"


def readme(
    meta: SnapshotMeta,
    counts: Counts,
    rows: str,
) -> str:
    """Return `README.md`: the dataset card, its front matter as the Hugging Face hub and `datasets` read it.

    `rows` is a digest of the rows as data/cases.jsonl and data/criteria.jsonl hold them.
    """
    span, months = by_span(counts.by_month, MOST_ROWS)
    if span == "month":
        # As the figure, but without the months in which nothing was posted.
        months = {month: n for month, n in months.items() if n}
    release = "first release"
    releases = dict(sorted(counts.by_first_release.items()))
    if len(releases) > MOST_ROWS:
        release = "first release, by year"
        years = Counter[str]()
        for version, n in releases.items():
            years[version.partition(".")[0]] += n
        releases = dict(years)
    headroom = counts.headroom.words
    if counts.headroom.is_little:
        headroom += ". **These rubrics leave little room above it: they hardly tell good models apart**"
    return _template().render(
        meta=meta,
        counts=counts,
        made=f"medlive {meta.version}, made {moment_text(meta.created_at)}, {counts.cases} cases, "
        f"{counts.criteria} criteria, rows {rows}",
        size=next((name for limit, name in _SIZES if counts.cases < limit), "1M<n<10M"),
        languages=by_language_name(counts),
        sizes=[(str(size), number(n)) for size, n in by_size(counts).items()],
        span=span,
        months=months,
        release=release,
        releases=releases,
        proof=_proof(counts),
        headroom=headroom[:1].upper() + headroom[1:],
        warnings=warnings_of(meta.provenance),
        engines=[
            (cell(e.role), cell(e.engine), cell(e.model))
            for e in meta.provenance.engines
        ],
        thresholds=[
            (cell(name), cell(str(value)))
            for name, value in sorted(meta.provenance.thresholds.items())
        ],
    )


@cache
def _template() -> Template:
    env = Environment(
        loader=PackageLoader("medlive.snapshot.describe"),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters.update(
        cell=cell,
        scalar=scalar,
        number=number,
    )
    env.globals.update(
        counted=counted,
        shares=_shares,
        table=table,
        corpora=_corpora,
        bibtex=bibtex,
        summary=SUMMARY,
        limits=LIMITS,
    )
    return env.get_template("card.md.j2")


def _proof(counts: Counts) -> str:
    """How many rubrics were proved, and the means of what the proofs say."""
    proof = counts.proof
    share = f"{number(proof.cases)} of {number(counts.cases)}"
    if not proof.cases:
        return share
    return (
        f"{share}; of these, mean ceiling {proof.ceiling:.3f}, floor {proof.floor:.3f},"
        f" separation {proof.separation:.3f}"
    )


def _corpora(evidence: EvidenceUse) -> str:
    named = []
    for name, digest in sorted(evidence.corpora.items()):
        named.append(f"{cell(name)} {cell(digest)}")
    return ", ".join(named) or "none"


def _shares(title: str, counts: Mapping[str, int], *, ranked: bool = True) -> str:
    whole = sum(counts.values())
    rows = []
    for name, n in by_rank(counts) if ranked else counts.items():
        rows.append((cell(name), number(n), f"{n / whole:.1%}" if whole else ""))
    return table((title, "n", "share"), rows, right=2)


def bibtex(meta: SnapshotMeta) -> str:
    """Return a BibTeX entry with a place for the digest, which no file of the snapshot can hold."""
    key = "medlive-" + meta.version.replace(".", "-")
    return (
        f"@misc{{{key},\n  title = {{medlive {meta.version}}},\n  author = {{medlive}},\n"
        f"  year = {{{meta.created_at:%Y}}},\n  note = {{SHA256SUMS sha256:DIGEST, canary {meta.canary}}}\n}}"
    )


def cell(text: str, most: int = 300) -> str:
    """Return a text as a table's cell shows it: one line, no markup, no control characters."""
    text = _MARKUP.sub(r"\\\1", plain(text, most).strip())
    text = _ADDRESS.sub(r"\\\g<0>", _OPENING.sub(r"\1\\\2", text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def scalar(text: str) -> str:
    """Return a text as a double-quoted YAML scalar, which no content of it can end."""

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\u{code:04X}" if code < 0x1_0000 else f"\\U{code:08X}"

    return '"' + re.sub(r"[^ -~]", escape, re.sub(r'(["\\])', r"\\\1", text)) + '"'


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: int = 0,
) -> str:
    """Return a Markdown table of cells; the last `right` columns are aligned to the right."""
    marks = ["---"] * (len(heads) - right) + ["---:"] * right
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, marks, *rows))


# --- figures


def figures(
    counts: Counts,
    canary: str,
    version: str,
) -> dict[str, str]:
    """Return path → SVG; the same counts make the same text."""
    cases = counted(counts.cases, "case", "cases")
    criteria = counted(counts.criteria, "criterion", "criteria")

    def frame(
        title: str,
        description: str,
        note: str = cases,
    ) -> Frame:
        return Frame(
            title,
            f"medlive {version}: {description}",
            canary,
            f"medlive {version}, {note}",
        )

    sizes = by_size(counts)
    per_case = cases
    if rated := sum(sizes.values()):
        mean = sum(size * n for size, n in sizes.items()) / rated
        per_case += f", mean {mean:.2f} criteria, from {min(sizes)} to {max(sizes)}"
    span, months = by_span(counts.by_month)
    languages = by_language_name(counts)
    return {
        "figures/axes.svg": bars(
            frame("Criteria by axis", "what the criteria measure.", criteria),
            {"": _bars(counts.by_axis)},
        ),
        "figures/criteria-per-case.svg": histogram(
            frame(
                "Criteria per case", "how many cases have how many criteria.", per_case
            ),
            sizes,
        ),
        "figures/months.svg": columns(
            frame(
                f"Cases per {span}",
                f"how many cases were opened in each {span}, by the posting date in UTC.",
            ),
            [Bar(label, n) for label, n in months.items()],
        ),
        "figures/sources.svg": bars(
            frame(
                "Languages and sources",
                "in which languages the cases are, and from which communities.",
            ),
            {
                "Languages": _bars(languages),
                "Sources": _bars(counts.by_source),
            },
        ),
        "figures/specialties.svg": bars(
            frame("Cases by specialty", "which specialties they belong to."),
            {"": _bars(counts.by_specialty)},
        ),
        "figures/themes.svg": bars(
            frame("Cases by theme", "what the cases chiefly test."),
            {"": _bars(counts.by_theme)},
        ),
    }


def by_size(counts: Counts) -> dict[int, int]:
    """Number of criteria → cases that have so many, in order."""
    sizes = {int(size): n for size, n in counts.criteria_per_case.items()}
    return dict(sorted(sizes.items()))


def by_language_name(counts: Counts) -> dict[str, int]:
    """Name of a language, or its code without one → cases in it."""
    named = {}
    for code, n in counts.by_language.items():
        named[LANGUAGE_NAMES.get(code, code)] = n
    return named


def counted(
    n: int,
    singular: str,
    more: str,
) -> str:
    """`1 case`, `2,756 cases`."""
    return f"{number(n)} {singular if n == 1 else more}"


def by_span(
    by_month: Mapping[str, int], most: int = _MOST_COLUMNS
) -> tuple[str, dict[str, int]]:
    """Return counts by the shortest span that takes at most `most` columns, or by year, empty ones included.

    `by_month`: `2025-03` → n. The span is "month", "quarter" or "year"; the keys are `2025-03`, `2025-Q1`, `2025`,
    in order.
    """
    places = {
        int(month[:-3]) * 12 + int(month[-2:]) - 1: n for month, n in by_month.items()
    }
    if not places:
        return "month", {}
    low = min(places)
    high = max(places)
    span, name = next(
        ((s, name) for s, name in _SPANS if high // s - low // s < most), _SPANS[-1]
    )
    tally = dict.fromkeys(range(low // span, high // span + 1), 0)
    for place, n in places.items():
        tally[place // span] += n
    labels = {}
    for place, n in tally.items():
        year, month = divmod(place * span, 12)
        within = {"month": f"-{month + 1:02d}", "quarter": f"-Q{month // 3 + 1}"}
        labels[f"{year:04d}{within.get(name, '')}"] = n
    return name, labels


def by_rank(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most frequent first, equals by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _bars(counts: Mapping[str, int]) -> list[Bar]:
    """The most frequent first, each with its share."""
    whole = sum(counts.values())
    bars = []
    for name, n in by_rank(counts):
        share = f" ({n / whole:.1%})" if whole else ""
        bars.append(Bar(name, n, f"{number(n)}{share}"))
    return bars
