"""Encoders and rerankers that run here, by sentence-transformers: `SentenceEncoder`, `load_reranker`."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from medlive.errors import EvidenceUnavailable, MissingExtra
from medlive.integrity.digest import digest_json

from .folders import (
    INSTALL,
    folder_digest,
    says_pooling,
    weights_of,
)
from .model import (
    EncoderIdentity,
    Matrix,
    Pairs,
    Reranker,
    cleaned,
    joined,
)
from .table import EncoderModel, EncoderSettings

try:
    import torch
    from safetensors import safe_open
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers.utils import logging
except ImportError as exc:
    raise MissingExtra(
        "searching by meaning needs torch and sentence-transformers, which are not installed",
        hint=INSTALL,
    ) from exc

# No warnings and progress bars on the terminal
logging.set_verbosity_error()
logging.disable_progress_bar()
_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}

Text = str | tuple[str, str]


class SentenceEncoder:
    """An encoder that runs here: one model for queries and passages, or one for each."""

    def __init__(
        self,
        name: str,
        model: EncoderModel,
        settings: EncoderSettings,
        folders: Sequence[Path],
    ) -> None:
        """Load it from the folders of `model.names`; raises EvidenceUnavailable if one is damaged or unfit."""
        self._model, self._batch = model, settings.batch
        loaded = [_load(folder, model, settings) for folder in folders]
        digests = list(map(folder_digest, folders))
        self._query, self._passage = loaded[0], loaded[-1]
        # Set at each call, since one model may encode both.
        self._query_tokens = model.query_tokens or self._query.max_seq_length
        self._passage_tokens = model.passage_tokens or self._passage.max_seq_length
        dimensions = {m.get_embedding_dimension() for m in loaded}
        if len(dimensions) > 1 or len(set(digests)) < len(digests):
            raise EvidenceUnavailable(
                f"{' and '.join(model.names)} are not a query and a passage encoder that belong together: dimensions"
                f" {dimensions}",
                hint="put the query encoder into one folder and the passage encoder into the other",
            )
        how = model.model_dump(
            include={
                "pooling",
                "query_prompt",
                "passage_prompt",
                "query_tokens",
                "passage_tokens",
                "pair",
            }
        )
        self.identity = EncoderIdentity(
            name=name.rpartition("/")[2],
            digest=digest_json({"models": digests, **how}),
            dimension=dimensions.pop(),
            where=name,
        )
        self._one_call = threading.Lock()

    def reads(self, language: str) -> bool:
        """Whether it knows a language (ISO 639)."""
        return self._model.reads(language)

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        """(n, dimension), in the order of the texts."""
        return self._encode(
            self._query,
            self._query.encode_query,
            list(map(cleaned, texts)),
            self._query_tokens,
            self._model.query_prompt,
        )

    def encode_passages(self, pairs: Pairs) -> Matrix:
        """(n, dimension) of (title, text), in the order of the pairs."""
        texts: list[Text] = []
        for title, text in pairs:
            if self._model.pair:
                texts.append((cleaned(title), cleaned(text)))
            else:
                texts.append(cleaned(joined(title, text)))
        prompt = self._model.passage_prompt
        if prompt is None:
            # The library looks for a prompt named "document" first, which it adds itself.
            prompt = self._passage.prompts.get("passage")
        return self._encode(
            self._passage,
            self._passage.encode_document,
            texts,
            self._passage_tokens,
            prompt,
        )

    def _encode(
        self,
        model: Any,
        encode: Callable[..., Matrix],
        texts: Sequence[Text],
        tokens: int | None,
        prompt: str | None,
    ) -> Matrix:
        """Encode texts, each after `prompt` and cut to `tokens`. Raises EvidenceUnavailable for damaged weights."""
        if not texts:
            return np.empty((0, self.identity.dimension), dtype=np.float32)
        with self._one_call, torch.inference_mode():
            if tokens is not None:
                model.max_seq_length = tokens
            vectors = encode(
                texts, prompt=prompt, batch_size=self._batch, show_progress_bar=False
            )
        if not np.isfinite(vectors).all():
            raise EvidenceUnavailable(
                f"encoder {self.identity.name} gives numbers that are not finite: its weights are damaged"
            )
        return vectors


def load_reranker(
    name: str,
    model: EncoderModel,
    settings: EncoderSettings,
    folder: Path,
) -> Reranker:
    """Load a cross-encoder, which reads the two halves of a passage as one text, title first.

    Raises EvidenceUnavailable when the folder holds no cross-encoder with one output.
    """
    with _loading(folder):
        loaded: Any = CrossEncoder(
            str(folder),
            device=settings.device,
            activation_fn=torch.nn.Identity(),
            max_length=model.passage_tokens,
            **_LOCAL,
        )
    _check_weights(loaded, folder)
    if loaded.num_labels != 1:
        raise EvidenceUnavailable(
            f"the model in {folder} has {loaded.num_labels} outputs, a cross-encoder has one"
        )

    def score(query: str, pairs: Pairs) -> Matrix:
        if not pairs:
            return np.empty(0, dtype=np.float32)
        inputs = []
        for title, text in pairs:
            inputs.append((cleaned(query), cleaned(f"{title} {text}".strip())))
        scores: Matrix = loaded.predict(
            inputs,
            batch_size=settings.batch,
            show_progress_bar=False,
        )
        return scores

    made = {"cross": folder_digest(folder), "tokens": model.passage_tokens}
    return Reranker(name, digest_json(made), score)


def _load(folder: Path, model: EncoderModel, settings: EncoderSettings) -> Any:
    """Load one model of an encoder. Raises EvidenceUnavailable."""
    if not model.pooling and not says_pooling(folder):
        raise EvidenceUnavailable(
            f"{folder} does not say how the vectors of its tokens become one (no pooling in modules.json)",
            hint='say it in medlive.toml, as in [evidence.own_encoders.NAME] query = "…", pooling = "mean" (or cls)',
        )
    with _loading(folder):
        loaded: Any
        if model.pooling:
            transformer = Transformer(
                str(folder),
                model_kwargs=_LOCAL,
                config_kwargs=_LOCAL,
            )
            size = transformer.get_embedding_dimension()
            pooling = Pooling(size, pooling_mode=model.pooling)
            loaded = SentenceTransformer(
                modules=[transformer, pooling], device=settings.device
            )
        else:
            loaded = SentenceTransformer(str(folder), device=settings.device, **_LOCAL)
    _check_weights(loaded, folder)
    return loaded


def _check_weights(loaded: Any, folder: Path) -> None:
    """Refuse a model of which the files hold only a part: the library fills the rest with random numbers."""
    stored: set[str] = set()
    for file in weights_of(folder):
        with safe_open(str(file), framework="np") as handle:
            stored.update(handle.keys())
    endings = {name.split(".", 1)[-1] for name in stored} | stored
    missing = []
    for name, _ in loaded[0].auto_model.named_parameters():
        short = name.split(".", 1)[-1]
        if "pooler." not in name and not {name, short} & endings:
            missing.append(name)
    if missing:
        raise EvidenceUnavailable(
            f"the weights in {folder} lack {len(missing)} of the model's tensors, {missing[0]} first",
            hint="fetch the model again: it is not all there, or is of another kind",
        )


@contextmanager
def _loading(folder: Path) -> Iterator[None]:
    """Any error of loading becomes EvidenceUnavailable."""
    try:
        yield
    # Damaged files raise errors of four libraries without a common base.
    except Exception as exc:
        cause = str(exc).strip().partition("\n")[0] or type(exc).__name__
        raise EvidenceUnavailable(
            f"the model in {folder} cannot be loaded: {cause}",
            hint="fetch the model again: a file is damaged, half downloaded, or not of this model",
        ) from exc
