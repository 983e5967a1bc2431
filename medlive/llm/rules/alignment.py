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
    AGAINST,
    CLASSES,
    EFFICACY,
    LIMITED,
    clauses_of,
    conditions,
    lab_values,
    limit_met,
    objects,
    ordered,
)  # fmt: skip
from medlive.llm.rules.text import Language, bigrams, language_of, plain, sentences, stem

_PASSAGES: Final = 10
_LONGEST_PASSAGE: Final = 8000
_STORY: Final = 20_000
"""Characters of query and narrative that are read."""
_ENOUGH: Final = 0.5
"""Share of the claim's weight that one sentence must hold to support it."""
_ALMOST_ALL: Final = 0.72
"""The same, where the passage is titled after something that the case does not name."""
_LONG: Final = 8
"""Letters from which a word outside the word lists counts as a particular one."""
_TITLE: Final = 0.3
"""Share of a passage title's content words that the case must hold to be about the same thing."""
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
        ". ".join([str(inputs.get("query") or "")[:2000], *told])[:_STORY],
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
        ("avoid",
            r"\b(?:avoid|limit|stop|quit|reduc\w+|cut|refrain|abstain|not|never|don't|less)\b|避免|"
            r"不要|不宜|戒|停|少|忌|别|勿|禁"),
        ("test",
            r"\b(?:tests?|scans?|mri|ct|x-?rays?|ultrasound|biopsy|\w*scopy|check\w*|examin\w+|"
            r"monitor\w*|measur\w+|screen\w*|culture|ecg|ekg|level|evaluat\w+|rule out|diagnos\w+|"
            r"repeat\w*|investigations?)\b|检查|复查|化验|监测|测|CT|B超|核磁|镜|诊断|排除"),
        ("treat",
            r"\b(?:treat\w*|tak(?:e|en|ing)|us(?:e|ed|ing)|therap\w+|medic\w+|drugs?|antibiotics?|"
            r"cream|dose|mg|surgery|appl(?:y|ied)|prescri\w+|given|inject\w*|tablets?|vaccin\w+|"
            r"remov\w+|reliev\w+|relief|manag\w+|help\w*|cure\w*|start\w*|increas\w+)\b|治疗|服用|口服|"
            r"使用|用药|药|手术|注射|缓解|吃|接种"),
        ("live",
            r"\b(?:diet|eat\w*|drink\w*|exercis\w*|sleep\w*|rest|wash\w*|weight|fluids?|foods?|fiber|"
            r"walk\w*|smok\w*|alcohol|stress|hygiene|wear\w*|water|salt)\b|饮食|运动|休息|喝水|清淡|洗|"
            r"戴|锻炼|睡眠|蔬菜|水果|盐"),
        ("cause",
            r"\b(?:caus\w+|due to|because|lead[s]? to|result\w*|associated|risk\w*|trigger\w*|side "
            r"effects?|from|related|increase[sd]?|develop\w*|link\w+|can be|common\w*)\b|引起|导致|"
            r"原因|因为|由于|有关|相关|风险"),
        ("sign",
            r"\b(?:symptoms?|signs?|present\w*|feel\w*|include[sd]?|pain\w*|usually|may have|often|"
            r"characteri\w+|is an?|are|condition|disease|disorder|inflammation|infection|known as|"
            r"called)\b|症状|表现|常见|是|属于|疾病"),
        ("course",
            r"\b(?:weeks?|months?|days?|years?|resolv\w+|recover\w*|heal\w*|go(?:es)? away|last[s]?|"
            r"improv\w+|chance|percent|%|prognosis|settle\w*|self-limit\w+|disappear\w*)\b|天|周|自愈|"
            r"恢复|痊愈|消退|预后|好转"),
        ("refer",
            r"\b(?:see (?:a|your)|consult|doctor|specialist|emergency|hospital|health care provider|"
            r"911|call your|medical attention|seek|\w+ologist|surgeon)\b|就诊|就医|医院|急诊|医生"),
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


def _same_topic(title: set[str], known: set[str]) -> bool:
    """Whether what a passage is titled after is what the case is about; an untitled passage may be anything."""
    return not title or len(title & known) >= len(title) * _TITLE


def _diagnoses(claim: str) -> bool:
    """Whether a claim says what this patient has, which no passage can say."""
    return _YOU_HAVE.search(plain(claim)) is not None


