"""Rules for structured identifiers: `numeric_identifiers` finds telephone, identity and record numbers, messenger
accounts and dates of birth, `net_addresses` e-mail and web addresses and handles."""

import re
from contextlib import suppress
from functools import lru_cache, partial

from .identifiers import (
    Candidates,
    IdentifierKind,
    View,
    matches,
    one_of,
    word_list,
)

_any = partial(one_of, "english")
_EMAIL = re.compile(
    r"(?<![a-z0-9._%+-])[a-z0-9_%+-][a-z0-9._%+-]{0,63}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,4}(?<![.-])"
)
_DOT = r"\s?(?:\.|[(\[{]\s?(?:dot|\.)\s?[)\]}]|(?<=\s)dot(?=\s)|点|。)\s?"
_SPELLED_EMAIL = re.compile(
    r"(?<![a-z0-9._%+-])[a-z0-9_%+-][a-z0-9._%+-]{0,63}(?:\s?(?:点|下划线)\s?[a-z0-9_-]{1,30}|\s(?:dot|underscore"
    r"|dash)\s[a-z0-9_-]{1,30}){0,3}(?:\s?[(\[{<]\s?(?:at|@)\s?[)\]}>]\s?|\sat\s|\s?艾特\s?|\s?@\s?|#)"
    rf"[a-z0-9-]{{2,63}}(?:{_DOT}(?:com|net|org|edu|cn|co|uk|in|gov|info|io|me|ac|example))+(?![a-z0-9])"
)
_SPELLED = re.compile(r"dot|underscore|点|艾特|[(\[{<] ?at|@")
"""Without one of these, "at example.org" is a place to look and not an address to write to."""
_URL_TAIL = r"[^\s<>\"'，。；！）)】》\u4e00-\u9fff]"
_URL = re.compile(
    rf"(?:https?|hxxps?)://{_URL_TAIL}+(?<![.,;:!?\]])|(?<![a-z0-9])www\.{_URL_TAIL}+(?<![.,;:!?\]])"
    r"|(?<![a-z0-9@._-])[a-z0-9][a-z0-9-]{0,40}(?:\.[a-z0-9-]{2,40}){0,2}\.(?:(?:com|net|org|cn|edu|gov|info|io"
    r"|xyz|top|vip|co\.uk|co\.in|example|test)(?![a-z0-9])|[a-z]{2,4}(?=/[a-z0-9]))"
    rf"(?:[/?:]{_URL_TAIL}*(?<![.,;:!?\]]))?"
)
_HANDLE = re.compile(
    r"(?<![A-Za-z0-9_.@])@ ?(?:[A-Za-z0-9_][A-Za-z0-9_.-]{1,30}(?<![.-])|[\u4e00-\u9fff][\w]{1,14})"
)
# A user's name: u/name, or after a label such as "username:"
_USER = re.compile(
    r"(?<![a-z0-9/])/?u/(?P<reddit>[a-z0-9_-]{3,20})|(?<![a-z])(?:user ?name|screen ?name|user ?id|handle"
    r"|nick ?name|gamertag|login)(?: is|:|：|=)\s{0,2}(?P<user>[a-z0-9_.-]{3,30})(?<![.-])|(?:用户名|昵称|网名"
    r"|账号名|论坛id|(?<![a-z0-9_])id)(?:是|叫|为|:|：)\s{0,2}(?P<nick>[\w.-]{2,20})"
)
_NOT_A_NICK = re.compile(r"\d{1,3}|\d+[a-z]{1,3}|(?:not|the|my|a|is|or|in)\b.*")

