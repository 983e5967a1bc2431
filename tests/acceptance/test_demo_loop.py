"""`medlive demo` does the whole loop, does it once, and decides each sample as a careful reader would."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from medlive.demo.samples import SampleThread
from medlive.evaluation.cases.selection import day_of
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.refusals import Allow
from medlive.integrity.signing import generate
from medlive.site.live import write_site
from tests.support.browser import chromium
from tests.support.instance import Done, Instance
from tests.support.leaderboard import expected, shown, watched_page, window_of
from tests.support.site import files_of, made_board, static_server

TABLES = (
    "threads",
    "thread_revisions",
    "filter_results",
    "curations",
    "cases",
    "case_revisions",
    "criteria",
    "snapshots",
    "snapshot_members",
    "replies",
    "evaluation_runs",
)
KEPT_SHARE = 0.85


@dataclass(frozen=True, slots=True)
class Loop:
    """The demo, and what it left behind."""

    instance: Instance
    demo: Instance
    """Runs it once more in the same home."""
    public_key: str
    done: Done
    rows: dict[str, int]
    files: dict[str, str]
    """The snapshot's files with their digests."""

    @property
    def snapshot(self) -> Path:
        return Path(self.done.json["frozen"]["path"])


@pytest.fixture(scope="module")
def loop(home: Path, server: str) -> Loop:
    """The demo, run once; its database is the server's own `medlive`."""
    instance = Instance(home, server)
    secret, public = generate()
    more = {"MEDLIVE_SIGNING_KEY": secret, "MEDLIVE_RUBRIC__PROVE": "true"}
    demo = Instance(home, None, more)
    done = demo.here("demo", "--json")
    files = _files(Path(done.json["frozen"]["path"]))
    return Loop(instance, demo, public, done, _rows(instance), files)


def _rows(instance: Instance) -> dict[str, int]:
    return {table: instance.one(f"SELECT count(*) FROM {table}") for table in TABLES}


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_every_sample_is_harvested_once_and_stands_in_the_funnel(
    loop: Loop, samples: list[SampleThread]
) -> None:
    told = loop.done.json
    assert sum(h["counts"]["new"] for h in told["harvested"]) == len(samples)
    assert sum(row[3] for row in told["curated"]["funnel"]) == len(samples)
    assert set(loop.instance.places()) == {f"{t.site}/{t.thread_id}" for t in samples}
    outcomes = {row[1] for row in told["curated"]["funnel"]}
    assert outcomes == {"kept", "held", "parked", "rejected"}, told["curated"]["funnel"]
    weeks = Counter[tuple[str, ...]]()
    for (week,) in loop.instance.rows("SELECT DISTINCT week FROM thread_standings"):
        for row in loop.instance.here("week", "show", week, "--json").json["threads"]:
            weeks[row["stage"], row["outcome"], row["reason"]] += row["count"]
    assert weeks == {
        (stage, outcome, reason or ""): n
        for stage, outcome, reason, n in told["curated"]["funnel"]
    }


def test_the_paper_s_own_rule_stands_beside(loop: Loop) -> None:
    counted = Counter[tuple[str, str]]()
    for (week,) in loop.instance.rows("SELECT DISTINCT week FROM thread_standings"):
        for row in loop.instance.here("week", "show", week, "--json").json["by_paper"]:
            counted[row["outcome"], row["by_paper"]] += row["threads"]
    expected = Counter[tuple[str, str]]()
    against = {
        number
        for (number,) in loop.instance.rows(
            "SELECT curation_id FROM claim_verdicts WHERE value = 0 OR verdict = 'disputed'"
            " UNION SELECT curation_id FROM elements WHERE standing = 'unsupported'"
            " OR standing = 'dropped' AND left_out IS NULL"
        )
    }
    for number, outcome, reason, *v in loop.instance.rows(
        "SELECT id, outcome, reason, s_cc, s_inf, s_align, threshold_sufficiency, threshold_alignment FROM curations"
    ):
        s_cc, s_inf, s_align, least_inf, least_align = v
        limits = [(s_cc, 0), (s_inf, least_inf), (s_align, least_align)]
        passed = [None if s is None else s > least for s, least in limits]
        if str(reason).startswith("no_") and s_cc is None:
            passed = [False]
        by_paper = "kept" if all(passed) and number not in against else "rejected"
        if None in passed and False not in passed and number not in against:
            by_paper = "unknown"
        expected[outcome, by_paper] += 1
    assert counted == expected
    assert counted["kept", "kept"] > 20


