"""Where MedCPT's models are looked for, and what was found there.

Nothing here needs torch, and nothing goes to the network: a model is put in place by a person.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from medlive.errors import EvidenceUnavailable
from medlive.evidence.encoders.exports import worth_taking
from medlive.evidence.encoders.folders import (
    TOKENIZER_FILES,
    WEIGHTS,
    EncoderSettings,
    ModelFolder,
    Role,
    missing_files,
    open_folder,
)

PACKAGES = ("torch", "transformers", "sentence_transformers", "onnx", "onnxruntime")
"""What the extra `medcpt` brings."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place that was looked at."""

    origin: Literal["configured", "home", "huggingface"]
    folder: Path
    state: Literal["absent", "incomplete", "unusable", "complete"]
    found: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """The files that are not there; alternatives are separated by " or "."""
    problem: str | None = None
    """Why it cannot be used, in a sentence."""


@dataclass(frozen=True, slots=True)
class FoundModel:
    """What is known of one needed model."""

    role: Role
    repository: str
    places: tuple[Place, ...]
    """Every place looked at, in order."""
    folder: Path | None
    """The first place that is not absent, if it is complete: a damaged one is mended, not passed over."""
    digest: str | None
    dimension: int | None
    missing_packages: tuple[str, ...]
    """Of the extra `medcpt`; empty when it is installed."""
    backend: Literal["torch", "onnx"] | None
    """That would run it: an ONNX export where one is configured, or was made and proved faster.
    None where the model or a package is missing, or the export is damaged."""


def find_models(settings: EncoderSettings, *, digests: bool = True) -> list[FoundModel]:
    """What is known of each of MedCPT's three models, in the order query, article, cross.

    `digests=False` leaves the digests out, which otherwise read every weight. Raises nothing for what is missing
    or damaged: that is what it reports.
    """
    packages = missing_packages()
    return [_find(role, settings, digests, packages) for role in Role]


def _find(role: Role, settings: EncoderSettings, digests: bool, packages: tuple[str, ...]) -> FoundModel:
    places: list[Place] = []
    chosen: ModelFolder | None = None
    for origin, folder in places_for(role, settings):
        first = all(place.state == "absent" for place in places)
        place, model = _look(role, origin, folder, digests and first)
        places.append(place)
        if first:
            chosen = model
    return FoundModel(
        role=role,
        repository=role.repository,
        places=tuple(places),
        folder=chosen.folder if chosen else None,
        digest=(chosen.digest or None) if chosen else None,
        dimension=chosen.dimension if chosen else None,
        missing_packages=packages,
        backend=_backend(chosen, settings, packages),
    )


def _backend(
    model: ModelFolder | None, settings: EncoderSettings, packages: tuple[str, ...]
) -> Literal["torch", "onnx"] | None:
    if model is None or packages:
        return None
    if not model.role.gives_vectors or settings.backend == "torch":
        return "torch"
    try:
        taken = settings.backend != "auto" or worth_taking([model], settings)
    except EvidenceUnavailable:
        return None
    return "onnx" if taken else "torch"


def _look(
    role: Role, origin: Literal["configured", "home", "huggingface"], folder: Path, digests: bool
) -> tuple[Place, ModelFolder | None]:
    if not folder.is_dir():
        return Place(origin, folder, "absent"), None
    found = tuple(name for name in ("config.json", *WEIGHTS, *TOKENIZER_FILES) if (folder / name).is_file())
    missing = tuple(missing_files(folder))
    if missing:
        return Place(origin, folder, "incomplete", found, missing), None
    try:
        model = open_folder(folder, role, digests=digests)
    except EvidenceUnavailable as exc:
        return Place(origin, folder, "unusable", found, problem=exc.message), None
    return Place(origin, folder, "complete", found), model


def places_for(
    role: Role, settings: EncoderSettings
) -> Iterator[tuple[Literal["configured", "home", "huggingface"], Path]]:
    """Where a model is looked for: the configured folder, MEDLIVE_HOME/models, the Hugging Face cache."""
    if settings.models is not None:
        yield "configured", settings.models / role.value
    yield "home", settings.home / "models" / role.value
    cache = hugging_face_cache(settings.environment) / f"models--{role.repository.replace('/', '--')}"
    yield "huggingface", _snapshot(cache, settings.revisions.get(role.repository))


def hugging_face_cache(environment: Mapping[str, str]) -> Path:
    """The folder in which the Hugging Face libraries keep what they fetched, by the variables that they read."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(name):
            return Path(environment[name]).expanduser()
    if environment.get("HF_HOME"):
        return Path(environment["HF_HOME"]).expanduser() / "hub"
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def _snapshot(cache: Path, revision: str | None) -> Path:
    """The snapshot of a revision (a commit or a branch, `main` when None), there or not."""
    name = revision or "main"
    try:
        commit = (cache / "refs" / name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = name
    return cache / "snapshots" / commit


def missing_packages() -> tuple[str, ...]:
    """The packages of the extra `medcpt` that are not installed."""
    return tuple(name for name in PACKAGES if find_spec(name) is None)
