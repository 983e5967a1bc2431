"""MedCPT's encoders for ONNX Runtime: exported once, compared with torch on the machine they will run on.

A full-precision export must give torch's vectors (cosine of at least `AGREEMENT` on every probe text), or it is
not used. The 8-bit one gives other vectors, whose digest is another: it is measured, recorded, and used only when
it is asked for.
"""

import math
import os
import shutil
import tempfile
import time
import warnings
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from medlive.digest import digest_file
from medlive.errors import EvidenceUnavailable, MissingExtra
from medlive.evidence.encoders.exports import AGREEMENT, RECORD, Export, Precision, export_folder, recorded_export
from medlive.evidence.encoders.folders import INSTALL, NOT_INSTALLED, EncoderSettings, ModelFolder, Role
from medlive.evidence.encoders.tokens import PASSAGE_TOKENS, QUERY_TOKENS, Features, Text, Tokenizer

try:
    import onnxruntime
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process
except ImportError as exc:
    raise MissingExtra(NOT_INSTALLED, hint=INSTALL) from exc

from medlive.evidence.encoders.torch import TorchEncoder

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class OnnxEncoder:
    """A BERT and its pooling, in ONNX Runtime on the CPU."""

    def __init__(self, file: Path, settings: EncoderSettings) -> None:
        """Raises EvidenceUnavailable when the file cannot be loaded."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if settings.threads:
            options.intra_op_num_threads = settings.threads
        try:
            self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        # ONNX Runtime's own errors have no common base but this.
        except Exception as exc:
            raise EvidenceUnavailable(f"{file} cannot be loaded: {exc}", hint=f"remove {file.parent}") from exc

    def __call__(self, features: Features) -> NDArray[np.float32]:
        """(n, dimension): the first token's last hidden state."""
        vectors: NDArray[np.float32] = self._session.run(None, {name: features[name] for name in _INPUTS})[0]
        return vectors


def open_export(model: ModelFolder, precision: Precision, settings: EncoderSettings) -> OnnxEncoder:
    """The model's export, made now if it was not yet.

    Raises EvidenceUnavailable when it cannot be made, its file is not the one that was made, or its vectors are
    not torch's at full precision.
    """
    record = recorded_export(model, settings) or export_model(model, settings)
    folder = export_folder(model, settings)
    file = folder / f"{precision}.onnx"
    if not file.is_file() or digest_file(file) != record.files[precision]:
        raise EvidenceUnavailable(f"{file} is not what was exported", hint=f"remove {folder}")
    if precision == "float32" and record.cosine["float32"] < AGREEMENT:
        raise EvidenceUnavailable(
            f"{file} gives other vectors than {model.folder} (cosine {record.cosine['float32']:.4f})",
            hint='use the backend "torch"',
        )
    return OnnxEncoder(file, settings)


def export_model(model: ModelFolder, settings: EncoderSettings) -> Export:
    """Export a model at both precisions, compare each with torch, and keep the record beside them.

    Takes a minute and about 1.3 times the weights on disk. Raises EvidenceUnavailable when it cannot be done; then
    nothing is left behind.
    """
    torch_encoder = TorchEncoder(model, settings)
    tokenizer = Tokenizer(model.folder, QUERY_TOKENS if model.role is Role.QUERY else PASSAGE_TOKENS)
    folder = export_folder(model, settings)
    work: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".export-", dir=folder.parent))
        _write(torch_encoder, tokenizer, work)
        record = _compare(model, torch_encoder, tokenizer, work, settings)
        (work / RECORD).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(work, folder)
    except (OSError, RuntimeError, ValueError) as exc:
        raise EvidenceUnavailable(f"{model.folder} cannot be exported to {folder}: {exc}") from exc
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)
    return record


class _Positional(torch.nn.Module):  # type: ignore[misc]
    """The encoder with its inputs in a row, as the exporter wants them."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        values = (input_ids, attention_mask, token_type_ids)
        vectors: torch.Tensor = self.encoder(dict(zip(_INPUTS, values, strict=True)))["sentence_embedding"]
        return vectors


def _write(encoder: TorchEncoder, tokenizer: Tokenizer, work: Path) -> None:
    features = tokenizer(_probes(tokenizer.length)[:2])
    axes = {name: {0: "texts", 1: "tokens"} for name in _INPUTS} | {"vectors": {0: "texts"}}
    with warnings.catch_warnings(), torch.no_grad():
        # The tracing exporter is called old and warns of what it makes constant; the new one needs another
        # package. What it makes of this model is compared with torch, text by text, below.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            # In evaluation mode from the start: the exporter puts a module back into the mode it found, and the
            # encoder inside it, which the export is compared with, would drop values at random.
            _Positional(encoder.module).eval(),
            tuple(torch.from_numpy(features[name]).to(encoder.device) for name in _INPUTS),
            str(work / "float32.onnx"),
            input_names=list(_INPUTS),
            output_names=["vectors"],
            dynamic_axes=axes,
            opset_version=18,
            dynamo=False,
        )
    # Without its optimisation: the fused graph was no faster in 8 bits than the plain one.
    quant_pre_process(
        work / "float32.onnx", work / "prepared.onnx", skip_optimization=True, skip_symbolic_shape=True
    )
    quantize_dynamic(work / "prepared.onnx", work / "int8.onnx", weight_type=QuantType.QInt8)
    (work / "prepared.onnx").unlink()


def _compare(
    model: ModelFolder, encoder: TorchEncoder, tokenizer: Tokenizer, work: Path, settings: EncoderSettings
) -> Export:
    exports: dict[Precision, OnnxEncoder] = {
        precision: OnnxEncoder(work / f"{precision}.onnx", settings) for precision in ("float32", "int8")
    }
    probes = _probes(tokenizer.length)
    expected = encoder(tokenizer(probes))
    cosine = {
        "float32": _least_cosine(exports["float32"](tokenizer(probes)), expected),
        "int8": _least_cosine(np.concatenate([exports["int8"](tokenizer([probe])) for probe in probes]), expected),
    }
    batch = tokenizer([probes[-1]])
    speed = {"torch": _speed(encoder, batch)} | {name: _speed(run, batch) for name, run in exports.items()}
    return Export.model_validate(
        {
            "version": 1,
            "model": model.digest,
            "made": datetime.now(UTC),
            "made_with": {name: version(name) for name in ("torch", "onnx", "onnxruntime", "transformers")},
            "files": {precision: digest_file(work / f"{precision}.onnx") for precision in exports},
            "cosine": cosine,
            "speed": speed,
        }
    )


def _least_cosine(got: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    lengths = np.linalg.norm(got, axis=1) * np.linalg.norm(expected, axis=1)
    return float(((got * expected).sum(axis=1) / lengths).min())


def _speed(run: TorchEncoder | OnnxEncoder, batch: Features) -> float:
    run(batch)
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        run(batch)
        best = min(best, time.perf_counter() - start)
    return len(batch["input_ids"]) / best


def _probes(length: int) -> list[Text]:
    """Texts of many lengths, the longest last: what a mistake in masks, positions or types would show on."""
    texts = (
        "fever",
        "Can amoxicillin be given to a child of 14 months with otitis media, 40 mg/kg a day?",
        "",
        "高血压病人可以口服硝苯地平控释片吗",
        "No evidence of pulmonary embolism was found; D-dimer 0.3 µg/mL, troponin negative twice. " * 3,
        "Chest pain on exertion, relieved by rest within minutes, in a man of 58 who smokes. " * length,
    )
    if length == QUERY_TOKENS:
        return list(texts)
    return [(text[:60], text) for text in texts]
