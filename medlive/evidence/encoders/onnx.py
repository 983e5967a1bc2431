"""MedCPT's encoders for ONNX Runtime: exported at first use, and compared with torch then.

A full-precision export must give torch's vectors (cosine of at least `AGREEMENT` on every probe text). The 8-bit
one gives other vectors, whose digest is another.
"""

import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from medlive.errors import EvidenceUnavailable, MissingExtra
from medlive.evidence.encoders.bert import (
    INPUTS,
    PASSAGE_TOKENS,
    QUERY_TOKENS,
    Features,
    Text,
    Tokenizer,
    TorchModel,
)
from medlive.evidence.encoders.folders import (
    INSTALL,
    NOT_INSTALLED,
    EncoderSettings,
    ModelFolder,
    Role,
)

try:
    import onnxruntime
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process
except ImportError as exc:
    raise MissingExtra(NOT_INSTALLED, hint=INSTALL) from exc

AGREEMENT = 0.999
"""The least cosine between a full-precision export's vector and torch's."""
_PROBES = (
    "fever",
    "Can amoxicillin be given to a child of 14 months with otitis media, 40 mg/kg a day?",
    "",
    "高血压病人可以口服硝苯地平控释片吗",
    "Chest pain on exertion, relieved by rest within minutes, in a man of 58 who smokes. "
    * PASSAGE_TOKENS,
)
"""Texts of many lengths, the longest last: what a mistake in masks, positions or types would show on."""

Precision = Literal["float32", "int8"]


class OnnxModel:
    """A BERT and its pooling, in ONNX Runtime on the CPU."""

    def __init__(self, file: Path, settings: EncoderSettings) -> None:
        """Raises EvidenceUnavailable when the file cannot be loaded."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if settings.threads:
            options.intra_op_num_threads = settings.threads
        try:
            self._session = onnxruntime.InferenceSession(
                str(file), options, providers=["CPUExecutionProvider"]
            )
        # ONNX Runtime's own errors have no common base but this.
        except Exception as exc:
            raise EvidenceUnavailable(
                f"{file} cannot be loaded: {exc}", hint=f"remove {file.parent}"
            ) from exc

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """(n, dimension): the first token's last hidden state."""
        vectors: NDArray[np.float32] = self._session.run(
            None, {name: features[name] for name in INPUTS}
        )[0]
        return vectors


def open_export(
    model: ModelFolder, precision: Precision, settings: EncoderSettings
) -> OnnxModel:
    """The model's export at that precision; both are made now (a minute, 1.3 times the weights) if they were not.

    Raises EvidenceUnavailable when it cannot be made or loaded, or its vectors are not torch's at full precision.
    """
    folder = settings.home / "models" / "onnx" / model.digest.removeprefix("sha256:")
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=folder.parent) as work:
            try:
                _export(model, Path(work) / "onnx", settings)
            except (OSError, RuntimeError, ValueError) as exc:
                raise EvidenceUnavailable(
                    f"{model.folder} cannot be exported to {folder}: {exc}"
                ) from exc
            shutil.move(Path(work) / "onnx", folder)
    return OnnxModel(folder / f"{precision}.onnx", settings)


class _Positional(torch.nn.Module):  # type: ignore[misc]
    """The encoder with its inputs in a row and the first token's vector as output, as the exporter wants them."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        values = dict(
            zip(INPUTS, (input_ids, attention_mask, token_type_ids), strict=True)
        )
        return self.encoder(**values).last_hidden_state[:, 0]


def _export(model: ModelFolder, work: Path, settings: EncoderSettings) -> None:
    """Write both precisions, and compare the full one with torch."""
    encoder = TorchModel(model, settings)
    query = model.role is Role.QUERY
    tokenizer = Tokenizer(model.folder, QUERY_TOKENS if query else PASSAGE_TOKENS)
    probes: list[Text] = (
        list(_PROBES) if query else [(text[:60], text) for text in _PROBES]
    )
    features = tokenizer(probes[:2])
    full = work / "float32.onnx"
    work.mkdir()
    with warnings.catch_warnings(), torch.no_grad():
        # The tracing exporter is called old and warns of what it makes constant; the new one needs another
        # package. What it makes of this model is compared with torch, text by text, below.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            # In evaluation mode from the start: the exporter puts a module back into the mode it found.
            _Positional(encoder.module).eval(),
            tuple(
                torch.from_numpy(features[name]).to(encoder.device) for name in INPUTS
            ),
            str(full),
            input_names=list(INPUTS),
            output_names=["vectors"],
            dynamic_axes={name: {0: "texts", 1: "tokens"} for name in INPUTS}
            | {"vectors": {0: "texts"}},
            opset_version=18,
            dynamo=False,
        )
    # Without its optimisation: the fused graph was no faster in 8 bits than the plain one.
    quant_pre_process(
        full, work / "prepared.onnx", skip_optimization=True, skip_symbolic_shape=True
    )
    quantize_dynamic(
        work / "prepared.onnx", work / "int8.onnx", weight_type=QuantType.QInt8
    )
    (work / "prepared.onnx").unlink()
    expected, got = (
        encoder(tokenizer(probes)),
        OnnxModel(full, settings)(tokenizer(probes)),
    )
    lengths = np.linalg.norm(got, axis=1) * np.linalg.norm(expected, axis=1)
    cosine = float(((got * expected).sum(axis=1) / lengths).min())
    if cosine < AGREEMENT:
        raise ValueError(
            f'its vectors are not those of torch (cosine {cosine:.4f}); use backend = "torch"'
        )