# An account after a messenger's name
_MESSENGER = re.compile(
    rf"(?:(?:{_any('messengers')}|(?<![a-z0-9])(?:v\+?x|wx)(?![a-z])"
    r"|(?<![a-z0-9])(?:line\sid|kakao(?:talk)?|snap(?:chat)?|insta(?:gram)?|ig|discord|facebook|fb|twitter"
    r"|tg)(?![a-z])|(?:加我?|➕|\+)(?:v(?![a-z])|[薇微威](?!信)))"
    r"(?:的?(?:群号?|同号|号码?|账号|名|昵称|搜)|\s?(?:id|number|no\.?|handle|account|(?:user ?)?name)(?![a-z]))?"
    r"(?:[\s:：.=是为叫搜(（]{1,4}|(?=\d)|(?<=号)|(?<=[信v薇微威])(?=[a-z0-9]))"
    r"(?:(?:is|me at|on|at|me)[\s:@]{1,2})?)(?P<id>live:[a-z0-9_.-]{3,30}|@?[a-z](?:[-_.]?[a-z0-9_])*"
    r"|\+?\d[\d -]{3,15}\d|\d[a-z0-9_]{4,19}|[零〇一二三四五六七八九幺]{5,12})(?:#\d{4})?"
)

_SEPARATORS = r"[ .()\-·\t\u2022]"
# Digits with separators; O, o, I and l may be written for 0 and 1
_RUN = re.compile(
    rf"(?<![\d,/])(?<!\d\.)\(?(?:\+ ?|00)?\(?\d(?:{_SEPARATORS}{{0,2}}\d|-?[OoIl](?=[OoIl]?[-. ]?\d)){{5,22}}"
    r"(?:[- ]?[Xx](?![A-Za-z0-9]))?"
)
_LETTER = re.compile("[A-Za-z]")
_LOOKALIKE = str.maketrans("OoIl", "0011")
# Numbers of the North American Numbering Plan
_NANP = re.compile(
    r"(?:\+?1[-. ]{0,2})?\(?[2-9]\d{2}(?:\)[-. ]?|[-. ])\d{3}[-. ]\d{4}|\+?1[2-9]\d{9}"
)
_CN_MOBILE = (
    r"1[3-9]\d[- .]{0,2}(?:\d{4}[- .]{0,2}\d{4}|\d{3}[- .]\d{5}|\d{2}[- .]\d{3}[- .]\d{3}|\d{3}[- "
    r".]\d{3}[- .]\d{2})"
)
_CN_PHONE = re.compile(
    rf"(?:(?:\+|00)?86[- ]{{0,2}})?(?:{_CN_MOBILE}|[48]00[- ]?\d{{3,4}}[- ]?\d{{3,4}})"
    r"|(?:(?:\+|00)86[- ]?)?\(?0\d{2,3}\)?[- ]{1,2}\d{3,4}[- ]?\d{4}|0(?:10|2\d)\d{8}"
)
_SPACED_MOBILE = re.compile(r"1(?:[-. ]{1,2}\d){10}")
# Telephone numbers in national forms
_NATIONAL = re.compile(
    r"0\d{2,4}[- ]\d{3,4}[- ]?\d{3,4}|07\d{3}[- ]?\d{3}[- ]?\d{3}|07\d{9}|04\d{2}[- ]?\d{3}[- ]?\d{3}"
    r"|[6-9]\d{4}[- ]?\d{5}|09\d{2}-?\d{3}-?\d{3}|03\d{2}[- ]\d{7}|\(0\d{2,4}\) ?\d{3,4}[- ]?\d{3,4}"
)
_ENGLISH_REGIONS = ("US", "IN", "GB", "PK", "AU")
_PHONE_LABEL = re.compile(rf"{_any('phone labels')}[^\d\n。，！？]{{0,16}}$")
_NOT_A_PHONE_LABEL = re.compile(
    r"(?:\b(?:case|order|record|lot|batch|ref|study|patient|account|policy) number|count)[^\d]{0,12}$"
)
# A telephone number only after a label
_SHORT_PHONE = re.compile(
    r"\(?\d{2,4}\)?[-. ]\d{3,4}(?:[-. ]\d{3,4})?|\d{7,12}|\d{3,4}[ -]\d{3,4}"
)
_SSN = re.compile(r"\d{3}-\d{2}-\d{4}")

