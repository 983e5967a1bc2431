"""English names, places and addresses: found by what introduces them, or by a given name with a surname.

No bare capitalised word is taken, so that eponyms, drugs and genes stay.
"""

import re
from typing import Final

from medlive.deidentify.anchors import anchor
from medlive.deidentify.gazetteer import (
    CITIES_EN,
    GIVEN_EN,
    GIVEN_WORDS_EN,
    NOT_AFTER_TITLE_EN,
    NOT_NAMES_EN,
    SURNAME_WORDS_EN,
    SURNAMES_EN,
)
from medlive.deidentify.identifiers import Candidates, IdentifierKind, View

_KNOWN: Final = GIVEN_EN | SURNAMES_EN
_SMALL_NAMES: Final = (GIVEN_EN | SURNAMES_EN) - SURNAME_WORDS_EN
_CAP: Final = "[A-ZÀ-ÖØ-Þ]"
_LOW: Final = "[a-zß-öø-ÿāăąćčďđēėęěğīıłńňőřśşšţťūůűźżž]"
_WORD: Final = re.compile(
    rf"(?:(?:O'|Mc|Mac|De|Van|Von|Al-|El-)?{_CAP}{_LOW}+(?:['-]{_CAP}?{_LOW}+)*|[A-Z]{{2,}}(?![A-Za-z])"
    r"|[A-Z](?:\.|(?=\s))(?![A-Za-z]))"
)
_SMALL_WORD: Final = re.compile(rf"{_LOW}+(?:['-]{_LOW}+)?")
_GAP: Final = re.compile(r"[ \t]{1,2}")
_POSSESSIVE: Final = re.compile(r"'s?$")
_AFTER_NAME_TEXT: Final = (
    "disease syndrome sign test score criteria scale virus lymphoma palsy phenomenon thyroiditis tumor "
    "tumour hernia fracture "
    "contracture method procedure maneuver manoeuvre cell cells line classification index ring node nodes "
    "reflex bottle bottles insole insoles brace sandal sandals clinic stress pepper"
)
_AFTER_NAME: Final = frozenset(_AFTER_NAME_TEXT.split())

