"""Chinese cities that tell nothing of the patient: `is_in_medical_name` (a drug's or a disease's), `is_general`.

General is a city in a question, a denial, a condition, words about other people, or talk of an epidemic. Each rule
needs a cue of its own, and a word that could make the place the patient's overrides it: in doubt a place is removed.
"""

import re

from .identifiers import (
    alternatives,
    is_part_of_name,
    misspelt_as,
    one_of,
    surroundings,
    word_list,
)

_CITIES = word_list("chinese", "cities")
_NAMES = surroundings(
    word_list("chinese", "names with a place"),
    _CITIES,
    longest_exact=2,
)
"""What surrounds a city in each medical name that contains it."""
_MISSPELT_NAMES = surroundings(
    word_list("chinese", "drugs near a place"),
    _CITIES,
    starts=misspelt_as,
)
"""The same for names in which one wrong character would give a city."""
_LIVED_BEFORE = re.compile(r"[在到去从住回来于自我是家]$")
_LIVED_AFTER = re.compile(r"市|[区县人的这那]|当地|本地|地区|老家|医|[一二三四五六]院")

_SENTENCE_END = re.compile(r"[。！!？?；;\n]")
_CLAUSE_END = re.compile(r"[。！!？?；;\n，,]")
_REACH = 40
"""How many characters before and after a place are read."""

_REGION = rf"(?:{alternatives(_CITIES)}|{one_of('chinese', 'provinces')}|国外|境外|外省|外地|疫区)[省市]?"
_JOIN = r"(?:[、,，/和及与或]|或者|或是|以及|还有|等)"
_LISTED = rf"(?:(?:{_REGION}{_JOIN}{{0,2}}){{0,6}}$)"
_DENIED = r"(?<!不是)(?<!并非)(?:有没有|有无|没有|沒有|从没|从未|未曾|不曾|[未没沒无]|(?<![不没有未])否认)"
_ASKED = r"(?:是否|有否|可曾|是不是)"
_WHEN = r"(?:有|曾经?|近期|最近|直接|间接|接触史|任何){0,3}"
_VISITED = r"(?:去过|到过|来过|途经过?|接触过?到?(?:去过|到过|从|来自)?)"
_WITH = r"(?:[与和跟同](?:去过?|到过)?|从|来自|外地|去过?的?){0,2}"
_SOMEONE = (
    r"(?:您|你们?|他们?|她|有人|病人|患者|孩子|家人|近期|最近|曾经?|说|有|是|，|,){0,4}"
)

_NOT_VISITED = re.compile(rf"(?:{_DENIED}|{_ASKED}){_WHEN}{_VISITED}{_LISTED}")
_NOT_GONE = re.compile(rf"{_DENIED}{_WHEN}去{_LISTED}")
_NOT_WITH = re.compile(rf"(?:{_DENIED}|{_ASKED}){_WHEN}{_WITH}{_LISTED}")
_IF_VISITED = re.compile(
    rf"(?:如果|假如|若是?|倘若|要是|只要|凡是?|比如|例如|譬如){_SOMEONE}{_VISITED}{_LISTED}"
)
_YOU_VISITED = re.compile(rf"(?:去过|到过|接触过){_LISTED}")
_YOU_HAVE = re.compile(rf"有过?{_LISTED}")
_MET = re.compile(rf"接触[过到]?(?:从|来自|去过|到过)?{_LISTED}")
_AMONG = re.compile(
    r"接触|[跟和与]$|[跟和与](?:从|来自)$|远离|避免|遇[到见]|碰[到见]|见过"
)

_AND_MORE = rf"市?(?:{_JOIN}{{1,2}}(?:其|国外|境外|周边|其他|{_REGION}|[重疫]){{0,3}}(?:地区|城市|地方|区|地)?){{0,3}}"
_KIN = "老公|老婆|丈夫|妻|爱人|对象|[爸妈爷奶哥姐弟妹儿女父母舅姑姨叔]|家人|家属|亲戚|亲属|男友|女友"
_NOT_THERE = re.compile(
    r"市?[\u4e00-\u9fff]{0,4}(?:以外|之外|除外|(?<![国境海])外(?!来|地|籍|省))"
    r"|市?(?:之前|以前|之后|以后|前|后|的?时|就(?!要|应|需|得|必须|会)|回(?!来的|乡的)|这边)"
    rf"|市?(?:返回|归来|回来|过来|回乡|返乡|出来|来)的?(?:{_KIN})"
)
_LIVES_THERE = re.compile(r"[我咱俺][们就也家]{0,3}[在住是]那")
_STOPS = re.compile(rf"{_AND_MORE}(?:疫区|$|[\s，,。；;！!？?吗])")
_CONTACT = re.compile(
    r"[^，,。；;！!？?\n]{0,14}?(?:接触|旅居史|旅行史|居住史|流行病学史|疫区史|人员|的人)"
)
_ASKS = re.compile(rf"{_AND_MORE}(?:吗|么(?!办)|嘛|没有?(?=$|[\s，,。？?]))")
_ASKS_HISTORY = re.compile(
    r"[^，,。；;！!？?\n]{0,10}?(?:接触史|旅居史|旅行史|居住史|的?接触)[^，,。；;！!？?\n]{0,6}?(?:吗|么(?!办)|嘛|没有?(?=$|[\s，,。？?]))"
)
_PEOPLE = re.compile(
    rf"{_AND_MORE}(?:地区|那边)?(?:返回|归来|回来|过来|回乡|返乡|出来|来)?的?(?:人(?!民?医院|民路)|旅客|乘客|同胞|$|[\s，,。]|和)"
)
_RETURNING = re.compile(
    r"市?(?:返回|归来|回来|过来|回乡|返乡|出来|来)的(?:人|旅客|乘客|游客)"
)
_OR_WITH_PEOPLE = re.compile(
    rf"市?(?:或者?|或是)[跟和与同]{_REGION}市?(?:返回|归来|回来|过来|出来|来)的人"
)
_ALL_OF_THEM = re.compile(
    r"市?[\u4e00-\u9fff]{1,3}的(?:人|旅客|乘客|游客)[员群们]?(?:都|均|一律|应|需|必须|不能|要)"
)
_EPIDEMIC = re.compile(r"市?的?(?:新冠|新型冠状病毒)?(?:肺炎)?疫情")
_CASES_REPORTED = re.compile(
    r"市?[及和]其?周边地区[^。；;\n]{0,20}(?:病例报告|报告病例)"
)

