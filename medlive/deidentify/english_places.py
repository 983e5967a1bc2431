"""`english_places` finds hospitals, towns before a state, listed cities, streets and postcodes.

A city stays where it tells nothing of the patient: in a disease's or a score's name, in talk of an epidemic, and in a
question, a denial, a condition or words about other people. Each of these rules needs a cue of its own, and a word that
could make the place the patient's overrides it: in doubt a place is removed.
"""

import re
from functools import partial

from .identifiers import (
    Candidates,
    View,
    alternatives,
    is_part_of_name,
    matches,
    one_of,
    surroundings,
    word_list,
)

_any = partial(one_of, "english")
_words = partial(word_list, "english")
_CITIES = _words("cities")
_NOT_NAMES = _words("not names")
_STATE_NAMES = _any("states")
_STATES = (
    "A[LKZR]|C[AOT]|DE|FL|GA|HI|I[DLNA]|K[SY]|LA|M[EDAINSOT]|"
    "N[EVHJMYCD]|O[HKR]|PA|RI|S[CD]|T[NX]|UT|V[TA]|W[AVIY]"
)
_STATE_AFTER = re.compile(
    rf",\s?(?:(?:{_STATES})(?![A-Za-z])|(?:{_STATE_NAMES})(?![a-z]))(?:\s\d{{5}}(?:-\d{{4}})?(?!\d))?"
)
_TOWN_BEFORE = re.compile(r"(?<![A-Za-z])[A-Z][a-z]+(?: [A-Z][a-z]+){0,2}$")
_CITY = re.compile(rf"(?<![A-Za-z]){alternatives(_CITIES)}(?![^\W\d_])")
_NOT_CITY_AFTER = re.compile(rf"[- ]{_any('not after a city')}")

_SMALL_CITIES = frozenset(map(str.lower, _CITIES))
_SURE_SMALL_CITIES = _SMALL_CITIES - _words("ambiguous cities")
_SMALL_CITY = re.compile(
    rf"(?<![a-z])(?:in|from|near|at|to)\s(?P<city>{alternatives(_SURE_SMALL_CITIES)})(?![a-z])"
)

_SURE_SUFFIX = _words("sure street suffixes")
_SUFFIX = _any("street suffixes")
_STREET = re.compile(
    r"(?<![\d.,/a-z-])(?P<no>\d{1,5}[a-d]?(?:[/-]\d{1,4})?),? (?P<name>(?:(?:n|s|e|w|ne|nw|se|sw|north"
    r"|south|east|west)\.? )?(?:(?:[a-z]+(?:'s)?|\d{1,3}(?:st|nd|rd|th)|st\.)[ ]){1,3}?)"
    rf"(?P<suffix>{_SUFFIX})(?![a-z])\.?(?: (?:n|s|e|w|ne|nw|se|sw|north|south|east|west)(?![a-z]))?(?: "
    r"?#? ?\d{1,3}(?= ?,))?"
)
_NOT_STREET = _words("not streets")
_UNIT = re.compile(
    r"(?<![a-z])(?:apt|apartment|unit|suite|ste|flat|room|rm|floor|house|plot|door|h\.?|building|bldg|lot"
    r"|block|p\.?\s?o\.? ?box|box)\.? ?(?:no\.? ?|number |#)? "
    r"?(?P<id>[a-z]?-?\d{1,5}[a-z]?(?:[/-]\d{1,4})?|[a-h]\d{0,3})(?![a-z0-9.%])"
)
_POSTCODE_END = re.compile(r" [0-9](?:[0-9]{4}|[A-Z]{2}|[A-Z][0-9])")
_SURE_UNIT = re.compile(
    r"(?:apt|apartment|p\.?\s?o\.? ?box|flat (?:no)?|suite|house no|h\.? ?no|plot no|door no|plot)"
)
_POSTCODE = re.compile(
    rf"(?:(?<![A-Za-z])(?:{_STATES}|{_STATE_NAMES}),?\s\d{{5}}(?:-\d{{4}})?(?![\d-]))"
    r"|(?<![A-Za-z0-9])(?:[A-PR-UWYZ][A-HK-Y]?\d[A-HJKMNPRV-Y\d]? \d[ABD-HJLNP-UW-Z]{2}"
    r"|[ABCEGHJ-NPRSTVXY]\d[ABCEGHJ-NPRSTV-Z] \d[ABCEGHJ-NPRSTV-Z]\d)(?![A-Za-z0-9])"
)
_POSTCODE_LABEL = re.compile(
    r"(?<![a-z])(?:zip ?code|zip|postal ?code|post ?code|pin ?code|pincode|pin)(?: is| no\.?)?[\s:-]{1,3}(?P<code>"
    r"\d{5}(?:-\d{4})?|\d{3} ?\d{3}|[a-z]{1,2}\d[a-z\d]? ?\d[a-z]{2})(?![a-z0-9])"
)
_AFTER_STREET = re.compile(
    r"\s?[,#]|\s(?:apt|unit|suite|ste|in\s|near|and\b|zip)|\s?$|[.\n]"
)


