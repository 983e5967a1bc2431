"""Text to index terms, the same for passages and queries: English stemmed, Chinese cut into words.

Scripts are cut apart first, so that mixed text ("HBV-DNA定量", "维生素B12") gives the terms of both. Nothing
in a text is syntax: whatever it holds, it comes out as a list of plain terms.

Chinese: the segmenter's words with the dictionary words inside them, and the shipped names whole. Measured on
3,286 real questions, each looking for its own answer, that is as good as character bigrams (recall@32 0.470
and 0.465) with a quarter of the terms, and it keeps a drug's name in one piece.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from importlib import resources

from medlive.digest import digest_json
from medlive.errors import MissingExtra
from medlive.evidence.corpora.parsing.text import HAN

try:
    import rjieba
    import tantivy
except ImportError as exc:
    raise MissingExtra(
        "searching evidence needs the maintainer's install", hint="pip install 'medlive[service]'"
    ) from exc

MAX_TERM = 64
"""Bytes of the longest Latin term; longer ones are noise (a pasted key, base64) and are left out."""

_HAN_RUN = re.compile(f"[{HAN}]+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Analyzer:
    """Cuts text into terms. Safe to share between threads once made."""

    def __init__(self) -> None:
        """Load the segmenter's dictionary (about 0.4 s) and medlive's names of drugs and diseases."""
        stop = _stop_words()
        self._latin = (
            tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
            .filter(tantivy.Filter.lowercase())
            .filter(tantivy.Filter.ascii_fold())
            .filter(tantivy.Filter.remove_long(MAX_TERM + 1))
            .filter(tantivy.Filter.stopword("english"))
            .filter(tantivy.Filter.custom_stopword(sorted(stop)))
            .filter(tantivy.Filter.stemmer("english"))
            .build()
        )
        self._stop = stop
        self._chinese = rjieba.Jieba()
        whole, parts = chinese_names()
        for name in (*whole, *parts):
            self._chinese.add_word(name, None, None)
        self._names = _terms_of_names(whole, parts, self._chinese.cut_for_search)
        probe = [
            *whole,
            *parts,
            "Patients' infections, 0.75mg naïve ﬁbrosis",
            "高血压病人可以口服硝苯地平控释片吗",
        ]
        self.fingerprint = digest_json([self.terms(text) for text in probe])
        """The digest of the terms of a fixed text: two analysers that cut alike have the same, whatever the
        versions of their libraries."""

    def terms(self, text: str) -> list[str]:
        """The terms in reading order, repeated as often as they occur; empty when the text holds no words."""
        text = unicodedata.normalize("NFKC", _SURROGATE.sub(" ", text))
        found: list[str] = []
        end = 0
        for run in _HAN_RUN.finditer(text):
            if run.start() > end:
                found += self._latin.analyze(text[end : run.start()])
            found += self.chinese_terms(run[0])
            end = run.end()
        if end < len(text):
            found += self._latin.analyze(text[end:])
        return found

    def chinese_terms(self, run: str) -> list[str]:
        """The terms of a run of Chinese characters: its words, and the dictionary words inside long ones."""
        found: list[str] = []
        for word in self._chinese.cut(run):
            named = self._names.get(word)
            if named is not None:
                found += named
            elif word not in self._stop:
                found += self._chinese.cut_for_search(word) if len(word) > 2 else [word]
        return found


def chinese_names() -> tuple[list[str], list[str]]:
    """The shipped names: those that are one term (drugs), those whose words count too (the others)."""
    lists: dict[str, list[str]] = {"[whole]": [], "[parts]": []}
    current = lists["[whole]"]
    for line in _data_lines("drugs_zh.txt"):
        if line in lists:
            current = lists[line]
        else:
            current.append(line)
    return lists["[whole]"], lists["[parts]"]


def _terms_of_names(whole: list[str], parts: list[str], words: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """Each name's terms, itself last: 盐酸二甲双胍 is found by 二甲双胍 too, never by a splinter."""
    names = {*whole, *parts}
    longest = max(map(len, names))
    terms: dict[str, list[str]] = {}
    for name in (*whole, *parts):
        inside = [
            name[start:end]
            for start in range(len(name))
            for end in range(start + 2, min(len(name), start + longest) + 1)
            if name[start:end] in names
        ]
        if name in parts:
            inside += words(name)
        terms[name] = [term for term in dict.fromkeys(inside) if term != name] + [name]
    return terms


def _stop_words() -> frozenset[str]:
    return frozenset(word for line in _data_lines("stop_words.txt") for word in line.split())


def _data_lines(name: str) -> list[str]:
    text = (resources.files("medlive.evidence") / "data" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@cache
def analyzer() -> Analyzer:
    """The process's one analyser."""
    return Analyzer()
