"""Handles become keyed hashes, and what names a person or a place is found and redacted.

Two uses: raw text before it is displayed, and everything a release holds, where one hit blocks the case.
Rules work on names with a title or an introduction, never on bare capitalised words, so that eponyms and
drugs stay.
"""

import hashlib
import hmac
import re
from bisect import bisect_left
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from medlive.threads.deidentify_zh import chinese_names, chinese_places
from medlive.threads.gazetteer import CITIES_EN, NOT_NAMES_EN


class IdentifierKind(StrEnum):
    """What an identifier is; the value is the word that stands in for it in redacted text."""

    NAME = "name"
    PHONE = "phone"
    EMAIL = "email"
    URL = "url"
    HANDLE = "handle"
    ID_NUMBER = "id number"
    DATE_OF_BIRTH = "date of birth"
    PLACE = "place"
    RECORD_NUMBER = "record number"
    MESSENGER = "wechat/qq"


class Identifier(NamedTuple):
    """A stretch of text that names a person or a place: `text == source[start:end]`."""

    kind: IdentifierKind
    start: int
    end: int
    text: str


_ROLE_WORDS: Final = frozenset(("asker", "patient", "doctor", "physician", "other"))

_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}")
_URL_TAIL: Final = r"[^\s<>\"'，。；！）)\u4e00-\u9fff]"
_URL: Final = re.compile(
    rf"https?://{_URL_TAIL}+(?<![.,;:])|\bwww\.{_URL_TAIL}+(?<![.,;:])"
    r"|(?<![\w@.-])[A-Za-z][A-Za-z0-9-]{1,40}(?:\.[A-Za-z0-9-]{2,40}){0,2}"
    rf"\.(?:com|net|org|cn|edu|gov|info|co\.uk|co\.in)(?![\w])(?:/{_URL_TAIL}*(?<![.,;:]))?"
)
_HANDLE: Final = re.compile(r"(?<![\w.@])@(?:[A-Za-z_][\w.]{2,30}|[\u4e00-\u9fff][\w]{1,14})(?<!\.)")
_MESSENGER: Final = re.compile(
    r"(?:微信|威信|薇信|wechat|weixin|(?<![A-Za-z])[vw]x(?![A-Za-z])|whatsapp|qq|扣扣|telegram|skype|line\sid)"
    r"\s?(?:群|号码|号|账号|id|number|no)?[\s:：.是为]{0,3}"
    r"(?P<id>[A-Za-z][-_A-Za-z0-9.]{4,19}\d[-_A-Za-z0-9]*|\+?\d[\d -]{3,15}\d)",
    re.IGNORECASE,
)
_DIGITS: Final = re.compile(
    r"(?<![\d.,/])(?:\+\s?|00)?\(?\d(?:[\s().-]{0,2}\d){6,18}(?![\d/%])(?:[Xx](?![A-Za-z]))?"
)
_LONG_NUMBER: Final = re.compile(r"\d{3}[\d\s().-]{3,}\d")
_CN_PHONE: Final = re.compile(
    r"(?:(?:\+|00)?86[- ]?)?"
    r"(?:1[3-9]\d[- ]?\d{4}[- ]?\d{4}|0\d{2,3}[- ]\d{7,8}|[48]00[- ]?\d{3}[- ]?\d{4})"
)
_NANP: Final = re.compile(r"(?:\+?1[-. ]?)?\(?[2-9]\d{2}\)?[-. ]{1,2}\d{3}[-. ]\d{4}")
_RECORD_ZH: Final = (
    "住院号 病历号 门诊号 病案号 登记号 就诊卡号 诊疗卡号 影像号 检查号 标本号 条码号 条形码 订单号 单号 "
    "报告编号 病人编号 患者编号 医保卡号 流水号 病理号 ct号"
)
_RECORD: Final = re.compile(
    rf"(?:{'|'.join(_RECORD_ZH.split())}|\bmrn\b|\b(?:medical record|insurance|nhs|patient|hospital"
    r"|case|order|accession|policy|booking|reference|registration) (?:no|number|id)\b)"
    r"[\s.:：#是为=]{0,4}(?:is\s)?(?P<id>[A-Za-z]{0,4}\d[\dA-Za-z-]{3,24})"
    r"|(?:航班|车次|乘坐|乘|坐|高铁|火车|动车|列车)(?:号|的|了|是|[:：\s])?"
    r"(?P<trip>[A-Za-z]{1,2}\d{2,4})(?![A-Za-z\d])"
    r"|\bflight (?:no\.? |number )?(?P<flight>[A-Za-z]{2}\s?\d{2,4})\b",
    re.IGNORECASE,
)
_DATE: Final = (
    r"(?:\d{1,4}[-/.年]\s?\d{1,2}(?:[-/.月]\s?\d{1,4}日?)?|\d{1,2}(?:st|nd|rd|th)?\s[A-Za-z]{3,9},?\s\d{2,4}"
    r"|[A-Za-z]{3,9}\s\d{1,2}(?:st|nd|rd|th)?,?\s\d{2,4})"
)
_BIRTH: Final = re.compile(
    r"(?:\bd\.?o\.?b\b\.?|\bdate of birth\b|\bborn on\b|\bbirth ?day\b|\bbirth ?date\b"
    r"|出生日期|出生年月日?|出生于|生日|生于)"
    rf"[\s:：是为-]{{0,4}}(?:is\s|on\s)?(?P<date>{_DATE})"
    r"|(?P<before>\d{4}年\d{1,2}月\d{1,2}[日号])(?:出生|生人|生的)",
    re.IGNORECASE,
)
_NAME_WORD: Final = r"[A-Z][a-z]+(?:['’-][A-Z]?[a-z]+)?"
_TITLED: Final = re.compile(
    # A capital after a small letter begins a word too: "treated by Dr. SmithDr. Jones".
    r"(?:\b|(?<=[a-z])(?=[A-Z]))(?:Dr|DR|dr|Drs|Doctor|Prof|Professor|Mr|Mrs|Ms)\b\.?[ ]{0,2}"
    rf"(?P<name>(?:[A-Z]\.?[ ]){{0,2}}{_NAME_WORD}(?:[ ](?:[A-Z]\.?[ ])?{_NAME_WORD}){{0,2}})"
)
_TITLED_LOWER: Final = re.compile(r"\b(?:dr|prof|mr|mrs)\.\s?(?P<name>[a-z][a-z'’]{2,})(?=[\s.,!?;:)]|$)")
_MY_NAME: Final = re.compile(
    r"\b[Mm]y (?:full |first |good |real )?name(?: is|'s|’s)\s"
    r"(?P<name>[A-Za-z][A-Za-z'’-]+(?:\s[A-Z][a-z]+){1,2}|[a-z][a-z'’-]+\s[a-z]{3,}|[A-Za-z][A-Za-z'’-]+)"
    r"|\b(?:Name|Patient [Nn]ame|NAME)\s?[:：=-]\s?"
    r"(?P<field>(?:[A-Z][a-z]+|[A-Z]{3,})(?:\s[A-Z][A-Za-z]+){0,2})"
)
_I_AM: Final = re.compile(
    rf"\b(?:I am|I'm|I’m|This is|Myself|myself|i am)\s(?P<name>{_NAME_WORD}(?:\s{_NAME_WORD}){{0,2}})"
    r"(?=,?\s(?:from|aged?|\d|a \d|and I|here|\()|,\s?\d|,? (?:i am|I am|I'm))"
)
_SIGN_OFF: Final = re.compile(
    rf"(?:[Rr]egards|[Ss]incerely|[Tt]hanks|[Tt]hank you|[Yy]ours|[Cc]heers|[Ww]ishes)[,!.:\s-]{{1,6}}"
    rf"(?P<name>(?:[A-Z]\.?\s)?{_NAME_WORD}(?:\s{_NAME_WORD}){{0,2}})\s*[.!]?\s*(?=\n|$)"
)
_GREETING: Final = re.compile(
    r"(?:^|(?<=[\n.!?]\s)|(?<=\n))(?:Hi|Hello|Dear|Hey|HI)\s"
    rf"(?P<name>{_NAME_WORD}(?:\s{_NAME_WORD})?)\s?(?=[,!.:\n])"
)
_RELATIVE: Final = re.compile(
    r"\b(?:[Mm]y|[Hh]is|[Hh]er) (?:wife|husband|son|daughter|brother|sister|mother|father|friend|boyfriend"
    rf"|girlfriend|nephew|niece|cousin|baby|fianc[eé]e?),?"
    rf" (?P<name>{_NAME_WORD})(?=[\s,](?:is|was|has|had|who|and|\d|aged?)\b)"
)
_HOSPITAL: Final = re.compile(
    r"\b(?:(?:St\.? |Saint )?[A-Z][A-Za-z'’]+\s(?:(?:of|and|the|&)\s)?){1,5}"
    r"(?:Hospitals?|Medical (?:Center|Centre|College)|Clinic|Infirmary|Nursing Home)\b"
)
_GENERIC_WORDS: Final = (
    "a an the my our your this that local general university district government public private "
    "emergency community children children's childrens womens women's mental psychiatric eye dental "
    "skin heart cancer walk-in urgent care pain sleep memory in at to from and of for i hospital "
    "hospitals clinic medical center centre college nursing home fertility std sexual health family "
    "state city county teaching military veterans maternity mayo cleveland free nearest near nearby any "
    "another other some which is was he she they go went visit gp"
)
_GENERIC_FACILITY: Final = frozenset(_GENERIC_WORDS.split())
_STATES: Final = (
    "A[LKZR]|C[AOT]|DE|FL|GA|HI|I[DLNA]|K[SY]|LA|M[EDAINSOT]|N[EVHJMYCD]|O[HKR]|PA|RI|S[CD]|T[NX]|UT|V[TA]|W[AVIY]"
)
_PLACE: Final = re.compile(
    rf"\b(?P<city>{CITIES_EN})\b"
    r"(?![- ](?:virus|criteria|classification|score|scale|syndrome|consensus|protocol|coma))"
    rf"|\b(?:in|from|near|at|of)\s(?P<town>[A-Z][a-z]+(?:\s[A-Z][a-z]+)?),\s?(?:{_STATES})\b"
    r"|\b(?P<street>\d{1,5}\s(?:[A-Z][a-z]+\s){1,3}(?:Street|St|Road|Rd|Avenue|Ave|Lane|Drive|Boulevard|Blvd))\b"
)
_PHONE_REGIONS: Final = {"zh": ("CN", "TW", "HK"), "en": ("US", "IN", "GB", "PK", "AU")}
_ROUNDS: Final = 64