def _cities(view: View) -> Candidates:
    """Find listed cities, except where they tell nothing of the patient."""
    lower = view.lower
    spans = [match.span() for match in _CITY.finditer(view.text)]
    spans += [match.span("city") for match in _SMALL_CITY.finditer(lower)]
    general = []
    own: set[str] = set()
    for start, end in spans:
        if _NOT_CITY_AFTER.match(lower, end) or is_in_medical_name(lower, start, end):
            continue
        if is_general(lower, start, end):
            general.append((start, end))
        else:
            own.add(lower[start:end])
            yield "place", start, end
    # Where the patient has been to a city, every other mention of it in the text gives it away.
    for start, end in general:
        if lower[start:end] in own:
            yield "place", start, end


def _streets(view: View) -> Candidates:
    """Find streets with a number, flats and postcodes."""
    text, lower = view.text, view.lower
    on_street = False
    for match in _STREET.finditer(lower):
        if _is_street(view, match):
            on_street = True
            yield "address", *match.span()
    for match in _UNIT.finditer(lower):
        after_street = on_street and not match[0].startswith(
            ("lot", "block", "box", "door", "h")
        )
        if after_street or _SURE_UNIT.match(match[0]):
            yield "address", *match.span()
    for match in _POSTCODE_END.finditer(text):
        begins = max(0, match.start() - 18)
        if code := _POSTCODE.search(text, begins, match.end()):
            yield "address", *code.span()
    yield from matches("address", _POSTCODE_LABEL, lower)


def _is_street(view: View, match: re.Match[str]) -> bool:
    """Whether the matched number, words and suffix are a street's address."""
    name, suffix = match["name"].split(), match["suffix"]
    first = view.char(match.start("name"))
    capital = first.isupper() or first.isdigit()
    refused = _NOT_STREET - {"old"} if capital else _NOT_STREET
    if not refused.isdisjoint(name):
        return False
    if suffix in _SURE_SUFFIX:
        return True
    follows = _AFTER_STREET.match(view.lower, match.end()) is not None
    if capital:
        return follows or view.text[match.start("suffix")].isupper()
    return follows and suffix == "st" and len(match["no"]) > 1


def english_places(view: View) -> Candidates:
    """Find named hospitals, towns, streets with a number, flats and postcodes."""
    text = view.text
    yield from facilities(view)
    for match in _STATE_AFTER.finditer(text):
        begins = max(0, match.start() - 40)
        town = _TOWN_BEFORE.search(text, begins, match.start())
        if town and town[0].split()[0].lower() not in _NOT_NAMES:
            if match[0][-1].isdigit():
                yield "address", town.start(), match.end()
            else:
                yield "place", *town.span()
    yield from _cities(view)
    if any(map(str.isdigit, text)):
        yield from _streets(view)


_GENERIC = _words("generic facility words")
_COMMON = _words("common words before a hospital")
_KNOWN_WORDS = _GENERIC | _COMMON | _NOT_NAMES
_PEOPLE = _words("given names") | _words("surnames")
_MAY_BE_WORDS = _words("surname words") | _words("given words")
_SURE_NAMES = (_PEOPLE - _MAY_BE_WORDS) | _words("hospital names")

_FACILITY = re.compile(rf"(?<![a-z]){_any('facilities')}(?![a-z])")
_SMALL_FACILITY = re.compile(
    r"(?<![a-z])(?:hospitals?|medical (?:center|centre|college)|infirmary|nursing home)(?![a-z])"
)
_CAPITALS_BEFORE = re.compile(
    r"(?:(?:St\.? |Saint )?(?:[A-Z][A-Za-z'.]*|of|and|the|&|for)[ ]){1,6}$"
)
_SMALL_WORD = r"(?:st\.? )?[a-z][a-z'\u2019-]*"
_WORDS_BEFORE = re.compile(rf"(?:{_SMALL_WORD} ){{1,4}}$")
_WORD = re.compile(_SMALL_WORD)
_AT = re.compile(
    r"(?<![a-z])(?:at|in|from|near|visit(?:ed)?|(?:doctors?|surgeons?|staff) of"
    r"|(?:go|goes|going|went|gone|came|taken|took|brought|rushed|sent|shifted"
    r"|admitted|referred|moved|transferred|drove|returned|back|(?:took|take|sent|brought) [a-z]+) (?:in)?to) $"
)
_NEVER_IN_NAME = _words("never in a hospital's name")
_SOURCE_BEFORE = re.compile(
    r"(?:according to|says?|website|article|study|guidelines?|reviewed?|published|protocol|diet)[ "
    r",]*(?:the |from |by |at |of )*$"
)
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n)\"][ \t]*)$")
_ENDING_OF_A_COMMON_WORD = re.compile(
    r"(?:ing|ed|ly|est|ive|ous|ary|able|ible|tion|sion|ness|ment|less|ful|ology|ship|-care|-volume)$"
)


