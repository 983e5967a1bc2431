"""MedCPT's model folders: which are needed, where they are looked for, and whether what is found can be used.

Nothing here needs torch, and nothing goes to the network: a model is put in place by a person.
"""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from medlive.digest import digest_file, digest_json
from medlive.errors import EvidenceUnavailable

PACKAGES = ("torch", "transformers", "sentence_transformers", "onnx", "onnxruntime", "sklearn")
"""What the extra `medcpt` brings."""
NOT_INSTALLED = "MedCPT needs torch and sentence-transformers, which are not installed"
INSTALL = "pip install 'medlive[medcpt]'"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""In the order in which they are taken."""
_TOKENIZER_FILES = (
    "added_tokens.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)
_SPARE_ROWS = 128
"""A vocabulary may be padded with rows that no token uses, up to the next multiple of this."""


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
        return {
            Role.QUERY: "queries to vectors",
            Role.ARTICLE: "passages to vectors",
            Role.CROSS: "re-ranking (optional)",
        }[self]


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """Where models are looked for and how they are run."""

    home: Path
    """MEDLIVE_HOME: `models/<name>` under it is looked into, and what is exported is kept there."""
    models: Path | None = None
    """A folder that holds one folder per model, looked into first."""
    revisions: Mapping[str, str] = field(default_factory=dict)
    """Repository → the commit to take from the Hugging Face cache; else what its `main` points to."""
    backend: Literal["auto", "torch", "onnx", "int8"] = "auto"
    """"int8" changes the vectors, so it is only taken when it is asked for."""
    device: str = "cpu"
    """Of the torch backend: "cpu", "cuda", "cuda:1"."""
    batch: int = 16
    """Texts encoded at once."""
    threads: int | None = None
    """Of the CPU; None: the library's choice."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """Where HF_HOME and its kin are read from."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model folder that has been looked through and can be loaded."""

    role: Role
    folder: Path
    config: Mapping[str, Any]
    weights: Path
    dimension: int
    digest: str
    """Over the names and bytes of its configuration, weights and tokenizer."""


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
    """The fastest that is installed and gives the same vectors; None without the extra."""


def find_models(settings: EncoderSettings, *, digests: bool = True) -> list[FoundModel]:
    """What is known of each of MedCPT's three models, in the order query, article, cross.

    `digests=False` leaves the digests out, which otherwise read every weight. Raises nothing for what is missing
    or damaged: that is what it reports.
    """
    packages = missing_packages()
    backend: Literal["torch", "onnx"] | None = None
    if not {"torch", "transformers", "sentence_transformers"} & set(packages):
        backend = "torch" if {"onnx", "onnxruntime"} & set(packages) else "onnx"
    return [_find(role, settings, digests, packages, backend) for role in Role]


def _find(
    role: Role,
    settings: EncoderSettings,
    digests: bool,
    packages: tuple[str, ...],
    backend: Literal["torch", "onnx"] | None,
) -> FoundModel:
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
        backend=backend,
    )


def _look(
    role: Role, origin: Literal["configured", "home", "huggingface"], folder: Path, digests: bool
) -> tuple[Place, ModelFolder | None]:
    if not folder.is_dir():
        return Place(origin, folder, "absent"), None
    found = tuple(name for name in ("config.json", *WEIGHTS, *_TOKENIZER_FILES) if (folder / name).is_file())
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


def export_folder(model: ModelFolder, settings: EncoderSettings) -> Path:
    """Where a model's ONNX export lies, made or not."""
    return settings.home / "models" / "onnx" / model.digest.removeprefix("sha256:")


def missing_packages() -> tuple[str, ...]:
    """The packages of the extra `medcpt` that are not installed."""
    return tuple(name for name in PACKAGES if find_spec(name) is None)


def missing_files(folder: Path) -> Iterator[str]:
    """The files without which the folder is no model."""
    if not (folder / "config.json").is_file():
        yield "config.json"
    if not any((folder / name).is_file() for name in WEIGHTS):
        yield " or ".join(WEIGHTS)
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        yield "tokenizer.json or vocab.txt"


