"""`validator.alignment` and `validator.veto`: how a claim stands to the passages retrieved for it.

Support asks that one sentence of a passage shares most of the claim's weighty words and its kind of
statement. Contradiction asks for the same object, the opposite order, and the patient's own condition:
conservative on purpose, since a contradiction discards the whole case.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from medlive.llm.rules import lexicon_en, lexicon_zh
from medlive.llm.rules.polarity import (
    AGAINST, CLASSES, FOR, LIMITED, clauses_of, conditions, limits_met, objects, ordered,
)  # fmt: skip
from medlive.llm.rules.text import Language, bigrams, language_of, plain, sentences

_PASSAGES: Final = 10
_LONGEST_PASSAGE: Final = 8000
_ENOUGH: Final = 0.55
"""Share of the claim's weight that one sentence must hold to support it."""
_TERMS: Final = 3
"""Content words that a claim must have, and share with the sentence, before it can be supported."""


class _Passage(NamedTuple):
    id: str
    title: str
    text: str


class _Case(NamedTuple):
    language: Language
    claim: str
    story: str
    passages: tuple[_Passage, ...]


def _read(inputs: Mapping[str, Any]) -> _Case:
    claim = inputs.get("claim") or {}
    statement = str(claim.get("statement") or "")[:2000]
    told = [str(e.get("statement") or "")[:2000] for e in list(inputs.get("narrative") or ())[:60]]
    passages = tuple(
        _Passage(
            str(p.get("id") or ""), str(p.get("title") or "")[:500], str(p.get("text") or "")[:_LONGEST_PASSAGE]
        )
        for p in list(inputs.get("passages") or ())[:_PASSAGES]
    )
    return _Case(
        language_of(inputs.get("language"), statement),
        statement,
        ". ".join([str(inputs.get("query") or "")[:2000], *told]),
        passages,
    )


def _lines(passage: _Passage) -> Iterator[str]:
    language = language_of(None, passage.text)
    for one in sentences(passage.text, language):
        if len(one.text) >= 8 and not any("\ud800" <= c <= "\udfff" for c in one.text):
            yield one.text


_ACTS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("avoid", r"\b(?:avoid|limit|stop|quit|reduc\w+|cut|refrain|abstain|not|never|don't|less)\b|避免|不要|不宜|戒|停|少|忌|别|勿|禁"),
        ("test", r"\b(?:tests?|scans?|mri|ct|x-?rays?|ultrasound|biopsy|\w*scopy|check\w*|examin\w+|monitor\w*|measur\w+|screen\w*|culture|ecg|ekg|level|evaluat\w+|rule out|diagnos\w+|repeat\w*|investigations?)\b|检查|复查|化验|监测|测|CT|B超|核磁|镜|诊断|排除"),
        ("treat", r"\b(?:treat\w*|tak(?:e|en|ing)|us(?:e|ed|ing)|therap\w+|medic\w+|drugs?|antibiotics?|cream|dose|mg|surgery|appl(?:y|ied)|prescri\w+|given|inject\w*|tablets?|vaccin\w+|remov\w+|reliev\w+|relief|manag\w+|help\w*|cure\w*|start\w*|increas\w+)\b|治疗|服用|口服|使用|用药|药|手术|注射|缓解|吃|接种"),
        ("live", r"\b(?:diet|eat\w*|drink\w*|exercis\w*|sleep\w*|rest|wash\w*|weight|fluids?|foods?|fiber|walk\w*|smok\w*|alcohol|stress|hygiene|wear\w*|water|salt)\b|饮食|运动|休息|喝水|清淡|洗|戴|锻炼|睡眠|蔬菜|水果|盐"),
        ("cause", r"\b(?:caus\w+|due to|because|lead[s]? to|result\w*|associated|risk\w*|trigger\w*|side effects?|from|related|increase[sd]?|develop\w*|link\w+|can be|common\w*)\b|引起|导致|原因|因为|由于|有关|相关|风险"),
        ("sign", r"\b(?:symptoms?|signs?|present\w*|feel\w*|include[sd]?|pain\w*|usually|may have|often|characteri\w+|is an?|are|condition|disease|disorder|inflammation|infection|known as|called)\b|症状|表现|常见|是|属于|疾病"),
        ("course", r"\b(?:weeks?|months?|days?|years?|resolv\w+|recover\w*|heal\w*|go(?:es)? away|last[s]?|improv\w+|chance|percent|%|prognosis|settle\w*|self-limit\w+|disappear\w*)\b|天|周|自愈|恢复|痊愈|消退|预后|好转"),
        ("refer", r"\b(?:see (?:a|your)|consult|doctor|specialist|emergency|hospital|health care provider|911|call your|medical attention|seek|\w+ologist|surgeon)\b|就诊|就医|医院|急诊|医生"),
    )
)  # fmt: skip


