"""Whether a grader's words contradict its verdict: those before the JSON object (`fault_before`, `said_in`), and its
reasoning (`fault_of`).

The words are cut into clauses. A clause that says the criterion is met, or that is a verdict and nothing else, states
a verdict; an odd number of negations denies it, so that "does not fail to meet it" is met. What is only supposed
("if", "whether") or asked states nothing, and of several verdicts the last one counts.
"""

import re
import unicodedata
from collections.abc import Sequence

from .reading import is_refusal, without_thinking

_LOOKED_AT = 4_000
"""Characters before a verdict that are searched for another one."""
_TAG = r"(?:seed:)?(?:think|thinking|thought|reasoning|reflection|scratchpad|analysis)"
_THINKING_OPENS = re.compile(rf"[<\[◁]{_TAG}[>\]▷]", re.IGNORECASE)
_THINKING_ENDS = re.compile(rf"[<\[◁]/{_TAG}[>\]▷]", re.IGNORECASE)
_CLAUSE = re.compile(r"[.!?:;,()\n。！？：；，（）]")
_DENIED = re.compile(
    r"\b(?:not|never|no|wrong|rather than|instead of)\b|n['’]t\b|不|并非|没有|错",
    re.IGNORECASE,
)
_DENIED_AHEAD = re.compile(
    r"\b(?:wrong|incorrect|mistaken|rather than|instead of|suppose|hypothetical(?:ly)?|for example|for instance"
    r"|draft|template|placeholder|dummy|sample|example|would be|would have|could have|if|unless|were|had)\b"
    r"|(?:\b(?:not|never|cannot)\b|n['’]t\b)\s+(?:be\s+|to\s+|have\s+)?"
    r"(?:say|said|reply|replied|answer|answered|output|return|give|given|write|written|grade|this|correct|right|valid)"
    r"\b|\b(?:answer|response|candidate|user|text|grader|it)\s+(?:\w+\s+){0,2}?(?:says?|said|writes?|wrote|claims?|claimed"
    r"|contains?|holds?|includes?|reads?|ask(?:s|ed)?|instructs?)\b"
    r"|错误|并非|不应|不能|不要|不会|不是|而非|例如|比如|示例|样例|模板|占位|假如|假设|如果|若|(?:回答|答案|原文|考生)[^，。]{0,6}(?:写|说|称|包含|要求)",
    re.IGNORECASE,
)
"""Denials before an object on a line of its own. The words there mostly give the verdict's ground, which may hold any
"not"; so only these count, and words on what somebody else says or what would be."""
_BEGUN = re.compile(
    r"\W*(?:(?:if|unless|were|had|suppose|supposing|no|as the (?:answer|response|candidate))\b|如果|假如|假设"
    r"|若|不\W)",
    re.IGNORECASE,
)
"""The beginning of a sentence that leads to an object and does not give it as the verdict."""


def _words(english: str, chinese: str) -> re.Pattern[str]:
    """A pattern of whole English words, from a list with blanks between them, and of Chinese ones anywhere."""
    return re.compile(rf"\b(?:{'|'.join(english.split())})\b|{chinese}", re.IGNORECASE)


