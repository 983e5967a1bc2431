"""What documents and messages name exists: commands, options, settings, files, variables, tests, targets, links."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
for _folder in ("docs", "deploy"):
    sys.path.insert(0, str(ROOT / _folder))

import accent  # noqa: E402
import references  # noqa: E402

from medlive.errors import MedliveError  # noqa: E402
from medlive.instance.loading import DATABASE_PARTS  # noqa: E402
from tests.attacks import report  # noqa: E402
from tests.support.attack_list import ATTACKS  # noqa: E402

pytestmark = pytest.mark.whole

_WRITTEN = sorted(
    file
    for pattern in ("*.md", "docs/**/*.md", "deploy/*.md")
    for file in ROOT.glob(pattern)
    # What was so then
    if file.name != "CHANGELOG.md" and file.parent.name != "decisions"
)
_COMMAND = re.compile(
    r"(?:(?<![\w./=-])|(?<=/bin/))(?<!--owner )(?<!install )"
    r"medlive ([a-z][a-z-]*(?![\w./=(:])(?: [^`\n]*)?)"
)
_PROSE = re.compile(
    "alone|and|as|away|bundle|calls|can|did|does|errata|fetches|from|itself|may|never|or|"
    "reads|recognises|refuses|ships|shows|stops|that|wants|works|writes"
)
"""What follows the program's name in sentences that name no command."""
_PLACEHOLDER = re.compile(r"[A-Z][A-Z/_]*")
_SPAN = re.compile(r"`([^`\n]+)`")
_FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)
_FOLDERS = ("medlive", "docs", "tests", "config", "deploy", "benchmarks", "migrations")
_PATH = re.compile(rf"(?<![\w/@.-])(?:{'|'.join(_FOLDERS)})/[\w./@-]*\w/?")
_NO_FILES = {
    "deploy/medlive-embed",  # Kubernetes' name of a deployment
    "deploy/medlive-metrics",
    "medlive/medlive",  # Inspect's name of the task
    "medlive/ungraded_rate",
}
_FILES = (
    "closed",
    "toml",
    "env",
    "sql",
    "service",
    "jsonl",
    "key",
    "pub",
    "py",
    "sh",
    "yaml",
)
_EXAMPLES = {"MEDLIVE_A__B", "MEDLIVE_OIDC_SECRET"}
_STATUS = re.compile(r"\b(?:[Ee]xit status(?:es)?|status) (\d)\b(?!\d)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_OTHERS_OPTIONS = {"--lock", "--no-deps"}  # Of programs that messages name
_DOTTED = re.compile(r"(?<![\w./`-])([a-z_]+(?:\.[a-z_]+)+)(?![\w./(-])")
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
_TAG = re.compile(r"<[^>]*>")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_VARIABLE = re.compile(r"\bMEDLIVE_[A-Z][A-Z_]*[A-Z]\b")
_TARGET = re.compile(r"\bmake ([a-z][a-z-]+)\b")
_TEST = re.compile(r"(?:([\w/]*test_\w+\.py))(?:::(test_\w+))?")


class Place(NamedTuple):
    """Where a text names something."""

    where: str
    text: str


def _code() -> Iterator[Place]:
    """What the documents set as code, a span or a line of a block each."""
    for file in _WRITTEN:
        text = file.read_text(encoding="utf-8")
        name = str(file.relative_to(ROOT))
        for block in _FENCE.findall(text):
            for line in block.replace("\\\n", " ").splitlines():
                yield Place(name, line)
        for span in _SPAN.findall(_FENCE.sub("", text)):
            yield Place(name, span)


def _sentences() -> Iterator[Place]:
    """The texts in the program that may name a command."""
    for file in sorted((ROOT / "medlive").rglob("*.py")):
        module = file.read_text(encoding="utf-8")
        # The name and a word after it, if need be in the next string of the same text
        if re.search(r"medlive (?:[a-z]|[\"'])", module) is None:
            continue
        for node in ast.walk(ast.parse(module)):
            if isinstance(node, ast.JoinedStr):
                parts = [_part(value) for value in node.values]
                yield Place(f"{file.relative_to(ROOT)}:{node.lineno}", "".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield Place(f"{file.relative_to(ROOT)}:{node.lineno}", node.value)
    for page in sorted((ROOT / "medlive" / "site" / "templates").glob("*.html")):
        text = _TEMPLATE.sub("VALUE", page.read_text(encoding="utf-8"))
        for number, line in enumerate(text.splitlines(), start=1):
            yield Place(f"{page.relative_to(ROOT)}:{number}", _TAG.sub(" ; ", line))


def _part(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else "VALUE"


@cache
def _commands() -> dict[str, references.Command]:
    return references.commands()


def _fault(text: str) -> str | None:
    """What is wrong with a command line, from its first word after `medlive`."""
    known = _commands()
    words = re.split(r"[;:,.]\s|\s[|&<>#]", text)[0].split()
    path = "medlive"
    while words and f"{path} {words[0].rstrip('.,;:')}" in known:
        path += f" {words.pop(0).rstrip('.,;:')}"
    grouped = any(name.startswith(f"{path} ") for name in known)
    unknown = grouped and words and not _PROSE.fullmatch(words[0].rstrip(".,;:"))
    if unknown and re.fullmatch(r"[a-z][a-z-]+", words[0].rstrip(".,;:")):
        return f"{path} has no {words[0]}"
    return None if path == "medlive" else _fault_of_words(known[path], words)


def _fault_of_words(command: references.Command, words: list[str]) -> str | None:
    given, valued = 0, False
    for word in words:
        name = re.split(r"[=|,.;:)\]]", word.lstrip("[("))[0]
        if re.fullmatch(r"--[a-z][a-z-]+", name):
            if name not in command.names:
                return f"{command.path} has no {name}"
            valued = name not in command.flags and "=" not in word
        elif valued:
            valued = False
        elif _PLACEHOLDER.fullmatch(word):
            given += 1
    if given > command.arguments[1]:
        return f"{command.path} takes at most {command.arguments[1]} arguments"
    return None


@pytest.fixture(scope="module")
def code() -> list[Place]:
    return list(_code())


def test_the_references_have_every_command_and_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = _commands()
    monkeypatch.setattr(references, "commands", lambda: known)
    pages = references.pages()
    headings = re.findall(r"^## (medlive.*)$", pages["commands.md"], re.M)
    assert headings == list(known)
    for setting in references.settings():
        assert f"| `{setting.name}` |" in pages["settings.md"]
    assert "## load_snapshot" in pages["python.md"]
    assert "| `case_id` | `str` |" in pages["formats.md"]


def test_the_page_of_attacks_lists_those_that_are_tried() -> None:
    page = (ROOT / "docs" / "builders" / "attacks.md").read_text(encoding="utf-8")
    tried = re.findall(r"^\| ((?:en|zh)-[\w-]+) \|", page, re.M)
    assert page.startswith(report.HEAD), (
        "run tests/attacks/report.py > docs/builders/attacks.md"
    )
    assert tried == [attack.id for attack in ATTACKS]


def test_every_setting_says_what_it_means() -> None:
    unexplained = [s.name for s in references.settings() if not s.meaning]
    assert unexplained == []


def test_every_command_that_documents_name_exists(code: list[Place]) -> None:
    faults = []
    for place in code:
        for found in _COMMAND.findall(place.text):
            fault = _fault(found)
            if fault is not None:
                faults.append(f"{place.where}: `{place.text}`: {fault}")
    assert faults == []


@pytest.mark.thorough
def test_every_command_that_messages_name_exists() -> None:
    faults = []
    for place in _sentences():
        for found in _COMMAND.findall(place.text):
            fault = _fault(found)
            if fault is not None:
                faults.append(f"{place.where}: {found[:60]}: {fault}")
    assert faults == []


def test_every_setting_and_task_that_documents_name_exists(code: list[Place]) -> None:
    known = {setting.name for setting in references.settings()} | _tasks()
    roles = {name.partition(".")[0] for name in known if "." in name}
    pattern = re.compile(rf"(?:{'|'.join(sorted(roles))})(?:\.[a-z_]+)+")
    faults = []
    for place in code:
        found = pattern.match(place.text)
        if found is None or found[0].rpartition(".")[2] in _FILES:
            continue
        if not _is_setting(found[0], known):
            faults.append(f"{place.where}: `{place.text}`")
    assert faults == []


def _tasks() -> set[str]:
    """The engine's tasks; each has a prompt of its name."""
    prompts = (ROOT / "medlive").rglob("prompts/*.md")
    return {file.stem.replace("_", ".", 1) for file in prompts}


def _is_setting(name: str, known: set[str]) -> bool:
    head, _, rest = name.partition(".")
    by_name = f"{head}.NAME.{rest.partition('.')[2]}".rstrip(".")
    above = any(other.startswith(f"{name}.") for other in known)
    return name in known or by_name in known or above


def test_every_file_that_documents_name_exists(code: list[Place]) -> None:
    faults = []
    for place in code:
        for found in _PATH.findall(place.text):
            if found not in _NO_FILES and not (ROOT / found).exists():
                faults.append(f"{place.where}: `{place.text}`")
    assert faults == []


def test_every_step_from_a_criterion_to_the_report_exists_in_ten_and_three_shapes() -> (
    None
):
    text = (ROOT / "docs/builders/architecture.md").read_text(encoding="utf-8")
    _, _, walk = text.partition("## From a criterion to a cell of the report")
    rows = re.findall(r"^\| \d+\. [^|]*\| `([\w.]+)` \| (?:`([\w.]+)` )?\|", walk, re.M)
    shapes = [shape for _, shape in rows if shape]
    assert (len(rows), len(shapes)) == (10, 3)
    for name in (*(function for function, _ in rows), *shapes):
        module, _, own = name.rpartition(".")
        assert callable(getattr(import_module(module), own, None)), name


def test_every_link_of_the_documents_leads_somewhere() -> None:
    faults = []
    for file in _WRITTEN:
        for link in _LINK.findall(file.read_text(encoding="utf-8")):
            target, _, anchor = link.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            to = (file.parent / target).resolve() if target else file
            known = anchor in _anchors(to) if to.is_file() and anchor else to.exists()
            if not known:
                faults.append(f"{file.name}: {link}")
    assert faults == []


@cache
def _anchors(file: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.M):
        plain = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", ""))
        found.add(plain.strip().replace(" ", "-"))
    return found


def test_every_variable_and_target_that_documents_name_exists(
    code: list[Place],
) -> None:
    program = "".join(
        file.read_text(encoding="utf-8")
        for folder in ("medlive", "deploy", "tests")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".sh", ".yml", ".yaml", ".service", ".toml", "")
        and file.is_file()
    )
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.M))
    settings = {setting.name.upper() for setting in references.settings()}
    names = {f"MEDLIVE_{name.replace('.', '__')}" for name in settings}
    names.update(_EXAMPLES, DATABASE_PARTS)
    faults = []
    for place in code:
        for variable in _VARIABLE.findall(place.text):
            if variable not in names and variable not in program:
                faults.append(f"{place.where}: {variable}")
        for target in _TARGET.findall(place.text):
            if place.text.startswith("make ") and target not in targets:
                faults.append(f"{place.where}: make {target}")
    assert faults == []


