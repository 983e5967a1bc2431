"""`chinese_names` and `chinese_places`: names by titles, introductions and roles; places by their endings and lists."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial

from .chinese_general import is_general, is_in_medical_name
from .identifiers import (
    Candidates,
    View,
    alternatives,
    characters,
    matches,
    one_of,
    word_list,
)

Span = tuple[int, int]

_any = partial(one_of, "chinese")
_words = partial(word_list, "chinese")
_SURNAMES = characters("surnames")
_AMBIGUOUS_SURNAMES = characters("ambiguous surnames")
_COMPOUND_SURNAMES = _words("compound surnames")
_NOT_GIVEN = characters("not given")
_SPELLED = characters("spelled names")
_NOT_BEFORE_TITLE = characters("not before title")
_CITIES = _words("cities")
_AMBIGUOUS_CITIES = _any("ambiguous cities")
_SURE_CITIES = alternatives(_CITIES - _words("ambiguous cities"))
_PROVINCES = _any("provinces")
_TITLE = re.compile(_any("titles"))
_REGION = re.compile(rf"{alternatives(_CITIES)}|{_PROVINCES}|中国")
_HOSPITAL_END = re.compile(rf"(?={_any('hospital endings')})")
_HAN_NAME = r"[\u4e00-\u9fff](?:·?[\u4e00-\u9fff]){1,3}"
_NAME_END = r"(?=$|[\s,，。.;；、!！?？(（)）【\[0-9:：~～^\-—\"'”’/|a-z]|男|女|今年|来自|[\U0001f300-\U0001faff])"
_INTRODUCED = re.compile(
    r"(?:我(?:的)?(?:大|真|全|小|中文)?名字?(?:是|叫|为)?|我叫|本人叫|本人姓名|名叫|名字(?:是|叫)|大名|小名叫?|乳名|叫做"
    rf"|{_any('doctor parts')}(?:医生|大夫|专家|医师|护士)(?:是|叫|[:：])"
    rf"|{_any('name labels')}(?:姓名|签名|签字)?(?:是|为|叫)?[:：]"
    r"|姓名(?:是|为)?|患者姓名|病人姓名|联系人|收件人"
    r"|(?:我|他|她|孩子|宝宝|儿子|女儿|先生|老公|老婆)(?:大名|名字)?叫)[\s:：]{0,2}"
    rf"(?P<name>{_HAN_NAME}?){_NAME_END}"
)
_RELATED = re.compile(
    rf"(?:我|俺|咱|他|她|家里?|我家|我们家)(?:的)?(?:大|小|二|三|亲|堂|表|前)?{_any('kin')}(?:叫|名叫|名字是"
    rf"|名字叫|，|,)?(?P<name>{_HAN_NAME}?)(?=$|[\s,，。;；、!！?？(（0-9]|{_any('after kin')})"
)
_I_AM = re.compile(
    r"(?:我是|本人是?|这是|在下|我系)(?:患者|病人|家属|患者家属|孩子妈妈"
    rf"|孩子爸爸)?(?P<name>{_HAN_NAME}?)(?=$|[,，。;；!！\n(（]|[ 　]|男|女|今年|，|[0-9]{{1,2}}岁)"
)
_OF_RELATIVE = re.compile(
    rf"(?:我是|本人是?|这是)(?:患者|病人)?(?P<name>{_HAN_NAME}?)的(?={_any('kin')}|家属|家人)"
)
_BEFORE_SEX = re.compile(
    rf"(?:^|[\n。；;：:]|患者|病人|患儿)\s?(?P<name>{_HAN_NAME}?)[，,、 ]{{1,2}}(?=[男女]性?[，,、 ])"
)
_WORKING = re.compile(
    rf"{_any('doctor parts')}(?:医生|大夫|医师|护士)(?P<name>{_HAN_NAME}?)"
    rf"(?:{_NAME_END}|(?=说|给|让|建议|告诉|认为|把))"
)
_SPELLED_NAME = re.compile(
    rf"(?:叫|姓名[:：]?|{_any('kin')})\s?(?P<name>[{''.join(sorted(_SPELLED))}]{{3,8}}"
    rf"(?:·[{''.join(sorted(_SPELLED))}]{{2,8}})?)(?:{_NAME_END}|(?={_any('after kin')}|怀孕))"
)
_SIGNED = re.compile(
    r"(?:敬礼|敬上|祝好|祝您?[\u4e00-\u9fff]{2,6}|谢谢(?:您|你|了|大家|医生|大夫)?|感谢|感激不尽"
    r"|拜托了?|跪求|叩首|不胜感激|多谢|致谢|顺祝商祺)[!！。.～~，, ]{0,3}(?:\s*\n+\s*|(?<=敬礼)\s*"
    r"|(?<=敬礼[!！。.，, ])\s*)(?:——|—|--|-"
    rf"|～)?\s*(?:患者|家属|病人|您的患者|孩子妈妈)?[:： ]?(?P<thanked>{_HAN_NAME}?)[ \t]*(?=$|\n"
    r"|\d{2,4}[年.-]|敬上|拜上|上$|上\n)"
    rf"|(?:——|—|--|～)\s*(?:患者|家属|病人)?[:： ]?(?P<dashed>{_HAN_NAME}?)[ \t。]*(?=$|\n)"
    rf"|(?:\n|^|[。！!，,] ?)(?:患者|家属|病人|学生|晚辈){{0,2}}[:： ]?(?P<humble>{_HAN_NAME}?) ?(?:敬上|拜上|叩上"
    r"|谨上|留|上)[。!！]?[ \t]*(?=$|\n)"
)
_NICKNAME = re.compile(
    r"(?<![\u4e00-\u9fff])(?P<child>[\u4e00-\u9fff]{2,3})(?:妈妈?|爸爸?|的妈妈|的爸爸)(?=$|[，,。\s!！:：]|您好"
    r"|你好)|(?P<old>(?:小|老|阿)[王李张刘陈杨黄赵吴周徐孙朱胡郭何罗梁宋郑韩唐冯董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾"
    r"丁魏薛叶])(?=(?:也|昨|今|是|说|去|得|确诊|住院|查|最近|他|她|，|,|。|$|和我|跟我))"
)
_AFTER_ROLE = re.compile(
    rf"{_any('roles')}[:： ](?P<name>{_HAN_NAME}?)(?=$|[\s,，。;；、!！(（])"
)
_BEFORE_ROLE = re.compile(
    rf"(?P<name>{_HAN_NAME}?)[ ]?[(（](?:副?主任|大夫|医生|教授|医师|副?院长|护士长|主治|患者|病人|住院医)"
)
_ONE_LISTED = r"(?:(?![和与])[\u4e00-\u9fff]){2,4}"
_ASSOCIATES = _any("associates")
_ASSOCIATE_LIST = re.compile(
    rf"(?:{_ASSOCIATES})(?:有|是|包括|分别是|分别为|为|叫|如下)?[:：\s]{{0,2}}"
    rf"(?P<names>{_ONE_LISTED}?(?:[、和与,，]{_ONE_LISTED}?){{1,12}})"
    r"(?=$|[\s。；;.!！?？(（]|等|都|也|均|在|是|有|被|已|出现|感染|发|确诊|一起|[\u4e00-\u9fff]人)"
)
_LISTED = re.compile(_ONE_LISTED)
_GIVEN_ALONE = re.compile(
    r"(?:我叫|我的名字叫|本人叫|名叫)(?P<name>[\u4e00-\u9fff]{2,3})(?=$|[，,。.！!\s]|今年)"
)
_NOT_CALLED = re.compile("[医救车人护他她你了来过着它们起不啥什]|外卖|出租|家")
_ESTATE_CHAR = re.compile(r"[\u4e00-\u9fffA-Za-z0-9]")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_HOSPITAL = re.compile(rf"(?:{_any('hospitals')})(?:[一二三]?医院)?")
# Function words, which a place's name does not contain
_FUNCTION = "[的在去到和及与是有了看做我你他她您说这那个就都没来回从往住所以后给被把对于还也又再能要]"
_WIDE_AREA = "[病疫灾辖郊城山库矿流行风险危重中高低]"
_CITY = re.compile(
    rf"(?P<city>{_SURE_CITIES}|(?<=[在住到去回从省自])(?:{_AMBIGUOUS_CITIES})|(?:{_AMBIGUOUS_CITIES})(?=市))市?"
    r"(?!肺炎|病毒|型|话|菜|瓜)"
    rf"(?:(?:(?!{_FUNCTION}|{_WIDE_AREA})[\u4e00-\u9fff]){{2,3}}?[区县](?!域))?"
)
_BRIEF_HOSPITAL = re.compile(
    rf"(?!{_FUNCTION}|[送知找于])(?:[\u4e00-\u9fff]{{1,2}}大|[\u4e00-\u9fff]{{1,2}}医(?:科?大)?)第?[一二三四五]?附属?(?:医院|[一二三四五]?院|[一二三四五])"
)
"""郑大一附院, 中山大附一."""
_COMPANY = re.compile(
    r"(?:(?!在|于|是|的|去|到|为|从|给)[\u4e00-\u9fff（）()]){2,16}?(?:有限责任公司|有限公司|股份公司|集团公司)"
)
_LISTED_HOSPITAL = re.compile(
    r"(?:医院及科室|就诊医院|医院名称|所在医院|(?:^|(?<=\n)))[ \t]?[:：]?[ \t]{0,3}"
    r"(?P<place>[\u4e00-\u9fff0-9()（）]{2,18}?(?:医院|卫生院|诊所|医学中心))(?=[\s,，。北南东西分本]|$)"
)
_TALK = re.compile(f"{_FUNCTION}|不|没|先|又|最好|建议|治疗|过")
_GENERIC_HOSPITAL = re.compile(
    rf"(?:{_any('generic hospital words')}|[\u4e00-\u9fff]?地|第[一二三四五六七八九十]+)*"
    "(?:医院|卫生院|诊所|医学中心)"
)
_NAMED_HOSPITAL = re.compile(
    rf"(?:(?:{_PROVINCES}|{alternatives(_CITIES)}|中国)(?:省|市|自治区)?|(?:(?!{_FUNCTION})[\u4e00-\u9fff]){{2"
    r",3}[市县州])"
    rf"(?:(?!{_FUNCTION}|医院|检查|治疗)[\u4e00-\u9fff]){{0,10}}?"
    r"(?:医院|卫生院|医学院|保健院|疾控中心|附院|附一|附二|医大一院|医大二院)"
)
_COUNTY = re.compile(
    r"(?:(?<=[在住于去到是省市州从回])|(?<![\u4e00-\u9fff])|(?<=来自))(?P<county>[\u4e00-\u9fff]{2,3}(?:县(?!城"
    r"|里|级)|自治州|街道(?!办)))|(?:(?<=[在住于省市州])|(?<![\u4e00-\u9fff]))(?P<area>[\u4e00-\u9fff]{2}(?:区"
    r"|镇(?![静痛定咳])|乡|村(?!医|卫))(?![域别间分]))|(?P<estate>[\u4e00-\u9fff]{2,5}(?:路|街|大道)\d{1,4}(?:号"
    r"|弄))"
)
_NOT_COUNTY = re.compile(f"{_FUNCTION}|当地|本地|[小大邻该各]县")
_NOT_AREA = re.compile(
    "[缘建议病疫肝肾胃心胸背枕腰颈腹颞额顶叶肺脐地郊城山灾社小辖园牧景库矿院中盲特全各风险污染清洁留观重城农乡"
    "高老东西南北前后左右上下本外市整同每这那哪我你他的个冰牙骨腺淋耳眼鼻口手脚膝踝髋肩肘臀臂腿"
    "隔离功能皮部诊术禁战灰黑白红黄暗亮阴影流行肿块疼痛敏感三角会阴周]"
)
_BOUNDARY = re.compile(r"[\s,，。.!！?？;；:：、~～()（）\[\]【】\"“”\n]")
_GREETING_BEFORE = re.compile(
    "(?:你好|您好|感谢|谢谢|尊敬的|请问|请教|麻烦|多谢|敬爱的|您|找|由|医生|大夫|医师|护士)$"
)


_NOT_NAMES = _words("not names")
_NOT_IN_NAMES = characters("particles") | characters("body and illness")
_ILLNESS_ENDS = frozenset("斑疣癣疸疹疮症病炎癌瘤虑郁")
# Characters that cannot follow an ambiguous surname in a name
_NOT_AFTER_RARE = (_NOT_GIVEN - frozenset("小明晨")) | _NOT_IN_NAMES
_PET_NAME = re.compile(
    r"([\u4e00-\u9fff])\1|[小大豆糖果乐豆萌][\u4e00-\u9fff]|[\u4e00-\u9fff](?:宝|仔|妞)"
)
_NOT_PET_NAMES = _words("not pet names")


def _name_before(text: str, title_at: int) -> int | None:
    """Return where the name before a title starts, or None."""
    for length in (3, 2):  # a compound surname counts as length 2
        start = title_at - length
        name = text[max(0, start) : title_at]
        if len(name) < length or not all(map(_HAN.match, name)):
            continue
        if name in _NOT_NAMES or name[-1] in _ILLNESS_ENDS:
            continue
        if name in _COMPOUND_SURNAMES:
            return start
        is_given = _NOT_GIVEN.isdisjoint(name[1:]) and name[1] != name[0]
        is_whole = length == 3 or _starts_word(text, start)
        if name[0] in _SURNAMES and is_given and is_whole:
            return start
    return title_at - 1 if _is_surname_before(text, title_at) else None


def _is_surname_before(text: str, title_at: int) -> bool:
    """Whether the single character before a title is a surname."""
    char = text[title_at - 1 : title_at]
    if char in _SURNAMES:
        return True
    if not _HAN.match(char) or not _starts_word(text, title_at - 1):
        return False
    is_name = char not in _NOT_BEFORE_TITLE | _NOT_GIVEN
    unlisted = is_name and text.startswith("主任", title_at)
    return char in _AMBIGUOUS_SURNAMES or unlisted


def _starts_word(text: str, start: int) -> bool:
    """Whether a word starts at `start`: before it is a mark, a greeting or nothing."""
    before = text[max(0, start - 4) : start]
    if not before or _BOUNDARY.match(before[-1]):
        return True
    return _GREETING_BEFORE.search(before) is not None


def _is_full_name(name: str) -> bool:
    """Whether these two to four characters can be a full name: a surname first, no function word after it."""
    if name in _NOT_NAMES or name[:2] in _NOT_NAMES or "人" in name[2:]:
        return False
    letters = name.replace("·", "")
    if letters[:2] in _COMPOUND_SURNAMES:
        return 3 <= len(letters) <= 4 and not set(letters[2:]) & _NOT_IN_NAMES
    if len(letters) > 3:
        return False
    if letters[0] in _SURNAMES:
        return not set(letters[1:]) & _NOT_IN_NAMES
    return letters[0] in _AMBIGUOUS_SURNAMES and not set(letters[1:]) & _NOT_AFTER_RARE


def _is_pet_name(name: str) -> bool:
    """Whether a name is formed as a child's pet name, as 豆豆 is."""
    return _PET_NAME.fullmatch(name) is not None and name not in _NOT_PET_NAMES


