"""Forged ledgers and manifests: each with the steps of verification that it fails."""

from collections.abc import Callable

from medlive.snapshot.contents import (
    CHANGES,
    HOLDOUTS,
)
from tests.support.forging import (
    CASES,
    MANIFEST,
    Row,
    Rows,
    change_entry,
    old_place,
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
        lambda h, s: s["revised"].append(change_entry("a2", 1, 1)),
    ),
    (
        "withdrawn and never there",
        CHANGES,
        lambda h, s: s["withdrawn"].append(change_entry("b9", 1, None)),
    ),
    ("a withdrawal that is not listed", CHANGES, lambda h, s: s["withdrawn"].clear()),
    (
        "a commitment changed",
        HOLDOUTS,
        lambda h, s: s["held"][old_place(s)].update(commitment="sha256:" + "0" * 64),
    ),
    (
        "held since another release",
        HOLDOUTS,
        lambda h, s: s["held"][old_place(s)].update(held_since="2026.W43"),
    ),
    (
        "dropped and never held",
        HOLDOUTS,
        lambda h, s: s["dropped"][0].update(commitment="sha256:" + "f" * 64),
    ),
    ("nothing was dropped", HOLDOUTS, lambda h, s: s["dropped"].clear()),
)
