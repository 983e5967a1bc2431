"""What tells machines about a snapshot: Croissant 1.1 metadata with the responsible-AI vocabulary 1.0."""

from calendar import monthrange
from collections.abc import Mapping, Sequence
from typing import Any, Final

from medlive.snapshot.describe.card import LIMITS, SUMMARY, Described, bibtex
from medlive.snapshot.manifest import FileEntry
from medlive.snapshot.model import CASE_FIELDS, CRITERION_FIELDS

DESCRIBED_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "data/cases.jsonl": ("application/jsonlines", "The cases, one a line: the snapshot's identity."),
    "data/cases.parquet": ("application/x-parquet", "The same cases, for data frames."),
    "data/criteria.jsonl": ("application/jsonlines", "The criteria, one a line: the snapshot's identity."),
    "data/criteria.parquet": ("application/x-parquet", "The same criteria, for data frames."),
    "livemedbench.json": ("application/json", "Cases with their criteria, as LiveMedBench's scripts read them."),
}
"""The data files, each with its format and what it is."""

_FIELD_TEXT: Final = {
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
    "criterion_id": "the criterion's id, unique in the snapshot",
    "position": "its place in the rubric, from 1",
    "criterion": "a statement or question that an answer meets or does not",
    "axis": "what the criterion measures",
    "points": "weight in [-10, 10], never 0; negative where meeting it is an error",
    "canary": "a GUID: a text that holds it was copied from this snapshot",
}


def croissant(of: Described, files: Mapping[str, FileEntry]) -> dict[str, Any]:
    """`croissant.json`. Raises KeyError where `files` lacks one of DESCRIBED_FILES; it may hold more."""
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": f"medlive-{of.version}",
        "description": _description(of),
        "version": _semantic(of.version),
        "datePublished": f"{of.created_at:%Y-%m-%d}",
        "creator": {"@type": "sc:Organization", "name": "medlive"},
        "url": "README.md",
        "license": {"@type": "sc:CreativeWork", "name": "medlive data terms", "url": "LICENSE"},
        "inLanguage": sorted(of.counts.by_language),
        "keywords": ["medical", "clinical", "benchmark", "evaluation", "rubric"],
        "citeAs": bibtex(of),
        "isLiveDataset": False,
        "medlive:version": of.version,
        "medlive:canary": of.canary,
        **_responsible(of),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "description": text,
                "contentUrl": name,
                "contentSize": f"{files[name].size} B",
                "encodingFormat": form,
                "sha256": files[name].sha256,
            }
            for name, (form, text) in DESCRIBED_FILES.items()
        ],
        "recordSet": [
            _record_set("cases", "data/cases.parquet", CASE_FIELDS, "case_id", "One record a case."),
            _record_set(
                "criteria", "data/criteria.parquet", CRITERION_FIELDS, "criterion_id", "One record a criterion."
            ),
        ],
    }


def _semantic(version: str) -> str:
    """`2026.W05` as `2026.5.0`: Croissant wants MAJOR.MINOR.PATCH, and no number there begins with a zero."""
    year, _, week = version.partition(".W")
    return f"{int(year)}.{int(week)}.0"


def _description(of: Described) -> str:
    warning = " Not publishable: " + "; ".join(of.why_not) + "." if of.why_not else ""
    return f"{SUMMARY}{warning} Canary: {of.canary}"


def _responsible(of: Described) -> dict[str, Any]:
    """The responsible-AI fields, as http://mlcommons.org/croissant/RAI/1.0 spells them."""
    made = of.provenance
    held = f" {of.counts.held} further cases are held out and only committed to." if of.counts.held else ""
    return {
        "rai:dataCollection": "Public discussion threads of medical communities, read with respect to robots.txt.",
        "rai:dataCollectionType": ["Web Scraping", "Secondary Data Analysis"],
        "rai:dataCollectionTimeframe": _timeframe(of),
        "rai:dataCollectionRawData": "Threads as their communities show them to anybody; not distributed.",
        "rai:dataCollectionMissingData": f"Every field has a value; a specialty may be unknown.{held}",
        "rai:dataImputationProtocol": "Nothing is imputed.",
        "rai:dataPreprocessingProtocol": [
            "Filtered by date, language, code-book terms, verified replies, duplicates and identifiers."
        ],
        "rai:dataManipulationProtocol": (
            "Rewritten from extracted elements, each supported by a quote, and judged against evidence."
        ),
        "rai:dataAnnotationProtocol": [
            "Criteria were derived from the physicians' advice by a language model, weighted, and linted in code."
        ],
        "rai:dataAnnotationPlatform": [f"medlive {made.code_version}"],
        "rai:dataAnnotationAnalysis": ["What the linter refuses is not released; review is recorded by revision."],
        "rai:annotationsPerItem": "One rubric a case.",
        "rai:annotatorDemographics": ["Not recorded: physicians are known by their verified standing alone."],
        "rai:machineAnnotationTools": [f"{e.role}: {e.engine}, {e.model}" for e in made.engines]
        or ["not recorded"],
        "rai:personalSensitiveInformation": [
            "Health statements of unnamed people. Names, places, numbers, addresses and handles are blocked."
        ],
        "rai:dataBiases": [
            "Public communities in English and Chinese; how often a topic comes up there is not how often in care."
        ],
        "rai:dataLimitations": list(LIMITS),
        "rai:dataUseCases": [
            "Evaluation of language models' answers to clinical questions.",
            "Not for training models, nor for the diagnosis or treatment of anybody.",
        ],
        "rai:dataSocialImpact": "A high score is no proof that a model is safe to use with patients.",
        "rai:dataReleaseMaintenancePlan": (
            "A release a week, each cumulative and never changed. Cases are withdrawn with a reason: later "
            "releases leave them out, and errata.json beside the releases names them."
        ),
    }


def _timeframe(of: Described) -> Sequence[str]:
    """The first day of the first month and the last of the last in which a discussion was opened, if any was."""
    if not of.counts.by_month:
        return []
    first, last = min(of.counts.by_month), max(of.counts.by_month)
    year, month = int(last[:-3]), int(last[-2:])
    return [f"{first}-01", f"{last}-{monthrange(year, month)[1]:02d}"]


def _record_set(name: str, file: str, fields: Mapping[str, type], key: str, text: str) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": text,
        "key": {"@id": f"{name}/{key}"},
        "field": [_field(name, file, column, kind) for column, kind in fields.items()],
    }


def _field(record_set: str, file: str, column: str, kind: type) -> dict[str, Any]:
    described: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"{record_set}/{column}",
        "name": column,
        "description": _FIELD_TEXT[column],
        "dataType": "sc:Date" if column == "posted_at" else "sc:Integer" if kind is int else "sc:Text",
        "source": {"fileObject": {"@id": file}, "extract": {"column": column}},
    }
    if record_set == "criteria" and column == "case_id":
        described["references"] = {"field": {"@id": "cases/case_id"}}
    return described


_CONTEXT: Final[Mapping[str, Any]] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "annotation": "cr:annotation",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "excludes": "cr:excludes",
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "medlive": "urn:medlive:",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "readLines": "cr:readLines",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "sdVersion": "cr:sdVersion",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
    "unArchive": "cr:unArchive",
}
"""Appendix 1 of the specification, with schema.org and the older terms as mlcroissant asks for them."""
