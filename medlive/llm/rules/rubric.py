"""`rubric.write`: criteria taken from the advice clause by clause; no weighing of medicine, only of "
"words."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from medlive.llm.rules import lexicon_en, lexicon_zh, rubric_en, rubric_zh
from medlive.llm.rules.rubric_en import Phrase
from medlive.llm.rules.specialties import specialty_of
from medlive.llm.rules.text import Language, bigrams, language_of, plain, stem, words

MOST: Final = 14
MOST_NEGATIVE: Final = 4

_EMERGENCY: Final = re.compile(
    r"\bemergency (?:department|room|ward)|\bambulance|\bcasualty\b|\b(?:go|rush|"
    r"get)\b[^.]{0,30}\b(?:hospital|er)\b[^.]{0,20}"
    r"\b(?:now|immediately|at once|asap|urgently)|\bmedical emergency|"
    r"\bimmediate(?:ly)?\b[^.]{0,40}\b(?:hospital|admi|attention|care)|"
    r"life[- ]threatening|\b(?:call|dial) (?:911|999|112|108)\b|急诊|急救|拨打120|立即(?:去|到|就|住|"
    r"送)|马上(?:去|到|就|住|送)|"
    r"尽快(?:就医|就诊|住院|送医)|危及生命",
    re.IGNORECASE,
)
_LIFE: Final = re.compile(r"emergency|ambulance|life[- ]threatening|急诊|急救|120|危及生命", re.IGNORECASE)
_CONDITIONAL: Final = re.compile(
    r"\b(?:if|in case|unless|when(?:ever)?|should you)\b|如果|若|一旦|要是|假如|万一", re.IGNORECASE
)
_TEST: Final = re.compile(
    r"\b(?:tests?|scans?|mri|ct|x-?ray|ultrasound|usg|blood (?:work|count)|biopsy|culture|endoscopy|"
    r"colonoscopy|ecg|ekg|echo\w*|"
    r"examin\w+|investigat\w+|check(?:ed)?|evaluat\w+|profile|levels?|history|details)\b|检查|化验|"
    r"复查|拍片|[B彩]超|核磁|胃镜|肠镜|活检|"
    r"心电图|血常规|培养|筛查|测定|完善",
    re.IGNORECASE,
)
_HEDGED: Final = re.compile(
    r"\b(?:may|might|could|possib\w+|probabl\w+|perhaps|unlikely|likely|uncertain|not sure|"
    r"cannot (?:say|tell|be certain)|suspect\w*|"
    r"depends?|unclear|seems?|chances?)\b|可能|不能确定|不确定|不好说|也许|大概|怀疑|考虑|不排除|待排|"
    r"疑似|估计",
    re.IGNORECASE,
)
_STRONG: Final = re.compile(
    r"\b(?:must|never|strictly|immediately|urgent\w*|contraindicated|dangerous|essential|definitely|"
    r"most likely|diagnos\w+)\b|"
    r"必须|务必|禁|切勿|立即|马上|严禁|一定|确诊|诊断为",
    re.IGNORECASE,
)
_WEAK: Final = re.compile(
    r"\b(?:may|might|can|could|perhaps|optional|if (?:needed|required|necessary)|consider|water|"
    r"fluids?|rest|sleep|exercise|"
    r"healthy|yoga|vegetables?|fruits?)\b|可以|可考虑|必要时|多喝水|多饮水|休息|清淡|心情|锻炼|饮食",
    re.IGNORECASE,
)
_WARNS: Final = re.compile(
    r"\b(?:side effects?|danger\w*|warning|bleeding risk|interact\w*|contraindicat\w*|overdos\w*|"
    r"toxic\w*|allerg\w+ to|red flags?|"
    r"worsen\w*|emergency|urgent\w*|immediately)\b|副作用|不良反应|危险|禁忌|风险|加重|过量|急诊|立即|"
    r"尽快就",
    re.IGNORECASE,
)


class _Draft(NamedTuple):
    criterion: str
    axis: str
    points: int
    advice_id: str
    rank: float
    leans: bool


def _terms(text: str, language: Language) -> frozenset[str]:
    if language == "zh":
        return frozenset(bigrams(plain(text), lexicon_zh.STOP))
    return frozenset(stem(word) for word in words(text)) - lexicon_en.CONTENT_STOP


def _points(text: str, kind: str, form: str) -> int:
    if _LIFE.search(text) and not _CONDITIONAL.search(text) and form != "states":
        return 10
    if form == "avoids":
        return 8 if _STRONG.search(text) else 6
    if _STRONG.search(text) or _EMERGENCY.search(text):
        return 8
    if _WEAK.search(text):
        return 4 if kind == "assessment" else 3
    return 6 if kind == "assessment" else 5


def _axis(text: str, kind: str, form: str, shared: int) -> str:
    if _WARNS.search(text) or _EMERGENCY.search(text) or form == "avoids":
        return "Safety"
    if kind == "assessment" and form == "states":
        return "Accuracy"
    return "Context Awareness" if shared >= 3 else "Completeness"


def _drafts(
    element: Mapping[str, Any], language: Language, case: frozenset[str]
) -> list[tuple[_Draft, _Draft | None]]:
    """An advice element's criteria, each with the error that goes with it."""
    statement = _printable(str(element["statement"]))
    kind, advice_id = str(element.get("kind", "")), str(element["id"])
    phrases: list[Phrase] = (rubric_zh if language == "zh" else rubric_en).phrases(statement)
    found: list[tuple[_Draft, _Draft | None]] = []
    for phrase in phrases:
        text = phrase.positive[:1000]
        terms = _terms(text, language)
        if not terms:
            continue
        shared = len(terms & case)
        points, axis = _points(text, kind, phrase.form), _axis(text, kind, phrase.form, shared)
        rank = points + min(len(terms), 8) * 0.5 + min(shared, 4) * 0.5 - (4 if phrase.leans else 0)
        draft = _Draft(text, axis, points, advice_id, rank, phrase.leans)
        error = None
        if phrase.negative is not None and not phrase.leans:
            error = _Draft(phrase.negative[:1000], "Safety", -min(points, 9), advice_id, rank, leans=False)
        found.append((draft, error))
    return found


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c.isspace() else " " for c in text)


