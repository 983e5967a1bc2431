"""What a dense index is, as manifests and plans say it; reading this needs no FAISS."""

from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

Matrix = NDArray[np.float32]


Ordinals = NDArray[np.int64]


class DenseKind(StrEnum):
    """How vectors are arranged."""

    FLAT = "flat"
    HNSW = "hnsw"
    IVF_FLAT = "ivf_flat"
    IVF_SQ8 = "ivf_sq8"
    IVF_PQ = "ivf_pq"

    @property
    def inverted(self) -> bool:
        """Whether it keeps vectors in lists by cell."""
        return self in {DenseKind.IVF_FLAT, DenseKind.IVF_SQ8, DenseKind.IVF_PQ}

    @property
    def refined(self) -> bool:
        """Whether candidates are scored again with the vectors themselves."""
        return self in {DenseKind.IVF_SQ8, DenseKind.IVF_PQ}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DenseParameters(_Frozen):
    """What decides an index's results beside its vectors; None where the kind has no such parameter."""

    storage: Literal["float32", "float16", "sq8", "pq4"]
    """How the searched copy of the vectors is coded."""
    nlist: int | None = None
    """Cells."""
    trained_on: int | None = None
    """Vectors that the cells were made from."""
    sub_quantisers: int | None = None
    """4-bit codes a vector."""
    links: int | None = None
    """HNSW's M."""
    ef_construction: int | None = None
    nprobe: int | None = None
    """Tuned: cells looked into."""
    ef_search: int | None = None
    """Tuned: HNSW's list of candidates."""
    refine: int | None = None
    """Tuned: so many times k candidates are scored again."""


class DenseRecall(_Frozen):
    """How many of the exact k nearest an index finds, on queries that were not tuned on."""

    k: int
    value: float
    """Mean share, 0 to 1."""
    queries: int
    sampled: Literal["passages", "given", "exact"]
    """`passages`: passages of the index as queries, each left out of its own answer; `given`: queries handed to
    the build; `exact`: the kind is exact and nothing was measured."""
    target: float
    tuned_on: int
    """Queries that the parameters were tuned on."""


class DenseFile(_Frozen):
    """A file of the index, by its name within the index's folder."""

    name: str
    size: int


class DensePart(_Frozen):
    """The account of a dense index in the manifest."""

    kind: DenseKind
    parameters: DenseParameters
    metric: Literal["inner_product"]
    dimension: int
    encoder: str
    encoder_digest: str
    count: int
    keys_digest: str
    """Of the passages' keys in the order of their ordinals: see `vectors.keys_digest`."""
    recall: DenseRecall
    build_seconds: float
    faiss: str
    """FAISS's version."""
    files: tuple[DenseFile, ...]