_TITLE: Final = re.compile(
    r"(?:(?<![a-z])|(?<=[a-z])(?=D))(?:dr|drs|doctor|prof|professor|mr|mrs|ms|miss|nurse|np|sister|pastor"
    r"|rev|sir|madam|md|pa)(?![a-z'])"
    r"(?:\.?[ \t]{0,2}|\. ?)(?:\((?:mrs?|ms|miss)\.?\) ?)?"
)
_TITLE_AT: Final = anchor("title", (
    "dr", "drs", "doctor", "prof", "professor", "mr", "mrs", "ms", "miss", "nurse", "np", "sister",
    "pastor", "rev", "sir", "madam", "md", "pa",
))  # fmt: skip
_GLUED_AT: Final = anchor("glued title", ("dr",), anywhere=True)
_GLUED_TITLE: Final = re.compile(r"(?<=[a-z])(?:Dr|DR)\b\.?[ ]{0,2}")
_SURE_TITLES: Final = ("dr", "drs", "prof", "professor", "mr", "mrs", "miss", "doctor")
_MY_NAME_AT: Final = anchor("my name", ["name", *(
    word + mark
    for word in ("patient", "pt", "signed", "author", "sender", "contact", "attn", "attention", "spouse",
    "mother", "father", "guardian", "requested by", "reported by",
                 "ref by", "referred by", "referring physician", "referring doctor", "ref doctor",
                 "physician", "doctor", "consultant", "surgeon", "username")
    for mark in (":", " :")
)], anywhere=True)  # fmt: skip
_MY_NAME: Final = re.compile(
    r"(?:names?(?: of [a-z ]{3,20}?)?(?:(?:'s| is|s| was| are)(?: also)?[\s:]{1,3}"
    r"|\s?(?:[:：=]|-\s)\s?)(?:mr |mrs |ms |dr )?"
    r"|(?:patient|pt|signed|author|sender|contact|attn|attention|spouse|mother|father|guardian|requested "
    r"by|reported by|ref(?:erring)? (?:by|doctor|physician)"
    r"|referred by|physician|doctor|consultant|surgeon|username)\s?[:：]\s?)"
)
_I_AM: Final = re.compile(
    r"(?<![a-z'])(?:i am|i'm|im|this is|it's|myself|call me|named|called|i go by|known as|it is|we are"
    r"|wife of|husband of|mother of|father of|son of|daughter of|contact|spoke (?:to|with)"
    r"|ask for|see|saw|with|by|under|operated by|treated by|from)\s"
)
_I_AM_AT: Final = anchor("i am", (
    "i am", "i'm", "im", "this is", "it's", "myself", "call me", "named", "called", "i go by", "known as",
    "it is", "we are", "wife of", "husband of",
    "mother of", "father of", "son of", "daughter of", "spoke to", "spoke with", "ask for",
))  # fmt: skip
_INTRODUCING: Final = frozenset(
    ("i am", "i'm", "im", "this is", "it's", "myself", "call me", "i go by", "it is", "we are")
)
_NAMING: Final = frozenset(("named", "called", "call me", "i go by", "myself"))
_AFTER_I_AM: Final = re.compile(
    r",?\s(?:from|aged?|\d|a \d|and i|here|\(|mother|father|wife|husband|son of|daughter of|writing|living"
    r"|working|an? [a-z-]+ (?:by|from))"
    r"|,\s?\d|,? (?:i am|i'm|im)|,? my (?:age|son|daughter|wife|husband)|\s?\(?\d|[.,!]?\s?(?:male|female|m/|f/)",
)
_WHOSE: Final = re.compile(r"(?<![a-z])(?P<who>[a-zé]+)(?:'s name is|,? (?:named?|called)(?: is)?)?[,:]?\s")
_BEFORE_RELATIVE: Final = re.compile(r"(?<![a-z])(?:my|our|his|her|their|your)\s(?:[a-z-]{3,12} )?$")
_RELATIVES_TEXT: Final = (
    "wife husband son daughter brother sister mother father mom mum dad mama papa grandmother grandfather "
    "grandma grandpa granny nana friend "
    "boyfriend girlfriend partner nephew niece cousin aunt auntie uncle baby toddler fiance  fiancee "
    "fiancée twin twins kid child boy girl "
    "stepson stepdaughter stepfather stepmother roommate neighbor neighbour colleague coworker boss bf gf "
    "hubby sis bro grandson granddaughter "
    "surgeon oncologist cardiologist neurologist gp pcp therapist psychiatrist psychologist gynecologist "
    "gynaecologist obgyn pediatrician paediatrician midwife "
    "physio physiotherapist dentist counselor counsellor nurse dermatologist urologist endocrinologist "
    "rheumatologist consultant caseworker "
    "teacher coach landlord manager carer caregiver dietitian nutritionist chiropractor anesthesiologist "
    "orthopedist ortho pulmonologist"
)
_RELATIVES: Final = frozenset(_RELATIVES_TEXT.split())
_RELATIVE_AT: Final = anchor("relative", _RELATIVES)
_SIGN_OFF_AT: Final = anchor("sign off", (
    "regards", "sincerely", "thanks", "thank you", "thankyou", "thanx", "thx", "yours", "cheers", "wishes",
    "best", "love", "xx", "xo", "respectfully",
    "warmly", "truly", "faithfully", "gratefully", "signed", "ty", "tia", "hugs", "blessings",
    "in advance", "so much", "again", "very much", "a lot",
    "help", "reply", "anyone", "appreciated", "your time",
))  # fmt: skip
_SIGN_OFF: Final = re.compile(
    r"(?<![a-z])(?:regards|sincerely|thanks|thank you|thankyou|thanx|thx|yours|cheers|wishes|best|love|xx+"
    r"|xo+|respectfully|warmly|truly|faithfully|gratefully|signed|ty|tia|hugs|blessings"
    r"|in advance|so much|again|very much|a lot|help|reply|anyone|appreciated|sincerely yours|your time)"
    r"[ ]?[,!.:;~ )(\r\n-]{1,6}[\s—–~-]{0,6}(?=[a-z])"
)
_DASHED_AT: Final = anchor("dashed", ("\n-", "\n -", " -", "–", "—", "~"))
_DASHED: Final = re.compile(r"(?:\n|[.!?]\s{1,3})\s*[-–—~]{1,2}\s?(?=[a-z])")
_TITLED: Final = re.compile(r"(?:dr|prof|mr|mrs|ms|miss)\.? ?")
_END: Final = re.compile(
    r"[ \t]*(?:\([^)\n]{1,20}\))?[ \t]*[.!,)]{0,2}(?:\s?[xX]{1,3})?\s*(?:\n|$"
    r"|[\U0001f300-\U0001faff\u2600-\u27bf❤]|(?=\[))"
)
_SMALL_SIGNERS: Final = ("regards", "sincerely", "signed", "love", "wishes", "yours", "cheers")
_GREETING_AT: Final = anchor("greeting", (
    "hi", "hello", "dear", "hey", "hiya", "thanks", "thank you", "good morning", "good evening",
    "good afternoon", "good day", "greetings", "bless you", "cheers", "@",
))  # fmt: skip
_GREETING: Final = re.compile(
    r"(?<![a-z])(?:hi|hello|dear|hey|hiya|thanks|thank you|good (?:morning|evening|afternoon|day)"
    r"|greetings|bless you|cheers|@)[ ,]{1,2}(?:again |there )?(?=[a-z])"
)
_AFTER_GREETING: Final = re.compile(r"\s?(?:[,!.:;\n]|$| and | for | i | - )")
_HERE: Final = re.compile(r"(?:^|[\n.!,] ?|\b(?:hi|hello|hey),? )(?P<who>[a-z]+) here\b")

