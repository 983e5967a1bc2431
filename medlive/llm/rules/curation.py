"""The curation's tasks by rules: whole sentences are taken as they stand, words are counted, no medicine is known."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from medlive.llm.rules.text import (
    CONTENT_STOP,
    STOP_ZH,
    bigrams,
    can_be_quoted,
    glosses,
    is_clinical,
    language_of,
    plain,
    sentences,
    statement,
    stem,
    stems,
    unmarked,
    words,
)

Inputs = Mapping[str, Any]
Values = dict[str, Any]

_MOST: Final = 40
_ASKS: Final = re.compile(
    r"\?|？|\b(?:please|kindly)\b[^.]{0,40}\b(?:suggest|advise|help|tell|guide)|怎么|如何|吗\b|吗[。？?]?$|什么|请问|能不能|要不要|可以.{0,12}吗|是否",
    re.IGNORECASE,
)
_CLOSED: Final = re.compile(
    r"^\W*(?:no|yes|none|没有|没|有|是的|不是|无)\W*$", re.IGNORECASE
)
_COURTESY: Final = re.compile(
    r"^\W*(?:hi|hello|dear|thanks?|thank you|regards|best|good (?:morning|evening))\b[^.]{0,60}$|https?://|-->|<link>"
    r"|(?:thanks?|thank you|welcome) (?:for|to)|i (?:have gone through|understand your)|kindly rate"
    r"|hope (?:this|i)|any (?:further|more) quer"
    r"|您好|你好|谢谢|感谢|已详细阅读|祝|满意|好评|资料我已",
    re.IGNORECASE,
)
_PLAN: Final = re.compile(
    r"\b(?:should|take|avoid|stop|start|continue|use|apply|see|consult|need|advise|recommend|suggest|do not|don't"
    r"|get|go|have|try|drink|eat|rest)\b|建议|应|可以|需要|不要|避免|复查|检查|服用|治疗|注意|去|住院",
    re.IGNORECASE,
)
_OBJECTIVE: Final = re.compile(
    r"\d|\b(?:old|weigh|test|scan|report|result)\b|岁|检查|化验|结果|诊断"
)
_NONCLINICAL: Final = re.compile(
    r"\b(?:residency|exam|salary|interview|fee|price|appointment|certificate|sick note|career|tuition|license)\b"
    r"|学费|考试|预约|挂号|请假|开证明|价格|多少钱|招聘|面试",
    re.IGNORECASE,
)
_CHECKLIST: Final = (
    (
        "Who the patient is",
        "患者的年龄或性别",
        r"\b(?:\d+[\s-]?(?:year|yr|month)|male|female|man|woman|boy|girl)|岁|男|女|孩子|宝宝",
    ),
    (
        "How long it has lasted",
        "持续时间",
        r"\b(?:day|week|month|year|since|hour|ago|today|yesterday)|天|周|月|年|小时|昨|今",
    ),
    ("What is complained of", "主要症状或问题", r"[a-z\u3400-\u9fff]"),
)
_LIKE: Final = 0.6  # The share of a claim's words that one sentence of a passage must hold to support it
_NOT: Final = re.compile(
    r"\b(?:not|no|never|avoid|without|cannot)\b|n't\b|[不没无未勿忌]|避免|禁"
)
_FUNCTION_TEXT: Final = (
    "a an the is are was were be been to of in on at for and or that this it"
)
_FUNCTION: Final = frozenset(_FUNCTION_TEXT.split())
_NOTHING: Final = re.compile(r"(?!)")
_MOST_TEXT: Final = 9_500
_ASKED: Final = {"en": "Is it said: {}?", "zh": "是否说到：{}？"}
_SAID: Final = re.compile(r"(?:Is it said: |是否说到：)(.+)[?？]", re.DOTALL)
_MOST_CRITERIA: Final = 7
_EMERGENCY: Final = re.compile(
    r"\b(?:emergency|ambulance|at once|immediately|urgent)|急诊|急救|立即|马上|120",
    re.IGNORECASE,
)
_PROFESSIONAL: Final = re.compile(
    r"\b(?:(?:my|our) patients?|my colleagues?|medical students?|residency)\b|我的病人|我科|住院医师|规培",
    re.IGNORECASE,
)


def extract(inputs: Inputs) -> Values:
    """{narrative, query, advice}: sentences with a clinical word; the patient's last one that asks, else the title."""
    narrative = []
    for message_id, text in _pieces(inputs, "patient"):
        if is_clinical(text) and not _ASKS.search(text) and not _CLOSED.match(text):
            kind = "objective" if _OBJECTIVE.search(text) else "subjective"
            narrative.append(_element(message_id, text, kind))
    advice = []
    for message_id, text in _pieces(inputs, "physician"):
        if not _COURTESY.search(text) and text[-1] not in "?？" and is_clinical(text):
            kind = "plan" if _PLAN.search(text) else "assessment"
            advice.append(_element(message_id, text, kind))
    title = inputs["title"].strip()
    asked = [("title", title)] if can_be_quoted(title) else []
    query = None
    for message_id, text in [*asked, *_pieces(inputs, "patient")]:
        if _ASKS.search(text) and is_clinical(text):
            question = statement(text)[:1900]
            query = {"message_id": message_id, "quote": text, "question": question}
    return {"narrative": narrative[:_MOST], "query": query, "advice": advice[:_MOST]}


