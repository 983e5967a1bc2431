"""Leaked data buys no place in the ranking after every cutoff, and the model that has it is flagged."""

from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.errors import UsageError
from medlive.evaluation.scoring.contamination import contamination
from medlive.evaluation.scoring.fresh import Window
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import score_runs
from medlive.report.tables import scores_json
from tests.unit.evaluation.test_eval_contamination import (
    CASES,
    REGISTRY,
    SEEN,
    planted,
    registry_of,
    run_of,
)


def test_a_cheat_leads_all_cases_and_not_those_after_every_cutoff() -> None:
    runs = planted({"early": 0.30}, every=2)
    table = score_runs(runs, registry=REGISTRY, draws=100)
    assert table.models[0].label == "early"
    assert set(table.drops) == {"early"}
    drop = table.drops["early"]
    assert drop.difference == pytest.approx(0.30, abs=0.06)
    assert drop.p is not None
    assert drop.p < 0.05
    fresh = table.fresh
    assert fresh is not None
    assert (fresh.after, fresh.set_by, fresh.unknown) == (
        date(2025, 6, 30),
        ("late",),
        (),
    )
    later = [case for case in CASES[::2] if (case.month or "") > "2025-06"]
    assert {m.overall.n for m in fresh.models} == {fresh.common} == {len(later)}
    assert {m.standing.group for m in fresh.models if m.standing} == {1}
    # The same as scoring the later cases alone.
    alone = score_runs(runs, draws=100, window=Window(since=date(2025, 7, 1)))
    assert {m.label: m.overall for m in fresh.models} == {
        m.label: m.overall for m in alone.models
    }
    plain = scores_json(table)
    assert plain["after_every_cutoff"]["common_cases"] == len(later)
    assert plain["drops"]["early"]["p_holm"] == drop.p


@pytest.mark.thorough
def test_honest_models_are_not_flagged_and_unknown_cutoffs_are_not_ranked() -> None:
    runs = [*planted({}), run_of("stranger", CASES, [0.9] * len(CASES))]
    table = score_runs(runs, registry=REGISTRY, draws=200)
    assert table.drops == {}
    assert table.fresh is not None
    assert table.fresh.unknown == ("stranger",)
    assert {m.label for m in table.fresh.models} == set(SEEN)
    assert score_runs(runs, draws=50).fresh is None


def test_a_cutoff_after_the_last_case_leaves_no_fresh_ranking() -> None:
    table = score_runs(
        planted({}, every=12),
        registry=registry_of({"early": "2024-06", "late": "2030-01"}),
        draws=50,
    )
    assert table.fresh is not None
    assert (table.fresh.models, table.fresh.set_by) == ((), ("late",))


