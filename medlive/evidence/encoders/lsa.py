"""The encoder that needs no weights: latent semantic analysis of the corpus itself.

Terms of the lexical index, BM25-weighted, projected onto the directions in which the corpus varies most, and
scaled to length 1, so that the inner product is the cosine (Deerwester et al. 1990; the weights are BM25's, since
they keep a long passage's repetitions down). Words that stand in the same passages come near each other, which a
lexical index cannot do; what the corpus does not hold, it does not know. It speaks the corpus's languages.
"""

import json
import math
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medlive.digest import digest_file, digest_json
from medlive.errors import BadInput, EvidenceUnavailable, IndexCorrupt, IndexOutdated, MissingExtra
from medlive.evidence.analysis import analyzer
from medlive.evidence.encoder import EncoderIdentity
from medlive.evidence.encoders.folders import INSTALL

try:
    from scipy.sparse import csr_matrix
    from sklearn.utils.extmath import randomized_svd
except ImportError as exc:
    raise MissingExtra("latent semantic analysis needs scikit-learn", hint=INSTALL) from exc

VERSION = 1
_MANIFEST = "lsa.json"
_FILES = ("terms.json", "rarity.npy", "directions.npy")
_PASSAGES_A_DIRECTION = 4
"""Fewer, and the directions are the passages again: nothing is learnt but what words alone would find."""
_BLOCK = 4096
"""Passages projected at once."""
_MAX_CHARACTERS = 200_000
"""Of a text that is read: the beginning of a longer one."""


class LsaParameters(BaseModel):
    """How the analysis is made.

    The defaults of `dimension`, `contrast` and `whitening` were chosen on questions of MedQuAD looking for their
    own answers (1,500 among 6,000 answers without titles: recall@1 0.28 → 0.29, recall@32 0.84 → 0.86). The bound
    by the number of passages came after a look at PubMedQA and the cystic-fibrosis queries, whose 1,000 and 1,239
    passages are served worse by 512 directions than by 256.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dimension: Annotated[int, Field(ge=2, le=2048)] = 512
    """At most: a corpus has no more directions than a quarter of its passages."""
    sample: Annotated[int, Field(ge=2)] = 50_000
    """Passages that the directions are fitted on, drawn evenly from the corpus; memory grows with this number and
    not with the corpus."""
    vocabulary: Annotated[int, Field(ge=2)] = 60_000
    """Terms kept, those of most passages first."""
    rarest: Annotated[int, Field(ge=1)] = 2
    """Passages of the sample that must hold a term for it to be kept."""
    saturation: Annotated[float, Field(ge=0)] = 1.2
    """BM25's k1."""
    contrast: Annotated[float, Field(ge=0, le=4)] = 1.3
    """The power to which BM25's weight of a rare term is raised."""
    length: Annotated[float, Field(ge=0, le=1)] = 0.75
    """BM25's b."""
    title: Annotated[int, Field(ge=0)] = 1
    """How often a title's terms count."""
    whitening: Annotated[float, Field(ge=0, le=1)] = 0.25
    """The power of its strength by which a direction is divided: 0 leaves the strong ones strong, 1 makes all
    equal."""
    seed: int = 0


class _Manifest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1]
    parameters: LsaParameters
    analyzer: str
    """The fingerprint of the term analysis."""
    passages: int
    """That were offered."""
    sampled: int
    dimension: int
    terms: int
    mean_length: float
    """Terms of a passage, title counted as often as `title` says."""
    explained: float
    """The share of the weighted terms' squared length that the directions hold, 0 to 1."""
    files: dict[Literal["terms.json", "rarity.npy", "directions.npy"], str]
    """Name → digest."""


