"""What the words around a verdict state: before its JSON object, and in its reasoning."""

import re
from typing import Final

from medlive.llm.reading import is_refusal, without_thinking

_LOOKED_AT: Final = 4_000
"""Characters before a verdict that are searched for another one."""
_TAG: Final = r"(?:seed:)?(?:think|thinking|thought|reasoning|reflection|scratchpad|analysis)"
_THINKING_OPENS: Final = re.compile(rf"[<\[◁]{_TAG}[>\]▷]", re.IGNORECASE)
_THINKING_ENDS: Final = re.compile(rf"[<\[◁]/{_TAG}[>\]▷]", re.IGNORECASE)
_CLAUSE: Final = re.compile(r"[.!?:;,()\n。！？：；，（）]")
_DENIED: Final = re.compile(
    r"\b(?:not|never|no|wrong|rather than|instead of)\b|n['’]t\b|不|并非|没有|错", re.IGNORECASE
)
_DENIED_AHEAD: Final = re.compile(
    r"\b(?:wrong|incorrect|mistaken|rather than|instead of|suppose|hypothetical(?:ly)?|for example|for instance"
    r"|draft|template|placeholder|dummy|sample|an example|would be|would have|could have|if|unless|were|had)\b"
    r"|(?:\b(?:not|never|cannot)\b|n['’]t\b)\s+(?:be\s+|to\s+|have\s+)?"
    r"(?:say|said|reply|replied|answer|answered|output|return|give|given|write|written|grade|this|correct|right|valid)"
    r"\b|\b(?:answer|response|candidate|user|text|grader|it)\s+(?:itself\s+)?(?:says?|said|writes?|wrote|claims?|claimed"
    r"|contains?|holds?|includes?|reads?|asks?)\b"
    r"|错误|并非|不应|不能|不要|不会|不是|而非|例如|比如|示例|样例|模板|占位|假如|假设|如果|若|(?:回答|答案|原文|考生)[^，。]{0,6}(?:写|说|称|包含|要求)",
    re.IGNORECASE,
)
"""Of the words that lead to an object on a line of its own: what stands there mostly gives the verdict's ground,
which may hold any "not". What somebody else says, and what would be, is no verdict either."""
_BEGUN: Final = re.compile(
    r"\W*(?:(?:if|unless|were|had|suppose|supposing|no|as the (?:answer|response|candidate))\b|如果|假如|假设"
    r"|若|不\W)",
    re.IGNORECASE,
)
"""The beginning of a sentence that leads to an object and does not give it as the verdict."""
_STATED: Final = re.compile(
    r"\b(?:is|was|are|has been)(?P<no1>n['’]t|\s+not|\s+never)?(?:\s+(?!it\b|this\b|the\b|not\b)\w+){0,2}?\s+"
    r"(?P<no2>not\s+)?(?:been\s+)?(?P<no3>un)?(?:met|satisfied|fulfilled)\b(?!\s+(?:only|if|when)\b)"
    r"|\b(?:does|do|did)(?P<no4>n['’]t|\s+not)\s+(?:\w+\s+)?(?:meet|satisfy|fulfil+)\b"
    r"|\b(?P<no5>fails?\s+)(?:to\s+(?:meet|satisfy|fulfil+)\b|(?:the|this)\s+criterion\b)"
    r"|(?P<no6>(?:[不未没]|无法|难以)(?:有|能够?|被|完全|充分){0,2})?满足",
    re.IGNORECASE,
)
_HEADLINE: Final = re.compile(
    r"[\W_]*(?:[\w ]{1,30}[:：][\W_]*)?(?P<no1>not\s+|un|[不未没](?:有|能|被)?)?"
    r"(?:met|satisfied|fulfilled|yes|true|满足|符合|达到|达标|是|(?P<no2>no|false|fails?|failed|否))[\W_]*",
    re.IGNORECASE,
)
"""A sentence or line that is a verdict and nothing else, as `**Verdict:** not met`."""
_ABOUT_CRITERION: Final = re.compile(
    r"\bcriterion\s+(?:is|was|has been|can|could)(?P<no1>n['’]t|not|\s+not|\s+never)?"
    r"(?:\s+(?:be|considered|therefore|thus|clearly|hence|so|then|fully|indeed|also))*\s+"
    r"(?P<no2>not\s+|(?:only\s+)?(?:partially|partly)\s+)?(?:(?:been|be|fully|considered)\s+){0,2}(?P<no3>un)?"
    r"(?:met|satisfied|fulfilled)\b(?!\s+(?:only|if|when|in)\b)"
    r"|\b(?:(?:does|do|did)(?P<no4>n['’]t|\s+not)(?:\s+\w+)?|(?P<no5>fails?\s+to)|fully|thus|therefore|so|it|answer)\s+"
    r"(?:meets?|satisf(?:y|ies)|fulfils?|fulfills?)\s+(?:the|this|that)\s+criterion\b"
    r"|(?:该|本|此)(?:评分)?(?:标准|条目|项)(?P<no6>(?:并?[不未没]|无法)(?:有|能够?|被|完全){0,2})?(?:被)?满足"
    r"|\A\W*(?P<no7>not\s+met|unmet|[不未]满足)(?=\W|\Z)|\A\W*met(?=\s*[:：.。,，—-])",
    re.IGNORECASE,
)
_NAMED: Final = r"(?:criterion|criteria|requirements?|standard|condition)"
_NOT_ZH: Final = r"(?:并?[不未没非]|无法|难以|没有|(?:仅|只)?部分)(?:能够?|有|被|完全)?"
_OBJECT_ZH: Final = r"了?(?:该|此|本|上述|这一|这条|这项)?(?:项|条|评分)?(?:标准|要求|条目|条件|准则)"
_CONCLUDED: Final = re.compile(
    rf"\b{_NAMED}\s*[:=—-]?\s*(?P<no1>not\s+|un)?(?:met|satisfied|fulfilled)\b(?!\s+(?:only|if|when|in|by)\b)"
    rf"|\b(?:(?:does|do|did)(?P<no2>n['’]t|\s+not)(?:\s+\w+)?\s+(?:meet|satisfy|fulfil+)|(?P<no3>fails?(?:\s+to\s+(?:meet"
    r"|satisfy|fulfil+))?)|(?:answer|response|reply|it|text|which|and|so|thus|therefore|hence|clearly|fully)\s+"
    rf"(?:meets|satisfies|fulfil+s))\s+(?:the|this|that|its|all)\s+(?:\w+\s+)?{_NAMED}\b"
    r"|(?:\b(?:so|therefore|thus|hence|verdict|conclusion|result)\b|=>|→|[.;!?]\s|[。；！？])\s*[:=,]?\s*(?:it\s+is\s+|is\s+)?"
    r"(?P<no4>not\s+|un)?(?:met|satisfied|fulfilled)\W*\Z"
    r"|\bmet\s*[:=]\s*(?:true|yes|(?P<no5>false|no))\b"
    rf"|(?:因此|所以|故|因而|综上|可见|总之|结论)[^。；！？，;!?,]{{0,10}}?(?P<no6>{_NOT_ZH})?(?:满足|符合|达到|达标)"
    rf"(?:{_OBJECT_ZH})?(?=[。；！，;!,.]|\Z)"
    rf"|(?P<no7>{_NOT_ZH})?(?:满足|符合|达到){_OBJECT_ZH}(?![的中前后第里需必须应要才])"
    r"|(?:该|本|此|这一|这条)(?:项|条|评分)?(?:标准|要求|条目|条件|准则)"
    rf"(?P<no8>{_NOT_ZH})?(?:被|得到)?(?:满足|符合|达到|达标|成立)"
    rf"|[，。；,;]\s*(?P<no9>{_NOT_ZH})?(?:满足|符合|达到|达标)[。！!.]?\s*\Z",
    re.IGNORECASE,
)
"""A verdict stated of the criterion by another name, or as the conclusion."""
_MENTIONS: Final = re.compile(
    r"riteri|equirement|tandard|ondition|满足|符合|达[到标]|成立|\b(?:un)?met\b|satisfied|fulfilled", re.IGNORECASE
)
"""What a reasoning holds that may state its verdict."""
_UNSURE: Final = re.compile(
    r"\b(?:if|whether|when|were|would|could|unless|until)\b|如果|若|只有|是否|能否", re.IGNORECASE
)
_SPELT_OUT: Final = re.compile(
    r"""\bmet\b["'”*]*+\s*+[:=：]\s*+["'“*]*+\s*+(?:(?P<yes>true|yes)|false|no)\b""", re.IGNORECASE
)