_FACILITY: Final = re.compile(
    r"(?<![a-z])(?:hospitals?|medical (?:center|centre|college)|clinics?|infirmary|nursing home|health "
    r"system|healthcare|surgery center|family practice|medical group|hospice|urgent care|health center"
    r"|health centre)(?![a-z])"
)
_FACILITY_AT: Final = anchor("facility", (
    "hospital", "medical center", "medical centre", "medical college", "medical group", "clinic",
    "infirmary", "nursing home", "health system", "healthcare",
    "surgery center", "family practice", "hospice", "urgent care", "health center", "health centre",
))  # fmt: skip
_BEFORE_FACILITY: Final = re.compile(r"(?:(?:St\.? |Saint )?(?:[A-Z][A-Za-z'.]*|of|and|the|&|for)[ ]){1,6}$")
_GENERIC_WORDS: Final = (
    "a an the my our your this that local general university district government govt public private "
    "emergency community children children's childrens womens women's mental psychiatric eye dental "
    "skin heart cancer walk-in urgent care pain sleep memory in at to from and of for i hospital "
    "hospitals clinic clinics medical center centre college nursing home fertility std sexual health family "
    "state city county teaching military veterans va maternity mayo cleveland free nearest near nearby any "
    "another other some which is was he she they go went visit gp johns hopkins regional memorial national royal "
    "healthcare system practice group surgery hospice e rehab rehabilitation diabetes foot wound vein "
    "allergy asthma anticoagulation inr after before when their your her his dr doctor hospitalist er ed "
    "ent obgyn fever covid post "
    "long warfarin coumadin methadone suboxone travel breast hernia headache migraine spine ortho "
    "orthopedic orthopaedic fracture outpatient "
    "inpatient primary mobile virtual online lifestyle weight loss hair ivf planned parenthood adult "
    "pediatric paediatric world "
    "minute cvs walgreens high tertiary trauma level i'm we you but so then thyroid stroke cardiac renal "
    "kidney liver hiv tb vascular specialist"
)
_GENERIC_FACILITY: Final = frozenset(_GENERIC_WORDS.split())
_SOURCE_BEFORE: Final = re.compile(
    r"(?:according to|says?|website|article|study|guidelines?|reviewed?|published|protocol|diet)[ "
    r",]*(?:the |from |by |at |of )*$"
)
_STATES: Final = (
    "A[LKZR]|C[AOT]|DE|FL|GA|HI|I[DLNA]|K[SY]|LA|M[EDAINSOT]|N[EVHJMYCD]|O[HKR]|PA|RI|S[CD]|T[NX]|UT|V[TA]|W[AVIY]"
)
_STATE_NAMES: Final = (
    "Alabama|Alaska|Arizona|Arkansas|California|Colorado|Connecticut|Delaware|Florida|Georgia|Hawaii|Idaho"
    "|Illinois|Indiana|Iowa|Kansas"
    "|Kentucky|Louisiana|Maine|Maryland|Massachusetts|Michigan|Minnesota|Mississippi|Missouri|Montana"
    "|Nebraska|Nevada|New Hampshire"
    "|New Jersey|New Mexico|North Carolina|North Dakota|Ohio|Oklahoma|Oregon|Pennsylvania|Rhode Island"
    "|South Carolina|South Dakota"
    "|Tennessee|Texas|Utah|Vermont|Virginia|Washington|West Virginia|Wisconsin|Wyoming"
)
_STATE_AFTER: Final = re.compile(
    rf",\s?(?:(?:{_STATES})(?![A-Za-z])|(?:{_STATE_NAMES})(?![a-z]))(?:\s\d{{5}}(?:-\d{{4}})?(?!\d))?"
)
_TOWN_BEFORE: Final = re.compile(r"(?<![A-Za-z])[A-Z][a-z]+(?: [A-Z][a-z]+){0,2}$")
_BEFORE_CITY: Final = re.compile(r"(?<![a-z])(?:in|from|near|at|to)\s$")
_CITY_WORDS: Final[dict[str, list[str]]] = {}
for _city in CITIES_EN.replace("\\", "").split("|"):
    _CITY_WORDS.setdefault(_city.split()[0].rstrip("."), []).append(_city)