def facilities(view: View) -> Candidates:
    """Find hospitals with a name of their own: Apollo Hospital, St. Mary's Medical Center, malviya hospital."""
    text, lower = view.text, view.lower
    for match in _FACILITY.finditer(lower):
        at = match.start()
        before = _CAPITALS_BEFORE.search(text, max(0, at - 60), at)
        if before is None or not text[at].isupper():
            continue
        words = before[0].split()
        start = before.start()
        # The name begins after "the", "General" and the like.
        while words and words[0].lower() in _GENERIC:
            start = text.index(words[0], start) + len(words[0]) + 1
            words = words[1:]
        names = {word.lower() for word in words} - _NOT_NAMES
        is_named = any(name.strip(".") not in _GENERIC for name in names)
        if is_named and not _is_source(lower, start):
            yield "place", start, match.end()
    for match in _SMALL_FACILITY.finditer(lower):
        at = match.start()
        before = _WORDS_BEFORE.search(lower, max(0, at - 50), at)
        if before is None:
            continue
        start = _start_of_name(view, before)
        if start < at and not _is_source(lower, start):
            yield "place", start, match.end()


def _is_source(lower: str, start: int) -> bool:
    """Whether the hospital is cited and not visited: "the website of …"."""
    return _SOURCE_BEFORE.search(lower, max(0, start - 24), start) is not None


def _start_of_name(view: View, before: re.Match[str]) -> int:
    """Return where the name before a facility's word starts, or the end of the words if they hold none."""
    lower = view.lower
    end = before.end()
    listed = unlisted = first = end
    for word in reversed(list(_WORD.finditer(lower, before.start(), end))):
        plain = word[0].removesuffix("'s")
        if plain in _NEVER_IN_NAME or plain in _COMMON:
            break
        if _is_name(view.text, word.start(), plain):
            listed = unlisted = word.start()
        elif _may_be_name(plain):
            unlisted = word.start()
        elif plain not in _GENERIC:
            break
        first = word.start()
    said_to_be_there = _AT.search(lower, max(0, first - 24), first) is not None
    return unlisted if said_to_be_there else listed


def _is_name(text: str, at: int, plain: str) -> bool:
    """Whether a word is a listed name, or one by its capital letters: Malviya in a sentence, MAlviya anywhere."""
    if plain in _SURE_NAMES or plain.startswith(("st ", "st. ")):
        return True
    written = text[at : at + len(plain)]
    if not _may_be_name(plain) or not written[0].isupper() or written.isupper():
        return False
    if not written[1:].islower():
        return True
    return _SENTENCE_START.search(text, max(0, at - 4), at) is None


def _may_be_name(plain: str) -> bool:
    """Whether a word may be an unlisted name: long enough, not a common word, and without the ending of one."""
    if len(plain) <= 2 or _ENDING_OF_A_COMMON_WORD.search(plain):
        return False
    return plain not in _KNOWN_WORDS


_MEDICAL_NAMES = surroundings(
    _words("names with a place"),
    _SMALL_CITIES,
    longest_exact=5,
)
_SENTENCE_END = re.compile(r"[.!?;\n](?=\s|$)")
_REACH = 90
"""How many characters before and after a place are read."""

