"""Encoders on small random BERTs: the numbers of plain transformers, offline, or an error that helps."""

import json
import shutil
import socket
from importlib import import_module
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medlive.errors import EvidenceUnavailable, UsageError
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.encoders.model import Encoder
from medlive.evidence.encoders.opening import open_encoder, open_reranker
from medlive.evidence.encoders.table import EncoderModel, EncoderSettings
from medlive.evidence.index import open_index
from medlive.evidence.plan import plan_index

# Looked for and not imported: every worker collects this file, one runs it, and the import takes seconds.
for package in ("torch", "sentence_transformers"):
    if find_spec(package) is None:
        pytest.skip(
            "medlive[dense] is not installed: make dense", allow_module_level=True
        )

torch: Any
transformers: Any


@pytest.fixture(scope="module", autouse=True)
def _heavy() -> None:
    global torch, transformers
    torch, transformers = import_module("torch"), import_module("transformers")


QUERY, ARTICLE, CROSS = (
    "MedCPT-Query-Encoder",
    "MedCPT-Article-Encoder",
    "MedCPT-Cross-Encoder",
)
WORDS = [
    "fever",
    "cough",
    "aspirin",
    "heart",
    "renal",
    "dose",
    "child",
    "trial",
    "肺",
    "炎",
    ".",
    ",",
    "##s",
    "##al",
]
LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789"]
PAIRS = [
    ("Fever in a child", "Aspirin dose and renal trial. Heart cough fevers"),
    ("aspirin", "cough " * 700),
    ("fever " * 600, "heart " * 600),
    ("", "fever, cough"),
    ("fever cough", ""),
    ("", ""),
    ("肺炎", "child 肺炎 aspirin é ﬁ 😀 ‏א"),
]
QUERIES = ["Does aspirin help a child?", "", "fever " * 200, "肺炎", "x"]


def make_model(
    folder: Path, seed: int, kind: str = "BertModel", hidden: int = 32, **config: Any
) -> Path:
    """A BERT with random weights, and a tokenizer of a few words, saved as they are published."""
    folder.mkdir(parents=True)
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *LETTERS,
        *(f"##{c}" for c in LETTERS),
        *WORDS,
    ]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(
        folder
    )
    torch.manual_seed(seed)
    shape = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        initializer_range=0.3,
        **config,
    )
    getattr(transformers, kind)(shape).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    transformers.utils.logging.disable_progress_bar()
    make_model(folder / QUERY, 1)
    make_model(folder / ARTICLE, 2)
    make_model(folder / CROSS, 3, "BertForSequenceClassification", num_labels=1)
    return folder


@pytest.fixture(scope="module")
def own(models: Path, tmp_path_factory: pytest.TempPathFactory) -> EncoderSettings:
    """Settings without a cache."""
    return EncoderSettings(models=models)


@pytest.fixture
def damaged(own: EncoderSettings, copied: Path) -> EncoderSettings:
    """The same over models that a test may damage."""
    return own.model_copy(update={"models": copied})


@pytest.fixture(scope="module")
def encoder(models: Path, own: EncoderSettings) -> Encoder:
    return open_encoder("medcpt", settings=own)


