"""`english_names` finds English names by the words that introduce them, or as a given name with a surname.

A capital letter alone does not make a name, so that eponyms, drugs and genes stay.
"""

import re
from functools import partial

from .identifiers import (
    Candidates,
    View,
    one_of,
    word_list,
)

_any = partial(one_of, "english")
_words = partial(word_list, "english")
_GIVEN = _words("given names")
_GIVEN_WORDS = _words("given words")
_SURNAMES = _words("surnames")
_NOT_NAMES = _words("not names")
_NOT_AFTER_TITLE = _words("not after title")
_KNOWN = _GIVEN | _SURNAMES
_LISTED = _KNOWN | _GIVEN_WORDS
# Names that are also recognised in lower case
_SMALL_NAMES = _KNOWN - _words("surname words")
_CAP = "[A-ZÀ-ÖØ-Þ]"
_LOW = "[a-zß-öø-ÿāăąćčďđēėęěğīıłńňőřśşšţťūůűźżž]"
_WORD = re.compile(
    rf"(?:(?:O'|Mc|Mac|De|Van|Von|Al-|El-)?{_CAP}{_LOW}+(?:['-]{_CAP}?{_LOW}+)*|[A-Z]{{2,}}(?![A-Za-z])"
    r"|[A-Z](?:\.|(?=\s))(?![A-Za-z]))"
)
_SMALL_WORD = re.compile(rf"{_LOW}+(?:['-]{_LOW}+)?")
_GAP = re.compile(r"[ \t]{1,2}")
_POSSESSIVE = re.compile(r"'s?$")
_AFTER_NAME = _words("after eponyms")

_TITLE = re.compile(
    r"(?:(?<![a-z])|(?<=[a-z])(?=D))(?:dr|drs|doctor|prof|professor|mr|mrs|ms|miss|nurse|np|sister|pastor|rev|sir"
    r"|madam|md|pa)(?![a-z'])(?:\.?[ \t]{0,2}|\. ?)(?:\((?:mrs?|ms|miss)\.?\) ?)?"
)
_CAPITAL = re.compile(r"(?<![A-Za-z])[A-Z][a-z]+(?=.[A-Z])")
_GLUED_TITLE = re.compile(r"(?<=[a-z])(?:Dr|DR)\b\.?[ ]{0,2}")
_SURE_TITLES = _words("sure titles")
_MY_NAME = re.compile(
    r"(?:names?(?: of [a-z ]{3,20}?)?(?:(?:'s| is|s| was| are)(?: also)?[\s:]{1,3}"
    rf"|\s?(?:[:：=]|-\s)\s?)(?:mr |mrs |ms |dr )?|{_any('person labels')}\s?[:：]\s?)"
)
_I_AM = re.compile(rf"(?<![a-z']){_any('before a name')}\s")
_INTRODUCING = _words("introducing")
_NAMING = _words("naming")
_AFTER_I_AM = re.compile(
    r",?\s(?:from|aged?|\d|a \d|and i|here|\(|mother|father|wife|husband|son of|daughter of|writing|living"
    r"|working|an? [a-z-]+ (?:by|from))"
    r"|,\s?\d|,? (?:i am|i'm|im)|,? my (?:age|son|daughter|wife|husband)|\s?\(?\d|[.,!]?\s?(?:male|female|m/|f/)"
)
_WHOSE = re.compile(
    rf"(?<![a-z]){_any('relatives')}(?:'s name is|,? (?:named?|called)(?: is)?)?[,:]?\s"
)
_BEFORE_RELATIVE = re.compile(
    r"(?<![a-z])(?:my|our|his|her|their|your)\s(?:[a-z-]{3,12} )?$"
)
_RELATIVES = _words("relatives")
_NEVER_IN_NAME = _NOT_NAMES | _RELATIVES
_NOT_SURNAME = _NEVER_IN_NAME | _NOT_AFTER_TITLE
_SIGN_OFF = re.compile(
    rf"(?<![a-z])(?:{_any('closings')}|xx+|xo+)[ ]?[,!.:;~ )(\r\n-]{{1,6}}[\s—–~-]{{0,6}}(?=[a-z])"
)
# From the start of the white space, so that each run of it is read once.
_DASHED = re.compile(r"(?<!\s)(?:[^\S\n]*+\n|(?<=[.!?])\s)\s*+[-–—~]{1,2}\s?(?=[a-z])")
_TITLED = re.compile(r"(?:dr|prof|mr|mrs|ms|miss)\.? ?")
_END = re.compile(
    r"[ \t]*+(?:\([^)\n]{1,20}\))?[ \t]*+[.!,)]{0,2}(?:\s?[xX]{1,3})?"
    r"(?:[^\S\n]*+\n|\s*+(?:$|[\U0001f300-\U0001faff\u2600-\u27bf❤\[]))"
)
_SMALL_SIGNERS = tuple(_words("small closings"))
_GREETING = re.compile(
    r"(?<![a-z])(?:hi|hello|dear|hey|hiya|thanks|thank you|good (?:morning|evening|afternoon|day)"
    r"|greetings|bless you|cheers|@)[ ,]{1,2}(?:again |there )?(?=[a-z])"
)
_AFTER_GREETING = re.compile(r"\s?(?:[,!.:;\n]|$| and | for | i | - )")
_HERE = re.compile(
    r"(?:^|[\n.!,] ?|\b(?:hi|hello|hey),? )(?P<who>[a-z]+(?: [a-z]+)?) here\b"
)