_CAPITAL: Final = re.compile(r"[A-Z](?<![A-Za-z][A-Z])[a-z]+")
_NOT_CITY_AFTER: Final = re.compile(
    r"[- ](?:virus|criteria|classification|score|scale|syndrome|consensus|protocol|coma|agreement|brace"
    r"|cohort|rules?|heart|study|marathon|university|outcome|depression|prognostic|index|equation|blues"
    r"|clinic)"
)
_SMALL_CITIES: Final = frozenset(c.replace("\\", "").lower() for c in CITIES_EN.split("|")) - {
    "surat",
    "perth",
    "phoenix",
    "orlando",
    "columbus",
    "charlotte",
    "austin",
    "leeds",
    "agra",
    "accra",
    "nice",
    "alexandria",
}

_SMALL_CITY_AT: Final = anchor("small city", _SMALL_CITIES)
_SMALL_CITY: Final = re.compile(rf"(?:{'|'.join(sorted(_SMALL_CITIES, key=len, reverse=True))})(?![a-z])")

_SUFFIX: Final = (
    "street|st|road|rd|avenue|ave|av|lane|ln|drive|dr|boulevard|blvd|court|ct|way|place|pl|terrace|ter"
    "|circle|cir|highway|hwy|parkway|pkwy"
    "|square|sq|trail|trl|crescent|cres|close|gardens|grove|row|loop|nagar|colony|marg|layout|sector|alley"
    "|turnpike|pike|route|path|mews|heights"
)
_SURE_SUFFIX_TEXT: Final = (
    "street road rd avenue ave lane ln boulevard blvd highway hwy parkway pkwy crescent nagar colony marg terrace"
)
_SURE_SUFFIX: Final = frozenset(_SURE_SUFFIX_TEXT.split())
_STREET: Final = re.compile(
    r"(?<![\d.,/a-z-])(?P<no>\d{1,5}[a-d]?(?:[/-]\d{1,4})?),? (?P<name>(?:(?:n|s|e|w|ne|nw|se|sw|north"
    r"|south|east|west)\.? )?(?:(?:[a-z]+(?:'s)?|\d{1,3}(?:st|nd|rd|th)|st\.)[ ]){1,3}?)"
    rf"(?P<suffix>{_SUFFIX})(?![a-z])\.?(?: (?:n|s|e|w|ne|nw|se|sw|north|south|east|west)(?![a-z]))?(?: "
    r"?#? ?\d{1,3}(?= ?,))?"
)
_DIGIT: Final = re.compile("[0-9]")
_SUFFIX_AT: Final = anchor("street", _SUFFIX.split("|"))
_NOT_STREET_TEXT: Final = (
    "mg ml mcg g kg lb lbs cm mm days day weeks week months month years year yr yrs hours hour hrs minutes "
    "minute times time x per a the of in "
    "my to and or is was percent units unit tablets tablet pills pill stage grade type phase doses dose iu "
    "beats bpm am pm old people patients "
    "other different more times on at for with every each inches inch feet miles steps ct mri scans scan "
    "cases children kids stents grams drops puffs "
    "it that this we i they be but no not so points grams meals cups glasses out from ago"
)
_NOT_STREET: Final = frozenset(_NOT_STREET_TEXT.split())
_UNIT: Final = re.compile(
    r"(?<![a-z])(?:apt|apartment|unit|suite|ste|flat|room|rm|floor|house|plot|door|h\.?|building|bldg|lot"
    r"|block|p\.?\s?o\.? ?box|box)\.? ?(?:no\.? ?|number |#)? "
    r"?(?P<id>[a-z]?-?\d{1,5}[a-z]?(?:[/-]\d{1,4})?|[a-h]\d{0,3})(?![a-z0-9.%])"
)
_UNIT_AT: Final = anchor("unit", (
    "apt", "apartment", "unit", "suite", "ste", "flat", "room", "rm", "floor", "house", "plot", "door",
    "h.", "h no", "building", "bldg", "lot", "block",
    "po box", "p.o", "p o ", "box",
))  # fmt: skip
_POSTCODE_END: Final = re.compile(r" [0-9](?:[0-9]{4}|[A-Z]{2}|[A-Z][0-9])")
_POSTCODE_AT: Final = anchor("postcode", ("zip", "postal", "post code", "postcode", "pin"))
_SURE_UNIT: Final = re.compile(
    r"(?:apt|apartment|p\.?\s?o\.? ?box|flat (?:no)?|suite|house no|h\.? ?no|plot no|door no|plot)"
)
_POSTCODE: Final = re.compile(
    rf"(?:(?<![A-Za-z])(?:{_STATES}|{_STATE_NAMES}),?\s\d{{5}}(?:-\d{{4}})?(?![\d-]))"
    r"|(?<![A-Za-z0-9])(?:[A-PR-UWYZ][A-HK-Y]?\d[A-HJKMNPRV-Y\d]? \d[ABD-HJLNP-UW-Z]{2}"
    r"|[ABCEGHJ-NPRSTVXY]\d[ABCEGHJ-NPRSTV-Z] \d[ABCEGHJ-NPRSTV-Z]\d)(?![A-Za-z0-9])"
)
_POSTCODE_LABEL: Final = re.compile(
    r"(?<![a-z])(?:zip ?code|zip|postal ?code|post ?code|pin ?code|pincode|pin)(?: is| "
    r"no\.?)?[\s:-]{1,3}(?P<code>\d{5}(?:-\d{4})?|\d{3} ?\d{3}|[a-z]{1,2}\d[a-z\d]? "
    r"?\d[a-z]{2})(?![a-z0-9])"
)