def keyed_handle(handle: str, key: bytes) -> str:
    """A community handle as `u_` and 16 hexadecimal digits of HMAC-SHA256; a role word stays as it is.

    The same handle and key give the same name; without the key nobody can test a guess. ValueError
    without one.
    """
    if not key:
        raise ValueError("keyed_handle needs a key of at least one byte")
    if handle in _ROLE_WORDS or re.fullmatch(r"u_[0-9a-f]{16}", handle):
        return handle
    return "u_" + hmac.new(key, handle.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]


def _is_name(words: str) -> bool:
    return all(w.strip(".").lower().replace("’", "'") not in NOT_NAMES_EN for w in words.split())


def _leading_name(words: str) -> str:
    """The words up to the first that is none of a name: "Smith Please" → "Smith"."""
    kept: list[str] = []
    for match in re.finditer(r"\S+\s?", words):
        if not _is_name(match.group()):
            break
        kept.append(match.group())
    return "".join(kept).rstrip()


def _english_names(text: str) -> Iterator[tuple[IdentifierKind, int, int]]:
    for pattern in (_TITLED, _MY_NAME, _I_AM, _SIGN_OFF, _GREETING, _RELATIVE, _TITLED_LOWER):
        for match in pattern.finditer(text):
            group = "name" if match.groupdict().get("name") else "field"
            name = _leading_name(match.group(group))
            if name:
                yield IdentifierKind.NAME, match.start(group), match.start(group) + len(name)