def _name_end(
    view: View,
    at: int,
    *,
    small: bool = False,
    known: bool = False,
    shouted: bool = False,
) -> int:
    """Return where the name that starts at `at` ends, or `at` if there is none.

    Each word needs a capital letter, and a word all in capitals must be a listed name unless `shouted`. With
    `small` the first word may be any in lower case, later ones listed names; a `known` name must be listed.
    """
    text, lower = view.text, view.lower
    end, begin, whole = at, at, 0
    for count in range(4):
        first = count == 0
        if match := _WORD.match(text, begin):
            must_be_known = known and not whole
            good = _is_capital_word(view, match, first, must_be_known, shouted)
        else:
            if (small or known) and not view.char(begin).isupper():
                match = _SMALL_WORD.match(lower, begin)
            good = match is not None and _is_small_word(match[0], first, small)
        if match is None or not good:
            break
        whole += match.end() - match.start() > 1 + (match[0][-1] == ".")
        if cut := _POSSESSIVE.search(match[0]):
            if not lower.startswith(tuple(_AFTER_NAME), match.end() + 1):
                end = match.start() + cut.start()
            break
        end = match.end()
        if not (gap := _GAP.match(text, end)):
            break
        begin = gap.end()
    return end if whole else at


def _is_capital_word(
    view: View,
    match: re.Match[str],
    first: bool,
    known: bool,
    shouted: bool,
) -> bool:
    """Whether a capitalised word may be part of a name; `known`: it must be listed. See `_name_end`."""
    word = view.lower[match.start() : match.end()].rstrip(".")
    word = _POSSESSIVE.sub("", word)
    if word in _NEVER_IN_NAME or (
        len(word) == 1 and first and not _WORD.match(view.text, match.end() + 1)
    ):
        return False
    if word in _KNOWN:
        return True
    if known and len(word) > 1 and word not in _GIVEN_WORDS:
        return False
    return shouted or len(match[0]) == 1 or not match[0][-1].isupper()


def _is_small_word(word: str, first: bool, small: bool) -> bool:
    """Whether a word in lower case may be part of a name: a listed one, or with `small` any first word."""
    plain = _POSSESSIVE.sub("", word)
    listed = plain in (_GIVEN if first else _SMALL_NAMES)
    listed = listed or (small and first and len(word) > 1)
    return listed and plain not in _NOT_SURNAME


def _after_titles(view: View) -> Candidates:
    """Find names after titles: "Dr. Smith"."""
    lower, text = view.lower, view.text
    for match in _TITLE.finditer(lower):
        start, at = match.span()
        title, *_ = re.findall("[a-z]+", match[0])
        if not view.char(at).isalpha() or not _may_be_title(view, match, title):
            continue
        small = title == "dr" or (title in ("mr", "mrs", "prof") and "." in match[0])
        end = _name_end(view, at, small=small)
        if small and text[at].islower():
            end = _with_small_surname(lower, at, end, _LAST_SURNAME)
        also_a_word = title in _ALSO_WORDS or text.startswith("MS", start)
        if end > at and (not also_a_word or lower[at:end].split()[0] in _KNOWN):
            yield "name", at, end
    for match in _GLUED_TITLE.finditer(text):
        yield "name", match.end(), _name_end(view, match.end())