def _read_name(view: View, at: int, *, small: bool = False, known: bool = False, shouted: bool = False) -> int:
    """Where the name that begins at `at` ends, or `at` where none does.

    Without `small` each word has a capital letter; with it the first may be written small, any word where `small`,
    a listed name where `known`. A word all in capitals is a listed name too, unless `shouted`.
    """
    text, lower = view.text, view.lower
    end, begin, count, whole = at, at, 0, 0
    while count < 4:
        match = _WORD.match(text, begin)
        if match is not None:
            word = _POSSESSIVE.sub("", lower[match.start() : match.end()].rstrip("."))
            if _stops(word) or (len(word) == 1 and count == 0 and not _WORD.match(text, match.end() + 1)):
                break
            if (
                match.end() - match.start() > 1
                and text[match.end() - 1].isupper()
                and not shouted
                and word not in _KNOWN
            ):
                break
            if known and not whole and len(word) > 1 and word not in _KNOWN and word not in GIVEN_WORDS_EN:
                break
        else:
            match = _SMALL_WORD.match(lower, begin)
            if match is None or not (small or known) or text[begin : begin + 1].isupper():
                break
            word = match.group()
            plain = _POSSESSIVE.sub("", word)
            first = count == 0
            if plain not in (GIVEN_EN if first else _SMALL_NAMES) and not (small and first and len(word) > 1):
                break
            if _stops(plain) or plain in NOT_AFTER_TITLE_EN:
                break
        stop = match.end()
        whole += len(word) > 1
        spelled = text[match.start() : stop]
        if cut := _POSSESSIVE.search(spelled):
            if not lower.startswith(tuple(_AFTER_NAME), stop + 1):
                end = match.start() + cut.start()
            break
        end = stop
        count += 1
        gap = _GAP.match(text, stop)
        if gap is None:
            break
        begin = gap.end()
    return end if whole else at


