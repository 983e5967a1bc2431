"""BM25 on disk: finds passages by the words they share with a query, weighted by rarity.

Tantivy scores with k1 = 1.2 and b = 0.75 (fixed in the library). A passage has two fields, the head (title
and section) and the body (the text); a term's scores in both are added, the head's times `HEAD_BOOST`.

Terms are the same for passages and queries: English stemmed, Chinese cut into words. Scripts are cut apart first,
so that mixed text ("HBV-DNA定量", "维生素B12") gives the terms of both. Nothing in a text is syntax.

Chinese: the segmenter's words with the dictionary words inside them, and the shipped names whole. Measured on
3,286 real questions, each looking for its own answer, that is as good as character bigrams (recall@32 0.470
and 0.465) with a quarter of the terms, and it keeps a drug's name in one piece.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import date
from functools import cache
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

from medlive.errors import (
    NO_SPACE,
    IndexCorrupt,
    MissingExtra,
)
from medlive.integrity.digest import digest_json
from medlive.text.lists import read_lists

from .corpora.parsing.text import HAN, stop_words
from .passage import Passage
from .store import Order, PassageStore

try:
    import rjieba
    import tantivy
except ImportError as exc:
    raise MissingExtra(
        "searching evidence needs the maintainer's install",
        hint="pip install 'medlive[service]'",
    ) from exc

HEAD_BOOST = 0.75
"""Measured: on the Cystic Fibrosis collection nDCG@10 is 0.446 without the head, 0.51-0.52 from 0.5 to 1, 0.476 at
2; on sentences of real advice more than 1 lets one word of a title outweigh the rest of the sentence."""
NUMBER_BOOST = 0.1
"""A number by itself matches anything ("37.2" finds preterm births, COVID-19 finds Dystonia 19): it settles
ties."""
_BOOSTS = {"body": 1.0, "head": HEAD_BOOST}
MAX_QUERY_CHARS = 8000
"""Characters; only the beginning of a longer query is read."""
MAX_QUERY_TERMS = 64
"""Terms that are searched, the rarest of the query; more would only slow it down."""
SCORE_DIGITS = 4
"""Digits of a score; the rest depends on the order of float additions."""

_WRITER_MEMORY = 64_000_000
MAX_TERM = 64
"""Bytes of the longest Latin term; longer ones are noise (a pasted key, base64) and are left out."""

_HAN_RUN = re.compile(f"([{HAN}]+)")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@cache
def _latin() -> Any:
    """The analyzer that cuts text in other scripts than Chinese into terms."""
    return (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.ascii_fold())
        .filter(tantivy.Filter.remove_long(MAX_TERM + 1))
        .filter(tantivy.Filter.stopword("english"))
        .filter(tantivy.Filter.custom_stopword(sorted(stop_words())))
        .filter(tantivy.Filter.stemmer("english"))
        .build()
    )


def terms(text: str) -> list[str]:
    """The terms in reading order, repeated as often as they occur; empty when the text holds no words.

    The first call loads the segmenter's dictionary (about 0.4 s) and medlive's names of drugs and diseases. Threads
    may share it.
    """
    text = unicodedata.normalize("NFKC", _SURROGATE.sub(" ", text))
    cut = []
    for number, run in enumerate(_HAN_RUN.split(text)):
        if number % 2 == 0:
            cut += _latin().analyze(run)
            continue
        # Of Chinese characters: the words, and the dictionary words inside long ones.
        names, stop = _terms_of_names(), stop_words()
        for word in rjieba.cut(run):
            if word in names:
                cut += names[word]
            elif word not in stop:
                cut += rjieba.cut_for_search(word) if len(word) > 2 else [word]
    return cut


def chinese_names() -> tuple[list[str], list[str]]:
    """The shipped Chinese names: those that are one term (drugs), and those whose words are terms too (the others)."""
    names = read_lists("medlive.evidence", "drugs_zh.txt")
    return names["whole"], names["parts"]


@cache
def _terms_of_names() -> dict[str, list[str]]:
    """Name → its terms, itself last: 盐酸二甲双胍 is found by 二甲双胍 too, never by a fragment of a name.

    The first call adds the names to the segmenter.
    """
    whole, parts = chinese_names()
    names = dict.fromkeys([*whole, *parts])
    # The library makes one segmenter on import: another would hold its dictionary twice (27 MB).
    for name in names:
        rjieba.add_word(name, None, None)
    terms_of = {}
    for name in names:
        spans = combinations(range(len(name) + 1), 2)
        inside = [name[start:end] for start, end in spans if end - start > 1]
        words = [word for word in inside if word in names]
        if name in parts:
            words += rjieba.cut_for_search(name)
        terms_of[name] = [*dict.fromkeys(w for w in words if w != name), name]
    return terms_of


@cache
def _fingerprint() -> str:
    """The digest of a fixed text's terms: it changes if text is cut differently, not with the libraries' versions."""
    whole, parts = chinese_names()
    probe = [
        *whole,
        *parts,
        "Patients' infections, 0.75mg naïve ﬁbrosis",
        "高血压病人可以口服硝苯地平控释片吗",
    ]
    return digest_json(list(map(terms, probe)))


def parameters() -> dict[str, float | int | str]:
    """What decides the results beside the passages; part of the index digest."""
    return {
        "k1": 1.2,
        "b": 0.75,
        "head_boost": HEAD_BOOST,
        "number_boost": NUMBER_BOOST,
        "max_query_terms": MAX_QUERY_TERMS,
        "analyzer": _fingerprint(),
    }


def libraries() -> dict[str, str]:
    """The versions of the libraries that cut and search."""
    return {"tantivy": version("tantivy"), "rjieba": version("rjieba")}


def _schema() -> Any:
    return (
        tantivy.SchemaBuilder()
        .add_text_field("head", tokenizer_name="whitespace", index_option="freq")
        .add_text_field("body", tokenizer_name="whitespace", index_option="freq")
        .add_unsigned_field("ordinal", fast=True)
        .add_integer_field("day", indexed=True, fast=True)
        .build()
    )


def index_passages(folder: Path, passages: Iterable[Passage]) -> Iterator[Passage]:
    """Build the index in a new folder, and yield each passage when it is added; ordinals count from 0.

    One thread, so that the same passages give the same segments. Raises OSError for a full disk.
    """
    folder.mkdir(parents=True)
    index = tantivy.Index(_schema(), path=str(folder))
    writer = index.writer(_WRITER_MEMORY, 1)
    try:
        for ordinal, passage in enumerate(passages):
            document = tantivy.Document()
            # Terms hold no white space, so that the engine's whitespace tokenizer gives them back as they are.
            head = terms(f"{passage.title} {passage.section}")
            document.add_text("head", " ".join(head))
            document.add_text("body", " ".join(terms(passage.text)))
            document.add_unsigned("ordinal", ordinal)
            if passage.published is not None:
                document.add_integer("day", passage.published.toordinal())
            writer.add_document(document)
            yield passage
        writer.commit()
        writer.wait_merging_threads()
    except ValueError as exc:
        # The engine reports a full disk in words only.
        for number in NO_SPACE:
            if f"os error {number})" in str(exc) or os.strerror(number) in str(exc):
                raise OSError(number, os.strerror(number)) from exc
        raise


class LexicalIndex:
    """The index on disk; one instance may serve any number of threads at once."""

    def __init__(self, folder: Path, store: PassageStore) -> None:
        """Open the index in `folder` over the passages of `store`. Raises IndexCorrupt."""
        try:
            self._index = tantivy.Index.open(str(folder))
            self._index.config_reader("manual")
            self._index.reload()
            self._searcher = self._index.searcher()
        except ValueError as exc:
            # Damaged, of another version of the engine, or without room for its lock file: it says so.
            raise IndexCorrupt(
                f"{folder} cannot be opened, which takes leave to write a lock file there: {exc}"
            ) from exc
        if self._searcher.num_docs != len(store):
            raise IndexCorrupt(
                f"{folder} indexes {self._searcher.num_docs} passages of {len(store)} stored"
            )
        self._folder = folder
        self._schema = self._index.schema
        self._store = store

    def search(
        self,
        text: str,
        k: int,
        not_after: date | None,
    ) -> Order:
        """The k best (ordinal, score), best first; equal scores are ordered by passage id.

        A query is plain text, whatever it holds; one without a word of the index finds nothing. `not_after`
        leaves out younger passages and changes no score. Raises IndexCorrupt for damaged files.
        """
        try:
            parsed = self._query(text, not_after)
            if parsed is None:
                return []
            # Fetch past k until a lower score shows that every passage that ties with the k-th is there.
            limit = k + 16
            while True:
                hits = self._searcher.search(parsed, limit, count=False).hits
                scores = [round(score, SCORE_DIGITS) for score, _ in hits]
                if len(hits) < limit or scores[-1] < scores[k - 1]:
                    break
                limit *= 4
            addresses = [address for _, address in hits]
            ordinals = self._searcher.fast_field_values("ordinal", addresses)
        except BaseException as exc:
            # The engine's panic is no Exception, so that nothing else would stop it before the process ends.
            if (
                not isinstance(exc, ValueError)
                and type(exc).__name__ != "PanicException"
            ):
                raise
            raise IndexCorrupt(f"{self._folder} cannot be read: {exc}") from exc
        numbers = [int(ordinal or 0) for ordinal in ordinals]
        return self._store.ordered(list(zip(numbers, scores, strict=True)), k)

    def _query(self, text: str, not_after: date | None) -> Any | None:
        """The engine's query, built term by term; None when no term is in the index."""
        known = []
        for term in set(terms(text[:MAX_QUERY_CHARS])):
            count = sum(self._searcher.doc_freq(field, term) for field in _BOOSTS)
            if count:
                known.append((count, term))
        if not known:
            return None
        clauses = []
        for _, term in sorted(known)[:MAX_QUERY_TERMS]:
            weight = NUMBER_BOOST if term.isdigit() else 1.0
            for field, boost in _BOOSTS.items():
                plain = tantivy.Query.term_query(self._schema, field, term, "freq")
                boosted = tantivy.Query.boost_query(plain, boost * weight)
                clauses.append((tantivy.Occur.Should, boosted))
        query = tantivy.Query.boolean_query(clauses)
        # A range costs more than the search itself, so it is asked for only where a passage lies beyond it.
        if not_after is None or not self._store.younger_than(not_after):
            return query
        younger = tantivy.Query.range_query(
            self._schema,
            "day",
            tantivy.FieldType.Integer,
            lower_bound=not_after.toordinal(),
            include_lower=False,
        )
        return tantivy.Query.boolean_query(
            [(tantivy.Occur.Must, query), (tantivy.Occur.MustNot, younger)]
        )