def fit_lsa(
    pairs: Iterable[tuple[str, str]], folder: Path, parameters: LsaParameters | None = None
) -> EncoderIdentity:
    """Fit the encoder on (title, text) passages and write it to a folder, which is replaced when it holds one.

    The passages are read once. Memory: the sample's texts, its weighted terms, and the directions
    (`vocabulary` × `dimension` × 4 bytes). Raises BadInput when the passages hold too few words, and
    EvidenceUnavailable when the folder cannot be written or holds something else.
    """
    chosen = parameters or LsaParameters()
    if folder.exists() and not (folder / _MANIFEST).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise EvidenceUnavailable(f"{folder} holds something else", hint="name an empty or a new folder")
    seen, sample = _sample(pairs, chosen)
    counts = [_counts(title, text, chosen) for title, text in sample]
    terms, frequency = _vocabulary(counts, chosen)
    if len(terms) < 3 or len(sample) < 3:
        raise BadInput(
            f"{seen} passages share {len(terms)} words: too few to analyse",
            hint="give a larger corpus, or search by words",
        )
    rarity = np.log1p((len(sample) - frequency + 0.5) / (frequency + 0.5)) ** np.float32(chosen.contrast)
    lengths = [count.total() for count in counts]
    mean = math.fsum(lengths) / len(lengths)
    positions = {term: number for number, term in enumerate(terms)}
    matrix = _matrix(counts, positions, rarity, mean, chosen)
    dimension = max(2, min(chosen.dimension, len(sample) // _PASSAGES_A_DIRECTION, len(terms) - 1))
    _, strengths, directions = randomized_svd(matrix, dimension, n_iter=4, random_state=chosen.seed)
    keep = strengths > strengths[0] * 1e-6
    strengths, directions = strengths[keep], directions[keep]
    # In rows, as a product with a sparse matrix reads them: in columns each query would copy them all.
    scaled = (directions.T * strengths**-chosen.whitening).astype(np.float32, order="C")
    total = float(matrix.multiply(matrix).sum())
    _write(
        folder,
        {"rarity.npy": rarity, "directions.npy": scaled},
        terms,
        {
            "version": VERSION,
            "parameters": chosen,
            "analyzer": analyzer().fingerprint,
            "passages": seen,
            "sampled": len(sample),
            "dimension": int(scaled.shape[1]),
            "terms": len(terms),
            "mean_length": mean,
            "explained": min(1.0, float((strengths**2).sum()) / total),
        },
    )
    return LsaEncoder.open(folder).identity


class LsaEncoder:
    """A fitted analysis, its directions mapped from disk."""

    def __init__(
        self,
        manifest: _Manifest,
        terms: Sequence[str],
        rarity: NDArray[np.float32],
        directions: NDArray[np.float32],
    ) -> None:
        """`LsaEncoder.open` reads these from a folder."""
        self._parameters, self._mean = manifest.parameters, manifest.mean_length
        self._positions = {term: number for number, term in enumerate(terms)}
        self._rarity, self._directions = rarity, directions
        self.identity = EncoderIdentity(
            name="lsa",
            digest=digest_json(manifest.model_dump(mode="json")),
            dimension=manifest.dimension,
            backend="lsa",
        )
        self.fitted_on = manifest.sampled
        """Passages."""
        self.explained = manifest.explained
        """The share of the corpus's variation that the vectors hold, 0 to 1."""

    @classmethod
    def open(cls, folder: Path) -> "LsaEncoder":
        """Raises EvidenceUnavailable when there is none, IndexCorrupt when its files are not those that were
        written, IndexOutdated when its terms were cut by another version."""
        manifest = _read(folder)
        for name, digest in manifest.files.items():
            if not (folder / name).is_file():
                raise IndexCorrupt(f"{folder / name} is missing", hint="fit the encoder again")
            if digest_file(folder / name) != digest:
                raise IndexCorrupt(f"{folder / name} is not what was written", hint="fit the encoder again")
        if set(manifest.files) != set(_FILES):
            raise IndexCorrupt(f"{folder / _MANIFEST} names not all files", hint="fit the encoder again")
        if manifest.analyzer != analyzer().fingerprint:
            raise IndexOutdated(f"{folder} was fitted on terms cut otherwise", hint="fit the encoder again")
        terms: list[str] = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
        rarity = np.load(folder / "rarity.npy", allow_pickle=False)
        directions = np.load(folder / "directions.npy", mmap_mode="r", allow_pickle=False)
        if directions.shape != (len(terms), manifest.dimension) or rarity.shape != (len(terms),):
            raise IndexCorrupt(f"{folder / _MANIFEST} is of other files", hint="fit the encoder again")
        return cls(manifest, terms, rarity, directions)

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dimension), each of length 1, or 0 when it holds no word of the corpus."""
        return self._project([_counts("", text, self._parameters) for text in texts], None)

    def encode_passages(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """(n, dimension), each of length 1, or 0 when it holds no word of the corpus."""
        blocks = [
            self._project(
                [_counts(title, text, self._parameters) for title, text in pairs[start : start + _BLOCK]],
                self._mean,
            )
            for start in range(0, len(pairs), _BLOCK)
        ]
        return np.concatenate(blocks) if blocks else np.zeros((0, self.identity.dimension), dtype=np.float32)

    def close(self) -> None:
        """Nothing is held that the memory map does not give back by itself."""

    def _project(self, counts: Sequence[Counter[str]], mean: float | None) -> NDArray[np.float32]:
        matrix = _matrix(counts, self._positions, self._rarity, mean, self._parameters)
        vectors = np.asarray(matrix @ self._directions, dtype=np.float32)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        scaled: NDArray[np.float32] = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
        return scaled


def _sample(pairs: Iterable[tuple[str, str]], parameters: LsaParameters) -> tuple[int, list[tuple[str, str]]]:
    """(passages seen, an even sample of them in the order of the corpus's places) in one pass (algorithm R)."""
    chance = random.Random(parameters.seed)
    kept: list[tuple[str, str]] = []
    seen = 0
    for title, text in pairs:
        pair = (title[:_MAX_CHARACTERS], text[:_MAX_CHARACTERS])
        if seen < parameters.sample:
            kept.append(pair)
        else:
            place = chance.randrange(seen + 1)
            if place < parameters.sample:
                kept[place] = pair
        seen += 1
    return seen, kept


def _counts(title: str, text: str, parameters: LsaParameters) -> Counter[str]:
    counts = Counter(analyzer().terms(text[:_MAX_CHARACTERS]))
    if parameters.title:
        for term, count in Counter(analyzer().terms(title[:_MAX_CHARACTERS])).items():
            counts[term] += count * parameters.title
    return counts


def _vocabulary(
    counts: Iterable[Counter[str]], parameters: LsaParameters
) -> tuple[list[str], NDArray[np.float32]]:
    """(terms in order, passages of the sample that hold each)."""
    frequency: Counter[str] = Counter()
    for count in counts:
        frequency.update(count.keys())
    kept = sorted(
        (term for term, passages in frequency.items() if passages >= parameters.rarest),
        key=lambda term: (-frequency[term], term),
    )[: parameters.vocabulary]
    kept.sort()
    return kept, np.array([frequency[term] for term in kept], dtype=np.float32)


def _matrix(
    counts: Sequence[Counter[str]],
    positions: dict[str, int],
    rarity: NDArray[np.float32],
    mean: float | None,
    parameters: LsaParameters,
) -> Any:
    """(n, terms) sparse: BM25 weights, rows of length 1; `mean` None leaves lengths out, as for queries."""
    starts, columns, values = [0], [], []
    for count in counts:
        norm = 1.0
        if mean:
            norm = 1 - parameters.length + parameters.length * count.total() / mean
        row = [
            (
                column,
                tf * (parameters.saturation + 1) / (tf + parameters.saturation * norm) * float(rarity[column]),
            )
            for term, tf in count.items()
            if (column := positions.get(term)) is not None
        ]
        row.sort()
        size = math.sqrt(math.fsum(value * value for _, value in row)) or 1.0
        columns += [column for column, _ in row]
        values += [value / size for _, value in row]
        starts.append(len(columns))
    return csr_matrix(
        (np.array(values, dtype=np.float32), np.array(columns, dtype=np.int32), np.array(starts, dtype=np.int64)),
        shape=(len(counts), len(positions)),
    )


def _write(
    folder: Path, arrays: dict[str, NDArray[np.float32]], terms: Sequence[str], manifest: dict[str, Any]
) -> None:
    """Written beside the folder and put in its place whole: a half one is never read."""
    work: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        for name, array in arrays.items():
            np.save(work / name, array, allow_pickle=False)
        (work / "terms.json").write_text(json.dumps(terms, ensure_ascii=False), encoding="utf-8")
        files = {name: digest_file(work / name) for name in _FILES}
        text = _Manifest.model_validate(manifest | {"files": files}).model_dump_json(indent=2)
        (work / _MANIFEST).write_text(text + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(work, folder)
    except OSError as exc:
        raise EvidenceUnavailable(f"{folder} cannot be written: {exc.strerror or exc}") from exc
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)


def _read(folder: Path) -> _Manifest:
    file = folder / _MANIFEST
    try:
        return _Manifest.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise EvidenceUnavailable(f"there is no {file}", hint="fit the encoder on the corpus first") from exc
    except OSError as exc:
        raise EvidenceUnavailable(f"{file} cannot be read: {exc.strerror}") from exc
    except (ValidationError, UnicodeDecodeError) as exc:
        raise IndexCorrupt(f"{file} is no description of an encoder", hint="fit the encoder again") from exc
