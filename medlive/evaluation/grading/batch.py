"""Answers and verdicts through an endpoint's batch API: the calls as files to hand in, and the results back.

What is written is what `run_model` and `grade_run` would send first, and a result counts by the same checks. What is
left can be written as the next file; a reply that held no verdict is returned with what is wrong with it by live
grading alone. `batches.jsonl` in the run folder remembers which calls were written and which results were read, so
results can be read in any order, in parts, and twice.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from medlive.errors import BadInput, UsageError
from medlive.evaluation.asking.run import answer_of, failed, unanswered
from medlive.evaluation.grading.grade import Record, Work, make_grades, open_work
from medlive.evaluation.model import (
    AnswerState,
    gradable,
    grade_keys,
    in_context,
    kind_of,
)
from medlive.evaluation.runs.folder import (
    GRADES,
    IMPORTED,
    RESPONSES,
    RunFolder,
    open_run,
    write_whole,
)
from medlive.evaluation.runs.templates import load_template
from medlive.grader.judge import Judge, Mode
from medlive.integrity.digest import canonical_json, digest_bytes, digest_json
from medlive.integrity.log import LogWriter, open_log, read_bytes, values_of, writing
from medlive.llm.ask import Asked, Attempt, Unusable, read_checked
from medlive.llm.engine import EngineIdentity, Reply
from medlive.llm.prompts import render
from medlive.llm.registry import Price
from medlive.llm.wire import (
    JsonMode,
    Trouble,
    chat_body,
    completion,
    priced,
    response_format,
)

BATCHES = "batches.jsonl"
_URL = "/v1/chat/completions"
MOST_REQUESTS = 50_000
MOST_BYTES = 190 * 1024 * 1024
"""Of a file; OpenAI takes 50,000 requests and 200 MB."""

Row = Mapping[str, Any]
Call = tuple[Sequence[object], Row, Row]
"""What a call's name is made of, how the log remembers it, and its body."""


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """The files of a batch."""

    files: tuple[Path, ...]
    requests: int
    criteria: int = 0
    waiting: int = 0
    """Of the requests, those that were written before and have no result yet."""


@dataclass(slots=True)
class BatchRead:
    """What result files contain."""

    counts: Counter[str] = field(default_factory=Counter)
    """Verdicts and answers by their kind, and lines: `again` (read before, or answered by now), `duplicates` (a
    second result), `unknown` (no call of this run), `stale` (what was asked about has changed), `damaged`; calls
    that are `missing` (no result yet), and what is `open` (asked for, without verdict or answer)."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why criteria are ungraded."""
    notes: list[str] = field(default_factory=list)


class BatchLog:
    """`batches.jsonl`, open for writing: the calls, by custom_id, and which of their results were read."""

    def __init__(self, path: Path, writer: LogWriter) -> None:
        self._writer = writer
        self.questions: dict[str, Row] = {}
        """Calls for answers."""
        self.asked: dict[str, Row] = {}
        """Calls for verdicts."""
        self.judges: dict[str, Row] = {}
        self.results: dict[str, set[str]] = {}
        """The digests of the result lines of a call."""
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
            case "question":
                self.questions[row["custom_id"]] = row
            case "read":
                digests = {row["digest"]}
                self.results.setdefault(row["custom_id"], set()).update(digests)

    def add(self, row: Row) -> None:
        """Write a row, and remember it."""
        self._writer.add(row)
        self._put(row)

    def custom_id(self, identity: Sequence[object]) -> str:
        """The name of a call that has no result yet: 64 hexadecimal digits."""
        names = (digest_json([*identity, n]).partition(":")[2] for n in count())
        return next(name for name in names if name not in self.results)


@contextmanager
def open_batches(run_dir: Path) -> Iterator[BatchLog]:
    """Open the batches of a run. Raises Locked where another process writes them."""
    with open_log(run_dir / BATCHES) as writer:
        yield BatchLog(run_dir / BATCHES, writer)


def write_calls(log: BatchLog, calls: Iterable[Call], out: Path) -> BatchWritten:
    """Write calls in OpenAI's batch format to `out`, or to numbered files if there are many.

    Raises BadInput if a file cannot be written.
    """
    files: list[Path] = []
    lines: list[bytes] = []
    size = requests = criteria = waiting = 0

    def save(path: Path) -> None:
        files.append(path)
        write_whole(path, b"".join(lines))

    def part() -> Path:
        return out.with_name(f"{out.stem}-{len(files) + 1:03d}{out.suffix}")

    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        for identity, about, body in calls:
            custom_id = log.custom_id(identity)
            if custom_id in log.asked or custom_id in log.questions:
                waiting += 1
            else:
                log.add({**about, "custom_id": custom_id})
            row = {"custom_id": custom_id, "method": "POST", "url": _URL, "body": body}
            # As the live client writes it: a lone surrogate has no UTF-8 form.
            line = canonical_json(row).encode("utf-8", "replace") + b"\n"
            if lines and (len(lines) == MOST_REQUESTS or size + len(line) > MOST_BYTES):
                save(part())
                lines, size = [], 0
            lines.append(line)
            size += len(line)
            requests += 1
            criteria += len(about.get("criteria", ()))
        if lines:
            save(part() if files else out)
    return BatchWritten(tuple(files), requests, criteria, waiting)


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


