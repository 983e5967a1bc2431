"""Loading and the gates."""

from dataclasses import replace

import pytest

from medlive.errors import BadInput, CheckFailed
from medlive.snapshot.gates import Gate, content_hits, release_faults, row_hits
from medlive.snapshot.load import load_snapshot
from tests.unit.snapshot.conftest import PROVENANCE, Freeze, make_case


def test_what_was_frozen_is_loaded(freeze: Freeze) -> None:
    snapshot = load_snapshot(freeze(9).path)
    assert list(snapshot) == [make_case(i) for i in range(9)]
    assert snapshot.version == "2026.W47"
    assert len(snapshot.filter(language="zh")) == 4
    assert {c.posted_at.month for c in snapshot.filter(posted_from="2025-06-01")} == {
        6,
        7,
        8,
        9,
    }
    assert len(snapshot.filter(posted_before="2025-06-01")) == 5
    assert len(snapshot.filter(first_release_after="2026.W46")) == 9
    assert len(snapshot.filter(first_release_after="2026.W47")) == 0
    assert snapshot.case("c004").criteria[1].points == -8


def test_a_changed_snapshot_is_refused_unless_asked_for(freeze: Freeze) -> None:
    path = freeze(3).path
    opened = load_snapshot(path)
    (path / "README.md").write_text("x")
    with pytest.raises(CheckFailed):
        load_snapshot(path)
    assert len(load_snapshot(path, verify=False)) == 3
    (path / "data/cases.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match=r"cases\.jsonl:1"):
        list(load_snapshot(path, verify=False))
    with pytest.raises(CheckFailed):
        list(opened)
    with pytest.raises(BadInput, match="neither a snapshot"):
        load_snapshot(path / "data")


def test_a_gate_keeps_a_case_out_and_says_why_without_quoting() -> None:
    cases = [
        make_case(0, narrative='My "knee" hurts since 3 days.'),
        make_case(10),  # its narrative holds tags
        make_case(12, narrative="My knee h\u200burts."),
        make_case(14, narrative="My name is J o h n M i l l e r."),
        make_case(2, advice="Call me on +44 20 7946 0958 or write to jane@example.org"),
        make_case(4, query="What\x00?"),
        replace(make_case(6), criteria=()),
    ]
    hits = {
        c.case_id: [
            *row_hits(c),
            *content_hits(c),
        ]
        for c in cases
    }
    assert [case_id for case_id, found in hits.items() if not found] == ["c000"]
    found = {(h.case_id, h.gate) for found in hits.values() for h in found}
    assert ("c002", Gate.IDENTIFIERS) in found
    assert {("c004", Gate.TEXT), ("c010", Gate.TEXT), ("c012", Gate.TEXT)} <= found
    assert ("c014", Gate.IDENTIFIERS) in found
    assert ("c006", Gate.RUBRIC) in found
    assert not any(
        "7946" in h.detail or "jane" in h.detail
        for found in hits.values()
        for h in found
    )


def test_a_release_of_the_rules_engine_or_of_too_few_cases_is_not_publishable() -> None:
    assert release_faults(PROVENANCE, 10, 10) == []
    rules = PROVENANCE.engines[0].model_copy(update={"engine": "rules"})
    poor = PROVENANCE.model_copy(update={"engines": (rules,), "evidence": ()})
    rules_wrote, no_evidence, too_few = release_faults(poor, 9, 10)
    assert "the rules engine" in rules_wrote
    assert "names no evidence" in no_evidence
    assert "at least 10" in too_few
