"""What tells people about a snapshot: the dataset card, the change note, the terms."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files as package_files
from typing import Final

from medlive.charts import number
from medlive.snapshot.describe import figures
from medlive.snapshot.describe.figures import by_span, counted
from medlive.snapshot.describe.markdown import cell, scalar, table
from medlive.snapshot.diff import Change, ChangeKind
from medlive.snapshot.manifest import Counts, Provenance, Signing, moment_text

SUMMARY: Final = (
    "Clinical cases rewritten from public medical discussions, each with a question, the physicians' advice "
    "and a rubric of weighted criteria by which a language model's answer is graded."
)

LIMITS: Final = (
    "A discussion is no examination: a case holds what one person chose to write.",
    "The advice was given to one person at one time. It may be wrong or out of date, and it is no guideline.",
    "People who write online in English or Chinese are not all patients: the old, the very ill, those without a "
    "network and speakers of other languages are under-represented.",
    "Cases were rewritten, and rubrics written, by language models under checks in code; errors remain.",
    "A score says how far answers meet rubrics. It is no proof that a model is safe to use with patients.",
)

MOST_ADDED: Final = 200
"""More added cases than this are counted in CHANGES.md, not listed; `changes.json` lists them all."""

MOST_ROWS: Final = 60
"""Rows of a table over time; where there would be more, neighbours share one."""

_MOST_REASON: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What the card and Croissant speak of."""

    version: str
    created_at: datetime
    parent: str | None
    parent_digest: str | None
    counts: Counts
    provenance: Provenance
    why_not: Sequence[str]
    """Why it may not be published; empty when it may."""
    canary: str
    rows: str
    """A digest of the rows as data/cases.jsonl and data/criteria.jsonl hold them."""
    signing: Signing | None
    """None: no key signed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeNote:
    """What the change note tells."""

    version: str
    parent: str | None
    canary: str
    numbers: Mapping[ChangeKind, int]
    """How many changes there are of each kind; a kind that is missing has none."""
    added_by_language: Mapping[str, int]
    """Of the added cases; read where more than MOST_ADDED were added."""
    added_by_source: Mapping[str, int]
    entries: Callable[[ChangeKind], Iterable[Change]]
    """The changes of a kind, in order; read once, and not at all for more than MOST_ADDED added cases."""
    revealed: int = 0
    """Cases held out before, shown now with their proof."""
    dropped: int = 0
    """Cases held out before, withdrawn without having been shown."""


def licence(canary: str) -> str:
    """`LICENSE`: the terms of use, and the canary."""
    terms = package_files("medlive.snapshot").joinpath("terms.txt").read_text(encoding="utf-8")
    return f"{terms}\nCanary: {canary}\n"


def changes_md(of: ChangeNote) -> Iterator[str]:
    """`CHANGES.md` in pieces: revised and withdrawn cases in full, added ones in full up to MOST_ADDED."""
    since = f"since {of.parent}" if of.parent else "(the first release)"
    yield f"# Changes in medlive {of.version} {since}\n"
    for kind in ChangeKind:
        total = of.numbers.get(kind, 0)
        yield f"\n## {kind.value.capitalize()}: {number(total)}\n" + ("\n" if total else "")
        if kind is ChangeKind.ADDED and total > MOST_ADDED:
            yield "Too many to list here: `changes.json` names each.\n\n"
            yield _shares("language", of.added_by_language) + "\n" + _shares("source", of.added_by_source)
        elif total:
            yield "| case | revision | reason |\n| --- | --- | --- |\n"
            for c in of.entries(kind):
                steps = [str(r) for r in (c.from_revision, c.to_revision) if r is not None]
                yield f"| {cell(c.case_id)} | {' → '.join(steps)} | {cell(c.reason, _MOST_REASON)} |\n"
    if of.revealed or of.dropped:
        yield "\n## Held out before\n\n"
        yield f"{counted(of.revealed, 'case is', 'cases are')} shown now, with the proof in `holdouts.json`; "
        yield f"{counted(of.dropped, 'was', 'were')} withdrawn without having been shown.\n"
    yield f"\nCanary: {of.canary}\n"


def readme(of: Described) -> str:
    """`README.md`: the dataset card, its front matter as the Hugging Face hub and `datasets` read it."""
    return "\n".join(
        part
        for part in (
            _front_matter(of),
            f"# medlive {of.version}\n\n{SUMMARY}\n",
            _warning(of),
            _at_a_glance(of),
            _loading(of),
            _checking(of),
            _contents(of),
            _held_out(of),
            _making(of),
            _uses(of),
            _citing(of),
            _withdrawing(of),
            f"Canary: {of.canary}\n",
        )
        if part
    )


def _front_matter(of: Described) -> str:
    languages = "".join(f"- {scalar(code)}\n" for code in sorted(of.counts.by_language))
    # `datasets` keeps what it has read under the folder's name and these configs, whatever the files hold. Without
    # words that differ, it would give the rows of another build of the same week: a demonstration's, say.
    made = scalar(
        f"medlive {of.version}, made {moment_text(of.created_at)}, {of.counts.cases} cases, "
        f"{of.counts.criteria} criteria, rows {of.rows}"
    )
    return f"""---
