"""Size and speed of the public site of 38 models, 2,756 cases and 60 weekly snapshots, all made up.

Writes the site (`--out`, kept), prints its size, what the leaderboard transfers as it is and compressed, and, where
Chromium is there, the time until the leaderboard's first view on a line of 1.6 Mbit/s with 150 ms to and fro, and
until its ranking is worked out. The weeks are not frozen anew: each is described as a snapshot would describe it.
Run: `python benchmarks/public_site.py --out FOLDER [--models 38 --cases 2756 --weeks 60]`.
"""

import argparse
import gzip
import json
import random
import shutil
import sys
import threading
import time
from datetime import UTC, date, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from medlive.evaluation.model import Answer, AnswerState, EvaluationCase
from medlive.evaluation.model import EvaluationCriterion as Criterion
from medlive.evaluation.runs.folder import CasesUse, RunFolder, RunInfo, TemplateUse
from medlive.evaluation.scoring.graded import GradedRun, Grader
from medlive.evaluation.scoring.score import score_runs
from medlive.integrity.folder import SUMS
from medlive.llm.registry import Registry
from medlive.rubric.model import Axis
from medlive.site.live import write_site
from medlive.site.model import Content, Week
from medlive.site.pages import site_files
from medlive.site.read import board_of
from medlive.snapshot.manifest import Counts, FileEntry, Manifest, WeekCost
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAINT: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
AXES: Final = tuple(Axis)
THEMES: Final = ("Emergency Referrals", "Context-Seeking", "Response Depth")
SPECIALTIES: Final = ("Cardiology", "Dermatology", "Neurology", "Pediatrics", "Urology")
START: Final = date(2025, 1, 6)
_SYLLABLES: Final = ("ba", "cor", "den", "fi", "gra", "hy", "lo", "mus", "ne", "pro")
PAGES: Final = ("index.html", "leaderboard.html", "cases.html", "weeks.html")
"""Whose first view is timed."""
FIRST_VIEW: Final = (
    "assets/site.css",
    "leaderboard.html",
    "assets/leaderboard.js",
    "assets/board.js",
    "assets/format.js",
    "assets/generator.js",
    "assets/intervals.js",
    "data/board-1.json",
    "data/board-1.bin",
)


def made_text(rng: random.Random, chinese: bool, words: int) -> str:
    """Words of two to four syllables, some often: it compresses about as prose does."""
    syllables = (
        "需要做磁共振吗膝关节疼三周上下楼加重头晕药量血压检查"
        if chinese
        else _SYLLABLES
    )
    chosen = []
    for _ in range(words):
        common = random.Random(int(rng.paretovariate(0.6)) % 5000)
        chosen.append("".join(common.choices(syllables, k=common.randint(2, 4))))
    return ("" if chinese else " ").join(chosen)


def made_case(place: int, of: int, weeks: int) -> SnapshotCase:
    """A case of a week of its own."""
    rng = random.Random(place)
    case_id = f"ml-{place:016x}"
    week = place * weeks // of
    zh = place % 4 == 0
    posted = START + timedelta(days=7 * week + rng.randrange(7))
    year, number, _ = (START + timedelta(days=7 * week)).isocalendar()
    criteria = []
    for position in range(1, rng.randint(4, 8) + 1):
        points = -rng.randint(2, 8) if position == 4 else rng.randint(1, 10)
        criteria.append(
            SnapshotCriterion(
                f"{case_id}-c{position}",
                case_id,
                1,
                position,
                made_text(rng, zh, 9),
                AXES[position % len(AXES)],
                points,
                "evidence" if position == 5 else "advice",
                "passage-1" if position == 5 else "",
            )
        )
    return SnapshotCase(
        case_id=case_id,
        revision=1,
        first_release=f"{year}.W{number:02d}",
        language="zh" if zh else "en",
        source="dxy" if zh else "icliniq",
        posted_at=posted,
        specialty=rng.choice(SPECIALTIES),
        theme=rng.choice(THEMES),
        narrative=made_text(rng, zh, 80),
        query=made_text(rng, zh, 18),
        advice=made_text(rng, zh, 120),
        criteria=tuple(criteria),
        difficulty=rng.choice(("low", "medium", "high")),
    )


