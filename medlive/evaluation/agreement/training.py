"""Chat lines to fine-tune a local judge: a grader's own requests, and settled verdicts as replies in its schema.

Only what two judges or people settled (`settle`) is a label, and only a reply that the grader's reader takes is a
line. Files are split by the model that answered, so that no model's answers stand in two of them (seed 001 §4.1).
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from medlive.digest import canonical_json, digest_bytes
from medlive.errors import UsageError
from medlive.evaluation.agreement.reliability import grader_of
from medlive.evaluation.grading.judge import Judge, Ungraded, Verdicts, Work
from medlive.evaluation.log import writing
from medlive.evaluation.model import EvaluationCriterion, Grade, Mode, gradable, kind_of
from medlive.evaluation.runs.folder import GRADES, SETTLED, read_grades, write_whole
from medlive.evaluation.scoring.errata import (
    ErrataMode,
    ErrataSearch,
    RunErrata,
    use_errata,
)
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.llm.ask import Unusable
from medlive.llm.engine import EngineIdentity, Finish, Reply, Usage
from medlive.llm.fence import render
from medlive.snapshot.identity import canary_of

SPLITS: Final = ("test", "validation", "train")
"""In the order of being filled: what two models answered alike is held out."""
_SHARES: Final = {"test": 0.2, "validation": 0.1}
"""Of the models, at least one each, where they are not named."""
_LEFT_OUT: Final = "left_out.jsonl"
_SAME: Final = "another run in these files has the same answer"
_REFUSED: Final = "the grader's reader refuses the reply: "


class LeftOut(NamedTuple):
    """A criterion of an answer that the files leave out."""

    run: str
    model: str
    case_id: str
    criterion_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Line:
    """One request with its reply."""

    messages: Sequence[Mapping[str, str]]
    criteria: int
    met: int


def export_training(
    runs: Sequence[Path],
    out: Path,
    errata: ErrataSearch,
    *,
    mode: Mode = Mode.RUBRIC,
    judge: str | None = None,
    validation: Sequence[str] = (),
    test: Sequence[str] = (),
    seed: int = 0,
    replace: bool = False,
) -> dict[str, Any]:
    """Write `train.jsonl`, `validation.jsonl`, `test.jsonl`, `left_out.jsonl` and `manifest.json`.

    Args:
        runs: Settled runs (`settle`).
        out: The folder to write.
        errata: Where to look for what was withdrawn.
        mode: The grader's mode whose requests are written.
        judge: The settled grading, by its digest, where a run has several.
        validation: Models of that file; with `test`, instead of a draw.
        test: Models of that file.
        seed: Seed of the draw of models.
        replace: Whether to replace files that hold something else.

    Returns:
        The manifest. The same runs and options make the same bytes.

    Raises:
        UsageError: If a run is not settled, no cases are released, fewer than three models answered, a named model
            did not, nothing is left, or a file holds something else.
    """
    graded = [_settled(path, judge) for path in runs]
    if not (
        released := [
            run for run in graded if run.run.info.cases.publishable is not False
        ]
    ):
        raise UsageError("no run is on released cases: nothing may be exported")
    use = use_errata([run.run for run in released], ErrataMode.APPLY, errata)
    splits = split_models(
        {run.run.info.model for run in released}, validation, test, seed
    )
    grader = Judge(EngineIdentity("export", "export"), mode)
    left = [
        LeftOut(
            run.run.path.name,
            run.run.info.model,
            case.case_id,
            c.id,
            "its snapshot is not released",
        )
        for run in graded
        if run not in released
        for case in run.run.cases
        for c in case.criteria
    ]
    lines: dict[str, list[Line]] = {split: [] for split in SPLITS}
    seen: dict[tuple[str, str], GradedRun] = {}
    ordered = sorted(
        zip(released, use.runs, strict=True),
        key=lambda one: SPLITS.index(splits[_model(one[0])]),
    )
    for run, withdrawn in ordered:
        lines[splits[_model(run)]] += _lines(run, withdrawn, grader, seen, left)
    notes = use.warnings([run.run.path.name for run in released])
    if not any(lines.values()):
        raise UsageError(
            "no settled verdict is left to export",
            hint="; ".join(f"{n}: {why}" for why, n in _reasons(left).items()),
        )
    return _write(
        out, _manifest(graded, grader, splits, seed, notes), lines, left, replace
    )


def _settled(path: Path, judge: str | None) -> GradedRun:
    """A run under its settled grading. Raises UsageError."""
    known = dict.fromkeys(
        g.judge for g in read_grades(path / GRADES)[0] if g.engine == SETTLED
    )
    found = [
        one
        for one in known
        if judge is None or one.removeprefix("sha256:").startswith(judge)
    ]
    if len(found) != 1:
        hint = (
            "--judge DIGEST chooses"
            if found
            else "medlive eval judges settle RUN makes one"
        )
        raise UsageError(
            f"{path}: expected one settled grading, found {len(found)}", hint=hint
        )
    return load_graded(path, judge=found[0])


def split_models(
    models: Iterable[str],
    validation: Sequence[str] = (),
    test: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, str]:
    """Model → its file. Raises UsageError."""
    drawn = sorted(set(models))
    if not validation and not test:
        if len(drawn) < len(SPLITS):
            raise UsageError(
                f"a split by model needs answers of three models or more, found {', '.join(drawn) or 'none'}"
            )
        random.Random(seed).shuffle(drawn)
        sizes = {
            split: max(1, round(share * len(drawn))) for split, share in _SHARES.items()
        }
        test, validation = (
            drawn[: sizes["test"]],
            drawn[sizes["test"] : sum(sizes.values())],
        )
    if unknown := sorted({*validation, *test} - set(drawn)):
        raise UsageError(
            f"no run is of {', '.join(unknown)}",
            hint=f"the models are {', '.join(sorted(drawn))}",
        )
    if both := sorted(set(validation) & set(test)):
        raise UsageError(f"{', '.join(both)} cannot be in both --validation and --test")
    found = {
        m: "test" if m in test else "validation" if m in validation else "train"
        for m in sorted(drawn)
    }
    if missing := [split for split in SPLITS if split not in found.values()]:
        raise UsageError(
            f"no model is left for {missing[0]}",
            hint="name --validation and --test, or neither",
        )
    return found


def _model(run: GradedRun) -> str:
    return run.run.info.model


def _lines(
    run: GradedRun,
    withdrawn: RunErrata,
    grader: Judge,
    seen: dict[tuple[str, str], GradedRun],
    left: list[LeftOut],
) -> Iterator[Line]:
    """A run's lines; what belongs to none goes to `left`. `seen`: question and answer → their first run."""
    for case, answer in gradable(run.run.cases, run.answers):
        grades = run.grades.get(case.case_id, {})
        first = seen.setdefault((case.question, answer.digest), run)
        why = {
            c.id: _why_not(case.case_id, c.id, grades.get(c.id), withdrawn)
            if first is run
            else _SAME
            for c in case.criteria
        }
        for whole in grader.parts([c for c in case.criteria if not why[c.id]]):
            part = whole
            while part and (
                faults := _faults(grader, Work(case, answer, part), grades)
            ):
                why |= faults
                part = tuple(c for c in part if c.id not in faults)
            if part:
                request = grader.request(Work(case, answer, part))
                said = {
                    "role": "assistant",
                    "content": _reply(grader.mode, part, grades),
                }
                yield Line(
                    [*render(request), said],
                    len(part),
                    sum(grades[c.id].met is True for c in part),
                )
        left += [
            LeftOut(run.run.path.name, _model(run), case.case_id, cid, why[cid])
            for cid in why
            if why[cid]
        ]