def _is_introduced(match: re.Match[str]) -> bool:
    """Whether the words after an introduction or a field's label are a name."""
    name, label = match["name"], match[0][: -len(match["name"])]
    if _NAME_FIELD.search(label) and name[0] in _AMBIGUOUS_SURNAMES:
        return name not in _NOT_NAMES and not set(name[1:]) & _NOT_IN_NAMES
    if _is_full_name(name) or ("叫" in label and _is_pet_name(name)):
        return True
    return label.startswith(("小名", "乳名", "大名")) and name not in _NOT_PET_NAMES


_NAME_FIELD = re.compile(r"(?:姓名|签名|签字|署名|落款|联系人|收件人|监护人)[:：]\s*$")


_FIRST = _SURNAMES | frozenset(name[0] for name in _COMPOUND_SURNAMES)


def _is_sure_name(match: re.Match[str]) -> bool:
    """Whether a full name has three characters, or a surname that is hardly a word besides."""
    name = match["name"]
    return _is_full_name(name) and (len(name) == 3 or name[0] in _FIRST)


def _is_related(match: re.Match[str]) -> bool:
    """Whether the words after a relative are a name."""
    name, called = match["name"], "叫" in match[0]
    if called and _is_pet_name(name):
        return True
    is_sure = called or name[0] in _SURNAMES or len(name) == 3
    return is_sure and _is_full_name(name)


