"""MedCPT as published: two BERTs for queries and articles, the first token's vector, inner product.

Jin et al. 2023, "MedCPT: Contrastive Pre-trained Transformers with large-scale PubMed search logs for zero-shot
biomedical information retrieval". Queries stand alone and are cut at 64 tokens; a passage is the pair [title,
text], its longer half cut until the pair has 512.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from medlive.digest import digest_json
from medlive.errors import EvidenceUnavailable
from medlive.evidence.encoder import EncoderIdentity, RerankerIdentity
from medlive.evidence.encoders.bert import (
    MAX_CHARACTERS,
    PASSAGE_TOKENS,
    QUERY_TOKENS,
    Text,
    Tokenizer,
    TorchModel,
)
from medlive.evidence.encoders.folders import EncoderSettings, ModelFolder


class MedCPTEncoder:
    """MedCPT's two encoders."""

    def __init__(
        self, query: ModelFolder, article: ModelFolder, settings: EncoderSettings
    ) -> None:
        """Load both; raises EvidenceUnavailable where they do not belong together or cannot be loaded."""
        if query.dimension != article.dimension or query.digest == article.digest:
            raise EvidenceUnavailable(
                f"{query.folder} ({query.dimension} dimensions) and {article.folder} ({article.dimension}) are not"
                " MedCPT's query and article encoder",
                hint="put the query encoder into one and the article encoder into the other",
            )
        self._query = _Encoding(query, QUERY_TOKENS, settings)
        self._article = _Encoding(article, PASSAGE_TOKENS, settings)
        parameters: dict[str, object] = {
            "pooling": "cls",
            "normalised": False,
            "query_tokens": QUERY_TOKENS,
            "passage_tokens": PASSAGE_TOKENS,
        }
        self.identity = EncoderIdentity(
            name="medcpt",
            digest=digest_json(
                {"query": query.digest, "article": article.digest, **parameters}
            ),
            dimension=query.dimension,
            backend="torch",
        )

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dimension), in the order of the texts."""
        return self._query(texts, self.identity.dimension)

    def encode_passages(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """(n, dimension) of (title, text), in the order of the pairs."""
        return self._article(pairs, self.identity.dimension)


class MedCPTReranker:
    """MedCPT's cross-encoder: query and passage in one sequence, the classifier's single logit."""

    def __init__(self, model: ModelFolder, settings: EncoderSettings) -> None:
        """Raises EvidenceUnavailable when the folder holds no cross-encoder with one output."""
        self._scoring = _Encoding(model, PASSAGE_TOKENS, settings)
        self.identity = RerankerIdentity(
            name="medcpt-cross",
            digest=digest_json(
                {"cross": model.digest, "tokens": PASSAGE_TOKENS, "score": "logit"}
            ),
        )

    def score(
        self, query: str, pairs: Sequence[tuple[str, str]]
    ) -> NDArray[np.float32]:
        """(n,) of (title, text), whose two halves are read as one text, title first."""
        return self._scoring(
            [(query, f"{title} {text}".strip()) for title, text in pairs], 1
        )[:, 0]


class _Encoding:
    """A model with its tokenizer, run in batches."""

    def __init__(
        self, model: ModelFolder, length: int, settings: EncoderSettings
    ) -> None:
        if model.positions < length:
            raise EvidenceUnavailable(
                f"the model in {model.folder} reads {model.positions} tokens, and {length} are needed"
            )
        self._folder, self._batch = model.folder, settings.batch
        self._model = TorchModel(model, settings)
        self._tokenizer = Tokenizer(model.folder, length)

    def __call__(self, texts: Sequence[Text], width: int) -> NDArray[np.float32]:
        """(n, width) in the order of the texts, read longest first so that neighbours need little padding."""
        result = np.empty((len(texts), width), dtype=np.float32)
        order = sorted(
            range(len(texts)), key=lambda number: (-_characters(texts[number]), number)
        )
        for start in range(0, len(order), self._batch):
            chosen = order[start : start + self._batch]
            result[chosen] = self._model(
                self._tokenizer([texts[number] for number in chosen])
            )
        if not np.isfinite(result).all():
            raise EvidenceUnavailable(
                f"the model in {self._folder} gives numbers that are not finite: its weights are damaged"
            )
        return result


def _characters(text: Text) -> int:
    return (
        min(MAX_CHARACTERS, len(text))
        if isinstance(text, str)
        else sum(_characters(half) for half in text)
    )