_HAN_DIGITS = "零〇○一二三四五六七八九幺壹贰叁肆伍陆柒捌玖"
_HAN_RUN = re.compile(
    rf"[{_HAN_DIGITS}\d][{_HAN_DIGITS}\d][ -]?[{_HAN_DIGITS}\d](?:[ ，,-]?[{_HAN_DIGITS}\d]){{4,22}}[Xx]?"
)
_HAN_DIGITS_3 = re.compile(
    rf"[{_HAN_DIGITS}][ ，,-]?[{_HAN_DIGITS}\d][ ，,-]?[{_HAN_DIGITS}]"
)
_HAN_VALUES = str.maketrans(_HAN_DIGITS + "，,", "00012345678911" + "23456789" + "  ")
_EN_DIGIT = f"(?:{_any('digits')}|[0-9])"
_EN_RUN = re.compile(
    rf"(?<![a-z]){_EN_DIGIT}(?:[ ,.-]{{1,2}}{_EN_DIGIT}(?![a-z0-9])){{6,18}}"
)
_EN_WORD = re.compile("zero|oh|one|two|three|four|five|six|seven|eight|nine")

_IDENTITY_LABELS = tuple(word_list("chinese", "identity labels"))
_RECORD_LABELS = tuple(word_list("chinese", "record labels"))
_NUMBER_ZH = re.compile(
    r"(?:号码?|证|护照|条码|条形码|编号|卡)[\s:：.#是为=]{0,4}(?P<id>[a-z]{0,6}-?\d[\da-z-]{3,24}(?<!-))"
)
_RECORD_EN = re.compile(
    r"(?:(?P<label>(?<![a-z0-9])(?:mrn|ssn|npi|mbi|itin|dln?|passport|licen[cs]e|medicare|aadhaar|pan|dea"
    r"|social security|social|uhid|opd|ipd|crn)(?:\s?(?:number|num|no\.?|id|#|card))?|(?<![a-z0-9])(?:number|num"
    r"|nos?|id|card)(?![a-z])|#)(?:\s?\([a-z ]{2,8}\))?[\s.:：#=-]{0,4}(?:(?:is|was)[\s:]{1,2})?(?P<id>(?:[a-z]{1,"
    r"5}[- ]?)?\d[\da-z]*(?:-[\da-z]+)*))"
)
_SPACED_ID = re.compile(
    r"\d{3}[ .]\d{2}[ .]\d{4}|\d{4}[ -]\d{4}[ -]\d{4}|\d{3}[ -]\d{3}[ -]\d{4}|[1-9][a-z][a-z0-9]\d[ "
    r"-][a-z][a-z0-9]\d[ -][a-z]{2}\d{2}"
)
_RECORD_LABEL = re.compile(
    rf"(?:(?P<id>{_any('identity words')}(?:['s]{{0,2}}))|(?P<record>{_any('record words')}))"
    r"(?:\s(?:card|licen[cs]e|record|security|file|chart|id|registration|account))?\s?$"
)
_NUMBER_WORD = re.compile(r"\s?(?:#|(?<![a-z])(?:number|num|nos?\.?|id|card))$")
_WEAK_LABELS = word_list("english", "weak labels")
# Medicare Beneficiary Identifiers
_MBI = re.compile(
    r"(?<![a-z0-9])[1-9][ac-hj-km-np-rt-y][ac-hj-km-np-rt-y0-9]\d-?[ac-hj-km-np-rt-y][ac-hj-km-np-rt-y0-9]"
    r"\d-?[ac-hj-km-np-rt-y]{2}\d{2}(?![a-z0-9])"
)
_BIRTH_SIGN = re.compile("出生|生日|生于|生辰|生人|生的|诞生|[日号月\\d]生")
# Numbers of trains and flights
_TRIP = re.compile(
    r"(?:航班|车次|乘坐|乘|坐|高铁|火车|动车|列车)(?:号|的|了|是|[:：\s])?(?P<trip>[a-z]{1,2}\d{2,4})(?![a-z\d])"
    r"|(?<![a-z])flight (?:no\.? |number )?(?P<flight>[a-z]{2}\s?\d{2,4})(?![a-z\d])"
)