def _is_nickname(match: re.Match[str]) -> bool:
    """Whether the match of _NICKNAME is 老王 or the like, or a child's name before 妈妈."""
    child = match["child"]
    if child is None or _is_pet_name(child):
        return True
    return _is_full_name(child) and child not in _NOT_PET_NAMES


_NAME_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
    (_INTRODUCED, _is_introduced),
    (_RELATED, _is_related),
    (_I_AM, _is_sure_name),
    (
        _GIVEN_ALONE,
        lambda m: not _NOT_CALLED.search(m["name"]) and m["name"] not in _NOT_NAMES,
    ),
    (_NICKNAME, _is_nickname),
    (_WORKING, _is_sure_name),
    (_SPELLED_NAME, lambda m: m["name"] not in _NOT_NAMES),
    *(
        (pattern, lambda m: _is_full_name(m[m.lastgroup or 0]))
        for pattern in (_SIGNED, _AFTER_ROLE, _BEFORE_ROLE, _OF_RELATIVE, _BEFORE_SEX)
    ),
)
"""Patterns whose last group is a name, each with a further test of a match."""


def chinese_names(view: View) -> Candidates:
    """Find names before a title (张大夫 → 张), after an introduction, a relative or a role, and in signatures."""
    text, lower = view.text, view.lower
    for match in _TITLE.finditer(lower):
        at = match.start()
        if text[at - 1 : at] == "副" and text.startswith(("主任医", "主任技"), at):
            continue
        start = _name_before(text, at)
        if start is not None:
            yield "name", start, at
    for pattern, is_name in _NAME_RULES:
        for match in pattern.finditer(lower):
            if is_name(match):
                yield "name", *match.span(match.lastgroup or "name")
    # A list of people, unless one entry of it is not a name
    for match in _ASSOCIATE_LIST.finditer(lower):
        entries = list(_LISTED.finditer(lower, *match.span("names")))
        if all(_is_listed_name(entry[0]) for entry in entries):
            for entry in entries:
                yield "name", *entry.span()


