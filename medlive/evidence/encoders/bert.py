"""A BERT of MedCPT's in torch, and its tokenizer: text to token batches to rows.

A passage without text still has the second separator, as in the published encoder's own code, which tokenizes lists
of pairs (a single call with an empty second half leaves it out, and gives another vector). Models are read from
folders; nothing is fetched and no code of theirs is run.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medlive.errors import EvidenceUnavailable, MissingExtra
from medlive.evidence.encoders.folders import (
    INSTALL,
    NOT_INSTALLED,
    EncoderSettings,
    ModelFolder,
)

try:
    import torch
    from transformers import (
        AutoModel,
        AutoModelForSequenceClassification,
        AutoTokenizer,
    )
    from transformers.utils import logging
except ImportError as exc:
    raise MissingExtra(NOT_INSTALLED, hint=INSTALL) from exc

QUERY_TOKENS = 64
"""Of a query, as MedCPT was trained."""
PASSAGE_TOKENS = 512
"""Of a [title, text] pair, and of a [query, passage] pair for the cross-encoder."""
MAX_CHARACTERS = 20_000
"""Of each text, before it is tokenized: 39 for each token that can count, so that megabytes cost nothing."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LOCAL = {"local_files_only": True, "trust_remote_code": False}

Text = str | tuple[str, str]
Features = dict[str, NDArray[np.int64]]
"""`INPUTS`, each (n, longest)."""


class Tokenizer:
    """One model's tokenizer with its length."""

    def __init__(self, folder: Path, length: int) -> None:
        """Raises EvidenceUnavailable when the folder's tokenizer cannot be loaded."""
        self.length = length
        with _loading(folder, "tokenizer"):
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), **_LOCAL)

    def __call__(self, texts: Sequence[Text]) -> Features:
        """The batch, padded to its longest text; all texts are single, or all are pairs."""
        cleaned = [
            _clean(text) if isinstance(text, str) else [_clean(half) for half in text]
            for text in texts
        ]
        encoded = self._tokenizer(
            cleaned,
            padding=True,
            truncation="longest_first",
            max_length=self.length,
            return_tensors="np",
            return_token_type_ids=True,
            return_attention_mask=True,
        )
        return {name: np.asarray(encoded[name], dtype=np.int64) for name in INPUTS}


class TorchModel:
    """A BERT in torch: the first token's vector of an encoder, the logit of a cross-encoder."""

    def __init__(self, model: ModelFolder, settings: EncoderSettings) -> None:
        """Raises EvidenceUnavailable when the weights cannot be loaded or are not all there."""
        self.device = settings.device
        self._vectors = model.role.gives_vectors
        if settings.threads:
            torch.set_num_threads(settings.threads)
        kind = AutoModel if self._vectors else AutoModelForSequenceClassification
        with _loading(model.folder, "weights"):
            loaded, found = kind.from_pretrained(
                str(model.folder),
                dtype=torch.float32,
                use_safetensors=model.weights.suffix == ".safetensors",
                output_loading_info=True,
                **_LOCAL,
            )
        missing = sorted(
            name
            for name in found["missing_keys"]
            if not (self._vectors and "pooler." in name)
        )
        if missing:
            # The library fills them with random numbers.
            raise EvidenceUnavailable(
                f"{model.weights} lacks {len(missing)} of the model's tensors, {missing[0]} first",
                hint=f"it is not {model.role.repository}, or not all of it",
            )
        if not self._vectors and loaded.config.num_labels != 1:
            raise EvidenceUnavailable(
                f"the classifier in {model.folder} has {loaded.config.num_labels} outputs, a cross-encoder has one"
            )
        self.module: Any = loaded.to(self.device).eval()

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """(n, dimension), or (n, 1) of a cross-encoder."""
        with torch.inference_mode():
            output = self.module(
                **{
                    name: torch.from_numpy(a).to(self.device)
                    for name, a in features.items()
                }
            )
            rows = output.last_hidden_state[:, 0] if self._vectors else output.logits
            result: NDArray[np.float32] = rows.float().cpu().numpy()
        return result


def _clean(text: str) -> str:
    return _SURROGATE.sub(" ", text[:MAX_CHARACTERS])


@contextmanager
def _loading(folder: Path, what: str) -> Iterator[None]:
    """Keep progress bars off the terminal; any error becomes EvidenceUnavailable."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    # Damaged files raise errors of four libraries without a common base.
    except Exception as exc:
        cause = (str(exc).strip().splitlines() or [type(exc).__name__])[0]
        raise EvidenceUnavailable(
            f"the {what} in {folder} cannot be loaded: {cause}",
            hint="fetch the model again: a file is damaged, or not of this model",
        ) from exc
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
