"""Comparison in pairs: who wins, what a draw is, what is no match, and a run that goes on where it stopped."""

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from medlive.cli.evaluation.protocol import describe_tables
from medlive.cli.main import build
from medlive.cli.output import Result, show_result
from medlive.errors import UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.protocols.model import Material, Results
from medlive.evaluation.protocols.pairwise import (
    PairReply,
    Pairwise,
    check_pair,
)
from medlive.evaluation.runs.folder import ModelUse
from medlive.evaluation.scoring.graded import load_graded
from medlive.llm.budget import Budget
from medlive.llm.engine import EngineIdentity, Request
from tests.support.bad_endpoint import bad_endpoint, completion, sends
from tests.support.judged import (
    plan_protocol,
    read_findings,
    run_protocol,
)
from tests.support.runs import run_of
from tests.unit.evaluation.conftest import AT, Judge, Model, make_cases, reply

WHO = EngineIdentity("openai", "judge-1", {"temperature": 0})


def prefers(better: str, **criteria: str) -> str:
    sides = dict.fromkeys(
        ("relevance", "completeness", "safety", "ethics", "clarity"), better
    )
    return json.dumps({"reasoning": "Why."} | sides | criteria | {"better": better})


def by_skill(request: Request) -> str:
    """A judge that finds the word with the higher number in the answers better, whatever the order."""
    skills = [
        int(str(request.inputs[side]).rpartition(" ")[2])
        for side in ("first", "second")
    ]
    return prefers(
        "equal"
        if skills[0] == skills[1]
        else "first"
        if skills[0] > skills[1]
        else "second"
    )


async def material(folder: Path, models: int, cases: int = 12) -> Material:
    """Model m's answers end in its number."""
    paths = []
    for place in range(models):
        answer = reply(f"Rest. Skill {place}", model=f"m{place}")
        said = Model(lambda prompt, answer=answer: answer)  # type: ignore[misc]
        await run_model(
            make_cases(cases),
            said,
            folder / f"r{place}",
            use=ModelUse(f"m{place}"),
            created_at=AT,
        )
        paths.append(folder / f"r{place}")
    return [load_graded(path) for path in paths]


async def play(
    protocol: Pairwise, stuff: Material, out: Path, judge: Judge, **how: Any
) -> Results:
    await run_protocol(protocol, stuff, out, judge, **how)
    return protocol.results(stuff, read_findings(protocol, out, judge.identity)[0])


ALL = Pairwise(draws=100)


async def test_the_better_model_wins_whatever_the_order(tmp_path: Path) -> None:
    stuff = await material(tmp_path, 3)
    judge = Judge(by_skill)
    found = await play(ALL, stuff, tmp_path, judge)
    assert len(judge.requests) == 3 * 12 * 2
    assert [row[0] for row in found.tables[0].rows] == ["m2", "m1", "m0"]
    assert found.notes == [
        "in 0 of 36 matches asked in both orders, place decided: one side won twice"
    ]


async def test_answers_to_other_questions_under_the_same_id_never_meet(
    tmp_path: Path,
) -> None:
    one, other = await material(tmp_path, 2)
    revised = tuple(
        replace(c, query="Another?") if n < 4 else c for n, c in enumerate(other.cases)
    )
    judge = Judge(by_skill)
    await play(ALL, [one, run_of(other.label, revised, other.answers)], tmp_path, judge)
    assert len(judge.requests) == 8 * 2


async def test_models_that_no_match_links_are_named(tmp_path: Path) -> None:
    stuff = await material(tmp_path, 4)
    apart = list(stuff[:2])
    for run in stuff[2:]:
        others = tuple(replace(case, query="Another?") for case in run.cases)
        apart.append(run_of(run.label, others, run.answers))
    found = await play(ALL, apart, tmp_path, Judge(by_skill))
    assert found.notes[0].endswith("cannot be compared: m0, m1 | m2, m3")


async def test_who_always_takes_the_first_gives_draws_alone(tmp_path: Path) -> None:
    stuff = await material(tmp_path, 2)
    found = await play(ALL, stuff, tmp_path, Judge(lambda _: prefers("first")))
    assert found.figures == {"m0": pytest.approx(1000), "m1": pytest.approx(1000)}
    assert found.notes[0].startswith("in 12 of 12 matches")


async def test_what_is_equal_at_once_is_asked_once(tmp_path: Path) -> None:
    stuff = await material(tmp_path, 2)
    judge = Judge(lambda _: prefers("equal"))
    found = await play(ALL, stuff, tmp_path, judge)
    assert len(judge.requests) == 12
    assert found.tables[0].rows[0][4:] == [12]