def _pieces(inputs: Inputs, role: str) -> Iterator[tuple[str, str]]:
    """(message id, sentence) of one side's messages, without sentences that no reply could hold."""
    for message in inputs["messages"][:200]:
        for sentence in sentences(message["text"]) if message["role"] == role else ():
            text = unmarked(sentence)
            if can_be_quoted(text) and statement(text):
                yield message["id"], text


def _element(message_id: str, text: str, kind: str) -> Values:
    values = {"message_id": message_id, "quote": text, "kind": kind}
    return values | {"statement": statement(text)}


def judge_query(inputs: Inputs) -> Values:
    """{category, meaningful, of_its_time, reason}: clinical where a clinical word is in it."""
    text = inputs["query"][:4000]
    meaningful = not _NONCLINICAL.search(text) and is_clinical(text)
    return {
        "category": "management" if meaningful else "nonclinical",
        "meaningful": meaningful,
        "of_its_time": False,
        "reason": f"Names {'a clinical matter' if meaningful else 'nothing clinical'}.",
    }


def judge_sufficiency(inputs: Inputs) -> Values:
    """{consult, answers_now, required, prudent}: three items that any question has, found by their words."""
    stated = [(e["id"], plain(e["statement"])) for e in inputs["narrative"]]
    stated.append(("q", plain(inputs["query"])))
    is_chinese = language_of(inputs["language"], stated[-1][1]) == "zh"
    required = []
    for english, chinese, pattern in _CHECKLIST:
        ids = [i for i, text in stated if re.search(pattern, text)][:20]
        named = {"requirement": chinese if is_chinese else english}
        required.append({**named, "present": bool(ids), "element_ids": ids})
    return {"consult": "", "answers_now": False, "required": required, "prudent": []}


def state_claims(inputs: Inputs) -> Values:
    """{claims}: each advice as it stands, and what to search for: its own words and the question's."""
    claims = []
    for advice in inputs["advice"][:_MOST]:
        own, asked = _searched(advice["statement"]), _searched(inputs["query"])
        phrases = (f"{own} advice", f"medical {own} {asked}")
        claim = {"id": advice["id"], "statement": advice["statement"][:1900]}
        claims.append(
            {**claim, "queries": [phrase[:120].strip() for phrase in phrases]}
        )
    return {"claims": claims}


def _searched(text: str) -> str:
    named = []
    for word in dict.fromkeys(words(text)):
        if stem(word) not in CONTENT_STOP and not word[0].isdigit():
            named.append(word)
    return " ".join([*named[:12], *glosses(text)])


def align(inputs: Inputs) -> Values:
    """{verdicts}: supported where a sentence of a passage shares most words and denies as much, else neutral."""
    passages = []
    for passage in inputs["passages"]:
        for part in passage["text"].split(" … "):
            for sentence in filter(can_be_quoted, sentences(part)):
                passages.append((passage["id"], sentence))
    verdicts = []
    for claim in inputs["claims"]:
        text = claim["statement"][:2000]
        wanted = _terms(text)
        best, evidence = 0.0, list[Values]()
        for passage_id, sentence in passages:
            own = _terms(sentence)
            share = len(wanted & own) / max(4, len(wanted))
            if share > best and len(own) >= 4 and _denies(text) == _denies(sentence):
                best = share
                evidence = [{"passage_id": passage_id, "quotes": [sentence[:1900]]}]
        supported = best >= _LIKE
        verdict = {
            "id": claim["id"],
            "verdict": "supported" if supported else "neutral",
            "evidence": evidence if supported else [],
            "lacks": [],
            "reason": f"The nearest sentence shares {best:.0%} of the claim's words.",
        }
        verdicts.append(verdict)
    return {"verdicts": verdicts}


def _denies(text: str) -> bool:
    return _NOT.search(plain(text)) is not None


def _terms(text: str) -> set[str]:
    """What a text is about: English stems, pairs of Chinese characters, the glossary's words for them."""
    own = stems(text) - CONTENT_STOP
    return own | bigrams(text, STOP_ZH) | set(map(stem, glosses(text)))


def support(inputs: Inputs) -> Values:
    """{verdicts}: supported where every word of the statement stands in the title or a message."""
    source = " ".join([inputs["title"], *(m["text"] for m in inputs["messages"])])
    known = set(words(source))
    known |= set(map(stem, known)) | _FUNCTION | bigrams(source, _NOTHING)
    verdicts = []
    for element in inputs["elements"]:
        text = element["statement"]
        new = [w for w in words(text) if stem(w) not in known and w not in _FUNCTION]
        new += sorted(bigrams(text, _NOTHING) - known)
        reason = f"New words: {', '.join(new[:5])}." if new else ""
        verdicts.append({"id": element["id"], "supported": not new, "reason": reason})
    return {"verdicts": verdicts}


