"""An encoder behind an embeddings endpoint in OpenAI's form (`POST /embeddings`).

What an endpoint runs cannot be looked at: it is known by the name of its model and by how near ten fixed texts are
to each other, so that a model that changed under its name is noticed.
"""

import os
from collections.abc import Sequence

import httpx2
import numpy as np
import openai

from medlive.errors import ConfigError, EvidenceUnavailable
from medlive.guard.trust import tls_context
from medlive.integrity.digest import digest_json

from .model import (
    EncoderIdentity,
    Matrix,
    Pairs,
    cleaned,
    joined,
)
from .table import EncoderModel, EncoderSettings

# The first five are encoded as queries, the others as passages.
PROBE = (
    "fever and cough in a child",
    "小儿发热咳嗽",
    "amoxicillin dose by weight",
    "阿莫西林的剂量",
    "chest pain that radiates to the left arm",
    "胸痛放射至左臂",
    "metformin in chronic kidney disease",
    "二甲双胍与肾功能不全",
    "a randomized trial of aspirin in pregnancy",
    "Where is the railway station?",
)
TOLERANCE = 0.005
"""By how much the cosines of two probes may differ: servers round, and other models differ by far more."""

_RETRIES = 3


class EndpointEncoder:
    """Asks an endpoint for vectors, in batches and within its budget."""

    def __init__(
        self,
        name: str,
        model: EncoderModel,
        settings: EncoderSettings,
        known: EncoderIdentity | None,
    ) -> None:
        """Ask for the probe.

        Args:
            name: The name in the configuration.
            model: The endpoint and its models.
            settings: How many texts go in one request.
            known: The identity that an index keeps of it, which is taken over if the probe agrees.

        Raises:
            EvidenceUnavailable: if the endpoint cannot be reached or gives something other than vectors.
            ConfigError: if the variable with its key is not set.
        """
        self._model, self._batch = model, settings.batch
        self.tokens = 0
        """Used so far, as the endpoint counts them."""
        key = os.environ.get(model.api_key_env) if model.api_key_env else "none"
        if not key:
            raise ConfigError(
                f"{model.api_key_env} is not set, which holds the key of encoder {name}"
            )
        self._client = openai.OpenAI(
            api_key=key,
            base_url=model.base_url,
            max_retries=_RETRIES,
            http_client=httpx2.Client(timeout=model.timeout_s, verify=tls_context()),
        )
        # From variables that only OpenAI's client reads: they would go to every endpoint.
        self._client.organization = self._client.project = None
        self._client._custom_headers = {}
        vectors = np.concatenate(
            [
                self._ask(model.names[0], PROBE[:5], model.query_prompt),
                self._ask(model.names[-1], PROBE[5:], model.passage_prompt),
            ]
        )
        near = (vectors @ vectors.T).astype(float)
        probe = tuple(near[np.triu_indices(len(PROBE), 1)].round(4).tolist())
        dimension = vectors.shape[1]
        made = {"endpoint": model.names, "probe": probe, "dimension": dimension}
        self.identity = EncoderIdentity(
            name=name,
            digest=digest_json(made),
            dimension=dimension,
            probe=probe,
            where=name,
        )
        if (
            known is not None
            and (known.dimension, len(known.probe)) == (dimension, len(probe))
            and np.allclose(known.probe, probe, rtol=0, atol=TOLERANCE)
        ):
            self.identity = known

    def reads(self, language: str) -> bool:
        """Whether it knows a language (ISO 639)."""
        return self._model.reads(language)

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        """(n, dimension), in the order of the texts."""
        vectors = self._ask(
            self._model.names[0],
            texts,
            self._model.query_prompt,
        )
        dimension = self.identity.dimension
        if vectors.shape[1] != dimension:
            raise self._wrong(f"answered vectors of other lengths than {dimension}")
        return vectors

    def encode_passages(self, pairs: Pairs) -> Matrix:
        """(n, dimension) of (title, text), in the order of the pairs."""
        texts = [joined(title, text) for title, text in pairs]
        return self._ask(
            self._model.names[-1],
            texts,
            self._model.passage_prompt,
        )

    def _ask(
        self,
        name: str,
        texts: Sequence[str],
        prompt: str | None,
    ) -> Matrix:
        """Return vectors of length one of the texts, each after `prompt`, by the model `name`, in batches."""
        rows = []
        for start in range(0, len(texts), self._batch):
            batch = []
            for text in texts[start : start + self._batch]:
                # An empty input is refused by most endpoints.
                batch.append((prompt or "") + cleaned(text) or " ")
            rows += self._request(name, batch)
        try:
            vectors = np.array(rows, dtype=np.float32)
        except (ValueError, TypeError) as exc:
            raise self._wrong(
                f"answered vectors of different lengths, or no numbers: {exc}"
            ) from exc
        if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():
            raise self._wrong("answered something other than finite numbers")
        # Not every endpoint gives vectors of length one, and an inner product wants them.
        norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
        np.divide(vectors, norms, out=vectors, where=norms > 0)
        return vectors

    def _request(
        self,
        name: str,
        texts: list[str],
    ) -> list[list[float]]:
        """Return a vector for each text, unchecked."""
        spent = self.tokens * (self._model.usd_per_million_tokens or 0) / 1e6
        if self._model.max_usd is not None and spent >= self._model.max_usd:
            raise EvidenceUnavailable(
                f"the embeddings cost {spent:.2f} USD, the limit is {self._model.max_usd:.2f}",
                hint="raise max_usd of [evidence.own_encoders.NAME]; what is embedded is kept",
            )
        try:
            reply = self._client.embeddings.create(
                model=name,
                input=texts,
                encoding_format="float",
            )
            ordered = sorted(reply.data, key=lambda row: row.index)
            rows = {row.index: row.embedding for row in ordered}
            self.tokens += reply.usage.total_tokens if reply.usage else 0
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as exc:
            raise self._wrong(f"gave no embeddings: {str(exc)[:300]}") from exc
        if list(rows) != list(range(len(texts))):
            raise self._wrong(f"answered {len(rows)} vectors for {len(texts)} texts")
        return list(rows.values())

    def _wrong(self, what: str) -> EvidenceUnavailable:
        return EvidenceUnavailable(
            f"the embeddings endpoint {self._model.base_url} {what}",
            hint="check base_url, the model's name and the key in [evidence.own_encoders], or search by bm25",
        )