_BREAK = _words(
    r"""but however so and because since hence therefore thus although though while which yet still
    as(?!\s(?:un)?(?:met|satisf|fulfil))""",
    r"[.!?;,:=…\n()（）。！？；，：—]|因此|所以|故|但是?|因而|然而|综上|因为|[且即]",
)
"""What ends a clause."""
_NO_NEGATION = _words(
    r"not\s(?:only|just|merely)",
    r"n['’]t (?:only|just|merely)\b|不[仅但只良适]|非常|否则|无论",
)
_NEGATION = _words(
    r"""not no none nope never neither nothing nowhere cannot without hardly absent absence silent wrong false
    opposite contrary fail(?:s|ed|ing)? lack(?:s|ed|ing)? omit(?:s|ted)? miss(?:es|ed|ing) le(?:ave|ft|aves)\sout
    ignor(?:es|ed) overlook(?:s|ed) insufficient(?:ly)? doubt(?:s|ed|ful)? violat(?:es|ed) contradict(?:s|ed)
    falls?\sshort un(?:met|satisfied|fulfilled|mentioned|stated|named|addressed|answered)""",
    r"n['’]t\b|没有|无法|难以|并非|缺[少乏失]|遗漏|忽略|相反|违背|[不未没无非否]",
)
_PARTLY = _words(
    r"partial partially partly half in\spart to\ssome\sextent somewhat", "部分|一定程度"
)
"""A verdict in part is none for the criterion."""
_SUPPOSED = _words(
    r"if whether when were (?<!I\s)would could unless until must (?:first|second|other)\s(?:part|one|point|is)",
    r"如果|假如|若|是否|能否|只有|才|需|要(?![求点素])|[前后]者|第[一二]|其他|影响",
)
"""A clause with such a word tells what would be, or speaks of a part."""
_INFINITIVE = re.compile(r"\bto (?:meet|satisfy|fulfil|be)\b", re.IGNORECASE)
_NAMED = r"(?:criteri\w+|requirements?|conditions?|standards?)\b"
_NAMED_ZH = r"(?:标准|要求|条目|条件|准则|这一?[点项条]|[该此本][点项条])"
_STATES = re.compile(
    r"\W*+(?:.*\b(?:verdict|conclusion|result|judge?ment|answer|say)\s(?:is\s)?(?:yes|no|true|false)"
    r"|.*\b(?:(?:meets?|satisf(?:y|ies)|fulfil+s?)(?: it| this)?|falls? short)"
    r"|(?:(?:this|it|is|answer|the|a) )*(?:pass|fail)(?:es|ed|s)?)\W*\Z"
    r"|.*\b(?:(?:un)?met\b(?!\s(?:with|an?|the|in)\b)|(?:un)?(?:satisfied|fulfilled)\b(?!\swith\b))"
    r"|.*\b(?:meets?|met|satisf(?:y|ies|ied)|fulfil\w*|fails?|contradicts?|falls? short of)\s"
    rf"(?:(?:the|this|that|its|all|these|of|stated|given|grading)\s){{0,3}}{_NAMED}(?!\s(?:for|of)\b)|.*\b{_NAMED}\s(?:\w+\s){{0,2}}(?:holds?|applies|violated)\b"
    rf"|.*(?:满足|符合|达到|达不到|违背)了?(?:[该此本这上述以所有全部一条项]|评分){{0,4}}{_NAMED_ZH}(?:的?要求)?\W*\Z"
    rf"|(?:{_NAMED_ZH}|回答|答案|结论|评分|部分|没有|无法|难以|[该此本其项条目中与已经完全基本大致确实明显被判为定认视]"
    r"|[算应可能够得到全均都皆所有各每并仅只不未没非]|\W)*+(?:满足|符合?|达到|达标|成立|相反)了?\W*\Z",
    re.IGNORECASE | re.DOTALL,
)
"""A clause that states a verdict: it names the criterion, or holds nothing else."""
_REPORTS = re.compile(
    r"\b(?:answer|response|text|it) (?:\w+ly )?(?:says|states|tells|explains|notes|mentions|warns|advises"
    r"|recommends)\b|\b(?:targets?|goals?|needs?) (?:is|are|was|were|has|have)\b"
    r"|回答\w{0,2}(?:说|写|指出|提到|提示|认为|建议)",
    re.IGNORECASE,
)
"""A clause with such words tells what the answer says, or that another thing is met."""
_BARE = re.compile(r"\W*(?:yes|no|true|false|是|否)\W*", re.IGNORECASE)
"""A verdict where it begins or ends a text, or has a label."""
_LABEL = re.compile(
    r".*(?:met|verdict|conclusion|answer|result|grade|结论|判[定断])\W*",
    re.IGNORECASE | re.DOTALL,
)
_SAYS = _words(
    "says? states? tells? advises? recommends? explains? warns? notes? suggests? mentions?",
    "说|写|指出|建议|提到|提示|告知|认为|推荐|明确",
)
_FIRST_NEGATION = re.compile(rf"\bsays? nothing|{_NEGATION.pattern}", re.IGNORECASE)
_REFRAINS = _words(
    r"avoid\w* stop\w* against refrain\w* unnecessary discontinu\w* contraindicat\w* prohibit\w*",
    "避免|停|禁|忌|勿|戒",
)
"""What a criterion holds that a "not" of the answer may meet."""
# A Chinese character, a number, or a word
_TERM = re.compile(r"[\u3400-\u9fff]|\d+(?:[.,]\d+)*|[^\W\d_\u3400-\u9fff]+")
# Traditional Chinese characters to simplified ones
_SIMPLE = str.maketrans(
    "滿達標準該沒無條項時確實應關議", "满达标准该没无条项时确实应关议"
)
_MIXED = re.compile(r"[a-z][\u0400-\u04ff]|[\u0400-\u04ff][a-z]", re.IGNORECASE)
_SPELT_OUT = re.compile(
    r"""\bmet\b["'”*]*+\s*+[:=：]\s*+["'“*]*+\s*+(?:true|yes|false|no)\b""",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[.!?\n。！？]+")
_UNABLE = re.compile(
    r"\bI(?:\s(?:can\s?not|can['’]t|won['’]t|am (?:not able|unable) to|must decline to|(?:will|do|would) not)"
    r"|['’]m (?:not able|unable) to)\s(?:\w+\s){0,2}"
    r"(?:judge|assess|evaluate|grade|score|rate|comply|help|assist|decide|determine)\b"
    r"|\b(?:(?:impossible|hard|difficult) to|cannot|can['’]t) (?:be )?\w+ (?:whether|if)\b"
    r"|\b(?:unclear|uncertain|undecided)(?:\W*\Z|[;:]|\s(?:whether|if)\b)"
    r"|(?:无法|不能|不便|拒绝|难以)\w{0,10}?(?:评判|评估|评分|评价|打分|判[定断]|确定)|不确定",
    re.IGNORECASE,
)
_OF_ALL = re.compile(
    r"\b(?:none|no|all|every|each)\b|所有|全部|各|每|[均都皆]", re.IGNORECASE
)

_ASKS_FOR_WORDS = re.compile(
    r"\W*(?:the )?(?:(?:answer|response|model|it) )?(?:should |must )?(?:recommend|advise|state|mention|say|tell"
    r"|warn|ask|explain|suggest|name|inform|instruct|identif|list|describe|specif)"
    r"|(?:回答)?应?(?:明确)?(?:建议|指出|提到|提及|说明|推荐|询问|告知|提醒|提示|强调|解释)",
    re.IGNORECASE,
)


def words_before(text: str) -> str:
    """The words of a reply before its JSON object."""
    return re.sub(r"```[a-zA-Z]*\s*\Z", "", without_thinking(text).partition("{")[0])


def fault_before(before: str) -> str | None:
    """Why the words before an object leave it uncertain: open thinking, a refusal, a denial; None: they do not."""
    if len(_THINKING_OPENS.findall(before)) > len(_THINKING_ENDS.findall(before)):
        return "the reply's thinking does not end"
    if is_refusal(before) or _UNABLE.search(before[:_LOOKED_AT]):
        return "a refusal precedes the JSON object"
    if taken_back(before):
        return "the words before the JSON object deny it"
    return None


def taken_back(before: str) -> bool:
    """Whether the last words before an object take it back; "not met" alone is a verdict and takes nothing back."""
    words = before[-200:].rstrip(" \t\r\n*_#`")
    leads = words.endswith((":", "：")) or "\n" in before[-200:][len(words) :]
    clause = _CLAUSE.split(words.rstrip(":："))[-1]
    if _DENIED_AHEAD.search(clause) or _BEGUN.match(_SENTENCE.split(words)[-1]):
        return True
    last = _CLAUSE.split(before[-200:])[-1]
    return (
        not leads and _DENIED.search(last) is not None and _STATES.match(last) is None
    )


def spelt_out(before: str) -> bool:
    """Whether the words hold a verdict spelt as a key with its value, as `met: true`."""
    return _SPELT_OUT.search(before) is not None


def said_in(words: str) -> bool | None:
    """The last verdict (True: met) in the words before an object, or in a reasoning; None: none."""
    return _last_said(_clauses(words[-_LOOKED_AT:]))


def said_of_all(before: str) -> bool | None:
    """The verdict that the words before a list of grades state of all criteria; None: none."""
    return _last_said(
        [clause for clause in _clauses(before[-_LOOKED_AT:]) if _OF_ALL.search(clause)]
    )


def fault_of_form(reasoning: str) -> str | None:
    """Why a reasoning is refused whatever its verdict: it has no word; None: it is not refused."""
    if reasoning.strip() and not _TERM.search(reasoning):
        return "its reasoning is a placeholder"
    return None


def fault_of(reasoning: str, met: bool, criterion: str) -> str | None:
    """Why a reasoning does not bear out its verdict, where no field states its conclusion; None: it does."""
    if _MIXED.search(reasoning):
        return "its reasoning mixes Latin and Cyrillic letters within a word"
    if unable := list(_UNABLE.finditer(reasoning)):
        rest = _BREAK.search(reasoning, unable[-1].end())
        if rest is None or said_in(reasoning[rest.end() :]) is None:
            return "its reasoning comes to no verdict"
    clauses = _clauses(reasoning[-_LOOKED_AT:])
    statement = _last_said(clauses)
    if (
        statement is None
        and met
        and _only_lack(clauses)
        and not denies(criterion)
        and not _REFRAINS.search(criterion)
    ):
        statement = False
    if statement is None and not met and _repeats(reasoning, criterion):
        statement = True
    return (
        "its reasoning says the contrary of the verdict"
        if statement is (not met)
        else None
    )


def asks_for_words(criterion: str) -> bool:
    """Whether a criterion is met by words that can be quoted: what is said, not what is left out."""
    return _ASKS_FOR_WORDS.match(criterion) is not None and not denies(criterion)


def denies(text: str) -> bool:
    """Whether a text holds a negation."""
    return _NEGATION.search(_NO_NEGATION.sub(" ", text)) is not None


def _only_lack(clauses: Sequence[str]) -> bool:
    """Whether every clause of a reasoning denies. "It says that no scan is needed" denies nothing about the answer."""
    with_terms = [clause for clause in clauses if _TERM.search(clause)]
    for clause in with_terms:
        if not _is_denied(clause) or _SAYS.search(_FIRST_NEGATION.split(clause)[0]):
            return False
    return bool(with_terms)


def _repeats(reasoning: str, criterion: str) -> bool:
    """Whether a reasoning without a negation holds all words of the criterion."""
    if denies(reasoning):
        return False
    asked = _stems(criterion)
    return len(asked) > 1 and asked <= _stems(reasoning)


def _stems(text: str) -> set[str]:
    return {word[:5].rstrip("s") for word in _TERM.findall(text.casefold())}


def _clauses(text: str) -> list[str]:
    """The clauses of a text, without those that ask."""
    text = unicodedata.normalize("NFKC", text).translate(_SIMPLE)
    clauses, start = list[str](), 0
    for end in _BREAK.finditer(text):
        if end.group() != "?":
            clauses.append(text[start : end.start()].strip())
        start = end.end()
    return [clause for clause in (*clauses, text[start:].strip()) if clause]


def _is_denied(clause: str) -> bool:
    """Whether a clause denies: it has an odd number of negations, or none but a word like "partly"."""
    negations = len(_NEGATION.findall(_NO_NEGATION.sub(" ", clause)))
    return negations % 2 == 1 if negations else _PARTLY.search(clause) is not None


def _last_said(clauses: Sequence[str]) -> bool | None:
    """The last verdict (True: met) that a clause states; None: none does."""
    statement: bool | None = None
    for place, clause in enumerate(clauses):
        labelled = place in (0, len(clauses) - 1) or _LABEL.fullmatch(
            clauses[place - 1]
        )
        bare = labelled and _BARE.fullmatch(clause)
        stated = _STATES.match(clause) and not (
            _SUPPOSED.search(clause) or _REPORTS.search(clause)
        )
        if bare or stated:
            denied = _is_denied(clause)
            if denied or not _INFINITIVE.search(clause):
                statement = not denied
    return statement