_SENTENCE: Final = re.compile(r"[.!?\n。！？]+")


def words_before(text: str) -> str:
    """The words of a reply before its JSON object."""
    return re.sub(r"```[a-zA-Z]*\s*\Z", "", without_thinking(text).partition("{")[0])


def thinking_lasts(before: str) -> bool:
    """Whether the words before an object are of a thinking block that has not ended."""
    return len(_THINKING_OPENS.findall(before)) > len(_THINKING_ENDS.findall(before))


_UNABLE_TO_JUDGE: Final = re.compile(
    r"\bI(?:\s(?:can\s?not|can['’]t|won['’]t|am (?:not able|unable) to|must decline to|(?:will|do|would) not)"
    r"|['’]m (?:not able|unable) to)\s(?:\w+\s){0,2}"
    r"(?:judge|assess|evaluate|grade|score|rate|comply|help|assist)\b"
    r"|(?:无法|不能|不便|拒绝)\w{0,10}?(?:评判|评估|评分|评价|打分|判定|作出判断)",
    re.IGNORECASE,
)
_ALL_STATED: Final = re.compile(
    r"\b(?:(?P<no1>none)\s+of\s+(?:the|these)\s+criteria|(?P<no2>no)\s+criteri(?:on|a)|(?:all|every|each)(?:\s+of)?(?:\s+the"
    r"|\s+these)?(?:\s+\w+)?\s+criteri(?:on|a))\s+(?:is|are|was|were|has been|have been)\s+(?P<no3>not\s+|un)?"
    r"(?:met|satisfied|fulfilled)\b"
    r"|(?:所有|全部|各项?|每(?:个|条|项))(?:评分)?(?:标准|条目|项)?(?:均|都|皆)?(?P<no4>不|未|没有?)?(?:能|被)?(?:满足|符合|达到)"
    r"|(?:均|都|皆)(?P<no5>不|未|没有?)(?:能|被)?(?:满足|符合|达到)",
    re.IGNORECASE,
)
"""What is said of all criteria at once."""