_OWN = re.compile(r"我|俺|咱|本人|自己|老公|老婆|[爸妈]|一起|一同|同行|随同")
_OWN_PEOPLE = re.compile(r"一起|一同|同行|随同|[是我家]$|[是我家]从$|[作身]为|属于")
_CAME_FROM_THERE = re.compile(r"回来|返回|离开|之后|以后|后来|[再除]|出生|老家")
_THEIR_HOME = re.compile(
    rf"(?:[我咱俺]们?|这边|这里|本地|当地|老家|家乡|目前|所|(?<!现)在|[住是从])的?{_LISTED}"
)


def is_in_medical_name(text: str, start: int, end: int) -> bool:
    """Whether the city at these offsets is a part of a drug's, a disease's or an organism's name."""
    city = text[start:end]
    if is_part_of_name(text, start, end, _NAMES.get(city, ())):
        return True
    lived_in = _LIVED_BEFORE.search(text, max(0, start - 1), start) is not None
    followed = _LIVED_AFTER.match(text, end) is not None
    fitting = []
    for name in _MISSPELT_NAMES.get(city, ()):
        if (name.before or not lived_in) and (name.after or not followed):
            fitting.append(name)
    return is_part_of_name(text, start, end, fitting)


def is_general(text: str, start: int, end: int) -> bool:
    """Whether the city at these offsets is in a question, a denial or a general statement, or is other people's."""
    before = _SENTENCE_END.split(text[max(0, start - _REACH) : start])[-1]
    clause = _CLAUSE_END.split(before)[-1]
    after = text[end : end + _REACH]
    sentence = _SENTENCE_END.split(after)[0]
    if _NOT_THERE.match(after) or _LIVES_THERE.search(after):
        return False
    speaks_of_self = (
        _OWN.search(before) is not None or _OWN.search(sentence) is not None
    )
    if _is_denied(before, clause, after):
        return True
    if _is_of_others(before, clause, after, speaks_of_self):
        return True
    if speaks_of_self:
        return False
    # 您去过武汉吗, 有武汉接触史吗
    if _YOU_VISITED.search(clause):
        is_asked = _ASKS.match(after) is not None
    else:
        is_asked = bool(_YOU_HAVE.search(clause) and _ASKS_HISTORY.match(after))
    if is_asked or _THEIR_HOME.search(before):
        return is_asked
    # 武汉疫情, and the definition of a case: 武汉市及周边地区，或其他有病例报告社区
    return bool(_EPIDEMIC.match(after) or _CASES_REPORTED.match(after))


def _is_denied(before: str, clause: str, after: str) -> bool:
    """Whether a visit or contact is denied, asked for or supposed: 没有去过武汉, 有无武汉接触史, 如果去过武汉."""
    if _CAME_FROM_THERE.search(clause):
        return False
    if _NOT_VISITED.search(before):
        return True
    if _NOT_GONE.search(before) and _STOPS.match(after):
        return True
    if _NOT_WITH.search(before) and _CONTACT.match(after):
        return True
    return _IF_VISITED.search(before) is not None and not _OWN.search(before)


def _is_of_others(
    before: str,
    clause: str,
    after: str,
    speaks_of_self: bool,
) -> bool:
    """Whether others come from it: 接触过武汉的人, 跟武汉回来的人, 去过武汉或者跟武汉来的人, 武汉来的人都要隔离."""
    if _MET.search(clause):
        return _PEOPLE.match(after) is not None
    if _YOU_VISITED.search(clause) and _OR_WITH_PEOPLE.match(after):
        return not _OWN.search(before)
    if _RETURNING.match(after) is None or _OWN_PEOPLE.search(clause):
        return False
    sentence = _SENTENCE_END.split(after)[0]
    is_rule = _ALL_OF_THEM.match(sentence) is not None and not speaks_of_self
    return is_rule or _AMONG.search(clause) is not None
