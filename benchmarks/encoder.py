"""The encoders: how fast MedCPT's shape runs on this machine.

Run `python benchmarks/encoder.py`. No weights are needed to measure speed, so a BERT of MedCPT's shape (12
layers, 768 dimensions, 30,522 tokens) is made at random in a temporary folder, exported, and given passages of
several lengths.
"""

import math
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from medlive.evidence.encoders.folders import EncoderSettings, Role
from medlive.evidence.encoders.opening import open_encoder

BACKENDS: tuple[Literal["torch", "onnx", "int8"], ...] = ("torch", "onnx", "int8")
WORDS = (
    "fever",
    "cough",
    "aspirin",
    "heart",
    "infarction",
    "renal",
    "dose",
    "child",
    "trial",
    "placebo",
)


def random_models(folder: Path) -> None:
    """Two BERTs of MedCPT's shape with random weights, and a tokenizer of whole words."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    for seed, role in enumerate((Role.QUERY, Role.ARTICLE)):
        place = folder / role.value
        place.mkdir(parents=True)
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        vocabulary = [
            *special,
            *WORDS,
            *(f"[unused{n}]" for n in range(30522 - len(special) - len(WORDS))),
        ]
        (place / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
        BertTokenizerFast(vocab=str(place / "vocab.txt")).save_pretrained(place)
        torch.manual_seed(seed)
        BertModel(BertConfig()).save_pretrained(place)


def speed() -> None:
    """Texts a second by backend and length, each the best of alternating rounds."""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as work:
        random_models(Path(work) / "models")
        settings = EncoderSettings(home=Path(work) / "home")
        encoders = {}
        print("MedCPT's shape, random weights")
        for backend in BACKENDS:
            start = time.perf_counter()
            encoders[backend] = open_encoder(
                Path(work) / "models", settings=replace(settings, backend=backend)
            )
            print(
                f"  {backend:<6} opened in {time.perf_counter() - start:5.1f} s",
                flush=True,
            )
        for tokens, count in ((512, 2), (256, 4)):
            pairs = [
                ("", " ".join(chance.choices(WORDS, k=tokens))) for _ in range(count)
            ]
            _alternate(
                f"passages of {tokens}",
                {n: e.encode_passages for n, e in encoders.items()},
                pairs,
            )
        queries = [" ".join(chance.choices(WORDS, k=16)) for _ in range(32)]
        _alternate(
            "queries of 16", {n: e.encode_queries for n, e in encoders.items()}, queries
        )


def _alternate(
    name: str,
    runs: dict[str, Callable[[Any], object]],
    texts: Sequence[Any],
    rounds: int = 4,
) -> None:
    """Print the texts a second of each, taking turns so that what else runs here meets all alike."""
    best = dict.fromkeys(runs, math.inf)
    for _ in range(rounds):
        for backend, run in runs.items():
            start = time.perf_counter()
            run(texts)
            best[backend] = min(best[backend], time.perf_counter() - start)
    figures = (
        f"{n} {len(texts) / s:6.2f}/s ({best['torch'] / s:.2f}x)"
        for n, s in best.items()
    )
    print(f"  {name:<16}" + "   ".join(figures), flush=True)


if __name__ == "__main__":
    speed()
