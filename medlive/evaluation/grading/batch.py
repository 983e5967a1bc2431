"""Grading through an endpoint's batch API: the calls as a file to hand in, and the results back into the same log.

What is written is what `grade` would send first, and a result counts by the same checks. What is left can be written
as the next file; a reply that held no verdict is returned with what is wrong with it by live grading alone.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from medlive.errors import BadInput
from medlive.evaluation.asking.batch import (
    BATCHES,
    MOST_BYTES,
    MOST_REQUESTS,
    BatchLog,
    BatchRead,
    BatchWritten,
    Result,
    Row,
    read_batch_log,
    read_results,
    write_calls,
)
from medlive.evaluation.grading.grade import Record, open_work, read_record
from medlive.evaluation.grading.work import Work, make_grades
from medlive.evaluation.model import Grade, Origin, grade_keys, kind_of
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
    allow_unpinned: bool = False,
    most_requests: int = MOST_REQUESTS,
    most_bytes: int = MOST_BYTES,
) -> BatchWritten:
    """Write the calls that are left to make, in OpenAI's batch format, to `out` or to numbered files beside it.

    `shape` is how the endpoint is asked for JSON. Raises Locked when the run is being graded, BadInput when a file
    cannot be written.
    """
    run = open_run(run_dir)
    judge = Judge(identity, mode, allow_unpinned=allow_unpinned)
    answers, _ = run.answers()
    criteria = waiting = 0
    with open_log(run_dir / GRADES), open_log(run_dir / BATCHES) as written:
        record = read_record(run_dir / GRADES, judge.digest)
        known = read_batch_log(run_dir)
        if judge.digest not in known.judges:
            written.add(
                {
                    "kind": "judge",
                    "judge": judge.digest,
                    "mode": mode.value,
                    **identity.as_json(),
                }
            )

        def calls() -> Iterator[tuple[str, Row]]:
            nonlocal criteria, waiting
            for work in open_work(run.cases, answers, judge, record):
                keys = grade_keys(work.case, work.answer, judge.digest, work.criteria)
                custom_id = known.custom_id(
                    work.case.case_id, list(keys), list(keys.values())
                )
                if custom_id in known.asked:
                    waiting += 1
                else:
                    written.add(
                        {
                            "kind": "asked",
                            "custom_id": custom_id,
                            "judge": judge.digest,
                            "case_id": work.case.case_id,
                            "criteria": list(keys),
                            "keys": list(keys.values()),
                        }
                    )
                request = judge.request(work.call)
                criteria += len(keys)
                sent = response_format(shape, request)
                yield (
                    custom_id,
                    chat_body(
                        identity.model, render(request), identity.parameters, sent
                    ),
                )

        files, requests = write_calls(out, calls(), most_requests, most_bytes)
    return BatchWritten(files, requests, criteria, waiting)


def _judges(log: BatchLog, allow_unpinned: bool = False) -> dict[str, Judge]:
    """The judges of a run's batches whose prompt is this version's."""
    judges = {}
    for digest, row in log.judges.items():
        identity = EngineIdentity(row["engine"], row["model"], row["parameters"])
        judge = Judge(identity, Mode(row["mode"]), allow_unpinned=allow_unpinned)
        if judge.digest == digest:
            judges[digest] = judge
        else:
            log.notes.append(
                f"{BATCHES}: calls of another version's prompt cannot be read"
            )
    return judges


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
    with open_log(run_dir / GRADES) as log, open_log(run_dir / BATCHES) as written:
        known = read_batch_log(run_dir)
        if all(row["kind"] != "asked" for row in known.asked.values()):
            raise BadInput(
                f"no batch was written of {run_dir}",
                hint="medlive eval batch write makes one",
            )
        judges = _judges(known, allow_unpinned)
        for name, row in list(known.asked.items()):
            if row.get("judge") not in judges:
                del known.asked[name]
        results = _Results(run, judges, log, prices or {})
        read = read_results(
            files, "asked", known, written, results.take, results.open_of
        )
    for grade in results.ungraded:
        read.reasons[kind_of(grade.reason)] += 1
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
        judges: Mapping[str, Judge],
        log: LogWriter,
        prices: Mapping[str, Price],
    ) -> None:
        self._cases = {case.case_id: case for case in run.cases}
        self._answers, _ = run.answers()
        self._judges, self._log, self._prices = judges, log, prices
        self._records: dict[str, Record] = {}
        for digest in judges:
            self._records[digest] = read_record(run.path / GRADES, digest)
        self.ungraded: list[Grade] = []

    def _work_of(self, call: Row) -> Work | None:
        """The call as it would be made now; None if what it asked about has changed."""
        case = self._cases.get(call["case_id"])
        answer = self._answers.get(call["case_id"])
        if case is None or answer is None or not answer.gradable:
            return None
        asked = [c for c in case.criteria if c.id in call["criteria"]]
        keys = grade_keys(case, answer, call["judge"], asked)
        if list(keys.values()) != list(call["keys"]):
            return None
        return Work(case, answer, tuple(asked))

    def open_of(self, call: Row) -> set[str]:
        """The keys of a call's criteria without a settled verdict."""
        if self._work_of(call) is None:
            return set()
        judge, record = self._judges[call["judge"]], self._records[call["judge"]]
        return {k for k in call["keys"] if not judge.settles(record.latest.get(k))}

    def take(self, result: Result, call: Row, again: bool) -> list[str]:
        """Log the grades of one result; what became of each."""
        judge, work = self._judges[call["judge"]], self._work_of(call)
        if work is None:
            return ["again" if again else "stale"]
        left = self.open_of(call)
        grades = _grades(judge, work, result, self._prices) if left else []
        taken = _taken(grades, left, again)
        for grade in taken:
            self._log.add(grade.row())
            self._records[judge.digest].put(grade)
            if grade.met is None:
                self.ungraded.append(grade)
        return [_KINDS[grade.met] for grade in taken] or ["again"]


def _taken(grades: Sequence[Grade], left: Set[str], again: bool) -> list[Grade]:
    """The grades of criteria that are open, the call's usage on the first; of a second reading verdicts alone."""
    taken: list[Grade] = []
    for grade in grades:
        if grade.key in left and not (again and grade.met is None):
            taken.append(replace(grade, usage={} if taken else grades[0].usage))
    return taken


_KINDS = {True: "met", False: "not_met", None: "ungraded"}


def _grades(
    judge: Judge, work: Work, result: Result, prices: Mapping[str, Price]
) -> list[Grade]:
    """What a result says of a call's criteria."""
    verdicts = Verdicts(judge, work.call)
    reply = fault = None
    try:
        reply = result.reply(prices.get(judge.identity.model))
        read_checked(
            reply,
            None if judge.allow_unpinned else judge.identity.model,
            "grader",
            verdicts.read,
        )
    except NotACompletion as exc:
        fault = Unusable(f"batch: {exc}")
    except Unusable as exc:
        fault = exc
    asked = Asked[object](attempts=[Attempt(judge.request(work.call), reply, fault)])
    return make_grades(judge, work, verdicts, asked, Origin.BATCH)
