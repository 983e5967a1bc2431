"""Verdicts through an endpoint's batch API: the calls as a file to hand in, and the results back.

`write_batch` writes what `grade_run` would send first; `read_batch` counts a result by the same checks. Calls that are
left can be written as the next file; only live grading returns a reply without a verdict with what is wrong with it.
`batches.jsonl` in the run folder remembers which calls were written and which results were read, so results can be
read in any order, in parts, and twice.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from medlive.errors import BadInput
from medlive.evaluation.model import gradable, grade_keys, kind_of
from medlive.evaluation.runs.folder import GRADES, RunFolder, open_run
from medlive.grader.judge import Judge, Mode
from medlive.integrity.digest import canonical_json, digest_json
from medlive.integrity.log import (
    LogWriter,
    open_log,
    read_bytes,
    values_of,
    write_whole,
)
from medlive.llm.ask import Asked, Attempt, Unusable, read_checked
from medlive.llm.engine import EngineIdentity, Reply, Request
from medlive.llm.registry import Price
from medlive.llm.wire import Trouble, completion, priced

from .grade import Record, Work, make_grades, open_work

BATCHES = "batches.jsonl"
_URL = "/v1/chat/completions"
MOST_REQUESTS = 50_000
MOST_BYTES = 190 * 1024 * 1024
"""Limits of a file; OpenAI takes 50,000 requests and 200 MB."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class BatchWritten:
    """What `write_batch` wrote."""

    requests: int
    waiting: int
    """How many of the requests were written before and have no result yet."""
    is_full: bool
    """Whether more is open than the file may hold."""


@dataclass
class BatchRead:
    """What `read_batch` read from result files."""

    counts: Counter[str] = field(default_factory=Counter)
    """Verdicts by their kind; results that are `stale` (what was asked about has changed); lines that are `unread`,
    no result of this run; calls that are `missing` (no result yet); criteria that are `open` (asked about, without
    verdict)."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why criteria are ungraded."""
    notes: list[str] = field(default_factory=list)


class BatchLog:
    """`batches.jsonl`, open for writing: the calls, by custom_id, and which of their results were read."""

    def __init__(self, path: Path, writer: LogWriter) -> None:
        self._writer = writer
        self.asked: dict[str, Row] = {}
        self.judges: dict[str, Row] = {}
        self.read: set[str] = set()
        self.notes: list[str] = []
        for _ in values_of(path, self._put, self.notes):
            pass

    def _put(self, row: Row) -> None:
        """Remember a row. Raises KeyError or TypeError if it is invalid."""
        match row["kind"]:
            case "judge":
                self.judges[row["judge"]] = row
            case "asked":
                self.asked[row["custom_id"]] = row
            case "read":
                self.read.add(row["custom_id"])

    def add(self, row: Row) -> None:
        """Write a row, and remember it."""
        self._writer.add(row)
        self._put(row)

    def custom_id(self, identity: Sequence[object]) -> str:
        """The name of a call that has no result yet: 64 hexadecimal digits."""
        names = (digest_json([*identity, n]).partition(":")[2] for n in count())
        return next(name for name in names if name not in self.read)


@contextmanager
def open_batches(run_dir: Path) -> Iterator[BatchLog]:
    """Open the batches of a run. Raises Locked where another process writes them."""
    with open_log(run_dir / BATCHES) as writer:
        yield BatchLog(run_dir / BATCHES, writer)