def test_the_samples_are_decided_as_a_careful_reader_would(
    loop: Loop, samples: list[SampleThread]
) -> None:
    places = loop.instance.places()
    twins = {
        f"{t.site}/{t.thread_id}": t.expect.duplicate_of
        for t in samples
        if t.expect.duplicate_of
    }
    # Either of two twins may be the one that stays: where it is the other one, their places are exchanged.
    for copy, original in twins.items():
        if (
            places[copy][:3] != ("rejected", "filters", "duplicate")
            and places[original][2] == "duplicate"
        ):
            places[copy], places[original] = places[original], places[copy]
    table = []
    lost, wrong, elsewhere = [], [], []
    for thread in samples:
        name, expect = f"{thread.site}/{thread.thread_id}", thread.expect
        outcome, stage, reason, detail = places[name]
        if outcome == expect.outcome and (
            outcome == "kept" or (stage, reason) == (expect.stage, expect.reason)
        ):
            continue
        table.append(
            f"{name[-60:]}: expected {expect.outcome} {expect.stage} {expect.reason}; "
            f"got {outcome} {stage} {reason}: {detail[:120]}"
        )
        if expect.outcome == "kept":
            lost.append(name)
        elif outcome in ("kept", "held"):
            wrong.append(name)
        elif expect.stage == "filters":
            elsewhere.append(name)
    report = "\n".join(table)
    print(report)
    assert not wrong, f"kept, and must not be: {wrong}\n{report}"
    assert not elsewhere, (
        f"not rejected by the rule that it breaks: {elsewhere}\n{report}"
    )
    expected = sum(t.expect.outcome == "kept" for t in samples)
    assert len(lost) <= (1 - KEPT_SHARE) * expected, (
        f"{len(lost)} of {expected} honest cases lost\n{report}"
    )


def test_the_kind_is_asked_of_cases_alone(loop: Loop) -> None:
    query = """
        SELECT DISTINCT c.outcome, a.curation_id IS NOT NULL FROM curations AS c
        LEFT JOIN agent_calls AS a ON a.curation_id = c.id AND a.task = 'rubric.classify'
    """
    assert set(loop.instance.rows(query)) == {
        ("kept", True),
        ("held", True),
        ("parked", False),
        ("rejected", False),
    }


def test_thread_show_tells_what_the_database_holds(
    loop: Loop, samples: list[SampleThread]
) -> None:
    places = loop.instance.places()
    kept = next(name for name, place in places.items() if place[0] == "kept")
    told: dict[str, Any] = loop.instance.here("thread", "show", kept, "--json").json
    assert told["curation"]["outcome"] == "kept"
    assert told["case"]["narrative"]
    assert told["case"]["advice"]
    assert told["case"]["publishable"] is False
    assert told["case"]["status"] == "ready"
    assert told["decided"]["attempt"] == 1
    assert told["decided"]["pipeline"].startswith("sha256:")
    shown = loop.instance.here("thread", "show", kept).out
    assert "s align" in shown
    assert "filters: 12 of 12 passed" in shown
    assert len(told["criteria"]) >= 2
    quoted = {m["text"] for m in told["thread"]["messages"]}
    assert all(
        any(e["quote"] in text for text in quoted) for e in told["curation"]["elements"]
    )
    filtered = next(name for name, place in places.items() if place[1] == "filters")
    told = loop.instance.here("thread", "show", filtered, "--json").json
    assert told["curation"] is None
    assert (
        next(v["reason"] for v in told["filters"] if not v["passed"])
        == places[filtered][2]
    )


def test_the_snapshot_verifies_from_its_files_alone(loop: Loop, tmp_path: Path) -> None:
    # A consumer has no database: the copy is verified with one that cannot be reached.
    consumer = Instance(tmp_path, "postgresql://nobody@127.0.0.1:9/none")
    copy = tmp_path / loop.snapshot.name
    shutil.copytree(loop.snapshot, copy)
    key = tmp_path / "medlive.pub"
    key.write_text(loop.public_key)
    told = consumer.here("snapshot", "verify", copy, "--public-key", key, "--json").json
    assert told["ok"]
    assert json.loads((copy / "manifest.json").read_text())["publishable"] is False
    skipped = [step["why"] for step in told["steps"] if step["state"] == "skipped"]
    assert skipped == []
    outside = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=copy, capture_output=True, text=True
    )
    assert outside.returncode == 0, outside.stdout
    covered = {
        line.split("  ", 1)[1]
        for line in (copy / "SHA256SUMS").read_text().splitlines()
    }
    assert covered == set(_files(copy)) - {"SHA256SUMS", "SHA256SUMS.minisig"}
    cases = [
        json.loads(line)
        for line in (copy / "data" / "cases.jsonl").read_text().splitlines()
    ]
    assert len(cases) == loop.done.json["frozen"]["cases"] > 0
    changed = copy / "data" / "cases.jsonl"
    changed.write_bytes(changed.read_bytes().replace(b"a", b"e", 1))
    assert consumer.here("snapshot", "verify", copy, status=1).err.strip()


def test_two_models_are_scored_and_the_one_with_evidence_is_better(loop: Loop) -> None:
    told = loop.done.json
    models = {m["model"]: m for m in told["scores"]["models"]}
    assert set(models) == {"sample-evidence", "sample-generic"}
    assert told["scores"]["common_cases"] == told["frozen"]["cases"]
    overall = {name: m["overall"]["mean"] for name, m in models.items()}
    assert overall["sample-evidence"] > overall["sample-generic"]
    report = Path(told["report"]).read_text(encoding="utf-8")
    assert "sample-evidence" in report
    assert "sample-generic" in report
    recorded = loop.instance.rows("SELECT model FROM evaluation_runs ORDER BY model")
    assert recorded == [("sample-evidence",), ("sample-generic",)]


