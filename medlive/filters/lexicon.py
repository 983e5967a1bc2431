"""`unsafe_phrase` finds phrases of hatred and of intended harm: few, in context, never a clinical word by itself."""

import re
from typing import Literal

_GROUP = (
    r"(?:jews?|muslims?|christians?|hindus?|blacks?|whites?|asians?|chinese|indians?|pakistanis?|arabs?|mexicans?"
    r"|africans?|immigrants?|refugees?|gays?|lesbians?|homosexuals?|transgenders?|women|gypsies)"
)
_HATE_EN = re.compile(
    r"\b(?:n[i1]gg(?:er|a)s?|f[a@]gg?[o0]ts?|kikes?|wetbacks?|ragheads?|sandn\w+|towelheads?|gooks?"
    r"|pakis|untermenschen)\b"
    rf"|\b(?:kill|exterminate|gas|deport|hang|lynch|burn)\s(?:all\s)?(?:the\s|those\s|these\s)?{_GROUP}\b"
    rf"|\b(?:all|those|these|fucking|dirty|filthy)\s{_GROUP}\s(?:are|r)\s(?:all\s)?(?:\w+\s)?"
    r"(?:animals|vermin|subhuman|inferior|parasites|rats|cockroaches|scum|filth|trash|disgusting"
    r"|thieves|criminals|terrorists)\b"
    # Whatever the group: people who are said to be less than people.
    r"|\b(?:those|these|such)\s(?:\w+\s)?people\b[^.!?\n]{0,60}\b(?:subhumans?|savages|scum|too stupid to live)\b"
    r"|\bsubhuman\s(?:savages?|animals?|scum|filth|vermin|trash)\b"
    rf"|\bi\s(?:hate|despise)\s(?:all\s)?(?:the\s|those\s|these\s|fucking\s)?{_GROUP}\b"
    r"|\byou(?:'re| are)?\s(?:a\s|an\s)?(?:stupid\s|fucking\s|dumb\s|filthy\s)?(?:retard|tranny|whore"
    r"|slut|bitch)\b"
)
_HATE_ZH = re.compile(
    "支那(?:猪|人|狗)|黑鬼|尼哥|死(?:基佬|同性恋|变态佬|娘炮|穆斯林|回回)|阿三狗|棒子狗|小日本鬼子都?该死|(?:河南"
    "|湖北|武汉|东北|新疆|外地|农村|乡下|广东|上海|黑|日本|印度|非洲|回族|同性恋)(?:人|佬|者)?(?:都|全|就)(?:是"
    "|该)?(?:骗子|小偷|垃圾|畜生|贱种|该死|去死|败类|蝗虫|病毒)|(?:你|他|她)(?:这个|就是个?)?(?:贱人|婊子|畜生"
    "|杂种|狗杂种)"
)
_ASK = (
    r"(?:how (?:to|do i|can i|do you|can you|would i)|(?:recipe|instructions|steps) (?:for|to)|teach me to"
    r"|best way to|tell me how to)"
)
_HARM_EN = re.compile(
    rf"\b{_ASK}\s(?:\w+\s)?(?:make|making|cook|cooking|synthesi[sz]e|produce|manufacture|brew"
    rf"|extract)\s(?:\w+\s){{0,2}}"
    r"(?:meth|methamphetamine|crystal meth|heroin|cocaine|crack|fentanyl|lsd|mdma|ecstasy|ghb|krokodil"
    r"|explosives?|bombs?|ricin|sarin|nerve gas|anthrax|poison(?! ivy| oak))\b"
    rf"|\b{_ASK}\s(?:secretly\s|slowly\s)?(?:poison|drug|sedate|kill|overdose)\s(?:my\s(?:wife|husband"
    rf"|ex|boss|neighbou?r"
    r"|mother|father|mother-in-law|roommate|girlfriend|boyfriend|child|baby)|someone|somebody|people"
    r"|him|her|a person)\b"
    rf"|\b{_ASK}\s(?:painlessly\s)?(?:kill myself|commit suicide|die painlessly|end my life)\b"
    r"|\bhow (?:many|much)\s[\w\s]{1,40}?(?:to (?:die|kill myself|commit suicide|end my life|kill (?:him|her"
    r"|someone)))\b|\bpainless (?:way|method)s? (?:to|of) (?:die|dying|suicide)\b|\bwithout (?:her|him"
    r"|them) knowing\b.{0,40}\b(?:abort|miscarry|miscarriage|sterili[sz]e)"
)
_HARM_ZH = re.compile(
    "(?:怎么|如何|怎样|教我)(?:自己|在家)?(?:制作?|造|提炼|合成|提取|做)(?:出)?(?:冰毒|海洛因|毒品|摇头丸|可卡因"
    "|炸药|炸弹|毒药|迷药|蒙汗药)|(?:怎么|如何|怎样)(?:才能)?(?:偷偷)?(?:毒死|药死|迷晕|弄死|害死)(?:人|别人|他"
    "|她|老公|老婆|婆婆|邻居|同事|女孩)?|(?:怎么|如何|怎样)(?:才能)?(?:自杀|无痛苦?(?:地|的)?(?:死|自杀|离开)"
    "|安乐死自己)(?:最|不痛|才)?|(?:吃|喝|服)多少.{0,12}?(?:会死|能死|致死|才死|就死)(?!亡率)|哪里(?:能"
    "|可以)?(?:买|弄)到?(?:迷药|毒品|冰毒|氰化)"
)
_Patterns = tuple[tuple[Literal["hate", "harm"], re.Pattern[str]], ...]
_ENGLISH: _Patterns = (("hate", _HATE_EN), ("harm", _HARM_EN))
_CHINESE: _Patterns = (("hate", _HATE_ZH), ("harm", _HARM_ZH))


def unsafe_phrase(lower: str) -> tuple[Literal["hate", "harm"], str] | None:
    """Find the first phrase of hatred, or of a request to do harm, in a text in lower case."""
    for kind, pattern in _ENGLISH if lower.isascii() else (*_CHINESE, *_ENGLISH):
        if match := pattern.search(lower):
            return kind, match.group()
    return None