pretty_name: {scalar(f"medlive {of.version}")}
{f"language:{chr(10)}{languages}" if languages else ""}license: other
license_name: medlive-data-terms
license_link: LICENSE
annotations_creators:
- machine-generated
language_creators:
- found
- machine-generated
multilinguality:
- {"multilingual" if len(of.counts.by_language) > 1 else "monolingual"}
source_datasets:
- original
task_categories:
- question-answering
- text-generation
tags:
- medical
- clinical
- benchmark
- evaluation
- rubric
size_categories:
- {_size_category(of.counts.cases)}
configs:
- config_name: cases
  description: {made}
  default: true
  data_files:
  - split: test
    path: data/cases.parquet
- config_name: criteria
  description: {made}
  data_files:
  - split: test
    path: data/criteria.parquet
---
"""


def _size_category(n: int) -> str:
    steps = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
    return next((name for limit, name in steps if n < limit), "1M<n<10M")


def _warning(of: Described) -> str:
    if not of.why_not:
        return ""
    reasons = "".join(f"> - {cell(reason)}\n" for reason in of.why_not)
    return (
        "> [!WARNING]\n"
        "> **Not publishable. DO NOT CITE THIS SNAPSHOT, AND DO NOT COMPARE SCORES ON IT.**\n>\n"
        f"> Its own gates say why:\n>\n{reasons}"
    )


def _at_a_glance(of: Described) -> str:
    counts = of.counts
    after = "nothing: the first of its line"
    if of.parent:
        after = of.parent + (f", `{of.parent_digest}`" if of.parent_digest else "")
    signed = f"with minisign, key `{of.signing.key_id}`" if of.signing else "**no**: this release has no key"
    new = counts.by_first_release.get(of.version, 0)
    rows = [
        ("made", f"{of.created_at:%Y-%m-%d}"),
        ("comes after", after),
        ("cases", f"{number(counts.cases)}, {number(new)} of them first in this release"),
        ("criteria", number(counts.criteria)),
        ("held out", counted(counts.held, "case", "cases")),
        ("signed", signed),
        ("publishable", "**no**" if of.why_not else "yes"),
    ]
    return table(("", f"medlive {of.version}"), rows)


def _loading(of: Described) -> str:
    folder = f"medlive-{of.version}"
    return f"""## Load

From the folder above this one, or with the path of this one:

```python
from medlive import load_snapshot

snapshot = load_snapshot("{folder}")  # verified first
newer = snapshot.filter(first_release_after="2026.W40")
```

```python
from datasets import load_dataset

cases = load_dataset("{folder}", split="test")
criteria = load_dataset("{folder}", "criteria", split="test")
```

`data/*.jsonl` are the snapshot's identity. `data/*.parquet` and `livemedbench.json`, which LiveMedBench's scripts
read, hold the same. Every case has its `first_release`: a model whose training ended before that week cannot have
seen the case here, so that `newer` is what is newer than a model of that age. It may have seen the discussion from
which a case was written: `posted_at` says when that began.
"""


def _checking(of: Described) -> str:
    if of.signing is None:
        return """## Check

**This release is not signed.** The digests show whether the files are whole; nothing shows who made them. Inside
the folder:

```sh
sha256sum -c --strict SHA256SUMS
medlive snapshot verify .
```
"""
    return f"""## Check

Signed with the key `{of.signing.key_id}`. Compare that with the key you have from elsewhere: a key that comes
with the files it signs proves nothing. Inside the folder:

```sh
minisign -VHm SHA256SUMS -P {of.signing.public_key}
sha256sum -c --strict SHA256SUMS
medlive snapshot verify . --public-key ../minisign.pub
```

