"""Choose the encoder of an index: the requested one, the index's own, or MedCPT if its models are available."""

from pathlib import Path

from medlive.errors import IndexCorrupt, IndexMissing, IndexOutdated
from medlive.evidence.build import DensePlan
from medlive.evidence.encoder import open_encoder
from medlive.evidence.encoders.folders import EncoderSettings, find_models, missing_models
from medlive.evidence.manifest import DenseKind, read_manifest
from medlive.evidence.open_index import open_named_encoder
from medlive.evidence.vectors import SHARD

NONE = "none"
MEDCPT = "medcpt"


def plan_index(
    out: Path,
    requested: str | None,
    settings: EncoderSettings,
    *,
    fresh: bool = False,
    kind: str | None = None,
    shard: int | None = None,
) -> tuple[DensePlan | None, str]:
    """Return the dense side that the index at `out` gets, or None, and the reason.

    Args:
        out: The index's folder.
        requested: "none", or an encoder as in `open_encoder`; None for the index's own, else MedCPT if its models
            are available.
        settings: Where models are looked for.
        fresh: Ignore the existing index.
        kind: The kind of dense index, of `DenseKind`; None for by size.
        shard: Passages per shard; None for the default.

    Raises as `open_encoder` does for the requested or the index's own encoder.
    """
    dense, size = DenseKind(kind) if kind else None, shard or SHARD
    if requested == NONE:
        return None, "no encoder was wanted"
    if requested is not None:
        why = f"encoder {requested} was asked for"
        encoder = open_encoder(requested, settings=settings)
        folder = Path(requested).expanduser()
        where = str(folder.resolve()) if folder.is_dir() and requested != MEDCPT else requested
        return DensePlan(encoder, where, why, dense, size), why
    if not fresh:
        try:
            existing = read_manifest(out).encoder
        except (IndexMissing, IndexCorrupt, IndexOutdated):
            existing = None
        if existing is not None:
            why = f"the index has vectors of encoder {existing.name}"
            return DensePlan(open_named_encoder(out, existing, settings), existing.where, why, dense, size), why
    models = find_models(settings)
    problem = missing_models(models)
    if problem is not None:
        return None, problem
    why = "MedCPT's models are at hand"
    return DensePlan(open_encoder(MEDCPT, settings=settings), MEDCPT, why, dense, size), why
