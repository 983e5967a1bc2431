"""MedCPT as published: two BERTs for queries and articles, the first token's vector, inner product.

Jin et al. 2023, "MedCPT: Contrastive Pre-trained Transformers with large-scale PubMed search logs for zero-shot
biomedical information retrieval". The pooling is set here and never read from a folder: a plain folder would get
the mean of all tokens, which are other vectors.
"""

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from medlive.digest import digest_json
from medlive.errors import EvidenceUnavailable, MissingExtra
from medlive.evidence.encoder import EncoderIdentity, RerankerIdentity
from medlive.evidence.encoders.folders import INSTALL, NOT_INSTALLED, EncoderSettings, ModelFolder
from medlive.evidence.encoders.tokens import (
    PASSAGE_TOKENS,
    QUERY_TOKENS,
    Features,
    Text,
    Tokenizer,
    in_batches,
    quietly,
)

try:
    import torch
    from safetensors import SafetensorError, safe_open
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoModelForSequenceClassification
except ImportError as exc:
    raise MissingExtra(NOT_INSTALLED, hint=INSTALL) from exc

_LOADING = (
    OSError, ValueError, RuntimeError, KeyError, TypeError, EOFError, SafetensorError, pickle.UnpicklingError,
)  # fmt: skip
"""What loading a damaged folder raises."""
_LOCAL = {"local_files_only": True, "trust_remote_code": False}


class Backend(Protocol):
    """A loaded BERT: token batches to one row each."""

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """(n, width)."""
        ...


class TorchEncoder:
    """A BERT and its pooling, in torch, through sentence-transformers."""

    def __init__(self, model: ModelFolder, settings: EncoderSettings) -> None:
        """Raises EvidenceUnavailable when the weights cannot be loaded or are not all there."""
        self._device = settings.device
        if settings.threads:
            torch.set_num_threads(settings.threads)

        def load() -> Any:
            return Transformer(
                str(model.folder),
                model_kwargs={**_LOCAL, **_weights(model)},
                processor_kwargs=dict(_LOCAL),
                config_kwargs=dict(_LOCAL),
            )

        transformer = _load(model, load)
        _all_there(model, transformer.auto_model)
        pooling = Pooling(model.dimension, pooling_mode="cls")
        self.module = torch.nn.Sequential(transformer, pooling).to(self._device).eval()

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """(n, dimension): the first token's last hidden state."""
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array).to(self._device) for name, array in features.items()}
            vectors: NDArray[np.float32] = self.module(tensors)["sentence_embedding"].float().cpu().numpy()
        return vectors


class MedCPTEncoder:
    """MedCPT's two encoders, in torch or in ONNX."""

    def __init__(self, query: ModelFolder, article: ModelFolder, settings: EncoderSettings) -> None:
        """Load both; raises EvidenceUnavailable where they do not belong together or cannot be loaded."""
        _check_pair(query, article)
        self._batch = settings.batch
        self._folders = (query.folder, article.folder)
        self._tokenizers = (Tokenizer(query.folder, QUERY_TOKENS), Tokenizer(article.folder, PASSAGE_TOKENS))
        backend: Literal["torch", "onnx"] = "torch"
        self._backends: tuple[Backend, Backend] | None = (
            TorchEncoder(query, settings),
            TorchEncoder(article, settings),
        )
        parameters = {
            "pooling": "cls",
            "normalised": False,
            "query_tokens": QUERY_TOKENS,
            "passage_tokens": PASSAGE_TOKENS,
        }
        self.identity = EncoderIdentity(
            name="medcpt",
            digest=digest_json({"query": query.digest, "article": article.digest, **parameters}),
            dimension=query.dimension,
            backend=backend,
        )

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dimension), in the order of the texts."""
        return self._encode(0, texts)

    def encode_passages(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """(n, dimension) of (title, text), in the order of the pairs."""
        return self._encode(1, pairs)

    def close(self) -> None:
        """Give the models' memory back."""
        self._backends = None

    def _encode(self, side: int, texts: Sequence[Text]) -> NDArray[np.float32]:
        if self._backends is None:
            raise EvidenceUnavailable("the encoder was closed")
        tokenizer, backend = self._tokenizers[side], self._backends[side]
        vectors = in_batches(
            texts, self._batch, lambda batch: backend(tokenizer(batch)), width=self.identity.dimension
        )
        if not np.isfinite(vectors).all():
            raise EvidenceUnavailable(
                f"the model in {self._folders[side]} gives vectors that are no numbers: its weights are damaged"
            )
        return vectors