def _may_be_title(
    view: View,
    match: re.Match[str],
    title: str,
) -> bool:
    """Whether the word is written as a title before a name, and is not the end of a street's name."""
    start, at = match.span()
    if at == start + len(title) or (
        title not in _SURE_TITLES and not view.text[start].isupper()
    ):
        return False
    if title == "doctor" and "." in match.group():
        return False
    on_street = title == "dr" and _STREET_END.search(
        view.lower,
        max(0, start - 24),
        start,
    )
    return not (view.text[at].islower() and (on_street or title in _CAPITAL_AFTER))


_CAPITAL_AFTER = _words("titles before a capital")
_ALSO_WORDS = _words("titles that are words")
_STREET_END = re.compile(r"(?<![\d.])\d{1,5} [a-z]+ $")


def _after_labels(view: View) -> Candidates:
    """Find names after "my name is", "Patient:" and the like."""
    lower = view.lower
    for match in _MY_NAME.finditer(lower):
        start, at = match.span()
        labelled = not set(match[0]).isdisjoint(":：=-")
        starts_line = start == 0 or lower[start - 1] == "\n"
        sure = _MINE.search(lower, max(0, start - 14), start) or (
            match[0].startswith(("name's", "name is")) and starts_line
        )
        end = at
        if labelled or sure:
            end = _name_end(view, at, small=not labelled, shouted=labelled)
        if sure:
            end = _with_small_surname(lower, at, end)
        yield "name", at, end if end > at else _name_end(view, at, known=True)


_MINE = re.compile(
    r"(?<![a-z])(?:my|his|her)\s(?:(?:full|first|last|good|real|nick) ?)?$"
)


_SMALL_SURNAME = re.compile(
    r" (?P<surname>(?![a-z]+(?:ing|ed) )[a-z]{3,})(?=[,.\n]|$| (?:i|im|i'm|i am|and i|age|aged|from|\d))"
)
_LAST_SURNAME = re.compile(
    r" (?P<surname>(?![a-z]+(?:ing|ed|ly)(?![a-z]))[a-z]{3,})(?=[.!…\s]*(?:$|\n))"
)


def _with_small_surname(
    lower: str,
    at: int,
    end: int,
    pattern: re.Pattern[str] = _SMALL_SURNAME,
) -> int:
    """Return where a name ends, an unlisted surname in lower case after it included: "keisha brownlee im 19"."""
    match = pattern.match(lower, end)
    if end == at or match is None or match["surname"] in _NOT_SURNAME:
        return end
    return match.end()


def _introductions(view: View) -> Candidates:
    """Find names after "I am", "called" and the like."""
    for match in _I_AM.finditer(view.lower):
        at, phrase = match.end(), match[0].strip()
        if view.char(at).islower() and phrase in _INTRODUCING | _NAMING:
            yield "name", at, _name_end(view, at, known=True)
        elif view.char(at).isupper():
            end = _name_end(view, at)
            if end > at and _is_introduced(view, phrase, at, end):
                yield "name", at, end


def _is_introduced(
    view: View,
    phrase: str,
    at: int,
    end: int,
) -> bool:
    """Whether the capitalised words after a phrase are a name."""
    words = view.lower[at:end].replace(".", " ").split()
    introducing, naming = phrase in _INTRODUCING, phrase in _NAMING
    if view.char(at + 1).islower():
        if introducing and (
            words[0] in _GIVEN_WORDS or _AFTER_I_AM.match(view.lower, end)
        ):
            return True
        if naming and phrase != "called" and view.text[end : end + 2] != "'s":
            return True
    is_sure = introducing or naming or len(words) > 1 or words[0] in _GIVEN
    return words[0] in _KNOWN and is_sure


def _relatives(view: View) -> Candidates:
    """Find names after a relative: "my wife Anna"."""
    lower = view.lower
    for match in _WHOSE.finditer(lower):
        start, at = match.span()
        if not (view.char(at).isupper() and view.char(at + 1).islower()):
            yield "name", at, _name_end(view, at, known=True)
        elif (end := _name_end(view, at)) > at:
            words = lower[at:end].split()
            related = match[0].strip() in _KIN_TITLES or _BEFORE_RELATIVE.search(
                lower,
                max(0, start - 20),
                start,
            )
            follows = len(words) > 1 or _AFTER_RELATIVE.match(lower, end)
            if words[0] in _LISTED or (related and follows):
                yield "name", at, end


