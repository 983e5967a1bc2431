"""`eval meta`: a scripted grader against scripted people, each figure against its formula on the plain labels.

The formulas themselves are held against irrCAC, scikit-learn and scipy in test_stats_agreement_oracles.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.errors import BadInput, UsageError
from medlive.evaluation.agreement.judges import compare_judges
from medlive.evaluation.agreement.meta import Meta, meta_run
from medlive.evaluation.asking.run import import_answers
from medlive.evaluation.grading.direct import DIRECT, read_direct
from medlive.evaluation.grading.grade import grade_run, repeat_run
from medlive.evaluation.model import (
    Answer,
    AnswerState,
)
from medlive.grader.judge import Mode
from medlive.llm.budget import Budget
from medlive.llm.engine import Reply, Request
from medlive.statistics import raters as panels
from medlive.statistics.correlation import pearson, pearson_p
from tests.support.agreement import ac1, ac1_raters, kappa, macro_f1
from tests.support.judged import judge_direct
from tests.unit.evaluation.conftest import AT, Judge, down, make_cases, reply, verdict

AGREEMENT = Path(__file__).parents[4] / "shared" / "realdata" / "agreement"
KQA = AGREEMENT / "kqa_NLI_medical_annotator.csv"
real = pytest.mark.skipif(
    not KQA.exists(), reason="../shared/realdata/agreement is absent"
)

N = 12
RATERS = ("ann", "bo", "cy")
RNG = np.random.default_rng(7)
TRUTH = {
    (f"c{i:03d}", f"k{j}"): bool(RNG.integers(2)) for i in range(N) for j in range(3)
}
SAID = {
    place: {
        rater: None if RNG.random() < 0.1 else met ^ bool(RNG.random() < 0.2)
        for rater in RATERS
    }
    for place, met in TRUTH.items()
}
INVALID = {("c000", "k0"), ("c003", "k2"), ("c004", "k1")}
FAILED = {("c005", "k1"), ("c007", "k0")}
GRADER = {place: met ^ bool(RNG.random() < 0.25) for place, met in TRUTH.items()}


def place_of(request: Request) -> tuple[str, str]:
    i, j = str(request.inputs["criterion"]).removeprefix("criterion ").split(".")
    return f"c{int(i):03d}", f"k{j}"


def grader(flip: float = 0.0, seed: int = 0) -> Judge:
    noise = np.random.default_rng(seed)

    def answer(request: Request) -> str | Exception:
        place = place_of(request)
        if place in FAILED:
            return down()
        if place in INVALID:
            return '{"met": "perhaps"}'
        return verdict(GRADER[place] ^ bool(noise.random() < flip))

    return Judge(answer)


async def graded(path: Path, clusters: int | None = None) -> Path:
    cases = make_cases(N)
    if clusters is not None:
        together = [
            replace(case, cluster=f"q{i % clusters}")
            for i, case in enumerate(cases.cases)
        ]
        cases = replace(cases, cases=tuple(together))
    answers = [
        Answer(f"c{i:03d}", AnswerState.OK, f"Drink water, {i}.", "stop", "m")
        for i in range(N)
    ]
    import_answers(path, cases, answers, "cand", AT)
    await grade_run(path, grader(), concurrency=1, max_retries=0, mode=Mode.CRITERION)
    return path


def human_file(
    path: Path, said: Mapping[tuple[str, str], Mapping[str, bool | None]] = SAID
) -> Path:
    rows = [
        {"case_id": case, "criterion_id": criterion, "rater": rater, "met": met}
        for (case, criterion), by in said.items()
        for rater, met in by.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
async def run(run_dir: Path) -> Path:
    return await graded(run_dir)


@pytest.fixture
def found(run: Path, tmp_path: Path) -> Meta:
    return meta_run(run, human=[human_file(tmp_path / "people.jsonl")], draws=100)


def test_criteria_are_counted_and_figures_are_their_formulas(found: Meta) -> None:
    coverage, criteria = found.coverage, found.criteria
    assert coverage is not None
    assert criteria is not None
    rated = [
        place
        for place, by in SAID.items()
        if any(met is not None for met in by.values())
    ]
    assert (coverage["criteria"], coverage["rated"]) == (36, len(rated))
    assert (coverage["invalid"], coverage["ungraded"]) == (
        len(INVALID & set(rated)),
        len(FAILED & set(rated)),
    )
    f1 = []
    for rater, pair in zip(RATERS, criteria.grader, strict=True):
        truth = {
            p: by[rater]
            for p, by in SAID.items()
            if by[rater] is not None and p not in FAILED
        }
        said = [None if p in INVALID else GRADER[p] for p in truth]
        f1.append(macro_f1(list(truth.values()), said, [True, False]))
        assert pair.macro_f1.value == pytest.approx(f1[-1])
        assert pair.macro_f1.n == len(truth)
        decided = [p for p in truth if p not in INVALID]
        ours, theirs = [GRADER[p] for p in decided], [truth[p] for p in decided]
        assert pair.kappa.value == pytest.approx(kappa(theirs, ours))
        c = pair.confusion
        both = Counter(zip(theirs, ours, strict=True))
        assert (c.both_met, c.neither) == (both[True, True], both[False, False])
        assert (c.first_only, c.second_only) == (both[True, False], both[False, True])
        assert c.invalid_met + c.invalid_not_met == len(truth) - len(decided)
        assert pair.ac1.value == pytest.approx(ac1(theirs, ours, 2))
        assert pair.ac1.value is not None
        low, high = pair.ac1.low, pair.ac1.high
        assert low is not None
        assert high is not None
        assert low < pair.ac1.value < high
    assert criteria.grader_macro_f1.value == pytest.approx(np.mean(f1))
    assert criteria.people_ac1.value == pytest.approx(
        ac1_raters([list(by.values()) for by in SAID.values()], 2)
    )
    assert len(criteria.people) == 3
    written = json.dumps(found.as_json(), allow_nan=False)
    read = TypeAdapter(Meta).validate_json(written)
    assert read.criteria == criteria


def test_by_case_strictness_and_majority_are_their_definitions(found: Meta) -> None:
    criteria = found.criteria
    assert criteria.by_case is not None
    assert criteria.strictness is not None
    by_case = []
    for case in {case for case, _ in TRUTH}:
        each = []
        for rater in RATERS:
            both = [
                (by[rater], None if p in INVALID else GRADER[p])
                for p, by in SAID.items()
                if p[0] == case and by[rater] is not None and p not in FAILED
            ]
            if both:
                truth, said = zip(*both, strict=True)
                labels = list({*truth, *said} - {None})
                each.append(macro_f1(truth, said, labels))
        by_case.append(np.mean(each))
    assert criteria.by_case.mean.n == len(by_case) == N
    assert criteria.by_case.mean.value == pytest.approx(np.mean(by_case))
    below = np.mean([value < 0.6 for value in by_case])
    assert criteria.by_case.below.value == pytest.approx(below)
    shared = [
        (GRADER[p], np.mean([m for m in by.values() if m is not None]))
        for p, by in SAID.items()
        if p not in INVALID | FAILED and any(m is not None for m in by.values())
    ]
    ours, theirs = (np.mean([pair[side] for pair in shared]) for side in (0, 1))
    assert criteria.strictness.difference.value == pytest.approx(ours - theirs)
    assert criteria.strictness.grader.n == len(shared)
    votes = {
        p: sum(1 if m else -1 for m in by.values() if m is not None)
        for p, by in SAID.items()
    }
    ties = sum(
        v == 0 and any(m is not None for m in SAID[p].values())
        for p, v in votes.items()
    )
    assert criteria.majority_ties == ties
    c = criteria.majority.confusion
    assert c.both_met == sum(
        v > 0 and GRADER[p] for p, v in votes.items() if p not in INVALID | FAILED
    )


async def test_case_scores_against_people_and_a_direct_judge(
    run: Path, tmp_path: Path
) -> None:
    scores = {f"c{i:03d}": round(float(RNG.random()), 3) for i in range(N)}
    asked: list[str] = []

    def answer(request: Request) -> str:
        text = str(request.inputs["answer"])
        asked.append(text)
        if text.endswith(", 2."):
            return '{"score": "0.5", "reasoning": ""}'
        if text.endswith(", 6.") and request.repair is None:
            return "I would say 0.5"
        return json.dumps(
            {"reasoning": "so", "score": scores[f"c{int(text[13:-1]):03d}"] / 2}
        )

    done = await judge_direct(run, Judge(answer), concurrency=2)
    assert (done.questions, done.settled, done.calls) == (N, N - 1, N + 2)
    assert list(done.reasons) == ["score: Input should be a valid number"]
    asked.clear()
    assert (
        await judge_direct(run, Judge(answer))
    ).calls == 2  # what had no score is asked again, alone
    assert {text[-4:] for text in asked} == {", 2."}
    model, by_direct = read_direct(run, [])
    assert (model, by_direct["c002"]) == ("judge-1", None)

    rows = [
        {"case_id": c, "rater": r, "score": s}
        for c, s in scores.items()
        for r in ("ann", "bo")
    ]
    rows[1]["score"] = None
    people = tmp_path / "scores.jsonl"
    people.write_text("\n".join(map(json.dumps, rows)))
    found = meta_run(run, human=[people], draws=100)
    assert found.coverage["people_scores"] == "given"
    rubric, judged = found.cases
    assert [level.method for level in found.cases] == ["rubric", "direct"]
    assert judged.pearson.n == N - 1
    assert judged.pearson.value == pytest.approx(1)
    assert judged.mean.value == pytest.approx(
        np.mean([s for c, s in scores.items() if c != "c002"]) / 2
    )
    whole = {c for c in scores if c not in {p[0] for p in INVALID | FAILED}}
    assert rubric.pearson.n == len(whole)
    points = {"k0": 5.0, "k1": -4.0, "k2": 3.0}
    ours = [
        min(1, max(0, sum(points[k] for k in points if GRADER[c, k]) / 8))
        for c in sorted(whole)
    ]
    r = pearson(np.array(ours), np.array([scores[c] for c in sorted(whole)]))
    assert r is not None
    assert (rubric.pearson.value, rubric.pearson.p) == pytest.approx(
        (r, pearson_p(r, len(whole)))
    )


def test_the_order_of_rows_changes_no_figure(run: Path, tmp_path: Path) -> None:
    rows = [
        {
            "case_id": f"c{i:03d}",
            "rater": rater,
            "score": round(((7 * i + k) % 11) / 11, 3),
        }
        for i in range(N)
        for k, rater in enumerate(("ann", "bo"))
    ]
    given, derived = tmp_path / "scores.jsonl", human_file(tmp_path / "said.jsonl")
    given.write_text("\n".join(map(json.dumps, rows)))
    for file in (given, derived):
        (once,) = meta_run(run, human=[file], draws=100).cases
        file.write_text(
            "\n".join(sorted(file.read_text().splitlines(), key=lambda row: row[::-1]))
        )
        (again,) = meta_run(run, human=[file], draws=100).cases
        assert once.pearson.low is not None
        assert again.pearson.low == pytest.approx(once.pearson.low)


def test_people_who_gave_no_score_get_equation_1(found: Meta) -> None:
    assert found.coverage["people_scores"] == "derived"
    whole = {
        case
        for case, _ in TRUTH
        if any(
            all(SAID[case, f"k{j}"][rater] is not None for j in range(3))
            for rater in RATERS
        )
    }
    assert found.coverage["cases_scored_by_people"] == len(whole)


async def test_the_direct_judge_is_not_led_or_led_astray(run: Path) -> None:
    said: list[Reply | str | Exception] = [
        reply('{"reasoning": "", "score": 0.9}', model="other-1"),
        '{"reasoning": "", "score": 1.5}',
        '{"reasoning": "", "score": true}',
        '{"reasoning": "", "score": NaN}',
        '{"reasoning": "", "score": 0.1} Sorry, wrong: {"reasoning": "", "score": 0.9}',
        down(),
        '{"reasoning": "", "score": 0}',
    ]
    replies = iter(said)
    done = await judge_direct(
        run,
        Judge(lambda _: next(replies)),
        concurrency=1,
        max_retries=0,
        budget=Budget(7),
    )
    assert (done.settled, done.calls) == (1, 7)
    assert done.stopped is not None
    _, by_direct = read_direct(run, [])
    assert [score for score in by_direct.values() if score is not None] == [0.0]
    with pytest.raises(UsageError, match="rules"):
        await judge_direct(run, Judge(lambda _: "", engine="rules"))
    with (run / DIRECT).open("a") as log:
        log.write("{}\n")
    notes: list[str] = []
    read_direct(run, notes)
    assert [note.partition("row: ")[0] for note in notes] == [
        "direct.jsonl:8: not a valid "
    ]


async def test_graders_beside_each_other_and_one_with_itself(
    run: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError):
        meta_run(run)
    await repeat_run(
        run,
        grader(0.3, seed=1),
        repeats=3,
        concurrency=1,
        max_retries=0,
        mode=Mode.CRITERION,
    )

    def by_rubric(request: Request) -> str:
        grades = [
            {
                "id": one["id"],
                **json.loads(verdict(not GRADER[place_of_text(one["criterion"])])),
            }
            for one in request.inputs["criteria"]
        ]
        return json.dumps({"grades": grades})

    await grade_run(run, Judge(by_rubric), mode=Mode.RUBRIC)
    found = meta_run(
        run,
        judge=json.loads((run / "grades.jsonl").read_text().split("\n")[0])["judge"],
        draws=100,
    )
    again = found.repeated
    assert again["rounds"] == 3
    assert again["equal"].n == N * 3 - len(INVALID | FAILED)
    assert 0 < (again["equal"].value or 0) < 1
    judges = compare_judges([run], draws=100)
    pair = judges.criteria[0]["pair"]
    assert pair.equal.value == 0
    assert pair.equal.n == N * 3 - len(INVALID | FAILED)
    whole = sorted({c for c, _ in TRUTH} - {c for c, _ in INVALID | FAILED})
    points = {"k0": 5.0, "k1": -4.0, "k2": 3.0}
    ours, theirs = (
        np.array(
            [
                min(
                    1,
                    max(
                        0, sum(w for k, w in points.items() if GRADER[c, k] is met) / 8
                    ),
                )
                for c in whole
            ]
        )
        for met in (True, False)
    )
    means = [row["score"].value for row in judges.scores]
    assert means == [pytest.approx(own.mean()) for own in (ours, theirs)]
    # The first judge's verdicts in a folder of their own, whose log has lines that are no grades.
    other = await graded(tmp_path / "other")
    with (other / "grades.jsonl").open("a") as log:
        log.write('{"judge": "nobody"}\n{"judge": [1]}\n')
    with pytest.raises(UsageError, match="both cand"):
        compare_judges([other, run])
    whole_log = (run / "grades.jsonl").read_text().splitlines(keepends=True)
    (run / "grades.jsonl").write_text(
        "".join(row for row in whole_log if json.loads(row)["mode"] == "rubric")
    )
    assert compare_judges([other, run], draws=100).criteria[0]["pair"].equal.value == 0


def place_of_text(criterion: str) -> tuple[str, str]:
    i, j = criterion.removeprefix("criterion ").split(".")
    return f"c{int(i):03d}", f"k{j}"


def test_strangers_lonely_raters_and_doubles_are_said(
    run: Path, tmp_path: Path
) -> None:
    path = human_file(tmp_path / "people.jsonl")
    with path.open("a") as handle:
        for row in (
            {"case_id": "c000", "criterion_id": "k1", "rater": "dee", "met": True},
            {"case_id": "c000", "criterion_id": "k1", "rater": "dee", "met": True},
            {"case_id": "nowhere", "criterion_id": "k1", "rater": "ann", "met": True},
            {"case_id": "c000", "criterion_id": "k9", "rater": "ann", "met": True},
        ):
            handle.write(json.dumps(row) + "\n")
    found = meta_run(run, human=[path], draws=100)
    assert found.criteria is not None
    (lonely,) = [pair for pair in found.criteria.grader if pair.first == "dee"]
    assert (lonely.ac1.value, lonely.ac1.why) == (None, "1 items in common are too few")
    assert found.criteria.grader_macro_f1.value is not None
    notes = "\n".join(found.notes)
    for part in (
        "nowhere/k1",
        "c000/k9",
    ):
        assert part in notes
    only_strangers = tmp_path / "strangers.csv"
    only_strangers.write_text("case_id,rater,score\nelsewhere,ann,1\n")
    with pytest.raises(BadInput):
        meta_run(run, human=[only_strangers])


def test_replies_without_a_verdict_are_errors_in_the_mean_too() -> None:
    people = np.array([[panels.MET, panels.NOT_MET]] * 6)

    def found(grader: list[int]) -> panels.Reliability:
        return panels.reliability(
            people,
            np.array(grader),
            raters=("a", "b"),
            cases=[f"c{i}" for i in range(6)],
            draws=100,
        )

    void = found([panels.INVALID] * 6)
    assert (void.grader_macro_f1.value, void.grader_macro_f1.n) == (0.0, 6)
    assert void.grader_ac1.value is None
    some = found([panels.MET] * 5 + [panels.INVALID])
    against_a = macro_f1([True] * 6, [*[True] * 5, None], [True, False])
    assert some.grader_macro_f1.value == pytest.approx((against_a or 0) / 2)
    assert (some.grader_ac1.n, some.grader_macro_f1.n) == (5, 6)
    assert (
        some.grader_ac1.value,
        some.grader[0].ac1.value,
        some.grader[1].ac1.value,
    ) == (0.0, 1.0, -1.0)


async def test_cases_of_one_cluster_are_drawn_together(tmp_path: Path) -> None:
    human = human_file(tmp_path / "p.jsonl")
    intervals = []
    for clusters in (6, None):
        run = await graded(tmp_path / f"run {clusters}", clusters=clusters)
        people = meta_run(run, human=[human], draws=100)
        assert people.criteria is not None
        assert people.criteria.by_case is not None
        estimates = [
            people.criteria.people_ac1,
            people.criteria.by_case.mean,
            people.cases[0].pearson,
            people.cases[0].mean,
        ]
        intervals.append([(own.low, own.high) for own in estimates])
    for together, alone in zip(*intervals, strict=True):
        assert together != alone


async def test_the_command_shows_and_writes_what_it_found(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    await judge_direct(run, Judge(lambda _: '{"reasoning": "", "score": 0.5}'))
    await repeat_run(
        run,
        grader(0.3, seed=1),
        repeats=2,
        concurrency=1,
        max_retries=0,
        mode=Mode.CRITERION,
    )
    people = human_file(tmp_path / "people.jsonl")
    words = [
        "eval",
        "meta",
        str(run),
        "--human",
        str(people),
        "--draws",
        "100",
    ]
    done = await asyncio.to_thread(CliRunner().invoke, build(words), words)
    assert done.exit_code == 0, done.output
    for part in ("majority", "- (one side is", "share of cases under 0.6", "rounds"):
        assert part in done.output
    told = await asyncio.to_thread(CliRunner().invoke, build(words), [*words, "--json"])
    written = json.loads(told.stdout)
    assert [level["method"] for level in written["cases"]] == ["rubric", "direct"]
    assert written["repeated"]["rounds"] == 2
    assert written["cases"][1]["pearson"]["value"] is None
