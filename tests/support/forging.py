"""Forgeries: what a snapshot says is changed, and every digest and the signature made to fit again.

Only what the files mean can betray them, or the key that they were signed with.
"""

import io
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from medlive.integrity.folder import SIGNATURE
from medlive.integrity.signing import SecretKey
from medlive.snapshot.ledgers import (
    CHANGE_SECTIONS,
    CHANGES,
    HOLDOUT_SECTIONS,
    HOLDOUTS,
    read_ledger,
    write_ledger,
)
from medlive.snapshot.manifest import Manifest, pretty_json
from medlive.snapshot.model import (
    PROOF_FIELDS,
    TABLES,
    livemedbench_end,
    livemedbench_piece,
)
from medlive.snapshot.parquet import ParquetRows
from tests.support.spoiling import Mutation, Spoil, dump, seal, seal_sums

Row = dict[str, Any]
Rows = list[Row]

CASES, CRITERIA, PLAIN, MANIFEST = (
    "data/cases.jsonl",
    "data/criteria.jsonl",
    "livemedbench.json",
    "manifest.json",
)


def read_rows(folder: Path, name: str) -> Rows:
    """The rows of a JSON Lines file."""
    return [
        json.loads(data) for data in (folder / name).read_bytes().split(b"\n") if data
    ]


def write_rows(folder: Path, name: str, rows: Rows) -> None:
    """The rows, spelled canonically."""
    (folder / name).write_bytes(b"".join(dump(row) + b"\n" for row in rows))


def derive(folder: Path) -> None:
    """What is derived from the rows is derived from those that are there now."""
    cases, criteria = read_rows(folder, CASES), read_rows(folder, CRITERIA)
    canary = json.loads((folder / MANIFEST).read_bytes())["canary"]
    with (folder / PLAIN).open("wb") as plain:
        for number, case in enumerate(cases):
            mine = [c for c in criteria if c["case_id"] == case["case_id"]]
            plain.write(livemedbench_piece(number, case, mine))
        plain.write(livemedbench_end())
    manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    columns = manifest.shape.columns
    for table, rows in zip(TABLES, (cases, criteria), strict=True):
        writer = ParquetRows(folder / f"data/{table}.parquet", columns[table], canary)
        for row in rows:
            writer.add(row)
        writer.close()


def recount(manifest: Row, folder: Path) -> None:
    """The manifest's counts fit the rows."""
    cases, criteria = read_rows(folder, CASES), read_rows(folder, CRITERIA)
    counts = manifest["counts"]
    counts["cases"], counts["criteria"] = len(cases), len(criteria)

    def count(values: Iterable[str]) -> dict[str, int]:
        listed = list(values)
        return {value: listed.count(value) for value in sorted(set(listed))}

    for name in (
        "language",
        "source",
        "theme",
        "specialty",
        "difficulty",
        "dialogue_register",
        "first_release",
    ):
        counts[f"by_{name}"] = count(c[name] for c in cases)
    counts["by_month"] = count(c["posted_at"][:7] for c in cases)
    counts["by_axis"] = count(c["axis"] for c in criteria)
    counts["by_origin"] = count(c["origin"] for c in criteria)
    counts.pop("proof", None)
    if proved := [c for c in cases if c["ceiling"] is not None]:
        counts["proof"] = {"cases": len(proved)}
        for name in PROOF_FIELDS:
            counts["proof"][name] = round(fmean(c[name] for c in proved), 4)
    owners = [c["case_id"] for c in criteria]
    counts["criteria_per_case"] = count(str(owners.count(c["case_id"])) for c in cases)
    for name, entry in manifest["files"].items():
        if "cases." in name or name == PLAIN:
            entry["rows"] = len(cases)
        elif "criteria." in name:
            entry["rows"] = len(criteria)


def in_ledger(
    name: str, edit: Callable[[Row, dict[str, Rows]], object]
) -> Callable[[Path], None]:
    """A change to a ledger's entries."""

    def spoil(folder: Path) -> None:
        head, sections = read_ledger(folder, name)
        edit(head, sections)
        out = io.BytesIO()
        write_ledger(out.write, head, sections.items())
        (folder / name).write_bytes(out.getvalue())

    return spoil


def sealed(key: SecretKey, edit: Callable[[Path], object]) -> Spoil:
    """A change to files, with digests and signature made to fit."""

    def spoil(folder: Path, rng: random.Random) -> None:
        edit(folder)
        seal(folder, key)

    return spoil