def _stops(word: str) -> bool:
    return word in NOT_NAMES_EN or word in _RELATIVES


def _names_after(view: View) -> Candidates:
    lower, text = view.lower, view.text
    for match in view.matches(_TITLE_AT, _TITLE):
        title = match.group().strip(" .\t(").split(".")[0].split()[0]
        at = match.end()
        if not text[at : at + 1].isalpha() or match.end() == match.start() + len(title):
            continue
        if title not in _SURE_TITLES and not text[match.start()].isupper():
            continue
        if (
            title == "dr"
            and text[at].islower()
            and _STREET_END.search(lower, max(0, match.start() - 24), match.start())
        ):
            continue
        if title == "doctor" and (text[at].islower() or "." in match.group()):
            continue
        if title in ("np", "md", "pa", "sister", "nurse", "sir", "madam", "ms") and text[at].islower():
            continue
        dotted = "." in match.group() or title == "dr"
        end = _read_name(view, at, small=dotted and title in ("dr", "mr", "mrs", "prof"), known=False)
        if (
            title in ("np", "md", "pa", "sister", "sir", "madam", "nurse", "rev", "pastor")
            and end > at
            and lower[at:end].split()[0] not in _KNOWN
        ):
            continue
        if (
            title == "ms"
            and end > at
            and text[match.start() : match.start() + 2] == "MS"
            and lower[at:end].split()[0] not in _KNOWN
        ):
            continue
        yield IdentifierKind.NAME, at, end
    for at in view.at(_GLUED_AT):
        if glued := _GLUED_TITLE.match(text, at):
            yield IdentifierKind.NAME, glued.end(), _read_name(view, glued.end())
    for match in view.matches(_MY_NAME_AT, _MY_NAME):
        free = not set(match.group()) & set(":：=-")
        mine = free and (
            _MINE.search(lower, max(0, match.start() - 14), match.start())
            or (match.group().startswith(("name's", "name is")) and _line_begins(lower, match.start()))
        )
        at = match.end()
        end = _read_name(view, at, small=bool(mine), shouted=not free) if mine or not free else at
        yield IdentifierKind.NAME, at, end if end > at else _read_name(view, at, known=True)


_MINE: Final = re.compile(r"(?<![a-z])(?:my|his|her)\s(?:(?:full|first|last|good|real|nick) ?)?$")
_STREET_END: Final = re.compile(r"(?<![\d.])\d{1,5} [a-z]+ $")


def _line_begins(lower: str, at: int) -> bool:
    """Whether the text or a line of it begins at `at`."""
    return at == 0 or lower[at - 1] == "\n"


def _introductions(view: View) -> Candidates:
    lower, text = view.lower, view.text
    for match in view.matches(_I_AM_AT, _I_AM):
        at, phrase = match.end(), match.group().strip()
        char = text[at : at + 1]
        if not char.isalpha():
            continue
        if char.isupper():
            end = _read_name(view, at)
            if end == at:
                continue
            words = lower[at:end].replace(".", " ").split()
            known = words[0] in _KNOWN or (
                phrase in _INTRODUCING and words[0] in GIVEN_WORDS_EN and text[at + 1 : at + 2].islower()
            )
            if phrase in _NAMING and phrase != "called":
                known = known or (text[at + 1 : at + 2].islower() and text[end : end + 2] not in ("'s",))
            if (
                known and (phrase in _INTRODUCING or phrase in _NAMING or len(words) > 1 or words[0] in GIVEN_EN)
            ) or (phrase in _INTRODUCING and text[at + 1 : at + 2].islower() and _AFTER_I_AM.match(lower, end)):
                yield IdentifierKind.NAME, at, end
        elif phrase in _INTRODUCING or phrase in _NAMING:
            yield IdentifierKind.NAME, at, _read_name(view, at, known=True)
    for match in view.matches(_RELATIVE_AT, _WHOSE):
        if match.group("who") in _RELATIVES:
            at = match.end()
            if text[at : at + 1].isupper() and text[at + 1 : at + 2].islower():
                end = _read_name(view, at)
                sure = _BEFORE_RELATIVE.search(lower, max(0, match.start() - 20), match.start())
                words = lower[at:end].split()
                if end > at and (
                    words[0] in _KNOWN
                    or words[0] in GIVEN_WORDS_EN
                    or (sure and (len(words) > 1 or _follows(lower, end)))
                ):
                    yield IdentifierKind.NAME, at, end
            else:
                yield IdentifierKind.NAME, at, _read_name(view, at, known=True)