def _parse_result(line: bytes, calls: Mapping[str, Row]) -> tuple[Row, Row]:
    """A line of a result file, and its call. Raises ValueError if it is not a result, LookupError without a call."""
    try:
        row: Row = json.loads(line)
        custom_id = row["custom_id"]
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise ValueError(f"not a result: {str(exc)[:100]}") from exc
    if "body" in row and "response" not in row:
        raise ValueError("not a result: it is a call, as it was handed in")
    if not isinstance(custom_id, str):
        raise ValueError("not a result")
    if custom_id not in calls:
        raise LookupError(f"no call of this run is named {custom_id[:80]!r}")
    return row, calls[custom_id]


def read_results(
    files: Sequence[Path],
    calls: Mapping[str, Row],
    log: BatchLog,
    take: Callable[[BatchRead, Row, Row, bool], Iterable[str]],
    open_of: Callable[[Row], set[str]],
) -> BatchRead:
    """Read result files, of results and of errors, of these calls, by custom_id.

    `take` takes the result of a call, which may have been read before, and returns what it counts as; `open_of`
    says what of a call has no verdict or answer yet. What was read is marked in the log.
    """
    read = BatchRead(notes=list(log.notes))
    for path in files:
        for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
            if not line.strip():
                continue
            where = f"{path.name}:{number}"
            try:
                result, call = _parse_result(line, calls)
            except (ValueError, LookupError) as exc:
                kind = "damaged" if isinstance(exc, ValueError) else "unknown"
                read.counts[kind] += 1
                read.notes.append(f"{where}: {exc}")
                continue
            custom_id, digest = result["custom_id"], digest_bytes(line.strip())
            earlier = log.results.get(custom_id, ())
            again = digest in earlier
            if earlier and not again:
                read.counts["duplicates"] += 1
                read.notes.append(f"{where}: a second result for {custom_id[:12]}…")
            read.counts.update(take(read, result, call, again))
            if not again:
                # Last: were the log full now, or the process killed, the result would be passed over for good.
                log.add({"kind": "read", "custom_id": custom_id, "digest": digest})
    without = set[str]()
    for custom_id, call in calls.items():
        left = open_of(call)
        without |= left
        read.counts["missing"] += bool(left) and custom_id not in log.results
    read.counts["open"] = len(without)
    return read


def write_answers(run_dir: Path, out: Path) -> BatchWritten:
    """Write the questions that have no answer yet, as `eval run` would ask them: `run.json` says how.

    A question that goes on from one without an answer waits for it.

    Raises UsageError for a run whose answers came from a file, or whose template this version of medlive does not
    have; Locked while answers are being asked for.
    """
    run = open_run(run_dir)
    info = run.info
    if info.engine == IMPORTED or info.template.digest is None:
        raise UsageError(
            f"{run_dir} does not say how its model is asked",
            hint="medlive eval run begins such a run",
        )
    prompt = load_template(info.template.name)
    if prompt.digest != info.template.digest:
        raise UsageError(
            f"the template {prompt.name} of {run_dir} is not this version's"
        )
    snippets, model = run.snippets(), info.asked_as or info.model
    known = {case.case_id: case for case in run.cases}
    with open_log(run_dir / RESPONSES), open_batches(run_dir) as log:
        answers, _ = run.answers()

        def calls() -> Iterator[Call]:
            for case in unanswered(run):
                asked = in_context(case, known, answers)
                if asked is None:
                    continue
                messages = prompt.messages(asked, snippets.get(case.case_id, ()))
                identity = [prompt.digest, model, info.parameters, asked.row()]
                about = {"kind": "question", "case_id": case.case_id}
                yield identity, about, chat_body(model, messages, info.parameters)

        return write_calls(log, calls(), out)


def read_answers(
    run_dir: Path,
    files: Sequence[Path],
    *,
    prices: Mapping[str, Price] | None = None,
) -> BatchRead:
    """Take result files into the run's answers. What has an answer keeps it; reading a file again adds nothing.

    An error is a failed answer, asked for again by the next batch or run. Raises Locked while answers are being
    asked for, BadInput for a file that cannot be read and for a run that no such batch was written of.
    """
    run = open_run(run_dir)
    price = (prices or {}).get(run.info.asked_as or run.info.model)
    with open_log(run_dir / RESPONSES) as answers, open_batches(run_dir) as log:
        if not log.questions:
            raise BadInput(
                f"no batch of questions was written of {run_dir}",
                hint="medlive eval batch write --answers makes one",
            )
        left = {case.case_id: case for case in unanswered(run)}

        def take(_: BatchRead, result: Row, call: Row, again: bool) -> list[str]:
            case = left.get(call["case_id"])
            if again or case is None:
                return ["again"]
            try:
                answer = answer_of(case, reply_of(result, price))
            except Trouble as exc:
                answer = failed(case, f"batch: {exc.cause}")
            answers.add(answer.row())
            if answer.state not in (AnswerState.FAILED, AnswerState.EMPTY):
                del left[case.case_id]
            return [answer.state]

        def open_of(call: Row) -> set[str]:
            return {call["case_id"]} & left.keys()

        return read_results(files, log.questions, log, take, open_of)


