"""The leaderboard: the rankings that `medlive eval leaderboard --json` printed, from `leaderboard.json`."""

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

LEADERBOARD: Final = "leaderboard.json"
"""The file's name under MEDLIVE_HOME."""


class _Read(BaseModel):
    """What is read of the file; the rest of it is left unread."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Template(_Read):
    """How the cases were put to the models."""

    name: str


class Grader(_Read):
    """Who graded."""

    model: str
    mode: str


class Conditions(_Read):
    """What the runs of a ranking share."""

    snapshot: str
    cases: int
    template: Template
    grader: Grader


class Score(_Read):
    """A mean score from 0 to 1 with its interval of 95 %; None where there is none."""

    n: int
    mean: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    why: str = ""  # Why there is no interval; not in files of earlier versions


class Model(_Read):
    """A model's place."""

    model: str
    overall: Score
    complete: Score | None = None  # Files of earlier versions lack these three
    paper: Score | None = None
    core: Score | None = None
    rank_best: int | None = None
    rank_worst: int | None = None


class Bundle(_Read):
    """The bundle behind a model's score."""

    model: str
    trust: str
    key_id: str | None = None


class Length(_Read):
    """How a score goes with the length of the answers."""

    figure: str
    n: int
    pearson: float | None
    partial: float | None  # Given model and case


class Scores(_Read):
    """The scores of a ranking, the best first."""

    metric: str
    advice_only: bool = True
    """Whether every criterion rests on the advice, so that the complete score is the paper's."""
    models: tuple[Model, ...]
    length: tuple[Length, ...] = ()

    @property
    def beside(self) -> tuple[str, ...]:
        """The scores that stand beside the headline: complete or paper where they differ, and the core."""
        found = [] if self.advice_only else ["complete", "paper"]
        shown = [name for name in (*found, "core") if name != self.metric]
        return tuple(
            name
            for name in shown
            if any(getattr(model, name) is not None for model in self.models)
        )


class Ranking(_Read):
    """Models whose bundles are of the same conditions."""

    conditions: Conditions
    scores: Scores
    bundles: tuple[Bundle, ...] = ()
    notes: tuple[str, ...] = ()

    def bundle_of(self, model: str) -> Bundle | None:
        """Return the bundle of a model."""
        return next((bundle for bundle in self.bundles if bundle.model == model), None)


class Leaderboard(_Read):
    """`leaderboard.json`."""

    format: Literal["medlive-leaderboard"] = "medlive-leaderboard"
    format_version: Annotated[int, Field(ge=1)] = 1
    rankings: tuple[Ranking, ...] = ()


def load_leaderboard(home: Path) -> Leaderboard:
    """Load the rankings; none where the file is missing or of another format."""
    try:
        return Leaderboard.model_validate_json((home / LEADERBOARD).read_bytes())
    except (OSError, ValidationError):
        return Leaderboard()
