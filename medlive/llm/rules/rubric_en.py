"""English advice as what an answer should say: clauses told apart, put in the third person, and named."""

import re
from typing import Final, Literal, NamedTuple

from medlive.llm.rules.text import sentences

Form = Literal["states", "does", "avoids"]


class Phrase(NamedTuple):
    """What one clause of advice asks of an answer."""

    form: Form
    positive: str
    """The criterion that an answer should meet."""
    negative: str | None
    """The error that goes with it, where the clause forbids something."""
    leans: bool
    """Whether it points at something that was said before, so that it may not stand alone."""


_VERBS_TEXT: Final = (
    "take use apply avoid stop start begin continue try get do drink eat keep consult see visit go "
    "check have monitor "
    "rest reduce increase decrease limit wear wash clean put give repeat undergo perform maintain "
    "follow ask make "
    "restrict quit exercise sleep elevate ice rinse gargle contact call seek discuss consider switch "
    "change replace "
    "add combine complete finish return come watch look wait remove cover massage practise practice "
    "hold stay remain "
    "include consume inhale swallow chew insert discontinue withdraw taper schedule measure record "
    "test treat cut "
    "raise lower walk stretch leave let bring ensure isolate drain titrate double halve lose abstain "
    "refrain"
)
VERBS: Final = frozenset(_VERBS_TEXT.split())
_VERB: Final = "(?:" + "|".join(sorted(VERBS)) + ")"
_ADVERBS: Final = (
    r"(?:(?:also|then|first|just|always|only|either|definitely|certainly|strictly|gradually|gently|"
    r"immediately|simply|rather|still|really|please|kindly|preferably|regularly)\s+)*"
)
_LEAD: Final = re.compile(
    r"^(?:(?:and|but|so|also|then|now|well|ok|okay|however|moreover|besides|in addition|additionally|"
    r"furthermore|"
    r"therefore|hence|thus|first(?:ly| of all)?|second(?:ly)?|third(?:ly)?|finally|lastly|next|meanwhile|"
    r"in the meantime|for now|at present|right now|actually|basically|generally speaking|to be honest|"
    r"dear|hello|hi|"
    r"(?:one|another) (?:more )?(?:point|thing) (?:that )?i (?:would like|want) to (?:mention|add|"
    r"say) is(?: that)?|"
    r"in my (?:humble )?opinion|according to me|i (?:also |really |strongly |personally )?(?:think|"
    r"feel|believe|guess)"
    r"(?: that)?|my (?:guess|impression|opinion) is(?: that)?|as (?:i|you|we)(?: have| had|'ve)? "
    r"(?:\w+ )?(?:mentioned|said|told|stated|described)(?: (?:above|earlier|before))?)\b[\s,:]*)+",
    re.IGNORECASE,
)
_SPLIT: Final = re.compile(
    rf"\s*;\s*|,?\s+(?:and|but|so)\s+(?=(?:then |also |please |kindly )*(?:you|it|they|he|she|we|i|"
    rf"there|if)\s+\w+|"
    rf"(?:then |also |please |kindly |do not |don't |never )*{_VERB}\s+\w+)",
    re.IGNORECASE,
)
_WE_ADVISE: Final = re.compile(
    r"^(?:(?:i|we)(?:'d|'ll|\s+(?:would|will|can|could|do|shall|may|must))?(?:\s+(?:also|strongly|just|"
    r"only|rather|highly|"
    r"therefore|like to|want to))*\s+(?:suggest|recommend|advi[sc]e|urge|encourage|prefer|request)(?:ed)?|"
    r"(?:my |the |our )?(?:suggestion|advi[cs]e|recommendation)s?\s+(?:is|are|would be|will be|to you)|"
    r"(?:it(?:'s| is| would be| will be)?\s+)?(?:always |usually |very |quite |much )?(?:better|"
    r"advisable|recommended|best|"
    r"important|necessary|essential|advised|wise|preferable|good)(?:\s+(?:for you|if you))?(?=\s+(?:to|"
    r"that|not)\b)|"
    r"(?:you|the patient|patients?) (?:are|is) (?:strongly )?(?:advised|recommended|requested|"
    r"encouraged|supposed))\b[\s,:]*",
    re.IGNORECASE,
)
_MODAL: Final = re.compile(
    rf"^(?:you|the patient|one|he|she|your (?:son|daughter|child|mother|father|baby|husband|"
    rf"wife))\s+{_ADVERBS}"
    rf"(?:should|must|need(?:s)? to|ha(?:ve|s) to|ought to|had better|will (?:need|have) to|"
    rf"would need to|shall)\s+{_ADVERBS}"
    rf"(?P<no>not\s+|never\s+|avoid\s+)?{_ADVERBS}(?P<rest>[a-z].*)$",
    re.IGNORECASE | re.DOTALL,
)
_FORBID: Final = re.compile(
    rf"^{_ADVERBS}(?:do not|don't|dont|never|must not|should not|cannot|not to|you (?:should|must|"
    rf"can)\s?(?:not|n't)|"
    rf"you (?:shouldn't|mustn't|can't))\s+(?P<rest>[a-z].*)$",
    re.IGNORECASE | re.DOTALL,
)
_AVOID: Final = re.compile(
    rf"^{_ADVERBS}(?:you (?:should|must|need to|have to) )?(?:try to )?(?:avoid|stay away from|"
    rf"refrain from|abstain from|keep away from|against)\s+(?P<rest>.+)$",
    re.IGNORECASE | re.DOTALL,
)
_IMPERATIVE: Final = re.compile(rf"^{_ADVERBS}(?P<rest>{_VERB}\b.*)$", re.IGNORECASE | re.DOTALL)
_OBJECT: Final = re.compile(
    r"^(?:you|him|her|them|the patient|that you|that he|that she|for you|your (?:son|daughter|child|"
    r"mother|father))\s+"
    r"(?:should\s+|must\s+|to\s+)*",
    re.IGNORECASE,
)
_CONDITION: Final = re.compile(
    r"^(?P<if>(?:if|when|once|unless|in case|as long as|in (?:the )?case of|until)\b[^,]{3,160}?)"
    r"(?:,\s*(?:then\s+)?|\s+then\s+)(?P<rest>.{8,})$",
    re.IGNORECASE | re.DOTALL,
)
_HEADING: Final = re.compile(r"^(?P<head>[a-z][\w /-]{2,40}?)\s*:\s*(?P<rest>.{3,})$", re.IGNORECASE | re.DOTALL)
_TO_DO: Final = re.compile(
    r"treatment|management|investigation|tests?\b|plan|measure|medication|medicine|therapy|follow", re.IGNORECASE
)
_LEANS: Final = re.compile(
    r"^(?:it|this|that|these|those|they|he|she|such|another|both|the (?:same|above|other|latter)|one of)\b",
    re.IGNORECASE,
)
_IDLE: Final = re.compile(
    r"\bworr(?:y|ied)\b|\bpanic\b|^(?:yes|no|ok|sure|take care|get well|best wishes|"
    r"thank)\b[^,]{0,30}$|\brevert\b|"
    r"\b(?:this|the|our|your) (?:site|platform|forum|thread|post|poster|reply)\b",
    re.IGNORECASE,
)
_DOCTOR: Final = (
    (re.compile(r"\b(?:the|this|that)\s+(?:doctor|physician)s?\b", re.IGNORECASE), "a physician"),
    (
        re.compile(
            r"\b(?:your|his|her|their)\s+(?:own |local |family |treating |specialist )?(?:doctor|"
            r"physician)s?\b",
            re.IGNORECASE,
        ),
        "a physician",
    ),
    (re.compile(r"\bdoctors\b", re.IGNORECASE), "physicians"),
    (re.compile(r"\bdoctor\b", re.IGNORECASE), "physician"),
    (re.compile(r"\bpost(?=\s+(?:meal|dinner|lunch|breakfast|surgery|operation))", re.IGNORECASE), "after"),
)  # fmt: skip
_AGREE: Final = {
    "are": "is", "were": "was", "have": "has", "do": "does", "don't": "does not", "aren't": "is not",
    "haven't": "has not", "weren't": "was not", "go": "goes", "'re": "is", "am": "is",
}  # fmt: skip
_UNCHANGED_TEXT: Final = (
    "can could should would may might must will shall did had cannot can't couldn't shouldn't won't "
    "wouldn't "
    "didn't to for with in on at of by from and or but as than not"
)
_UNCHANGED: Final = frozenset(_UNCHANGED_TEXT.split())
_SUBJECT_AFTER_TEXT: Final = (
    "if when that because as once until unless while since where what how whether after before and or "
    "but so "
    "then although though which whatever whenever"
)
_SUBJECT_AFTER: Final = frozenset(_SUBJECT_AFTER_TEXT.split())
_YOU: Final = re.compile(
    r"(?:(?P<before>[\w'-]+)(?P<mark>[,:(]?)\s+)?\b(?P<you>you're|you've|you'll|you'd|"
    r"you)\b(?:\s+(?P<next>[\w']+))?",
    re.IGNORECASE,
)
LONGEST: Final = 320


