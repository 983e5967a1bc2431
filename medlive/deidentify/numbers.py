"""Structured identifiers: telephones, addresses of the net, identity and record numbers, dates of birth.

A cheap look for a word or a sign comes before every pattern that costs time.
"""

import re
from functools import lru_cache
from typing import Final

from medlive.deidentify.anchors import anchor
from medlive.deidentify.identifiers import Candidate, Candidates, IdentifierKind, View

_EMAIL: Final = re.compile(
    r"(?<![a-z0-9._%+-])[a-z0-9_%+-][a-z0-9._%+-]{0,63}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,4}(?<![.-])"
)
_DOT: Final = r"\s?(?:\.|[(\[{]\s?(?:dot|\.)\s?[)\]}]|(?<=\s)dot(?=\s)|点|。)\s?"
_SPELLED_EMAIL: Final = re.compile(
    r"(?<![a-z0-9._%+-])[a-z0-9_%+-][a-z0-9._%+-]{0,63}"
    r"(?:\s?(?:点|下划线)\s?[a-z0-9_-]{1,30}|\s(?:dot|underscore|dash)\s[a-z0-9_-]{1,30}){0,3}"
    r"(?:\s?[(\[{<]\s?(?:at|@)\s?[)\]}>]\s?|\sat\s|\s?艾特\s?|\s?@\s?|#)"
    rf"[a-z0-9-]{{2,63}}(?:{_DOT}(?:com|net|org|edu|cn|co|uk|in|gov|info|io|me|ac|example))+(?![a-z0-9])"
)
_SPELLED_HINT: Final = ("(at", "[at", "{at", "( at", "[ at", "艾特", "@ ", " @", "<at", "@")
_TLD: Final = re.compile(r"\.(?:com|net|org|cn|edu|gov|info|io|xyz|top|vip|co\.[a-z]{2}|example|test|[a-z]{2,4}/)")
_URL_TAIL: Final = r"[^\s<>\"'，。；！）)】》\u4e00-\u9fff]"
_URL: Final = re.compile(
    rf"(?:https?|hxxps?)://{_URL_TAIL}+(?<![.,;:!?\]])|(?<![a-z0-9])www\.{_URL_TAIL}+(?<![.,;:!?\]])"
    r"|(?<![a-z0-9@._-])[a-z0-9][a-z0-9-]{0,40}(?:\.[a-z0-9-]{2,40}){0,2}"
    r"\.(?:(?:com|net|org|cn|edu|gov|info|io|xyz|top|vip|co\.uk|co\.in|example|test)(?![a-z0-9])"
    r"|[a-z]{2,4}(?=/[a-z0-9]))"
    rf"(?:[/?:]{_URL_TAIL}*(?<![.,;:!?\]]))?"
)
_WEB_AT: Final = anchor("web", ("http", "hxxp", "www."), anywhere=True)
_HOST: Final = re.compile(r"[a-z0-9][a-z0-9.-]*$")
_HANDLE: Final = re.compile(
    r"(?<![A-Za-z0-9_.@])@ ?(?:[A-Za-z0-9_][A-Za-z0-9_.-]{1,30}(?<![.-])|[\u4e00-\u9fff][\w]{1,14})"
)
_USER: Final = re.compile(
    r"(?<![a-z0-9/])/?u/(?P<reddit>[a-z0-9_-]{3,20})"
    r"|(?<![a-z])(?:user ?name|screen ?name|user ?id|handle|nick ?name|gamertag|login)(?: is|:|：|=)\s{0,2}"
    r"(?P<user>[a-z0-9_.-]{3,30})(?<![.-])"
    r"|(?:用户名|昵称|网名|账号名|论坛id|id)(?:是|叫|为|:|：)\s{0,2}(?P<nick>[\w.-]{2,20})"
)
_USER_AT: Final = anchor(
    "user",
    (
        "u/",
        "/u/",
        "username",
        "user name",
        "screenname",
        "screen name",
        "userid",
        "user id",
        "handle",
        "nickname",
        "nick name",
        "gamertag",
        "login",
        "用户名",
        "昵称",
        "网名",
        "账号名",
        "id",
    ),
)
_NOT_A_NICK: Final = re.compile(r"\d{1,3}|\d+[a-z]{1,3}|(?:not|the|my|a|is|or|in)\b.*")