def _is_listed_name(name: str) -> bool:
    """A full name, or 小王, 老李."""
    return _is_full_name(name) or (name[0] in "小老阿" and name[1:] in _SURNAMES)


# One part of an address, with its unit: district, town, street, estate
_CHAIN = re.compile(
    rf"(?:(?!{_FUNCTION})[\u4e00-\u9fff]){{1,6}}?(?P<unit>市|(?<!地)区(?!域)|县|旗|镇|乡|街道|村(?!医)|屯|社区"
    r"|小区|开发区|路(?!上|口)|大街|街|巷|家园|花园|公寓|新村|苑)"
)
_FINE = _words("fine units")
_DOOR = (
    r"(?:[A-Za-z]?\d{1,5}(?:[-—]\d{1,4}){0,2}|[一二三四五六七八九十]{1,3}|[A-Za-z])"
    + _any("doors")
)
_ADDRESS = re.compile(
    rf"{_any('estates')}(?:[\u4e00-\u9fff]{{0,3}}(?:段|支路|[东西南北]路)"
    rf"|[一二三四五六七八九十东南西北中]{{1,2}}区)?(?:{_DOOR}[ ，,]?)+"
    r"(?:[A-Za-z]?\d{2,4}(?:室|房|户)?(?![\d年月日.%]))?"
)
_LIVES = re.compile(
    r"(?:住在?|老家(?:是|在)|家在|家住|居住(?:在|于)|地址(?:是|为|在)?[:：]?|户籍(?:地|所在地)?(?:是|为)?[:：]?"
    r"|住址(?:是|为)?[:：]?|搬到了?|寄到|邮寄到|送到|籍贯[:：]?|家庭住址[:：]?)\s?"
    rf"(?P<place>(?:(?!{_FUNCTION}|院)[\u4e00-\u9fffA-Za-z0-9]){{2,14}}?{_any('homes')})"
    r"(?![\u4e00-\u9fff]{0,1}医院)"
)
_POSTCODE = re.compile(r"(?:邮编|邮政编码)(?:是|为)?[\s:：]{0,2}(?P<code>\d{6})(?!\d)")
_PROVINCE_BEFORE = re.compile(
    rf"(?:{_PROVINCES})(?:省|市|自治区|壮族自治区|回族自治区|维吾尔自治区)?[ ，,]?$"
)
_ADDRESS_STOP = re.compile(rf"(?:{_FUNCTION}|[住家址：:，,。\s\n是为于叫至])")
_NOT_ESTATE = _words("not estates")