def refused_before(before: str) -> bool:
    """Whether the words before an object are a refusal to judge."""
    return is_refusal(before) or _UNABLE_TO_JUDGE.search(before[:_LOOKED_AT]) is not None


def said_of_all(before: str) -> bool | None:
    """The verdict that the words before a list of grades state of all criteria; None: none."""
    return _last_said(before[-_LOOKED_AT:], _ALL_STATED)


def spelt_out(before: str) -> bool:
    """Whether the words hold a verdict spelt as a key with its value, as `met: true`."""
    return _SPELT_OUT.search(before) is not None


def taken_back(before: str) -> bool:
    """Whether the last words before an object take it back; that a criterion is not met is no such word."""
    words = before[-200:].rstrip(" \t\r\n*_#`")
    ahead = words.endswith((":", "：")) or "\n" in before[-200:][len(words) :]
    clause = _CLAUSE.split(words.rstrip(":："))[-1]
    if _DENIED_AHEAD.search(clause) or _BEGUN.match(_SENTENCE.split(words)[-1]):
        return True
    return not ahead and _DENIED.search(_STATED.sub(" ", _CLAUSE.split(before[-200:])[-1])) is not None


def said_before(before: str) -> bool | None:
    """The verdict that the words before a JSON object state last; None: they state none."""
    words = before[-_LOOKED_AT:]
    if spelt := list(_SPELT_OUT.finditer(words)):
        return spelt[-1]["yes"] is not None
    lines = [match for part in _SENTENCE.split(words) if (match := _HEADLINE.fullmatch(part[-80:]))]
    if lines:
        return not any(lines[-1].groupdict().values())
    stated = _last_said(words, _STATED)
    return said_in(words) if stated is None else stated


def said_in(reasoning: str) -> bool | None:
    """The verdict that a reasoning states last, of the criterion by name; None: none."""
    # Most reasonings are about the answer alone; the search is not cheap.
    if _MENTIONS.search(reasoning) is None:
        return None
    return _last_said(reasoning, _ABOUT_CRITERION, _CONCLUDED)


def _last_said(text: str, *patterns: re.Pattern[str]) -> bool | None:
    """The last thing a text states by a pattern: met, or with one of its groups not met; None: nothing certain."""
    said: bool | None = None
    found = (match for pattern in patterns for match in pattern.finditer(text))
    for match in sorted(found, key=re.Match.end):
        start = max(text.rfind(mark, 0, match.start()) for mark in ".!?;\n。！？；") + 1
        end = re.search(r"[.!?;\n。！？；]", text[match.end() :])
        asked = end is not None and end.group() in "?？"
        if not asked and not _UNSURE.search(text, start, match.end()):
            said = not any(match.groupdict().values())
    return said
