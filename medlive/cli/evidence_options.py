"""What the evidence commands share: where the index lies, and where models are looked for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medlive.config import load_settings

if TYPE_CHECKING:
    from medlive.evidence.encoder import EncoderSettings

IndexOption = Annotated[
    Path | None, typer.Option("--index", help="The index's folder; default: under MEDLIVE_HOME.")
]
ModelsOption = Annotated[
    Path | None, typer.Option("--models", help="A folder with one folder per model, looked into first.")
]


def index_folder(given: Path | None) -> Path:
    """The folder that was given, or the one under MEDLIVE_HOME."""
    from medlive.service.paths import index_path

    return given or index_path(load_settings().settings)


def encoder_settings(models: Path | None) -> "EncoderSettings":
    """Where models are looked for and how they are run."""
    from medlive.evidence.encoder import EncoderSettings

    return EncoderSettings(home=load_settings().settings.home, models=models)