_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DATE_EN = (
    r"(?:\d{1,4}\s?[-/.]\s?\d{1,2}\s?[-/.]\s?\d{1,4}|\d{1,2} \d{1,2} \d{2,4}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?(?: of)?[ /-]?{_MONTH}(?:(?:,| of)?[ /-]{{0,2}}'?\d{{2,4}})?"
    rf"|\d{{4}}[ /-]{_MONTH}[ /-]\d{{1,2}}|{_MONTH}[ /-]?\d{{1,2}}(?:st|nd|rd|th)?(?:,? ?[ /-]'?\d{{2,4}}|(?!\d))"
    rf"|{_MONTH}[ "
    r",/-]{1,2}\d{4}|(?:19|20)\d{6}|\d{1,2}/\d{4}|\d{1,2}/\d{1,2}(?![\d/]))"
)
_BIRTH_EN = re.compile(
    r"(?<![a-z])(?:d[.\s]?o[.\s]?b\.?|date of birth|birth ?da(?:te|y)|bday|b-day"
    r"|born)(?![a-z])(?:\s?\([a-z/ ]{2,12}\))?"
    rf"[\s:：=,.-]{{0,4}}(?:(?:is|was|on|in|the|it's|falls on|being)\s+){{0,3}}(?P<date>{_DATE_EN})(?![a-z\d])"
)
_HAN_NUMBER = "[一二三四五六七八九十廿]"
_DATE_ZH = (
    r"(?:\d{2,4}\s?年\s?\d{1,2}\s?月(?:份|\s?初?\d{1,2}\s?[日号]?)?|(?:19|20)\d{2}\s?[-/.、]\s?\d{1,2}(?:\s?[-/.、"
    r"]\s?\d{1,2}(?!\d))?|(?:19|20)\d{6}(?!\d)|(?:19|20)\d{4}(?!\d)|\d{1,2}月初?\d{1,2}[日号]?|\d{2}[-/.]\d{1,2}[-"
    r"/.]\d{1,2}(?!\d)"
    rf"|[{_HAN_DIGITS}]{{2,4}}年(?:农历|阳历|阴历)?(?:{_HAN_NUMBER}{{1,2}}|正|冬|腊)月(?:初?{_HAN_NUMBER}{{1,3}}["
    rf"日号]?)?|(?:{_HAN_NUMBER}{{1,2}}|正|冬|腊)月初?{_HAN_NUMBER}{{1,3}}[日号]?)"
)
_BIRTH_ZH = re.compile(
    r"(?:出生(?:日期|年月日?|时间|于|在|是|:|：|\s)|出生|(?<!过)生日|生于|生辰)(?:是|为|在)?[\s:：]{0,3}(?:(?:阳历"
    r"|农历|公历|阴历|身份证上)(?:是)?)?"
    rf"(?P<date>{_DATE_ZH})|(?P<before>{_DATE_ZH})[，,]?(?:在[\u4e00-\u9fff]{{2,6}})?(?:早产|剖腹产|剖宫产"
    r"|顺产)?(?:出生(?!体重)|生人|生的|诞生|(?<=[日号月\d])生(?![活病长产理命化意气完孩下]))"
)
_PROVINCE_CODES = word_list("chinese", "province codes")
# Of the digits in the check character of GB 11643
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def _is_chinese_identity(digits: str) -> bool:
    """Whether digits are an identity number of GB 11643, by its check character, or by its province and birthday."""
    has_province = digits[:2] in _PROVINCE_CODES
    if len(digits) == 15 and digits.isdigit():
        return has_province and _is_day(digits[8:10], digits[10:12])
    if len(digits) != 18 or not digits[:17].isdigit():
        return False
    total = 0
    for weight, digit in zip(_WEIGHTS, digits[:17], strict=True):
        total += weight * int(digit)
    if "10X98765432"[total % 11] == digits[17]:
        return True
    is_day = _is_day(digits[10:12], digits[12:14])
    return has_province and digits[6:8] in ("19", "20") and is_day