def _why_not(
    case_id: str, criterion_id: str, grade: Grade | None, withdrawn: RunErrata
) -> str:
    """Why a criterion has no label; "" where it has one."""
    if case_id in withdrawn.cases or (case_id, criterion_id) in withdrawn.criteria:
        return "withdrawn"
    if case_id in withdrawn.unclear:
        return "a criterion of its case was withdrawn, and the file of cases does not tell which"
    if grade is None or grade.met is None:
        return grade.reason if grade else "not settled yet"
    return ""


def _faults(grader: Judge, work: Work, grades: Mapping[str, Grade]) -> dict[str, str]:
    """Why the grader's own reader would refuse the reply, by criterion."""
    text = _reply(grader.mode, work.criteria, grades)
    try:
        Verdicts(grader, work).read(
            Reply(text, Finish.STOP, Usage(), grader.identity.model)
        )
    except Ungraded as exc:
        return {cid: _REFUSED + fault for cid, fault in exc.faults.items()}
    except Unusable as exc:
        return dict.fromkeys((c.id for c in work.criteria), f"{_REFUSED}{exc}")
    return {}


def _reply(
    mode: Mode, criteria: Sequence[EvaluationCriterion], grades: Mapping[str, Grade]
) -> str:
    """The labels as the grader replies."""
    found: list[dict[str, Any]] = [
        {
            "id": c.id,
            "reasoning": g.reasoning,
            "met": g.met,
            "quote": g.quote,
            "whole": g.whole,
        }
        for c in criteria
        if (g := grades[c.id])
    ]
    value = (
        {name: v for name, v in found[0].items() if name != "id"}
        if mode is Mode.CRITERION
        else {"grades": found}
    )
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _manifest(
    graded: Sequence[GradedRun],
    grader: Judge,
    splits: Mapping[str, str],
    seed: int,
    notes: Sequence[str],
) -> dict[str, Any]:
    def about(run: GradedRun) -> dict[str, Any]:
        cases, who = run.run.info.cases, grader_of(run)
        marked = {"canary": canary_of(cases.name)} if cases.origin == "snapshot" else {}
        return {
            "folder": run.run.path.name,
            "model": _model(run),
            "cases": cases.name,
            "cases_digest": cases.digest,
            "grading": who.model,
            "judge": who.judge,
            "split": splits.get(_model(run)),
            **marked,
        }

    return {
        "format": "medlive-judge-training",
        "format_version": 1,
        "task": grader.prompt.task,
        "prompt": grader.prompt_digest,
        "seed": seed,
        "runs": [about(run) for run in graded],
        "notes": list(notes),
    }