def test_every_test_that_documents_name_exists(code: list[Place]) -> None:
    files = {file.name: file for file in (ROOT / "tests").rglob("test_*.py")}
    faults = []
    for place in code:
        for name, test in _TEST.findall(place.text):
            file = files.get(Path(name).name)
            if file is None or (test and f"def {test}" not in file.read_text()):
                faults.append(f"{place.where}: {name}::{test}")
    assert faults == []


def test_every_measurement_names_its_date_and_commit() -> None:
    folder = ROOT / "docs" / "builders" / "measurements"
    pages = [file for file in folder.glob("*.md") if file.name != "README.md"]
    assert pages
    line = re.compile(r"^Measured on \d{4}-\d\d-\d\d at commit `[0-9a-f]{7,}`\.$", re.M)
    undated = [file.name for file in pages if not line.search(file.read_text())]
    assert undated == []


def test_the_accent_is_refused() -> None:
    texts = ["It is told what it rests on.", "The rules engine stands in for a model."]
    places = [accent.Text(f"page:{n}", text) for n, text in enumerate(texts)]
    assert [fault.split(":")[1] for fault in accent.faults(iter(places))] == ["0", "0"]


@pytest.mark.thorough
def test_every_option_that_messages_name_exists() -> None:
    known = {name for command in _commands().values() for name in command.names}
    known |= _OTHERS_OPTIONS
    faults = []
    for place in _raised():
        for option in _OPTION.findall(place.text):
            if option not in known:
                faults.append(f"{place.where}: {option}")
    assert faults == []