_AFTER_RELATIVE: Final = re.compile(
    r"[\s,]{1,2}(?:is|was|has|had|who|and|\d|aged?|will|got|started|takes|says|needs|just|also|does|did"
    r"|can|keeps|\()|[.!?]|'s\b|$|,"
)


def _follows(lower: str, end: int) -> bool:
    return bool(_AFTER_RELATIVE.match(lower, end))


def _signatures(view: View) -> Candidates:
    lower, text = view.lower, view.text
    for match in view.matches(_SIGN_OFF_AT, _SIGN_OFF):
        at = match.end()
        newline = "\n" in match.group()
        title = _TITLED.match(lower, at)
        if title and not text[title.end() : title.end() + 1].islower():
            at = title.end()
        word = re.match(r"[a-z]+", match.group())
        known = not text[at : at + 1].isupper() or not (
            newline
            or (word and word.group() in _SMALL_SIGNERS)
            or match.group().startswith(("thank", "best", "xx"))
        )
        end = _read_name(view, at, known=known)
        if end > at and _END.match(text, end):
            yield IdentifierKind.NAME, at, end
    for match in view.around(_DASHED_AT, _DASHED, 4, 3):
        at = match.end()
        end = _read_name(view, at, known=not text[at].isupper())
        if (
            end > at
            and _END.match(text, end)
            and (lower[at:end].split()[0].strip(".") in _KNOWN or end >= len(text.rstrip()) - 2)
        ):
            yield IdentifierKind.NAME, at, end
    for match in view.matches(_GREETING_AT, _GREETING):
        at = match.end()
        begun = lower[max(0, match.start() - 2) : match.start()].strip()
        if text[at : at + 1].isupper():
            end = _read_name(view, at)
            if end == at or not _AFTER_GREETING.match(lower, end):
                continue
            first = lower[at:end].split()[0].strip(".")
            if (
                first in _KNOWN
                or first in GIVEN_WORDS_EN
                or (
                    not match.group().startswith("thank")
                    and begun in ("", ".", "!", "?")
                    and text[at + 1].islower()
                )
            ):
                yield IdentifierKind.NAME, at, end
        else:
            end = _read_name(view, at, known=True)
            if end > at and _AFTER_GREETING.match(lower, end):
                yield IdentifierKind.NAME, at, end
    if " here" in lower:
        for match in _HERE.finditer(lower):
            if match.group("who") in GIVEN_EN:
                yield IdentifierKind.NAME, *match.span("who")


_BEFORE_NAMES: Final = frozenset((_TITLE_AT, _GLUED_AT, _MY_NAME_AT, _I_AM_AT, _RELATIVE_AT))
_NEAR_SIGNERS: Final = frozenset((_SIGN_OFF_AT, _DASHED_AT, _GREETING_AT))


def english_names(view: View) -> Candidates:
    """Names after titles, introductions, greetings and relatives, signatures, and given name with surname."""
    if view.any(_BEFORE_NAMES):
        yield from _names_after(view)
        yield from _introductions(view)
    if view.any(_NEAR_SIGNERS) or " here" in view.lower:
        yield from _signatures(view)


