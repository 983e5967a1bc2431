"""What a stranger wrote reaches a terminal without power over it, whichever command prints it."""

import ast
import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.text import Text

from medlive.cli import output
from medlive.evaluation.bundles.files import archive
from medlive.evaluation.model import CaseSet, EvaluationCase
from medlive.snapshot.manifest import EngineUse
from tests.support import snapshots
from tests.support.entries import Entries
from tests.support.instance import REPOSITORY, Instance
from tests.support.runs import made_cases, made_run
from tests.support.snapshots import small_case

pytestmark = pytest.mark.whole

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\x08\x9b31m\u202eevil\u2066\x00\x7f"
SINKS = frozenset(
    {"print", "typer.echo", "click.echo", "sys.stdout.write", "rich.print"}
)
JSON = st.recursive(
    st.text() | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    ),
)


def controls(text: str) -> set[str]:
    """What a terminal would obey."""
    return {c for c in text if c not in "\n\t" and unicodedata.category(c)[0] == "C"}


def _hostile(place: int, case: EvaluationCase) -> EvaluationCase:
    criteria = tuple(replace(c, criterion=c.criterion + HOSTILE) for c in case.criteria)
    return replace(
        case,
        case_id=f"{case.case_id}{HOSTILE}",
        narrative=case.narrative + HOSTILE,
        query=case.query + HOSTILE,
        source=f"{case.source}{HOSTILE}",
        specialty=f"{case.specialty}{HOSTILE}",
        criteria=criteria,
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs whose models, cases and verdicts hold what a terminal obeys; their folders' names too."""
    root = tmp_path_factory.mktemp("runs")
    cases: CaseSet = made_cases(12, months=6, change=_hostile)
    cases = replace(cases, name=f"2026.W47{HOSTILE}", notes=(f"a note{HOSTILE}",))
    folders = []
    for name in ("one", "two"):
        folder = root / f"{name}\x1b[31m\x9b\u202e"
        made_run(cases, folder, f"{name}{HOSTILE}", 0.5 if name == "one" else 0.7)
        (folder / "responses.jsonl").write_bytes(
            (folder / "responses.jsonl")
            .read_bytes()
            .replace(b"Please rest", b"\\u001b[2J Please rest")
        )
        folders.append(folder)
    return folders


FEW = ("--draws", "5")


@pytest.mark.parametrize(
    "command",
    [
        ("score", *FEW),
        ("score", *FEW, "--slice", "source"),
        ("score", *FEW, "--format", "csv"),
        ("score", *FEW, "--format", "json"),
        ("audit", "--table"),
        ("contamination", *FEW),
        pytest.param(("report", *FEW), marks=pytest.mark.thorough),
    ],
    ids=" ".join,
)
def test_no_command_about_runs_prints_what_a_terminal_obeys(
    command: tuple[str, ...], instance: Instance, runs: list[Path]
) -> None:
    name, *options = command
    if name == "report":
        options = [*options, "--out", str(instance.home / "report\x1b[31m")]
    done = instance.here("eval", name, *runs, *options, status=None)
    assert done.out, done.err
    assert controls(done.out) == set()


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "json"])
def test_no_command_about_folders_prints_what_a_terminal_obeys(
    form: tuple[str, ...],
    instance: Instance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = EngineUse(
        role=f"screener{HOSTILE}", engine="openai", model=f"a model{HOSTILE}"
    )
    monkeypatch.setattr(
        snapshots,
        "PROVENANCE",
        snapshots.PROVENANCE.model_copy(update={"engines": (engine,)}),
    )
    cases = [small_case("a0", "2026.W43")]
    listed = Entries(snapshots.added(cases, "2026.W43"))
    frozen = snapshots.freeze(tmp_path, "2026.W43", cases, listed)
    shown = instance.here("snapshot", "show", frozen.path, *form)
    assert "openai" in shown.out
    assert controls(shown.out) == set()
    spoilt = frozen.path / "data" / "x\x1b[31m\x9b\u202e"
    spoilt.write_text("x", "utf-8")
    bundle = tmp_path / "bundle\x1b[31m"
    bundle.write_bytes(archive({"run\x1b[31m.json": HOSTILE.encode()}))
    for command in (
        ("snapshot", "verify", frozen.path),
        ("eval", "verify-bundle", bundle),
    ):
        done = instance.here(*command, *form, status=1)
        assert done.out
        assert controls(done.out) == set()


@given(text=st.text(), value=JSON)
@example(text=HOSTILE, value={HOSTILE: [HOSTILE, "\U000e0001", "\ud800"]})
def test_no_way_to_print_lets_a_control_through(text: str, value: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        written = _Written()
        patch.setattr("sys.stdout", written)
        output.echo(text)
        assert written.taken().count("\n") == 1
        output.echo_lines(text)
        output.print_table(
            [text],
            [[text], [Text(text, style="bold")], output.dimmed([text])],
            title=text,
        )
        assert controls(written.taken(all_of=True)) == set()
        written.parts.clear()
        output.print_json(value)
    shown = "".join(written.parts)
    assert controls(shown) == set()
    assert json.loads(shown) == value


class _Written:
    """A terminal's place: keeps what was written."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.parts: list[str] = []

    def write(self, text: str) -> int:
        self.parts.append(text)
        return len(text)

    def flush(self) -> None:
        """There is nothing to flush."""

    def isatty(self) -> bool:
        return False

    def taken(self, *, all_of: bool = False) -> str:
        return "".join(self.parts if all_of else self.parts[-1:])


def test_commands_print_by_these_alone() -> None:
    """So that a new command cannot forget it; `main` prints its own version."""
    found = []
    for path in sorted((REPOSITORY / "medlive" / "cli").rglob("*.py")):
        text = path.read_text("utf-8")
        if re.search(r"\b(?:print|echo|write)\(", text) is None:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in SINKS:
                found.append(f"{path.name}: {ast.unparse(node)}")
    own = [call for call in found if call.startswith("output.py: sys.stdout.write")]
    assert [call for call in found if call not in own] == [
        "main.py: typer.echo(f'medlive {__version__}')"
    ]
