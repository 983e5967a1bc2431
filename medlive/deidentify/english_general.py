"""English places that name nobody: in a disease's or a score's name, or in talk of an epidemic.

A place stays where a question, a denial, a condition or other people keep it out of the patient's life. Every rule
needs a cue of its own, and a word that could make the place the patient's undoes it: in doubt a place goes.
"""

import re

from medlive.deidentify.identifiers import alternatives, one_of, word_list
from medlive.deidentify.spelling import containing, is_part_of_name

_CITIES = frozenset(map(str.lower, word_list("english", "cities")))
_NAMES = containing(
    word_list("english", "names with a place"),
    _CITIES,
    longest_exact=5,
)
_SENTENCE_END = re.compile(r"[.!?;\n](?=\s|$)")
_REACH = 90
"""How many characters before and after a place are read."""

_COUNTRY = "abroad|overseas|china|italy|iran|korea|europe|india"
_REGION = rf"(?:{alternatives(_CITIES)}|{one_of('english', 'states')}|{_COUNTRY})"
_LISTED = rf"(?:the |mainland )?(?:{_REGION}(?:,? (?:and|or) |, ?)){{0,6}}$"
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
    rf"(?<![a-z])(?:have|has|had|did|do) {_SUBJECT} (?:{_ADVERBS}){{0,4}}(?:{_BEEN}|travel to|visit) {_LISTED}"
)
_NOT = r"(?:(?:have|has|had|did)n[o']?t|not|never|nor)"
_DENIED = re.compile(
    rf"(?<![a-z])(?:{_NOT} (?:{_ADVERBS}){{0,4}}{_BEEN}"
    rf"|(?:did ?n[o']t|did not|never) (?:ever )?(?:travel to|visit)) {_LISTED}"
)
_NO_HISTORY = re.compile(
    r"(?<![a-z])(?:no|without|denie[sd]|denying|any(?= [a-z]+ [a-z]+ ))"
    rf" (?:{_HISTORY_WORDS}){{0,5}}(?:{_HISTORY}) {_LISTED}"
)
_IF = re.compile(
    rf"(?<![a-z])(?:if|unless|in case) {_SUBJECT}(?:'ve| have| has| had)? (?:{_ADVERBS}){{0,3}}"
    rf"(?:{_BEEN}|come from|returned from|arrived from) {_LISTED}"
)
_COMING = "coming|come|came|returning|returned|arriving|arrived|travell?ing|travell?ed"
_PEOPLE = re.compile(
    r"(?<![a-z])(?:people|those|persons|travell?ers|passengers|visitors|tourists|patients|individuals)(?: who)?"
    rf"(?: (?:have |had )?(?:{_COMING})(?: back)?)? from {_LISTED}"
)
_CONTACT = re.compile(
    rf"(?<![a-z])(?:contact with|exposed to|close to|met|near) (?:any |some )?{_SOMEONE} "
    rf"(?:{_WHO_HAD}(?:{_COMING}|been)(?: back)? )?(?:from|to) {_LISTED}"
)
_EPIDEMIC_BEFORE = re.compile(
    r"(?<![a-z])(?:outbreak|epidemic|originat(?:ed|ing)|emerged|first (?:reported|identified|detected|appeared))"
    rf" (?:in|from|at) (?:the (?:chinese )?city of )?{_LISTED}"
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
    return is_part_of_name(lower, start, end, _NAMES.get(lower[start:end], ()))


def is_general(lower: str, start: int, end: int) -> bool:
    """Whether the city at these offsets stands in a question, a denial or a general statement, or is others'."""
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
    cues = (_PEOPLE.search(before), _EPIDEMIC_BEFORE.search(before))
    return any(cues) or _EPIDEMIC_AFTER.match(after) is not None