def _facilities(view: View) -> Candidates:
    text, lower = view.text, view.lower
    for match in view.matches(_FACILITY_AT, _FACILITY):
        if not text[match.start()].isupper():
            continue
        before = _BEFORE_FACILITY.search(text, max(0, match.start() - 60), match.start())
        if before is None:
            continue
        words = before.group().split()
        start = before.start()
        while words and words[0].lower() in _GENERIC_FACILITY:
            start = text.index(words[0], start) + len(words[0]) + 1
            words = words[1:]
        if any(
            w.lower().strip(".") not in _GENERIC_FACILITY and w.lower() not in NOT_NAMES_EN for w in words
        ) and not _SOURCE_BEFORE.search(lower, max(0, start - 24), start):
            yield IdentifierKind.PLACE, start, match.end()


def _pair(view: View, at: int) -> Candidates:
    """A given name and a surname, both listed, both with a capital letter."""
    end = _read_name(view, at)
    words = view.lower[at:end].split()
    after = view.lower[end : end + 16].lstrip("'s ").split(" ")[0]
    if len(words) > 1 and words[-1] in SURNAMES_EN and after not in _AFTER_NAME:
        yield IdentifierKind.NAME, at, end


def _capitals(view: View) -> Candidates:
    """Full names and towns: one pass over the words with a capital letter."""
    text, lower = view.text, view.lower
    for match in _CAPITAL.finditer(text):
        word, at = match.group(), match.start()
        if text[match.end() + 1 : match.end() + 2].isupper() and word.lower() in GIVEN_EN:
            yield from _pair(view, at)
        for city in _CITY_WORDS.get(word, ()):
            end = at + len(city)
            if (
                text.startswith(city, at)
                and not text[end : end + 1].isalpha()
                and not _NOT_CITY_AFTER.match(lower, end)
            ):
                yield IdentifierKind.PLACE, at, end
    for match in _STATE_AFTER.finditer(text):
        town = _TOWN_BEFORE.search(text, max(0, match.start() - 40), match.start())
        if town and town.group().split()[0].lower() not in NOT_NAMES_EN:
            exact = match.group()[-1].isdigit()
            yield (
                IdentifierKind.ADDRESS if exact else IdentifierKind.PLACE,
                town.start(),
                match.end() if exact else town.end(),
            )
    for at in view.at(_SMALL_CITY_AT):
        if (
            _BEFORE_CITY.search(lower, max(0, at - 6), at)
            and (city_match := _SMALL_CITY.match(lower, at))
            and not _NOT_CITY_AFTER.match(lower, city_match.end())
        ):
            yield IdentifierKind.PLACE, *city_match.span()


def _streets(view: View) -> Candidates:
    text, lower = view.text, view.lower
    found = False
    if view.at(_SUFFIX_AT):
        for match in view.around(_SUFFIX_AT, _STREET, 48, 32, needs=_DIGIT):
            words = match.group("name").split()
            if any(w in _NOT_STREET for w in words):
                continue
            capital = text[match.start("name")].isupper() or words[0][0].isdigit()
            sure = match.group("suffix") in _SURE_SUFFIX
            follows = re.match(
                r"\s?[,#]|\s(?:apt|unit|suite|ste|in\s|near|and\b|zip)|\s?$|[.\n]",
                lower[match.end() : match.end() + 8],
            )
            if (
                sure
                or (capital and (text[match.start("suffix")].isupper() or follows))
                or (match.group("suffix") == "st" and len(match.group("no")) > 1 and follows)
            ):
                found = True
                yield IdentifierKind.ADDRESS, *match.span()
    for match in view.matches(_UNIT_AT, _UNIT):
        if _SURE_UNIT.match(match.group()) or (
            found and not match.group().startswith(("lot", "block", "box", "door", "h"))
        ):
            yield IdentifierKind.ADDRESS, *match.span()
    for match in _POSTCODE_END.finditer(text):
        if code := _POSTCODE.search(text, max(0, match.start() - 18), match.end()):
            yield IdentifierKind.ADDRESS, *code.span()
    for match in view.matches(_POSTCODE_AT, _POSTCODE_LABEL):
        yield IdentifierKind.ADDRESS, *match.span("code")


def english_places(view: View) -> Candidates:
    """Hospitals with a name, towns, streets with a number, flats and postcodes."""
    yield from _facilities(view)
    yield from _capitals(view)
    if _DIGIT.search(view.text) or (not view.ascii and any(map(str.isdigit, view.text))):
        yield from _streets(view)