async def test_a_failed_comparison_is_no_draw_and_is_asked_again(
    tmp_path: Path,
) -> None:
    stuff = await material(tmp_path, 2)
    rng = random.Random(2)
    odd = Judge(
        lambda request: "Both are fine." if rng.random() < 0.4 else by_skill(request)
    )
    done = await run_protocol(ALL, stuff, tmp_path, odd, max_retries=0)
    assert done.settled < done.questions
    assert done.reasons
    found = ALL.results(stuff, read_findings(ALL, tmp_path, WHO)[0])
    assert int(found.tables[0].rows[0][4] or 0) < 12
    judge = Judge(by_skill)
    found = await play(ALL, stuff, tmp_path, judge)
    assert found.tables[0].rows[0][4] == 12
    assert len(odd.requests) + len(judge.requests) > 24
    assert (
        all(
            request.round for request in judge.requests if "Both" in str(request.repair)
        )
        or judge.requests
    )


async def test_a_stopped_run_goes_on_and_nothing_is_paid_twice(tmp_path: Path) -> None:
    stuff = await material(tmp_path, 4)
    judge = Judge(by_skill)
    some = Pairwise(matches=40, draws=50)
    plan = plan_protocol(some, stuff, tmp_path, WHO)
    assert plan.calls == 40  # one order
    done = await run_protocol(some, stuff, tmp_path, judge, budget=Budget(max_calls=30))
    assert done.stopped
    await run_protocol(some, stuff, tmp_path, judge)
    asked = [request.digest(WHO) for request in judge.requests]
    assert len(asked) == len(set(asked)) == 80
    again = await run_protocol(some, stuff, tmp_path, judge)
    assert (again.calls, again.questions, again.settled) == (0, 80, 80)


@pytest.mark.thorough
async def test_judges_are_pooled_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stuff = await material(tmp_path, 4)

    def mixed(request: Request) -> str:
        """Takes the best model for the worst, and likes the others as the first judge does."""
        skills = [
            int(str(request.inputs[side]).rpartition(" ")[2]) % 3
            for side in ("first", "second")
        ]
        return prefers(
            "equal"
            if skills[0] == skills[1]
            else "first"
            if skills[0] > skills[1]
            else "second"
        )

    alone = await play(ALL, stuff, tmp_path, Judge(by_skill))
    assert len(alone.tables) == 1
    both = await play(ALL, stuff, tmp_path, Judge(mixed, model="judge-2"))
    pooled, agreement = both.tables
    assert [row[0] for row in pooled.rows] == ["m2", "m3", "m1", "m0"]
    assert "Pooled over judge-2, judge-1." in pooled.note
    assert {row[4] for row in pooled.rows} == {72}
    # Ranks 1, 2, 3, 4 against 1.5, 3, 4, 1.5.
    ((_, _, spearman),) = agreement.rows
    assert spearman == pytest.approx(1 / np.sqrt(90), abs=1e-9)
    for table in (pooled,):
        at = list(table.columns).index("low")
        for row in table.rows:
            value, low, high = row[at - 1 : at + 2]
            assert isinstance(value, float)
            assert isinstance(low, float)
            assert isinstance(high, float)
            assert low - 1e-6 <= value <= high + 1e-6
    show_result(Result(None, describe_tables(both.tables)))
    assert "judge-2" in capsys.readouterr().out
    one, two = (await play(ALL, stuff, tmp_path, Judge(by_skill))).figures, both.figures
    assert one == two  # whoever asked last


def test_a_preference_that_every_criterion_denies_is_unusable() -> None:
    sides = dict.fromkeys(
        ("relevance", "completeness", "safety", "ethics", "clarity"), "equal"
    )
    assert (
        check_pair(
            PairReply.model_validate({"reasoning": "", **sides, "better": "first"})
        )
        is None
    )
    sides["safety"] = "second"
    denied = PairReply.model_validate({"reasoning": "", **sides, "better": "first"})
    assert check_pair(denied) == "better is 'first', and no criterion is"


