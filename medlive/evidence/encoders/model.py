"""What an encoder and a reranker do (`Encoder`, `Reranker`), and the identity that an index keeps of an encoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pydantic import BaseModel

if TYPE_CHECKING:
    # `medlive status` reads manifests, and need not wait for numpy.
    import numpy as np
    from numpy.typing import NDArray

Matrix: TypeAlias = "NDArray[np.float32]"
Pairs = Sequence[tuple[str, str]]
"""Passages, each as its title and its text."""
MAX_CHARACTERS = 20_000
"""Characters of a text that are tokenized: enough for every model's length, so that megabytes cost nothing."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def cleaned(text: str) -> str:
    """The beginning of a text, without lone surrogates, which models refuse."""
    return _SURROGATE.sub(" ", text[:MAX_CHARACTERS])


def joined(title: str, text: str) -> str:
    """A passage as one text."""
    return f"{title}. {text}" if title else text


class EncoderIdentity(BaseModel, frozen=True, extra="forbid"):
    """Which encoder made a vector: vectors of equal digests may be compared, others never."""

    name: str  # As configured (of the table, a folder, the hub), its last part
    digest: str
    """Over the models' files, prompts and lengths; of an endpoint over its models' names and the probe."""
    dimension: int
    probe: tuple[float, ...] = ()
    """Of an endpoint: how near ten fixed texts are to each other; see `encoders.endpoint`."""
    where: str = ""
    """How it is opened again: a name or a folder."""


class Encoder(Protocol):
    """Turns queries and passages into vectors whose inner product says how near they are.

    Synchronous and CPU-bound: an event loop calls it in a thread. What a text gives depends on no other text of
    its batch, beyond rounding. Only an endpoint's encoder uses the network. Any text is taken: empty, with lone
    surrogates, or megabytes long (of which the beginning counts).
    """

    identity: EncoderIdentity  # Which encoder this is

    def reads(self, language: str) -> bool:
        """Whether it knows a language (ISO 639; "und": no words of one)."""

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        """Vectors of shape (n, dimension), in the order of the texts."""

    def encode_passages(self, pairs: Pairs) -> Matrix:
        """Vectors of shape (n, dimension), in the order of the (title, text) pairs."""


@dataclass(eq=False)
class Reranker:
    """A cross-encoder: reads a query and a passage together and says how well the passage answers."""

    name: str  # As it is opened
    digest: str
    score: Callable[[str, Pairs], Matrix]
    """Query, and the (title, text) of each passage → (n,): the model's logit, higher is nearer; comparable within one
    query only."""
