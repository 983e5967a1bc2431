"""The texts of a snapshot for people: dataset card (`readme`), change note (`changes_md`), terms (`licence`)."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files as package_files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from medlive.snapshot.contents import CHANGES, SECTIONS
from medlive.snapshot.manifest import (
    Counts,
    EvidenceUse,
    Manifest,
    moment_text,
)
from medlive.statistics.charts import number, plain

from .figures import (
    by_language_name,
    by_month,
    by_rank,
    by_size,
    counted,
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
"""CHANGES.md lists up to this many added cases, and only counts more; `changes.json` lists them all."""
_MOST_REASON = 2_000  # characters
# Limits of the hub's size categories
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
"""What pages of GitHub and its like turn into a link without brackets."""


def licence(canary: str) -> str:
    """Return `LICENSE`: the terms of use, and the canary."""
    file = package_files("medlive.snapshot").joinpath("terms.txt")
    terms = file.read_text(encoding="utf-8")
    return f"{terms}\nCanary: {canary}\n"


def changes_md(
    meta: Manifest,
    numbers: Mapping[str, int],
    entries: Callable[[str], Iterable[Mapping[str, Any]]],
) -> Iterator[str]:
    """Yield `CHANGES.md` in pieces: revised and withdrawn cases in full, added ones in full up to MOST_ADDED.

    `numbers` has each ledger section's number of entries. `entries` returns the entries of a section; it is not called
    for more than MOST_ADDED added cases.
    """
    since = f"since {meta.parent}" if meta.parent else "(the first release)"
    yield f"# Changes in medlive {meta.version} {since}\n"
    if meta.partial is not None:
        yield f"\nThe week is partial: {cell(meta.partial.in_short, _MOST_REASON)}. The rest enters a later one.\n"
    for kind in SECTIONS[CHANGES]:
        total = numbers[kind]
        yield f"\n## {kind.capitalize()}: {number(total)}\n" + ("\n" if total else "")
        if kind == "added" and total > MOST_ADDED:
            yield "Too many to list here: `changes.json` names each.\n"
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


def readme(meta: Manifest, rows: str) -> str:
    """Return `README.md`: the dataset card, its front matter as the Hugging Face hub and `datasets` read it.

    `rows` is a digest of data/cases.jsonl and data/criteria.jsonl.
    """
    counts = meta.counts
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
        months=by_month(counts),
        proof=_proof(counts),
        headroom=headroom[:1].upper() + headroom[1:],
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
    env.filters.update(cell=cell, scalar=json.dumps, number=number)
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
    """How many rubrics were proved, and the means of the proofs' figures."""
    proof = counts.proof
    share = f"{number(proof.cases)} of {number(counts.cases)}"
    if not proof.cases:
        return share
    return (
        f"{share}; of these, mean ceiling {proof.ceiling:.3f}, floor {proof.floor:.3f},"
        f" separation {proof.separation:.3f}"
    )


def _corpora(evidence: EvidenceUse) -> str:
    """The corpora of an evidence index with their digests."""
    named = []
    for name, digest in sorted(evidence.corpora.items()):
        named.append(f"{cell(name)} {cell(digest)}")
    return ", ".join(named) or "none"


def _shares(
    title: str,
    counts: Mapping[str, int],
    *,
    ranked: bool = True,
) -> str:
    """A table of counts with their shares; if `ranked`, the most frequent first."""
    whole = sum(counts.values())
    rows = []
    for name, n in by_rank(counts) if ranked else counts.items():
        rows.append((cell(name), number(n), f"{n / whole:.1%}" if whole else ""))
    return table((title, "n", "share"), rows, right=2)


def bibtex(meta: Manifest) -> str:
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


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: int = 0,
) -> str:
    """Return a Markdown table of cells; the last `right` columns are aligned to the right."""
    marks = ["---"] * (len(heads) - right) + ["---:"] * right
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, marks, *rows))
