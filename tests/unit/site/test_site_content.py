"""The site of real snapshots and bundles: what it shows, what it leaves out and why, and that it says so."""

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jinja2 import meta, nodes

from medlive.__main__ import run
from medlive.errors import BadInput, CheckFailed, UsageError
from medlive.evaluation.agreement.humans import items_of
from medlive.evaluation.bundles.bundle import make_bundle
from medlive.evaluation.bundles.files import RUN, archive
from medlive.evaluation.scoring.refusals import Allow
from medlive.site.live import LiveSite, write_site
from medlive.site.model import (
    Content,
    fix_hard,
    hard_bytes,
    hard_weeks,
    load_hard,
    shared_scales,
)
from medlive.site.pages import TEMPLATES, site_files
from medlive.site.read import Inputs, read_content
from medlive.snapshot.errata import Errata, Erratum, WithdrawalKind
from medlive.snapshot.manifest import WeekCost
from tests.support.bundles import DRAWS, graded
from tests.support.hostile import TEXTS
from tests.support.releases import case, release
from tests.support.site import made_board, made_graded

pytestmark = pytest.mark.whole

VERSION = "2026.W47"
IDS = tuple(f"ml-{n:016d}" for n in range(5, 9))
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of four cases, one with hostile texts, and the bundles of two models."""
    tmp_path = tmp_path_factory.mktemp("published")
    held = [case(case_id, first_release=VERSION) for case_id in IDS]
    held[0] = replace(held[0], narrative=HOSTILE, query=HOSTILE, advice=TEXTS[0])
    root = tmp_path / "snapshots"
    folder = root / f"medlive-{VERSION}"
    release(root, VERSION, held)
    bundles = tmp_path / "bundles"
    bundles.mkdir()
    for name in ("first", "x" * 200):
        made = graded(folder, tmp_path / name[:9], name)
        files = make_bundle(made, draws=DRAWS)
        (bundles / f"{name[:9]}.zip").write_bytes(archive(files))
    return tmp_path


@pytest.fixture(scope="module")
def content(published: Path) -> Content:
    """What a site shows of the snapshot and the bundles as they are."""
    return read_content(
        Inputs(
            snapshots=published / "snapshots",
            bundles=published / "bundles",
            draws=DRAWS,
        )
    )


@pytest.fixture
def inputs(published: Path, tmp_path: Path) -> Inputs:
    """A copy of the snapshot and the bundles, to be changed."""
    for name in ("snapshots", "bundles"):
        shutil.copytree(published / name, tmp_path / name)
    return Inputs(
        snapshots=tmp_path / "snapshots", bundles=tmp_path / "bundles", draws=DRAWS
    )


def built(content: Content) -> dict[str, str]:
    return {
        name: data.decode("utf-8")
        for name, data in site_files(content).items()
        if not name.endswith(".bin")
    }


def test_every_template_uses_the_fields_of_the_page_alone() -> None:
    known = {"name", "title", "section", "content", "scales", "links", "downloads"}
    known |= {"root", "ability", "board", "model", "case", "results"}
    known |= {"cases", "number", "lists"}
    for name in TEMPLATES.list_templates(filter_func=lambda name: "/" not in name):
        assert TEMPLATES.loader is not None
        tree = TEMPLATES.parse(TEMPLATES.loader.get_source(TEMPLATES, name)[0])
        own = {node.name for node in tree.find_all(nodes.Macro)}
        own |= {node.name for node in tree.find_all(nodes.Name) if node.ctx == "store"}
        for node in tree.find_all(nodes.FromImport):
            own.update(map(str, node.names))
        used = meta.find_undeclared_variables(tree) - TEMPLATES.globals.keys()
        assert used - own <= known, name


def test_any_web_server_may_read_the_files(tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        write_site({"index.html": b"x", "cases/one.html": b"x"}, tmp_path / "out")
    finally:
        os.umask(umask)
    for path in (tmp_path / "out", *(tmp_path / "out").rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)


def test_a_model_costs_the_tokens_of_its_answers(content: Content) -> None:
    for model in content.boards[0].models:
        answers = sum(a.gradable for a in model.score.run.answers.values())
        # As the tests' model counts each answer
        assert model.tokens == (10 * answers, 2 * answers)


def withdraw(inputs: Inputs, *case_ids: str) -> None:
    entries = tuple(
        Erratum(
            id=number,
            issued_at=datetime(2026, 11, 22, tzinfo=UTC),
            kind=WithdrawalKind.ERRATUM,
            case_id=case_id,
            criterion_id=None,
            reason="The advice is wrong",
            revision=None,
            snapshots=(VERSION,),
            fixed_in=None,
        )
        for number, case_id in enumerate(case_ids, start=1)
    )
    (inputs.snapshots / "errata.json").write_text(Errata(entries=entries).text())


def test_models_and_cases_are_shown_and_nothing_of_theirs_is_markup(
    content: Content,
) -> None:
    (board,) = content.boards
    assert {model.name for model in board.models} == {"first", "x" * 200}
    pages = built(content)
    for name, text in pages.items():
        if name.endswith(".html"):
            assert HOSTILE not in text, name
            assert "<script>" not in text, name
            assert " style=" not in text, name
    assert "&lt;script&gt;" in pages[f"cases/{IDS[0]}.html"]


def test_the_same_inputs_make_the_same_bytes(content: Content, inputs: Inputs) -> None:
    assert site_files(content) == site_files(read_content(inputs))


def test_a_withdrawn_case_is_on_no_page(inputs: Inputs) -> None:
    withdraw(inputs, IDS[1])
    content = read_content(inputs)
    assert IDS[1] not in content.cases
    assert [case.case_id for case in content.boards[0].cases] == [
        IDS[0],
        *IDS[2:],
    ]
    pages = built(content)
    # The list of errata alone names it.
    assert [name for name, text in pages.items() if IDS[1] in text] == [
        "feed.xml",
        "weeks.html",
    ]


@pytest.mark.parametrize("version", ["2026.W40", VERSION])
def test_a_withdrawn_criterion_is_known_by_its_snapshot_too(
    content: Content, inputs: Inputs, version: str
) -> None:
    """Criteria of a later revision may have the ids that others had."""
    (first, *_), name = content.cases[IDS[1]].criteria, IDS[1]
    entry = Erratum(
        id=1,
        issued_at=datetime(2026, 11, 22, tzinfo=UTC),
        kind=WithdrawalKind.ERRATUM,
        case_id=name,
        criterion_id=first.criterion_id,
        reason="It is wrong",
        revision=1,
        snapshots=(version,),
        fixed_in=None,
    )
    (inputs.snapshots / "errata.json").write_text(Errata(entries=(entry,)).text())
    left = read_content(replace(inputs, bundles=None))
    assert (first in left.cases[name].criteria) is (version != VERSION)


def test_bundles_of_a_withdrawn_snapshot_are_left_out(inputs: Inputs) -> None:
    withdraw(inputs, *IDS)
    content = read_content(inputs)
    assert (content.boards, len(content.cases)) == ([], 0)
    assert {why for _, why in content.left_out} == {
        "every case of its snapshot was withdrawn"
    }


def test_a_second_bundle_of_a_model_and_a_broken_one_are_left_out(
    inputs: Inputs,
) -> None:
    bundles = inputs.bundles
    data = (bundles / "first.zip").read_bytes()
    (bundles / "second.zip").write_bytes(data)
    (bundles / "torn.zip").write_bytes(data[: len(data) // 2])
    content = read_content(inputs)
    (torn, why), (second, _) = content.left_out
    assert (torn, second) == ("torn.zip", "second.zip")
    assert why == "it cannot be read as a bundle"
    assert "already ranked with first.zip" in built(content)["leaderboard.html"]


def test_tokens_may_be_unknown_and_a_bundle_that_people_check_blind_is_left_out(
    inputs: Inputs, tmp_path: Path
) -> None:
    made = graded(inputs.snapshots / f"medlive-{VERSION}", tmp_path / "third", "third")
    answers = dict(made.answers)
    first = next(iter(answers))
    answers[first] = replace(answers[first], usage={})
    files = make_bundle(replace(made, answers=answers), draws=DRAWS)
    (inputs.bundles / "third.zip").write_bytes(archive(files))
    tokens = {m.name: m.tokens for m in read_content(inputs).boards[0].models}
    assert [name for name, known in tokens.items() if known is None] == ["third"]
    items = items_of(made.run.cases, made.answers)
    content = read_content(replace(inputs, checked=frozenset(list(items)[-1:])))
    assert content.models == {"first", "x" * 200}
    pages = built(content)
    assert "a bundle: people check a grader&#39;s" in pages["leaderboard.html"]
    assert "while people check them" in pages[f"cases/{IDS[1]}.html"]
    assert [name for name, text in pages.items() if "third" in text] == []


def test_a_site_that_cannot_be_made_is_not_the_one_before(
    inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before may show what people rate blind now."""
    site = LiveSite(replace(inputs, bundles=None))
    before = site.files({VERSION: "sha256:"}, frozenset())
    changed = {VERSION: "sha256:"}, frozenset({"an item"})

    def fail(inputs: Inputs) -> Content:
        raise OSError("a disk that is away for a moment")

    with monkeypatch.context() as broken:
        broken.setattr("medlive.site.live.read_content", fail)
        with pytest.raises(OSError, match="away"):
            site.files(*changed)
    assert before is not site.files(*changed)


