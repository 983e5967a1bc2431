"""Small bundles of runs made by chance on a small snapshot, and what a forger makes of them."""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medlive.evaluation.asking.open_book import OpenBook
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.bundles.bundle import (
    BundleInfo,
    bundle_scores,
    bundled_run,
    make_bundle,
)
from medlive.evaluation.bundles.files import (
    BUNDLE,
    RUN,
    SCORES,
    archive,
    checksums,
    encode_document,
    encode_figures,
)
from medlive.evaluation.bundles.verify import BundleReport, verify_bundle
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.cases.selection import Selection, select
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.harm import READINGS, HarmRow
from medlive.evaluation.model import (
    Answer,
    CaseSet,
    Grade,
)
from medlive.evaluation.runs.folder import GRADES, RESPONSES, ModelUse, RunInfo
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.grader.judge import Mode
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.llm.engine import Finish, Reply, Request
from tests.support.releases import case, criterion, release
from tests.unit.evaluation.conftest import AT, Judge, Model, reply, verdict

DRAWS = 20
Files = dict[str, bytes]


@dataclass
class Room:
    """A snapshot, a run on it and its bundle."""

    root: Path
    snapshot: Path
    run: GradedRun
    files: Files
    cases: CaseSet

    def verify(self, files: Files | bytes, **options: Any) -> BundleReport:
        """The report on an archive of these files, or of these bytes."""
        path = self.root / "tried.zip"
        path.write_bytes(files if isinstance(files, bytes) else archive(files))
        return verify_bundle(path, **{"snapshot": self.cases} | options)


def graded(
    snapshot: Path,
    out: Path,
    model: str = "cand-1",
    *,
    share: float = 0.5,
    mode: Mode = Mode.CRITERION,
    template: str = "livemedbench-v1",
    selection: Selection | None = None,
    open_book: OpenBook | None = None,
    use: ModelUse | None = None,
) -> GradedRun:
    """A run on a snapshot: one case unanswered, one cut, one with an ungraded criterion, the rest by chance."""
    cases = select(load_cases(snapshot), selection or Selection())
    luck = random.Random(f"{model} {share}")

    def answer(prompt: str) -> Reply:
        if "ml-0000000000000001" in prompt:
            return reply("", model=model)
        finish = Finish.LENGTH if "ml-0000000000000002" in prompt else Finish.STOP
        return reply(f"Drink water. 请多喝水。 {model}", finish, model)

    def one(text: str) -> dict[str, Any]:
        return json.loads(verdict(luck.random() < share))

    def grade(request: Request) -> str:
        if mode is Mode.RUBRIC:
            listed = request.inputs["criteria"]
            return json.dumps(
                {"grades": [{"id": c["id"], **one(c["criterion"])} for c in listed]}
            )
        text = request.inputs["criterion"]
        return "?" if text == "Names 3" else json.dumps(one(text))

    async def make() -> None:
        await run_model(
            cases,
            Model(answer),
            out,
            use=use or ModelUse(model),
            created_at=AT,
            template=template,
            open_book=open_book,
        )
        await grade_run(out, Judge(grade), mode=mode, concurrency=3)

    asyncio.run(make())
    return load_graded(out)


def made_room(root: Path) -> Room:
    """A snapshot of six cases with a run on it."""
    held = []
    for n in range(1, 7):
        case_id = f"ml-{n:016d}"
        rubric = [
            criterion(case_id, 1, f"Advises {n}"),
            criterion(case_id, 2, f"Harms {n}", -3),
            criterion(case_id, 3, f"Names {n}", 2),
        ]
        held.append(case(case_id, criteria=tuple(rubric), first_release="2026.W47"))
    snapshot = release(root / "snapshots" / "medlive-2026.W47", "2026.W47", held).path
    run = graded(snapshot, root / "run")
    return Room(
        root, snapshot, run, make_bundle(run, draws=DRAWS), load_cases(snapshot)
    )


def sealed(files: Files) -> Files:
    """The files as a forger leaves them: every digest fits again."""
    signed = {n: d for n, d in files.items() if n not in (SUMS, SIGNATURE)}
    return files | {SUMS: checksums(signed)}