def phrases(statement: str) -> list[Phrase]:
    """What each clause of a statement asks of an answer, in order; idle ones are left out."""
    found: list[Phrase] = []
    for sentence in sentences(statement, "en"):
        for clause in _SPLIT.split(sentence.text):
            if (phrase := _phrase(clause)) is not None:
                found.append(phrase)
    return found


def _phrase(clause: str) -> Phrase | None:
    text = _LEAD.sub("", " ".join(clause.split())).strip(" .,:;-–*•\"'")
    text = re.sub(r"^\(?\d{1,2}[.)]\s*", "", text)
    if len(text.split()) < 3 and not _IMPERATIVE.match(text):
        return None
    if len(text.split()) < 2 or _IDLE.search(text) or text.endswith("?"):
        return None
    if len(text) > LONGEST:
        cut = text.rfind(",", 0, LONGEST)
        text = text[: cut if cut > 40 else text.rfind(" ", 0, LONGEST)]
    return _named(text)


def _named(text: str) -> Phrase | None:
    """The phrase of one cleaned clause."""
    if match := _CONDITION.match(text):
        inner = _named(match["rest"])
        if inner is None or inner.form == "states":
            return Phrase("states", f"States that {_third(_lower(text))}.", None, leans=False)
        when = _third(_lower(match["if"]))
        negative = inner.negative and f"{inner.negative[:-1]} {when}."
        return Phrase(inner.form, f"{inner.positive[:-1]} {when}.", negative, inner.leans)
    if match := _HEADING.match(text):
        verb = "Recommends" if _TO_DO.search(match["head"]) else "Names"
        return Phrase(
            "does",
            f"{verb} {_third(_lower(match['rest']))} as {_third(_lower(match['head']))}.",
            None,
            leans=False,
        )
    leans = _LEANS.match(text) is not None
    if match := _WE_ADVISE.match(text):
        return _recommended(text[match.end() :], leans)
    if match := _AVOID.match(text):
        return _against(match["rest"])
    if match := _FORBID.match(text):
        return _forbidden(match["rest"])
    if match := _MODAL.match(text):
        if (match["no"] or "").strip().lower() == "avoid":
            return _against(match["rest"])
        return _forbidden(match["rest"]) if match["no"] else _done(match["rest"], leans=False)
    if match := _IMPERATIVE.match(text):
        return _done(match["rest"], leans=False)
    return Phrase("states", f"States that {_third(_lower(text))}.", None, leans)


