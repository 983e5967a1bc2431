"""One encoder's side of an index: embed what is new, arrange all vectors, and measure them."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from medlive.evidence.index_folder import LEXICAL, ORDINALS, VECTORS
from medlive.evidence.lexical import LexicalIndex
from medlive.evidence.manifest import DenseEntry, DenseKind, EncoderEntry
from medlive.evidence.plan import DensePlan
from medlive.evidence.store import PassageStore
from medlive.evidence.vectors import Ordinals, VectorStore, keys_of

Report = Callable[[Literal["embedding", "arranging"], int], None]
"""Gets the number of passages that are embedded, or arranged, so far."""


class BuiltSide(NamedTuple):
    """A side in its folder."""

    entry: DenseEntry
    reused: int  # Passages whose vectors were there
    embedded: int


def build_side(
    out: Path, data: Path, folder: str, plan: DensePlan, report: Report
) -> BuiltSide | None:
    """Build a side over the passages in `data`; None where no passage is in its languages.

    Args:
        out: The index's folder, which keeps the vectors.
        data: The data folder that is being built, with its words' side.
        folder: The side's own, within `data`.
        plan: Encoder and kind.
        report: Gets the progress.
    """
    from medlive.evidence import dense
    from medlive.evidence.known_items import measure_weights

    store, encoder = PassageStore(data), plan.encoder
    readable = [n for n, passage in enumerate(store) if encoder.reads(passage.language)]
    if not readable:
        return None
    ordinals: Ordinals = np.array(readable, dtype=np.int64)
    vectors = VectorStore(out / VECTORS, encoder.identity)
    before = len(vectors)
    reused, embedded = vectors.embed_missing(
        map(store.get, readable),
        encoder,
        shard_size=plan.shard,
        progress=lambda count: report("embedding", count),
    )
    shared = len(vectors) - before - embedded
    kind = plan.kind or dense.choose_kind(len(readable))
    queries = None
    if kind is DenseKind.IVF_PQ and len(readable) >= dense.LEAST:
        # Questions that passages of the index answer, to choose its cells on and measure it.
        sample = dense.sample_ordinals(len(readable), 2 * dense.QUERIES)
        answered = [store.get(readable[int(n)]).title_and_text for n in sample]
        queries = encoder.encode_queries([dense.as_query(*pair) for pair in answered])
    part = dense.build_dense(
        vectors.vectors(keys_of(map(store.get, readable))),
        data / folder,
        kind=kind,
        queries=queries,
        progress=lambda count: report("arranging", count),
    )
    np.save(data / folder / ORDINALS, ordinals)
    weights = measure_weights(
        store,
        LexicalIndex(data / LEXICAL, store),
        dense.DenseIndex.open(data / folder, part),
        ordinals,
        encoder,
        plan.languages,
    )
    entry = DenseEntry(
        encoder=EncoderEntry(**encoder.identity.model_dump(), where=plan.where),
        languages=plan.languages,
        reason=plan.reason,
        folder=folder,
        part=part,
        weights=weights,
    )
    return BuiltSide(entry, reused - shared, embedded + shared)