_MESSENGER_AT: Final = anchor("messenger", (
    "微信", "威信", "薇信", "微心", "微x", "薇x", "威x", "v信", "vx", "v+x", "wx",
    "wechat", "weixin", "whatsapp", "qq", "扣扣",
    "企鹅", "telegram",
    "skype", "line id", "kakao", "snap", "instagram", "insta", "ig", "discord", "抖音", "快手", "小红书",
    "微博", "加v", "加我v", "➕v", "+v", "tg",
    "facebook", "fb", "twitter",
), anywhere=True)  # fmt: skip
_MESSENGER: Final = re.compile(
    r"(?:(?:微信|威信|薇信|微心|[微薇威]x|v信|(?<![a-z0-9])(?:v\+?x|wx)(?![a-z])|wechat|weixin|whatsapp|qq|扣扣|企鹅号?"
    r"|telegram|skype"
    r"|(?<![a-z0-9])(?:line\sid|kakao(?:talk)?|snap(?:chat)?|insta(?:gram)?|ig|discord|facebook|fb|twitter"
    r"|tg)(?![a-z])"
    r"|抖音|快手|小红书|微博|(?:加我?|➕|\+)v(?![a-z]))"
    r"(?:(?:的)?(?:群号?|同号|号码|号|账号|名|昵称|搜)|\s?(?:id|number|no\.?|handle|account|user ?name"
    r"|name)(?![a-z]))?"
    r"(?:[\s:：.=是为叫搜(（]{1,4}|(?=\d)|(?<=号)|(?<=[信v])(?=[a-z0-9]))(?:(?:is|me at|on|at|me)[\s:@]{1,2})?)"
    r"(?P<id>@?[a-z](?:[-_.]?[a-z0-9_])*|live:[a-z0-9_.-]{3,30}|\+?\d[\d -]{3,15}\d|\d[a-z0-9_]{4,19}"
    r"|[零〇一二三四五六七八九幺]{5,12})(?:#\d{4})?"
)
_NO_MESSENGER_ID_TEXT: Final = (
    "group groups video call calls messages message msg chat photo photos images image status story post "
    "posts page ads "
    "app support official article account accounts people user users and but for with from that this about "
    "because "
    "number please thanks have has had said says shows showed told friends friend doctor medical online "
    "forum live "
    "they there here where when would could should will also"
)
_NO_MESSENGER_ID: Final = frozenset(_NO_MESSENGER_ID_TEXT.split())