def whole(key: SecretKey, edit: Callable[[Rows, Rows], object]) -> Spoil:
    """A change to rows, with all that is derived from them, the counts too."""

    def spoil(folder: Path, rng: random.Random) -> None:
        cases, criteria = read_rows(folder, CASES), read_rows(folder, CRITERIA)
        edit(cases, criteria)
        write_rows(folder, CASES, cases)
        write_rows(folder, CRITERIA, criteria)
        derive(folder)
        seal(folder, key, lambda manifest: recount(manifest, folder))

    return spoil


def _rows(name: str, edit: Callable[[Rows], object]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        rows = read_rows(folder, name)
        edit(rows)
        write_rows(folder, name, rows)

    return spoil


def _text(name: str, old: str, new: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        text = (folder / name).read_text("utf-8")
        assert old in text
        (folder / name).write_bytes(
            text.replace(old, new, 1).encode("utf-8", "surrogatepass")
        )

    return spoil


def _to(index: int, **changes: object) -> Callable[[Rows], object]:
    return lambda rows: rows[index].update(changes)


_NOTHING: Any = []
ONE_FILE: tuple[tuple[str, str, Callable[[Rows], object], set[int]], ...] = (
    ("another weight", CRITERIA, _to(0, points=9), {12, 13}),
    ("an unknown origin", CRITERIA, _to(0, origin="guess"), {9}),
    ("a source of advice", CRITERIA, _to(0, source="pubmed:1:s"), {9}),
    ("weight nought", CRITERIA, _to(0, points=0), {9}),
    ("weight eleven", CRITERIA, _to(0, points=11), {9}),
    ("a weight beyond 64 bits", CRITERIA, _to(1, points=2**70), {9}),
    ("a weight as text", CRITERIA, _to(0, points="5"), {7}),
    ("a weight as truth", CRITERIA, _to(0, points=True), {7}),
    ("a weight with a fraction", CRITERIA, _to(0, points=5.0), {7}),
    ("no positive weight", CRITERIA, lambda r: [x.update(points=-1) for x in r], {10}),
    ("an unknown axis", CRITERIA, _to(0, axis="Charm"), {9, 11}),
    ("an axis with a newline", CRITERIA, _to(0, axis="Safety\n"), {9, 11}),
    ("a criterion of no case", CRITERIA, _to(0, case_id="A"), {8}),
    (
        "a criterion twice",
        CRITERIA,
        lambda r: r[1].update(criterion_id=r[0]["criterion_id"]),
        {8},
    ),
    ("a criterion's row twice", CRITERIA, lambda r: r.insert(1, dict(r[0])), {7, 8}),
    ("a lost criterion", CRITERIA, lambda r: r.pop(), {11, 12}),
    ("a lost first criterion", CRITERIA, lambda r: r.pop(0), {9, 11, 12}),
    (
        "a case without criteria",
        CRITERIA,
        lambda r: r.__delitem__(slice(0, 3)),
        {10, 11},
    ),
    ("two criteria changed places", CRITERIA, lambda r: r.insert(0, r.pop(1)), {7}),
    (
        "positions changed",
        CRITERIA,
        lambda r: (r[0].update(position=2), r[1].update(position=1)),
        {7},
    ),
    ("a position left out", CRITERIA, _to(2, position=4), {9}),
    ("an empty criterion", CRITERIA, _to(0, criterion=" \u3000\n"), {9}),
    ("a criterion of another revision", CRITERIA, _to(0, revision=7), {9}),
    ("a criterion's id of another case", CRITERIA, _to(0, criterion_id="zz-c1"), {9}),
    (
        "a criterion's id with a zero",
        CRITERIA,
        lambda r: r[0].update(criterion_id=r[0]["case_id"] + "-c01"),
        {9},
    ),
    ("a criterion's text", CRITERIA, _to(0, criterion="Another one."), {12, 13}),
    ("another canary in a criterion", CRITERIA, _to(0, canary="0"), {17}),
    ("a case twice", CASES, lambda r: r.insert(1, dict(r[0])), {7, 8}),
    ("a lost case", CASES, lambda r: r.pop(), {8, 11}),
    ("two cases changed places", CASES, lambda r: r.insert(0, r.pop(1)), {7}),
    ("another id", CASES, lambda r: r[0].update(case_id=r[0]["case_id"] + "0"), {8}),
    ("an id with a slash", CASES, _to(0, case_id="../x"), {9}),
    ("an id with a space", CASES, _to(0, case_id="a b"), {9}),
    ("an empty id", CASES, _to(0, case_id=""), {9}),
    ("another ceiling", CASES, _to(0, ceiling=0.99), {11, 13}),
    ("a ceiling above one", CASES, _to(0, ceiling=1.5), {9, 11}),
    ("a floor without a ceiling", CASES, _to(0, ceiling=None), {9, 11}),
    ("a separation as text", CASES, _to(0, separation="0.7"), {7}),
    ("an unknown theme", CASES, _to(0, theme="Gossip"), {9, 11}),
    ("an unknown specialty", CASES, _to(0, specialty="Astrology"), {9, 11}),
    ("an unknown language", CASES, _to(0, language="fr"), {9, 11}),
    ("an unknown field", CASES, _to(0, url="x"), {7}),
    ("a field less", CASES, lambda r: r[0].pop("theme"), {7}),
    ("a field that is null", CASES, _to(0, advice=None), {7}),
    ("no object", CASES, lambda r: r.__setitem__(0, _NOTHING), {7}),
    ("a nested value", CASES, _to(0, narrative={"a": ["b"]}), {7}),
    ("a later first release", CASES, _to(0, first_release="2027.W01"), {14}),
    ("a first release of another line", CASES, _to(0, first_release="2026.W41"), {14}),
    ("a first release that is none", CASES, _to(0, first_release="soon"), {14}),
    ("a date that is none", CASES, _to(0, posted_at="2025-02-30"), {14}),
    ("a date in another form", CASES, _to(0, posted_at="20250203"), {14}),
    ("a date of the future", CASES, _to(0, posted_at="2027-02-20"), {14}),
    ("an empty narrative", CASES, _to(0, narrative="\u2028 \t"), {9}),
    ("another text", CASES, _to(1, advice="Do whatever you like."), {12, 13}),
    ("another revision", CASES, _to(1, revision=2), {9}),
    ("another canary in a case", CASES, _to(1, canary="0" * 36), {17}),
    ("an address", CASES, _to(0, advice="See https://forum.example/t/1"), {18}),
    (
        "an address without a scheme",
        CASES,
        _to(0, advice="See WWW.forum.example"),
        {18},
    ),
    ("an e-mail address", CASES, _to(0, advice="Write to a.b@example.org"), {18}),
    ("a handle", CASES, _to(0, advice="Thanks @someone_99"), {18}),
    ("a control character", CASES, _to(0, advice="Rest\x00"), {18}),
    ("a deleted character", CASES, _to(0, advice="Rest\x7f"), {18}),
    ("a joiner", CASES, _to(0, advice="Re\u200bst"), {18}),
    ("a letter of another script", CASES, _to(0, advice="R\u0435st"), {18}),
    ("a tag", CASES, _to(0, advice="Rest\U000e0041"), {18}),
    (
        "a Greek letter among Latin ones",
        CASES,
        _to(0, advice="Rest \u03bfften, \u039fften"),
        {18},
    ),
    (
        "an address in a criterion",
        CRITERIA,
        _to(0, criterion="Names ftp://x.example"),
        {18},
    ),
    (
        "a mark of direction in a criterion",
        CRITERIA,
        _to(0, criterion="Names \u202erest"),
        {18},
    ),
)

SPELLINGS: tuple[tuple[str, str, str, str, set[int]], ...] = (
    ("a space", CASES, '{"advice"', '{ "advice"', {7}),
    ("a script", "figures/axes.svg", "<rect", "<script>alert(1)</script><rect", {18}),
    ("a handler", "figures/axes.svg", "<rect", "<rect onload='alert(1)'", {18}),
    ("a link", "figures/themes.svg", "<rect", "<a href='x'></a><rect", {18}),
    (
        "a style that loads",
        "figures/themes.svg",
        "<style>",
        "<style>@import 'x';",
        {18},
    ),
    ("no distribution", "croissant.json", '"distribution"', '"elsewhere"', {6}),
    (
        "one file less",
        "croissant.json",
        '"contentUrl": "data/cases.jsonl"',
        '"contentUrl": "data/x.jsonl"',
        {6},
    ),
    ("a key twice", CASES, '{"advice"', '{"advice":"x","advice"', {7}),
    ("another order of keys", CRITERIA, '{"asked":"",', "{", {7}),
    ("an escape that is not needed", CASES, "Rest", "\\u0052est", {7}),
    ("an escaped slash", CASES, "Rest", "Rest\\/", {7}),
    ("an escaped surrogate", CASES, "Rest", "Rest\\ud800", {7}),
    ("a raw surrogate", CASES, "Rest", "Rest\ud800", {7}),
    ("a raw tab", CASES, "Rest", "Rest\t", {7}),
    ("not a number", CRITERIA, '"points":5', '"points":NaN', {7}),
    ("a leading zero", CRITERIA, '"points":5', '"points":05', {7}),
    ("an exponent", CRITERIA, '"points":5', '"points":5e0', {7}),
    ("minus nought", CRITERIA, '"points":5', '"points":-0', {7}),
    ("an endless number", CRITERIA, '"points":5', '"points":' + "9" * 5_000, {7}),
    ("deep brackets", CRITERIA, '"points":5', '"points":' + "[" * 20_000, {7}),
    ("deep braces", CASES, '{"advice"', '{"a":' * 20_000 + '{"advice"', {7}),
    ("a mark of byte order", CASES, '{"advice"', '\ufeff{"advice"', {7}),
    ("an empty line", CASES, '{"advice"', '\n{"advice"', {7}),
    ("a line end of another system", CASES, "}\n", "}\r\n", {7}),
    ("a null byte", CRITERIA, "}\n", "}\0\n", {7}),
    ("two rows on one line", CRITERIA, "}\n{", "}{", {7}),
    ("a space in livemedbench.json", PLAIN, "[\n", "[ \n", {12}),
    ("more after livemedbench.json", PLAIN, "\n]\n", "\n]\n ", {12}),
    ("another text in livemedbench.json", PLAIN, "Rest", "Pest", {12}),
    ("another weight in livemedbench.json", PLAIN, '"points":5', '"points":6', {12}),
    ("a space in changes.json", CHANGES, '"added":[', '"added": [', {15}),
    ("a comma less in changes.json", CHANGES, "\n,{", "\n{", {15}),
    ("a section less in changes.json", CHANGES, ',"revised":[\n', "", {15}),
    (
        "deep brackets in changes.json",
        CHANGES,
        '"reason":"',
        '"reason":' + "[" * 9_000 + '"',
        {15},
    ),
    ("a space in holdouts.json", HOLDOUTS, '"held":[', '"held": [', {16}),
    (
        "not a number in holdouts.json",
        HOLDOUTS,
        '"held_since":"2026.W44"',
        '"held_since":NaN',
        {16},
    ),
)

LEDGERS: tuple[
    tuple[str, str, Callable[[Row, dict[str, Rows]], object], set[int]], ...
] = (
    ("an added case less", CHANGES, lambda h, s: s["added"].pop(), {15}),
    (
        "an added case that is not there",
        CHANGES,
        lambda h, s: s["added"][-1].update(case_id="zz"),
        {15},
    ),
    (
        "added twice",
        CHANGES,
        lambda h, s: s["added"].append(dict(s["added"][-1])),
        {15},
    ),
    ("added in another order", CHANGES, lambda h, s: s["added"].reverse(), {15}),
    (
        "added with a revision before",
        CHANGES,
        lambda h, s: s["added"][0].update(from_revision=1),
        {15},
    ),
    (
        "added with another revision",
        CHANGES,
        lambda h, s: s["added"][0].update(to_revision=4),
        {15},
    ),
    (
        "a revision as truth",
        CHANGES,
        lambda h, s: s["revised"][0].update(from_revision=True),
        {15},
    ),
    (
        "revised to another revision",
        CHANGES,
        lambda h, s: s["revised"][0].update(to_revision=3),
        {15},
    ),
    (
        "revised and not there",
        CHANGES,
        lambda h, s: s["revised"][0].update(case_id="a00"),
        {15},
    ),
    (
        "revised and added",
        CHANGES,
        lambda h, s: s["revised"].append(s["added"][0] | {"from_revision": 1}),
        {15},
    ),
    (
        "withdrawn and there",
        CHANGES,
        lambda h, s: s["withdrawn"][0].update(case_id="a0"),
        {15},
    ),
    (
        "withdrawn to a revision",
        CHANGES,
        lambda h, s: s["withdrawn"][0].update(to_revision=2),
        {15},
    ),
    ("no reason", CHANGES, lambda h, s: s["withdrawn"][0].update(reason=" "), {15}),
    (
        "a reason that is none",
        CHANGES,
        lambda h, s: s["withdrawn"][0].update(reason=None),
        {15},
    ),
    (
        "an address in a reason",
        CHANGES,
        lambda h, s: s["withdrawn"][0].update(reason="by a@example.org"),
        {18},
    ),
    (
        "an address in a field more",
        CHANGES,
        lambda h, s: s["withdrawn"][0].update(author="www.x.example"),
        {18},
    ),
    (
        "another version in the changes",
        CHANGES,
        lambda h, s: h.update(version="2026.W46"),
        {15},
    ),
    (
        "another parent in the changes",
        CHANGES,
        lambda h, s: h.update(parent="2026.W43"),
        {15},
    ),
    ("no parent in the changes", CHANGES, lambda h, s: h.update(parent=None), {15}),
    (
        "another canary in the changes",
        CHANGES,
        lambda h, s: h.update(canary="0"),
        {15},
    ),
    ("a held case less", HOLDOUTS, lambda h, s: s["held"].pop(), {11}),
    ("held twice", HOLDOUTS, lambda h, s: s["held"].append(dict(s["held"][-1])), {16}),
    (
        "held and dropped",
        HOLDOUTS,
        lambda h, s: s["dropped"].append(s["held"][0] | {"reason": "x"}),
        {16},
    ),
    (
        "held since another line's release",
        HOLDOUTS,
        lambda h, s: s["held"][0].update(held_since="2026.W40"),
        {16},
    ),
    (
        "held since the future",
        HOLDOUTS,
        lambda h, s: s["held"][0].update(held_since="2027.W01"),
        {16},
    ),
    (
        "a commitment of another kind",
        HOLDOUTS,
        lambda h, s: s["held"][0].update(commitment="md5:0"),
        {16},
    ),
    (
        "a held case that is named",
        HOLDOUTS,
        lambda h, s: s["held"][0].update(case_id="h2zh"),
        {16},
    ),
    (
        "another salt",
        HOLDOUTS,
        lambda h, s: s["revealed"][0].update(salt="0" * 64),
        {16},
    ),
    (
        "a salt that is none",
        HOLDOUTS,
        lambda h, s: s["revealed"][0].update(salt="x"),
        {16},
    ),
    (
        "a salt that is a number",
        HOLDOUTS,
        lambda h, s: s["revealed"][0].update(salt=5),
        {16},
    ),
    (
        "another commitment",
        HOLDOUTS,
        lambda h, s: s["revealed"][0].update(commitment="sha256:" + "0" * 64),
        {16},
    ),
    (
        "revealed and not there",
        HOLDOUTS,
        lambda h, s: s["revealed"][0].update(case_id="h2zh"),
        {16},
    ),
    (
        "another case revealed",
        HOLDOUTS,
        lambda h, s: s["revealed"][0].update(case_id="c0"),
        {16},
    ),
    (
        "an old case revealed",
        HOLDOUTS,
        lambda h, s: s["revealed"][0].update(case_id="a0"),
        {16},
    ),
    (
        "revealed and held since now",
        HOLDOUTS,
        lambda h, s: s["revealed"][0].update(held_since="2026.W45"),
        {16},
    ),
    (
        "dropped without a reason",
        HOLDOUTS,
        lambda h, s: s["dropped"][0].update(reason=""),
        {16},
    ),
    (
        "another version in the holdouts",
        HOLDOUTS,
        lambda h, s: h.update(version="2026.W46"),
        {16},
    ),
)


_SETTING = {"name": "setting", "type": "string", "optional": True, "default": ""}


def _as_format_3(manifest: Row) -> Row:
    """The manifest without what format 4 added."""
    del manifest["columns"], manifest["enumerations"]
    manifest["format_version"] = 3
    return manifest


def _as(manifest: Row, version: str) -> Row:
    """An ancestor of that version."""
    return {**manifest["lineage"][0], "version": version}


def _files(manifest: Row) -> Row:
    found: Row = manifest["files"]
    return found


MANIFESTS: tuple[tuple[str, Callable[[Row], object], set[int]], ...] = (
    (
        "a way up",
        lambda m: _files(m).update({"../outside/secret": dict(_files(m)["LICENSE"])}),
        {6},
    ),
    (
        "an absolute path",
        lambda m: _files(m).update({"/etc/hostname": dict(_files(m)["LICENSE"])}),
        {6},
    ),
    ("a file less", lambda m: _files(m).pop("LICENSE"), {6}),
    ("itself", lambda m: _files(m).update({MANIFEST: dict(_files(m)["LICENSE"])}), {6}),
    ("another size", lambda m: _files(m)["LICENSE"].update(size=1), {6}),
    ("a huge size", lambda m: _files(m)["LICENSE"].update(size=10**30), {6}),
    ("another digest", lambda m: _files(m)["LICENSE"].update(sha256="0" * 64), {6}),
    ("a digest that is none", lambda m: _files(m)["LICENSE"].update(sha256="z"), {5}),
    ("rows of a text", lambda m: _files(m)["LICENSE"].update(rows=3), {11}),
    ("no rows", lambda m: _files(m)[CASES].update(rows=None), {11}),
    ("other rows", lambda m: _files(m)[CASES].update(rows=1), {11}),
    (
        "other rows in parquet",
        lambda m: _files(m)["data/cases.parquet"].update(rows=1),
        {11},
    ),
    ("another number of cases", lambda m: m["counts"].update(cases=1), {11}),
    ("another number of criteria", lambda m: m["counts"].update(criteria=1), {11}),
    ("another number of held cases", lambda m: m["counts"].update(held=0), {11}),
    ("another language", lambda m: m["counts"]["by_language"].update(fr=0), {11}),
    ("other sources", lambda m: m["counts"].update(by_source={}), {11}),
    ("another mean", lambda m: m["counts"]["proof"].update(ceiling=0.91), {11}),
    ("fewer proofs", lambda m: m["counts"]["proof"].update(cases=1), {11}),
    ("other themes", lambda m: m["counts"].update(by_theme={"x": 1}), {11}),
    ("other specialties", lambda m: m["counts"].update(by_specialty={"x": 1}), {11}),
    ("other origins", lambda m: m["counts"].update(by_origin={"advice": 1}), {11}),
    ("no origins", lambda m: m["counts"].pop("by_origin"), {11}),
    ("other axes", lambda m: m["counts"]["by_axis"].update(Safety=0), {11}),
    ("other months", lambda m: m["counts"].update(by_month={"2025-01": 8}), {11}),
    ("other first releases", lambda m: m["counts"]["by_first_release"].popitem(), {11}),
    (
        "other numbers of criteria",
        lambda m: m["counts"].update(criteria_per_case={"1": 8}),
        {11},
    ),
    ("a field more in format 3", lambda m: _as_format_3(m).update(note="x"), {5}),
    (
        "a column twice",
        lambda m: m["columns"]["cases"].append(m["columns"]["cases"][0]),
        {5},
    ),
    ("a column that no row has", lambda m: m["columns"]["cases"].append(_SETTING), {7}),
    (
        "another meaning of a column",
        lambda m: m["columns"]["cases"][8].update(optional=True),
        {5},
    ),
    ("a column less", lambda m: m["columns"]["criteria"].pop(5), {5}),
    ("an optional column less", lambda m: m["columns"]["criteria"].pop(7), {7}),
    (
        "an address as an axis",
        lambda m: m["enumerations"]["axis"].append("www.x.example"),
        {18},
    ),
    ("a field less", lambda m: m.pop("provenance"), {5}),
    ("format 1", lambda m: m.update(format_version=1), {5}),
    ("format 5", lambda m: m.update(format_version=5), {5}),
    ("another format", lambda m: m.update(format="tar"), {5}),
    ("a version that is none", lambda m: m.update(version="../x"), {5}),
    ("a week that is none", lambda m: m.update(version="2026.W60"), {5}),
    ("another version", lambda m: m.update(version="2026.W46"), {15, 16, 17}),
    (
        "another canary",
        lambda m: m.update(canary="0" * 8 + "-0000-0000-0000-" + "0" * 12),
        {17},
    ),
    (
        "a moment without a zone",
        lambda m: m.update(created_at="2026-11-07T08:30:01"),
        {5},
    ),
    ("publishable with reasons", lambda m: m.update(why_not=["x"]), {5}),
    ("not publishable without reasons", lambda m: m.update(publishable=False), {5}),
    ("no parent", lambda m: m.update(parent=None, parent_digest=None), {19}),
    (
        "no lineage and no parent",
        lambda m: m.update(lineage=[], parent=None, parent_digest=None),
        {14, 15},
    ),
    (
        "another parent's digest",
        lambda m: m.update(parent_digest="sha256:" + "0" * 64),
        {19},
    ),
    ("a lineage turned round", lambda m: m["lineage"].reverse(), {19}),
    (
        "an ancestor twice",
        lambda m: m["lineage"].insert(0, dict(m["lineage"][0])),
        {19},
    ),
    (
        "an ancestor of the future",
        lambda m: m["lineage"].insert(0, _as(m, "2027.W01")),
        {19},
    ),
    (
        "itself as an ancestor",
        lambda m: m["lineage"].append(_as(m, m["version"])),
        {19},
    ),
    ("another key id", lambda m: m["signing"].update(key_id="0" * 16), {1}),
    ("a key that is none", lambda m: m["signing"].update(public_key="A" * 56), {1}),
    ("no key although it is signed", lambda m: m.update(signing=None), {1}),
)


RAW_MANIFESTS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("deep brackets", lambda data: b"[" * 100_000),
    (
        "not a number",
        lambda data: data.replace(b'"cases": ', b'"cases": NaN, "x": ', 1),
    ),
    (
        "a key twice",
        lambda data: data.replace(b"{", b'{\n  "format": "medlive-snapshot",', 1),
    ),
    (
        "an endless number",
        lambda data: data.replace(b'"cases": ', b'"cases": ' + b"9" * 10_000, 1),
    ),
    ("a line end of another system", lambda data: data.replace(b"\n", b"\r\n")),
    ("a mark of byte order", lambda data: b"\xef\xbb\xbf" + data),
    ("no text", lambda data: b"\xff\xfe\xfd"),
    (
        "an escaped surrogate",
        lambda data: data.replace(b'"code_version": "', b'"code_version": "\\ud800', 1),
    ),
    ("a null byte", lambda data: data + b"\0"),
    ("text and nothing else", lambda data: b'"medlive"'),
    ("nothing", lambda data: b""),
)

WHOLE: tuple[
    tuple[str, Callable[[Rows, Rows], object], tuple[str, ...], set[int]], ...
] = (
    (
        "a revealed case is another",
        lambda c, k: _case(c, "h1").update(advice="Do nothing."),
        (HOLDOUTS,),
        {16},
    ),
    (
        "a revealed case's criterion",
        lambda c, k: _of(k, "h1")[0].update(points=6),
        (HOLDOUTS,),
        {16},
    ),
    (
        "a revealed case's date",
        lambda c, k: _case(c, "h1").update(posted_at="2025-03-04"),
        (HOLDOUTS,),
        {16},
    ),
    ("a case is gone", lambda c, k: _drop(c, k, "c0"), (CHANGES,), {15}),
    (
        "a withdrawn case is back",
        lambda c, k: _rename(c, k, "b1zh", "b0"),
        (CHANGES,),
        {15},
    ),
    (
        "a new case is not listed",
        lambda c, k: _rename(c, k, "c0", "c00"),
        (CHANGES,),
        {15},
    ),
    (
        "a new case that seems old",
        lambda c, k: _case(c, "c0").update(first_release="2026.W42"),
        (CASES,),
        {14},
    ),
    (
        "an old case that seems new",
        lambda c, k: _case(c, "a2").update(first_release="2026.W45"),
        (CHANGES,),
        {15},
    ),
    ("another revision", lambda c, k: _revise(c, k, "c0", 5), (CHANGES,), {15}),
    (
        "an address everywhere",
        lambda c, k: _case(c, "a2").update(query="See http://x.example"),
        (CASES,),
        {18},
    ),
    (
        "a weight of eleven everywhere",
        lambda c, k: _of(k, "a2")[0].update(points=11),
        (CASES,),
        {9},
    ),
    (
        "another canary everywhere",
        lambda c, k: [r.update(canary="x") for r in (*c, *k)],
        (CASES, CRITERIA),
        {17},
    ),
)

CHAIN: tuple[tuple[str, Callable[[Rows, Rows], object], tuple[str, ...]], ...] = (
    (
        "an unchanged case is another",
        lambda c, k: _case(c, "a2").update(advice="Do nothing."),
        (CHANGES,),
    ),
    (
        "an unchanged criterion is another",
        lambda c, k: _of(k, "a2")[1].update(points=-9),
        (CHANGES,),
    ),
    (
        "an older first release",
        lambda c, k: _case(c, "b2").update(first_release="2026.W43"),
        (CASES,),
    ),
    ("a case of the parent is gone", lambda c, k: _drop(c, k, "a2"), (CHANGES,)),
)

CHAIN_LEDGERS: tuple[tuple[str, str, Callable[[Row, dict[str, Rows]], object]], ...] = (
    (
        "revised from another revision",
        CHANGES,
        lambda h, s: s["revised"][0].update(from_revision=7),
    ),
    (
        "withdrawn from another revision",
        CHANGES,
        lambda h, s: s["withdrawn"][0].update(from_revision=7),
    ),
    (
        "an unchanged case as revised",
        CHANGES,
        lambda h, s: s["revised"].append(_entry("a2", 1, 1)),
    ),
    (
        "withdrawn and never there",
        CHANGES,
        lambda h, s: s["withdrawn"].append(_entry("b9", 1, None)),
    ),
    ("a withdrawal that is not listed", CHANGES, lambda h, s: s["withdrawn"].clear()),
    (
        "a commitment changed",
        HOLDOUTS,
        lambda h, s: s["held"][_old(s)].update(commitment="sha256:" + "0" * 64),
    ),
    (
        "held since another release",
        HOLDOUTS,
        lambda h, s: s["held"][_old(s)].update(held_since="2026.W43"),
    ),
    (
        "dropped and never held",
        HOLDOUTS,
        lambda h, s: s["dropped"][0].update(commitment="sha256:" + "f" * 64),
    ),
    ("nothing was dropped", HOLDOUTS, lambda h, s: s["dropped"].clear()),
)


def _entry(case_id: str, before: int | None, now: int | None) -> Row:
    return {
        "case_id": case_id,
        "from_revision": before,
        "reason": "x",
        "to_revision": now,
    }


def _old(sections: dict[str, Rows]) -> int:
    """The place of the case that the parent holds as well; its commitment stays in order where it becomes 0."""
    return next(
        n
        for n, entry in enumerate(sections["held"])
        if entry["held_since"] == "2026.W44"
    )


def _case(cases: Rows, case_id: str) -> Row:
    return next(c for c in cases if c["case_id"] == case_id)


def _of(criteria: Rows, case_id: str) -> Rows:
    return [c for c in criteria if c["case_id"] == case_id]


def _drop(cases: Rows, criteria: Rows, case_id: str) -> None:
    cases[:] = [c for c in cases if c["case_id"] != case_id]
    criteria[:] = [c for c in criteria if c["case_id"] != case_id]


def _rename(cases: Rows, criteria: Rows, old: str, new: str) -> None:
    _case(cases, old)["case_id"] = new
    for place, criterion in enumerate(_of(criteria, old), start=1):
        criterion.update(case_id=new, criterion_id=f"{new}-c{place}")
    cases.sort(key=lambda c: str(c["case_id"]))
    criteria.sort(key=lambda c: (str(c["case_id"]), int(c["position"])))


def _revise(cases: Rows, criteria: Rows, case_id: str, revision: int) -> None:
    for row in (_case(cases, case_id), *_of(criteria, case_id)):
        row["revision"] = revision


def forgeries(key: SecretKey) -> Iterable[Mutation]:
    """Each forgery of a snapshot whose parent is not at hand."""
    for label, name, edit, steps in ONE_FILE:
        spoil = sealed(key, _rows(name, edit))
        yield Mutation(
            f"{name}: {label}", spoil, (name.removeprefix("data/"),), frozenset(steps)
        )
    for label, name, old, new, steps in SPELLINGS:
        spoil = sealed(key, _text(name, old, new))
        yield Mutation(f"{name}: {label}", spoil, (name,), frozenset(steps))
    for label, name, change, steps in LEDGERS:
        yield Mutation(
            f"{name}: {label}",
            sealed(key, in_ledger(name, change)),
            (name, MANIFEST),
            frozenset(steps),
        )
    for label, alter, steps in MANIFESTS:
        yield Mutation(
            f"{MANIFEST}: {label}",
            _resealed(key, alter),
            (MANIFEST, SIGNATURE),
            frozenset(steps),
        )
    for label, rewrite in RAW_MANIFESTS:
        yield Mutation(
            f"{MANIFEST}: {label}", _raw(key, rewrite), (MANIFEST,), frozenset({5})
        )
    for label, remake, named, steps in WHOLE:
        yield Mutation(f"rows: {label}", whole(key, remake), named, frozenset(steps))
    for name in (
        "README.md",
        "CHANGES.md",
        "LICENSE",
        "croissant.json",
        "figures/axes.svg",
        "figures/months.svg",
    ):
        spoil = sealed(key, _without_canary(name))
        yield Mutation(f"{name}: no canary", spoil, (name,), frozenset({17}))


def chain_forgeries(key: SecretKey) -> Iterable[Mutation]:
    """Those that only the parent beside them betrays."""
    for label, remake, named in CHAIN:
        yield Mutation(
            f"rows: {label}", whole(key, remake), named or (CHANGES,), frozenset({19})
        )
    earlier = _resealed(
        key, lambda manifest: manifest.update(created_at="2020-01-01T00:00:00Z")
    )
    yield Mutation("made before its parent", earlier, (MANIFEST,), frozenset({19}))
    for label, name, change in CHAIN_LEDGERS:
        spoil = sealed(key, _sorted(name, change))
        yield Mutation(f"{name}: {label}", spoil, (name,), frozenset({19}))


def _sorted(
    name: str, change: Callable[[Row, dict[str, Rows]], object]
) -> Callable[[Path], None]:
    def ordered(head: Row, sections: dict[str, Rows]) -> None:
        change(head, sections)
        keys = CHANGE_SECTIONS if name == CHANGES else HOLDOUT_SECTIONS
        for section, entries in sections.items():
            entries.sort(key=lambda e: str(e[keys[section]]))

    return in_ledger(name, ordered)


def _without_canary(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        canary = json.loads((folder / MANIFEST).read_bytes())["canary"]
        (folder / name).write_text(
            (folder / name).read_text("utf-8").replace(canary, "nothing"), "utf-8"
        )

    return spoil


def _resealed(key: SecretKey, alter: Callable[[Row], object]) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        seal(folder, key)
        manifest = json.loads((folder / MANIFEST).read_bytes())
        alter(manifest)
        (folder / MANIFEST).write_bytes(pretty_json(manifest).encode())
        seal_sums(folder, key)

    return spoil


def _raw(key: SecretKey, rewrite: Callable[[bytes], bytes]) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        seal(folder, key)
        (folder / MANIFEST).write_bytes(rewrite((folder / MANIFEST).read_bytes()))
        seal_sums(folder, key)

    return spoil