@pytest.fixture
def copied(models: Path, tmp_path: Path) -> Path:
    """Models that a test may damage."""
    return Path(shutil.copytree(models, tmp_path / "copied"))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def plain(folder: Path, texts: list[Any], length: int, model: str = "AutoModel") -> Any:
    """The output of plain transformers, a text at a time, so that nothing is padded."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    loaded = getattr(transformers, model).from_pretrained(str(folder)).eval()
    outputs = []
    with torch.no_grad():
        for text in texts:
            tokens = tokenizer(
                [text],
                truncation=True,
                padding=True,
                max_length=length,
                return_tensors="pt",
            )
            outputs.append((tokens, loaded(**tokens)))
    return outputs


def first_tokens(outputs: Any) -> np.ndarray:
    return np.stack([output.last_hidden_state[0, 0].numpy() for _, output in outputs])


@pytest.mark.usefixtures("offline")
def test_passages_are_pairs_cut_at_512_whose_first_token_is_the_vector(
    models: Path, encoder: Encoder
) -> None:
    outputs = plain(models / ARTICLE, [list(pair) for pair in PAIRS], 512)
    vectors = encoder.encode_passages(PAIRS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(PAIRS), encoder.identity.dimension) == (len(PAIRS), 32)
    np.testing.assert_allclose(vectors, first_tokens(outputs), atol=1e-5)
    means = np.stack(
        [output.last_hidden_state[0].mean(0).numpy() for _, output in outputs]
    )
    assert np.abs(vectors - means).max(axis=1).min() > 0.05
    assert [tokens["input_ids"].shape[1] for tokens, _ in outputs][1:3] == [512, 512]
    assert outputs[0][0]["token_type_ids"].sum() > 0


@pytest.mark.usefixtures("offline")
def test_queries_stand_alone_and_are_cut_at_64(models: Path, encoder: Encoder) -> None:
    outputs = plain(models / QUERY, QUERIES, 64)
    np.testing.assert_allclose(
        encoder.encode_queries(QUERIES), first_tokens(outputs), atol=1e-5
    )
    assert outputs[2][0]["input_ids"].shape[1] == 64


def test_pooling_is_the_first_token_whatever_the_folder_says(
    copied: Path, encoder: Encoder, damaged: EncoderSettings
) -> None:
    for role in (QUERY, ARTICLE):
        modules = [
            {
                "idx": 0,
                "name": "0",
                "path": "",
                "type": "sentence_transformers.models.Transformer",
            },
            {
                "idx": 1,
                "name": "1",
                "path": "1_Pooling",
                "type": "sentence_transformers.models.Pooling",
            },
        ]
        (copied / role / "modules.json").write_text(json.dumps(modules))
        (copied / role / "1_Pooling").mkdir()
        pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
        (copied / role / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        (copied / role / "sentence_bert_config.json").write_text(
            '{"max_seq_length": 8, "do_lower_case": true}'
        )
    pooled = open_encoder("medcpt", settings=damaged)
    np.testing.assert_allclose(
        pooled.encode_passages(PAIRS), encoder.encode_passages(PAIRS), atol=1e-6
    )
    np.testing.assert_allclose(
        pooled.encode_queries(QUERIES), encoder.encode_queries(QUERIES), atol=1e-6
    )


def test_what_lies_behind_the_length_changes_nothing_and_the_title_counts(
    encoder: Encoder,
) -> None:
    # [CLS] title [SEP] text [SEP]: 512 - 3 - 1 words of the text are read.
    long = encoder.encode_passages([("fever", "cough " * 508 + "aspirin " * 900)])
    np.testing.assert_allclose(
        long, encoder.encode_passages([("fever", "cough " * 508)]), atol=1e-6
    )
    assert (
        np.abs(long - encoder.encode_passages([("fever", "cough " * 507)])).max() > 1e-4
    )
    assert (
        np.abs(long - encoder.encode_passages([("heart", "cough " * 508)])).max() > 1e-2
    )
    assert (
        np.abs(long - encoder.encode_passages([("", "fever " + "cough " * 508)])).max()
        > 1e-2
    )
    short = encoder.encode_queries(["fever " * 62 + "aspirin"])
    np.testing.assert_allclose(
        short, encoder.encode_queries(["fever " * 62]), atol=1e-6
    )


def test_queries_and_passages_have_encoders_of_their_own(encoder: Encoder) -> None:
    assert (
        np.abs(
            encoder.encode_queries(["fever"]) - encoder.encode_passages([("fever", "")])
        ).max()
        > 0.1
    )


def test_a_text_does_not_depend_on_its_batch_nor_on_its_place(
    own: EncoderSettings,
) -> None:
    pairs = [*PAIRS * 3, ("heart", "dose " * 40)]
    whole = open_encoder(
        "medcpt", settings=own.model_copy(update={"batch": 5})
    ).encode_passages(pairs)
    alone = open_encoder("medcpt", settings=own.model_copy(update={"batch": 1}))
    order = np.random.default_rng(0).permutation(len(pairs))
    shuffled = alone.encode_passages([pairs[place] for place in order])
    np.testing.assert_allclose(whole[order], shuffled, atol=2e-5)


def test_any_text_is_taken_and_none_gives_none(encoder: Encoder) -> None:
    texts = [
        "a\x00b\ufffd\u200b",
        "lone \ud800 surrogate",
        "x" * 5_000_000,
        "fever " * 1_000_000,
        " \n",
        "\u202eא",
    ]
    assert np.isfinite(encoder.encode_queries(texts)).all()
    assert np.isfinite(encoder.encode_passages([(text, text) for text in texts])).all()
    assert encoder.encode_queries([]).shape == (0, 32)
    assert encoder.encode_passages([]).shape == (0, 32)


@pytest.mark.usefixtures("offline")
def test_the_cross_encoder_gives_the_logit_of_query_and_passage(
    models: Path, own: EncoderSettings
) -> None:
    reranker = open_reranker("medcpt", settings=own)
    texts = [["fever in a child", f"{title} {text}".strip()] for title, text in PAIRS]
    outputs = plain(models / CROSS, texts, 512, "AutoModelForSequenceClassification")
    expected = np.array([output.logits[0, 0].item() for _, output in outputs])
    scores = reranker.score("fever in a child", PAIRS)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert len(np.unique(scores)) > len(PAIRS) - 2
    assert reranker.score("fever", []).shape == (0,)
    assert np.isfinite(reranker.score("x" * 5_000_000, [("", "y " * 1_000_000)])).all()


def test_one_weight_more_or_less_is_another_encoder(
    copied: Path, encoder: Encoder, damaged: EncoderSettings
) -> None:
    assert (
        open_encoder("medcpt", settings=damaged).identity.digest
        == encoder.identity.digest
    )
    folder = copied / ARTICLE
    model = transformers.AutoModel.from_pretrained(str(folder))
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[7, 3] += 1e-3
    model.save_pretrained(folder)
    assert (
        open_encoder("medcpt", settings=damaged).identity.digest
        != encoder.identity.digest
    )


def test_weights_that_leave_a_part_to_chance_are_refused(
    copied: Path, damaged: EncoderSettings
) -> None:
    folder = copied / QUERY
    model = transformers.AutoModel.from_pretrained(str(folder))
    state = {
        name: value
        for name, value in model.state_dict().items()
        if "layer.1.output" not in name
    }
    model.save_pretrained(folder, state_dict=state)
    with pytest.raises(EvidenceUnavailable, match="lack 4"):
        open_encoder("medcpt", settings=damaged)


def test_weights_without_a_pooler_are_whole(
    copied: Path, encoder: Encoder, damaged: EncoderSettings
) -> None:
    for role in (QUERY, ARTICLE):
        folder = copied / role
        model = transformers.AutoModel.from_pretrained(str(folder))
        state = {
            name: value
            for name, value in model.state_dict().items()
            if "pooler" not in name
        }
        model.save_pretrained(folder, state_dict=state)
    np.testing.assert_allclose(
        open_encoder("medcpt", settings=damaged).encode_queries(QUERIES),
        encoder.encode_queries(QUERIES),
        atol=1e-6,
    )


def test_weights_that_are_no_numbers_are_named(
    copied: Path, damaged: EncoderSettings
) -> None:
    folder = copied / QUERY
    model = transformers.AutoModel.from_pretrained(str(folder))
    with torch.no_grad():
        model.encoder.layer[1].output.dense.bias[0] = float("nan")
    model.save_pretrained(folder)
    with pytest.raises(
        EvidenceUnavailable,
    ):
        open_encoder("medcpt", settings=damaged).encode_queries(["fever"])


def test_encoders_that_do_not_belong_together_are_refused(
    copied: Path, tmp_path: Path, damaged: EncoderSettings
) -> None:
    shutil.rmtree(copied / ARTICLE)
    make_model(copied / ARTICLE, 2, hidden=40)
    with pytest.raises(EvidenceUnavailable, match="40"):
        open_encoder("medcpt", settings=damaged)
    shutil.rmtree(copied / ARTICLE)
    shutil.copytree(copied / QUERY, copied / ARTICLE)
    with pytest.raises(EvidenceUnavailable, match="belong together"):
        open_encoder("medcpt", settings=damaged)
    three = make_model(
        tmp_path / "three", 4, "BertForSequenceClassification", num_labels=3
    )
    with pytest.raises(EvidenceUnavailable, match="3 outputs"):
        open_reranker(str(three), settings=damaged)


@pytest.mark.thorough
def test_a_cross_encoder_of_random_weights_loses_and_stays_off(
    models: Path, own: EncoderSettings, tmp_path: Path
) -> None:
    corpus, folder = tmp_path / "notes.jsonl", tmp_path / "index"
    rows = []
    for n, (one, other) in enumerate(permutations(WORDS[:8], 2)):
        row = {"id": str(n), "title": f"{one} {other}", "text": f"{other} {n}."}
        rows.append(json.dumps(row) + "\n")
    corpus.write_text("".join(rows), "utf-8")
    # The table's entry, and a cross-encoder's folder.
    for name in ("medcpt", str(models / CROSS)):
        configured = own.model_copy(update={"reranker": name})
        plan = plan_index(folder, (), configured)._replace(sides=())
        assert plan.reranker.name == name
        manifest = build_index([open_corpus(corpus)], folder, plan=plan)
        assert manifest.reranker.items == 50
        assert manifest.reranker.after < manifest.reranker.before
        opened = open_index(folder, settings=configured)
        assert "reranker" not in (opened.identity.dense or {})


def test_a_plain_folder_wants_its_pooling_said_and_a_configured_one_has_it(
    models: Path, own: EncoderSettings
) -> None:
    folder = str(models / QUERY)
    with pytest.raises(EvidenceUnavailable, match="pooling") as caught:
        open_encoder(folder, settings=own)
    assert "[evidence.own_encoders" in (caught.value.hint or "")
    entry = EncoderModel(query=folder, pooling="mean", query_prompt="fever ")
    settings = own.model_copy(update={"own_encoders": {"mine": entry}})
    outputs = plain(models / QUERY, ["fever cough"], 512)
    mean = outputs[0][1].last_hidden_state[0].mean(0).numpy()
    vector = open_encoder("mine", settings=settings).encode_queries(["cough"])[0]
    np.testing.assert_allclose(vector, mean, atol=1e-5)


def test_a_name_that_means_nothing(own: EncoderSettings) -> None:
    with pytest.raises(UsageError):
        open_encoder("medcpz", settings=own)