@pytest.mark.parametrize("metric", list(Metric))
def test_a_window_holds_both_its_days(metric: Metric) -> None:
    cases = [
        replace(c, post_time=f"2026-01-{i + 1:02d}T08:00:00Z")
        for i, c in enumerate(CASES[:20])
    ]
    cases[7] = replace(cases[7], post_time="some day")
    runs = [run_of("m", cases, list(np.linspace(0.1, 0.9, 20)))]
    table = score_runs(
        runs,
        metric=metric,
        draws=20,
        window=Window(date(2026, 1, 5), date(2026, 1, 10)),
    )
    assert [c.case for c in table.models[0].cases] == [*cases[4:7], *cases[8:10]]
    with pytest.raises(UsageError):
        score_runs(runs, window=Window(since=date(2030, 1, 1)))


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(0, 60),
    st.sampled_from([m for m in Metric if m is not Metric.SAFE]),
    st.booleans(),
)
def test_interval_p_and_tie_group_agree_wherever_they_are_printed(
    seed: int, later: int, metric: Metric, clustered: bool
) -> None:
    rng = np.random.default_rng(seed)
    cases = [
        replace(c, cluster=f"t{i // 3}" if clustered else None)
        for i, c in enumerate(CASES[:: 6 - later // 12])
    ]
    level = rng.uniform(0, 0.7, 4)
    scores = [
        rng.beta(1, 3, len(cases)) * x * (rng.random(len(cases)) < 0.7) for x in level
    ]
    runs = [
        run_of(name, cases, own.tolist())
        for name, own in zip("abcd", scores, strict=True)
    ]
    cutoffs = {
        "a": "2024-06",
        "b": "2024-12",
        "c": f"2025-{1 + later // 5:02d}" if later < 60 else "2026-01",
    }
    table = score_runs(
        runs, metric=metric, draws=200, seed=seed, registry=registry_of(cutoffs)
    )
    assert table == score_runs(
        runs, metric=metric, draws=200, seed=seed, registry=registry_of(cutoffs)
    )
    plain = scores_json(table)
    assert table.fresh is not None
    rankings = (
        (table, plain["models"], plain),
        (table.fresh, plain["after_every_cutoff"]["models"], None),
    )
    for ranking, rows, whole in rankings:
        listed = (whole or plain["after_every_cutoff"])["comparisons"]
        for pair, row in zip(ranking.comparisons, listed, strict=True):
            assert (pair.p, pair.p_holm, pair.low, pair.high) == (
                row["p"],
                row["p_holm"],
                row["low"],
                row["high"],
            )
            assert pair.p <= pair.p_holm
            if pair.low is None or pair.high is None:
                assert pair.why  # p is of signs then, and the pair a tie
                continue
            apart = not pair.low <= 0 <= pair.high
            assert (pair.p < 0.05) is apart or abs(pair.p - 0.05) < 1e-6
        below = {
            (c.second, c.first) if (c.difference or 0) > 0 else (c.first, c.second)
            for c in ranking.comparisons
            if c.p_holm < 0.05 and c.low is not None
        }
        groups = {m.label: m.standing.group for m in ranking.models if m.standing}
        assert [row["group"] for row in rows] == list(groups.values())
        leader = ""
        for label, group in groups.items():
            assert ((label, leader) in below) is (group != groups.get(leader, group))
            leader = leader if group == groups.get(leader) else label
        for m in ranking.models:
            if (
                m.overall.low is not None
                and m.overall.high is not None
                and m.overall.value is not None
            ):
                assert m.overall.low <= m.overall.value <= m.overall.high


@pytest.mark.thorough
def test_a_drop_has_one_p_in_the_ranking_and_in_the_analysis() -> None:
    # The rise of "late" is clearer than the drop, and counts in the correction.
    runs = planted({"early": 0.05, "late": -0.30})
    # One run lacks some cases, so that all of the table's are drawn and not each run's.
    runs[0] = replace(runs[0], run=replace(runs[0].run, cases=runs[0].cases[5:]))
    table = score_runs(runs, registry=REGISTRY, draws=300)
    study = contamination(table, REGISTRY)
    analysed = {model.label: model.p_holm for model in study.models}
    assert set(table.drops) == {"early"}
    drop = table.drops["early"]
    assert drop.p == analysed["early"]
    (found,) = [model.drop for model in study.models if model.label == "early"]
    assert found is not None
    assert (drop.low, drop.high) == (found.low, found.high)
    assert drop.p is not None
    assert 0.001 < drop.p < 0.05


@pytest.mark.thorough
def test_the_order_of_runs_on_differing_cases_changes_no_interval_and_no_tie() -> None:
    rng = np.random.default_rng(3)
    runs = []
    for name, start in (("a", 0), ("b", 40), ("c", 20)):
        own = CASES[start : start + 80]
        runs.append(run_of(name, own, rng.uniform(0.2, 0.8, len(own)).tolist()))
    table = score_runs(runs, draws=100)
    turned = score_runs(runs[::-1], draws=100)
    for one, other in zip(table.models, turned.models, strict=True):
        assert (one.label, one.overall, one.standing) == (
            other.label,
            other.overall,
            other.standing,
        )
    by_names = {(pair.second, pair.first): pair for pair in turned.comparisons}
    for pair in table.comparisons:
        assert by_names[pair.first, pair.second].p == pytest.approx(pair.p, rel=1e-9)