_YOU_HAVE: Final = re.compile(
    r"^there (?:is|are)\b|\byours\b|\byou (?:are|were|may be|might be|could be) (?:probably |most "
    r"likely |likely )?(?:suffering|having|developing|infected)\b|\byou (?:probably |likely |most "
    r"likely |may |might )?"
    r"(?:have|had)\b(?! to)|\byour? (?:symptoms?|history|condition|problem|case)\b|\b(?:probable|"
    r"differential|provisional) (?:diagnosis|causes?)|\bit (?:seems|looks|sounds|appears)\b|"
    r"考虑(?:是|为)?|初步印象|您?的?(?:症状|情况)"
)


_LITTLE: Final = re.compile(
    r"\b(?:rare(?:ly)?|unlikely|low(?:er)? (?:risk|chance)|(?:risk|chance)s? (?:is|are) (?:very "
    r")?(?:low|less|small|minimal)|is (?:very )?low|uncommon|no (?:risk|chance))\b"
)
_METHOD: Final = re.compile(
    r"\b(?:participants?|recruit\w*|sample size|this study|the study|we (?:aimed|assessed|"
    r"investigated|examined|compared|studied|included|conducted)|"
    r"(?:patients|subjects) were (?:screened|randomi[sz]ed|enrolled|included)|questionnaires?|not "
    r"(?:yet )?been (?:evaluated|studied|used)|review of the literature|remains? unclear)\b"
)
"""What a study did or left open, which supports nothing."""
_TITLE_WORDS: Final = frozenset(("demo", "guidelin", "evidenc", "overview", "outlook", "complication"))


def _english_support(case: _Case) -> tuple[str, str, float] | None:
    """(passage id, sentence, share) of the sentence that says most of what the claim says, where it is enough."""
    claim = set(lexicon_en.content_words(case.claim))
    total = sum(_weight(w) for w in claim)
    specific = set(lexicon_en.specific_words(case.claim)) | {w for w in claim if len(w) >= _LONG and w.isalpha()}
    if len(claim) < _TERMS or len(specific) < 2:
        return None
    story = set(lexicon_en.specific_words(case.story))
    told = set(lexicon_en.content_words(case.story))
    rare = _LITTLE.search(plain(case.claim)) is not None
    primary, against = _primary(_acts(case.claim)), AGAINST.search(plain(case.claim)) is not None
    beyond = story - claim if _diagnoses(case.claim) else set()
    best: tuple[str, str, float] | None = None
    for passage in case.passages:
        topic = set(lexicon_en.content_words(passage.title)) - _TITLE_WORDS
        least = _ENOUGH if _same_topic(topic, told | claim) else _ALMOST_ALL
        for line in _lines(passage):
            content = set(lexicon_en.content_words(line))
            shared = claim & content
            if len(shared) >= _TERMS and _METHOD.search(plain(line)):
                continue
            if len(shared) < _TERMS or len(shared & specific) < 2 or not told & (content | topic):
                continue
            if _diagnoses(case.claim) and not beyond & content:
                continue  # the passage must tie the diagnosis to something that this patient reports
            if rare != (_LITTLE.search(plain(line)) is not None):
                continue
            by_title = (claim & topic & specific) - shared
            share = (sum(_weight(w) for w in shared) + 0.5 * sum(_weight(w) for w in by_title)) / total
            if share < least or (primary is not None and primary not in _acts(line)):
                continue
            if (AGAINST.search(plain(line)) is not None) != against and share < 0.85:
                continue
            if best is None or share > best[2]:
                best = (passage.id, line, share)
    return best


_DENIES: Final = re.compile(r"不是|没有|没|无(?!力)|未|排除|不(?!适|舒服|良|足|同|断|仅|但|少|用)")


def _chinese_support(case: _Case) -> tuple[str, str, float] | None:
    claim = bigrams(case.claim, lexicon_zh.STOP)
    story = bigrams(case.story, lexicon_zh.STOP)
    glossed = lexicon_zh.glosses(case.claim)
    told = {word for _, english in lexicon_zh.glosses(case.story) for word in english}
    covered = sum(len(spelling) for spelling, _ in glossed)
    length = max(1, len(re.findall(r"[一-鿿A-Za-z]", lexicon_zh.STOP.sub("", case.claim))))
    primary, against = _primary(_acts(case.claim)), AGAINST.search(plain(case.claim)) is not None
    best: tuple[str, str, float] | None = None
    # A glossary translates words: whether an English line denies what the claim denies, it does not tell.
    denied = _DENIES.search(plain(case.claim)) is not None
    for passage in case.passages:
        english = language_of(None, passage.text) == "en"
        if english and (len(glossed) < 2 or covered / length < _ENOUGH):
            continue
        about = bigrams(passage.title, lexicon_zh.STOP)
        words_of = {w for _, english_words in glossed for w in english_words}
        if english and not _same_topic(
            set(lexicon_en.content_words(passage.title)) - _TITLE_WORDS, {stem(w) for w in told | words_of}
        ):
            continue
        for line in _lines(passage):
            if english:
                inside = set(re.findall(r"[a-z0-9-]+", plain(line)))
                hit = [g for g in glossed if inside & set(g[1])]
                if denied or (_diagnoses(case.claim) and not (told - words_of) & inside):
                    continue
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
    return not re.search(
        r"\b(?:with|while|during|taking|who take|people on|because of|due to)\b|同服|合用", between
    )


