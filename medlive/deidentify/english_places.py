"""Rules for English places and addresses: hospitals, towns before a state, listed cities, streets and postcodes."""

import re
from functools import partial

from medlive.deidentify.english_general import is_general, is_in_medical_name
from medlive.deidentify.facilities import facilities
from medlive.deidentify.identifiers import (
    Candidates,
    View,
    alternatives,
    matches,
    one_of,
    word_list,
)

_any = partial(one_of, "english")
_CITIES = word_list("english", "cities")
_NOT_NAMES = word_list("english", "not names")
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

_SMALL_CITIES = frozenset(map(str.lower, _CITIES)) - word_list(
    "english", "ambiguous cities"
)
_SMALL_CITY = re.compile(
    rf"(?<![a-z])(?:in|from|near|at|to)\s(?P<city>{alternatives(_SMALL_CITIES)})(?![a-z])"
)

_SURE_SUFFIX = word_list("english", "sure street suffixes")
_SUFFIX = _any("street suffixes")
_STREET = re.compile(
    r"(?<![\d.,/a-z-])(?P<no>\d{1,5}[a-d]?(?:[/-]\d{1,4})?),? (?P<name>(?:(?:n|s|e|w|ne|nw|se|sw|north"
    r"|south|east|west)\.? )?(?:(?:[a-z]+(?:'s)?|\d{1,3}(?:st|nd|rd|th)|st\.)[ ]){1,3}?)"
    rf"(?P<suffix>{_SUFFIX})(?![a-z])\.?(?: (?:n|s|e|w|ne|nw|se|sw|north|south|east|west)(?![a-z]))?(?: "
    r"?#? ?\d{1,3}(?= ?,))?"
)
_DIGIT = re.compile("[0-9]")
_NOT_STREET = word_list("english", "not streets")
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
    """Find listed cities, but for those that name nobody."""
    lower = view.lower
    spans = [match.span() for match in _CITY.finditer(view.text)]
    spans += [match.span("city") for match in _SMALL_CITY.finditer(lower)]
    general: list[tuple[int, int]] = []
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
    if _DIGIT.search(text) or (not view.ascii and any(map(str.isdigit, text))):
        yield from _streets(view)