class MedCPTReranker:
    """MedCPT's cross-encoder: query and passage in one sequence, the classifier's single logit."""

    def __init__(self, model: ModelFolder, settings: EncoderSettings) -> None:
        """Raises EvidenceUnavailable when the folder holds no cross-encoder with one output."""
        _check_positions(model, PASSAGE_TOKENS)
        self._folder, self._batch, self._device = model.folder, settings.batch, settings.device
        self._tokenizer = Tokenizer(model.folder, PASSAGE_TOKENS)
        loaded = _load(
            model,
            lambda: AutoModelForSequenceClassification.from_pretrained(
                str(model.folder), **_LOCAL, **_weights(model)
            ),
        )
        _all_there(model, loaded)
        if loaded.config.num_labels != 1:
            raise EvidenceUnavailable(
                f"the classifier in {model.folder} has {loaded.config.num_labels} outputs, a cross-encoder has one"
            )
        self._model: Any = loaded.to(self._device).eval()
        self.identity = RerankerIdentity(
            name="medcpt-cross",
            digest=digest_json({"cross": model.digest, "tokens": PASSAGE_TOKENS, "score": "logit"}),
        )

    def score(self, query: str, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """(n,) of (title, text), whose two halves are read as one text, title first."""
        if self._model is None:
            raise EvidenceUnavailable("the re-ranker was closed")
        texts: list[Text] = [(query, f"{title} {text}".strip()) for title, text in pairs]
        scores = in_batches(texts, self._batch, self._logits, width=1)[:, 0]
        if not np.isfinite(scores).all():
            raise EvidenceUnavailable(
                f"the model in {self._folder} gives scores that are no numbers: its weights are damaged"
            )
        return scores

    def close(self) -> None:
        """Give the model's memory back."""
        self._model = None

    def _logits(self, texts: Sequence[Text]) -> NDArray[np.float32]:
        with torch.inference_mode():
            features = self._tokenizer(texts)
            tensors = {name: torch.from_numpy(array).to(self._device) for name, array in features.items()}
            logits: NDArray[np.float32] = self._model(**tensors).logits.float().cpu().numpy()
        return logits


def _check_pair(query: ModelFolder, article: ModelFolder) -> None:
    if query.dimension != article.dimension:
        raise EvidenceUnavailable(
            f"{query.folder} gives {query.dimension} dimensions and {article.folder} {article.dimension}",
            hint="both encoders must be of one release",
        )
    if query.digest == article.digest:
        raise EvidenceUnavailable(
            f"{query.folder} and {article.folder} hold the same model, and MedCPT's two encoders differ",
            hint="put the query encoder into one and the article encoder into the other",
        )
    _check_positions(query, QUERY_TOKENS)
    _check_positions(article, PASSAGE_TOKENS)


def _check_positions(model: ModelFolder, needed: int) -> None:
    positions = model.config.get("max_position_embeddings", 0)
    if positions < needed:
        raise EvidenceUnavailable(f"the model in {model.folder} reads {positions} tokens, and {needed} are needed")


def _weights(model: ModelFolder) -> dict[str, Any]:
    """Full precision whatever the file's, and never a pickle that is more than tensors."""
    safe = model.weights.suffix == ".safetensors"
    return {"dtype": torch.float32, "use_safetensors": safe} | ({} if safe else {"weights_only": True})


def _load(model: ModelFolder, load: Callable[[], Any]) -> Any:
    try:
        with quietly():
            return load()
    except _LOADING as exc:
        raise EvidenceUnavailable(
            f"{model.weights} cannot be loaded: {_first_line(exc)}",
            hint=f"fetch {model.role.repository} again: a file is damaged, or not of this model",
        ) from exc


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _all_there(model: ModelFolder, loaded: Any) -> None:
    """Refuse weights that leave a part of the model to chance: the library would fill it with random numbers."""
    needed = {_plain(name) for name in loaded.state_dict()}
    if model.role.gives_vectors:
        needed = {name for name in needed if not name.startswith("pooler.")}
    lacking = sorted(needed - {_plain(name) for name in _stored_names(model.weights)})
    if lacking:
        raise EvidenceUnavailable(
            f"{model.weights} lacks {len(lacking)} of the model's tensors, {lacking[0]} first",
            hint=f"it is not {model.role.repository}, or not all of it",
        )


def _plain(name: str) -> str:
    """A tensor's name without what differs between a bare and a wrapped BERT, old and new."""
    name = name.removeprefix("bert.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _stored_names(weights: Path) -> list[str]:
    if weights.suffix == ".safetensors":
        with safe_open(str(weights), framework="pt") as file:
            return list(file.keys())
    return list(torch.load(weights, map_location="cpu", weights_only=True))
