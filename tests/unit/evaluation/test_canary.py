"""The canary check against real endpoints over the real client: models that know, guess, echo, refuse and die."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from medlive.__main__ import run
from medlive.errors import BadInput
from medlive.evaluation.canary import (
    CanaryCheck,
    Marked,
    Outcome,
    Verdict,
    check_canary,
    longest_run,
    probes,
    read_marked,
)
from medlive.llm.engine import Finish, Reply, Usage
from medlive.llm.openai import OpenAIEngine
from medlive.snapshot.identity import canary_of
from tests.support.bad_endpoint import (
    BadEndpoint,
    Step,
    bad_endpoint,
    cuts_connection,
    fails,
)
from tests.support.bad_endpoint import completion as reply_of
from tests.support.releases import case, release

VERSION = "2026.W47"
CANARY = canary_of(VERSION)
GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Answer = Callable[[str], str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("releases")
    first = release(out, "2026.W46", [case("c1")])
    return release(out, VERSION, [case("c1"), case("c2")], first).path


@pytest.fixture(scope="module")
def marked(folder: Path) -> Marked:
    return read_marked(folder)[0]


def says(answer: Answer, **message: Any) -> Step:
    async def step(body: dict[str, Any]) -> web.StreamResponse:
        said = answer(body["messages"][-1]["content"])
        return web.json_response(reply_of(said, **message))

    return step


@asynccontextmanager
async def asked(
    marked: Marked, *script: Step, samples: int = 1
) -> AsyncIterator[tuple[CanaryCheck, BadEndpoint]]:
    async with bad_endpoint(script) as endpoint:
        engine = OpenAIEngine("m", endpoint.url, max_retries=0)
        try:
            yield await check_canary(marked, engine.complete, samples=samples), endpoint
        finally:
            await engine.aclose()


def test_the_snapshot_names_its_canary_and_the_words_around_it(
    folder: Path, marked: Marked
) -> None:
    assert marked.canary == CANARY
    assert {e.file for e in marked.excerpts} == {
        "LICENSE",
        "README.md",
        "manifest.json",
    }
    for excerpt in marked.excerpts:
        assert (
            excerpt.before + CANARY + excerpt.after
            in (folder / excerpt.file).read_text()
        )
    assert read_marked(folder)[1] == ("2026.W46",)


def test_no_probe_gives_away_what_counts(marked: Marked) -> None:
    texts = list(probes(marked))
    assert len({p.text for p in texts}) == len(texts)
    assert {p.given for p in texts} == {0, 8, 13, 18}
    for probe in texts:
        assert longest_run(probe.text, marked.canary) < 5
        assert longest_run(probe.text, marked.decoy) < 5
        shared = [n for n in range(37) if marked.canary[:n] in probe.text][-1]
        if probe.control:
            assert shared < 4
        else:
            assert shared == probe.given or probe.given == 0
    assert sum(p.control for p in texts) * 2 == len(texts)


async def test_a_model_that_knows_the_canary_is_seen(marked: Marked) -> None:
    def answer(prompt: str) -> str:
        return (
            marked.canary.upper() if marked.canary[:13] in prompt else "I do not know."
        )

    async with asked(marked, says(answer)) as (done, _):
        assert done.verdict is Verdict.SHOWN
        assert done.run == 16
        assert done.odds < 1e-12
        assert [s.offered for s in done.seen] == [s.run == 16 for s in done.seen]


@pytest.mark.parametrize(
    "form",
    [
        lambda guid: f"It is {guid}.",
        lambda guid: guid.upper().replace("-", ""),
        lambda guid: "**" + " ".join(guid) + "**",
        lambda guid: guid[18:],
        lambda guid: "".join(chr(ord(c) + 0xFEE0) for c in guid),
        lambda guid: f"```\n{guid[:23]}\n{guid[23:]}\n```",
    ],
    ids=["plain", "upper", "spaced", "end", "full-width", "fenced"],
)
def test_a_canary_is_found_however_it_is_written(form: Answer) -> None:
    assert longest_run(form(CANARY), CANARY) == 16


async def test_a_model_that_knows_only_an_ancestor_is_not_taken_to_know_this_one(
    marked: Marked,
) -> None:
    async with asked(marked, says(lambda _: canary_of("2026.W46"))) as (done, _):
        assert done.verdict is Verdict.NOT_SHOWN


async def test_echoes_and_completions_show_nothing(marked: Marked) -> None:
    given: list[str] = []

    def answer(prompt: str) -> str:
        given.append(prompt)
        return "\n".join(given) + " 00000000-0000-5000-8000-0123456789ab"

    async with asked(marked, says(answer)) as (done, endpoint):
        assert done.verdict is Verdict.NOT_SHOWN
        assert "does not prove" in done.why
        assert done.run < 6
        assert endpoint.asked == len(done.seen) == len(list(probes(marked)))
        # It completes a GUID that marks nothing as readily as the canary.
        assert done.tally(control=True)["offered"] == done.tally(control=True)["in all"]


@pytest.mark.parametrize(
    ("digits", "verdict"), [(11, Verdict.NOT_SHOWN), (12, Verdict.SHOWN)]
)
async def test_a_partial_canary_is_judged_by_its_digits(
    marked: Marked, digits: int, verdict: Verdict
) -> None:
    async def complete(_: object) -> Reply:
        end = marked.canary.replace("-", "")[16:]
        return Reply(f"zz{end[:digits]}zz", Finish.STOP, Usage(), "m")

    done = await check_canary(marked, complete, samples=2)
    assert (done.run, done.verdict) == (digits, verdict)
    assert len(done.seen) == 2 * len(list(probes(marked)))


async def test_an_endpoint_that_works_guids_out_proves_nothing(marked: Marked) -> None:
    async with asked(marked, says(lambda _: f"{marked.canary} {marked.decoy}")) as (
        done,
        _,
    ):
        assert done.verdict is Verdict.UNKNOWN
        assert "decoy" in done.why


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        (fails(500), Outcome.FAILED),
        (cuts_connection, Outcome.FAILED),
        (says(lambda _: "I cannot say.", finish="content_filter"), Outcome.REFUSED),
        (says(lambda _: " \n"), Outcome.EMPTY),
    ],
)
async def test_no_answer_is_unknown_and_never_not_shown(
    marked: Marked, step: Step, outcome: Outcome
) -> None:
    async with asked(marked, step) as (done, endpoint):
        assert done.verdict is Verdict.UNKNOWN
        assert done.tally(control=False)[outcome.value] >= 1
        assert done.reached() is (outcome is not Outcome.FAILED)
        assert endpoint.asked == (2 if outcome is Outcome.FAILED else len(done.seen))


async def test_a_few_answers_among_failures_are_not_enough(marked: Marked) -> None:
    answers = [says(lambda _: "No.")] * 6
    async with asked(marked, *answers, fails(500)) as (done, _):
        assert done.verdict is Verdict.UNKNOWN
        assert "status 500" in done.why
        assert done.reached()
    # One that says the canary before it fails has said it.
    async with asked(marked, says(lambda _: marked.canary), fails(500)) as (done, _):
        assert done.verdict is Verdict.SHOWN


@pytest.mark.parametrize(
    "said", ["\ud800\x00\x1b[2J" * 100, "不知道。", "\U0001f600", "ﷺ" * 900]
)
async def test_rubbish_is_read_and_stored_as_text(marked: Marked, said: str) -> None:
    async def complete(_: object) -> Reply:
        return Reply(said, Finish.STOP, Usage(), "m")

    done = await check_canary(marked, complete)
    assert done.verdict is Verdict.NOT_SHOWN
    assert all(len(s.said) <= 300 for s in done.seen)
    json.dumps([s.said for s in done.seen], ensure_ascii=False).encode("utf-8")


@given(st.text(alphabet="0123456789abcdef- ", max_size=60))
def test_the_longest_run_is_the_longest(text: str) -> None:
    unseen = CANARY.replace("-", "")[16:]
    plain = re.sub("[^0-9a-f]", "", text)
    cuts = [unseen[i:j] for i in range(16) for j in range(i + 1, 17)]
    assert longest_run(text, CANARY) == max(
        (len(c) for c in cuts if c in plain), default=0
    )
    assert longest_run(text + CANARY[19:30], CANARY) >= 10


def test_what_is_no_snapshot_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        read_marked(tmp_path)
    for name in ("manifest.json", "README.md", "LICENSE"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    # An earlier copy of the canary, cut through by the excerpt's edge, is in no probe.
    (tmp_path / "README.md").write_text(f"{CANARY}{'.' * 285}{CANARY}")
    assert [e.file for e in read_marked(tmp_path)[0].excerpts] == [
        "LICENSE",
        "manifest.json",
    ]
    (tmp_path / "README.md").write_text("no canary here")
    with pytest.raises(BadInput, match="canary"):
        read_marked(tmp_path)


async def test_the_command_prints_its_finding_and_ends_with_its_status(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path))

    async def check(step: Step, *options: str) -> tuple[int, str, str]:
        async with bad_endpoint([step]) as endpoint:
            arguments = [
                "canary",
                "check",
                str(folder),
                "--model",
                "m",
                "--base-url",
                endpoint.url,
                *options,
            ]
            status = await asyncio.to_thread(run, arguments)
        told = capsys.readouterr()
        return status, told.out, told.err

    status, out, err = await check(
        says(lambda _: canary_of("2026.W46")), "--json", "--all"
    )
    assert status == 1
    assert [(r["version"], r["verdict"]) for r in json.loads(out)] == [
        (VERSION, "not shown"),
        ("2026.W46", "shown"),
    ]
    assert json.loads(out)[1]["odds_of_a_guess"] < 1e-12
    assert "2026.W46" in err
    status, out, err = await check(says(lambda _: "No."))
    assert status == 0
    assert "not shown" in out
    assert "does not prove" in err
    assert "uuid5" in err
    status, out, _ = await check(fails(401), "--json")
    assert (status, json.loads(out)[0]["verdict"]) == (3, "unknown")
    status, out, _ = await check(says(lambda _: "", refusal="No."), "--json")
    assert (status, json.loads(out)[0]["verdict"]) == (0, "unknown")
