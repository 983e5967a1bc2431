"""Chinese names and places, found by what stands around them: a title, an introduction, an office word."""

import re
from collections.abc import Iterator
from typing import Final

from medlive.threads.gazetteer import (
    CITIES_ZH,
    COMPOUND_SURNAMES,
    DOUBTFUL_CITIES_ZH,
    HOSPITALS_ZH,
    NOT_BEFORE_TITLE,
    NOT_GIVEN,
    PROVINCES_ZH,
    RARE_SURNAMES,
    SURNAMES,
)

_TITLE: Final = re.compile("主任|大夫|医生|教授|医师|院长|护士长|护士|老师|先生|女士|小姐|博士|阿姨|专家")
_INTRODUCED: Final = re.compile(
    r"(?:我叫|本人叫|(?:预约|主治|主管|接诊|就诊|推荐)(?:医生|大夫|专家)(?=[:：])|名叫|我的名字(?:是|叫)|姓名(?:是|为)?|患者姓名|病人姓名|联系人|收件人)[\s:：]{0,2}"
    r"(?P<name>[\u4e00-\u9fff]{2,4})(?=$|[\s,，。.;；、!！(（0-9]|男|女|今年)"
)
_HAN: Final = re.compile(r"[\u4e00-\u9fff]")
_SECOND: Final = re.compile("医院|卫生院|卫生所|诊所|医学院|保健院|疾控中心|附院|医大|附属")
_SURE_CITIES: Final = "|".join(c for c in CITIES_ZH if c not in DOUBTFUL_CITIES_ZH)
_DOUBTFUL: Final = "|".join(sorted(DOUBTFUL_CITIES_ZH))
_HOSPITAL: Final = re.compile("|".join(HOSPITALS_ZH))
_PROVINCE: Final = "|".join(PROVINCES_ZH.split())
_FUNCTION: Final = "[的在去到和是有了看做我你他她您说这那个就都没来回从往住所以后给被把对于还也又再能要]"
_WIDE_AREA: Final = "[病疫灾辖郊城山库矿流行风险危重中高低]"
_CITY: Final = re.compile(
    rf"(?:{_SURE_CITIES}|(?<=[在住到去回从省自])(?:{_DOUBTFUL})|(?:{_DOUBTFUL})(?=市))市?(?!肺炎|病毒|型|话|菜|瓜)"
    rf"(?:(?:(?!{_FUNCTION}|{_WIDE_AREA})[\u4e00-\u9fff]){{2,3}}?[区县](?!域))?"
)
_LISTED_HOSPITAL: Final = re.compile(
    r"(?:医院及科室|就诊医院|医院名称|所在医院|(?:^|(?<=\n)))[ \t]?[:：]?[ \t]{0,3}"
    r"(?P<place>[\u4e00-\u9fff0-9()（）]{2,18}?(?:医院|卫生院|诊所|医学中心))(?=[\s,，。北南东西分本]|$)"
)
_GENERIC_HOSPITAL: Final = re.compile(
    "(?:本地|当地|我们|我|的|在|去|这|那|大|小|好|家|个|第一|第二|第三|第[一二三四五六七八九十]+|人民|中心|中医|市|县|区|镇|省|立"
    "|级|三甲|二甲|妇幼|儿童|妇产|口腔|传染病|专科|综合|公立|私立|社区|附属|医学院|大学|肿瘤|胸科|眼科|正规|定点|保健)*"
    "(?:医院|卫生院|诊所|医学中心)"
)
_NAMED_HOSPITAL: Final = re.compile(
    rf"(?:(?:{_PROVINCE}|{'|'.join(CITIES_ZH)}|中国)(?:省|市|自治区)?|(?:(?!{_FUNCTION})[\u4e00-\u9fff]){{2,3}}[市县州])"
    rf"(?:(?!{_FUNCTION}|医院|检查|治疗)[\u4e00-\u9fff]){{0,10}}?"
    r"(?:医院|卫生院|医学院|保健院|疾控中心|附院|附一|附二|医大一院|医大二院)"
)
_COUNTY: Final = re.compile(
    r"(?:(?<=[在住于去到是省市州从回])|(?<![\u4e00-\u9fff])|(?<=来自))(?P<county>[\u4e00-\u9fff]{2,3}(?:县(?!城|里|级)|自治州|街道(?!办)))"
    r"|(?:(?<=[在住于省市州])|(?<![\u4e00-\u9fff]))(?P<area>[\u4e00-\u9fff]{2}(?:区|镇(?![静痛定咳])|乡|村(?!医|卫))(?![域别间分]))"
    r"|(?P<estate>[\u4e00-\u9fff]{2,5}(?:路|街|大道)\d{1,4}(?:号|弄))"
)
_NOT_AREA: Final = re.compile(
    "[病疫肝肾胃心胸背枕腰颈腹颞额顶叶肺脐地郊城山灾社小辖园牧景库矿院中盲特全各风险污染清洁留观重城农乡"
    "高老东西南北前后左右上下本外市整同每这那哪我你他的个冰牙骨腺淋耳眼鼻口手脚膝踝髋肩肘臀臂腿"
    "隔离功能皮部诊术禁战灰黑白红黄暗亮阴影流行肿块疼痛敏感三角会阴周]"
)
_BOUNDARY: Final = re.compile(r"[\s,，。.!！?？;；:：、~～()（）\[\]【】\"“”\n]")
_GREETING_BEFORE: Final = re.compile("(?:你好|您好|感谢|谢谢|尊敬的|请问|请教|麻烦|多谢|敬爱的)$")


