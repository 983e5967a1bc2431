"""What the evidence commands share: where the index lies, and where models are looked for."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from medlive.config import load_settings

if TYPE_CHECKING:
    from medlive.evidence.encoders.folders import EncoderSettings

IndexOption = Annotated[Path | None, Option("--index", help="The index's folder; default: under MEDLIVE_HOME.")]
ModelsOption = Annotated[Path | None, Option("--models", help="A folder of models [as configured].")]


def index_folder(given: Path | None) -> Path:
    """The folder that was given, or the one under MEDLIVE_HOME."""
    from medlive.service.paths import index_path

    return given or index_path(load_settings().settings)


def encoder_settings(models: Path | None) -> "EncoderSettings":
    """Where models are looked for and how they are run: as configured, `models` before the configured folder."""
    from medlive.service.paths import encoder_settings as configured

    found = configured(load_settings().settings)
    return found if models is None else replace(found, models=models)
