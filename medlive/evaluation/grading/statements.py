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
    r"|draft|would be|would have|could have|if|unless|were|had)\b"
    r"|(?:\b(?:not|never|cannot)\b|n['’]t\b)\s+(?:be\s+|to\s+|have\s+)?"
    r"(?:say|said|reply|replied|answer|answered|output|return|give|given|write|written|grade|this|correct|right|valid)"
    r"\b|\b(?:answer|response|candidate|user|text|grader|it)\s+(?:itself\s+)?(?:says?|said|writes?|wrote|claims?|claimed"
    r"|contains?|holds?|includes?|reads?|asks?)\b"
    r"|错误|并非|不应|不能|不要|不会|不是|而非|例如|比如|假如|假设|如果|若|(?:回答|答案|原文|考生)[^，。]{0,6}(?:写|说|称|包含|要求)",
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
_OPENING: Final = re.compile(r"\W*(?:not\s+met|unmet|met)\b", re.IGNORECASE)
"""A reasoning that begins with its verdict."""
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
    r"|(?:无法|不能|不便|拒绝)(?:\w{0,4})(?:评判|评估|评分|评价|打分|判定|作出判断)",
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
    return _last_said(_ALL_STATED, before[-_LOOKED_AT:])


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
    return _last_said(_STATED, words)


def said_in(reasoning: str) -> bool | None:
    """The verdict that a reasoning states last, of the criterion by name; None: none."""
    # Most reasonings are about the answer alone; the search is not cheap.
    named = "riterion" in reasoning or "RITERION" in reasoning or "满足" in reasoning
    return _last_said(_ABOUT_CRITERION, reasoning) if named or _OPENING.match(reasoning) else None


def _last_said(pattern: re.Pattern[str], text: str) -> bool | None:
    """The last thing a text states by a pattern: met, or with one of its groups not met; None: nothing certain."""
    said: bool | None = None
    for match in pattern.finditer(text):
        start = max(text.rfind(mark, 0, match.start()) for mark in ".!?;\n。！？；") + 1
        end = re.search(r"[.!?;\n。！？；]", text[match.end() :])
        asked = end is not None and end.group() in "?？"
        if not asked and not _UNSURE.search(text, start, match.end()):
            said = not any(match.groupdict().values())
    return said
