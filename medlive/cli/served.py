"""What `medlive serve` shows of the evaluation, which neither the service nor the web knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from medlive.config import Settings
from medlive.evaluation.agreement.settle import read_sheet
from medlive.grader.rated import GraderSheet
from medlive.instance.paths import index_path
from medlive.llm.registry import load_registry
from medlive.site.live import LiveSite
from medlive.site.read import BUNDLES, Inputs


@dataclass(slots=True)
class ServedEvaluation:
    """The `Evaluation` of a site, as `medlive.web.site` describes it."""

    settings: Settings
    snapshots: Path
    preview: bool = False  # Whether snapshots that are not publishable are shown too
    _site: LiveSite = field(init=False)

    def __post_init__(self) -> None:
        inputs = Inputs(
            snapshots=self.snapshots,
            bundles=self.settings.home / BUNDLES,
            evidence=index_path(self.settings),
            registry=load_registry(self.settings.candidates),
            allow_not_publishable=self.preview,
            leave_out_not_publishable=not self.preview,
        )
        self._site = LiveSite(inputs)

    def pages(
        self, given_out: Mapping[str, str], checked: frozenset[str]
    ) -> Mapping[str, bytes] | None:
        """The files of the public site."""
        return self._site.files(given_out, checked)

    def read_sheet(self, run: Path, judges: Sequence[str]) -> GraderSheet:
        """A run's verdicts for people to check."""
        return read_sheet(run, judges)
