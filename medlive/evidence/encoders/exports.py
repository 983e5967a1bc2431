"""The record of a model's ONNX export: how it compares with torch here, and whether it is worth taking."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medlive.errors import EvidenceUnavailable
from medlive.evidence.encoders.folders import EncoderSettings, ModelFolder

AGREEMENT = 0.999
"""The least cosine between an export's vector and torch's with which the export counts as the same encoder."""
WORTH = 1.1
"""How many times as fast as torch an export must have been to be taken unasked."""
RECORD = "export.json"

Precision = Literal["float32", "int8"]


class Export(BaseModel):
    """What was exported, and how it compares with torch on this machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1]
    model: str
    """The digest of the model folder."""
    made: datetime
    made_with: dict[str, str]
    """Package → version."""
    files: dict[Precision, str]
    """Precision → digest of `<precision>.onnx`."""
    cosine: dict[Precision, Annotated[float, Field(ge=-1.001, le=1.001)]]
    """The least over the probe texts, each against torch."""
    speed: dict[Literal["torch", "float32", "int8"], float]
    """Texts a second, the longest that the role reads, one at a time; the best of three."""


def export_folder(model: ModelFolder, settings: EncoderSettings) -> Path:
    """Where a model's ONNX export lies, made or not."""
    return settings.home / "models" / "onnx" / model.digest.removeprefix("sha256:")


def recorded_export(model: ModelFolder, settings: EncoderSettings) -> Export | None:
    """The record of a model's export; None when none was made.

    Raises EvidenceUnavailable for a record that cannot be read.
    """
    file = export_folder(model, settings) / RECORD
    try:
        return Export.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError, UnicodeDecodeError) as exc:
        raise EvidenceUnavailable(f"{file} cannot be read", hint=f"remove {file.parent}") from exc


def worth_taking(models: Sequence[ModelFolder], settings: EncoderSettings) -> bool:
    """Whether every model has an export that gives torch's vectors and was faster here."""
    records = [recorded_export(model, settings) for model in models]
    return all(
        record is not None
        and record.cosine["float32"] >= AGREEMENT
        and record.speed["float32"] >= WORTH * record.speed["torch"]
        for record in records
    )
