"""Whether a rewritten statement still denies what its source denies: the Controller's check of negations.

A statement is compared with its source clause by clause, by the words that they share. The check is one of
words, not of meaning: it finds "fever" made of "no fever", and leaves "insomnia" made of "cannot sleep" alone.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from medlive.threads.normalise import fold

_CLAUSE_END: Final = re.compile(
    r"[.!?](?=\s|$)|[,;:，。！？；：、\n]|\b(?:but|however|although|though)\b|但是?|不过|然而"
    # A second denial beside the first, "no fever and no cough", 无发热无咳嗽: together they would cancel out.
    r"|\b(?:and|or)\b(?=(?:\s(?:he|she|it|i|they|there|is|are|was|were|has|have|had|do|does|did|also|should|must|may"
    r"|will|would|can|could)){0,3}\s(?:no|not|never|without|den(?:y|ies|ied)|cannot|[a-z]{2,6}n't)\b)|(?=\bnor\b)"
    r"|[也且](?=[不没无未])|(?<=无\w\w)(?=无)|(?<=无\w\w\w)(?=无)|(?<=没有\w\w)(?=没)"
    r"|(?<=不[^\W得能可会敢应该是要])(?=不)|(?<=不[^\W得能可会敢应该是要]\w)(?=不)"
)
_OPENING: Final = re.compile(r"\s*(?:in|at|for|during|after|before|if|when|once)\b|[若如当经]|对于|目前|关于")
"""How a clause begins that only says when or for whom the next one holds."""
_NOT_EN: Final = re.compile(
    r"\b(?:no|not|never|none|neither|nor|cannot|without|\w+n't|den(?:y|ies|ied)|negative|absent|absence|exclude[sd]?"
    r"|contraindicated|unlikely|improbable)\b"
)
_NOT_ZH: Final = re.compile(r"[不没無无未勿别莫]|否认|阴性|非(?!常)|禁[用忌止]?|排除")
# Words that deny by meaning: they excuse a difference, and make none by themselves.
_NEAR: Final = re.compile(
    r"\b(?:unable|lack\w*|fail\w*|refus\w*|stop\w*|avoid\w*|discontinu\w*|quit|free of|rule[sd]? out|against"
    r"|hardly|rarely|seldom|instead of|rather than|only|unless|until|normal|clear|safe|harmless|benign|unnecessary"
    r"|in\w+able|un\w+ed)\b"
    r"|停|避免|缺|戒|少|难以|拒|正常|不用|不必|减"
)
# Where a negating sign denies nothing.
_IDLE: Final = re.compile(
    r"\bnot only\b|\bno doubt\b|\bwhether or not\b|\bif not\b|\bwhy (?:not|don't)\b|\bno\.? ?\d"
    r"|不适|不舒服|不良|不足|不全|不稳|不清|不齐|不均|不规则|不错|不断|不久|不仅|不但|不管|不论|不同|不少|不知道?|不好意思|不客气|不详"
    r"|(?P<verb>\w)[不没](?P=verb)|有没有|没关系|没事|无力|无论|无意中|未来|未知|别的|特别|区别|分别|级别|个别|别人|性别"
)
_HAN_SPACE: Final = re.compile(r"(?<=[\u3400-\u9fff])\s+|\s+(?=[\u3400-\u9fff])")
_LATIN: Final = re.compile(r"[a-z]{3,}")
_ENDING: Final = re.compile(r"(?:ing|ed|es|s|e)$")
_FILLER: Final = re.compile(r"患者|病人|孩子|[有的了是我您你他她在请可以要]")
_HAN: Final = re.compile(r"[\u3400-\u9fff]+")
_EMPTY: Final = re.compile(
    r"the|and|for|are|was|were|has|have|had|been|being|with|that|this|these|those|from|they|their|there|his|hers?|its"
    r"|yours?|you|she|him|who|which|also|any|may|can|will|would|should|could|must|patient|not|never|none|nor|neither"
    r"|cannot|without|some|very|than|then|when|what|into|does|did|about"
)
_SAME: Final = 0.6
"""Share of a clause's words that another must hold to be about the same thing."""
_STEM: Final = 6


