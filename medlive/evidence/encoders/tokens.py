"""Text to the token batches that MedCPT's encoders were trained on, the same for every backend.

Queries stand alone and are cut at 64 tokens; a passage is the pair [title, text], its longer half cut until the
pair has 512. A passage without text still has the second separator, as in the published encoder's own code, which
tokenizes lists of pairs (a single call with an empty second half leaves it out, and gives another vector).
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medlive.errors import EvidenceUnavailable, MissingExtra
from medlive.evidence.encoders.folders import INSTALL, NOT_INSTALLED

try:
    from transformers import AutoTokenizer
    from transformers.utils import logging as _logging
except ImportError as exc:
    raise MissingExtra(NOT_INSTALLED, hint=INSTALL) from exc

QUERY_TOKENS = 64
"""Of a query, as MedCPT was trained."""
PASSAGE_TOKENS = 512
"""Of a [title, text] pair, and of a [query, passage] pair for the cross-encoder."""
MAX_CHARACTERS = 20_000
"""Of each text, before it is tokenized: 39 for each token that can count, so that megabytes cost nothing."""

_SURROGATE = re.compile(r"[\ud800-\udfff]")

Text = str | tuple[str, str]
Features = dict[str, NDArray[np.int64]]
"""`input_ids`, `attention_mask` and `token_type_ids`, each (n, longest)."""


class Tokenizer:
    """One model's tokenizer with its length."""

    def __init__(self, folder: Path, length: int) -> None:
        """Raises EvidenceUnavailable when the folder's tokenizer cannot be loaded."""
        self.length = length
        try:
            with quietly():
                self._tokenizer: Any = AutoTokenizer.from_pretrained(
                    str(folder), local_files_only=True, trust_remote_code=False
                )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as exc:
            raise EvidenceUnavailable(f"the tokenizer in {folder} cannot be loaded: {exc}") from exc

    def __call__(self, texts: Sequence[Text]) -> Features:
        """The batch, padded to its longest text; all texts are single, or all are pairs."""
        cleaned = [clean(text) if isinstance(text, str) else [clean(half) for half in text] for text in texts]
        encoded = self._tokenizer(
            cleaned,
            padding=True,
            truncation="longest_first",
            max_length=self.length,
            return_token_type_ids=True,
            return_attention_mask=True,
            return_tensors="np",
        )
        return {
            name: np.asarray(encoded[name], dtype=np.int64)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        }


def clean(text: str) -> str:
    """A text that every tokenizer takes: lone surrogates as spaces, cut at `MAX_CHARACTERS`."""
    return _SURROGATE.sub(" ", text[:MAX_CHARACTERS])


def in_batches(
    texts: Sequence[Text], size: int, encode: Callable[[Sequence[Text]], NDArray[np.float32]], width: int
) -> NDArray[np.float32]:
    """(n, width) in the order of the texts, encoded longest first so that neighbours need little padding."""
    result = np.empty((len(texts), width), dtype=np.float32)
    order = sorted(range(len(texts)), key=lambda number: (-_characters(texts[number]), number))
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        result[chosen] = encode([texts[number] for number in chosen])
    return result


def _characters(text: Text) -> int:
    return min(MAX_CHARACTERS, len(text)) if isinstance(text, str) else sum(_characters(half) for half in text)


class quietly:
    """Keeps transformers' progress bars and remarks off the terminal for a while; errors are raised as ever."""

    def __enter__(self) -> None:
        self._verbosity = _logging.get_verbosity()
        self._bar = _logging.is_progress_bar_enabled()
        _logging.set_verbosity_error()
        _logging.disable_progress_bar()

    def __exit__(self, *_: object) -> None:
        _logging.set_verbosity(self._verbosity)
        if self._bar:
            _logging.enable_progress_bar()
