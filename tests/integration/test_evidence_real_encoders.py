"""Real weights end to end: English by MiniLM in a folder, Chinese by e5 behind an endpoint, one index."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from medlive.errors import EvidenceUnavailable, IndexCorrupt, IndexOutdated
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.encoders.opening import open_encoder
from medlive.evidence.encoders.table import EncoderModel, EncoderSettings
from medlive.evidence.index import open_index, verify_index
from medlive.evidence.plan import plan_index
from tests.support.real_encoders import missing, serve_e5, unpack_minilm

if missing():
    pytest.skip(
        f"{', '.join(missing())} not installed: make dense", allow_module_level=True
    )

ENGLISH = {
    "Gout": "Colchicine relieves an acute attack of painful swollen big toe joints.",
    "Asthma": "Inhaled salbutamol opens the airways when breathing is tight.",
    "Migraine": "Triptans are taken early in an attack of one-sided headache.",
    "Anaemia": "Iron tablets restore haemoglobin when ferritin is low.",
    "Scabies": "Permethrin cream is left on the skin overnight against mites.",
}
CHINESE = {
    "痛风": "秋水仙碱可缓解急性发作时的关节红肿疼痛。",
    "哮喘": "吸入沙丁胺醇可以扩张气道，缓解喘息。",
    "偏头痛": "曲普坦类药物应在单侧头痛发作早期服用。",
    "贫血": "铁蛋白偏低时口服铁剂可以恢复血红蛋白。",
    "疥疮": "氯菊酯乳膏涂于皮肤过夜以杀灭疥螨。",
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EncoderSettings]:
    minilm = unpack_minilm(tmp_path_factory.mktemp("models") / "minilm")
    with serve_e5() as e5:
        yield EncoderSettings(
            models=tmp_path_factory.mktemp("models"),
            own_encoders={
                "minilm": EncoderModel(query=str(minilm), languages=("en",)),
                "e5": e5,
            },
            encoders={"en": "minilm", "zh": "e5"},
        )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("corpus") / "notes.jsonl"
    rows = []
    for language, texts in (("en", ENGLISH), ("zh", CHINESE)):
        for title, text in texts.items():
            rows.append(
                {"id": title, "title": title, "text": text, "language": language}
            )
    place.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return place


@pytest.fixture(scope="module")
def index(
    settings: EncoderSettings, corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("index")
    build_index([open_corpus(corpus)], folder, plan=plan_index(folder, (), settings))
    return folder


def test_each_language_is_found_by_its_meaning(
    index: Path, settings: EncoderSettings
) -> None:
    manifest = verify_index(index)
    counts = {entry.encoder.name: entry.part.count for entry in manifest.dense}
    assert counts == {"minilm": 5, "e5": 10}
    retriever = open_index(index, settings=settings)
    # None of the words is in the passage that is meant.
    queries = [
        ("my child wheezes and cannot get enough air",),
        ("脚趾突然又肿又痛怎么办",),
    ]
    english, chinese = asyncio.run(retriever.search(queries, k=1))
    assert english[0].passage.title == "Asthma"
    assert chinese[0].passage.title in ("痛风", "Gout")
    assert {side.side for hits in (english, chinese) for side in hits[0].sides} >= {
        "dense"
    }


def embedded(counts: list[int]) -> list[int]:
    """How many passages each report of a batch counts: they follow the first one, of words."""
    return counts[1:]


def test_an_index_is_built_on_and_nothing_is_embedded_twice(
    index: Path, settings: EncoderSettings, corpus: Path, tmp_path: Path
) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"id": "1", "title": "Croup", "text": "Dexamethasone."}))
    steps: list[int] = []
    plan = plan_index(index, (), settings.model_copy(update={"encoders": {}}))
    assert [encoder.identity.where for encoder, _ in plan.sides] == ["minilm", "e5"]
    build_index([open_corpus(more)], index, steps.append, plan=plan)
    assert embedded(steps) == [1, 1]


CHILD = """
import sys
from pathlib import Path
from medlive.evidence import vectors
from medlive.evidence.build import build_index
from medlive.evidence.plan import plan_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.encoders.table import EncoderModel, EncoderSettings
corpus, folder, model = map(Path, sys.argv[1:])
own = {"minilm": EncoderModel(query=str(model), languages=("en",))}
settings = EncoderSettings(models=folder.parent, own_encoders=own, encoders={"all": "minilm"})
vectors.SHARD = 8
plan = plan_index(folder, (), settings)
def step(passages):
    print(passages, flush=True)
