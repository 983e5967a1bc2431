"""MedCPT's model folders: where they are looked for, what belongs into one, and how they are downloaded.

Nothing here needs torch. A search never goes to the network; `download_models` does, when a person asks for it.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, PositiveInt, ValidationError

from medlive.digest import digest_file, digest_json
from medlive.errors import EvidenceUnavailable, ServiceUnavailable
from medlive.trust import tls_context

NOT_INSTALLED = "MedCPT needs torch and transformers, which are not installed"
INSTALL = "pip install 'medlive[medcpt]'"
DOWNLOAD = "medlive evidence models --download"
PACKAGES = ("torch", "transformers", "faiss")
"""What the extra `medcpt` brings."""
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""In the order in which they are taken."""
TOKENIZER_FILES = (
    "added_tokens.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)

_SILENCE_S = 60.0
"""Seconds without a byte after which a download counts as failed."""


class Role(StrEnum):
    """What a model does in a search; the value is the name of its folder."""

    QUERY = "MedCPT-Query-Encoder"
    ARTICLE = "MedCPT-Article-Encoder"
    CROSS = "MedCPT-Cross-Encoder"

    @property
    def repository(self) -> str:
        """The name under which it is published on the Hugging Face hub."""
        return f"ncbi/{self.value}"

    @property
    def gives_vectors(self) -> bool:
        """Whether it encodes a text by itself, rather than score a pair."""
        return self is not Role.CROSS

    @property
    def purpose(self) -> str:
        """What it is for, in the user's words."""
        return _PURPOSES[self]

    @property
    def revision(self) -> str:
        """The commit that is downloaded."""
        return _REVISIONS[self]


_PURPOSES = {
    Role.QUERY: "queries to vectors",
    Role.ARTICLE: "passages to vectors",
    Role.CROSS: "re-ranking (optional)",
}
_REVISIONS = {
    Role.QUERY: "d83a36cc6b8e3a5c5e9d9d6ba156808c1643dcbc",
    Role.ARTICLE: "d05a736da4bb84ee4057b7f7999485be6ed85465",
    Role.CROSS: "71caf65d4927987813984f54c284405a13fcca49",
}


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """Where models are looked for and how they are run."""

    home: Path  # MEDLIVE_HOME: `models/<name>` under it is looked into
    # A folder that holds one folder per model, looked into first
    models: Path | None = None
    device: str = "cpu"  # "cpu", "cuda", "cuda:1"
    batch: int = 16  # Texts encoded at once
    threads: int | None = None  # Of the CPU; None: the library's choice
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """Where HF_HOME and its kin are read from."""


class _Config(BaseModel):
    """What is read of a model's config.json."""

    model_type: Literal["bert"]
    hidden_size: PositiveInt
    max_position_embeddings: int = 512
    architectures: tuple[str, ...] = ("BertModel",)


@dataclass(frozen=True)
class ModelFolder:
    """A model folder that has been looked through and can be loaded."""

    role: Role
    folder: Path
    weights: Path
    dimension: int
    positions: int  # The longest input, in tokens

    @cached_property
    def digest(self) -> str:
        """The digest of the names and bytes of its configuration, weights and tokenizer."""
        files = [self.folder / "config.json", self.weights]
        files += _any_of(self.folder, TOKENIZER_FILES)
        try:
            return digest_json({file.name: digest_file(file) for file in files})
        except OSError as exc:
            raise EvidenceUnavailable(
                f"a file of {self.folder} cannot be read: {exc}"
            ) from exc


@dataclass(frozen=True, slots=True)
class FoundModel:
    """What is known of one needed model."""

    role: Role
    model: ModelFolder | None
    """Of the first place that is not absent, if it is complete: a damaged one is mended, not passed over."""
    problem: str = ""  # Why there is none, with every place that was looked at


def find_models(settings: EncoderSettings) -> list[FoundModel]:
    """What is known of each of MedCPT's three models, in the order query, article, cross."""
    found = []
    for role in Role:
        try:
            found.append(FoundModel(role, find_folder(role, settings)))
        except EvidenceUnavailable as exc:
            found.append(FoundModel(role, None, exc.message))
    return found


def find_folder(role: Role, settings: EncoderSettings) -> ModelFolder:
    """The first place that holds the model.

    Raises EvidenceUnavailable; a place that holds a part of it, or something else, is an error and not passed
    over, since another place's model would be another than the one that was put there.
    """
    places = list(_places_for(role, settings))
    for folder in places:
        if folder.is_dir():
            return open_folder(folder, role)
    raise EvidenceUnavailable(
        f"{role.repository} was not found in {', '.join(map(str, places))}",
        hint=f"download it ({DOWNLOAD}), put its files into {places[0]}, or search without it",
    )


def _places_for(role: Role, settings: EncoderSettings) -> Iterator[Path]:
    """Where a model is looked for: the configured folder, MEDLIVE_HOME/models, the Hugging Face cache."""
    if settings.models is not None:
        yield settings.models / role.value
    yield settings.home / "models" / role.value
    cache = (
        hugging_face_cache(settings.environment)
        / f"models--{role.repository.replace('/', '--')}"
    )
    commit, main = role.revision, cache / "refs" / "main"
    if not (cache / "snapshots" / commit).is_dir() and main.is_file():
        commit = main.read_text(encoding="utf-8").strip()
    yield cache / "snapshots" / commit


def hugging_face_cache(environment: Mapping[str, str]) -> Path:
    """The folder in which the Hugging Face libraries keep what they fetched, by the variables that they read."""
    if environment.get("HF_HUB_CACHE"):
        return Path(environment["HF_HUB_CACHE"]).expanduser()
    home = (
        environment.get("HF_HOME")
        or f"{environment.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    )
    return Path(home).expanduser() / "hub"


def open_folder(folder: Path, role: Role) -> ModelFolder:
    """A model folder, checked as far as it can be without loading it.

    Raises EvidenceUnavailable, naming the folder or the file: a file missing, not a BERT, a model of another role.
    """
    hint = f"put the files of {role.repository} (config, tokenizer and weights) into {folder}, or {DOWNLOAD}"
    if not folder.is_dir():
        raise EvidenceUnavailable(f"model folder {folder} does not exist", hint=hint)
    needed = (("config.json",), WEIGHTS, ("tokenizer.json", "vocab.txt"))
    missing = [" or ".join(names) for names in needed if not _any_of(folder, names)]
    if missing:
        raise EvidenceUnavailable(f"{folder} lacks {', '.join(missing)}", hint=hint)
    config = _open_config(folder, role, hint)
    weights = _any_of(folder, WEIGHTS)[0]
    if weights.suffix == ".safetensors" and weights.stat().st_size != _stated_size(
        weights
    ):
        raise EvidenceUnavailable(
            f"{weights} has another size than its header states", hint=hint
        )
    return ModelFolder(
        role, folder, weights, config.hidden_size, config.max_position_embeddings
    )


def _any_of(folder: Path, names: Sequence[str]) -> list[Path]:
    return [folder / name for name in names if (folder / name).is_file()]


def _open_config(folder: Path, role: Role, hint: str) -> _Config:
    """Read the configuration of a model. Raises EvidenceUnavailable if it is of another kind of model."""
    try:
        config = _Config.model_validate_json((folder / "config.json").read_bytes())
    except (OSError, ValidationError) as exc:
        raise EvidenceUnavailable(
            f"{folder / 'config.json'} is not the configuration of a BERT like {role.repository}",
            hint=hint,
        ) from exc
    cross = any(
        name.endswith("ForSequenceClassification") for name in config.architectures
    )
    if cross is role.gives_vectors:
        what = (
            "scores pairs and does not embed texts"
            if cross
            else "embeds texts and does not score pairs"
        )
        raise EvidenceUnavailable(f"{folder} has a model that {what}", hint=hint)
    return config


def _stated_size(weights: Path) -> int | None:
    """Return the size of a safetensors file by its header; None if the header cannot be read."""
    try:
        with weights.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            header = json.loads(handle.read(min(length, weights.stat().st_size)))
        ends = [
            int(entry["data_offsets"][1])
            for name, entry in header.items()
            if name != "__metadata__"
        ]
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        return None
    return 8 + length + max(ends, default=0)


def missing_packages() -> tuple[str, ...]:
    """The packages of the extra `medcpt` that are not installed."""
    return tuple(name for name in PACKAGES if find_spec(name) is None)


def missing_models(models: list[FoundModel]) -> str | None:
    """Return why MedCPT's encoders cannot be used, or None. The cross-encoder is not needed."""
    missing = []
    for found in models:
        if found.model is None and found.role.gives_vectors:
            missing.append(found.role.repository)
    if missing:
        return f"no encoder: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not at hand"
    if packages := missing_packages():
        return f"no encoder: MedCPT's models are at hand, but {', '.join(packages)} is not installed"
    return None


def download_models(settings: EncoderSettings) -> list[Path]:
    """Fetch MedCPT's three models at their pinned revisions, and return their folders.

    They go into the configured folder, else into MEDLIVE_HOME/models; what is there already is not fetched again.
    HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE hold as for any use of the hub.

    Raises:
        ServiceUnavailable: without huggingface_hub, or if the hub cannot be reached or refuses.
    """
    try:
        import httpx2
        from huggingface_hub import constants, set_client_factory, snapshot_download
        from huggingface_hub.errors import OfflineModeIsEnabled
    except ImportError as exc:
        raise ServiceUnavailable(
            "downloading models needs huggingface_hub", hint=INSTALL
        ) from exc
    tls = tls_context()

    def refuse_offline(request: httpx2.Request) -> None:
        if constants.is_offline_mode():
            raise OfflineModeIsEnabled(
                f"HF_HUB_OFFLINE is set, and {request.url.host} is not asked"
            )

    def client() -> httpx2.Client:
        hooks = {"request": [refuse_offline]}
        return httpx2.Client(
            event_hooks=hooks, follow_redirects=True, timeout=_SILENCE_S, verify=tls
        )

    set_client_factory(client)
    folders = []
    for role in Role:
        folder = (settings.models or settings.home / "models") / role.value
        try:
            snapshot_download(
                role.repository,
                revision=role.revision,
                local_dir=folder,
                allow_patterns=["config.json", WEIGHTS[0], *TOKENIZER_FILES],
                endpoint=settings.environment.get("HF_ENDPOINT"),
            )
        # The hub's own errors are OSErrors or ValueErrors.
        except (OSError, ValueError, httpx2.HTTPError) as exc:
            raise ServiceUnavailable(
                f"{role.repository} cannot be downloaded: {str(exc).strip().splitlines()[0]}",
                hint=f"try again, or put its files into {folder} by hand: medlive works without it, by bm25",
            ) from exc
        open_folder(folder, role)
        folders.append(folder)
    return folders
