"""The references of Python and of file formats, from the package and its declared fields (docs/references.py)."""

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from types import ModuleType

import medlive
from medlive.evaluation import model as answers
from medlive.evaluation.runs import folder
from medlive.snapshot import manifest
from medlive.snapshot import model as snapshot
from medlive.sources import files

Explain = Callable[[ModuleType], Mapping[str, Mapping[str, str]]]
"""Module → class → field → meaning."""

_FORMATS = (
    ("Threads to import: a line", files, "_ThreadLine"),
    ("Threads to import: a message", files, "_MessageLine"),
    ("`data/cases.jsonl`", snapshot, "SnapshotCase"),
    ("`data/criteria.jsonl`", snapshot, "SnapshotCriterion"),
    ("`manifest.json`", manifest, "Manifest"),
    ("`manifest.json`: `cost`", manifest, "WeekCost"),
    ("`manifest.json`: `counts`", manifest, "Counts"),
    ("`manifest.json`: `provenance`", manifest, "Provenance"),
    ("`manifest.json`: an entry of `files`", manifest, "FileEntry"),
    ("`run.json`", folder, "RunInfo"),
    ("`responses.jsonl`", answers, "Answer"),
    ("`grades.jsonl`", answers, "Grade"),
)
_ELSEWHERE = {("SnapshotCase", "criteria")}  # A file of its own
_STAMPED = ("SnapshotCase", "SnapshotCriterion")  # Their rows get the snapshot's canary


def python_page() -> str:
    """The reference of what `from medlive import …` gives, and of the classes that it returns."""
    rows = ["# Python", "", "`from medlive import NAME`.", ""]
    shown: dict[str, object] = {}
    for name in medlive.__all__:
        if not name.startswith("__"):
            member = getattr(medlive, name)
            shown[name] = member
            if inspect.isfunction(member):
                place = sys.modules[member.__module__]
                named = member.__annotations__.get("return")
                returned = getattr(place, str(named), named)
                if inspect.isclass(returned):
                    shown[returned.__name__] = returned
    for name, member in shown.items():
        rows += [f"## {name}", "", *_described(name, member)]
        if inspect.isclass(member):
            for method_name, method in inspect.getmembers(member, _is_public):
                if not method_name.startswith("_"):
                    label = f"{name}.{method_name}"
                    rows += [f"### {label}", "", *_described(label, method)]
    return "\n".join(rows).rstrip() + "\n"


def _is_public(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, property)


def _described(name: str, member: object) -> list[str]:
    rows = []
    if inspect.isfunction(member):
        signature = inspect.signature(member)
        rows += ["```text", f"{name}{signature}", "```", ""]
    text = inspect.getdoc(member) or ""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith(("Args:", "Returns:", "Raises:")):
            rows += ["```text", paragraph, "```", ""]
        else:
            rows += [paragraph.replace("<", "&lt;"), ""]
    return rows


def formats_page(explain: Explain) -> str:
    """The reference of the files that others read and write, field by field."""
    rows = [
        "# Formats",
        "",
        "Fields are only added; a change of one has a version and a line in the changelog. Text is UTF-8, a `.jsonl` "
        "file has one object a line. A snapshot's other files: [consumers](../consumers.md); what other benchmarks' "
        "files hold: [importing](../importing.md).",
    ]
    for title, module, name in _FORMATS:
        rows += ["", f"## {title}", "", "| field | type | meaning |"]
        rows += ["| --- | --- | --- |"]
        meanings = explain(module).get(name, {})
        for field, annotation in _fields(module, name):
            if (name, field) in _ELSEWHERE:
                continue
            kind = annotation.replace("|", "\\|")
            meaning = meanings.get(field, "").replace("|", "\\|")
            rows.append(f"| `{field}` | `{kind}` | {meaning} |")
        if name in _STAMPED:
            rows.append("| `canary` | `str` | The manifest's, in every row |")
    return "\n".join(rows) + "\n"


def _fields(module: ModuleType, name: str) -> list[tuple[str, str]]:
    """The fields of a class and their types in words."""
    shape = getattr(module, name)
    if hasattr(shape, "model_fields"):
        return [(n, _in_words(f.annotation)) for n, f in shape.model_fields.items()]
    hints = typing.get_type_hints(shape)
    return [(f.name, _in_words(hints[f.name])) for f in dataclasses.fields(shape)]


def _in_words(kind: object) -> str:
    """A type as a reader of JSON wants it."""
    origin = typing.get_origin(kind)
    parts = typing.get_args(kind)
    if origin is typing.Annotated:
        return _in_words(parts[0])
    if origin is typing.Literal:
        return " | ".join(map(repr, parts))
    if origin in (types.UnionType, typing.Union):
        return " | ".join(_in_words(part) for part in parts)
    if origin is not None:
        inner = ", ".join(_in_words(part) for part in parts if part is not Ellipsis)
        return f"{origin.__name__}[{inner}]"
    if kind is type(None):
        return "null"
    return getattr(kind, "__name__", str(kind)).strip("_")