async def test_a_model_without_an_answer_is_na_whichever_judge_is_named(
    tmp_path: Path,
) -> None:
    await run_model(
        make_cases(2),
        Model(lambda _: reply("")),
        tmp_path / "run",
        use=ModelUse("m"),
        created_at=AT,
    )
    assert load_graded(tmp_path / "run", judge="judge-1").grader is None
    # Nor has one whose cases have no rubric, such as harmful requests.
    plain, said = make_cases(2, criteria=0), Model(lambda _: reply("No."))
    await run_model(plain, said, tmp_path / "plain", use=ModelUse("m"), created_at=AT)
    assert load_graded(tmp_path / "plain", judge="judge-1").grader is None
    await run_model(
        make_cases(2), said, tmp_path / "ungraded", use=ModelUse("m"), created_at=AT
    )
    with pytest.raises(UsageError):
        load_graded(tmp_path / "ungraded", judge="judge-1")
    stuff = [
        *await material(tmp_path, 2),
        load_graded(tmp_path / "run"),
    ]
    found = await play(ALL, stuff, tmp_path, Judge(by_skill))
    assert found.figures["m"] is None
    two = await play(ALL, stuff[:2], tmp_path, Judge(by_skill))
    assert found.figures == {**two.figures, "m": None}


async def test_one_model_cannot_be_compared(tmp_path: Path) -> None:
    stuff = await material(tmp_path, 1)
    with pytest.raises(UsageError):
        await run_protocol(ALL, stuff, tmp_path, Judge(by_skill))


@pytest.mark.thorough
async def test_the_command_plans_asks_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await material(tmp_path, 2)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path / "home"))
    base = [
        "eval",
        "protocol",
        "run",
        "pairwise",
        str(tmp_path / "r0"),
        str(tmp_path / "r1"),
    ]
    async with bad_endpoint(
        choose=lambda _: sends(completion(prefers("equal")))
    ) as endpoint:
        base += [
            "--grader",
            "model-as-served",
            "--base-url",
            endpoint.url,
            "--out",
            str(tmp_path / "out"),
            "--json",
        ]
        planned = await asyncio.to_thread(
            CliRunner().invoke, build(["eval"]), [*base, "--dry-run"]
        )
        every = await asyncio.to_thread(
            CliRunner().invoke,
            build(["eval"]),
            ["eval", "protocol", "all", *base[4:], "--dry-run"],
        )
        done = await asyncio.to_thread(CliRunner().invoke, build(["eval"]), base)
    assert planned.exit_code == 0, planned.output
    assert set(json.loads(every.stdout)) == {
        "checklist",
        "cross-examination",
        "pairwise",
    }
    assert done.exit_code == 0, done.output
    value = json.loads(done.stdout)
    told = value["questions"]
    assert told | {"calls": 0} == {
        "judge": "model-as-served",
        "asked": 12,
        "answered": 12,
        "ungraded": {},
        "calls": 0,
    }
    assert value["tables"][0]["rows"][0][4] == 12
    wrong = await asyncio.to_thread(
        CliRunner().invoke, build(["eval"]), [*base, "--set", "matches=0"]
    )
    assert "matches: Input should be" in str(wrong.exception)


@pytest.mark.thorough
async def test_dollars_are_the_folders_in_all_and_a_spent_budget_leaves_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await material(tmp_path, 2)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path / "home"))
    runs, out = [str(tmp_path / "r0"), str(tmp_path / "r1")], str(tmp_path / "out")

    async def apply(url: str, *words: str) -> Any:
        by = ["--grader", "model-as-served", "--base-url", url, "--concurrency", "1"]
        line = ["eval", "protocol", *words, "--out", out, "--price", "1000,1000", *by]
        line += ["--json"]
        return await asyncio.to_thread(CliRunner().invoke, build(["eval"]), line)

    async with bad_endpoint(
        choose=lambda _: sends(completion(prefers("equal")))
    ) as endpoint:
        first = await apply(endpoint.url, "run", "pairwise", *runs, "--max-calls", "2")
        usd = json.loads(first.stdout)["spent"]["usd"]
        assert usd > 0
        limit = ("--max-usd", str(usd))
        before = endpoint.asked
        again = await apply(endpoint.url, "run", "pairwise", *runs, *limit)
        assert "is spent" in str(again.exception)
        value = json.loads(again.stdout)
        assert value["tables"][0]["rows"][0][4] == 2
        assert value["questions"]["answered"] == 2
        assert value["spent"]["usd_before"] == pytest.approx(usd)
        # What one protocol has cost counts for the others in the folder.
        every = await apply(endpoint.url, "all", *runs, *limit)
        assert "is spent" in str(every.exception)
        assert endpoint.asked == before
        tasks = [task["task"] for task in json.loads(every.stdout)["tasks"]]
        assert tasks == ["checklist", "cross-examination", "pairwise"]
