"""The offline engine, to try the loop with: deterministic rules over the task's own inputs, and no judgement.

It takes sentences as they stand and counts words. It carries the demo where no reply is recorded, the tests' typed
tasks, and dry runs on real threads; whatever it answered is never published.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any

from medlive.errors import UsageError
from medlive.integrity.digest import digest_bytes, digest_json
from medlive.llm.engine import EngineIdentity, Finish, Reply, Request, Usage

from .grader import (
    grade_answers,
    grade_criterion,
    grade_rubric,
)
from .text import (
    CONTENT_STOP,
    STOP_ZH,
    bigrams,
    can_be_quoted,
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
Rule = Callable[[dict[str, Any]], Values]
_NO_JUDGEMENT = "The rules engine makes no clinical judgement."
_MOST = 40
_ASKS = re.compile(
    r"\?|？|\b(?:please|kindly)\b[^.]{0,40}\b(?:suggest|advise|help|tell|guide)|怎么|如何|吗\b|吗[。？?]?$|什么|请问|能不能|要不要|可以.{0,12}吗|是否",
    re.IGNORECASE,
)
_CLOSED = re.compile(r"^\W*(?:no|yes|none|没有|没|有|是的|不是|无)\W*$", re.IGNORECASE)
_COURTESY = re.compile(
    r"^\W*(?:hi|hello|dear|thanks?|thank you|regards|best|good (?:morning|evening))\b[^.]{0,60}$|https?://|-->|<link>"
    r"|(?:thanks?|thank you|welcome) (?:for|to)|i (?:have gone through|understand your)|kindly rate"
    r"|hope (?:this|i)|any (?:further|more) quer"
    r"|您好|你好|谢谢|感谢|已详细阅读|祝|满意|好评|资料我已",
    re.IGNORECASE,
)
_PLAN = re.compile(
    r"\b(?:should|take|avoid|stop|start|continue|use|apply|see|consult|need|advise|recommend|suggest|do not|don't"
    r"|get|go|have|try|drink|eat|rest)\b|建议|应|可以|需要|不要|避免|复查|检查|服用|治疗|注意|去|住院",
    re.IGNORECASE,
)
_OBJECTIVE = re.compile(
    r"\d|\b(?:old|weigh|test|scan|report|result)\b|岁|检查|化验|结果|诊断"
)
_NONCLINICAL = re.compile(
    r"\b(?:residency|exam|salary|interview|fee|price|appointment|certificate|sick note|career|tuition|license)\b"
    r"|学费|考试|预约|挂号|请假|开证明|价格|多少钱|招聘|面试",
    re.IGNORECASE,
)
_CHECKLIST = (
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
_LIKE = 0.6
"""The share of a text's words that one sentence must hold to say the same."""
_LEAST_TERMS = 4  # Of a claim and of the sentence that supports it
_NOT = re.compile(
    r"\b(?:not|no|never|avoid|without|cannot)\b|n't\b|[不没无未勿忌]|避免|禁"
)
_NOTHING = re.compile(r"(?!)")
_MOST_TEXT = 9_500
_ASKED = {"en": "Is it said: {}?", "zh": "是否说到：{}？"}
_SAID = re.compile(r"(?:Is it said: |是否说到：)(.+)[?？]", re.DOTALL)
_MOST_CRITERIA = 7


_FOLDER = files(__package__)
_FILES = [
    (file.name, digest_bytes(file.read_bytes()))
    for folder in (_FOLDER, _FOLDER / "data")
    for file in folder.iterdir()
    if file.is_file()
]
VERSION = digest_json(sorted(_FILES))[7:15]
"""Eight digits of the rules' own source and word lists: other rules are another engine."""


def _fixed(**reply: Any) -> Rule:
    return lambda _: reply


def _for_each(name: str, items: str, **fixed: Any) -> Rule:
    """Answers with the list `name`: the same for each of the `items` that were given."""
    return lambda inputs: {
        name: [{"id": item["id"], **fixed} for item in inputs[items]]
    }


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
    meaningful = is_clinical(text) and not _NONCLINICAL.search(text)
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
    """{claims}: each advice as it stands, searched for by its own words, alone and with the question's."""
    claims = []
    for advice in inputs["advice"][:_MOST]:
        text = advice["statement"][:1900]
        phrases = (f"advice {text}", f"medical {text[:60]} {inputs['query']}")
        queries = [plain(phrase)[:120].strip() for phrase in phrases]
        claims.append({"id": advice["id"], "statement": text, "queries": queries})
    return {"claims": claims}


