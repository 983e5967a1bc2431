"""What an encoder promises, which one is meant by a name, and the identity that an index keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from medlive.errors import UsageError
from medlive.evidence.encoders.folders import (
    EncoderSettings,
    Role,
    find_folder,
    open_folder,
)

if TYPE_CHECKING:
    # `medlive status` reads manifests, and need not wait for numpy.
    import numpy as np
    from numpy.typing import NDArray


class EncoderIdentity(BaseModel):
    """Which encoder made a vector: vectors of equal digests may be compared, others never."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str  # "medcpt"
    digest: str
    """Over the files of both encoders, the pooling, the lengths, and the precision where it is not full; not over
    the backend, which changes no vector beyond rounding."""
    dimension: int
    backend: Literal["torch", "onnx"]


@dataclass(frozen=True, slots=True)
class RerankerIdentity:
    """Which cross-encoder gave a score."""

    name: str
    digest: str


class Encoder(Protocol):
    """Turns queries and passages into vectors whose inner product says how near they are.

    Synchronous and CPU-bound: an event loop calls it in a thread. What a text gives depends on no other text of
    its batch, beyond rounding. No method touches the network. Any text is taken: empty, with lone surrogates, or
    megabytes long (of which the beginning counts).
    """

    @property
    def identity(self) -> EncoderIdentity:
        """Which encoder this is."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dimension), in the order of the texts."""
        ...

    def encode_passages(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """(n, dimension) of (title, text), in the order of the pairs."""
        ...


class Reranker(Protocol):
    """Reads a query and a passage together and says how well the passage answers."""

    @property
    def identity(self) -> RerankerIdentity:
        """Which cross-encoder this is."""
        ...

    def score(
        self, query: str, pairs: Sequence[tuple[str, str]]
    ) -> NDArray[np.float32]:
        """(n,) of (title, text): the model's logit, higher is nearer; comparable within one query only."""
        ...


def open_encoder(name: str | Path, *, settings: EncoderSettings) -> Encoder:
    """The encoder meant by a name: "medcpt", or a folder with `MedCPT-Query-Encoder` and `MedCPT-Article-Encoder`.

    Raises MissingExtra without `medlive[medcpt]`, EvidenceUnavailable for a model that is missing, damaged
    or another's, UsageError for an unknown name.
    """
    if str(name) == "medcpt":
        query, article = (
            find_folder(role, settings) for role in (Role.QUERY, Role.ARTICLE)
        )
    else:
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise UsageError(
                f"{str(name)!r} is neither an encoder's name nor a folder",
                hint='"medcpt", or a folder with models in it',
            )
        query, article = (
            open_folder(folder / role.value, role)
            for role in (Role.QUERY, Role.ARTICLE)
        )
    from medlive.evidence.encoders.medcpt import MedCPTEncoder

    return MedCPTEncoder(query, article, settings)


def open_reranker(name: str | Path, *, settings: EncoderSettings) -> Reranker:
    """The cross-encoder meant by a name: "medcpt", or a folder that holds `MedCPT-Cross-Encoder` or is it.

    Raises as `open_encoder` does.
    """
    if str(name) == "medcpt":
        model = find_folder(Role.CROSS, settings)
    else:
        folder = Path(name).expanduser()
        inner = folder / Role.CROSS.value
        model = open_folder(inner if inner.is_dir() else folder, Role.CROSS)
    from medlive.evidence.encoders.medcpt import MedCPTReranker

    return MedCPTReranker(model, settings)