def rescored(room: Room, files: Files) -> Files:
    """The files with the scores that their run comes to, every digest fitting again."""
    about = BundleInfo.model_validate_json(files[BUNDLE])
    kinds: dict[str, Any] = {RESPONSES: Answer, GRADES: Grade, READINGS: HarmRow}
    rows = {}
    for name, kind in kinds.items():
        own = lines_of(files, name) if name in files else []
        rows[name] = [kind.from_row(row) for row in own]
    info = RunInfo.model_validate_json(files[RUN])
    run = bundled_run(info, room.cases.cases, rows)
    return sealed(files | {SCORES: encode_figures(bundle_scores(run, about))})


def lines_of(files: Files, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files[name].splitlines()]


def with_lines(files: Files, name: str, rows: list[dict[str, Any]]) -> Files:
    encode_row = [
        json.dumps(r, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n"
        for r in rows
    ]
    return files | {name: "".join(encode_row).encode()}


def edited(
    name: str, change: Callable[[list[dict[str, Any]], random.Random], object]
) -> Callable[[Files, random.Random], Files]:
    def mutate(files: Files, rng: random.Random) -> Files:
        rows = lines_of(files, name)
        change(rows, rng)
        return with_lines(files, name, rows)

    return mutate


def set_to(
    key: str, value: Callable[[Any], Any]
) -> Callable[[list[dict[str, Any]], random.Random], object]:
    def change(rows: list[dict[str, Any]], rng: random.Random) -> None:
        row = rng.choice(
            [r for r in rows if r.get("met") is not None or "response" in r]
        )
        row[key] = value(row[key])

    return change


def swapped(rows: list[dict[str, Any]], rng: random.Random) -> None:
    a, b = rng.sample(range(len(rows)), 2)
    rows[a], rows[b] = rows[b], rows[a]


def parse_document(
    name: str, change: Callable[[dict[str, Any], random.Random], object]
) -> Callable[[Files, random.Random], Files]:
    def mutate(files: Files, rng: random.Random) -> Files:
        value = json.loads(files[name])
        change(value, rng)
        return files | {name: encode_document(value)}

    return mutate


def nudge(value: Any, rng: random.Random) -> None:
    """Change one number of a document."""
    places: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        one = pending.pop()
        for key, item in one.items() if isinstance(one, dict) else enumerate(one):
            if isinstance(item, dict | list):
                pending.append(item)
            elif (
                isinstance(item, int | float)
                and not isinstance(item, bool)
                and key not in ("format_version", "level")
            ):
                places.append((one, key))
    holder, key = rng.choice(places)
    holder[key] += 1 if isinstance(holder[key], int) else 0.000001


def run_json(
    change: Callable[[dict[str, Any]], object],
) -> Callable[[Files, random.Random], Files]:
    """A change to run.json."""
    return parse_document(RUN, lambda value, _: change(value))


FORGERIES: dict[str, Callable[[Files, random.Random], Files]] = {
    "an answer": edited(RESPONSES, set_to("response", lambda v: v + " Also rest.")),
    "an answer's case": edited(
        RESPONSES, set_to("case_id", lambda _: "ml-9999999999999999")
    ),
    "an answer's state": edited(
        RESPONSES, set_to("state", lambda v: "failed" if v != "failed" else "ok")
    ),
    "no answer": edited(
        RESPONSES, lambda rows, rng: rows.pop(rng.randrange(1, len(rows)))
    ),
    "an answer twice": edited(
        RESPONSES, lambda rows, rng: rows.append(rng.choice(rows))
    ),
    "answers out of order": edited(RESPONSES, swapped),
    "an answer's field": edited(
        RESPONSES, lambda rows, rng: rng.choice(rows).update(bonus=1)
    ),
    "an answer that is no text": edited(RESPONSES, set_to("response", lambda _: 5)),
    "a verdict": edited(GRADES, set_to("met", lambda v: not v)),
    "a verdict that is no boolean": edited(
        GRADES, set_to("met", lambda v: 1 if v else "yes")
    ),
    "a verdict undone": edited(GRADES, set_to("met", lambda _: None)),
    "a quote": edited(GRADES, set_to("quote", lambda _: "Take antibiotics")),
    "a reasoning": edited(GRADES, set_to("reasoning", lambda _: "It is met.")),
    "a key": edited(
        GRADES, set_to("key", lambda v: v[:-1] + ("0" if v[-1] != "0" else "1"))
    ),
    "a verdict's case": edited(
        GRADES, set_to("case_id", lambda _: "ml-0000000000000001")
    ),
    "a verdict's criterion": edited(
        GRADES, set_to("criterion_id", lambda v: v[:-1] + str(int(v[-1]) % 3 + 1))
    ),
    "a verdict's grader": edited(GRADES, set_to("grader", lambda _: "judge-2")),
    "a verdict's judge": edited(
        GRADES, set_to("judge", lambda _: "sha256:" + "0" * 64)
    ),
    "a verdict's prompt": edited(
        GRADES, set_to("prompt", lambda _: "sha256:" + "0" * 64)
    ),
    "a verdict's mode": edited(GRADES, set_to("mode", lambda _: "rubric")),
    "no verdict": edited(GRADES, lambda rows, rng: rows.pop(rng.randrange(len(rows)))),
    "a verdict twice": edited(GRADES, lambda rows, rng: rows.append(rng.choice(rows))),
    "verdicts out of order": edited(GRADES, swapped),
    "a number of the scores": parse_document("scores.json", nudge),
    "another number of the scores": parse_document("scores.json", nudge),
    "a rate left out": parse_document(
        "scores.json", lambda v, _: v["rates"].pop("ungraded")
    ),
    "a warning left out": parse_document(
        SCORES, lambda v, _: v["complete"].update(warnings=["none"])
    ),
    "a million draws": parse_document(BUNDLE, lambda v, _: v.update(draws=10**6)),
    "draws that are none": parse_document(BUNDLE, lambda v, _: v.update(draws=["x"])),
    "a hard case left out": parse_document(
        BUNDLE,
        lambda v, rng: v.update(
            withdrawn_cases=[f"ml-000000000000000{rng.randrange(1, 7)}"]
        ),
    ),
    "errata that are none": parse_document(
        BUNDLE, lambda v, _: v.update(withdrawn_criteria=[{}])
    ),
    "another digest of the cases": run_json(
        lambda v: v["cases"].update(rows="sha256:0")
    ),
    "fewer cases": run_json(lambda v: v["cases"].update(count=5)),
    "another snapshot's digest": run_json(
        lambda v: v["cases"].update(digest="sha256:" + "0" * 64)
    ),
    "another snapshot's name": run_json(lambda v: v["cases"].update(name="2026.W46")),
    "a part of the cases": run_json(
        lambda v: v["cases"].update(selection={"limit": 3})
    ),
    "a selection that is none": run_json(
        lambda v: v["cases"].update(selection={"limit": "x"})
    ),
    "another format": parse_document(BUNDLE, lambda v, _: v.update(format_version=1)),
    "another canary": parse_document(BUNDLE, lambda v, _: v.update(canary="x")),
    "a key that is none": parse_document(
        BUNDLE, lambda v, _: v.update(signing={"key_id": "0", "public_key": "RW"})
    ),
    "a field too many": parse_document(BUNDLE, lambda v, _: v.update(rank=1)),
    "a run's hint": parse_document("run.json", lambda v, _: v.update(snapshots="../x")),
    "NaN": lambda files, _: (
        files
        | {"scores.json": files["scores.json"].replace(b'"n": ', b'"n": NaN, "m": ', 1)}
    ),
    "a key twice": lambda files, _: (
        files | {SCORES: files[SCORES].replace(b"{", b'{"rates": [],', 1)}
    ),
    "deep brackets": lambda files, _: files | {"scores.json": b"[" * 100_000},
    "an empty log": lambda files, _: files | {GRADES: b""},
    "a cut log": lambda files, _: files | {GRADES: files[GRADES][:-9]},
    "Windows line ends": lambda files, _: (
        files | {RESPONSES: files[RESPONSES].replace(b"\n", b"\r\n")}
    ),
    "a file too many": lambda files, _: files | {"notes.txt": b"hello"},
    "a file of another folder": lambda files, _: files | {"../../escaped.json": b"{}"},
}