def _name_before(text: str, title_at: int) -> int | None:
    """Where the name before a title starts, or None."""
    for length in (3, 2):  # a whole name; the compound surname alone counts as length 2
        start = title_at - length
        if start < 0:
            continue
        name = text[start:title_at]
        if not all(_HAN.match(c) for c in name):
            continue
        if length == 2 and name in COMPOUND_SURNAMES:
            return start
        given = name[1:]
        if (
            name[0] in SURNAMES
            and not set(given) & NOT_GIVEN
            and name[1] != name[0]
            and not (set(given) & SURNAMES and length == 2 and start and not _open(text, start))
            and (length == 3 or _open(text, start))
        ):
            return start
    start = title_at - 1
    if start < 0 or not _HAN.match(text[start]):
        return None
    char = text[start]
    if char in SURNAMES:
        return start
    if char in RARE_SURNAMES and _open(text, start):
        return start
    if (
        char not in NOT_BEFORE_TITLE
        and char not in NOT_GIVEN
        and _open(text, start)
        and text.startswith("主任", title_at)
    ):
        return start
    return None


def _open(text: str, start: int) -> bool:
    """Whether nothing that could belong to the same word stands before `start`."""
    return (
        start == 0
        or bool(_BOUNDARY.match(text[start - 1]))
        or bool(_GREETING_BEFORE.search(text[max(0, start - 4) : start]))
    )


def chinese_names(text: str) -> Iterator[tuple[int, int]]:
    """Spans of names before a title (张大夫 → 张) or after an introduction (我叫…)."""
    for title in _TITLE.finditer(text):
        if (
            text.startswith(("主任医", "主任技"), title.start())
            and title.start()
            and text[title.start() - 1] == "副"
        ):
            continue
        start = _name_before(text, title.start())
        if start is not None:
            yield start, title.start()
    for match in _INTRODUCED.finditer(text):
        name = match.group("name")
        if name[0] in SURNAMES or name[0] in RARE_SURNAMES or name[:2] in COMPOUND_SURNAMES:
            yield match.span("name")


def chinese_places(text: str) -> Iterator[tuple[int, int]]:
    """Spans of hospitals with a name, and of places finer than a province."""
    if _SECOND.search(text):
        for match in _NAMED_HOSPITAL.finditer(text):
            yield match.span()
        for match in _LISTED_HOSPITAL.finditer(text):
            if not _GENERIC_HOSPITAL.fullmatch(match.group("place")):
                yield match.span("place")
    for pattern in (_HOSPITAL, _CITY):
        for match in pattern.finditer(text):
            yield match.span()
    for match in _COUNTY.finditer(text):
        group = match.lastgroup or "county"
        if group == "area" and _NOT_AREA.search(match.group(group)[:-1]):
            continue
        yield match.span(group)
