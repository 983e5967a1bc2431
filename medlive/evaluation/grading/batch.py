"""Grading through an endpoint's batch API: the calls as a file to hand in, and the results back into the same log.

What is written is what `grade` would send first, and a result counts by the same checks. What is left can be written
as the next file; a reply that held no verdict is returned with what is wrong with it by live grading alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from medlive.errors import BadInput
from medlive.evaluation.asking.batch import (
    BATCHES,
    BatchRead,
    BatchWritten,
    Call,
    Row,
    open_batches,
    read_results,
    reply_of,
    write_calls,
)
from medlive.evaluation.grading.grade import (
    Record,
    Work,
    make_grades,
    open_work,
)
from medlive.evaluation.model import Grade, gradable, grade_keys, kind_of
from medlive.evaluation.runs.folder import GRADES, RunFolder, open_run
from medlive.grader.judge import Judge, Mode, Verdicts
from medlive.integrity.log import LogWriter, open_log
from medlive.llm.ask import Asked, Attempt, Unusable, read_checked
from medlive.llm.engine import EngineIdentity
from medlive.llm.prompts import render
from medlive.llm.wire import JsonMode, NotACompletion, Price, chat_body, response_format


def write_batch(
    run_dir: Path,
    identity: EngineIdentity,
    out: Path,
    *,
    shape: JsonMode = JsonMode.SCHEMA,
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
        request = judge.request(work.call)
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
            identity = EngineIdentity(
                engine=row["engine"],
                model=row["model"],
                parameters=row["parameters"],
                pinned=not allow_unpinned,
            )
            judge = Judge(identity, Mode(row["mode"]))
            if judge.digest == digest:
                records[digest] = Record(judge, run_dir / GRADES)
            else:
                log.notes.append(
                    f"{BATCHES}: calls of another version's prompt cannot be read"
                )
        calls = {}
        for name, call in log.asked.items():
            if call.get("judge") in records:
                calls[name] = call
        results = _Results(run, records, grades, prices or {})
        read = read_results(files, calls, log, results.take, results.open_of)
    read.reasons = results.reasons
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
        self.reasons: Counter[str] = Counter()
        """Why criteria are ungraded."""

    def _work_of(self, call: Row) -> Work | None:
        """The call as it would be made now; None if what it asked about has changed."""
        if (asked := self._asked.get(call["case_id"])) is None:
            return None
        case, answer = asked
        criteria = [c for c in case.criteria if c.id in call["criteria"]]
        keys = grade_keys(case, answer, call["judge"], criteria)
        if list(keys.values()) != list(call["keys"]):
            return None
        return Work(case, answer, tuple(criteria))

    def open_of(self, call: Row) -> set[str]:
        """The keys of a call's criteria without a settled verdict."""
        if self._work_of(call) is None:
            return set()
        record = self._records[call["judge"]]
        return {key for key in call["keys"] if not record.settles(key)}

    def take(self, result: Row, call: Row, again: bool) -> list[str]:
        """Log the grades of one result; what became of each."""
        record, work = self._records[call["judge"]], self._work_of(call)
        if work is None:
            return ["again" if again else "stale"]
        left = self.open_of(call)
        grades = self._grades(record.judge, work, result) if left else []
        kinds: list[str] = []
        for grade in grades:
            # Of a second reading only a verdict is new.
            if grade.key not in left or (again and grade.met is None):
                continue
            taken = replace(grade, usage={} if kinds else grades[0].usage)
            self._log.add(taken.row())
            record.put(taken)
            if grade.met is None:
                self.reasons[kind_of(grade.reason)] += 1
            kinds.append(_KINDS[grade.met])
        return kinds or ["again"]

    def _grades(self, judge: Judge, work: Work, result: Row) -> list[Grade]:
        """What a result says of a call's criteria."""
        verdicts = Verdicts(judge, work.call)
        reply = fault = None
        model = judge.identity.model
        try:
            reply = reply_of(result, self._prices.get(model))
            pinned = model if judge.identity.pinned else None
            read_checked(reply, pinned, "grader", verdicts.read)
        except NotACompletion as exc:
            fault = Unusable(f"batch: {exc}")
        except Unusable as exc:
            fault = exc
        attempt = Attempt(judge.request(work.call), reply, fault)
        asked = Asked[object](attempts=[attempt])
        return make_grades(work, verdicts, asked, "batch")


_KINDS = {True: "met", False: "not_met", None: "ungraded"}