def write_batch(
    run_dir: Path,
    identity: EngineIdentity,
    body_of: Callable[[Request], Row],
    out: Path,
    *,
    mode: Mode = Mode.RUBRIC,
) -> BatchWritten:
    """Write the calls that are left to make to `out`, in OpenAI's batch format; no file where none is left.

    `body_of` makes what the endpoint is sent. Raises Locked when the run is being graded, BadInput when the file
    cannot be written.
    """
    run = open_run(run_dir)
    judge = Judge(identity, mode)
    answers, _ = run.answers()
    lines: list[bytes] = []
    size = waiting = 0
    is_full = False
    with open_log(run_dir / GRADES), open_batches(run_dir) as log:
        if judge.digest not in log.judges:
            about = {"kind": "judge", "judge": judge.digest, "mode": mode}
            log.add(about | identity.as_json())
        record = Record(judge, run_dir / GRADES)
        for work in open_work(run.cases, answers, record):
            keys = grade_keys(work.case, work.answer, judge.digest, work.criteria)
            asked = [work.case.case_id, list(keys), list(keys.values())]
            custom_id = log.custom_id(asked)
            row = {
                "custom_id": custom_id,
                "method": "POST",
                "url": _URL,
                "body": body_of(work.call(judge).request),
            }
            # As the live client writes it: a lone surrogate has no UTF-8 form.
            line = canonical_json(row).encode("utf-8", "replace") + b"\n"
            size += len(line)
            is_full = len(lines) == MOST_REQUESTS or size > MOST_BYTES
            if is_full:
                break
            lines.append(line)
            if custom_id in log.asked:
                waiting += 1
            else:
                call = {
                    "kind": "asked",
                    "judge": judge.digest,
                    "case_id": work.case.case_id,
                    "criteria": list(keys),
                    "keys": list(keys.values()),
                    "custom_id": custom_id,
                }
                log.add(call)
        if lines:
            write_whole(out, b"".join(lines))
    return BatchWritten(len(lines), waiting, is_full)


def reply_of(result: Row, price: Price | None) -> Reply:
    """The model's reply in a line of a result file. Raises Trouble if there is none."""
    if error := result.get("error"):
        raise Trouble(_message(error))
    response = result.get("response")
    if not isinstance(response, dict):
        raise Trouble("the result holds no response")
    status, body = response.get("status_code"), response.get("body")
    if status != 200:
        error = body.get("error") if isinstance(body, dict) else None
        why = f": {_message(error)}" if error else ""
        raise Trouble(f"status {status}{why}")
    reply = completion(body)
    return replace(reply, usage=priced(reply.usage, price))


def _message(error: object) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error.get("code")
    return " ".join(str(error).split())[:300]


def _parse_result(line: bytes, calls: Mapping[str, Row]) -> Row:
    """A line of a result file. Raises ValueError if it is no result of these calls."""
    try:
        row: Row = json.loads(line)
        is_result = row["custom_id"] in calls and "method" not in row
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise ValueError(f"not a result: {str(exc)[:100]}") from exc
    if not is_result:
        raise ValueError("not a result of a call of this run")
    return row


def _records(
    run_dir: Path,
    log: BatchLog,
    *,
    pinned: bool,
) -> dict[str, Record]:
    """The verdicts on record by each judge whose calls can be read."""
    records: dict[str, Record] = {}
    for digest, row in log.judges.items():
        identity = EngineIdentity(
            row["engine"], row["model"], row["parameters"], pinned
        )
        judge = Judge(identity, Mode(row["mode"]))
        if judge.digest == digest:
            records[digest] = Record(judge, run_dir / GRADES)
        else:
            log.notes.append(
                f"{BATCHES}: calls of another version's prompt cannot be read"
            )
    return records