def _acts(text: str) -> set[str]:
    folded = plain(text)
    return {name for name, pattern in _ACTS if pattern.search(folded)}


def _weight(word: str) -> float:
    if word[0].isdigit():
        return 0.4
    if word in lexicon_en.DRUGS or lexicon_en.is_drug(word):
        return 2.5
    if word in lexicon_en.CLINICAL:
        return 1.0 if word in lexicon_en.VAGUE else 2.0
    return 0.8


def _primary(acts: set[str]) -> str | None:
    """What kind of statement a claim chiefly is: the first of _ACTS that it shows."""
    return next((name for name, _ in _ACTS if name in acts), None)


def _diagnoses(claim: str) -> bool:
    """Whether a claim says what this patient has, which no passage can say."""
    return _YOU_HAVE.search(plain(claim)) is not None


_YOU_HAVE: Final = re.compile(
    r"\byou (?:are|were|may be|might be|could be) (?:probably |most likely |likely )?(?:suffering|having|developing|infected)\b|\byou (?:probably |likely |most likely |may |might )?"
    r"(?:have|had)\b(?! to)|\byour? (?:symptoms?|history|condition|problem|case)\b|\b(?:probable|differential|provisional) (?:diagnosis|causes?)|\bit (?:seems|looks|sounds|appears)\b|考虑(?:是|为)?|初步印象|您?的?(?:症状|情况)"
)


def _english_support(case: _Case) -> tuple[str, str, float] | None:
    """(passage id, sentence, share) of the sentence that says most of what the claim says, where it is enough."""
    claim = set(lexicon_en.content_words(case.claim))
    total = sum(_weight(w) for w in claim)
    specific = set(lexicon_en.specific_words(case.claim))
    if len(claim) < _TERMS or len(specific) < 2:
        return None
    story = set(lexicon_en.specific_words(case.story))
    primary, against = _primary(_acts(case.claim)), AGAINST.search(plain(case.claim)) is not None
    beyond = story - claim if _diagnoses(case.claim) else set()
    best: tuple[str, str, float] | None = None
    for passage in case.passages:
        topic = set(lexicon_en.content_words(passage.title))
        for line in _lines(passage):
            content = set(lexicon_en.content_words(line))
            shared = claim & content
            if len(shared) < _TERMS or len(shared & specific) < 2 or not story & (content | topic):
                continue
            if _diagnoses(case.claim) and not beyond & content:
                continue  # the passage must tie the diagnosis to something that this patient reports
            by_title = (claim & topic & specific) - shared
            share = (sum(_weight(w) for w in shared) + 0.5 * sum(_weight(w) for w in by_title)) / total
            if share < _ENOUGH or (primary is not None and primary not in _acts(line)):
                continue
            if (AGAINST.search(plain(line)) is not None) != against and share < 0.85:
                continue
            if best is None or share > best[2]:
                best = (passage.id, line, share)
    return best


def _chinese_support(case: _Case) -> tuple[str, str, float] | None:
    claim = bigrams(case.claim, lexicon_zh.STOP)
    story = bigrams(case.story, lexicon_zh.STOP)
    glossed = lexicon_zh.glosses(case.claim)
    told = {word for _, english in lexicon_zh.glosses(case.story) for word in english}
    covered = sum(len(spelling) for spelling, _ in glossed)
    length = max(1, len(re.findall(r"[一-鿿A-Za-z]", lexicon_zh.STOP.sub("", case.claim))))
    primary, against = _primary(_acts(case.claim)), AGAINST.search(plain(case.claim)) is not None
    best: tuple[str, str, float] | None = None
    for passage in case.passages:
        english = language_of(None, passage.text) == "en"
        if english and (len(glossed) < 2 or covered / length < _ENOUGH):
            continue
        about = bigrams(passage.title, lexicon_zh.STOP)
        for line in _lines(passage):
            if english:
                inside = set(re.findall(r"[a-z0-9-]+", plain(line)))
                hit = [g for g in glossed if inside & set(g[1])]
                if len(hit) < 2 or not told & (inside | set(re.findall(r"[a-z0-9-]+", plain(passage.title)))):
                    continue
                share = len(hit) / len(glossed)
            else:
                held = bigrams(line, lexicon_zh.STOP)
                inside_zh = claim & held
                if len(inside_zh) < 2 or not lexicon_zh.CLINICAL.search(line) or not story & (held | about):
                    continue
                share = (len(inside_zh) + 0.5 * len((claim & about) - held)) / len(claim)
                if len(inside_zh) < 4 and share < 0.75:
                    continue
            if share < (0.7 if english else _ENOUGH) or (primary is not None and primary not in _acts(line)):
                continue
            if (AGAINST.search(plain(line)) is not None) != against and share < 0.9:
                continue
            if best is None or share > best[2]:
                best = (passage.id, line, share)
    return best


