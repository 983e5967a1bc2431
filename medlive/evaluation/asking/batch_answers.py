"""A model's answers through its endpoint's batch API, into a run folder that `eval run` began."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medlive.digest import digest_json
from medlive.errors import BadInput, UsageError
from medlive.evaluation.asking.batch_files import (
    BATCHES,
    MOST_BYTES,
    MOST_REQUESTS,
    BatchFiles,
    BatchWritten,
    Result,
    brief,
    read_results,
    result_error,
)
from medlive.evaluation.asking.run import answer_of, failed, unanswered
from medlive.evaluation.log import LogWriter, open_log, values_of
from medlive.evaluation.model import Answer, AnswerState, EvaluationCase
from medlive.evaluation.runs.folder import IMPORTED, RESPONSES, RunFolder, open_run
from medlive.evaluation.runs.templates import load_template
from medlive.llm.wire import NotACompletion, Price, chat_body, completion


@dataclass(slots=True)
class AnswersRead:
    """What result files came to; every line of them counts once."""

    answers: Counter[AnswerState] = field(default_factory=Counter)
    again: int = 0
    """Results that were read before, and results for a case that has an answer by now."""
    unknown: int = 0
    """Lines whose custom_id was never written by this run."""
    damaged: int = 0
    missing: int = 0
    """Cases that were written, have no answer, and have no result in any file read so far."""
    open: int = 0
    """Cases that were written, whenever that was, and have no answer now."""
    notes: list[str] = field(default_factory=list)


def write_answers(
    run_dir: Path, out: Path, *, most_requests: int = MOST_REQUESTS, most_bytes: int = MOST_BYTES
) -> BatchWritten:
    """Write the questions that have no answer yet, as `eval run` would ask them: `run.json` says how.

    Files as `write_batch` makes them. Raises UsageError for a run whose answers came from a file, or whose
    template this version of medlive does not have; Locked while answers are being asked for.
    """
    run = open_run(run_dir)
    info = run.info
    if info.engine == IMPORTED or info.template.digest is None:
        raise UsageError(
            f"{run_dir} does not say how its model is asked", hint="medlive eval run begins such a run"
        )
    prompt = load_template(info.template.name)
    if prompt.digest != info.template.digest:
        raise UsageError(f"the template {prompt.name} of {run_dir} is not this version's")
    evidence = run.evidence()
    snippets = evidence.by_case if evidence else {}
    model = info.asked_as or info.model
    with open_log(run_dir / RESPONSES), open_log(run_dir / BATCHES) as written:
        record = _on_record(run_dir)
        with BatchFiles(out, most_requests, most_bytes).open() as files:
            for case in unanswered(run):
                messages = prompt.messages(case, snippets.get(case.case_id, ()))
                custom_id = _custom_id(run, case, record.answered)
                files.add(custom_id, chat_body(model, messages, info.parameters))
                if custom_id not in record.asked:
                    written.add({"kind": "question", "custom_id": custom_id, "case_id": case.case_id})
    return BatchWritten(tuple(files.paths), files.requests, 0, 0)


def read_answers(
    run_dir: Path, files: Sequence[Path], *, prices: Mapping[str, Price] | None = None
) -> AnswersRead:
    """Take result files into the run's answers. What has an answer keeps it; reading a file again adds nothing.

    An error is a failed answer, asked for again by the next batch or run. Raises Locked while answers are being
    asked for, BadInput for a file that cannot be opened and for a run that no such batch was written of.
    """
    run = open_run(run_dir)
    with open_log(run_dir / RESPONSES) as log, open_log(run_dir / BATCHES) as written:
        reader = _Reader(run, log, written, prices or {})
        for path in files:
            for result in read_results(path):
                reader.count(result)
        return reader.finish()


class _Reader:
    def __init__(self, run: RunFolder, log: LogWriter, written: LogWriter, prices: Mapping[str, Price]) -> None:
        self.told = AnswersRead()
        self._log, self._written = log, written
        self._price = prices.get(run.info.asked_as or run.info.model)
        self._record = _on_record(run.path)
        self.told.notes += self._record.notes
        if not self._record.asked:
            raise BadInput(
                f"no batch of questions was written of {run.path}",
                hint="medlive eval batch write --answers makes one",
            )
        self._open = {case.case_id: case for case in unanswered(run)}

    def count(self, result: Result | str) -> None:
        told = self.told
        if isinstance(result, str):
            told.damaged += 1
            told.notes.append(result)
            return
        case_id = self._record.asked.get(result.custom_id)
        if case_id is None:
            told.unknown += 1
            told.notes.append(f"{result.where}: no question of this run is named {result.custom_id[:80]!r}")
            return
        if result.digest in self._record.results or case_id not in self._open:
            told.again += 1
            return
        self._record.results.add(result.digest)
        self._record.answered.add(result.custom_id)
        answer = self._answer(self._open[case_id], result.row)
        self._log.add(answer.row())
        self._written.add({"kind": "read", "custom_id": result.custom_id, "digest": result.digest})
        told.answers[answer.state] += 1
        if answer.state not in (AnswerState.FAILED, AnswerState.EMPTY):
            del self._open[case_id]

    def finish(self) -> AnswersRead:
        asked, answered = self._record.asked, self._record.answered
        waiting = {case for custom_id, case in asked.items() if custom_id not in answered}
        self.told.missing = len(waiting & self._open.keys())
        self.told.open = len(set(asked.values()) & self._open.keys())
        self.told.notes = brief(self.told.notes)
        return self.told

    def _answer(self, case: EvaluationCase, row: Mapping[str, Any]) -> Answer:
        why = result_error(row)
        if why is None:
            try:
                return answer_of(case, completion(row["response"]["body"], self._price))
            except NotACompletion as exc:
                why = str(exc)
        return failed(case, f"batch: {why}")


def _custom_id(run: RunFolder, case: EvaluationCase, answered: set[str]) -> str:
    """A name that no result has yet: 64 hexadecimal digits."""
    asked = [run.info.template.digest, run.info.asked_as or run.info.model, run.info.parameters, case.row()]
    attempt = 0
    while (name := digest_json([*asked, attempt]).partition(":")[2]) in answered:
        attempt += 1
    return name


@dataclass(slots=True)
class _Record:
    """What `batches.jsonl` holds of questions."""

    asked: dict[str, str] = field(default_factory=dict)
    """The case of every question that was written, by custom_id."""
    answered: set[str] = field(default_factory=set)
    """The custom_ids that have a result."""
    results: set[str] = field(default_factory=set)
    """The digests of the results that were read."""
    notes: list[str] = field(default_factory=list)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in a row. Raises KeyError or TypeError."""
        if row["kind"] == "question":
            self.asked[row["custom_id"]] = row["case_id"]
        elif row["kind"] == "read":
            self.answered.add(row["custom_id"])
            self.results.add(row["digest"])


def _on_record(run_dir: Path) -> _Record:
    record = _Record()
    for _ in values_of(run_dir / BATCHES, record.add, record.notes):
        pass
    return record
