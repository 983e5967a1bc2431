"""What describes a snapshot to people and machines: the dataset card, the change note, Croissant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from medlive.snapshot.diff import Change, ChangeKind
from medlive.snapshot.manifest import Counts, FileEntry, Provenance
from medlive.snapshot.model import CASE_FIELDS, CRITERION_FIELDS

SUMMARY = (
    "Clinical cases rewritten from public medical discussions, each with a question, the physicians' advice "
    "and a rubric of weighted criteria by which a language model's answer is graded."
)

LIMITS = (
    "For research evaluation only: no medical advice, no diagnosis or treatment, no training of models. "
    "Discussions are not examinations; advice was given to one person from what that person wrote. Two "
    "languages, four kinds of community, people who write online: other patients are under-represented."
)


@dataclass(frozen=True, slots=True)
class Described:
    """What the card and Croissant speak of."""

    version: str
    created_at: datetime
    parent: str | None
    counts: Counts
    provenance: Provenance
    why_not: Sequence[str]
    canary: str


_FIELD_TEXT = {
    "case_id": "the case's id, stable over releases",
    "revision": "the revision of the case that this release holds",
    "first_release": "the version that first held the case",
    "language": "en or zh",
    "source": "the community it came from",
    "posted_at": "the day of the discussion's opening, in UTC",
    "specialty": "one of 38 specialties, or unknown",
    "theme": "what the case chiefly tests",
    "narrative": "what the patient states, rewritten",
    "query": "the question",
    "advice": "what verified physicians advised, rewritten",
    "criterion_id": "the criterion's id",
    "position": "its place in the rubric, from 1",
    "criterion": "a statement or question that an answer meets or does not",
    "axis": "what the criterion measures",
    "points": "weight in [-10, 10]; negative where meeting it is an error",
}


def _table(title: str, counts: Mapping[str, int]) -> str:
    rows = "".join(f"| {_cell(name)} | {count} |\n" for name, count in sorted(counts.items()))
    return f"| {title} | n |\n| --- | ---: |\n{rows}\n"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _size_category(n: int) -> str:
    for limit, name in ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K")):
        if n < limit:
            return name
    return "100K<n<1M"


def changes_json(version: str, parent: str | None, changes: Sequence[Change]) -> dict[str, Any]:
    """`changes.json`: since the parent, by kind."""
    return {
        "version": version,
        "parent": parent,
        **{kind.value: [c.row() for c in changes if c.kind is kind] for kind in ChangeKind},
    }


def changes_md(version: str, parent: str | None, changes: Sequence[Change]) -> str:
    """`CHANGES.md`: the same for people."""
    since = f"since {parent}" if parent else "(the first release)"
    parts = [f"# Changes in {version} {since}\n"]
    for kind in ChangeKind:
        rows = [c for c in changes if c.kind is kind]
        parts.append(f"\n## {kind.value.capitalize()}: {len(rows)}\n\n")
        if rows:
            parts.append("| case | revision | reason |\n| --- | --- | --- |\n")
        for c in rows:
            steps = [str(r) for r in (c.from_revision, c.to_revision) if r is not None]
            parts.append(f"| {_cell(c.case_id)} | {' → '.join(steps)} | {_cell(c.reason)} |\n")
    return "".join(parts)


def readme(of: Described) -> str:
    """`README.md`: the dataset card, its front matter as the Hugging Face hub reads it."""
    languages = "".join(f"- {code}\n" for code in sorted(of.counts.by_language)) or "- en\n"
    warning = ""
    if of.why_not:
        reasons = "".join(f"- {reason}\n" for reason in of.why_not)
        warning = f"\n> **Not publishable.** Do not cite or compare scores on this snapshot.\n\n{reasons}"
    engines = "".join(
        f"| {_cell(e.role)} | {_cell(e.engine)} | {_cell(e.model)} |\n" for e in of.provenance.engines
    )
    evidence = "".join(
        f"- {_cell(e.retriever)}, {e.passages} passages, index `{e.index_digest}`; corpora: "
        + (", ".join(f"{_cell(name)} `{digest}`" for name, digest in sorted(e.corpora.items())) or "none")
        + "\n"
        for e in of.provenance.evidence
    )
    thresholds = "".join(f"| {_cell(k)} | {v} |\n" for k, v in sorted(of.provenance.thresholds.items()))
    return f"""---
pretty_name: medlive {of.version}
language:
{languages}license: other
license_name: medlive-data-terms
license_link: LICENSE
task_categories:
- question-answering
- text-generation
tags:
- medical
- clinical
- benchmark
- rubric
size_categories:
- {_size_category(of.counts.cases)}
configs:
- config_name: cases
  default: true
  data_files:
  - split: test
    path: data/cases.parquet