class _Clash(NamedTuple):
    passage_id: str
    quote: str
    reason: str


def _speaks_against(clause: str, thing: str) -> bool:
    """Whether the clause's prohibition is about the thing, not about something else in its company."""
    pattern = _PATTERNS.get(thing)
    at = pattern.search(clause) if pattern else re.search(re.escape(thing), clause)
    against = AGAINST.search(clause)
    if at is None or against is None:
        return False
    between = clause[against.end() : at.start()]
    return not re.search(r"\b(?:with|while|during|taking|who take|people on|because of|due to)\b|同服|合用", between)


_PATTERNS: Final = dict(CLASSES)


def _contradiction(case: _Case) -> _Clash | None:
    """A passage sentence that forbids, for this patient, what the claim orders."""
    positive = {o for o in objects(case.claim) if ordered(case.claim, o)}
    if not positive:
        return None
    patient = conditions(case.story, told=True) | conditions(case.claim)
    for passage in case.passages:
        for line in _lines(passage):
            folded = plain(line)
            if AGAINST.search(folded) is None:
                continue
            shared = positive & objects(line)
            needed = conditions(line)
            if not shared or not limits_met(line, case.story):
                continue
            for thing in sorted(shared):
                if not any(_speaks_against(c, thing) for c in clauses_of(folded)):
                    continue
                own = needed - _themselves(thing)
                if own and own <= patient and not LIMITED.search(folded):
                    return _Clash(
                        passage.id, line, f"The passage advises against {thing} in {', '.join(sorted(own))}."
                    )
                if not own and len(shared) >= 2 and not LIMITED.search(_without_company(folded)):
                    return _Clash(
                        passage.id, line, f"The passage advises against {' with '.join(sorted(shared))}."
                    )
    return None


def _without_company(text: str) -> str:
    return re.sub(r"at the same time|together with|along with|同时", " ", text)


def _themselves(thing: str) -> set[str]:
    """Conditions that an object's own name brings along."""
    return {"alcohol": set(), "vaccine": {"viral"}}.get(thing, set())


def align(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{verdict, passage_ids, quote, reason} of one claim."""
    case = _read(inputs)
    if (clash := _contradiction(case)) is not None:
        return {
            "verdict": "contradicted",
            "passage_ids": [clash.passage_id],
            "quote": clash.quote,
            "reason": clash.reason,
        }
    found = _chinese_support(case) if case.language == "zh" else _english_support(case)
    if found is None:
        return {"verdict": "neutral", "passage_ids": [], "quote": "", "reason": "No sentence says the same."}
    return {
        "verdict": "supported",
        "passage_ids": [found[0]],
        "quote": found[1],
        "reason": f"A sentence shares {min(found[2], 1.0):.0%} of the claim's content.",
    }


def goes_against(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A second look, clause by clause: object, prohibition and the patient's condition close together."""
    case = _read(inputs)
    told = conditions(case.story, told=True)
    for passage in case.passages:
        for line in _lines(passage):
            folded = plain(line)
            for thing in sorted(objects(line) & objects(case.claim)):
                if ordered(case.claim, thing) is not True or FOR.search(plain(case.claim)) is None:
                    continue
                for clause in _stretches(folded):
                    if not _speaks_against(clause, thing):
                        continue
                    own = conditions(clause) or conditions(line)
                    others = (objects(clause) & objects(case.claim)) - {thing}
                    if not limits_met(line, case.story) or LIMITED.search(_without_company(clause)):
                        continue
                    if (own and own & told) or (not own and others):
                        return {
                            "goes_against": True,
                            "passage_ids": [passage.id],
                            "quote": line,
                            "reason": f"For this patient the passage forbids {thing}.",
                        }
    return {"goes_against": False, "passage_ids": [], "quote": "", "reason": "No passage forbids it here."}


def _stretches(sentence: str) -> list[str]:
    """A sentence's parts between semicolons and adversatives; commas may stand inside one prohibition."""
    return [c for c in re.split(r"[;；]|\b(?:but|however|whereas)\b|但是?|不过", sentence) if c.strip()]
