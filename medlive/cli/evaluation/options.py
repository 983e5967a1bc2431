"""Options that several commands of `medlive eval` take; a class is a group of them (`medlive.cli.options`)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.config import Settings
    from medlive.evaluation.grading.cache import GradeCache
    from medlive.evaluation.model import Mode
    from medlive.llm.budget import Budget
    from medlive.llm.engine import Engine

CasesOption = Annotated[str, Option("--cases", help="A snapshot's folder or version, or a LiveMedBench JSON.")]


def _run(path: Path) -> Path:
    if not (path / "run.json").exists() and (inside := sorted(path.glob("*/run.json"))):
        raise UsageError(
            f"{path} is not a run folder: it contains {len(inside)} of them",
            hint=f"name one, such as {inside[0].parent}, or, where several are taken, {path}/*",
        )
    return path


def _runs(paths: list[Path]) -> list[Path]:
    return [_run(path) for path in paths]


UnpinnedOption = Annotated[bool, Option("--allow-unpinned", help="Accept replies that name another model.")]
RunArgument = Annotated[Path, Argument(help="A run folder.", callback=_run)]
RunsArgument = Annotated[list[Path], Argument(help="Run folders.", callback=_runs)]
KeyOption = Annotated[str | None, Option("--api-key-env", metavar="NAME", help="The variable [OPENAI_API_KEY].")]
ParametersOption = Annotated[
    str, Option("--parameters", metavar="JSON", help="Sent with each call, as '{\"temperature\": 0}'; null: none.")
]
MetricOption = Annotated[str, Option("--metric", help="Equation 1 of the paper, or LiveMedBench's own script.")]
ModeOption = Annotated[str, Option("--mode", help="criterion: a call each; rubric: a call per case.")]
JudgeOption = Annotated[str | None, Option("--judge", metavar="DIGEST", help="The grader, by digest or model.")]
DrawsOption = Annotated[int, Option("--draws", min=1, max=100_000, help="Draws of the bootstrap.")]
SeedOption = Annotated[int, Option("--seed", min=0, help="Where the draws begin.")]
ErrataFileOption = Annotated[Path | None, Option("--errata-file", metavar="FILE", help="Errata [the snapshot's].")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """How a model is called, and how often."""

    concurrency: Annotated[int, Option(min=1, max=1024, help="Calls at once.")] = 16
    timeout: Annotated[float | None, Option(min=1, metavar="SECONDS", help="Limit of an attempt [120].")] = None
    api_key_env: KeyOption = None
    parameters: ParametersOption = "{}"
    max_usd: Annotated[float | None, Option(min=0, help="Stop when this is spent.")] = None
    max_calls: Annotated[int | None, Option(min=1, help="Stop after this many calls.")] = None
    max_tokens: Annotated[int | None, Option(min=1, help="Stop after this many tokens, input and output.")] = None
    dry_run: Annotated[bool, Option("--dry-run", help="Say what it would take; send nothing.")] = False

    def budget(self) -> "Budget":
        """The limits of what may be spent."""
        from medlive.llm.budget import Budget

        return Budget(max_calls=self.max_calls, max_usd=self.max_usd, max_tokens=self.max_tokens)

    def grader(self, settings: "Settings", model: str | None, base_url: str | None) -> "Engine":
        """The model that judges, by its name or as configured."""
        from medlive.service.wiring import grader_engine

        return grader_engine(
            settings.roles.grader, model=model, base_url=base_url, api_key_env=self.api_key_env,
            concurrency=self.concurrency, prices=settings.prices, timeout_s=self.timeout,
            parameters=read_parameters(self.parameters),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Grader:
    """Who judges, instead of the configured grader."""

    grader: Annotated[str | None, Option(help="The grader's model id.")] = None
    base_url: Annotated[str | None, Option(help="The grader's endpoint.")] = None
    allow_unpinned: UnpinnedOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Where runs share verdicts."""

    cache: Annotated[Path | None, Option(help="Where verdicts are shared [MEDLIVE_HOME].", file_okay=False)] = None
    no_cache: Annotated[bool, Option("--no-cache", help="Share no verdicts with other runs.")] = False

    def open(self, settings: "Settings", engine: "Engine | None" = None) -> "GradeCache | None":
        """The shared verdicts; None where they are not wanted, and for the rules engine, which costs nothing."""
        from medlive.evaluation.grading.cache import GradeCache

        if self.no_cache and self.cache is not None:
            raise UsageError("--cache and --no-cache exclude each other")
        free = self.cache is None and engine is not None and engine.identity.engine == "rules"
        return None if self.no_cache or free else GradeCache(self.cache or settings.home / "cache" / "grades")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How runs are scored."""

    metric: MetricOption = "paper"
    basis: Annotated[str, Option("--cases", help="Each model's own cases, or those common to all.")] = "own"
    models: Annotated[Path | None, Option(metavar="FILE", help="The models' cutoffs [config/models.toml].")] = None
    judge: JudgeOption = None
    draws: DrawsOption = 1000
    seed: SeedOption = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Errata:
    """What is done about what was withdrawn since a snapshot was frozen."""

    errata: Annotated[str, Option(help="What to do about withdrawn cases; apply: leave them out.")] = "warn"
    errata_file: ErrataFileOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedErrata(Errata):
    """The same, and who must have signed it."""

    public_key: Annotated[str | None, Option(metavar="KEY", help="The key, or its file, that signed them.")] = None


def read_parameters(text: str) -> dict[str, Any]:
    """The object in --parameters. Raises UsageError, for what looks like a secret too."""
    from medlive.evaluation.runs.folder import check_parameters

    try:
        sent = json.loads(text)
    except ValueError as exc:
        raise UsageError(f"--parameters is not valid JSON: {exc}") from exc
    if not isinstance(sent, dict):
        raise UsageError("--parameters must be a JSON object")
    check_parameters(sent)
    return sent


def read_mode(name: str) -> "Mode":
    """The mode of that name. Raises UsageError for another."""
    from medlive.evaluation.model import Mode

    if name not in set(Mode):
        raise UsageError(f"--mode {name}: choose criterion or rubric")
    return Mode(name)