def flipped(text: str, sources: Sequence[str]) -> list[str]:
    """The clauses of `text` that deny what every like clause of `sources` states, or state what it denies.

    A clause without a like one is no finding: other checks ask whether it is supported at all.
    """
    told = [clause for source in sources for clause in _clauses(source)]
    described = [(clause, _content(clause), _denies(clause)) for clause in told]
    found = []
    clauses = list(_clauses(text))
    for at, clause in enumerate(clauses):
        content = _content(clause)
        if not content or _NEAR.search(clause):
            continue
        like = [
            (other, denied) for other, held, denied in described if len(content & held) >= _SAME * len(content)
        ]
        denies = _denies(clause)
        if not like and not denies:
            # "fever and cough" out of "no fever, no cough": each a part of the clause.
            parts = [(other, held, denied) for other, held, denied in described if held and held <= content]
            covered = frozenset[str]().union(*(held for _, held, _ in parts))
            if len(covered) >= _SAME * len(content):
                like = [(other, denied) for other, _, denied in parts]
        like = [(other, denied) for other, denied in like if not _is_in_order(clauses, at, other, denied)]
        if like and all(denied != denies and not _NEAR.search(other) for other, denied in like):
            found.append(clause.strip())
    return found


def _is_in_order(clauses: Sequence[str], at: int, other: str, denied: bool) -> bool:
    """Whether a source's clause was only put in another order: "if it does not improve, do a scan" out of "do a
    scan if it does not improve" has two clauses, which hold the one's words and deny what it denies together."""
    content = _content(other)
    for first, second in ((at, at + 1), (at - 1, at)):
        if first < 0 or second >= len(clauses) or not _OPENING.match(clauses[first]):
            continue
        words, more = _content(clauses[first]), _content(clauses[second])
        whole = _denies(clauses[first]) != _denies(clauses[second])
        shared = len(content & (words | more)) >= _SAME * len(content)
        if shared and content & words and content & more and whole == denied:
            return True
    return False


def denies(text: str) -> bool:
    """Whether any clause of a text denies something, plainly or by its meaning ("stopped", 避免)."""
    return any(_denies(clause) or _NEAR.search(clause) for clause in _clauses(text))


def cut_off(quote: str, source: str) -> bool:
    """Whether the words just before the quote, in its own clause, deny it wherever it stands in the source.

    "take aspirin" out of "do not take aspirin" is such a quote.
    """
    needle = next((folded for line in quote.splitlines() if (folded := _fold(line).strip(","))), "")
    if not needle:
        return False
    before = []
    # Line by line: folding makes one line of the source, and a denial does not reach over its end.
    for line in source.splitlines():
        hay = _fold(line)
        at = hay.find(needle)
        while at >= 0:
            before.append(_CLAUSE_END.split(hay[max(0, at - 80) : at])[-1])
            at = hay.find(needle, at + 1)
    return bool(before) and all(part is not None and _denies(part) for part in before)


def _fold(text: str) -> str:
    """Folded, with a comma where white space beside Chinese stands for one (folding takes it away)."""
    return fold(_HAN_SPACE.sub("，", text))


def _clauses(text: str) -> Iterator[str]:
    return (clause for clause in _CLAUSE_END.split(_fold(text)) if clause and clause.strip())


def _denies(clause: str) -> bool:
    """Whether a clause holds an odd number of negations: two of them cancel out."""
    plain = _IDLE.sub(" ", clause)
    return (len(_NOT_EN.findall(plain)) + len(_NOT_ZH.findall(plain))) % 2 == 1


def _content(clause: str) -> frozenset[str]:
    """The words that say what a clause is about: English ones by their beginning, Chinese by pairs."""
    latin = _LATIN.findall(_NOT_EN.sub(" ", clause))
    words = {_ENDING.sub("", word)[:_STEM] for word in latin if not _EMPTY.fullmatch(word)}
    for run in _HAN.findall(_FILLER.sub("", _NOT_ZH.sub("", clause))):
        words |= {run[i : i + 2] for i in range(len(run) - 1)} or {run}
    return frozenset(words)