_GENERIC_PLACE = re.compile(
    rf"(?:[一二两三四五六七八九十几]楼|{_any('generic home words')})*{_any('homes')}"
)


def chinese_places(view: View) -> Candidates:
    """Find named hospitals, places finer than a province, and exact addresses."""
    text, lower = view.text, view.lower
    # The streets and villages that follow a place make an address of it.
    chains: dict[int, tuple[int, bool]] = {}
    for start, end in _named_places(lower):
        is_hospital, is_fine = text[end - 1] in "院心", False
        if not is_hospital:
            end, is_fine = _end_of_chain(text, end, chains)
        if is_fine:
            start = _with_province(text, start)
        yield "address" if is_fine else "place", start, end
    yield from _numbered_addresses(view)
    for match in _LIVES.finditer(lower):
        place = match["place"]
        if place[-2:] not in _NOT_ESTATE and not _GENERIC_PLACE.fullmatch(place):
            yield "address", *match.span("place")
    if "公司" in lower:
        yield from matches("place", _COMPANY, lower)
    yield from matches("address", _POSTCODE, lower)


def _end_of_chain(
    text: str, start: int, known: dict[int, tuple[int, bool]]
) -> tuple[int, bool]:
    """Where the streets and villages that begin at `start` end, and whether one is finer than a district.

    `known` holds the chains that were followed before: many places may be followed by the same one.
    """
    parts = []
    at = start
    while at not in known and (part := _CHAIN.match(text, at)):
        parts.append((at, part["unit"] in _FINE))
        at = part.end()
    end, is_fine = known.setdefault(at, (at, False))
    for place, fine in reversed(parts):
        is_fine = is_fine or fine
        known[place] = end, is_fine
    return end, is_fine