def evaluation_case(case: SnapshotCase) -> EvaluationCase:
    """The case as models are scored on it."""
    return EvaluationCase(
        case_id=case.case_id,
        language=case.language,
        narrative=case.narrative,
        query=case.query,
        advice=case.advice,
        criteria=tuple(
            Criterion(
                c.criterion_id, c.criterion, float(c.points), c.axis, (), c.origin
            )
            for c in case.criteria
        ),
        post_time=f"{case.posted_at}T00:00:00",
        month=f"{case.posted_at:%Y-%m}",
        source=case.source,
        theme=case.theme,
        specialty=case.specialty,
        first_release=case.first_release,
        difficulty=case.difficulty,
    )


def made_run(
    name: str, skill: float, info: RunInfo, cases: tuple[EvaluationCase, ...]
) -> GradedRun:
    """A run that meets a positive criterion with probability `skill`."""
    rng = random.Random(name)
    answers, met = {}, {}
    for case in cases:
        answered = rng.random() > 0.005
        state = AnswerState.OK if answered else AnswerState.EMPTY
        text = "Rest first." if answered else ""
        usage = {"input_tokens": 180, "output_tokens": 420}
        answers[case.case_id] = Answer(
            case.case_id, state, text, "stop", name, "", usage
        )
        verdicts: dict[str, bool | None] = {}
        for criterion in case.criteria:
            chance = skill if criterion.points > 0 else 0.3 * (1 - skill)
            verdicts[criterion.id] = rng.random() < chance
        met[case.case_id] = verdicts if answered else {}
    run = RunFolder(Path(name), info.model_copy(update={"model": name}), cases)
    grader = Grader("openai", "a-grader", ("a-grader",), "rubric", "p", "sha256:0")
    return GradedRun(run, name, answers, {}, grader, (), met)


def made_cost(number: int) -> WeekCost | None:
    """What a week cost: at first unsaid, then sometimes of unknown price."""
    if number < 5:
        return None
    unpriced = 3 if number % 7 == 0 else 0
    return WeekCost(
        replies=900 + number,
        input_tokens=2_000_000 + number,
        output_tokens=400_000 + number,
        estimated=number % 4,
        unpriced=unpriced,
        usd=None if unpriced else 12.5 + number,
    )


def made_weeks(cases: list[SnapshotCase], weeks: int) -> list[Week]:
    """The weeks, each with the cases up to it."""
    found = []
    file = FileEntry(size=1_000_000, sha256="0" * 64)
    for number in range(weeks):
        day = START + timedelta(days=7 * number)
        year, week, _ = day.isocalendar()
        version = f"{year}.W{week:02d}"
        known = [case for case in cases if case.first_release <= version]
        criteria = sum(len(case.criteria) for case in known)
        counts = dict.fromkeys(Counts.model_fields)
        counts |= {"cases": len(known), "criteria": criteria}
        # What the pages show of a manifest, and no more.
        values: dict[str, Any] = dict.fromkeys(Manifest.model_fields)
        values |= {
            "format_version": 3,
            "version": version,
            "created_at": datetime(day.year, day.month, day.day, tzinfo=UTC),
            "publishable": True,
            "cost": made_cost(number),
            "counts": Counts.model_construct(**counts),
            "files": dict.fromkeys(("data/cases.jsonl", SUMS), file),
        }
        manifest = Manifest.model_construct(**values)
        changed = {
            "added": sum(case.first_release == version for case in cases),
            "revised": number % 3,
            "withdrawn": number % 2,
            "held": number % 5,
        }
        found.append(Week(manifest, manifest.files, changed))
    return found[::-1]