def write_batch(
    run_dir: Path,
    identity: EngineIdentity,
    out: Path,
    *,
    shape: JsonMode = "schema",
    mode: Mode = Mode.RUBRIC,
) -> BatchWritten:
    """Write the calls that are left to make, in OpenAI's batch format, to `out` or to numbered files beside it.

    `shape` is how the endpoint is asked for JSON. Raises Locked when the run is being graded, BadInput when a file
    cannot be written.
    """
    run = open_run(run_dir)
    judge = Judge(identity, mode)
    answers, _ = run.answers()

    def call_of(work: Work) -> Call:
        keys = grade_keys(work.case, work.answer, judge.digest, work.criteria)
        row = {
            "kind": "asked",
            "judge": judge.digest,
            "case_id": work.case.case_id,
            "criteria": list(keys),
            "keys": list(keys.values()),
        }
        request = work.call(judge).request
        messages, sent = render(request), response_format(shape, request)
        body = chat_body(identity.model, messages, identity.parameters, sent)
        return [row["case_id"], row["criteria"], row["keys"]], row, body

    with open_log(run_dir / GRADES), open_batches(run_dir) as log:
        if judge.digest not in log.judges:
            about = {"kind": "judge", "judge": judge.digest, "mode": mode}
            log.add(about | identity.as_json())
        record = Record(judge, run_dir / GRADES)
        calls = map(call_of, open_work(run.cases, answers, record))
        return write_calls(log, calls, out)


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
        records: dict[str, Record] = {}
        for digest, row in log.judges.items():
            who = row["engine"], row["model"], row["parameters"]
            identity = EngineIdentity(*who, pinned=not allow_unpinned)
            judge = Judge(identity, Mode(row["mode"]))
            if judge.digest == digest:
                records[digest] = Record(judge, run_dir / GRADES)
            else:
                log.notes.append(
                    f"{BATCHES}: calls of another version's prompt cannot be read"
                )
        asked = log.asked.items()
        calls = {name: call for name, call in asked if call.get("judge") in records}
        results = _Results(run, records, grades, prices or {})
        read = read_results(files, calls, log, results.take, results.open_of)
    if stale := read.counts["stale"]:
        read.notes.append(
            f"{stale} results are about an answer or a criterion that has changed since"
        )
    return read


class _Results:
    """The grades of a batch's results, as they are taken into the log."""

    def __init__(
        self,
        run: RunFolder,
        records: Mapping[str, Record],
        log: LogWriter,
        prices: Mapping[str, Price],
    ) -> None:
        self._asked = {}
        for case, answer in gradable(run.cases, run.answers()[0]):
            self._asked[case.case_id] = case, answer
        self._records, self._log, self._prices = records, log, prices

    def _work_of(self, call: Row) -> Work | None:
        """The call as it would be made now; None if what it asked about has changed."""
        if (asked := self._asked.get(call["case_id"])) is None:
            return None
        case, answer = asked
        criteria = tuple(c for c in case.criteria if c.id in call["criteria"])
        keys = grade_keys(case, answer, call["judge"], criteria)
        same = list(keys.values()) == call["keys"]
        return Work(case, answer, criteria) if same else None

    def open_of(self, call: Row) -> set[str]:
        """The keys of a call's criteria without a settled verdict."""
        if self._work_of(call) is None:
            return set()
        record = self._records[call["judge"]]
        return {key for key in call["keys"] if not record.settles(key)}

    def take(self, read: BatchRead, result: Row, call: Row, again: bool) -> list[str]:
        """Log the grades of one result; what became of each."""
        record, work = self._records[call["judge"]], self._work_of(call)
        if work is None:
            return ["again" if again else "stale"]
        left = self.open_of(call)
        if not left:
            return ["again"]
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
        grades = make_grades(work, asking, asked, "batch")
        kinds: list[str] = []
        for grade in grades:
            # Of a second reading only a verdict is new.
            if grade.key not in left or (again and grade.met is None):
                continue
            taken = replace(grade, usage={} if kinds else grades[0].usage)
            self._log.add(taken.row())
            record.put(taken)
            if grade.met is None:
                read.reasons[kind_of(grade.reason)] += 1
            kinds.append(_KINDS[grade.met])
        return kinds or ["again"]


_KINDS = {True: "met", False: "not_met", None: "ungraded"}