_SEPARATORS: Final = r"[ .()\-·\t\u2022]"
_SEPARATING: Final = " .()-·\t\u2022OoIl"
_RUN: Final = re.compile(
    rf"(?<![\d,/])(?<!\d\.)\(?(?:\+ ?|00)?\(?\d(?:{_SEPARATORS}{{0,2}}\d|-?[OoIl](?=[OoIl]?[-. ]?\d)){{5,22}}"
    r"(?:[- ]?[Xx](?![A-Za-z0-9]))?"
)
_LOOKALIKE: Final = str.maketrans("OoIl", "0011")
_NANP: Final = re.compile(r"(?:\+?1[-. ]{0,2})?\(?[2-9]\d{2}(?:\)[-. ]?|[-. ])\d{3}[-. ]\d{4}|\+?1[2-9]\d{9}")
_CN_MOBILE: Final = (
    r"1[3-9]\d[- .]{0,2}(?:\d{4}[- .]{0,2}\d{4}|\d{3}[- .]\d{5}|\d{2}[- .]\d{3}[- .]\d{3}|\d{3}[- "
    r".]\d{3}[- .]\d{2})"
)
_CN_PHONE: Final = re.compile(
    rf"(?:(?:\+|00)?86[- ]{{0,2}})?(?:{_CN_MOBILE}|[48]00[- ]?\d{{3,4}}[- ]?\d{{3,4}})"
    r"|(?:(?:\+|00)86[- ]?)?\(?0\d{2,3}\)?[- ]{1,2}\d{3,4}[- ]?\d{4}|0(?:10|2\d)\d{8}"
)
_SPACED_MOBILE: Final = re.compile(r"1(?:[-. ]{1,2}\d){10}")
_NATIONAL: Final = re.compile(
    r"0\d{2,4}[- ]\d{3,4}[- ]?\d{3,4}|07\d{3}[- ]?\d{3}[- ]?\d{3}|07\d{9}|04\d{2}[- ]?\d{3}[- ]?\d{3}"
    r"|[6-9]\d{4}[- ]?\d{5}|09\d{2}-?\d{3}-?\d{3}|03\d{2}[- ]\d{7}|\(0\d{2,4}\) ?\d{3,4}[- ]?\d{3,4}"
)
_PHONE_LABEL: Final = re.compile(
    r"(?:phone|tel|telephone|cell|mobile|mob|call|text|fax|contact|ring|whats ?app|number|reach me|hotline"
    r"|ph|sms|dial|msg"
    r"|电话|手机|号码|热线|联系|致电|拨打|座机|传真|短信|联系方式)"
    r"[^\d\n。，！？]{0,16}$"
)
_NOT_A_PHONE_LABEL: Final = re.compile(
    r"(?:\b(?:case|order|record|lot|batch|ref|study|patient|account|policy) number|count)[^\d]{0,12}$"
)
_SHORT_PHONE: Final = re.compile(r"\(?\d{2,4}\)?[-. ]\d{3,4}(?:[-. ]\d{3,4})?|\d{7,12}|\d{3,4}[ -]\d{3,4}")
_SSN: Final = re.compile(r"\d{3}-\d{2}-\d{4}")
_SSN_LOOSE: Final = re.compile(r"\d{3}[- .]?\d{2}[- .]?\d{4}")