def _is_day(month: str, day: str) -> bool:
    return 1 <= int(month) <= 12 and 1 <= int(day) <= 31


@lru_cache(maxsize=4096)
def number_kind(written: str, language: str | None) -> IdentifierKind | None:
    """Classify a long number by its check digits and the numbering plans; None for a plain number."""
    written = written.translate(_LOOKALIKE)
    digits = re.sub(r"[^\dXx]", "", written).upper()
    if _is_chinese_identity(digits):
        return "id number"
    if "X" in digits:
        return None
    if _SSN.fullmatch(written):
        return "id number"
    for pattern in (_CN_PHONE, _NANP, _SPACED_MOBILE):
        if pattern.fullmatch(written):
            return "phone"
    from stdnum import luhn
    from stdnum.gb import nhs
    from stdnum.in_ import aadhaar

    # A payment card, an Aadhaar or an NHS number with its check digit right
    is_checked = 15 <= len(digits) <= 19 and luhn.is_valid(digits)
    if re.fullmatch(r"\d{4}([ -])\d{4}\1\d{4}", written):
        is_checked = aadhaar.is_valid(digits)
    elif re.fullmatch(r"\d{3}([ -])\d{3}\1\d{4}", written):
        is_checked = nhs.is_valid(digits)
    if is_checked:
        return "id number"
    if len(digits) >= 15 and written.isdigit() and not written.startswith("00"):
        return "record number"
    return "phone" if _is_phone(written, digits, language) else None


def _is_phone(written: str, digits: str, language: str | None) -> bool:
    """Whether a number is a telephone's: possible with its country code, or valid in a country of the language."""
    from phonenumbers import is_possible_number, is_valid_number, parse
    from phonenumbers.phonenumberutil import NumberParseException

    if written.startswith("+") or (written.startswith("00") and len(digits) > 9):
        with suppress(NumberParseException):
            number = parse("+" + digits.removeprefix("00"), None)
            return len(digits) >= 8 and is_possible_number(number)
        return False
    if _NATIONAL.fullmatch(written):
        return True
    if not written.isdigit() or not 10 <= len(written) <= 11:
        return False
    for region in ("CN", "TW", "HK") if language == "zh" else _ENGLISH_REGIONS:
        with suppress(NumberParseException):
            if is_valid_number(parse(written, region)):
                return True
    return False


def _run_kinds(
    view: View,
    written: str,
    start: int,
    language: str | None,
) -> Candidates:
    """Find the identifiers in `written`, digits with separators between them that begin at `start`."""
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
        yield "phone", start, start + len(written)
        return
    # A number run together with its neighbour ("13812345678 13900000000", "age 45 555-867-5309").
    parts = [match.span() for match in re.finditer(r"[^\s.·•]+", written)]
    at = 0
    while at < len(parts):
        begin = parts[at][0]
        for upto in range(min(len(parts), at + 6), at, -1):
            end = parts[upto - 1][1]
            if (
                upto - at < len(parts)
                and end - begin >= 7
                and (part := number_kind(written[begin:end], language))
            ):
                yield part, start + begin, start + end
                at = upto - 1
                break
        at += 1


def _spelled_numbers(view: View) -> Candidates:
    """Find numbers in Chinese numerals, and telephone numbers in English words."""
    for match in _HAN_RUN.finditer(view.text):
        written = match.group()
        if _HAN_DIGITS_3.search(written):
            kind = number_kind(
                re.sub(r"[\s-]", "", written.translate(_HAN_VALUES)), "zh"
            )
            label = _PHONE_LABEL.search(
                view.lower,
                max(0, match.start() - 24),
                match.start(),
            )
            if kind or label:
                yield kind or "phone", *match.span()
    for match in _EN_RUN.finditer(view.lower):
        if len(_EN_WORD.findall(match.group())) >= 4:
            yield "phone", *match.span()