_WHOSE_MANY = re.compile(
    r"(?<![a-z])(?:my|our|his|her|their) (?:[a-z]+ )?(?:sisters|brothers|sons|daughters|kids|children|twins"
    r"|boys|girls|cousins|nieces|nephews|aunts|uncles|friends|parents)[,:]? (?=[a-z])"
)
_AND = re.compile(r", (?:and )?| and ")


def _several_relatives(view: View) -> Candidates:
    """Find names in a list of them: "my sisters Ifeoma and Chidinma"."""
    for match in _WHOSE_MANY.finditer(view.lower):
        at = match.end()
        names = []
        while (end := _name_end(view, at)) > at:
            names.append((at, end))
            joint = _AND.match(view.lower, end)
            if joint is None:
                break
            at = joint.end()
        firsts = {view.lower[start:end].split()[0] for start, end in names}
        if len(names) > 1 and firsts & _LISTED:
            for start, end in names:
                yield "name", start, end


_KIN_TITLES = _words("kin titles")
_AFTER_RELATIVE = re.compile(
    r"[\s,]{1,2}(?:is|was|has|had|who|and|\d|aged?|will|got|started|takes|says|needs|just|also|does|did"
    r"|can|keeps|\()|[.!?]|'s\b|$|,"
)


_REACHED = re.compile(
    r"(?<![a-z])(?:contact|reach|call|text|e-?mail|mail|write to|ask for|message)\s(?=[a-z])"
)
_REACHED_AT = re.compile(
    r",? (?:at|on|via) (?:\+?\(?\d{3}[-. )]{0,2}\d{3}|\+\d|\S{1,64}@)"
)


def _signatures(view: View) -> Candidates:
    """Find names after a closing ("Regards, Anna"), and before "here" ("anna here")."""
    lower, text = view.lower, view.text
    for match in _SIGN_OFF.finditer(lower):
        at, words = match.end(), match[0]
        title = _TITLED.match(lower, at)
        if title and not view.char(title.end()).islower():
            at = title.end()
        closing = "\n" in words or words.startswith(
            (*_SMALL_SIGNERS, "thank", "best", "xx")
        )
        is_certain = closing and view.char(at).isupper()
        end = _name_end(view, at, known=not is_certain)
        if end > at and _END.match(text, end):
            yield "name", at, end
    for match in _HERE.finditer(lower) if " here" in lower else ():
        first, *last = match["who"].split()
        if first in _GIVEN and _NOT_SURNAME.isdisjoint(last):
            yield "name", *match.span("who")


def _greetings(view: View) -> Candidates:
    """Find names after a greeting: "Hi Anna,"."""
    lower, text = view.lower, view.text
    for match in _GREETING.finditer(lower):
        start, at = match.span()
        capital = view.char(at).isupper()
        end = _name_end(view, at, known=not capital)
        if end == at or not _AFTER_GREETING.match(lower, end):
            continue
        before = lower[max(0, start - 2) : start].strip()
        opens_sentence = before in ("", ".", "!", "?")
        is_thanked = match[0].startswith("thank")
        sure = opens_sentence and not is_thanked and text[at + 1].islower()
        listed = lower[at:end].split()[0].strip(".") in _LISTED
        if not capital or listed or sure:
            yield "name", at, end


def english_names(view: View) -> Candidates:
    """Find names after titles, labels, introductions, greetings and relatives, and in signatures."""
    lower, text = view.lower, view.text
    yield from _after_titles(view)
    yield from _after_labels(view)
    yield from _introductions(view)
    yield from _relatives(view)
    yield from _several_relatives(view)
    # Whom a number or an address belongs to: "contact Yevgenia at …"
    for match in _REACHED.finditer(lower):
        end = _name_end(view, match.end())
        if end > match.end() and _REACHED_AT.match(lower, end):
            yield "name", match.end(), end
    yield from _signatures(view)
    for match in _DASHED.finditer(lower):
        at = match.end()
        end = _name_end(view, at, known=not text[at].isupper())
        if end > at and _END.match(text, end):
            at_the_end = end >= len(text.rstrip()) - 2
            if at_the_end or lower[at:end].split()[0].strip(".") in _KNOWN:
                yield "name", at, end
    yield from _greetings(view)
    # A listed given name before a listed surname
    for match in _CAPITAL.finditer(text):
        if match[0].lower() in _GIVEN:
            at, end = match.start(), _name_end(view, match.start())
            words = lower[at:end].split()
            after = lower[end : end + 16].lstrip("'s ").split(" ")[0]
            if len(words) > 1 and words[-1] in _SURNAMES and after not in _AFTER_NAME:
                yield "name", at, end
