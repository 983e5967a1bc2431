"""The encoders: how fast MedCPT's shape runs on this machine.

Run `python benchmarks/encoder.py`. No weights are needed to measure speed, so a BERT of MedCPT's shape (12
layers, 768 dimensions, 30,522 tokens) is made at random in a temporary folder, and given passages of
several lengths.
"""

import math
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from medlive.evidence.encoders.opening import open_encoder
from medlive.evidence.encoders.table import EncoderSettings

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

    for seed, name in enumerate(("MedCPT-Query-Encoder", "MedCPT-Article-Encoder")):
        place = folder / name
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
    """Print the texts a second by length, each the best of some rounds."""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as work:
        random_models(Path(work) / "models")
        settings = EncoderSettings(models=Path(work) / "models")
        print("MedCPT's shape, random weights")
        encoder = open_encoder("medcpt", settings=settings)
        for tokens, count in ((512, 2), (256, 4)):
            pairs = [
                ("", " ".join(chance.choices(WORDS, k=tokens))) for _ in range(count)
            ]
            _time(f"passages of {tokens}", encoder.encode_passages, pairs)
        queries = [" ".join(chance.choices(WORDS, k=16)) for _ in range(32)]
        _time("queries of 16", encoder.encode_queries, queries)


def _time(
    name: str, run: Callable[[Any], object], texts: Sequence[Any], rounds: int = 4
) -> None:
    best = math.inf
    for _ in range(rounds):
        start = time.perf_counter()
        run(texts)
        best = min(best, time.perf_counter() - start)
    print(f"  {name:<16}{len(texts) / best:6.2f}/s", flush=True)


if __name__ == "__main__":
    speed()