def _records(view: View) -> Candidates:
    """Find numbers after labels such as "MRN", "policy number" or "driver's license"."""
    lower, text = view.lower, view.text
    for match in _RECORD_EN.finditer(lower):
        start, end = match.span("id")
        if spaced := _SPACED_ID.match(lower, start):
            end = max(end, spaced.end())
        label = match["label"]
        least = 6 if label in _WEAK_LABELS else 4
        if sum(map(str.isdigit, lower[start:end])) < 3 or end - start < least:
            continue
        before = lower[max(0, match.start() - 40) : match.start()]
        window = _NUMBER_WORD.sub("", before + label.rstrip(" #."))
        if words := _RECORD_LABEL.search(window):
            identity = words["id"] and not words["id"].startswith("insurance")
            yield "id number" if identity else "record number", start, end
    for match in _NUMBER_ZH.finditer(lower):
        begins = max(0, match.start() - 8)
        label = text[begins : match.start("id")].rstrip(" \t\n:：.#是为=")
        if label.endswith(_IDENTITY_LABELS):
            yield "id number", *match.span("id")
        elif label.endswith(_RECORD_LABELS):
            yield "record number", *match.span("id")
    yield from matches("record number", _TRIP, lower)


_NOT_ACCOUNTS = word_list("english", "not messenger accounts")
_ACCOUNT_LABEL = re.compile(
    r"(?:id|号|:|：|@|is|是|account|name|handle|加我?v|vx|wx)[\s:：是叫为@]*$"
)


def _messengers(lower: str) -> Candidates:
    """Find accounts of messengers such as WeChat, after the messenger's name."""
    for match in _MESSENGER.finditer(lower):
        account = match.group("id")
        if account.isalpha():
            before = match.group()[: -len(account)]
            if (
                len(account) < 5
                or account in _NOT_ACCOUNTS
                or not _ACCOUNT_LABEL.search(before)
            ):
                continue
        if len(account) >= 4:
            yield "wechat/qq", match.start("id"), match.end()


_WEB_SIGN = re.compile(r"://|\.[a-z]{2}")


def net_addresses(view: View) -> Candidates:
    """Find e-mail addresses, web addresses and handles."""
    lower = view.lower
    if "@" in lower:
        yield from matches("email", _EMAIL, lower)
        yield from matches("handle", _HANDLE, view.text)
    if _WEB_SIGN.search(lower):
        yield from matches("url", _URL, lower)
    if _SPELLED.search(lower):
        yield from matches("email", _SPELLED_EMAIL, lower)
    for match in _USER.finditer(lower):
        group = match.lastgroup or "user"
        if not _NOT_A_NICK.fullmatch(match[group]):
            yield "handle", *match.span(group)


def numeric_identifiers(view: View, language: str | None) -> Candidates:
    """Find telephone, identity and record numbers, dates of birth and messenger ids, also spelled out."""
    yield from _messengers(view.lower)
    yield from matches("date of birth", _BIRTH_EN, view.lower)
    if _BIRTH_SIGN.search(view.lower):
        yield from matches("date of birth", _BIRTH_ZH, view.lower)
    yield from _records(view)
    yield from matches("id number", _MBI, view.lower)
    text = view.text
    for match in _RUN.finditer(text):
        start, end = match.span()
        percentage = view.char(end) in ("%", "/") and end - start < 12
        # Letters on both sides, as within a digest
        in_word = start and _LETTER.match(text, start - 1) and _LETTER.match(text, end)
        if percentage or in_word:
            continue
        written = match[0]
        if written.startswith("(") and ")" not in written:
            start, written = start + 1, written[1:]
        yield from _run_kinds(view, written, start, language)
    yield from _spelled_numbers(view)
