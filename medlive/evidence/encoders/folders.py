"""MedCPT's model folders: what belongs into one, and whether what is there can be used, without loading it."""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from medlive.digest import digest_file, digest_json
from medlive.errors import EvidenceUnavailable

NOT_INSTALLED = "MedCPT needs torch and sentence-transformers, which are not installed"
INSTALL = "pip install 'medlive[medcpt]'"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""In the order in which they are taken."""
TOKENIZER_FILES = (
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
        raise EvidenceUnavailable(f"model folder {folder} does not exist", hint=_way_out(role, folder))
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
            f"{folder} is a cross-encoder: it scores pairs and does not embed texts",
            hint=f"put {role.repository} there; the cross-encoder belongs into {Role.CROSS.value}",
        )
    if not cross and role is Role.CROSS:
        raise EvidenceUnavailable(
            f"{folder} is {names[0]}: it embeds texts and does not score pairs",
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
                f"{folder / 'tokenizer.json'} has no vocabulary", hint=_way_out(role, folder)
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
    names = ["config.json", weights.name, *(name for name in TOKENIZER_FILES if (folder / name).is_file())]
    try:
        return digest_json({name: digest_file(folder / name) for name in names})
    except OSError as exc:
        raise EvidenceUnavailable(f"a file of {folder} cannot be read: {exc}") from exc


def _way_out(role: Role, folder: Path) -> str:
    return (
        f"put the files of {role.repository} (config, tokenizer and weights) into {folder}; "
        "`medlive evidence models` says where else they are looked for"
    )