def read_batch(
    run_dir: Path,
    files: Sequence[Path],
    *,
    allow_unpinned: bool = False,
    prices: Mapping[str, Price] | None = None,
) -> BatchRead:
    """Take result files, of successes and of errors, into the run's log.

    A result is checked as a live reply is: pinned model, finish reason, one certain verdict, the quote in the
    answer. What has a verdict keeps it. Reading a file again adds nothing but verdicts that did not count before,
    as another model's where it is allowed by now. Raises Locked while the run is being graded, BadInput for a file
    that cannot be read and for a run that no batch was written of.
    """
    run = open_run(run_dir)
    with open_log(run_dir / GRADES) as grades, open_batches(run_dir) as log:
        if not log.asked:
            raise BadInput(
                f"no batch was written of {run_dir}",
                hint="medlive eval batch write makes one",
            )
        read = BatchRead(notes=log.notes)
        records = _records(run_dir, log, pinned=not allow_unpinned)
        calls = {}
        for custom_id, call in log.asked.items():
            if call["judge"] in records:
                calls[custom_id] = call
        results = _Results(run, records, grades, prices or {}, read)
        for path in files:
            for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
                if not line.strip():
                    continue
                try:
                    result = _parse_result(line, calls)
                except ValueError as exc:
                    read.counts["unread"] += 1
                    read.notes.append(f"{path.name}:{number}: {exc}")
                    continue
                custom_id = result["custom_id"]
                again = custom_id in log.read
                results.take(result, calls[custom_id], again)
                if not again:
                    # Last: were the log full now, or the process killed, the result would be passed over for good.
                    log.add({"kind": "read", "custom_id": custom_id})
        without = set[str]()
        for custom_id, call in calls.items():
            left = results.open_keys(call)
            without |= left
            read.counts["missing"] += bool(left) and custom_id not in log.read
        read.counts["open"] = len(without)
    return read


class _Results:
    """The grades of a batch's results, as they are taken into the log."""

    def __init__(
        self,
        run: RunFolder,
        records: Mapping[str, Record],
        log: LogWriter,
        prices: Mapping[str, Price],
        read: BatchRead,
    ) -> None:
        self._asked = {}
        for case, answer in gradable(run.cases, run.answers()[0]):
            self._asked[case.case_id] = case, answer
        self._records, self._log, self._prices = records, log, prices
        self._read = read

    def _work_of(self, call: Row) -> Work | None:
        """The call as it would be made now; None if what it asked about has changed."""
        if (asked := self._asked.get(call["case_id"])) is None:
            return None
        case, answer = asked
        criteria = tuple(c for c in case.criteria if c.id in call["criteria"])
        keys = grade_keys(case, answer, call["judge"], criteria)
        same = list(keys.values()) == call["keys"]
        return Work(case, answer, criteria) if same else None

    def open_keys(self, call: Row) -> set[str]:
        """The keys of a call's criteria without a settled verdict."""
        if self._work_of(call) is None:
            return set()
        record = self._records[call["judge"]]
        return {key for key in call["keys"] if not record.settles(key)}

    def take(self, result: Row, call: Row, again: bool) -> None:
        """Log the grades of one result, which may have been read before."""
        counts = self._read.counts
        record, work = self._records[call["judge"]], self._work_of(call)
        if work is None:
            counts["stale"] += 1
            return
        left = self.open_keys(call)
        if not left:
            return
        asking, who = work.call(record.judge), record.judge.identity
        reply = fault = None
        try:
            reply = reply_of(result, self._prices.get(who.model))
            pinned = who.model if who.pinned else None
            read_checked(reply, pinned, "grader", asking.read)
        except Trouble as exc:
            fault = Unusable(f"batch: {exc.cause}")
        except Unusable as exc:
            fault = exc
        asked = Asked[object](None, [Attempt(asking.request, reply, fault)])
        earlier = filter(None, map(record.latest.get, call["keys"]))
        is_paid = again and any(grade.usage for grade in earlier)
        usage = {} if is_paid else asked.usage
        for grade in make_grades(work, asking, asked, "batch"):
            # Of a second reading only a verdict is new.
            if grade.key not in left or (again and grade.met is None):
                continue
            taken = replace(grade, usage=usage)
            usage = {}
            self._log.add(taken.row())
            record.put(taken)
            counts[_KINDS[grade.met]] += 1
            if grade.met is None:
                self._read.reasons[kind_of(grade.reason)] += 1


_KINDS = {True: "met", False: "not_met", None: "ungraded"}