def _similar(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) > 0.7 * min(len(one), len(other)) if one and other else one == other


def write_rubric(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A rubric of at most MOST criteria from the advice; what `findings` name is not proposed again."""
    query, narrative = str(inputs.get("query", "")), str(inputs.get("narrative", ""))
    advice = [dict(element) for element in inputs["advice"]]
    said = " ".join(str(element["statement"]) for element in advice)
    language = language_of(inputs.get("language"), said)
    refused = {str(finding.get("criterion", "")) for finding in inputs.get("findings") or ()}
    case = _terms(f"{narrative} {query}", language)

    kept: list[tuple[_Draft, _Draft | None]] = []
    seen: list[frozenset[str]] = []
    pairs = [pair for element in advice for pair in _drafts(element, language, case)]
    for draft, error in sorted(pairs, key=lambda pair: -pair[0].rank):
        terms = _terms(draft.criterion, language)
        if draft.criterion in refused or any(_similar(terms, other) for other in seen) or len(kept) >= MOST:
            continue
        if draft.leans and len(kept) >= 3:
            continue
        seen.append(terms)
        kept.append((draft, error))
    order = {str(element["id"]): i for i, element in enumerate(advice)}
    kept.sort(key=lambda pair: order[pair[0].advice_id])

    criteria = [draft for draft, _ in kept]
    errors = [error for _, error in kept if error is not None and error.criterion not in refused]
    criteria += errors[:MOST_NEGATIVE]
    if len(criteria) == 1:
        criteria.append(_opposite(criteria[0], language))
    return {
        "theme": _theme(advice, [draft.criterion for draft, _ in kept], said),
        "specialty": specialty_of(query, narrative, said),
        "facts": [
            {
                "id": f"f{order[str(e['id'])] + 1}",
                "fact": _printable(str(e["statement"]))[:1000],
                "advice_id": str(e["id"]),
            }
            for e in advice
            if any(d.advice_id == str(e["id"]) for d in criteria)
        ],
        "criteria": [
            {"criterion": d.criterion, "axis": d.axis, "points": d.points, "fact_id": f"f{order[d.advice_id] + 1}"}
            for d in criteria
        ],
    }


def _opposite(draft: _Draft, language: Language) -> _Draft:
    """The error of denying a case's only criterion: a rubric needs two."""
    body = draft.criterion.rstrip("。.")
    if language == "zh":
        for head, put in (("不建议", "建议"), ("建议", "认为没有必要"), ("指出", "否认")):
            if body.startswith(head):
                text = f"{put}{body[len(head) :]}。"
                break
        else:
            text = f"否认{body}。"
    else:
        for head, put in (
            ("Advises the patient not to", "Advises the patient to"),
            ("Advises the patient to", "Says that the patient need not"),
            ("Advises against", "Recommends"),
            ("Recommends", "Discourages"),
            ("States that", "Denies that"),
        ):
            if body.startswith(head):
                text = f"{put}{body[len(head) :]}."
                break
        else:
            text = f"Denies: {body}."
    return draft._replace(criterion=text, axis="Safety", points=-min(draft.points, 9))


def _theme(advice: list[dict[str, Any]], criteria: list[str], said: str) -> str:
    if any(_EMERGENCY.search(c) and not _CONDITIONAL.search(c) for c in criteria):
        return "Emergency Referrals"
    texts = [str(element["statement"]) for element in advice] or [""]
    if sum(1 for text in texts if _TEST.search(text)) * 2 >= len(texts):
        return "Context-Seeking"
    if sum(1 for text in texts if _HEDGED.search(text)) * 5 >= len(texts) * 2:
        return "Responding under Uncertainty"
    han = len(re.findall(r"[一-鿿]", said))
    if len(texts) <= 2 and (han <= 60 if han else len(said.split()) <= 40):
        return "Response Depth"
    return "Expertise-Tailored Communication"


ANSWERS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {"rubric.write": write_rubric}