_PATTERNS: Final = dict(CLASSES)


def _contradiction(case: _Case) -> _Clash | None:
    """A passage sentence that forbids, for this patient, what the claim orders."""
    positive = {o for o in objects(case.claim) if ordered(case.claim, o)}
    if not positive:
        return None
    named = conditions(case.claim)
    patient = conditions(case.story, told=True) | named
    values = lab_values(f"{case.story}. {case.claim}")
    for passage in case.passages:
        for line in _lines(passage):
            folded = plain(line)
            if AGAINST.search(folded) is None:
                continue
            shared = positive & objects(line)
            limit = limit_met(folded, values) if shared else None
            if not shared or limit is False:
                continue
            own = conditions(line)
            if not own <= (named if EFFICACY.search(folded) and limit is None else patient):
                continue
            for thing in sorted(shared):
                if not any(_speaks_against(c, thing) for c in clauses_of(folded)):
                    continue
                if (own or limit) and (limit or not LIMITED.search(folded)):
                    for_whom = ", ".join(sorted(own)) or "the value that the patient gives"
                    return _Clash(passage.id, line, f"The passage advises against {thing}: {for_whom}.")
                if not own and len(shared) >= 2 and not LIMITED.search(_without_company(folded)):
                    return _Clash(
                        passage.id, line, f"The passage advises against {' with '.join(sorted(shared))}."
                    )
    return None


def _without_company(text: str) -> str:
    return re.sub(r"at the same time|together with|along with|同时", " ", text)


def align(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{verdict, evidence, reason} of one claim."""
    case = _read(inputs)
    if (clash := _contradiction(case)) is not None:
        return {
            "verdict": "contradicted",
            "evidence": [{"passage_id": clash.passage_id, "quote": clash.quote}],
            "reason": clash.reason,
        }
    found = _chinese_support(case) if case.language == "zh" else _english_support(case)
    if found is None:
        return {"verdict": "neutral", "evidence": [], "reason": "No sentence says the same."}
    return {
        "verdict": "supported",
        "evidence": [{"passage_id": found[0], "quote": found[1]}],
        "reason": f"A sentence shares {min(found[2], 1.0):.0%} of the claim's content.",
    }


def goes_against(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A second look, clause by clause: object, prohibition and the patient's condition close together."""
    case = _read(inputs)
    named = conditions(case.claim)
    told = conditions(case.story, told=True) | named
    values = lab_values(f"{case.story}. {case.claim}")
    mentioned = objects(case.claim)
    ordering = sorted(o for o in mentioned if ordered(case.claim, o) is True)
    for passage in case.passages if ordering else ():
        for line in _lines(passage):
            folded = plain(line)
            if AGAINST.search(folded) is None:
                continue
            for thing in ordering:
                for clause in _stretches(folded):
                    if not _speaks_against(clause, thing) or LIMITED.search(_without_company(clause)):
                        continue
                    own = conditions(clause) or conditions(line)
                    others = (objects(clause) & mentioned) - {thing}
                    limit = limit_met(clause, values)
                    if limit is False or (EFFICACY.search(clause) and not limit and not own <= named):
                        continue
                    if limit or (own and own & told) or (not own and others):
                        return {
                            "goes_against": True,
                            "evidence": [{"passage_id": passage.id, "quote": line}],
                            "reason": f"For this patient the passage forbids {thing}.",
                        }
    return {"goes_against": False, "evidence": [], "reason": "No passage forbids it here."}


def _stretches(sentence: str) -> list[str]:
    """A sentence's parts between semicolons and adversatives; commas may stand inside one prohibition."""
    return [c for c in re.split(r"[;；]|\b(?:but|however|whereas)\b|但是?|不过", sentence) if c.strip()]