def _write(
    out: Path,
    manifest: dict[str, Any],
    lines: Mapping[str, Sequence[Line]],
    left: Sequence[LeftOut],
    replace: bool,
) -> dict[str, Any]:
    """Write all files, the manifest last; return it."""
    files = {
        f"{s}.jsonl": _jsonl({"messages": line.messages} for line in lines[s])
        for s in reversed(SPLITS)
    }
    files[_LEFT_OUT] = _jsonl(one._asdict() for one in left)
    manifest["files"] = {
        name: {"digest": digest_bytes(data), "lines": data.count(b"\n")}
        for name, data in files.items()
    }
    for split, of in lines.items():
        counts = {
            "criteria": sum(line.criteria for line in of),
            "met": sum(line.met for line in of),
        }
        manifest["files"][f"{split}.jsonl"] |= counts
    manifest["left_out"] = _reasons(left)
    files["manifest.json"] = (
        json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"
    ).encode()
    for name, data in files.items():
        if not replace and (out / name).exists() and (out / name).read_bytes() != data:
            raise UsageError(
                f"{out / name} holds something else",
                hint="name another folder, or say --replace",
            )
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_whole(out / name, data)
    return manifest


def _jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(canonical_json(dict(row)) + "\n" for row in rows).encode(
        "utf-8", "backslashreplace"
    )


def _reasons(left: Sequence[LeftOut]) -> dict[str, int]:
    """Why criteria are left out, the most frequent first."""
    return dict(Counter(kind_of(one.why) for one in left).most_common())