def align(inputs: Inputs) -> Values:
    """{verdicts}: supported where a sentence of a passage shares most words and denies as much, else neutral."""
    passages = []
    for passage in inputs["passages"]:
        # What stands between two gaps
        for part in passage["text"].split(" … "):
            for sentence in filter(can_be_quoted, sentences(part)):
                passages.append((passage["id"], sentence, _terms(sentence)))
    verdicts = []
    for claim in inputs["claims"]:
        text = claim["statement"][:2000]
        wanted = _terms(text)
        best, evidence = 0.0, list[Values]()
        for passage_id, sentence, own in passages:
            share = len(wanted & own) / max(_LEAST_TERMS, len(wanted))
            is_said = len(own) >= _LEAST_TERMS and _denies(text) == _denies(sentence)
            if share > best and is_said:
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


def _terms(text: str) -> set[str]:
    """What a text is about: English stems and pairs of Chinese characters."""
    return (stems(text) - CONTENT_STOP) | bigrams(text, STOP_ZH)


def _denies(text: str) -> bool:
    return _NOT.search(plain(text)) is not None


def support(inputs: Inputs) -> Values:
    """{verdicts}: supported where every word of the statement stands in the title or a message."""
    source = " ".join([inputs["title"], *(m["text"] for m in inputs["messages"])])
    known = stems(source) | set(words(source)) | bigrams(source, _NOTHING)
    verdicts = []
    for element in inputs["elements"]:
        text = element["statement"]
        new = [word for word in words(text) if not known & {word, stem(word)}]
        new += sorted(bigrams(text, _NOTHING) - known)
        reason = f"New words: {', '.join(new[:5])}." if new else ""
        verdicts.append({"id": element["id"], "supported": not new, "reason": reason})
    return {"verdicts": verdicts}


def write(inputs: Inputs) -> Values:
    """{narrative, advice}: the statements one after the other, assessments before plans; what is too long for a text is
    left out."""
    ordered = sorted(inputs["advice"], key=lambda e: e["kind"] != "assessment")
    stated = " ".join(e["statement"] for e in inputs["narrative"])[:4000]
    is_chinese = language_of(inputs["language"], stated) == "zh"
    stop, space = ("。", "") if is_chinese else (".", " ")
    written = {}
    for name, elements in (("narrative", inputs["narrative"]), ("advice", ordered)):
        text = ""
        for element in elements:
            part = element["statement"]
            part = part if part[-1:] in "。！？!?.…" else part + stop
            longer = f"{text}{space}{part}".strip()
            text = longer if len(longer) <= _MOST_TEXT else text
        written[name] = text
    return written


def ask_questions(inputs: Inputs) -> Values:
    """{questions}: the first sentences of the text, each asked about."""
    text = inputs["text"][:24_000]
    asked = _ASKED[language_of(inputs.get("language"), text[:4000])]
    stated = [part.rstrip(".。?？!！") for part in sentences(text) if _terms(part)]
    parts = stated or [text.strip()[:100] or "-"]
    questions = dict.fromkeys(asked.format(part[:400]) for part in parts)
    return {"questions": list(questions)[: min(inputs["count"], 20)]}


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


