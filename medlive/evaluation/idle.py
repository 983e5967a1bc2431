"""How often models commit what the penalties of their cases punish: an error that nobody makes tells nobody apart."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import shared_verdicts

LEAST_MODELS: Final = 3
"""Models whose answers must have a verdict before a penalty counts as idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltyUse:
    """How often one penalty was committed."""

    case_id: str
    criterion_id: str
    criterion: str
    points: float
    models: tuple[str, ...]
    """Those whose answer has a verdict on it."""
    committed: tuple[str, ...]
    """Those of them that committed it."""

    @property
    def is_idle(self) -> bool:
        """Whether enough models were asked, and none committed it."""
        return not self.committed and len(set(self.models)) >= LEAST_MODELS

    @property
    def command(self) -> str:
        """The command that takes it out of this release and of the case's next revision."""
        reason = f"none of {len(set(self.models))} models committed it"
        return (
            f"medlive snapshot withdraw {self.case_id} --kind erratum"
            f' --criterion {self.criterion_id} --reason "{reason}"'
        )

    def as_json(self) -> dict[str, Any]:
        """The count, with the command where it is idle."""
        command = self.command if self.is_idle else ""
        more = {
            "models": len(self.models),
            "idle": self.is_idle,
            "command": command,
        }
        return asdict(self) | more


def count_penalties(runs: Sequence[GradedRun]) -> tuple[PenaltyUse, ...]:
    """How often each penalty was committed, over graded runs on the same or on different cases.

    An ungraded penalty was neither committed nor avoided. A case counts as the last run that has it holds it: what
    its id meant in another revision of the rubric is another criterion.
    """
    cases = {case.case_id: case for run in runs for case in run.cases}
    rubrics = [{case.case_id: case for case in run.cases} for run in runs]
    uses = []
    for case_id, case in cases.items():
        for criterion in case.criteria:
            if criterion.points >= 0:
                continue
            models, committed = [], []
            for run, own in zip(runs, rubrics, strict=True):
                verdicts = shared_verdicts(
                    case,
                    own.get(case_id),
                    run.verdicts(case_id),
                )
                met = verdicts.get(criterion.id)
                if met is not None:
                    models.append(run.info.model)
                if met:
                    committed.append(run.info.model)
            use = PenaltyUse(
                case_id=case_id,
                criterion_id=criterion.id,
                criterion=criterion.criterion,
                points=criterion.points,
                models=tuple(models),
                committed=tuple(committed),
            )
            uses.append(use)
    return tuple(uses)
