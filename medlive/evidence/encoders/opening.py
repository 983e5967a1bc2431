"""Open the encoder or the reranker that a name means."""

from pathlib import Path

from medlive.errors import UsageError
from medlive.evidence.encoder import Encoder, Reranker
from medlive.evidence.encoders.folders import (
    EncoderSettings,
    Role,
    find_folder,
    open_folder,
)


def open_encoder(name: str | Path, *, settings: EncoderSettings) -> Encoder:
    """The encoder meant by a name: "medcpt", or a folder with `MedCPT-Query-Encoder` and `MedCPT-Article-Encoder`.

    Raises MissingExtra without `medlive[medcpt]`, EvidenceUnavailable for a model that is missing, damaged
    or another's, UsageError for an unknown name.
    """
    if str(name) == "medcpt":
        query, article = (
            find_folder(role, settings) for role in (Role.QUERY, Role.ARTICLE)
        )
    else:
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise UsageError(
                f"{str(name)!r} is neither an encoder's name nor a folder",
                hint='"medcpt", or a folder with models in it',
            )
        query, article = (
            open_folder(folder / role.value, role)
            for role in (Role.QUERY, Role.ARTICLE)
        )
    # MedCPT needs torch, which not every install has.
    from medlive.evidence.encoders.medcpt import MedCPTEncoder

    return MedCPTEncoder(query, article, settings)


def open_reranker(name: str | Path, *, settings: EncoderSettings) -> Reranker:
    """The cross-encoder meant by a name: "medcpt", or a folder that holds `MedCPT-Cross-Encoder` or is it.

    Raises as `open_encoder` does.
    """
    if str(name) == "medcpt":
        model = find_folder(Role.CROSS, settings)
    else:
        folder = Path(name).expanduser()
        inner = folder / Role.CROSS.value
        model = open_folder(inner if inner.is_dir() else folder, Role.CROSS)
    from medlive.evidence.encoders.medcpt import MedCPTReranker

    return MedCPTReranker(model, settings)
