"""The sample consultations and evidence are what the demonstration says they are."""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache

from medlive.clock import now
from medlive.curation.model import Reason
from medlive.demo.samples import load_sample_threads, sample_evidence_path
from medlive.evidence.corpora import jsonl
from medlive.evidence.corpora.model import Corpus, ReadLog
from medlive.evidence.passage import Passage

THREADS = load_sample_threads()
KEPT = [t for t in THREADS if t.expect.outcome == "kept"]

FILTER_REASONS = {
    "posted_before",
    "posted_unknown",
    "posted_in_future",
    "not_clinical",
    "not_text_only",
    "non_alphanumeric",
    "language",
    "no_codebook_term",
    "duplicate",
    "no_verified_reply",
    "unsafe_content",
    "reidentification_risk",
    "empty_thread",
}
AGENT_REASONS = {
    "screener": {Reason.NO_NARRATIVE, Reason.NO_QUERY, Reason.NO_ADVICE},
    "validator": {
        Reason.QUERY_NOT_CLINICAL,
        Reason.INSUFFICIENT_NARRATIVE,
        Reason.CONTRADICTED,
        Reason.NOT_ALIGNED,
    },
}


@cache
def _passages() -> list[Passage]:
    log = ReadLog()
    corpus = Corpus("demo", sample_evidence_path(), jsonl.PASSAGES, "Apache-2.0")
    passages = list(corpus.passages(log))
    assert (log.problem_count, log.left_out) == (0, 0)
    return passages


def test_there_are_enough_threads_of_both_languages() -> None:
    languages = Counter(t.language for t in THREADS)
    assert len(THREADS) >= 64
    assert languages["en"] >= 34
    assert languages["zh"] >= 30
    assert len(KEPT) >= 30
    assert sum(t.language == "zh" for t in KEPT) >= 12
    assert {t.site for t in KEPT} == {"icliniq", "sdn", "dxy", "medlive"}


def test_addresses_and_ids_are_unique_and_lead_to_no_real_host() -> None:
    assert len({(t.site, t.thread_id) for t in THREADS}) == len(THREADS)
    assert len({t.url for t in THREADS}) == len(THREADS)
    hosts = {
        host
        for t in THREADS
        for host in re.findall(r"https?://([^/\s]+)", t.model_dump_json())
    }
    assert all(host.endswith(".example") for host in hosts)


def test_every_filter_rule_and_every_agent_reason_has_its_thread() -> None:
    rejected = [
        (t.expect.stage, t.expect.reason)
        for t in THREADS
        if t.expect.outcome == "rejected"
    ]
    assert {
        reason for stage, reason in rejected if stage == "filters"
    } == FILTER_REASONS
    for agent, reasons in AGENT_REASONS.items():
        assert {reason for stage, reason in rejected if stage == agent} == reasons
    assert all(t.expect.stage is None and t.expect.reason is None for t in KEPT)
    assert all(t.expect.why for t in THREADS)


def test_duplicates_name_a_kept_twin_and_one_crosses_sites_in_each_language() -> None:
    kept = {f"{t.site}/{t.thread_id}" for t in KEPT}
    copies = [t for t in THREADS if t.expect.reason == "duplicate"]
    assert {t.expect.duplicate_of for t in copies} <= kept
    crossing = {
        t.language
        for t in copies
        if not str(t.expect.duplicate_of).startswith(f"{t.site}/")
    }
    assert crossing == {"en", "zh"}


def test_dates_are_of_autumn_2026_unless_the_date_is_the_point() -> None:
    first, last = datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 11, 15, tzinfo=UTC)
    for thread in THREADS:
        if thread.expect.reason == "posted_unknown":
            assert thread.last_post is None
        elif thread.expect.reason == "posted_before":
            assert thread.posted_at.year < 2023
        elif thread.expect.reason == "posted_in_future":
            assert thread.posted_at.year >= 2040
        else:
            assert thread.posted_at is not None
            assert first <= thread.posted_at <= last
        moments = [m.posted_at for m in thread.messages if m.posted_at is not None]
        assert moments == sorted(moments)