def write(inputs: Inputs) -> Values:
    """{narrative, advice}: the statements one after the other, assessments before plans."""
    ordered = sorted(inputs["advice"], key=lambda e: e["kind"] != "assessment")
    stated = " ".join(e["statement"] for e in inputs["narrative"])[:4000]
    is_chinese = language_of(inputs["language"], stated) == "zh"
    written = {}
    for name, elements in (("narrative", inputs["narrative"]), ("advice", ordered)):
        parts, length = [], 0
        for element in elements:
            part = element["statement"]
            if part[-1:] not in tuple("。！？!?.…"):
                part += "。" if is_chinese else "."
            if length + len(part) < _MOST_TEXT:
                parts.append(part)
                length += len(part) + 1
        written[name] = ("" if is_chinese else " ").join(parts)
    return written


def ask_questions(inputs: Inputs) -> Values:
    """{questions}: sentences of the text, evenly spread, each asked about."""
    text = inputs["text"][:24_000]
    language = language_of(inputs.get("language"), text[:4000])
    seen: dict[str, None] = {}
    for sentence in sentences(text):
        if _terms(sentence):
            seen[sentence.rstrip(".。?？!！")] = None
    parts = list(seen) or [text.strip()[:100] or "-"]
    count = max(1, min(inputs["count"], 20, len(parts)))
    step = len(parts) / count
    asked: dict[str, None] = {}
    for number in range(count):
        part = parts[int(number * step)][:400]
        asked[_ASKED[language].format(part)] = None
    return {"questions": list(asked)}


def answer_questions(inputs: Inputs) -> Values:
    """{answers}: yes where a sentence shares most words and denies as much, else unknown."""
    stated = [(_terms(s), _denies(s)) for s in sentences(inputs["text"][:24_000])]
    answers = []
    for asked in inputs["questions"][:_MOST]:
        question = asked["question"][:1000]
        match = _SAID.fullmatch(question)
        text = match[1] if match else question
        wanted, answer = _terms(text), "unknown"
        for own, denied in stated:
            is_like = wanted and len(wanted & own) >= _LIKE * len(wanted)
            if is_like and denied == _denies(text):
                answer = "yes"
        answers.append({"id": asked["id"], "answer": answer})
    return {"answers": answers}


def classify(inputs: Inputs) -> Values:
    """{reason, difficulty, dialogue_register}: the register where words say so; a difficulty would take a judgement."""
    is_professional = _PROFESSIONAL.search(f"{inputs['query']}\n{inputs['narrative']}")
    return {
        "reason": "By words alone; the rules engine makes no clinical judgement.",
        "difficulty": "unknown",
        "dialogue_register": "professional" if is_professional else "unknown",
    }


def write_rubric(inputs: Inputs) -> Values:
    """{asked, theme, specialty, facts, left_out, criteria, no_negative}: each advice becomes a criterion, the first one
    answers the query and is turned round into a penalty."""
    states, contradicts, stop = ("States: ", "Denies: ", ".")
    if language_of(inputs["language"], inputs["narrative"][:4000]) == "zh":
        states, contradicts, stop = ("指出", "否认：", "。")
    facts: list[Values] = []
    criteria: list[Values] = []
    for n, advice in enumerate(inputs["advice"][:_MOST_CRITERIA], 1):
        text = advice["statement"].rstrip(".。 ")[:900]
        facts.append({"id": f"f{n}", "fact": text, "advice_id": advice["id"]})
        axis = "Accuracy" if advice["kind"] == "assessment" else "Completeness"
        points = 7 if n == 1 else 5
        if _EMERGENCY.search(text):
            axis, points = "Safety", 8
        criterion = {
            "criterion": f"{states}{text}{stop}",
            "fact_id": f"f{n}",
            "asked": "q1" if n == 1 else "",
            "axis": axis,
            "points": points,
        }
        criteria.append(criterion)
    if facts:
        penalty = {
            "criterion": f"{contradicts}{facts[0]['fact']}{stop}",
            "axis": "Safety",
            "points": -5,
            "fact_id": "f1",
            "likely": "By words alone: the contrary of the first advice.",
        }
        criteria.append(penalty)
    left_out = []
    for advice in inputs["advice"][_MOST_CRITERIA:]:
        omitted = {"fact": advice["statement"][:900], "advice_id": advice["id"]}
        left_out.append({**omitted, "reason": "trivial"})
    is_urgent = any(criterion["points"] == 8 for criterion in criteria)
    return {
        "asked": [{"id": "q1", "text": inputs["query"][:500]}],
        "theme": "Emergency Referrals" if is_urgent else "Response Depth",
        "specialty": "unknown",
        "facts": facts,
        "criteria": criteria,
        "no_negative": "" if facts else "There is no advice.",
        "left_out": left_out,
    }


def match(inputs: Inputs) -> Values:
    """{matches}: points of equal words."""
    others = {item["point"]: item["id"] for item in inputs["others"]}
    matches = []
    for point in inputs["points"]:
        other = others.get(point["point"], "")
        matches.append({"id": point["id"], "other": other, "reason": "words"})
    return {"matches": matches}
