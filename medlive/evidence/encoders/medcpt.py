"""MedCPT as published: two BERTs for queries and articles, the first token's vector, inner product.

Jin et al. 2023, "MedCPT: Contrastive Pre-trained Transformers with large-scale PubMed search logs for zero-shot
biomedical information retrieval". The pooling is set here and never read from a folder: a plain folder would get
the mean of all tokens, which are other vectors.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from medlive.digest import digest_json
from medlive.errors import EvidenceUnavailable
from medlive.evidence.encoder import EncoderIdentity, RerankerIdentity
from medlive.evidence.encoders.exports import Precision, worth_taking
from medlive.evidence.encoders.folders import EncoderSettings, ModelFolder
from medlive.evidence.encoders.tokens import PASSAGE_TOKENS, QUERY_TOKENS, Features, Text, Tokenizer, in_batches
from medlive.evidence.encoders.torch import TorchClassifier, TorchEncoder


class Backend(Protocol):
    """A loaded BERT: token batches to one row each."""

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """(n, width)."""
        ...


class MedCPTEncoder:
    """MedCPT's two encoders, in torch or in ONNX."""

    def __init__(self, query: ModelFolder, article: ModelFolder, settings: EncoderSettings) -> None:
        """Load both; raises EvidenceUnavailable where they do not belong together or cannot be loaded."""
        _check_pair(query, article)
        self._folders = (query.folder, article.folder)
        self._tokenizers = (Tokenizer(query.folder, QUERY_TOKENS), Tokenizer(article.folder, PASSAGE_TOKENS))
        precision, backends = _open_backends((query, article), settings)
        self._backends: tuple[Backend, Backend] | None = backends
        # An 8-bit layer scales its input by the largest value in the batch: alone, a text gives one vector only.
        self._batch = 1 if precision == "int8" else settings.batch
        parameters: dict[str, object] = {
            "pooling": "cls",
            "normalised": False,
            "query_tokens": QUERY_TOKENS,
            "passage_tokens": PASSAGE_TOKENS,
        }
        if precision == "int8":
            parameters["precision"] = "int8"
        self.identity = EncoderIdentity(
            name="medcpt",
            digest=digest_json({"query": query.digest, "article": article.digest, **parameters}),
            dimension=query.dimension,
            backend="torch" if precision == "torch" else "onnx",
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
        self._folder, self._batch = model.folder, settings.batch
        self._tokenizer = Tokenizer(model.folder, PASSAGE_TOKENS)
        self._backend: Backend | None = TorchClassifier(model, settings)
        self.identity = RerankerIdentity(
            name="medcpt-cross",
            digest=digest_json({"cross": model.digest, "tokens": PASSAGE_TOKENS, "score": "logit"}),
        )

    def score(self, query: str, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """(n,) of (title, text), whose two halves are read as one text, title first."""
        backend = self._backend
        if backend is None:
            raise EvidenceUnavailable("the re-ranker was closed")
        texts: list[Text] = [(query, f"{title} {text}".strip()) for title, text in pairs]
        scores = in_batches(texts, self._batch, lambda batch: backend(self._tokenizer(batch)), width=1)[:, 0]
        if not np.isfinite(scores).all():
            raise EvidenceUnavailable(
                f"the model in {self._folder} gives scores that are no numbers: its weights are damaged"
            )
        return scores

    def close(self) -> None:
        """Give the model's memory back."""
        self._backend = None


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


def _open_backends(
    models: tuple[ModelFolder, ModelFolder], settings: EncoderSettings
) -> tuple[Literal["torch", "float32", "int8"], tuple[Backend, Backend]]:
    """The two models in the backend that was asked for; "auto" takes an export only where one was made, gives
    torch's vectors, and was faster."""
    exported = settings.backend == "auto" and settings.device == "cpu" and worth_taking(models, settings)
    if exported or settings.backend in ("onnx", "int8"):
        from medlive.evidence.encoders.onnx import open_export

        precision: Precision = "int8" if settings.backend == "int8" else "float32"
        return precision, (
            open_export(models[0], precision, settings),
            open_export(models[1], precision, settings),
        )
    return "torch", (TorchEncoder(models[0], settings), TorchEncoder(models[1], settings))
