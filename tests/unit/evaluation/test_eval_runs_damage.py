"""Runs that were cut off anywhere: nothing is lost that was answered, nothing answered is asked again."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from medlive.errors import BadInput, DiskFull, UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.model import AnswerState
from medlive.evaluation.runs.folder import ModelUse, open_run
from medlive.integrity.log import Locked, open_log, read_log
from tests.unit.evaluation.conftest import AT, USE, Model, make_cases, reply


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The system refuses to let any file of this process grow past `size`: a full disk, byte for byte."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_log_cut_off_at_any_byte_goes_on_with_what_was_whole(
    run_dir: Path,
) -> None:
    cases = make_cases(3)
    await run_model(
        cases,
        Model(lambda _: reply("喝水。", model="cand-1")),
        run_dir,
        use=USE,
        created_at=AT,
        concurrency=1,
    )
    log = run_dir / "responses.jsonl"
    whole = log.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    at = {
        *range(ends[0], len(whole), 97),
        *(end + k for end in ends[1:] for k in (-2, -1, 0)),
    }
    for cut in sorted(at):
        log.write_bytes(whole[:cut])
        # A row that lacks only its line end is whole.
        kept = sum(1 for end in ends if end - 1 <= cut)
        model = Model(lambda _: reply("喝水。", model="cand-1"))
        done = await run_model(
            cases, model, run_dir, use=USE, created_at=AT, concurrency=1
        )
        assert (done.calls, done.states[AnswerState.OK], done.notes) == (
            3 - kept,
            3,
            (),
        )
        assert log.read_bytes() == whole


async def test_a_full_disk_ends_a_run_and_cuts_no_row(run_dir: Path) -> None:
    cases, long = make_cases(30), "x" * 5000
    model = Model(lambda _: reply(long))
    with files_up_to(42_000), pytest.raises(DiskFull):
        await run_model(cases, model, run_dir, use=USE, created_at=AT, concurrency=4)
    rows, damaged = read_log(run_dir / "responses.jsonl")
    assert damaged == []
    assert 5 <= len(rows) < 10
    rest = Model(lambda _: reply(long))
    done = await run_model(cases, rest, run_dir, use=USE, created_at=AT)
    assert done.calls == len(rest.prompts) == 30 - len(rows)


def test_a_row_that_found_no_room_leaves_room_for_the_next(tmp_path: Path) -> None:
    with open_log(tmp_path / "log.jsonl") as log:
        log.add({"n": 1})
        with files_up_to(40), pytest.raises(DiskFull):
            log.add({"n": 2, "long": "y" * 100})
        log.add({"n": 3})
    assert read_log(tmp_path / "log.jsonl")[0] == [{"n": 1}, {"n": 3}]


async def test_a_folder_that_found_no_room_is_no_run_and_becomes_one(
    run_dir: Path,
) -> None:
    with files_up_to(2_000), pytest.raises(DiskFull):
        await run_model(make_cases(30), Model(), run_dir, use=USE, created_at=AT)
    assert (
        await run_model(make_cases(30), Model(), run_dir, use=USE, created_at=AT)
    ).calls == 30


@pytest.mark.parametrize(
    "left",
    [
        {},
        {".cases.jsonl.partial": b'{"case_id": "c0'},
        {".run.lock": b"", "cases.jsonl": b'{"half": 1}\n', ".run.json.partial": b"{"},
        {".run.lock": b"", "cases.jsonl": b""},
    ],
)
def test_what_a_kill_left_while_the_folder_was_made_is_made_anew(
    run_dir: Path, left: dict[str, bytes]
) -> None:
    run_dir.mkdir()
    for name, data in left.items():
        (run_dir / name).write_bytes(data)
    done = asyncio.run(
        run_model(make_cases(4), Model(), run_dir, use=USE, created_at=AT)
    )
    assert (done.calls, done.missing) == (4, 0)
    assert len(open_run(run_dir).cases) == 4


def test_a_file_of_cases_is_not_written_over_by_the_run_that_reads_it(
    run_dir: Path,
) -> None:
    run_dir.mkdir()
    (run_dir / "cases.jsonl").write_bytes(b'{"case_id": "1", "narrative": "Mine."}\n')
    with pytest.raises(UsageError, match=r"cases\.jsonl"):
        asyncio.run(run_model(make_cases(4), Model(), run_dir, use=USE, created_at=AT))
    assert (
        run_dir / "cases.jsonl"
    ).read_bytes() == b'{"case_id": "1", "narrative": "Mine."}\n'


async def test_two_that_begin_at_once_in_one_folder_end_as_one_run(
    run_dir: Path,
) -> None:
    """Whichever comes first: the other is told, and nothing of it is in the folder."""

    async def begin(name: str) -> str:
        try:
            await run_model(
                make_cases(20),
                Model(lambda _: reply(name)),
                run_dir,
                use=ModelUse(name),
                created_at=AT,
            )
        except (UsageError, Locked):
            return "refused"
        return name

    ended = await asyncio.gather(*(begin(name) for name in ("one", "two", "three")))
    (winner,) = [name for name in ended if name != "refused"]
    run = open_run(run_dir)
    answers, notes = run.answers()
    assert run.info.model == winner
    assert {a.response for a in answers.values()} == {winner}
    assert (len(answers), notes) == (20, [])


async def test_a_log_that_cannot_be_opened_is_no_fault_of_ours(run_dir: Path) -> None:
    await run_model(make_cases(1), Model(), run_dir, use=USE, created_at=AT)
    (run_dir / "responses.jsonl").unlink()
    (run_dir / "responses.jsonl").mkdir()
    with pytest.raises(BadInput):
        await run_model(make_cases(1), Model(), run_dir, use=USE, created_at=AT)
