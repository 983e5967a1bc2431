"""What an evidence index is made of, as its `manifest.json` says it."""

from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from medlive.digest import digest_json
from medlive.errors import IndexCorrupt, IndexMissing, IndexOutdated

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
HINT = "build it again: medlive evidence build CORPUS... (see medlive evidence build --help)"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CorpusEntry(_Frozen):
    """A corpus as it was when it was read."""

    name: str
    kind: str
    digest: str
    """Of everything the reading gave, whatever the order of its files."""
    licence: str
    documents: int
    passages: int
    """Passages in the index."""
    boilerplate: int
    """Pieces left out because they say nothing."""
    repeated: int
    """Passages left out because the corpus holds the same text again, or prints it under many titles."""
    empty: int
    """Documents that the source published without text."""
    problems: int
    """Members that could not be read."""
    built_at: datetime


class FileEntry(_Frozen):
    """A file of the index, by its path within the data folder."""

    path: str
    size: int
    digest: str


class IndexManifest(_Frozen):
    """The whole account of an index; two indexes of the same corpora and parameters share `index_digest`."""

    format_version: int = FORMAT_VERSION
    retriever: str
    parameters: dict[str, float | int | str]
    libraries: dict[str, str]
    corpora: tuple[CorpusEntry, ...]
    """By name."""
    passages: int
    index_digest: str
    data: str
    """The folder, beside the manifest, that holds the files."""
    files: tuple[FileEntry, ...]
    built_at: datetime

    @property
    def corpus_digests(self) -> dict[str, str]:
        """Corpus name → corpus digest."""
        return {entry.name: entry.digest for entry in self.corpora}


def index_digest(retriever: str, parameters: dict[str, float | int | str], corpora: dict[str, str]) -> str:
    """The identity of an index: what was indexed and how, never the engine's own files.

    `corpora` is corpus name → corpus digest.
    """
    return digest_json({"retriever": retriever, "parameters": parameters, "corpora": corpora})


def read_manifest(folder: Path) -> IndexManifest:
    """The manifest of the index in `folder`.

    Raises IndexMissing when there is none, IndexOutdated for one of another format, IndexCorrupt for anything
    else that is no manifest.
    """
    place = folder / MANIFEST
    try:
        text = place.read_bytes()
    except FileNotFoundError as exc:
        raise IndexMissing(f"there is no evidence index at {folder}", hint=HINT) from exc
    except OSError as exc:
        raise IndexCorrupt(f"{place} cannot be read: {exc.strerror}", hint=HINT) from exc
    try:
        manifest = IndexManifest.model_validate_json(text)
    except ValidationError as exc:
        version = _format_version(text)
        if version is not None and version != FORMAT_VERSION:
            raise _other_format(place, version) from exc
        first = exc.errors()[0]
        cause = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first["loc"] else first["msg"]
        raise IndexCorrupt(f"{place} is no index manifest: {cause}", hint=HINT) from exc
    if manifest.format_version != FORMAT_VERSION:
        raise _other_format(place, manifest.format_version)
    return manifest


class _AnyFormat(BaseModel):
    format_version: int


def _format_version(text: bytes) -> int | None:
    try:
        return _AnyFormat.model_validate_json(text).format_version
    except ValidationError:
        return None


def _other_format(place: Path, version: int) -> IndexOutdated:
    return IndexOutdated(f"{place} has format {version}, this medlive reads format {FORMAT_VERSION}", hint=HINT)
