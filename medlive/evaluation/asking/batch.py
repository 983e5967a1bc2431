"""Calls through an endpoint's batch API: files of calls, their results, and a model's answers by them.

`batches.jsonl` in the run folder remembers which calls were written and which results were read, so results can be
read in any order, in parts, and twice. Grading by batch is in `grading.batch`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from medlive.errors import BadInput, UsageError
from medlive.evaluation.asking.run import answer_of, failed, unanswered
from medlive.evaluation.model import AnswerState, in_context
from medlive.evaluation.runs.folder import IMPORTED, RESPONSES, open_run, write_whole
from medlive.evaluation.runs.templates import load_template
from medlive.integrity.digest import canonical_json, digest_bytes, digest_json
from medlive.integrity.log import LogWriter, open_log, read_bytes, values_of, writing
from medlive.llm.engine import Reply
from medlive.llm.wire import NotACompletion, Price, chat_body, completion, priced

BATCHES: Final = "batches.jsonl"
_URL: Final = "/v1/chat/completions"
MOST_REQUESTS: Final = 50_000
MOST_BYTES: Final = 190 * 1024 * 1024
"""Of a file; OpenAI takes 50,000 requests and 200 MB."""
_NOTES: Final = 20

Row = Mapping[str, Any]


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


@dataclass(slots=True)
class BatchLog:
    """What `batches.jsonl` contains."""

    asked: dict[str, Row] = field(default_factory=dict)
    """Calls for verdicts, by custom_id."""
    questions: dict[str, Row] = field(default_factory=dict)
    """Calls for answers."""
    judges: dict[str, Row] = field(default_factory=dict)
    results: set[tuple[str, str]] = field(default_factory=set)
    """(custom_id, digest of the result line)."""
    answered: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Add a row. Raises KeyError or TypeError if it is invalid."""
        match row["kind"]:
            case "judge":
                self.judges[row["judge"]] = row
            case "asked":
                self.asked[row["custom_id"]] = row
            case "question":
                self.questions[row["custom_id"]] = row
            case "read":
                self.results.add((row["custom_id"], row["digest"]))
                self.answered.add(row["custom_id"])

    def custom_id(self, *call: object) -> str:
        """The name of a call that has no result yet: 64 hexadecimal digits."""
        names = (digest_json([*call, attempt]).partition(":")[2] for attempt in count())
        return next(name for name in names if name not in self.answered)


def read_batch_log(run_dir: Path) -> BatchLog:
    """Read the batches of a run."""
    log = BatchLog()
    for _ in values_of(run_dir / BATCHES, log.add, log.notes):
        pass
    return log


def write_calls(
    out: Path,
    calls: Iterable[tuple[str, Row]],
    most_requests: int = MOST_REQUESTS,
    most_bytes: int = MOST_BYTES,
) -> tuple[tuple[Path, ...], int]:
    """Write calls (custom_id, body) in OpenAI's batch format to `out`, or to numbered files if there are many.

    Returns the files and the number of calls. Raises BadInput if a file cannot be written.
    """
    files: list[Path] = []
    lines: list[bytes] = []
    size = requests = 0

    def save(path: Path) -> None:
        files.append(path)
        write_whole(path, b"".join(lines))

    def part() -> Path:
        return out.with_name(f"{out.stem}-{len(files) + 1:03d}{out.suffix}")

    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        for custom_id, body in calls:
            row = {
                "custom_id": custom_id,
                "method": "POST",
                "url": _URL,
                "body": body,
            }
            # As the live client writes it: a lone surrogate has no UTF-8 form.
            line = canonical_json(row).encode("utf-8", "replace") + b"\n"
            if lines and (len(lines) >= most_requests or size + len(line) > most_bytes):
                save(part())
                lines, size = [], 0
            lines.append(line)
            size, requests = size + len(line), requests + 1
        if lines:
            save(part() if files else out)
    return tuple(files), requests


def reply_of(result: Row, price: Price | None) -> Reply:
    """The model's reply in a line of a result file. Raises NotACompletion if there is none."""
    if error := result.get("error"):
        raise NotACompletion(_message(error))
    response = result.get("response")
    if not isinstance(response, dict):
        raise NotACompletion("the result holds no response")
    status, body = response.get("status_code"), response.get("body")
    if status != 200:
        error = body.get("error") if isinstance(body, dict) else None
        why = f": {_message(error)}" if error else ""
        raise NotACompletion(f"status {status}{why}")
    reply = completion(body)
    return replace(reply, usage=priced(reply.usage, price))


def _message(error: object) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error.get("code")
    return " ".join(str(error).split())[:300]


