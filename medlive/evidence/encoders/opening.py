"""Open the encoder or the reranker that a name means."""

from pathlib import Path

from medlive.errors import UsageError

from .folders import find_folder
from .model import Encoder, EncoderIdentity, Reranker
from .table import EncoderSettings


def open_encoder(
    name: str,
    *,
    settings: EncoderSettings,
    known: EncoderIdentity | None = None,
) -> Encoder:
    """Open an encoder by a name of the table, a sentence-transformers folder, or a name on the hub.

    Args:
        name: As in `EncoderSettings.find`.
        settings: Where models are looked for and how they are run.
        known: The identity that an index keeps of it; an endpoint takes it over if its probe agrees.

    Raises:
        MissingExtra: without `medlive[dense]`.
        EvidenceUnavailable: for a model that is missing, damaged or unfit.
        ConfigError: for an unknown name.
    """
    model = settings.find(name)
    if model.base_url:
        from .endpoint import EndpointEncoder

        return EndpointEncoder(name, model, settings, known)
    # A missing model is reported before a missing package: torch is not in every install, and takes seconds.
    folders = [find_folder(each, settings) for each in model.names]
    from .sentence import SentenceEncoder

    return SentenceEncoder(name, model, settings, folders)


def open_reranker(name: str, *, settings: EncoderSettings) -> Reranker:
    """Open a cross-encoder: that of an encoder of the table, a folder, or a name on the hub.

    Raises as `open_encoder` does, and UsageError for a name without a cross-encoder.
    """
    table = settings.table()
    reranker = ""
    if name in table:
        reranker = table[name].reranker
    elif "/" in name or Path(name).is_dir():
        reranker = name  # The cross-encoder itself
    if not reranker:
        names = [each for each, model in table.items() if model.reranker]
        raise UsageError(
            f"{name!r} has no reranker",
            hint=f"name an encoder that has one ({', '.join(names)}), a cross-encoder's folder, or a name on the hub"
            " (org/model), or leave out [evidence] reranker",
        )
    folder = find_folder(reranker, settings)
    from .sentence import load_reranker

    return load_reranker(name, settings.find(name), settings, folder)
