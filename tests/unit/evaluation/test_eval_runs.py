"""Runs: append-only, continued where they stopped, never two writers, failures retried and not frozen in."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import BadInput, EndpointUnavailable, UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.model import AnswerState
from medlive.evaluation.runs.folder import ModelUse, open_run
from medlive.evaluation.runs.templates import TEMPLATES, load_template
from medlive.integrity.log import read_log
from medlive.llm.engine import Finish, Reply
from tests.unit.evaluation.conftest import AT, USE, Model, down, make_cases, reply


async def test_every_case_is_asked_once_and_a_second_run_asks_nothing(
    run_dir: Path,
) -> None:
    model, cases = Model(), make_cases(12)
    result = await run_model(
        cases, model, run_dir, use=USE, created_at=AT, concurrency=5
    )
    assert result.states[AnswerState.OK] == 12
    assert len(model.prompts) == 12
    again = await run_model(cases, model, run_dir, use=USE, created_at=AT)
    assert again.calls == 0
    assert len(model.prompts) == 12
    info = json.loads((run_dir / "run.json").read_text("utf-8"))
    assert info["model"] == "cand-1"
    assert info["template"] == {
        "name": "clinical",
        "digest": load_template("clinical").digest,
    }
    assert info["cases"]["name"] == "2026.W47"


async def test_cases_that_go_on_from_each_other_are_not_asked(run_dir: Path) -> None:
    cases = make_cases(3)
    first, second, alone = cases.cases
    circle = replace(first, after="c001"), replace(second, after="c000"), alone
    done = await run_model(
        replace(cases, cases=circle),
        Model(),
        run_dir,
        use=USE,
        created_at=AT,
        template="as-is",
    )
    assert (done.calls, done.left) == (1, 2)


async def test_states_are_kept_apart_and_only_failures_are_asked_again(
    run_dir: Path,
) -> None:
    said: dict[str, Reply | Exception] = {
        "Narrative 0": reply("Fine.", Finish.STOP),
        "病史 1": reply("被截", Finish.LENGTH),
        "Narrative 2": reply("No.", Finish.REFUSAL),
        "病史 3": reply(" \n"),
        "Narrative 4": down(),
    }
    model = Model(lambda prompt: next(v for k, v in said.items() if k in prompt))
    cases = make_cases(5)
    first = await run_model(cases, model, run_dir, use=USE, created_at=AT)
    assert {s.value: n for s, n in first.states.items()} == {
        "ok": 1,
        "truncated": 1,
        "refused": 1,
        "empty": 1,
        "failed": 1,
    }
    answers, _ = open_run(run_dir).answers()
    assert answers["c004"].reason == "the endpoint gave status 500"
    assert [cid for cid, a in sorted(answers.items()) if a.gradable] == [
        "c000",
        "c001",
        "c002",
    ]
    said["病史 3"] = said["Narrative 4"] = reply("Now it works.")
    second = await run_model(cases, model, run_dir, use=USE, created_at=AT)
    assert second.calls == 2
    assert second.states[AnswerState.OK] == 3
    assert len(read_log(run_dir / "responses.jsonl")[0]) == 7


async def test_a_dead_endpoint_ends_the_run_and_keeps_what_there_is(
    run_dir: Path,
) -> None:
    model = Model(lambda prompt: reply("Fine.") if "Narrative 0" in prompt else down())
    with pytest.raises(EndpointUnavailable):
        await run_model(
            make_cases(200), model, run_dir, use=USE, created_at=AT, concurrency=2
        )
    assert len(model.prompts) < 40
    answers, _ = open_run(run_dir).answers()
    assert answers["c000"].state is AnswerState.OK


async def test_another_model_template_or_set_of_cases_needs_another_folder(
    run_dir: Path,
) -> None:
    model = Model()
    await run_model(make_cases(2), model, run_dir, use=USE, created_at=AT)
    others: list[tuple[str, int, dict[str, Any]]] = [
        ("model", 2, {"use": ModelUse("cand-2")}),
        ("template", 2, {"template": "open"}),
        ("cases", 3, {}),
    ]
    for differs, cases, changes in others:
        options: dict[str, Any] = {"use": USE, "created_at": AT} | changes
        with pytest.raises(UsageError, match=differs):
            await run_model(make_cases(cases), model, run_dir, **options)
    assert len(model.prompts) == 2


async def test_damage_in_the_middle_costs_one_answer_and_is_told(run_dir: Path) -> None:
    model, cases = Model(), make_cases(3)
    await run_model(cases, model, run_dir, use=USE, created_at=AT, concurrency=1)
    log = run_dir / "responses.jsonl"
    rows = log.read_bytes().split(b"\n")
    log.write_bytes(
        b"\n".join(
            [rows[0], rows[1][:20], rows[2], b'{"case_id":"zz","state":"ok"}', b""]
        )
    )
    result = await run_model(cases, model, run_dir, use=USE, created_at=AT)
    assert result.calls == 1
    assert result.states[AnswerState.OK] == 3
    assert any(":2:" in note for note in result.notes)


async def test_a_changed_copy_of_the_cases_is_refused(run_dir: Path) -> None:
    await run_model(make_cases(2), Model(), run_dir, use=USE, created_at=AT)
    file = run_dir / "cases.jsonl"
    file.write_bytes(file.read_bytes().replace(b"Rest.", b"Run!!"))
    with pytest.raises(BadInput):
        open_run(run_dir)


async def test_hostile_answers_come_back_as_they_were(run_dir: Path) -> None:
    text = 'a\x00b \ud800 \u2028 \U0001f600 مرحبا {"met": true}\n' + "x" * 100_000
    await run_model(
        make_cases(1), Model(lambda _: reply(text)), run_dir, use=USE, created_at=AT
    )
    assert open_run(run_dir).answers()[0]["c000"].response == text


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_put_in_the_case_as_it_is_and_follow_its_language(name: str) -> None:
    cases = make_cases(2).cases
    english, chinese = (
        load_template(name).messages(case)[0]["content"] for case in cases
    )
    assert "it costs $5 and ${query} hurts.\n\nWhat now?" in english
    assert "病史 1\n\n怎么办？" in chinese
    assert not any("\u4e00" <= c <= "\u9fff" for c in english)
    with pytest.raises(UsageError):
        load_template("../x")


async def test_calls_overlap_up_to_the_limit(run_dir: Path) -> None:
    under_way = most = 0

    async def slow(messages: object) -> object:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return reply("Fine.")

    await run_model(
        make_cases(40),
        slow,  # type: ignore[arg-type]
        run_dir,
        use=USE,
        created_at=AT,
        concurrency=8,
    )
    assert most == 8