_COUNTRY = "abroad|overseas|china|italy|iran|korea|europe|india"
_REGION = rf"(?:{alternatives(_SMALL_CITIES)}|{_STATE_NAMES}|{_COUNTRY})"
_LISTED_PLACES = rf"(?:the |mainland )?(?:{_REGION}(?:,? (?:and|or) |, ?)){{0,6}}$"
_SOMEONE = r"(?:anyone|anybody|someone|somebody|people|persons?|travell?ers?|visitors?|passengers?|a person|those)"
_SUBJECT = r"(?:you|they|he|she|the patient|any of you|anyone|anybody|someone|somebody|a patient|a person|one)"
_BEEN = r"(?:travell?ed (?:to|from|through|via)|been to|visited)"
_ADVERBS = r"(?:ever|recently|personally|even|have|had|has|been|also|yet|previously|lately|any|of you) "
_HISTORY_WORDS = (
    r"(?:any|a|an|recent|recently|prior|previous|foreign|international|known|direct|close|significant|history|of"
    r"|or|and|contacts?|exposure|with|to|travel) "
)
_WHO_HAD = r"(?:who )?(?:had |has |have )?"
_HISTORY = (
    rf"(?:travel|travel history|history of travel|visits?) (?:to|from|in)"
    rf"|(?:contacts?|exposure)(?: history)? (?:with|to) {_SOMEONE} (?:in|from|{_WHO_HAD}{_BEEN})"
)
_ASKED = re.compile(
    rf"(?<![a-z])(?:have|has|had|did|do) {_SUBJECT} (?:{_ADVERBS}){{0,4}}(?:{_BEEN}|travel to|visit) {_LISTED_PLACES}"
)
_NOT = r"(?:(?:have|has|had|did)n[o']?t|not|never|nor)"
_DENIED = re.compile(
    rf"(?<![a-z])(?:{_NOT} (?:{_ADVERBS}){{0,4}}{_BEEN}"
    rf"|(?:did ?n[o']t|did not|never) (?:ever )?(?:travel to|visit)) {_LISTED_PLACES}"
)
_NO_HISTORY = re.compile(
    r"(?<![a-z])(?:no|without|denie[sd]|denying|any(?= [a-z]+ [a-z]+ ))"
    rf" (?:{_HISTORY_WORDS}){{0,5}}(?:{_HISTORY}) {_LISTED_PLACES}"
)
_IF = re.compile(
    rf"(?<![a-z])(?:if|unless|in case) {_SUBJECT}(?:'ve| have| has| had)? (?:{_ADVERBS}){{0,3}}"
    rf"(?:{_BEEN}|come from|returned from|arrived from) {_LISTED_PLACES}"
)
_COMING = "coming|come|came|returning|returned|arriving|arrived|travell?ing|travell?ed"
_PEOPLE_FROM = re.compile(
    r"(?<![a-z])(?:people|those|persons|travell?ers|passengers|visitors|tourists|patients|individuals)(?: who)?"
    rf"(?: (?:have |had )?(?:{_COMING})(?: back)?)? from {_LISTED_PLACES}"
)
_CONTACT = re.compile(
    rf"(?<![a-z])(?:contact with|exposed to|close to|met|near) (?:any |some )?{_SOMEONE} "
    rf"(?:{_WHO_HAD}(?:{_COMING}|been)(?: back)? )?(?:from|to) {_LISTED_PLACES}"
)
_EPIDEMIC_BEFORE = re.compile(
    r"(?<![a-z])(?:outbreak|epidemic|originat(?:ed|ing)|emerged|first (?:reported|identified|detected|appeared))"
    rf" (?:in|from|at) (?:the (?:chinese )?city of )?{_LISTED_PLACES}"
)
_EPIDEMIC_AFTER = re.compile(
    r"(?:'s)? (?:corona ?virus|outbreak|epidemic|strain|pneumonia|virus|seafood market|wet market)(?![a-z])"
)
_OWN = re.compile(
    r"(?<![a-z])(?:i|i'm|im|i've|ive|we|we're|my|our|me|us|here)(?![a-z])"
)
_LIVES_THERE = re.compile(
    r"(?<![a-z])(?:live|lives|living|work|works|stay|grew up|born|are|am) (?:t?here)(?![a-z])"
)
_NOT_THERE = re.compile(
    r",? ?(?:since|until|till|before|again|anymore|any more|long|for|yet|where|general|hospital|clinic|infirmary"
    r"|this|last|when|to see|and back|because|as|but(?! not))(?![a-z])"
)


def is_in_medical_name(lower: str, start: int, end: int) -> bool:
    """Whether the city at these offsets is a part of the name of a disease, an organism or a score."""
    return is_part_of_name(
        lower,
        start,
        end,
        _MEDICAL_NAMES.get(lower[start:end], ()),
    )


def is_general(lower: str, start: int, end: int) -> bool:
    """Whether the city at these offsets is in a question, a denial or a general statement, or is other people's."""
    before = lower[max(0, start - _REACH) : start].replace("\u2019", "'")
    before = _SENTENCE_END.split(before)[-1]
    after = _SENTENCE_END.split(lower[end : end + _REACH])[0]
    if _LIVES_THERE.search(lower, end, end + _REACH):
        return False
    if any(cue.search(before) for cue in (_ASKED, _DENIED, _NO_HISTORY)):
        return _NOT_THERE.match(after) is None
    if _CONTACT.search(before):
        return True
    if _OWN.search(before) or _OWN.search(after):
        return False
    if _IF.search(before):
        return _NOT_THERE.match(after) is None
    cues = (_PEOPLE_FROM.search(before), _EPIDEMIC_BEFORE.search(before))
    return any(cues) or _EPIDEMIC_AFTER.match(after) is not None