def test_no_link_author_or_handle_is_in_the_snapshot(
    loop: Loop, samples: list[SampleThread]
) -> None:
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for path in loop.snapshot.rglob("*")
        if path.suffix in (".json", ".jsonl")
    )
    cases = (loop.snapshot / "data" / "cases.jsonl").read_text(encoding="utf-8")
    assert not [t.url for t in samples if t.url in text]
    # A short handle may be an ordinary word.
    handles = {m.author for t in samples for m in t.messages if len(m.author) >= 6}
    assert not [handle for handle in handles if handle in cases]


@pytest.mark.thorough
def test_a_second_run_adds_nothing_and_pays_nothing(loop: Loop) -> None:
    first, second = loop.done.json, loop.demo.run("demo", "--json").json
    assert second["new_threads"] == 0
    assert _rows(loop.instance) == loop.rows
    assert second["curated"]["funnel"] == first["curated"]["funnel"]
    assert second["curated"]["calls"] == second["curated"]["replayed"]
    assert first["curated"]["calls"] > 0
    for name in ("version", "cases", "criteria", "publishable"):
        assert second["frozen"][name] == first["frozen"][name]
    assert second["frozen"]["already"]
    assert _files(Path(second["frozen"]["path"])) == loop.files
    assert second["scores"]["models"] == first["scores"]["models"]


@pytest.mark.thorough
def test_its_snapshot_is_served_as_a_preview_and_fetched_again(
    loop: Loop, tmp_path: Path
) -> None:
    """The command that the demo ends with; without `--preview` nothing is given out: it is not publishable."""
    version = loop.done.json["frozen"]["version"]
    for options, status in (((), 2), (("--preview",), 0)):
        server = loop.instance.start(
            "serve", "--part", "public", "--port", "0", *options
        )
        try:
            assert server.stderr is not None
            address = server.stderr.readline().split()[2]
            fetched = loop.instance.run(
                "snapshot",
                "fetch",
                "latest",
                "--from",
                address,
                "--out",
                tmp_path,
                status=status,
            )
            assert (f"medlive {version}" in fetched.out) == (status == 0)
        finally:
            server.terminate()
            done = loop.instance.finish(server)
        assert done.status == 0
    assert _files(tmp_path / f"medlive-{version}") == loop.files


@pytest.mark.thorough
def test_every_cell_of_the_notebook_runs_on_the_demo(loop: Loop) -> None:
    notebook = Path(__file__).parents[2] / "docs" / "tutorials" / "notebook.ipynb"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    program = []
    questions = 0
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            # An answer takes at most five lines; the first cell is the set-up
            assert questions == 0 or len(source.splitlines()) <= 5
            program.append(source)
        else:
            questions += source.startswith("## ")
    assert questions == 10
    home = str(loop.instance.home)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(program)],
        env={**loop.instance.environment(), "MEDLIVE_DEMO": home},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_ten_windows_of_the_site_have_the_figures_of_eval_score(
    loop: Loop, tmp_path: Path
) -> None:
    runs = [load_graded(Path(run)) for run in loop.done.json["runs"]]
    board = made_board(runs)
    days = sorted(filter(None, map(day_of, board.cases)))
    windows: list[tuple[str | None, str | None]] = [(None, None)]
    windows += [(days[n * len(days) // 10], None) for n in range(3)]
    windows += [(None, days[-1 - n * len(days) // 10]) for n in range(3)]
    windows += [(days[n], days[-1 - n]) for n in range(1, 4)]
    assert len(windows) == 10
    write_site(files_of(board), tmp_path / "out")
    with static_server(tmp_path / "out") as url, chromium() as browser:
        for since, until in windows:
            chosen = {"since": since or "", "until": until or ""}
            with watched_page(browser) as page:
                page.goto(f"{url}/leaderboard.html?{urlencode(chosen)}")
                wanted = expected(
                    runs,
                    window=window_of(since, until),
                    allow=[Allow.NOT_PUBLISHABLE],
                )
                assert shown(page) == wanted, (since, until)


def test_both_sample_models_are_on_the_board_of_the_site(
    loop: Loop, tmp_path: Path
) -> None:
    built = loop.instance.here(
        "site", "build", "--out", tmp_path / "site", "--allow-not-publishable", "--json"
    ).json
    assert (built["models"], built["left_out"]) == (2, [])


def test_the_demo_refuses_an_instances_home(loop: Loop, home: Path) -> None:
    mark = home / "demo-home"
    mark.rename(home / "elsewhere")
    try:
        refused = Instance(home, None).here("demo", status=2)
    finally:
        (home / "elsewhere").rename(mark)
    assert "the demo wants one of its own" in refused.err