def test_a_bundle_nested_without_end_costs_no_other(inputs: Inputs) -> None:
    bundles = inputs.bundles
    assert bundles is not None
    deep = b'{"cases":' * 50_000
    (bundles / "deep.zip").write_bytes(archive({RUN: deep}))
    content = read_content(inputs)
    assert content.left_out == [("deep.zip", "it cannot be read as a bundle")]
    assert len(content.boards[0].models) == 2


def test_what_is_not_publishable_is_refused_or_said_on_every_page(
    tmp_path: Path,
) -> None:
    root = tmp_path / "snapshots"
    held = [case(IDS[0], first_release=VERSION)]
    release(root, VERSION, held, why_not=("made by rules",))
    made = graded(root / f"medlive-{VERSION}", tmp_path / "run", "model-a")
    bundles = tmp_path / "bundles"
    bundles.mkdir()
    files = make_bundle(made, draws=DRAWS, allow=[Allow.NOT_PUBLISHABLE])
    (bundles / "a.zip").write_bytes(archive(files))
    inputs = Inputs(snapshots=root, bundles=bundles, draws=DRAWS)
    with pytest.raises(CheckFailed):
        read_content(inputs)
    content = read_content(replace(inputs, allow_not_publishable=True))
    (board,) = content.boards
    assert [why for why in board.not_publishable if "made by rules" in why]
    for name, text in built(content).items():
        if name.endswith(".html"):
            assert "made by rules" in text, name
    pages = built(content)
    reason = "too few to say: <small>1 thread, an interval needs 30</small>"
    assert reason in pages["leaderboard.html"]
    assert reason in pages["models/board-1-m1.html"]