build_index([open_corpus(corpus)], folder, step, plan=plan)
"""


@pytest.mark.thorough
def test_a_killed_build_goes_on_and_embeds_nothing_twice(
    settings: EncoderSettings, tmp_path: Path
) -> None:
    corpus = tmp_path / "notes.jsonl"
    rows = []
    for number in range(24):
        for title, text in ENGLISH.items():
            rows.append(
                {"id": f"{title}{number}", "title": title, "text": f"{text} {number}"}
            )
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    folder, model = tmp_path / "index", settings.own_encoders["minilm"].query
    child = [sys.executable, "-c", CHILD, str(corpus), str(folder), model]
    with subprocess.Popen(child, stdout=subprocess.PIPE, text=True) as build:
        assert build.stdout is not None
        for line in build.stdout:
            if int(line) >= 16:
                build.send_signal(signal.SIGKILL)
                break
    again = subprocess.run(child, capture_output=True, text=True, check=True)
    count = int(again.stdout.splitlines()[-1])
    # The shard that was told last may not have been written yet.
    assert 0 < count <= len(rows) - 8
    assert verify_index(folder).dense[0].part.count == len(rows)


def test_a_model_that_changed_under_its_name_is_noticed(
    index: Path, settings: EncoderSettings
) -> None:
    e5 = settings.own_encoders["e5"]
    swapped = e5.model_copy(update={"query": "e5-passage", "passage": "e5-query"})
    changed = {**settings.own_encoders, "e5": swapped}
    changed_settings = settings.model_copy(update={"own_encoders": changed})
    with pytest.raises(IndexOutdated, match="e5"):
        open_index(index, settings=changed_settings)
    elsewhere = e5.model_copy(update={"base_url": f"{e5.base_url}/"})
    own = {**settings.own_encoders, "e5": elsewhere}
    open_index(index, settings=settings.model_copy(update={"own_encoders": own}))


@pytest.fixture
def english(
    settings: EncoderSettings, tmp_path: Path
) -> tuple[EncoderSettings, Path, Path]:
    """An index with MiniLM alone, from a folder that a test may spoil: its settings, the index and the model."""
    model = Path(
        shutil.copytree(settings.own_encoders["minilm"].query, tmp_path / "model")
    )
    entry = EncoderModel(query=str(model), languages=("en",))
    own = settings.model_copy(
        update={"own_encoders": {"ours": entry}, "encoders": {"en": "ours"}}
    )
    corpus = tmp_path / "notes.jsonl"
    rows = [{"id": t, "title": t, "text": ENGLISH[t]} for t in ENGLISH]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    folder = tmp_path / "index"
    build_index([open_corpus(corpus)], folder, plan=plan_index(folder, (), own))
    return own, folder, model


def test_a_damaged_shard_is_named_and_its_passages_are_embedded_anew(
    english: tuple[EncoderSettings, Path, Path], tmp_path: Path
) -> None:
    own, index, _ = english
    [shard] = index.glob("vectors/*/shard-*.vec")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(IndexCorrupt, match=rf"{shard.name} has sha256:") as caught:
        verify_index(index)
    assert f"remove {shard.with_suffix('.json')}" in (caught.value.hint or "")
    shard.write_bytes(whole[:-2])
    more = open_corpus(tmp_path / "notes.jsonl", name="more")
    plan = plan_index(index, (), own)
    with pytest.raises(IndexCorrupt, match=rf"{shard.name} has \d+ bytes, expected"):
        build_index([more], index, plan=plan)
    shard.with_suffix(".json").unlink()
    shard.unlink()
    steps: list[int] = []
    build_index([more], index, steps.append, plan=plan)
    assert embedded(steps) == [5]
    assert verify_index(index).passages == 10


def test_weights_that_changed_under_an_index_are_another_encoder(
    english: tuple[EncoderSettings, Path, Path],
) -> None:
    own, index, model = english
    weights = model / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(IndexOutdated, match="vectors were made by encoder ours"):
        open_index(index, settings=own)
    assert open_index(index, settings=own, retriever="bm25").identity.dense is None
    steps: list[int] = []
    corpus = open_corpus(index.parent / "notes.jsonl")
    build_index([corpus], index, steps.append, plan=plan_index(index, (), own))
    assert embedded(steps) == [5]
    open_index(index, settings=own)


def spoil_pooling(model: Path) -> None:
    modules = json.loads((model / "modules.json").read_text())
    kept = [module for module in modules if not module["type"].endswith("Pooling")]
    (model / "modules.json").write_text(json.dumps(kept))


def spoil_code(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "modeling.Own"}
    (model / "config.json").write_text(json.dumps(config))


def spoil_half(model: Path) -> None:
    weights = model / "model.safetensors"
    with weights.open("r+b") as handle:
        handle.truncate(weights.stat().st_size // 2)


def spoil_tokenizer(model: Path) -> None:
    for name in ("tokenizer.json", "vocab.txt"):
        (model / name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_pooling, "does not say how the vectors of its tokens become one"),
        (spoil_code, "needs Python code of its own"),
        (spoil_half, "cannot be loaded"),
        (spoil_tokenizer, r"lacks tokenizer\.json"),
    ],
)
def test_a_model_folder_that_is_not_whole_is_refused_by_its_fault(
    english: tuple[EncoderSettings, Path, Path],
    spoil: Callable[[Path], None],
    message: str,
) -> None:
    own, index, model = english
    spoil(model)
    for use in (
        open_index,
        lambda _, settings: open_encoder("ours", settings=settings),
    ):
        with pytest.raises(EvidenceUnavailable, match=message) as caught:
            use(index, settings=own)
        assert caught.value.hint


@pytest.mark.thorough
def test_an_encoder_that_does_not_know_chinese_spoils_no_chinese_search(
    settings: EncoderSettings, corpus: Path, tmp_path: Path
) -> None:
    corpus_zh = tmp_path / "zh.jsonl"
    rows = []
    for number in range(8):
        for title, text in CHINESE.items():
            row = {"id": f"{title}{number}", "title": f"{title}第{number}例报告"}
            rows.append(row | {"text": f"{number}。{text}", "language": "zh"})
    corpus_zh.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    deaf = settings.own_encoders["minilm"].model_copy(
        update={"languages": ("en", "zh")}
    )
    own = settings.model_copy(
        update={"own_encoders": {"deaf": deaf}, "encoders": {"all": "deaf"}}
    )
    manifest = build_index(
        [open_corpus(corpus_zh)],
        tmp_path / "index",
        plan=plan_index(tmp_path / "index", (), own),
    )
    weights = {weight.language: weight for weight in manifest.dense[0].weights}
    assert weights["zh"].items == 40
    assert weights["zh"].weight < 1
    retriever = open_index(tmp_path / "index", settings=own)
    titles = [row["title"] for row in rows]
    hits = asyncio.run(retriever.search([(title,) for title in titles], k=1))
    found = sum(hit[0].passage.title == t for hit, t in zip(hits, titles, strict=True))
    assert found / len(titles) >= 0.95
