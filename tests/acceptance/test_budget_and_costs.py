"""A budget stops a run cleanly and the next one goes on; what was spent is told to the cent, or as unknown."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medlive.demo.samples import SampleThread
from tests.support.counting_endpoint import counting_endpoint
from tests.support.instance import Done, Instance, write_lines, write_models
from tests.support.threads import as_import

THREADS = 3
PRICE = '[prices."rules"]\ninput = 2.0\noutput = 8.0\ncached = 0.5\n'


async def _do(instance: Instance, *arguments: str, status: int = 0) -> Done:
    return await asyncio.to_thread(instance.here, *arguments, status=status)


def _limited(instance: Instance, **limits: object) -> Instance:
    named = {
        f"MEDLIVE_BUDGET__{key.upper()}": str(value) for key, value in limits.items()
    }
    return Instance(instance.home, instance.url, {**instance.settings, **named})


@pytest.fixture
def instance(
    new_instance: Callable[..., Instance], samples: list[SampleThread], tmp_path: Path
) -> Instance:
    """An instance with a few threads that pass the filters, curated one after the other."""
    config = write_models(tmp_path / "config", "http://127.0.0.1:9/v1")
    instance = new_instance(
        MEDLIVE_CONFIG=str(config), MEDLIVE_CURATION__CONCURRENCY="1"
    )
    chosen = [t for t in samples if t.expect.outcome == "kept"][:THREADS]
    instance.here(
        "import",
        write_lines(instance.home / "threads.jsonl", map(as_import, chosen)),
        "--json",
    )
    return instance


async def test_a_budget_stops_cleanly_and_costs_are_told(instance: Instance) -> None:
    models = Path(instance.settings["MEDLIVE_CONFIG"]) / "models.toml"
    async with counting_endpoint() as endpoint:
        write_models(models.parent, endpoint.url)
        refused = await _do(_limited(instance, max_usd=1), "curate", status=2)
        assert "rules (screener)" in refused.err
        assert "[prices]" in refused.err
        assert endpoint.asked == 0

        models.write_text(models.read_text(encoding="utf-8") + PRICE, encoding="utf-8")
        cut = await _do(_limited(instance, max_calls=5), "curate", "--json", status=1)
        assert (
            "The budget of 5 calls is spent; threads cut short: 1, not begun: 2"
            in cut.err
        )
        assert endpoint.asked == 5
        assert cut.json["failures"] == {"budget_spent": 1}
        assert (cut.json["left"], cut.json["spent"]["calls"]) == (THREADS - 1, 5)
        assert cut.json["spent"]["usd"] == pytest.approx(_told_by_replies(instance))
        assert {place[0] for place in instance.places().values()} == {
            "failed",
            "pending",
        }

        poor = await _do(
            _limited(instance, max_usd=0.00001), "curate", "--json", status=1
        )
        assert (
            poor.json["spent"]["calls"] == 1
        )  # made while anything was left, and alone

        rest = (await _do(_limited(instance, max_usd=1000), "curate", "--json")).json
        assert sum(rest["outcomes"].values()) == THREADS
        assert rest["spent"]["stopped"] is None
        assert endpoint.asked == instance.one("SELECT count(*) FROM replies"), (
            "paid twice"
        )

        cost = (await _do(instance, "cost", "--json")).json
        _costs_agree(instance, cost)

        instance.change("ALTER TABLE replies DISABLE TRIGGER USER")
        instance.change(
            "UPDATE replies SET cost_usd = NULL WHERE task = 'controller.write'"
        )
        unknown = (await _do(instance, "status", "--json", status=1)).json
        assert "unpriced" in {problem["code"] for problem in unknown["problems"]}
        assert unknown["week"]["usd"] is None
        cost = (await _do(instance, "cost", "--json")).json
        stages = {row["name"]: row for row in cost["spent"] if row["by"] == "stage"}
        assert stages["controller"]["cost_usd"] is None
        assert stages["screener"]["cost_usd"] is not None
        assert cost["usd_a_kept_case"] is None
        shown = await _do(instance, "status", status=1)
        assert "known usd" in shown.out


@pytest.mark.thorough
async def test_a_weeks_budget_leaves_threads_as_they_were_and_the_next_week_goes_on(
    instance: Instance,
) -> None:
    models = Path(instance.settings["MEDLIVE_CONFIG"]) / "models.toml"
    async with counting_endpoint() as endpoint:
        write_models(models.parent, endpoint.url)
        for unpriced in ({"week_usd": 1}, {"stage_week_usd__screener": 1}):
            refused = await _do(_limited(instance, **unpriced), "curate", status=2)
            assert "[prices]" in refused.err
        models.write_text(models.read_text(encoding="utf-8") + PRICE, encoding="utf-8")
        for limit in ({"week_usd": 0.0001}, {"stage_week_usd__screener": 0.0001}):
            poor = _limited(instance, **limit)
            before = instance.one("SELECT count(*) FROM curations")
            cut = await _do(poor, "curate", "--json", status=1)
            assert (
                sum(cut.json["outcomes"].values()) + cut.json["left"]
                == THREADS - before
            )
            assert "failed" not in cut.json["outcomes"]
            assert "is spent" in cut.json["spent"]["stopped"]
            assert instance.one("SELECT count(*) FROM curations") < THREADS
            asked = endpoint.asked
            assert (
                sum(
                    (await _do(poor, "curate", "--json", status=1))
                    .json["outcomes"]
                    .values()
                )
                == 0
            )
            assert endpoint.asked == asked
            problems = (await _do(poor, "status", "--json", status=1)).json["problems"]
            assert "US dollars for" in next(
                p["text"] for p in problems if p["code"] == "budget_spent"
            )
            assert "is spent" in (await _do(poor, "status", "--check", status=1)).out
            # A week later the same budget is new.
            instance.change("ALTER TABLE replies DISABLE TRIGGER USER")
            instance.change(
                "UPDATE replies SET created_at = created_at - interval '7 days'"
            )
        rich = _limited(instance, week_usd=1000)
        assert sum((await _do(rich, "curate", "--json")).json["outcomes"].values()) >= 1
        assert endpoint.asked == instance.one("SELECT count(*) FROM replies"), (
            "paid twice"
        )
        week = (await _do(rich, "status", "--json")).json["week"]
        assert week["usd"] == pytest.approx(sum(week["known_stages"].values()))
        assert (week["waiting"], week["projected_usd"]) == (
            0,
            pytest.approx(week["usd"]),
        )
        shown = await _do(rich, "status")
        assert "budget usd" in shown.out
        assert "projected usd" in shown.out
        assert "1000" in shown.out
        told = (await _do(rich, "cost", "--week", "this", "--json")).json
        stages = {
            row["name"]: row["cost_usd"]
            for row in told["spent"]
            if row["by"] == "stage"
        }
        assert stages == pytest.approx(week["known_stages"])
        a_case = week["usd"] / told["kept"]
        assert told["usd_a_kept_case"] == pytest.approx(a_case)


@pytest.mark.thorough
async def test_a_weeks_budget_holds_at_an_endpoint_that_reports_no_usage(
    instance: Instance,
) -> None:
    models = Path(instance.settings["MEDLIVE_CONFIG"]) / "models.toml"
    async with counting_endpoint(usage=False) as endpoint:
        write_models(models.parent, endpoint.url)
        models.write_text(models.read_text(encoding="utf-8") + PRICE, encoding="utf-8")
        cut = await _do(_limited(instance, week_usd=0.01), "curate", "--json", status=1)
        assert "is spent" in cut.json["spent"]["stopped"]
        assert cut.json["left"] > 0
        assert cut.json["spent"]["estimated_calls"] == endpoint.asked
    replies = instance.rows(
        "SELECT inputs::text, text, input_tokens, output_tokens, estimated FROM replies"
    )
    for inputs, reply, asked, answered, estimated in replies:
        assert estimated
        assert (asked > len(inputs), answered >= len(reply)) == (True, True)
    status = await _do(_limited(instance, week_usd=0.01), "status", "--json", status=1)
    assert "budget_spent" in {problem["code"] for problem in status.json["problems"]}
    assert status.json["week"]["usd"] > 0.01
    assert status.json["week"]["estimated"] == len(replies)
    costs = (await _do(instance, "cost", "--week", "this", "--json")).json
    assert {row["estimated"] for row in costs["spent"] if row["by"] == "all"} == {
        len(replies)
    }
    week = (await _do(instance, "week", "show", "--json")).json
    assert week["cost"]["estimated"] == len(replies)
    assert "by an upper bound" in (await _do(instance, "status", status=None)).err


def _told_by_replies(instance: Instance) -> float:
    return float(
        instance.one(
            "SELECT sum(input_tokens * 2.0 + output_tokens * 8.0) / 1e6 FROM replies"
        )
    )


def _costs_agree(instance: Instance, cost: dict[str, Any]) -> None:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in cost["spent"]:
        rows.setdefault(row["by"], []).append(row)
    [whole] = rows["all"]
    assert {stage["name"] for stage in rows["stage"]} >= {
        "screener",
        "validator",
        "controller",
        "rubric",
    }
    assert whole["cost_usd"] == pytest.approx(_told_by_replies(instance))
    for key in ("replies", "input_tokens", "output_tokens", "cost_usd"):
        for by in ("stage", "task"):
            assert whole[key] == pytest.approx(sum(row[key] for row in rows[by]))
    kept = instance.one("SELECT count(*) FROM cases")
    assert cost["kept"] == kept
    assert cost["usd_a_kept_case"] == pytest.approx(whole["cost_usd"] / kept)
