"""The encoders: how fast MedCPT's shape runs on this machine, and what latent semantics find without weights.

Run `python benchmarks/encoder.py [speed] [lsa] [REALDATA_FOLDER]`; both parts by default.

speed: no weights are needed to measure speed, so a BERT of MedCPT's shape (12 layers, 768 dimensions, 30,522
tokens) is made at random in a temporary folder, exported, and given passages of several lengths. The cosines
printed are those of random weights: trained ones quantise differently, and the export's own record says how.
lsa: fitted on each collection's own documents, then asked its questions; the measures of
`benchmarks/retrieval.py`.
"""

import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from retrieval import graded_queries, medline_records

from medlive.evidence.encoder import Encoder, EncoderSettings, Role, open_encoder
from medlive.evidence.encoders.exports import recorded_export
from medlive.evidence.encoders.folders import open_folder

BACKENDS: tuple[Literal["torch", "onnx", "int8"], ...] = ("torch", "onnx", "int8")
WORDS = ("fever", "cough", "aspirin", "heart", "infarction", "renal", "dose", "child", "trial", "placebo")


def random_models(folder: Path) -> None:
    """Two BERTs of MedCPT's shape with random weights, and a tokenizer of whole words."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    for seed, role in enumerate((Role.QUERY, Role.ARTICLE)):
        place = folder / role.value
        place.mkdir(parents=True)
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        vocabulary = [*special, *WORDS, *(f"[unused{n}]" for n in range(30522 - len(special) - len(WORDS)))]
        (place / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
        BertTokenizerFast(vocab=str(place / "vocab.txt")).save_pretrained(place)
        torch.manual_seed(seed)
        BertModel(BertConfig()).save_pretrained(place)


def speed() -> None:
    """Texts a second by backend and length, each the best of alternating rounds; and each export's record."""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as work:
        random_models(Path(work) / "models")
        settings = EncoderSettings(home=Path(work) / "home")
        encoders = {}
        print("MedCPT's shape, random weights")
        for backend in BACKENDS:
            start = time.perf_counter()
            encoders[backend] = open_encoder(Path(work) / "models", settings=replace(settings, backend=backend))
            print(f"  {backend:<6} opened in {time.perf_counter() - start:5.1f} s", flush=True)
        for tokens, count in ((512, 2), (256, 4)):
            pairs = [("", " ".join(chance.choices(WORDS, k=tokens))) for _ in range(count)]
            _alternate(f"passages of {tokens}", {n: e.encode_passages for n, e in encoders.items()}, pairs)
        queries = [" ".join(chance.choices(WORDS, k=16)) for _ in range(32)]
        _alternate("queries of 16", {n: e.encode_queries for n, e in encoders.items()}, queries)
        for role in (Role.QUERY, Role.ARTICLE):
            record = recorded_export(open_folder(Path(work) / "models" / role.value, role), settings)
            if record is not None:
                print(f"  {role.value}: least cosine to torch {record.cosine}, texts a second {record.speed}")


def _alternate(name: str, runs: dict[str, Callable[[Any], object]], texts: Sequence[Any], rounds: int = 4) -> None:
    """Print the texts a second of each, taking turns so that what else runs here meets all alike."""
    best = dict.fromkeys(runs, math.inf)
    for _ in range(rounds):
        for backend, run in runs.items():
            start = time.perf_counter()
            run(texts)
            best[backend] = min(best[backend], time.perf_counter() - start)
    figures = (f"{n} {len(texts) / s:6.2f}/s ({best['torch'] / s:.2f}x)" for n, s in best.items())
    print(f"  {name:<16}" + "   ".join(figures), flush=True)


def lsa(evidence: Path) -> None:
    """Known item on PubMedQA, graded relevance on the cystic-fibrosis queries."""
    from medlive.evidence.encoders.lsa import LsaEncoder, LsaParameters, fit_lsa

    entries = json.loads((evidence / "pubmedqa_ori_pqal.json").read_text(encoding="utf-8"))
    abstracts = [("", " ".join(entry["CONTEXTS"])) for entry in entries.values()]
    questions = [entry["QUESTION"] for entry in entries.values()]
    records = medline_records(evidence / "cystic_fibrosis")
    graded = graded_queries(evidence / "cystic_fibrosis" / "cfquery")
    papers = [(record["title"], record["text"]) for record in records]
    numbers = [record["id"] for record in records]
    with tempfile.TemporaryDirectory() as work:
        for dimension in (128, 256, 512):
            parameters = LsaParameters(dimension=dimension)
            for name, pairs in (("pubmedqa", abstracts), ("cf", papers)):
                start = time.perf_counter()
                identity = fit_lsa(pairs, Path(work) / name, parameters)
                fitted = time.perf_counter() - start
                encoder = LsaEncoder.open(Path(work) / name)
                measures = (
                    _known_item(encoder, questions, pairs)
                    if name == "pubmedqa"
                    else _graded(encoder, graded, pairs, numbers)
                )
                figures = "  ".join(f"{measure} {value:.3f}" for measure, value in measures.items())
                print(f"lsa {identity.dimension:>4} {name:<9} {figures}  fitted in {fitted:.1f} s", flush=True)


def _known_item(encoder: Encoder, questions: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    scores = encoder.encode_queries(questions) @ encoder.encode_passages(pairs).T
    own = scores[np.arange(len(questions)), np.arange(len(questions))]
    ranks = (scores > own[:, None]).sum(axis=1) + 1
    return {f"recall@{k}": float((ranks <= k).mean()) for k in (1, 5, 32)}


def _graded(
    encoder: Encoder,
    queries: Sequence[tuple[str, dict[str, int]]],
    pairs: Sequence[tuple[str, str]],
    numbers: Sequence[str],
) -> dict[str, float]:
    scores = encoder.encode_queries([text for text, _ in queries]) @ encoder.encode_passages(pairs).T
    ndcg, recall = [], []
    for row, (_, grades) in zip(scores, queries, strict=True):
        found = [numbers[place] for place in np.argsort(-row, kind="stable")]
        gain = sum(grades.get(d, 0) / math.log2(i + 2) for i, d in enumerate(found[:10]))
        best = sorted(grades.values(), reverse=True)[:10]
        ndcg.append(gain / sum(g / math.log2(i + 2) for i, g in enumerate(best)))
        relevant = {d for d, g in grades.items() if g}
        recall.append(len(relevant & set(found[:32])) / len(relevant))
    return {"nDCG@10": statistics.fmean(ndcg), "recall@32": statistics.fmean(recall)}


def main() -> None:
    """Run what was named, or all."""
    names = [name for name in sys.argv[1:] if name in ("speed", "lsa")] or ["lsa", "speed"]
    folders = [name for name in sys.argv[1:] if name not in ("speed", "lsa")]
    default = Path(__file__).resolve().parents[2] / "shared" / "realdata"
    evidence = Path(folders[0] if folders else default) / "evidence"
    for name in names:
        if name == "speed":
            speed()
        elif evidence.is_dir():
            lsa(evidence)
        else:
            print(f"skipped: there is no {evidence}")


if __name__ == "__main__":
    main()