def made_content(models: int, count: int, weeks: int) -> Content:
    """The content of the whole site."""
    cases = [made_case(place, count, weeks) for place in range(count)]
    scored = tuple(evaluation_case(case) for case in cases)
    info = RunInfo(
        created_at=datetime(2026, 3, 1, tzinfo=UTC),
        code_version="0.1.0",
        model="",
        endpoint=None,
        engine="openai",
        parameters={},
        template=TemplateUse(name="livemedbench-v1", digest="sha256:" + "1" * 64),
        cases=CasesUse(
            origin="snapshot",
            name="2026.W09",
            digest="sha256:" + "2" * 64,
            rows="sha256:" + "3" * 64,
            count=count,
            publishable=True,
            notes=(),
        ),
    )
    names = [f"maker-{n % 9}/model-{n:02d}" for n in range(models)]
    runs = [
        made_run(name, 0.2 + 0.65 * place / models, info, scored)
        for place, name in enumerate(names)
    ]
    cutoffs = {
        name: {
            "cutoff": f"2025-{1 + place % 8:02d}",
            "cutoff_source": "its card",
            "confidence": "stated",
        }
        for place, name in enumerate(names)
        if place % 5
    }
    table = score_runs(runs, registry=Registry.model_validate({"candidates": cutoffs}))
    board = board_of(table, slug="board-1")
    by_id = {case.case_id: case for case in cases}
    return Content(weeks=made_weeks(cases, weeks), cases=by_id, boards=[board])


class _Quiet(SimpleHTTPRequestHandler):
    """Compresses what it sends, as web servers do."""

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data = gzip.compress(path.read_bytes(), 6)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def slow_page(browser: "Browser") -> "Page":
    """A page of its own, without a cache, on a line of 1.6 Mbit/s with 150 ms to and fro."""
    page = browser.new_context().new_page()
    line = page.context.new_cdp_session(page)
    line.send("Network.enable")
    limits = {"downloadThroughput": 200_000, "uploadThroughput": 100_000}
    line.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 150, **limits},
    )
    return page


def first_view(page: "Page") -> float:
    """Seconds until the page showed its first words."""
    return round(float(page.wait_for_function(PAINT).json_value()) / 1000, 2)


def browse(out: Path) -> dict[str, float]:
    """Seconds until each page's first view and until the ranking, on a slow line with nothing kept."""
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium") or shutil.which("google-chrome")
    handler = partial(_Quiet, directory=str(out))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=executable, args=["--no-sandbox"]
            )
            times = {}
            for name in PAGES:
                page = slow_page(browser)
                page.goto(f"http://127.0.0.1:{server.server_port}/{name}")
                times[f"first_view_s {name}"] = first_view(page)
                page.wait_for_load_state("networkidle")
                page.close()
            page = slow_page(browser)
            started = time.monotonic()
            address = f"http://127.0.0.1:{server.server_port}/leaderboard.html"
            page.goto(address, wait_until="commit")
            page.wait_for_selector("#ranking[aria-busy=false]", timeout=120_000)
            times["ranked_s"] = round(time.monotonic() - started, 2)
            started = time.monotonic()
            page.locator("input[name=since]").press("PageUp")
            page.wait_for_selector("#ranking[aria-busy=false]", timeout=120_000)
            times["moved_s"] = round(time.monotonic() - started, 2)
            browser.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    return times


def main() -> int:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=int, default=38)
    parser.add_argument("--cases", type=int, default=2756)
    parser.add_argument("--weeks", type=int, default=60)
    args = parser.parse_args()
    content = made_content(args.models, args.cases, args.weeks)
    started = time.monotonic()
    files = site_files(content)
    write_site(files, args.out)
    size = sum(map(len, files.values()))
    sizes = {name: (args.out / name).read_bytes() for name in FIRST_VIEW}
    result = {
        "files": len(files),
        "bytes": size,
        "pages_s": round(time.monotonic() - started, 1),
        "leaderboard_bytes": sum(map(len, sizes.values())),
        "leaderboard_gzip": sum(len(gzip.compress(data)) for data in sizes.values()),
        "board_gzip": {
            name: len(gzip.compress(sizes[name])) for name in FIRST_VIEW[-2:]
        },
    }
    if shutil.which("chromium") or shutil.which("google-chrome"):
        result |= browse(args.out)
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
