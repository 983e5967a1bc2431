"""The gates over many cases, in processes beside this one.

Run as a program it is such a process: batches of cases come in on stdin, their hits go out on stdout.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache
from queue import SimpleQueue
from typing import BinaryIO, Final

from medlive.errors import CheckFailed
from medlive.guard.child_environment import child_environment
from medlive.snapshot.gates import (
    GateHit,
    Linter,
    Scanner,
    content_hits,
    standard_linter,
    standard_scanner,
)
from medlive.snapshot.model import SnapshotCase

Checked = tuple[str, list[GateHit]]
"""A case's id and its hits."""

BATCH: Final = 64
"""Cases per unit of work, about 0.1 s."""


class GateWorkerDied(CheckFailed):
    """A worker process that checked cases died."""


def check_many(cases: Iterable[SnapshotCase], processes: int) -> Generator[Checked]:
    """Yield each case's id and its `content_hits` by the standard scanner and linter, in order.

    Args:
        cases: The cases.
        processes: 1 to check in this process, more for as many worker processes.

    Raises:
        GateWorkerDied: if a worker ends before its work is done.
    """
    if processes == 1:
        yield from map(_check, cases)
        return
    with ExitStack() as stack:
        idle: SimpleQueue[_Worker] = SimpleQueue()
        for _ in range(processes):
            worker = _Worker()
            stack.callback(worker.end)
            idle.put(worker)

        def check_batch(batch: list[SnapshotCase]) -> list[Checked]:
            worker = idle.get()
            try:
                return worker.check(batch)
            finally:
                idle.put(worker)

        pool = ThreadPoolExecutor(processes)
        stack.callback(pool.shutdown, cancel_futures=True)
        for checked in pool.map(check_batch, _batches(cases)):
            yield from checked


class _Worker:
    """A process that checks cases for one thread at a time."""

    def __init__(self) -> None:
        # It reads what strangers wrote: of the variables it gets none but where modules lie.
        places = {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONUTF8": "1",
        }
        self._process = subprocess.Popen(
            # -P: no module is imported from the working folder.
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(values=places),
        )

    def check(self, batch: list[SnapshotCase]) -> list[Checked]:
        """Check a batch. Raises GateWorkerDied."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump(batch, self._process.stdin)
            self._process.stdin.flush()
            checked: list[Checked] = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as exc:
            raise GateWorkerDied(
                "a worker process ended before it had checked its cases",
                hint="the usual reason is too little memory: use fewer processes",
            ) from exc
        return checked

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.communicate()


def _batches(cases: Iterable[SnapshotCase]) -> Iterator[list[SnapshotCase]]:
    batch: list[SnapshotCase] = []
    for case in cases:
        batch.append(case)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


@cache
def _standard_tools() -> tuple[Scanner, Linter]:
    return standard_scanner(), standard_linter()


def _check(case: SnapshotCase) -> Checked:
    return case.case_id, content_hits(case, *_standard_tools())


def _serve(batches: BinaryIO, results: BinaryIO) -> None:
    """Check batches until there are no more."""
    with suppress(EOFError):
        while True:
            batch: list[SnapshotCase] = pickle.load(batches)
            pickle.dump(list(map(_check, batch)), results)
            results.flush()


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