@pytest.mark.parametrize(
    ("usd", "estimated", "shown"),
    [(12.345, 0, "12.35"), (12.345, 2, "at most 12.35"), (None, 2, "unknown")],
)
def test_a_week_says_what_it_cost(
    tmp_path: Path, usd: float | None, estimated: int, shown: str
) -> None:
    cost = WeekCost(
        replies=1234,
        input_tokens=5678,
        output_tokens=910,
        estimated=estimated,
        unpriced=0 if usd else 1,
        usd=usd,
    )
    held = [case(IDS[0], first_release=VERSION)]
    release(tmp_path, VERSION, held, cost=cost)
    page = built(read_content(Inputs(snapshots=tmp_path)))["weeks.html"]
    cells = [f'<td class="n">{text}</td>' for text in ("1,234", "6,588", shown)]
    assert "".join(cells) in page


def test_an_empty_folder_makes_a_site_that_says_so(tmp_path: Path) -> None:
    content = read_content(Inputs(snapshots=tmp_path))
    assert "Nothing has been published yet" in built(content)["index.html"]


def test_a_board_of_one_model_is_shown(tmp_path: Path) -> None:
    board = made_board(made_graded(tmp_path, models=1, cases=6))
    page = built(Content(boards=[board]))["leaderboard.html"]
    assert "model-0" in page
    assert "1 to 1" in page


