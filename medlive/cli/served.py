"""What `medlive serve` shows of the evaluation, which neither the service nor the web knows."""

from pathlib import Path

from medlive.config import Settings
from medlive.evaluation.agreement.settle import read_sheet
from medlive.instance.paths import index_path
from medlive.llm.registry import load_registry
from medlive.site.live import LiveSite
from medlive.site.read import BUNDLES, Inputs
from medlive.web.site import Evaluation


def served_evaluation(
    settings: Settings, snapshots: Path, preview: bool = False
) -> Evaluation:
    """The public site and the graders' sheets; with `preview` snapshots that are not publishable are shown too."""
    inputs = Inputs(
        snapshots=snapshots,
        bundles=settings.home / BUNDLES,
        evidence=index_path(settings),
        registry=load_registry(settings.candidates),
        allow_not_publishable=preview,
        leave_out_not_publishable=not preview,
    )
    return Evaluation(LiveSite(inputs).files, read_sheet)