_HAN_DIGITS: Final = "零〇○一二三四五六七八九幺壹贰叁肆伍陆柒捌玖"
_HAN_RUN: Final = re.compile(
    rf"[{_HAN_DIGITS}\d][{_HAN_DIGITS}\d][ -]?[{_HAN_DIGITS}\d](?:[ ，,-]?[{_HAN_DIGITS}\d]){{4,22}}[Xx]?"
)
_HAN_DIGITS_3: Final = re.compile(rf"[{_HAN_DIGITS}][ ，,-]?[{_HAN_DIGITS}\d][ ，,-]?[{_HAN_DIGITS}]")
_HAN_VALUES: Final = str.maketrans(_HAN_DIGITS + "，,", "00012345678911" + "23456789" + "  ")
_EN_DIGITS: Final = ("zero", "oh", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_EN_DIGIT_AT: Final = anchor("digit", _EN_DIGITS)
_EN_RUN: Final = re.compile(
    r"(?<![a-z])(?:zero|oh|one|two|three|four|five|six|seven|eight|nine|double|triple|[0-9])"
    r"(?:[ ,.-]{1,2}(?:zero|oh|one|two|three|four|five|six|seven|eight|nine|double|triple"
    r"|[0-9])(?![a-z0-9])){6,18}"
)

_RECORD_ZH: Final = (
    "住院号", "病历号", "病历本号", "门诊号", "病案号", "登记号", "就诊卡号", "诊疗卡号", "就诊号",
    "挂号单号", "影像号", "检查号", "标本号", "条码号",
    "条形码", "条码", "订单号", "单号", "编号", "流水号", "病理号", "CT号", "ct号", "片号", "X光号",
    "申请单号", "样本号", "检验号", "超声号",
    "保单号", "住院号码", "病历号码", "磁卡号", "卡号", "门诊号码", "报告号", "取号", "预约号", "快递号",
    "工号", "学号", "警号", "员工号",
    "运单号", "档案号", "床号牌",
)  # fmt: skip
_ID_ZH: Final = (
    "身份证", "身份证号", "身份证号码", "证件号", "证件号码", "护照", "护照号", "护照号码", "社保号",
    "社保卡号", "社会保障号", "医保号", "医保卡号", "驾照号", "驾驶证号",
    "港澳通行证", "通行证号", "军官证号", "居住证号", "银行卡号", "银行账号", "账号", "身份号码",
    "身份证号是", "出生证号", "出生证编号", "医师证编号",
)  # fmt: skip
_NUMBER_ZH: Final = re.compile(
    r"(?:号码?|证|护照|条码|条形码|编号|卡)[\s:：.#是为=]{0,4}(?P<id>[a-z]{0,6}-?\d[\da-z-]{3,24}(?<!-))"
)
_NUMBER_ZH_AT: Final = anchor("number zh", ("号", "证", "护照", "条码", "条形码", "编号", "卡"))
_RECORD_EN: Final = re.compile(
    r"(?:(?P<label>(?<![a-z])(?:mrn|ssn|npi|mbi|itin|dln?|passport|licen[cs]e|medicare|aadhaar|pan|dea"
    r"|social security|social|uhid|opd|ipd|crn)"
    r"(?:\s?(?:number|num|no\.?|id|#|card))?|(?<![a-z])(?:number|num|nos?|id|card)(?![a-z])|#)"
    r"(?:\s?\([a-z ]{2,8}\))?"
    r"[\s.:：#=-]{0,4}(?:(?:is|was)[\s:]{1,2})?(?P<id>(?:[a-z]{1,5}[- ]?)?\d[\da-z]*(?:-[\da-z]+)*))"
)
_RECORD_AT: Final = anchor("record", (
    "mrn", "ssn", "npi", "mbi", "itin", "dl", "dln", "passport", "license", "licence", "medicare",
    "aadhaar", "pan", "dea", "social",
    "uhid", "opd", "ipd", "crn", "number", "num", "no", "nos", "id", "card", "#",
))  # fmt: skip
_SPACED_ID: Final = re.compile(
    r"\d{3}[ .]\d{2}[ .]\d{4}|\d{4}[ -]\d{4}[ -]\d{4}|\d{3}[ -]\d{3}[ -]\d{4}|[1-9][a-z][a-z0-9]\d[ "
    r"-][a-z][a-z0-9]\d[ -][a-z]{2}\d{2}"
)
_ID_WORDS: Final = re.compile(
    r"(?:ssn|social security|social|npi|mbi|itin|dln?|driver'?s?|driving|passport|licen[cs]e|medicare"
    r"|medicaid|aadhaar|pan|dea|national"
    r"|tax|citizen|health|voter|nhs|green|alien|insurance|health card|identity|state)(?:['s]{0,2})"
)
_RECORD_WORDS: Final = re.compile(
    r"(?:mrn|record|chart|patient|hospital|policy|member(?:ship)?|subscriber|claim|case|order|accession"
    r"|booking|reference|ref|registration|reg"
    r"|account|acct|specimen|report|lab|sample|admission|visit|encounter|group|uhid|opd|ipd|crn|file"
    r"|ticket|appointment|invoice|tracking|"
    r"prescription|rx|confirmation|requisition|barcode|serial|device|implant|medical|plan)"
)
_RECORD_LABEL: Final = re.compile(
    rf"(?:(?P<id>{_ID_WORDS.pattern})|(?P<record>{_RECORD_WORDS.pattern}))(?:\s(?:card|licen[cs]e|record"
    r"|security|file|chart|id|registration|account))?\s?$"
)
_MBI: Final = re.compile(
    r"(?<![a-z0-9])[1-9][ac-hj-km-np-rt-y][ac-hj-km-np-rt-y0-9]\d-?[ac-hj-km-np-rt-y][ac-hj-km-np-rt-y0-9]"
    r"\d-?[ac-hj-km-np-rt-y]{2}\d{2}(?![a-z0-9])"
)
_TRIP: Final = re.compile(
    r"(?:航班|车次|乘坐|乘|坐|高铁|火车|动车|列车)(?:号|的|了|是|[:：\s])?(?P<trip>[a-z]{1,2}\d{2,4})(?![a-z\d])"
    r"|(?<![a-z])flight (?:no\.? |number )?(?P<flight>[a-z]{2}\s?\d{2,4})(?![a-z\d])"
)
_TRIP_AT: Final = anchor("trip", ("航班", "车次", "乘坐", "乘", "坐", "高铁", "火车", "动车", "列车", "flight"))

_MONTH: Final = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DATE_EN: Final = (
    r"(?:\d{1,4}\s?[-/.]\s?\d{1,2}\s?[-/.]\s?\d{1,4}|\d{1,2} \d{1,2} \d{2,4}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?(?: of)?[ /-]?{_MONTH}(?:(?:,| of)?[ /-]{{0,2}}'?\d{{2,4}})?"
    rf"|\d{{4}}[ /-]{_MONTH}[ /-]\d{{1,2}}"
    rf"|{_MONTH}[ /-]?\d{{1,2}}(?:st|nd|rd|th)?(?:,? ?[ /-]'?\d{{2,4}}|(?!\d))|{_MONTH}[ "
    r",/-]{1,2}\d{4}|(?:19|20)\d{6}|\d{1,2}/\d{4}"
    r"|\d{1,2}/\d{1,2}(?![\d/]))"
)
_BIRTH_EN: Final = re.compile(
    r"(?<![a-z])(?:d[.\s]?o[.\s]?b\.?|date of birth|birth ?da(?:te|y)|bday|b-day"
    r"|born)(?![a-z])(?:\s?\([a-z/ ]{2,12}\))?"
    rf"[\s:：=,.-]{{0,4}}(?:(?:is|was|on|in|the|it's|falls on|being)\s+){{0,3}}(?P<date>{_DATE_EN})(?![a-z\d])"
)
_HAN_NUMBER: Final = "[一二三四五六七八九十廿]"
_DATE_ZH: Final = (
    r"(?:\d{2,4}\s?年\s?\d{1,2}\s?月(?:份|\s?初?\d{1,2}\s?[日号]?)?|(?:19"
    r"|20)\d{2}\s?[-/.、]\s?\d{1,2}(?:\s?[-/.、]\s?\d{1,2}(?!\d))?"
    r"|(?:19|20)\d{6}(?!\d)|(?:19|20)\d{4}(?!\d)|\d{1,2}月初?\d{1,2}[日号]?|\d{2}[-/.]\d{1,2}[-/.]\d{1,2}(?!\d)"
    rf"|[{_HAN_DIGITS}]{{2,4}}年(?:农历|阳历|阴历)?(?:{_HAN_NUMBER}{{1,2}}|正|冬"
    rf"|腊)月(?:初?{_HAN_NUMBER}{{1,3}}[日号]?)?"
    rf"|(?:{_HAN_NUMBER}{{1,2}}|正|冬|腊)月初?{_HAN_NUMBER}{{1,3}}[日号]?)"
)
_BIRTH_ZH: Final = re.compile(
    r"(?:出生(?:日期|年月日?|时间|于|在|是|:|：|\s)|出生|(?<!过)生日|生于|生辰)(?:是|为"
    r"|在)?[\s:：]{0,3}(?:(?:阳历|农历|公历|阴历|身份证上)(?:是)?)?"
    rf"(?P<date>{_DATE_ZH})"
    rf"|(?P<before>{_DATE_ZH})[，,]?(?:在[\u4e00-\u9fff]{{2,6}})?(?:早产|剖腹产|剖宫产"
    r"|顺产)?(?:出生(?!体重)|生人|生的|诞生|(?<=[日号月\d])生(?![活病长产理命化意气完孩下]))"
)
_BIRTH_ZH_AT: Final = anchor(
    "birth zh", ("出生", "生日", "生于", "生人", "生的", "日生", "号生", "月生", "生辰", "诞生", "年生", "月生")
)
_BIRTH_AT: Final = anchor(
    "birth", ("dob", "d.o", "d o b", "d. o", "date of birth", "birthda", "birth da", "bday", "b-day", "born")
)
_PROVINCE_CODES_TEXT: Final = (
    "11 12 13 14 15 21 22 23 31 32 33 34 35 36 37 41 42 43 44 45 46 50 51 52 53 54 61 62 63 64 65 71 81 82 83"
)
_PROVINCE_CODES: Final = frozenset(_PROVINCE_CODES_TEXT.split())
_WEIGHTS: Final = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def _chinese_check(digits: str) -> bool:
    """Whether the last character is the check character of GB 11643 (ISO 7064 MOD 11-2)."""
    total = sum(w * int(d) for w, d in zip(_WEIGHTS, digits[:17], strict=True))
    return "10X98765432"[total % 11] == digits[17]


def _day(month: str, day: str) -> bool:
    return 1 <= int(month) <= 12 and 1 <= int(day) <= 31


@lru_cache(maxsize=4096)
def number_kind(written: str, language: str | None) -> IdentifierKind | None:
    """What a long number is, by its check digits and the numbering plans; None for a plain number."""
    written = written.translate(_LOOKALIKE)
    digits = re.sub(r"[^\dXx]", "", written).upper()
    size = len(digits)
    if size == 18 and digits[:17].isdigit():
        born = digits[6:8] in ("19", "20") and _day(digits[10:12], digits[12:14])
        if _chinese_check(digits) or (born and digits[:2] in _PROVINCE_CODES):
            return IdentifierKind.ID_NUMBER
    if "X" in digits:
        return None
    if size == 15 and digits[:2] in _PROVINCE_CODES and _day(digits[8:10], digits[10:12]):
        return IdentifierKind.ID_NUMBER
    if _SSN.fullmatch(written):
        return IdentifierKind.ID_NUMBER
    if _CN_PHONE.fullmatch(written) or _NANP.fullmatch(written) or _SPACED_MOBILE.fullmatch(written):
        return IdentifierKind.PHONE
    if _checked_number(written, digits):
        return IdentifierKind.ID_NUMBER
    if written.startswith("+") or (written.startswith("00") and size > 9):
        return IdentifierKind.PHONE if _international(written) else None
    if _NATIONAL.fullmatch(written):
        return IdentifierKind.PHONE
    if size >= 15 and written.isdigit():
        return IdentifierKind.RECORD_NUMBER
    if 10 <= size <= 11 and written.isdigit() and _in_plan(written, language):
        return IdentifierKind.PHONE
    return None


def _checked_number(written: str, digits: str) -> bool:
    """Whether it is a payment card, an Aadhaar or an NHS number with its check digit right."""
    from stdnum import luhn
    from stdnum.gb import nhs
    from stdnum.in_ import aadhaar

    if 15 <= len(digits) <= 19 and luhn.is_valid(digits):
        return True
    if re.fullmatch(r"\d{4}([ -])\d{4}\1\d{4}", written):
        return bool(aadhaar.is_valid(digits))
    return bool(re.fullmatch(r"\d{3}([ -])\d{3}\1\d{4}", written) and nhs.is_valid(digits))


def _international(written: str) -> bool:
    import phonenumbers

    try:
        number = phonenumbers.parse("+" + re.sub(r"\D", "", written).removeprefix("00"), None)
    except phonenumbers.NumberParseException:
        return False
    return phonenumbers.is_possible_number(number) and len(re.sub(r"\D", "", written)) >= 8


def _in_plan(written: str, language: str | None) -> bool:
    import phonenumbers

    for region in ("CN", "TW", "HK") if language == "zh" else ("US", "IN", "GB", "PK", "AU"):
        try:
            if phonenumbers.is_valid_number(phonenumbers.parse(written, region)):
                return True
        except phonenumbers.NumberParseException:
            continue
    return False


_DIGITS: Final = re.compile(r"[0-9](?:[0-9 .()\-·\t\u2022OoIl]{5,}|[A-Za-z][A-Za-z0-9][0-9]-?[A-Za-z])")
_TOKEN: Final = re.compile("[0-9]+")


def _numbers(view: View, language: str | None) -> Candidates:
    """What the digits are: one pass, and a closer look only where six or more may belong together."""
    text = view.text
    upto = 0
    for start, end in (
        (t.start(), t.end()) for row in _DIGITS.finditer(text) for t in _TOKEN.finditer(text, *row.span())
    ):
        if start < upto:
            continue
        after = text[end : end + 1]
        if after.isalpha() and after.isascii() and (mbi := _MBI.match(view.lower, start)):
            yield IdentifierKind.ID_NUMBER, *mbi.span()
            upto = mbi.end()
            continue
        if end - start < 7 and (not after or after not in _SEPARATING):
            continue
        before = text[max(0, start - 2) : start]
        if before.endswith(("+", "(")):
            start -= 2 if before in ("+(", "(+") else 1
        elif before == "+ ":
            start -= 2
        match = _RUN.match(text, start)
        if match is None:
            continue
        start, upto = match.span()
        if text[upto : upto + 1] in ("%", "/") and upto - start < 12:
            continue
        if _hexadecimal(text, start, upto):
            continue
        written = match.group()
        if written.startswith("(") and ")" not in written:
            start, written = start + 1, written[1:]
        yield from _run_kinds(view, written, start, language)


def _hexadecimal(text: str, start: int, end: int) -> bool:
    """Whether letters stand on both sides, as in a digest: what stands in a word is no number."""
    if start == 0 or end >= len(text):
        return False
    return all(c.isascii() and c.isalpha() for c in (text[start - 1], text[end]))


def _run_kinds(view: View, written: str, start: int, language: str | None) -> Candidates:
    """The identifiers in a run of digits and what separates them."""
    kind = number_kind(written, language)
    if kind is not None:
        yield kind, start, start + len(written)
        return
    before = view.lower[max(0, start - 32) : start]
    if (
        7 <= sum(map(str.isdigit, written)) <= 13
        and _PHONE_LABEL.search(before)
        and not _NOT_A_PHONE_LABEL.search(before)
        and (_SHORT_PHONE.fullmatch(written) or "+" in written)
    ):
        yield IdentifierKind.PHONE, start, start + len(written)
        return
    # A number run together with its neighbour ("13812345678 13900000000", "age 45 555-867-5309").
    parts = list(re.finditer(r"[^\s.·•]+", written))
    at = 0
    while at < len(parts):
        for upto in range(min(len(parts), at + 6), at, -1):
            if upto - at == len(parts):
                continue
            begin, end = parts[at].start(), parts[upto - 1].end()
            if end - begin >= 7 and (part := number_kind(written[begin:end], language)):
                yield part, start + begin, start + end
                at = upto - 1
                break
        at += 1


def _spelled_numbers(view: View, language: str | None) -> Candidates:
    if not view.ascii and _HAN_DIGITS_3.search(view.text):
        for match in _HAN_RUN.finditer(view.text):
            written = match.group()
            if written.isascii():
                continue
            kind = number_kind(re.sub(r"[\s-]", "", written.translate(_HAN_VALUES)), "zh")
            label = _PHONE_LABEL.search(view.lower, max(0, match.start() - 24), match.start())
            if kind or label:
                yield kind or IdentifierKind.PHONE, *match.span()
    if len(view.at(_EN_DIGIT_AT)) > 3:
        for match in _EN_RUN.finditer(view.lower):
            if sum(match.group().count(w) for w in _EN_DIGITS) >= 4:
                yield IdentifierKind.PHONE, *match.span()


def _records(view: View) -> Candidates:
    lower, text = view.lower, view.text
    for match in view.matches(_RECORD_AT, _RECORD_EN):
        found = _record(match, lower)
        if found is not None:
            yield found
    if not view.ascii:
        for match in view.matches(_NUMBER_ZH_AT, _NUMBER_ZH):
            label = text[max(0, match.start() - 8) : match.start("id")].rstrip(" \t\n:：.#是为=")
            if label.endswith(_ID_ZH):
                yield IdentifierKind.ID_NUMBER, *match.span("id")
            elif label.endswith(_RECORD_ZH):
                yield IdentifierKind.RECORD_NUMBER, *match.span("id")
    for match in view.matches(_TRIP_AT, _TRIP):
        yield IdentifierKind.RECORD_NUMBER, *match.span(match.lastgroup or "trip")


def _record(match: re.Match[str], lower: str) -> Candidate | None:
    """The number after a label such as "MRN", "policy number" or "driver's license", typed by the label."""
    start, end = match.span("id")
    if spaced := _SPACED_ID.match(lower, start):
        end = max(end, spaced.end())
    written = lower[start:end]
    if sum(map(str.isdigit, written)) < 3 or len(written) < 4:
        return None
    label = match.group("label")
    window = lower[max(0, match.start() - 40) : match.start()] + label.rstrip(" #.")
    words = _RECORD_LABEL.search(re.sub(r"\s?(?:number|num|nos?\.?|#|id|card)$", "", window))
    if words is None:
        return None
    if (
        label in ("social", "licence", "license", "pan", "medicare", "card", "dl", "opd", "ipd")
        and len(written) < 6
    ):
        return None
    kind = IdentifierKind.ID_NUMBER if words.group("id") else IdentifierKind.RECORD_NUMBER
    if kind is IdentifierKind.ID_NUMBER and words.group("id").startswith("insurance"):
        kind = IdentifierKind.RECORD_NUMBER
    return kind, start, end


def _births(view: View) -> Candidates:
    for match in view.matches(_BIRTH_AT, _BIRTH_EN):
        yield IdentifierKind.DATE_OF_BIRTH, *match.span("date")
    for match in view.around(_BIRTH_ZH_AT, _BIRTH_ZH, 32, 32):
        yield IdentifierKind.DATE_OF_BIRTH, *match.span(match.lastgroup or "date")


def _messengers(view: View) -> Candidates:
    for match in view.matches(_MESSENGER_AT, _MESSENGER):
        written = match.group("id")
        worded = written.isalpha()
        if worded and (len(written) < 5 or written in _NO_MESSENGER_ID):
            continue
        if worded and not re.search(
            r"(?:id|号|:|：|@|is|是|account|name|handle|加我?v|vx|wx)[\s:：是叫为@]*$",
            match.group()[: -len(written)],
        ):
            continue
        if len(written) < 4:
            continue
        yield IdentifierKind.MESSENGER, match.start("id"), match.end()


def net_addresses(view: View) -> Candidates:
    """E-mail addresses, web addresses and handles."""
    text, lower = view.text, view.lower
    if "@" in text:
        for match in _EMAIL.finditer(lower):
            yield IdentifierKind.EMAIL, *match.span()
        for match in _HANDLE.finditer(text):
            yield IdentifierKind.HANDLE, *match.span()
    spelled = "dot" in lower or "underscore" in lower or "点" in lower
    web = "." in text and _TLD.search(lower)
    if (spelled and " at " in lower) or ((spelled or web) and any(map(lower.__contains__, _SPELLED_HINT))):
        for match in _SPELLED_EMAIL.finditer(lower):
            yield IdentifierKind.EMAIL, *match.span()
    for match in view.matches(_WEB_AT, _URL):
        yield IdentifierKind.URL, *match.span()
    for domain in _TLD.finditer(lower) if web else ():
        host = _HOST.search(lower, max(0, domain.start() - 130), domain.start())
        if host and (found := _URL.match(lower, host.start())):
            yield IdentifierKind.URL, *found.span()
    for match in view.matches(_USER_AT, _USER):
        group = match.lastgroup or "user"
        if not _NOT_A_NICK.fullmatch(match.group(group)):
            yield IdentifierKind.HANDLE, *match.span(group)


_LABELS: Final = frozenset((_MESSENGER_AT, _BIRTH_AT, _BIRTH_ZH_AT, _RECORD_AT, _NUMBER_ZH_AT, _TRIP_AT))


def numeric_identifiers(view: View, language: str | None) -> Candidates:
    """Telephones, identity and record numbers, dates of birth, messenger ids; spelled out too."""
    if view.any(_LABELS):
        yield from _messengers(view)
        yield from _births(view)
        yield from _records(view)
    yield from _numbers(view, language)
    yield from _spelled_numbers(view, language)