def test_a_case_of_two_boards_counts_once_on_the_scale(tmp_path: Path) -> None:
    board = made_board(made_graded(tmp_path, models=3, cases=24))
    (shared,) = shared_scales([board, replace(board, slug="board-2")])
    assert shared.boards == ("board-1", "board-2")
    means = {model.name: model.score.overall.value for model in board.models}
    counts = {model.name: model.score.overall.n for model in board.models}
    rows = shared.table.scale.abilities
    assert {row.name: row.n for row in rows} == counts
    whole = [row for row in rows if row.n == len(board.cases)]
    assert whole
    assert [row.value for row in whole] == pytest.approx(
        [means[row.name] for row in whole]
    )
    pages = built(Content(boards=[board]))
    page = pages["scale.html"]
    assert [name for name in means if name in page] == list(means)
    for row in rows:
        line = pages["leaderboard.html"].split(f'<tr data-model="{row.name}"')[1]
        assert f'<td class="n">{100 * row.value:.1f}</td>' in line.split("</tr>")[0]


@pytest.mark.thorough
def test_boards_of_other_graders_are_never_on_one_scale(tmp_path: Path) -> None:
    runs = made_graded(tmp_path, models=2, cases=6)
    boards = [made_board(runs)]
    changes: list[dict[str, Any]] = [
        {"model": "another"},
        {"judge": "sha256:" + "0" * 64},
    ]
    for change in changes:
        others = []
        for made in runs:
            assert made.grader is not None
            others.append(replace(made, grader=replace(made.grader, **change)))
        boards.append(made_board(others))
    scales = shared_scales(boards)
    assert [shared.boards for shared in scales] == [("board-1",)] * 3


@pytest.mark.thorough
def test_hard_cases_stay_as_they_were_first_chosen(tmp_path: Path) -> None:
    runs = made_graded(tmp_path, models=8, cases=60)
    assert not shared_scales([made_board(runs[:5])])[0].hard
    (first,) = shared_scales([made_board(runs[:6])])
    fixed = hard_weeks([first], {})
    path = tmp_path / "hard.json"
    fix_hard(path, hard_bytes(fixed))
    (later,) = shared_scales([made_board(runs)], load_hard(path))
    assert later.hard == first.hard
    for chosen in first.hard.values():
        # A model has no part in the choice of the cases that it is scored on, and a newcomer none at all.
        assert set(chosen.by_others) == {f"model-{place}" for place in range(6)}
        assert chosen.cases_for("model-7") == chosen.cases
    # The cases are equally hard in truth, so that a choice by a model's own failures would show.
    gaps = []
    for name, own in zip(later.abilities, later.table.scores.T, strict=True):
        hard = later.hard_mean(name)
        assert hard is not None
        gaps.append(hard - np.nanmean(own))
    assert abs(np.mean(gaps)) < 0.05


def test_a_damaged_file_of_hard_cases_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hard.json").write_text('{"a": {"2026.W47": {"cases": "c1"}}}')
    with pytest.raises(BadInput, match="hard cases"):
        load_hard(tmp_path / "hard.json")


def test_files_of_snapshots_are_linked_where_they_are_published(
    content: Content,
) -> None:
    # The pages replace a folder, so no snapshot lies beside them.
    assert f"medlive-{VERSION}/" not in built(content)["downloads.html"]
    address = "https://data.example/medlive/"
    files = site_files(content, downloads=address)
    link = f'href="{address}medlive-{VERSION}/data/cases.jsonl"'
    assert link in files["downloads.html"].decode()
    assert f"--from {address}" in files["downloads.html"].decode()
    assert f'href="{address}' in files["feed.xml"].decode()


def test_a_folder_of_other_things_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        write_site(site_files(Content()), out)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("keep")
    with pytest.raises(UsageError):
        write_site(site_files(Content()), mine)
    with pytest.raises(UsageError):
        write_site(site_files(Content()), mine / "notes.txt")
    assert (mine / "notes.txt").read_text() == "keep"


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(BadInput, match="cannot be written"):
        write_site({"index.html": b"x"}, tmp_path / "file" / "site")


def test_a_named_folder_that_is_not_there_replaces_no_site(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_site(site_files(Content()), out)
    (out / "mine").touch()
    absent = str(tmp_path / "absent")
    assert run(["site", "build", "--out", str(out), "--snapshots", absent]) == 2
    assert (out / "mine").is_file()