def _english_places(text: str) -> Iterator[tuple[IdentifierKind, int, int]]:
    for match in _HOSPITAL.finditer(text):
        words = match.group().split()
        start = match.start()
        while words and words[0].lower() in _GENERIC_FACILITY:
            start += len(words[0]) + 1
            words = words[1:]
        if any(w.lower() not in _GENERIC_FACILITY for w in words):
            yield IdentifierKind.PLACE, start, match.end()
    for match in _PLACE.finditer(text):
        group = match.lastgroup or "city"
        yield IdentifierKind.PLACE, match.start(group), match.end(group)


@lru_cache(maxsize=4096)
def _number_kind(written: str, language: str | None) -> IdentifierKind | None:
    """What a long number is, by its check digits and the numbering plans; None for a plain number."""
    import phonenumbers
    from stdnum import luhn
    from stdnum.cn import ric
    from stdnum.gb import nhs
    from stdnum.in_ import aadhaar
    from stdnum.us import ssn

    digits = re.sub(r"[^\dXx]", "", written)
    if len(digits) == 18 and ric.is_valid(digits):
        return IdentifierKind.ID_NUMBER
    if re.fullmatch(r"\d{3}-\d{2}-\d{4}", written) and ssn.is_valid(written):
        return IdentifierKind.ID_NUMBER
    if re.fullmatch(r"\d{4}[ -]\d{4}[ -]\d{4}", written) and aadhaar.is_valid(written):
        return IdentifierKind.ID_NUMBER
    if 15 <= len(digits) <= 19 and digits.isdigit() and luhn.is_valid(digits):
        return IdentifierKind.ID_NUMBER
    if _CN_PHONE.fullmatch(written) or _NANP.fullmatch(written):
        return IdentifierKind.PHONE
    if re.fullmatch(r"\d{3}[ -]\d{3}[ -]\d{4}", written) and nhs.is_valid(written):
        return IdentifierKind.ID_NUMBER
    international = written.startswith(("+", "00"))
    # Without a + only an unbroken run or a usual grouping is a telephone number: lab values come in rows too.
    if not international and not re.fullmatch(r"\d{10,11}|\d{3,5}[- ]\d{3,6}(?:[- ]\d{3,5})?", written):
        return None
    if not international and not 10 <= len(digits) <= 12:
        return None
    for region in _PHONE_REGIONS.get(language or "en", _PHONE_REGIONS["en"]):
        try:
            number = phonenumbers.parse(("+" + digits) if international and written[0] == "+" else written, region)
        except phonenumbers.NumberParseException:
            continue
        if phonenumbers.is_valid_number(number):
            return IdentifierKind.PHONE
    return None