def open_folder(folder: Path, role: Role, *, digests: bool = True) -> ModelFolder:
    """A model folder, checked as far as it can be without loading it.

    Raises EvidenceUnavailable, naming the folder or the file: nothing there, a file missing, not a BERT, a model
    of another role, a vocabulary that the weights do not have, damaged weights.
    """
    if not folder.is_dir():
        raise EvidenceUnavailable(f"there is no model folder {folder}", hint=_way_out(role, folder))
    missing = list(missing_files(folder))
    if missing:
        raise EvidenceUnavailable(f"{folder} lacks {', '.join(missing)}", hint=_way_out(role, folder))
    config = _json(folder / "config.json", role)
    if config.get("model_type") != "bert":
        raise EvidenceUnavailable(
            f"{folder / 'config.json'} is of a {config.get('model_type')!r} model; {role.repository} is a BERT",
            hint=_way_out(role, folder),
        )
    _check_role(config, role, folder)
    dimension, vocabulary = config.get("hidden_size"), config.get("vocab_size")
    if not isinstance(dimension, int) or not isinstance(vocabulary, int) or min(dimension, vocabulary) < 1:
        raise EvidenceUnavailable(
            f"{folder / 'config.json'} names no hidden_size and vocab_size", hint=_way_out(role, folder)
        )
    _check_vocabulary(folder, vocabulary, role)
    weights = next(folder / name for name in WEIGHTS if (folder / name).is_file())
    if weights.suffix == ".safetensors":
        _check_safetensors(weights, role)
    return ModelFolder(role, folder, config, weights, dimension, _digest(folder, weights) if digests else "")


def _check_role(config: Mapping[str, Any], role: Role, folder: Path) -> None:
    names = config.get("architectures") or ["BertModel"]
    cross = any(str(name).endswith("ForSequenceClassification") for name in names)
    if cross and role is not Role.CROSS:
        raise EvidenceUnavailable(
            f"{folder} holds a cross-encoder, which scores pairs and gives no vectors",
            hint=f"put {role.repository} there; the cross-encoder belongs into {Role.CROSS.value}",
        )
    if not cross and role is Role.CROSS:
        raise EvidenceUnavailable(
            f"{folder} holds {names[0]}, which gives vectors and scores no pairs",
            hint=f"put {role.repository} there",
        )


def _check_vocabulary(folder: Path, rows: int, role: Role) -> None:
    """Compare the tokenizer's size with the embedding's: a token beyond it would crash or be another word."""
    counted: dict[str, int] = {}
    if (folder / "vocab.txt").is_file():
        with (folder / "vocab.txt").open("rb") as handle:
            counted["vocab.txt"] = sum(1 for _ in handle)
    if (folder / "tokenizer.json").is_file():
        read = _json(folder / "tokenizer.json", role)
        try:
            ids = [*read["model"]["vocab"].values(), *(token["id"] for token in read.get("added_tokens") or ())]
            counted["tokenizer.json"] = max(ids) + 1
        except (KeyError, TypeError, AttributeError, ValueError) as exc:
            raise EvidenceUnavailable(
                f"{folder / 'tokenizer.json'} holds no vocabulary", hint=_way_out(role, folder)
            ) from exc
    for name, tokens in counted.items():
        if not rows - _SPARE_ROWS < tokens <= rows:
            raise EvidenceUnavailable(
                f"{folder / name} has {tokens} tokens and the model {rows}: they are not of one model",
                hint=_way_out(role, folder),
            )


def _check_safetensors(file: Path, role: Role) -> None:
    """Read the header and compare the length it promises with the file's."""
    size = file.stat().st_size
    problem: str | None = None
    try:
        with file.open("rb") as handle:
            (length,) = struct.unpack("<Q", handle.read(8))
            if not 2 <= length <= size - 8:
                raise ValueError("no header")
            header = json.loads(handle.read(length))
        end = max(
            (int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"), default=0
        )
        if 8 + length + end != size:
            problem = f"has {size} bytes where its header says {8 + length + end}"
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as exc:
        problem = f"has no readable header ({type(exc).__name__})"
    except OSError as exc:
        problem = f"cannot be read: {exc.strerror}"
    if problem:
        raise EvidenceUnavailable(f"{file} {problem}", hint=_way_out(role, file.parent))


def _json(file: Path, role: Role) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise EvidenceUnavailable(f"{file} cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:
        raise EvidenceUnavailable(f"{file} is not JSON: {exc}", hint=_way_out(role, file.parent)) from exc
    if not isinstance(value, dict):
        raise EvidenceUnavailable(f"{file} is no JSON object", hint=_way_out(role, file.parent))
    return value


def _digest(folder: Path, weights: Path) -> str:
    names = ["config.json", weights.name, *(name for name in _TOKENIZER_FILES if (folder / name).is_file())]
    try:
        return digest_json({name: digest_file(folder / name) for name in names})
    except OSError as exc:
        raise EvidenceUnavailable(f"a file of {folder} cannot be read: {exc}") from exc


def _way_out(role: Role, folder: Path) -> str:
    return (
        f"put the files of {role.repository} (config, tokenizer and weights) into {folder}; "
        "`medlive evidence models` says where else they are looked for"
    )