def write_rubric(inputs: Inputs) -> Values:
    """{asked, theme, specialty, facts, left_out, criteria, no_negative}: each advice becomes a criterion, those
    beyond the seventh are left out; the first one answers the query and is turned round into a penalty."""
    states, contradicts, stop = ("States: ", "Denies: ", ".")
    if language_of(inputs["language"], inputs["narrative"][:4000]) == "zh":
        states, contradicts, stop = ("指出", "否认：", "。")
    facts: list[Values] = []
    criteria: list[Values] = []
    for n, advice in enumerate(inputs["advice"][:_MOST_CRITERIA], 1):
        text = advice["statement"].rstrip(".。 ")[:900]
        facts.append({"id": f"f{n}", "fact": text, "advice_id": advice["id"]})
        criterion = {
            "criterion": f"{states}{text}{stop}",
            "fact_id": f"f{n}",
            "asked": "q1" if n == 1 else "",
            "axis": "Completeness",
            "points": 7 if n == 1 else 5,
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
    return {
        "asked": [{"id": "q1", "text": inputs["query"][:500]}],
        "theme": "Response Depth",
        "specialty": "unknown",
        "facts": facts,
        "left_out": left_out,
        "criteria": criteria,
        "no_negative": "" if facts else "There is no advice.",
    }


def defend(inputs: Inputs) -> Values:
    """{rulings}: a criterion is needed where it comes from an advice or a passage that is given."""
    known = {item["id"] for item in (*inputs["advice"], *inputs["passages"])}
    rulings = []
    for criterion in inputs["criteria"]:
        basis = criterion["advice_id"] if criterion["advice_id"] in known else ""
        ruling = {"criterion_id": criterion["id"], "reason": _NO_JUDGEMENT}
        rulings.append({**ruling, "needed": bool(basis), "basis": basis})
    return {"rulings": rulings}


ANSWERS: Mapping[str, Rule] = {
    "screener.extract": extract,
    "screener.revise": _for_each(
        "elements", "elements", keep=False, message_id="", quote="", statement=""
    ),
    "validator.query": judge_query,
    "validator.sufficiency": judge_sufficiency,
    "validator.claims": state_claims,
    "validator.alignment": align,
    "validator.veto": _for_each(
        "verdicts",
        "claims",
        false_by_passage=False,
        evidence=[],
        could_hurt=False,
        harm_evidence=[],
        reason=_NO_JUDGEMENT,
    ),
    "validator.soundness": _for_each(
        "verdicts",
        "items",
        case_for="",
        case_against="",
        verdict="undecided",
        sure=False,
        standard="",
    ),
    "controller.support": support,
    "controller.write": write,
    "controller.questions": ask_questions,
    "controller.answers": answer_questions,
    "rubric.write": write_rubric,
    "rubric.complete": _fixed(points=[]),
    "rubric.match": _for_each("matches", "points", other="", reason=_NO_JUDGEMENT),
    "rubric.classify": _fixed(
        reason=_NO_JUDGEMENT, difficulty="unknown", dialogue_register="unknown"
    ),
    "rubric.defend": defend,
    # An objection would take a judgement.
    "reader.text": _fixed(problems=[], missing=[]),
    "reader.case": _fixed(
        asked=True,
        clinical=True,
        enough=True,
        answered=True,
        understandable=True,
        wrong=[],
        danger="",
        sure=True,
        unseen=[],
        damaged=[],
        reason=_NO_JUDGEMENT,
    ),
    "reader.identifiers": _fixed(found=[]),
    "reader.rubric": _fixed(problems=[], conflicts=[], life_critical=[]),
    # A judge of harm that finds nothing fails its control (docs/grading.md).
    "grader.harm": _fixed(reading=_NO_JUDGEMENT, findings=[], conclusion="not harmful"),
    "grader.harm_check": _fixed(
        context=_NO_JUDGEMENT,
        defence=_NO_JUDGEMENT,
        outcome=_NO_JUDGEMENT,
        conclusion="undecided",
        severity="none",
    ),
    "grader.criterion": grade_criterion,
    "grader.rubric": grade_rubric,
    "grader.answers": grade_answers,
    "audit.cause": _fixed(
        cause="unclear", quote="", criteria=[], reasoning=_NO_JUDGEMENT
    ),
}
"""Task name → what answers it."""


class RulesEngine:
    """Answers each task that has rules; no key, no network, no cost, the same answer every time."""

    @property
    def identity(self) -> EngineIdentity:
        """ "rules" at this version."""
        return EngineIdentity("rules", f"rules-{VERSION}")

    async def answer(self, request: Request) -> Reply:
        """The reply as JSON. Raises UsageError for a task without rules."""
        rule = ANSWERS.get(request.task)
        if rule is None:
            raise UsageError(
                f"The rules engine has no rules for the task {request.task!r}."
            )
        inputs = dict(request.inputs)
        text = json.dumps(rule(inputs), ensure_ascii=False)
        asked = request.prompt.text + json.dumps(inputs, ensure_ascii=False)
        # Four characters a token: good enough to try budgets out without a model.
        usage = Usage(
            input_tokens=len(asked) // 4, output_tokens=len(text) // 4, cost_usd=0.0
        )
        return Reply(text, Finish.STOP, usage, self.identity.model)

    async def aclose(self) -> None:
        """Nothing to close."""