- config_name: criteria
  data_files:
  - split: test
    path: data/criteria.parquet
---

# medlive {of.version}

{SUMMARY}
{warning}
Made {of.created_at:%Y-%m-%d}, {f"after {of.parent}" if of.parent else "the first of its line"}. \
{of.counts.cases} cases, {of.counts.criteria} criteria.

## Load

```python
from medlive import load_snapshot

snapshot = load_snapshot("medlive-{of.version}")
```

`sha256sum -c SHA256SUMS` checks the files; `medlive snapshot verify` checks their meaning too.
`data/*.jsonl` are the snapshot's identity, `data/*.parquet` and `livemedbench.json` hold the same.

## What is in it

{_table("language", of.counts.by_language)}{_table("source", of.counts.by_source)}\
{_table("theme", of.counts.by_theme)}{_table("specialty", of.counts.by_specialty)}\
{_table("criteria by axis", of.counts.by_axis)}{_table("month of posting", of.counts.by_month)}\
## How it was made

medlive {_cell(of.provenance.code_version)}.

| role | engine | model |
| --- | --- | --- |
{engines}
Evidence:
{evidence or "- none" + chr(10)}
| threshold | value |
| --- | --- |
{thresholds}
Prompts, by digest, are in `manifest.json`.

## Limits

{LIMITS}

No address, author, handle or raw message of a discussion is in a snapshot. The terms are in `LICENSE`.

Canary: {of.canary}
"""


def croissant(of: Described, files: Mapping[str, FileEntry]) -> dict[str, Any]:
    """`croissant.json`: Croissant 1.0 metadata with the responsible-AI fields."""
    models = ", ".join(f"{e.role}: {e.engine} {e.model}" for e in of.provenance.engines) or "not recorded"
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": f"medlive-{of.version}",
        "description": SUMMARY,
        "version": of.version,
        "datePublished": f"{of.created_at:%Y-%m-%d}",
        "license": "LICENSE",
        "inLanguage": sorted(of.counts.by_language),
        "citeAs": f"medlive {of.version}, of.canary {of.canary}",
        "isLiveDataset": False,
        "rai:dataCollection": "Public discussion threads of medical communities, read with respect to robots.txt.",
        "rai:dataCollectionType": ["Web Scraping", "Secondary Data Analysis"],
        "rai:dataPreprocessingProtocol": [
            "Filtered by date, language, code-book terms, verified replies, duplicates and identifiers.",
            "Rewritten from extracted elements, each supported by a quote of its thread.",
            f"Code {of.provenance.code_version}; {models}.",
        ],
        "rai:dataAnnotationProtocol": "Criteria were derived from the physicians' advice and linted in code.",
        "rai:personalSensitiveInformation": [
            "Health statements of unnamed people. Names, places, numbers, addresses and handles are blocked."
        ],
        "rai:dataLimitations": [LIMITS],
        "rai:dataUseCases": ["Evaluation of language models' answers to clinical questions."],
        "rai:dataSocialImpact": "A high score is no proof that a model is safe to use with patients.",
        "rai:dataReleaseMaintenancePlan": "A release a week; cases are withdrawn with a reason, never silently.",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "contentUrl": name,
                "contentSize": f"{files[name].size} B",
                "encodingFormat": form,
                "sha256": files[name].sha256,
            }
            for name, form in _FORMATS
        ],
        "recordSet": [
            _record_set("cases", "data/cases.parquet", CASE_FIELDS, "case_id"),
            _record_set("criteria", "data/criteria.parquet", CRITERION_FIELDS, "criterion_id"),
        ],
    }


_FORMATS = (
    ("data/cases.jsonl", "application/jsonlines"),
    ("data/cases.parquet", "application/x-parquet"),
    ("data/criteria.jsonl", "application/jsonlines"),
    ("data/criteria.parquet", "application/x-parquet"),
    ("livemedbench.json", "application/json"),
)


def _record_set(name: str, file: str, fields: Mapping[str, type], key: str) -> dict[str, Any]:
    def field(column: str, kind: type) -> dict[str, Any]:
        data_type = "sc:Date" if column == "posted_at" else "sc:Integer" if kind is int else "sc:Text"
        described: dict[str, Any] = {
            "@type": "cr:Field",
            "@id": f"{name}/{column}",
            "name": f"{name}/{column}",
            "description": _FIELD_TEXT[column],
            "dataType": data_type,
            "source": {"fileObject": {"@id": file}, "extract": {"column": column}},
        }
        if name == "criteria" and column == "case_id":
            described["references"] = {"field": {"@id": "cases/case_id"}}
        return described

    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "key": {"@id": f"{name}/{key}"},
        "field": [field(column, kind) for column, kind in fields.items()],
    }


_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