`minisign` checks who signed, `sha256sum` that every byte is as it was, `medlive snapshot verify` both and what the
files mean. `minisign.pub` lies beside the snapshots wherever they are published.
"""


def _contents(of: Described) -> str:
    counts = of.counts
    languages = {figures.LANGUAGE_NAMES.get(code, code): n for code, n in counts.by_language.items()}
    span, months = by_span(counts.by_month, MOST_ROWS)
    if span == "month":
        # As the figure, but without the months in which nothing was posted.
        months = {month: n for month, n in months.items() if n}
    release, releases = "first release", dict(sorted(counts.by_first_release.items()))
    if len(releases) > MOST_ROWS:
        release, releases = "first release, by year", _summed(releases)
    sizes = sorted((int(size), n) for size, n in counts.criteria_per_case.items())
    parts = [
        "## What is in it\n",
        _figure("Cases by specialty", figures.SPECIALTIES),
        _folded("Cases by specialty", _shares("specialty", counts.by_specialty)),
        _figure("Cases by theme", figures.THEMES),
        _shares("theme", counts.by_theme),
        _figure("Languages and sources", figures.SOURCES),
        _shares("language", languages),
        _shares("source", counts.by_source),
        _figure("Criteria by axis", figures.AXES),
        _shares("axis", counts.by_axis),
        _figure("Criteria per case", figures.CRITERIA_PER_CASE),
        _folded(
            "Criteria per case", table(("criteria", "cases"), [(str(s), number(n)) for s, n in sizes], right=2)
        ),
        _figure("Cases over time, by the day on which they were posted", figures.MONTHS),
        _folded(f"Cases by {span} of posting", _shares(f"{span} of posting", months, ranked=False)),
        _folded(f"Cases by {release}", _shares(release, releases, ranked=False)),
    ]
    return "\n".join(parts)


def _figure(title: str, path: str) -> str:
    return f"![{title}: a chart whose numbers stand in the table below it]({path})\n"


def _folded(title: str, body: str) -> str:
    # The empty lines make Markdown of what stands inside the HTML.
    return f"<details>\n<summary>{title}, in numbers</summary>\n\n{body.rstrip()}\n\n</details>\n"


def _shares(title: str, counts: Mapping[str, int], *, ranked: bool = True) -> str:
    whole = sum(counts.values())
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0])) if ranked else counts.items()
    rows = [(cell(name), number(n), f"{n / whole:.1%}" if whole else "") for name, n in order]
    return table((title, "n", "share"), rows, right=2)


def _summed(releases: Mapping[str, int]) -> dict[str, int]:
    years: dict[str, int] = {}
    for version, n in releases.items():
        year = version.partition(".")[0]
        years[year] = years.get(year, 0) + n
    return years


def _held_out(of: Described) -> str:
    held = of.counts.held
    if not held:
        return """## Held-out cases

None: every case that this release knows is in it.
"""
    return f"""## Held-out cases

{counted(held, "further case is", "further cases are")} held out: `holdouts.json` holds a salted SHA-256 of each
and nothing else, so that nobody can train on them. A later release shows them and gives the salts, by which
anybody can prove that they were fixed when this release was made. They are in no other number of this card.
"""


def _making(of: Described) -> str:
    made = of.provenance
    engines = table(
        ("role", "engine", "model"), [(cell(e.role), cell(e.engine), cell(e.model)) for e in made.engines]
    )
    evidence = "".join(
        f"- {cell(e.retriever)}, {counted(e.passages, 'passage', 'passages')}, index {cell(e.index_digest)}; "
        + "corpora: "
        + (", ".join(f"{cell(name)} {cell(digest)}" for name, digest in sorted(e.corpora.items())) or "none")
        + "\n"
        for e in made.evidence
    )
    thresholds = [(cell(name), cell(str(value))) for name, value in sorted(made.thresholds.items())]
    return (
        f"## How it was made\n\nWith medlive {cell(made.code_version)}: discussions were filtered, rewritten "
        "without what identifies people, judged against evidence, and given a rubric, in that order.\n\n"
        f"{engines}\nEvidence:\n\n{evidence or '- none' + chr(10)}\n{table(('threshold', 'value'), thresholds)}\n"
        "The prompts' digests are in `manifest.json`.\n"
    )


def _uses(of: Described) -> str:
    limits = "".join(f"- {limit}\n" for limit in LIMITS)
    return f"""## Uses

Fine: evaluating language models, research on such evaluation, publishing scores and single cases with the version
named, passing on an unchanged copy with its `LICENSE`.

Not fine: medical advice, diagnosis or treatment; training, fine-tuning or distilling a model, or putting a case
into a training corpus; looking for the people behind a discussion; ranking models by a snapshot that is not
publishable.

## Limits

{limits}
No address, author, handle or raw message of a discussion is in a snapshot.
"""


def _citing(of: Described) -> str:
    return f"""## Cite

Name the version and the digest of `SHA256SUMS`, which fixes every byte of the folder. The digest cannot stand in a
file that it covers, so take it from the folder:

```sh
sha256sum SHA256SUMS
```

`load_snapshot(...).digest` is the same.

```bibtex
{bibtex(of)}
```
"""


def bibtex(of: Described) -> str:
    """A BibTeX entry with a place for the digest, which no file of the snapshot can hold."""
    key = "medlive-" + of.version.replace(".", "-")
    return (
        f"@misc{{{key},\n  title = {{medlive {of.version}}},\n  author = {{medlive}},\n"
        f"  year = {{{of.created_at:%Y}}},\n  note = {{SHA256SUMS sha256:DIGEST, canary {of.canary}}}\n}}"
    )


def _withdrawing(of: Described) -> str:
    return """## Errors and withdrawals

Who recognises a case, as a patient, a physician or the owner of a community, can have it withdrawn: tell whoever
published this snapshot the case's id, or enough of its text to find it. Later releases leave the case out, and
their `CHANGES.md` says that a case was withdrawn, and why, without its words. Errors in a case or a criterion are
reported in the same way.

A frozen snapshot never changes. What was withdrawn or found wrong afterwards stands in `errata.json`, beside the
snapshots' folders: read it before you use this one. `medlive eval score --errata apply` leaves out what it names.
What changed since the release before is in `CHANGES.md`, and for machines in `changes.json`.
"""
