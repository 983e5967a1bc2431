"""Model folders: where they are looked for, whether one is complete, and how they are downloaded.

Nothing here needs torch. A search never goes to the network; `download_models` does, when a person asks for it.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from medlive.errors import EvidenceUnavailable, ServiceUnavailable
from medlive.guard.trust import tls_context
from medlive.integrity.digest import digest_file, digest_json

from .table import EncoderModel, EncoderSettings

T = TypeVar("T")

INSTALL = "pip install 'medlive[dense]'"
DOWNLOAD = "medlive evidence models --download"
PACKAGES = ("torch", "transformers", "sentence_transformers", "faiss")
"""What the extra `dense` brings."""

_SILENCE_S = 60.0
"""Seconds without a byte after which a download counts as failed."""
_WANTED = ["*.json", "*.txt", "*.model", "*.safetensors"]
"""What is read of a repository: settings, tokenizers and weights. Pickled weights could run code."""
_ELSEWHERE = ("onnx", "openvino")
"""Folders of the same weights in other forms."""


def find_folder(name: str, settings: EncoderSettings) -> Path:
    """Return the folder of the model of that name on the hub, or the folder of that path, checked.

    Raises:
        EvidenceUnavailable: if there is none, or it is not a whole model.
    """
    folder = settings.models / name.rpartition("/")[2]
    if (own := Path(name).expanduser()).is_dir():
        folder = own.resolve()
    if not folder.is_dir():
        raise EvidenceUnavailable(
            f"{name} was not found in {folder}",
            hint=f"download it ({DOWNLOAD} NAME), put its files there, or do without it:"
            ' [evidence] retriever = "bm25" to search, --encoder none to build',
        )
    check_folder(folder)
    return folder


def check_folder(folder: Path) -> None:
    """Check a model folder as far as it can be without loading it.

    Raises:
        EvidenceUnavailable: naming the file, for a missing or damaged one, and for a model with code of its own.
    """
    if "auto_map" in _read_json(folder, "config.json", dict[str, Any]):
        raise EvidenceUnavailable(
            f"the model in {folder} needs Python code of its own (auto_map in config.json), which is never run",
            hint="choose a model of an architecture that the transformers library has",
        )
    for module in _modules(folder):
        kind = str(module.get("type", ""))
        if not kind.startswith("sentence_transformers."):
            raise EvidenceUnavailable(
                f"{folder / 'modules.json'} names {kind!r}, which is not a part of sentence-transformers"
                " and is never run",
                hint="choose a model without code of its own",
            )
        place = folder / str(module.get("path")) / "config.json"
        if kind.endswith("Pooling") and not place.is_file():
            raise _unusable(folder, f"{folder} lacks {place}")
    if not any((folder / n).is_file() for n in ("tokenizer.json", "vocab.txt")):
        raise _unusable(folder, f"{folder} lacks tokenizer.json or vocab.txt")
    if not weights_of(folder):
        raise _unusable(
            folder,
            f"{folder} lacks weights (*.safetensors; others are not read, since they could run code)",
        )


def weights_of(folder: Path) -> list[Path]:
    """The files of weights, by name."""
    return sorted(folder.glob("*.safetensors"))


def says_pooling(folder: Path) -> bool:
    """Whether the folder says how the vectors of tokens become one."""
    kinds = [str(module.get("type")) for module in _modules(folder)]
    return any(kind.endswith("Pooling") for kind in kinds)


def folder_digest(folder: Path) -> str:
    """The digest of the names and bytes of every file that may change a vector."""
    digests = {}
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder)
        other = inside.parts[0] in _ELSEWHERE or inside.parts[0][0] == "."
        if file.is_file() and not other and f"*{file.suffix}" in _WANTED:
            try:
                digests[inside.as_posix()] = digest_file(file)
            except OSError as exc:
                raise EvidenceUnavailable(f"{file} cannot be read: {exc}") from exc
    return digest_json(digests)


def _modules(folder: Path) -> list[dict[str, Any]]:
    """The modules that a sentence-transformers folder is made of; none for a plain model."""
    if not (folder / "modules.json").is_file():
        return []
    return _read_json(folder, "modules.json", list[dict[str, Any]])


def _read_json(folder: Path, name: str, kind: type[T]) -> T:
    place = folder / name
    try:
        return TypeAdapter(kind).validate_json(place.read_bytes())
    except (OSError, ValueError) as exc:
        raise _unusable(folder, f"{place} cannot be read: {exc}") from exc


def _unusable(folder: Path, message: str) -> EvidenceUnavailable:
    return EvidenceUnavailable(
        message,
        hint=f"put all files of the model into {folder}, or download it: {DOWNLOAD} NAME",
    )


def find_problem(model: EncoderModel, settings: EncoderSettings) -> str | None:
    """Return why this encoder cannot be used here, or None."""
    if model.base_url:
        return None if find_spec("faiss") else f"faiss is not installed ({INSTALL})"
    for name in model.names:
        try:
            find_folder(name, settings)
        except EvidenceUnavailable as exc:
            return exc.message
    missing = [name for name in PACKAGES if find_spec(name) is None]
    return f"{', '.join(missing)} not installed ({INSTALL})" if missing else None


def download_models(model: EncoderModel, settings: EncoderSettings) -> list[Path]:
    """Fetch an encoder's models, and its reranker, and return their folders.

    What is there already is not fetched again. HF_ENDPOINT and HF_TOKEN hold as for any use of the hub.

    Raises:
        ServiceUnavailable: without huggingface_hub, or if the hub cannot be reached or refuses.
    """
    try:
        import httpx2
        from huggingface_hub import set_client_factory, snapshot_download
    except ImportError as exc:
        raise ServiceUnavailable(
            "downloading models needs huggingface_hub", hint=INSTALL
        ) from exc
    tls = tls_context()

    def client() -> httpx2.Client:
        return httpx2.Client(follow_redirects=True, timeout=_SILENCE_S, verify=tls)

    set_client_factory(client)
    folders = []
    for name in filter(None, [*model.names, model.reranker]):
        folder = settings.models / name.rpartition("/")[2]
        try:
            snapshot_download(
                name,
                revision=model.revisions.get(name),
                local_dir=folder,
                allow_patterns=_WANTED,
                ignore_patterns=[f"{folder}/*" for folder in _ELSEWHERE],
            )
        # The hub's own errors are OSErrors or ValueErrors.
        except (OSError, ValueError, httpx2.HTTPError) as exc:
            cause = str(exc).strip().partition("\n")[0] or type(exc).__name__
            raise ServiceUnavailable(
                f"{name} cannot be downloaded: {cause}",
                hint=f"try again, or put its files into {folder} by hand: medlive works without it, by bm25",
            ) from exc
        check_folder(folder)
        folders.append(folder)
    return folders