def _parse_result(line: bytes) -> Row:
    """A line of a result file. Raises ValueError with what is to be said of it."""
    try:
        row: Row = json.loads(line)
        custom_id = row["custom_id"]
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise ValueError(f"not a result: {str(exc)[:100]}") from exc
    if "body" in row and "response" not in row:
        raise ValueError("not a result: it is a call, as it was handed in")
    if not isinstance(custom_id, str):
        raise ValueError("not a result")
    return row


def _lines_of(files: Sequence[Path]) -> Iterator[tuple[Path, int, bytes]]:
    for path in files:
        for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
            if line.strip():
                yield path, number, line


def read_results(
    files: Sequence[Path],
    asked: Mapping[str, Row],
    log: BatchLog,
    written: LogWriter,
    take: Callable[[Row, Row, bool], Iterable[str]],
    open_of: Callable[[Row], Iterable[object]],
) -> BatchRead:
    """Read result files, of results and of errors, of these calls, by custom_id.

    `take` takes the result of a call, which may have been read before, and returns what it counts as; `open_of`
    says what of a call has no verdict or answer yet. What was read is marked in `written`.
    """
    read = BatchRead(notes=list(log.notes))
    for path, number, line in _lines_of(files):
        where = f"{path.name}:{number}"
        try:
            result = _parse_result(line)
        except ValueError as exc:
            read.counts["damaged"] += 1
            read.notes.append(f"{where}: {exc}")
            continue
        custom_id = result["custom_id"]
        if (call := asked.get(custom_id)) is None:
            read.counts["unknown"] += 1
            read.notes.append(
                f"{where}: no call of this run is named {custom_id[:80]!r}"
            )
            continue
        digest = digest_bytes(line.strip())
        again = (custom_id, digest) in log.results
        if not again and custom_id in log.answered:
            read.counts["duplicates"] += 1
            read.notes.append(f"{where}: a second result for {custom_id[:12]}…")
        read.counts.update(take(result, call, again))
        if not again:
            # Last: were the log full now, or the process killed, the result would be passed over for good.
            row = {
                "kind": "read",
                "custom_id": custom_id,
                "digest": digest,
            }
            written.add(row)
            log.add(row)
    without = set[object]()
    for custom_id, call in asked.items():
        left = set(open_of(call))
        without |= left
        read.counts["missing"] += bool(left) and custom_id not in log.answered
    read.counts["open"] = len(without)
    if (more := len(read.notes) - _NOTES) > 0:
        read.notes = [*read.notes[:_NOTES], f"and {more} more notes"]
    return read


def write_answers(
    run_dir: Path,
    out: Path,
    *,
    most_requests: int = MOST_REQUESTS,
    most_bytes: int = MOST_BYTES,
) -> BatchWritten:
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
    with open_log(run_dir / RESPONSES), open_log(run_dir / BATCHES) as written:
        log = read_batch_log(run_dir)
        answers, _ = run.answers()

        def calls() -> Iterator[tuple[str, Row]]:
            for case in unanswered(run):
                asked = in_context(case, known, answers)
                if asked is None:
                    continue
                custom_id = log.custom_id(
                    info.template.digest, model, info.parameters, asked.row()
                )
                if custom_id not in log.questions:
                    row = {"custom_id": custom_id, "case_id": case.case_id}
                    written.add(row | {"kind": "question"})
                messages = prompt.messages(asked, snippets.get(case.case_id, ()))
                yield custom_id, chat_body(model, messages, info.parameters)

        return BatchWritten(*write_calls(out, calls(), most_requests, most_bytes))


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
    with (
        open_log(run_dir / RESPONSES) as answers,
        open_log(run_dir / BATCHES) as written,
    ):
        log = read_batch_log(run_dir)
        if not log.questions:
            raise BadInput(
                f"no batch of questions was written of {run_dir}",
                hint="medlive eval batch write --answers makes one",
            )
        left = {case.case_id: case for case in unanswered(run)}

        def take(
            result: Row,
            call: Row,
            again: bool,
        ) -> list[str]:
            case = left.get(call["case_id"])
            if again or case is None:
                return ["again"]
            try:
                answer = answer_of(case, reply_of(result, price))
            except NotACompletion as exc:
                answer = failed(case, f"batch: {exc}")
            answers.add(answer.row())
            if answer.state not in (AnswerState.FAILED, AnswerState.EMPTY):
                del left[case.case_id]
            return [answer.state]

        return read_results(
            files,
            log.questions,
            log,
            written,
            take,
            lambda call: {call["case_id"]} & left.keys(),
        )