def _numbered_addresses(view: View) -> Candidates:
    """Find roads and estates with a number; the name begins after the last character that belongs to no name."""
    text = view.text
    for match in _ADDRESS.finditer(view.lower):
        start = end = match.start()
        while (
            start > max(0, end - 16)
            and _ESTATE_CHAR.match(char := text[start - 1])
            and not _ADDRESS_STOP.match(char)
        ):
            start -= 1
        name = text[start : end + 2]
        if start < end and _NOT_ESTATE.isdisjoint((name[:2], name)):
            written = len(match[0].rstrip(" ，,"))
            yield "address", _with_province(text, start), end + written


def _with_province(text: str, start: int) -> int:
    """Return where an address starts, with the province before it."""
    province = _PROVINCE_BEFORE.search(text, max(0, start - 10), start)
    return province.start() if province else start


def _named_places(lower: str) -> Iterator[Span]:
    """Find named hospitals and places finer than a province, except cities that tell nothing of the patient."""
    hospitals = list(_hospitals(lower))
    yield from hospitals
    own = {lower[start:end] for start, end in hospitals}
    general = []
    nobodys = []
    for match in _CITY.finditer(lower):
        if is_in_medical_name(lower, *match.span("city")):
            nobodys.append(match.span())
        elif is_general(lower, *match.span("city")):
            general.append(match)
        else:
            own.add(match["city"])
            yield match.span()
    # Where the patient has been to a city, every other mention of it in the text gives it away.
    own_places = "\n".join(own)
    for match in general:
        if match["city"] in own_places:
            yield match.span()
        else:
            nobodys.append(match.span())
    nobodys.sort()
    # Counties, districts and numbered roads
    for match in _COUNTY.finditer(lower):
        area, county = match["area"], match["county"]
        if area and _NOT_AREA.search(area[:-1]):
            continue
        if county and _NOT_COUNTY.search(county):
            continue
        start, end = match.span(match.lastgroup or "county")
        before = bisect_left(nobodys, (end, 0)) - 1
        if before < 0 or nobodys[before][1] <= start:
            yield start, end


def _hospitals(lower: str) -> Iterator[Span]:
    """Find named hospitals."""
    regions = [match.start() for match in _REGION.finditer(lower)]
    for match in _HOSPITAL_END.finditer(lower):
        at = match.start()
        first, last = bisect_left(regions, at - 18), bisect_left(regions, at)
        if hospital := _named_hospital(lower, at, regions[first:last]):
            yield hospital
    for pattern in (_BRIEF_HOSPITAL, _HOSPITAL):
        yield from (match.span() for match in pattern.finditer(lower))


def _named_hospital(
    lower: str,
    at: int,
    regions: list[int],
) -> Span | None:
    """The span of the hospital whose last word begins at `at`, if it begins with a place or fills a form's field."""
    starts = set(regions)
    for k in range(max(3, at - 14), at):
        if lower[k] in "市县州":
            starts |= {k - 3, k - 2}
    for start in sorted(starts):
        match = _NAMED_HOSPITAL.match(lower, start)
        if match and match.end() > at and not _GENERIC_HOSPITAL.fullmatch(match[0]):
            return match.span()
    line = lower.rfind("\n", max(0, at - 28), at) + 1
    if at >= 28 and not line:
        return None
    for match in _LISTED_HOSPITAL.finditer(lower, line, at + 9):
        place = match["place"]
        whole = match.end() < at + 9 or match.end() == len(lower)
        is_named = not _GENERIC_HOSPITAL.fullmatch(place) and not _TALK.search(place)
        if whole and is_named:
            return match.span("place")
    return None