def _numbers(text: str, language: str | None) -> Iterator[tuple[IdentifierKind, int, int]]:
    for match in _DIGITS.finditer(text):
        written = match.group().strip()
        kind = _number_kind(written, language)
        if kind is None and len(re.sub(r"\D", "", written)) > 11:
            # A number run together with its neighbour ("13812345678 13900000000").
            for part in re.finditer(r"[\d-]{7,}", written):
                if part_kind := _number_kind(part.group(), language):
                    yield part_kind, match.start() + part.start(), match.start() + part.end()
        elif kind is not None:
            start = match.start() + (len(match.group()) - len(match.group().lstrip()))
            yield kind, start, start + len(written)


def _candidates(text: str, language: str | None) -> Iterator[tuple[IdentifierKind, int, int]]:
    lower = text.lower()
    if "@" in text:
        for match in _EMAIL.finditer(text):
            yield IdentifierKind.EMAIL, *match.span()
        for match in _HANDLE.finditer(text):
            yield IdentifierKind.HANDLE, *match.span()
    if "http" in lower or "www" in lower or "." in text:
        for match in _URL.finditer(text):
            yield IdentifierKind.URL, *match.span()
    if any(map(str.isdigit, text)):
        for match in _RECORD.finditer(text):
            group = match.lastgroup or "id"
            yield IdentifierKind.RECORD_NUMBER, match.start(group), match.end(group)
        for match in _BIRTH.finditer(text):
            group = match.lastgroup or "date"
            yield IdentifierKind.DATE_OF_BIRTH, match.start(group), match.end(group)
        for match in _MESSENGER.finditer(text):
            yield IdentifierKind.MESSENGER, match.start("id"), match.end("id")
        if _LONG_NUMBER.search(text):
            yield from _numbers(text, language)
    if text.isascii() or re.search(r"[A-Za-z]{3}", text):
        yield from _english_names(text)
        yield from _english_places(text)
    if not text.isascii():
        for start, end in chinese_names(text):
            yield IdentifierKind.NAME, start, end
        for start, end in chinese_places(text):
            yield IdentifierKind.PLACE, start, end


def find_identifiers(text: str, language: str | None) -> list[Identifier]:
    """The identifiers of a text in order, none overlapping another; of two that overlap the longer stands.

    `language` ("en", "zh" or None) chooses whose telephone plans a number without a country code is tried in.
    Needs the extra `service` only where a text holds long numbers.
    """
    found = sorted(_candidates(text, language), key=lambda c: (c[1] - c[2], c[1]))
    taken: list[Identifier] = []  # in order of place
    starts: list[int] = []
    for kind, start, end in found:
        at = bisect_left(starts, end)
        if end > start and (at == 0 or taken[at - 1].end <= start):
            taken.insert(at, Identifier(kind, start, end, text[start:end]))
            starts.insert(at, start)
    return taken


def redact(text: str, language: str | None) -> str:
    """The text with each identifier replaced by its kind in brackets: [name], [phone], [place], …

    What only shows once its neighbour is gone ("Dr. SmithDr. Jones") is replaced too.
    """
    for _ in range(_ROUNDS):
        found = find_identifiers(text, language)
        if not found:
            break
        parts: list[str] = []
        at = 0
        for identifier in found:
            parts += [text[at : identifier.start], f"[{identifier.kind.value}]"]
            at = identifier.end
        text = "".join([*parts, text[at:]])
    return text