def _recommended(rest: str, leans: bool) -> Phrase | None:
    rest = _OBJECT.sub("", rest.strip())
    rest = re.sub(
        r"^(?:that\s+)?(?:to\s+)?(?:you\s+(?:should\s+|must\s+)?)?", "", rest, count=1, flags=re.IGNORECASE
    )
    if match := re.match(r"(?:not(?: to)?|never|do not)\s+(.+)", rest, re.IGNORECASE | re.DOTALL):
        return _forbidden(match[1])
    if match := _AVOID.match(rest):
        return _against(match["rest"])
    if not rest:
        return None
    if _IMPERATIVE.match(rest):
        return _done(_IMPERATIVE.match(rest)["rest"], leans)  # type: ignore[index]
    return Phrase("does", f"Recommends {_third(_lower(rest))}.", None, leans and len(rest) < 12)


def _done(rest: str, leans: bool) -> Phrase:
    return Phrase("does", f"Advises the patient to {_third(_lower(rest))}.", None, leans or _points_back(rest))


def _forbidden(rest: str) -> Phrase:
    body = _third(_lower(rest))
    return Phrase(
        "avoids", f"Advises the patient not to {body}.", f"Advises the patient to {body}.", _points_back(rest)
    )


def _against(rest: str) -> Phrase:
    body = _third(_lower(rest))
    return Phrase("avoids", f"Advises against {body}.", f"Recommends {body}.", _points_back(rest))


def _points_back(rest: str) -> bool:
    """Whether an order's object is only a pronoun: "take it twice daily"."""
    return (
        re.match(r"^\w+\s+(?:it|this|that|these|those|them|so|the (?:same|above))\b", rest, re.IGNORECASE)
        is not None
    )


def _lower(text: str) -> str:
    first = text.split(" ", 1)[0]
    return (
        text if first == "I" or any(c.isupper() or c.isdigit() for c in first[1:]) else text[:1].lower() + text[1:]
    )


def _third(text: str) -> str:
    """The clause about the patient instead of to them, without the doctor."""
    for pattern, put in _DOCTOR:
        text = pattern.sub(put, text)
    text = re.sub(r"\byourself\b", "themselves", text, flags=re.IGNORECASE)
    text = re.sub(r"\byours?\b", "the patient's", text, flags=re.IGNORECASE)
    text = _YOU.sub(_you, text)
    return text.strip(" .,:;-–")


def _you(match: re.Match[str]) -> str:
    before, mark = match["before"], match["mark"] or ""
    lead = f"{before}{mark} " if before else ""
    you, after = match["you"].lower(), match["next"]
    if you != "you":
        verb = {"you're": "is", "you've": "has", "you'll": "will", "you'd": "would"}[you]
        return f"{lead}the patient {verb}" + (f" {after}" if after else "")
    if not after:
        return f"{lead}the patient"
    subject = not before or mark != "" or before.lower() in _SUBJECT_AFTER or after.lower() in _AGREE
    word = after.lower()
    if not subject or word in _UNCHANGED or word.endswith(("ly", "ed")):
        return f"{lead}the patient {after}"
    return f"{lead}the patient {_AGREE.get(word) or _with_s(after)}"


def _with_s(verb: str) -> str:
    if not verb.isalpha() or verb.endswith("s"):
        return verb
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("ch", "sh", "x", "o")) else "s")