def test_a_kept_thread_has_substance_on_both_sides() -> None:
    for thread in KEPT:
        asked = " ".join(m.text for m in thread.messages if m.role == "patient")
        advised = " ".join(m.text for m in thread.messages if m.verified)
        for words in (asked, advised):
            if thread.language == "en":
                assert len(words.split()) >= 60, thread.url
            else:
                assert len(words) >= 100, thread.url
        # An age, a dose, a length of time: what a clinician would ask first comes in figures.
        assert len(re.findall(r"\d", asked)) >= 4, thread.url


def test_a_kept_thread_holds_nothing_that_identifies_a_person() -> None:
    number = re.compile(r"\d{11}|\d{17}[\dXx]|\+\d{6}")
    words = re.compile(r"(?i)\bmy name is\b|\b(?:Mr|Mrs|Ms)\.|身份证|患者姓名|家住")
    for thread in KEPT:
        text = " ".join(m.text for m in thread.messages)
        assert "@" not in text, thread.url
        assert not number.search(text), thread.url
        assert not words.search(text), thread.url


def test_no_sample_lies_further_ahead_than_the_one_that_must() -> None:
    ahead = [
        t for t in THREADS if t.posted_at and t.posted_at > now() + timedelta(days=1)
    ]
    assert [t.expect.reason for t in ahead] == ["posted_in_future"]


def test_only_those_whom_the_site_shows_as_physicians_are_verified() -> None:
    for thread in THREADS:
        for message in thread.messages:
            assert message.verified == (message.role == "physician")
            if message.verified:
                shown = {
                    "icliniq": message.specialty,
                    "sdn": re.match("Attending|Resident|Fellow", message.status or ""),
                    "dxy": message.title and message.hospital,
                    "medlive": message.certification,
                }
                assert shown[thread.site], (thread.thread_id, message.author)
        if thread.messages:
            assert thread.messages[0].role == "patient"


def test_evidence_is_readable_dated_before_every_thread_and_in_both_languages() -> None:
    passages = _passages()
    assert len(passages) >= 120
    assert len({p.id for p in passages}) == len(passages)
    assert min(Counter(p.language for p in passages).values()) >= 50
    for passage in passages:
        assert passage.published is not None
        assert passage.published < datetime(2026, 9, 1, tzinfo=UTC).date()
        assert passage.title.startswith(("Demo guideline: ", "示例指南："))
        assert passage.url.startswith("https://example.org/")
        assert passage.licence == "Apache-2.0"


@cache
def _known(language: str | None) -> list[set[str]]:
    """The words of each passage in that language."""
    return [_words(p.text, p.language) for p in _passages() if p.language == language]


def _words(text: str, language: str | None) -> set[str]:
    if language == "en":
        return set(re.findall(r"[a-z]{5,}", text.lower()))
    chinese = re.findall(r"[\u4e00-\u9fff]+", text)
    return {run[i : i + 2] for run in chinese for i in range(len(run) - 1)}


def _spoken_of(words: set[str], language: str | None) -> bool:
    """Whether a passage shares two in five of a sentence's words."""
    return max(len(words & known) for known in _known(language)) >= 0.4 * len(words)


def test_evidence_speaks_about_the_advice_of_every_kept_thread() -> None:
    for thread in KEPT:
        advice = " ".join(m.text for m in thread.messages if m.verified)
        sentences = [
            words
            for sentence in re.split(r"(?<=[.。；])\s*", advice)
            if len(words := _words(sentence, thread.language)) >= 4
        ]
        told = sum(_spoken_of(words, thread.language) for words in sentences)
        assert told / len(sentences) > 0.5, thread.url


def test_advice_meant_to_be_unsupported_is_spoken_of_nowhere() -> None:
    for thread in (t for t in THREADS if t.expect.reason == Reason.NOT_ALIGNED):
        for message in (m for m in thread.messages if m.verified):
            for sentence in re.split(r"(?<=[.。])\s*", message.text):
                words = _words(sentence, thread.language)
                assert not words or not _spoken_of(words, thread.language), sentence
