"""A BERT in torch, from a folder that is checked to be whole; nothing is fetched and no code of it is run."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medlive.errors import EvidenceUnavailable, MissingExtra
from medlive.evidence.encoders.folders import INSTALL, NOT_INSTALLED, EncoderSettings, ModelFolder
from medlive.evidence.encoders.tokens import Features, quietly

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


class TorchEncoder:
    """A BERT and its pooling, in torch, through sentence-transformers."""

    def __init__(self, model: ModelFolder, settings: EncoderSettings) -> None:
        """Raises EvidenceUnavailable when the weights cannot be loaded or are not all there."""
        self.device = settings.device
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
        _require_all(model, transformer.auto_model)
        pooling = Pooling(model.dimension, pooling_mode="cls")
        self.module = torch.nn.Sequential(transformer, pooling).to(self.device).eval()

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """(n, dimension): the first token's last hidden state."""
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array).to(self.device) for name, array in features.items()}
            vectors: NDArray[np.float32] = self.module(tensors)["sentence_embedding"].float().cpu().numpy()
        return vectors


class TorchClassifier:
    """A BERT with a classifier on top, in torch."""

    def __init__(self, model: ModelFolder, settings: EncoderSettings) -> None:
        """Raises EvidenceUnavailable when the weights cannot be loaded, or the classifier has not one output."""
        self.device = settings.device
        if settings.threads:
            torch.set_num_threads(settings.threads)

        def load() -> Any:
            return AutoModelForSequenceClassification.from_pretrained(
                str(model.folder), **_LOCAL, **_weights(model)
            )

        loaded = _load(model, load)
        _require_all(model, loaded)
        if loaded.config.num_labels != 1:
            raise EvidenceUnavailable(
                f"the classifier in {model.folder} has {loaded.config.num_labels} outputs, a cross-encoder has one"
            )
        self._model = loaded.to(self.device).eval()

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """(n, 1): the logits."""
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array).to(self.device) for name, array in features.items()}
            logits: NDArray[np.float32] = self._model(**tensors).logits.float().cpu().numpy()
        return logits


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


def _require_all(model: ModelFolder, loaded: Any) -> None:
    """Refuse weights that leave a part of the model to chance: the library would fill it with random numbers."""
    needed = {_plain(name) for name in loaded.state_dict()}
    if model.role.gives_vectors:
        needed = {name for name in needed if not name.startswith("pooler.")}
    missing = sorted(needed - {_plain(name) for name in _stored_names(model.weights)})
    if missing:
        raise EvidenceUnavailable(
            f"{model.weights} lacks {len(missing)} of the model's tensors, {missing[0]} first",
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
