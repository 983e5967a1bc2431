"""Chinese advice as what an answer should say: clauses told apart, put in the third person, and named."""

import re
from typing import Final

from medlive.llm.rules.rubric_en import LONGEST, Phrase
from medlive.llm.rules.text import Piece, clauses, sentences

_LEAD: Final = re.compile(
    r"^(?:您好|你好|嗯+|好的?|那么?|所以|因此|另外|此外|首先|其次|然后|最后|还有|同时|并且?|而且|但是?|"
    r"不过|总之|以及|也|"
    r"(?:我|个人)(?:个人)?(?:认为|觉得|考虑|感觉)|总结建议|病情摘要及(?=初步印象)|建议\s*[:：]|"
    r"[\d一二三四五六七八九十]{1,2}(?:[、）)]|[.．](?!\d))|[，,：:、\s])+"
)
_ADVISE: Final = re.compile(
    r"^(?:我们?|还是|也|先|强烈|一般|所以|目前|现在|首先){0,3}(?:建议|推荐|提议)(?:您|你|患者|病人|"
    r"孩子|宝宝)?(?:还是|最好|可以|应该?|要)?[:：，,]?"
)
_FORBID: Final = re.compile(
    r"^(?:您|你|患者|平时|目前|现在|暂时|千万|一定|最好|尽量|注意){0,3}(?P<no>不要|别|切勿|勿|切忌|"
    r"忌食?|不能|不可以?|不宜|不应该?|不得|禁止|禁用|禁|"
    r"避免|不建议|不推荐|不主张|停止|少)(?:再|去|随便|随意)?(?P<rest>.{2,})$",
    re.DOTALL,
)
_DO: Final = re.compile(
    r"^(?:您|你|患者|病人|孩子|宝宝){0,1}(?:还是|也|就|都|平时|目前|现在|暂时|一定|首先|先|仍){0,3}"
    r"(?P<modal>应该?|需要?|必须|须|要|得|最好|尽量|务必|请|记得|尽快|及时|立即|马上|立刻)(?P<rest>.{2,})$",
    re.DOTALL,
)
_IMPERATIVE: Final = re.compile(
    r"^(?:注意|多|定期|按时|坚持|继续|口服|服用|外用|使用|应用|吃|喝|用|做|查|检查|复查|监测|观察|控制|"
    r"保持|加强|戒|休息|饮食|到|去|完善|给予|"
    r"静脉|肌注|雾化|外涂|涂|停用|减少|增加|补充|随访|就诊|住院|手术|转|联系|咨询|局部|热敷|冷敷|清淡)"
)
_NEXT: Final = re.compile(
    r"^(?:同时|并且?|也|还|再|另外|以及|而且|必要时|平时|但)?(?:建议|不要|避免|切勿|忌|禁|不能|不可|"
    r"需要|应该?|必须|注意|定期|及时|口服|服用|多喝|多吃|多休息|戒|"
    r"可以|可|最好|尽量|加强|保持|复查|检查|请)"
)
_IDLE: Final = re.compile(
    r"祝|谢谢|不客气|放心|别担心|不要担心|不用担心|不必担心|不要紧张|不要害怕|不用紧张|不必紧张|别紧张|"
    r"不要太紧张|加油|早日康复|"
    r"希望.{0,12}(?:帮助|满意)|^(?:是的?|对|嗯|好的?|可以|没事|不会|没有)$|线下|挂号|门诊时间|加我|链接"
)
_LEANS: Final = re.compile(r"^(?:这|那|它|其|他们?|她|此|该|上述|以上|前者|后者)")
_HEADING: Final = re.compile(
    r"^(?P<head>(?:初步|疾病|可能|考虑)?(?:印象|诊断|病因))[:：]\s*(?P<rest>.{2,})$", re.DOTALL
)
_PERSON: Final = (
    (re.compile(r"[您你]们?的?(?=家|孩子|宝宝|父|母|爱人|爸|妈)"), "患者的"),
    (re.compile(r"[您你]们?自己|[您你]们?"), "患者"),
    (re.compile(r"我们?(?:个人)?(?:认为|觉得|考虑|感觉|想)"), ""),
    (re.compile(r"(?:该|这位|那位|上述|本)?(?:医生|大夫)"), "医师"),
    (re.compile(r"楼主|原帖|本帖"), "患者"),
    (re.compile(r"患者患者"), "患者"),
)


def phrases(statement: str) -> list[Phrase]:
    """What each clause of a statement asks of an answer, in order; idle ones are left out."""
    found: list[Phrase] = []
    for sentence in sentences(statement, "zh"):
        for clause in _facts(statement, sentence):
            if (phrase := _phrase(clause)) is not None:
                found.append(phrase)
    return found


def _facts(source: str, sentence: Piece) -> list[str]:
    """The sentence cut where a new piece of advice begins; a condition stays with what follows it."""
    runs: list[str] = []
    for clause in clauses(source, sentence):
        text = clause.text.strip(" ，,。；;")
        conditional = runs and re.match(r"^(?:如果?|若|要是|一旦|只要|除非|当)", runs[-1]) and "，" not in runs[-1]
        if runs and (conditional or not _NEXT.match(text)):
            runs[-1] = f"{runs[-1]}，{text}"
        else:
            runs.append(text)
    return runs


def _phrase(clause: str) -> Phrase | None:
    text = _LEAD.sub("", "".join(clause.split("\n"))).strip(" ，,。；;：:、！!")
    if len(re.findall(r"[一-鿿]", text)) < 3 or _IDLE.search(text) or text.endswith(("？", "?")):
        return None
    if len(text) > LONGEST:
        cut = max(text.rfind(c, 0, LONGEST) for c in "，,")
        text = text[: cut if cut > 20 else LONGEST]
    leans = _LEANS.match(text) is not None
    if match := _HEADING.match(text):
        return Phrase("states", f"指出{match['head']}为{_third(match['rest'])}。", None, leans=False)
    advised = _ADVISE.match(text)
    if advised:
        text = text[advised.end() :]
    if match := _FORBID.match(text):
        body = _third(match["rest"])
        if match["no"] == "少":
            return Phrase("does", f"建议少{body}。", None, leans)
        if match["no"] in ("停止", "避免"):
            return Phrase("avoids", f"建议{match['no']}{body}。", None, leans)
        return Phrase("avoids", f"不建议{body}。", f"建议{body}。", leans)
    if advised:
        body = _third(text)
        return Phrase("does", f"建议{body}。", None, leans) if len(body) >= 2 else None
    if match := _DO.match(text):
        modal = match["modal"] if match["modal"] in ("尽快", "及时", "立即", "马上", "立刻") else ""
        return Phrase("does", f"建议{modal}{_third(match['rest'])}。", None, leans)
    if _IMPERATIVE.match(text):
        return Phrase("does", f"建议{_third(text)}。", None, leans)
    return Phrase("states", f"指出{_third(text)}。", None, leans)


def _third(text: str) -> str:
    for pattern, put in _PERSON:
        text = pattern.sub(put, text)
    return re.sub(r"[；;]", "，", text).strip(" ，,。：:、")