@pytest.mark.thorough
def test_every_setting_that_messages_name_exists() -> None:
    known = {setting.name for setting in references.settings()} | _tasks()
    roles = {name.partition(".")[0] for name in known if "." in name}
    faults = []
    for place in _raised():
        for name in _DOTTED.findall(place.text):
            ending = name.rpartition(".")[2]
            if name.partition(".")[0] not in roles or ending in _FILES:
                continue
            if not _is_setting(name, known):
                faults.append(f"{place.where}: {name}")
    assert faults == []


@pytest.mark.thorough
def test_every_exit_status_that_is_named_is_one_of_the_program(
    code: list[Place],
) -> None:
    known = {0, *_statuses(MedliveError)}
    texts = [Place(f.name, f.read_text(encoding="utf-8")) for f in _WRITTEN]
    helps = [Place(c.path, c.help) for c in _commands().values()]
    faults = []
    for place in [*texts, *helps, *_raised()]:
        for status in _STATUS.findall(place.text):
            if int(status) not in known:
                faults.append(f"{place.where}: exit status {status}")
    assert faults == []


def _statuses(error: type[MedliveError]) -> Iterator[int]:
    """The exit status of an error, and those of its kinds."""
    yield error.exit_status
    for kind in error.__subclasses__():
        yield from _statuses(kind)


@cache
def _raised() -> tuple[Place, ...]:
    """The help of commands, and the texts of the errors that the program raises."""
    return tuple(Place(text.where, text.words) for text in accent.messages())


def test_a_renamed_command_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(_commands())
    page = known.pop("medlive review approve")
    monkeypatch.setattr(
        f"{__name__}._commands", lambda: {**known, "medlive review accept": page}
    )
    named = [Place("page", "medlive review approve CASE")]
    with pytest.raises(AssertionError, match="has no approve"):
        test_every_command_that_documents_name_exists(named)
