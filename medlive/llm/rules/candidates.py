"""Two sample models for evaluation: what they are is in their answers, and neither knows any medicine.

`sample-generic` gives every question the same careful advice; `sample-evidence` copies the sentences of
retrieved passages that share most words with the question. They exist so that a table has two rows to compare.
"""

import re
from collections.abc import Awaitable, Callable, Sequence

from medlive.llm.rules.text import (
    Language,
    bigrams,
    language_of,
    sentences,
    stem,
    words,
)

# Passages' texts for a question, best first
Search = Callable[[str], Awaitable[Sequence[str]]]

MODELS = ("sample-generic", "sample-evidence")

_GENERIC: dict[Language, str] = {
    "en": (
        "This is a standard answer that does not look at the details of the question.\n"
        "The cause cannot be told for certain from a description alone. Please see a physician, who can take the "
        "full history, examine you and decide which tests are needed. Until then rest, drink enough, do not "
        "start, stop or change any prescription medicine on your own, and write down how the symptoms develop. "
        "Go to an emergency department at once if you have severe or sudden pain, trouble breathing, chest pain, "
        "confusion, fainting, weakness on one side, heavy bleeding, or a high fever that does not fall."
    ),
    "zh": (
        "这是一段标准回答，没有针对问题的细节。\n"
        "仅凭文字描述不能确定病因。建议到医院就诊，由医师了解完整病史、进行体格检查，并决定需要哪些检查。在此之前注意休息，"
        "适量饮水，不要自行开始、停止或更改处方药，并记录症状的变化。如果出现剧烈或突发的疼痛、呼吸困难、胸痛、意识不清、"
        "晕厥、一侧肢体无力、大量出血或持续高热，请立即到急诊就诊。"
    ),
}
_PREFACE: dict[Language, str] = {
    "en": "These sentences were copied from literature because they share words with the question:\n",
    "zh": "以下句子因与问题用词相近而摘自文献：\n",
}
_LONGEST = 5  # Sentences in an extractive answer
_EVERYDAY_TEXT = (
    "a an the and or but if of in on at to for from with by is are was were be been am do does did has have had "
    "i me my you your he she it its his her they them this that these those there what which who when why how "
    "can could should would may might will shall not no any some all so as than then about also patient please "
    "doctor help year old day week month know want get take"
)
_EVERYDAY = frozenset(map(stem, _EVERYDAY_TEXT.split()))
_STOP_ZH = re.compile(
    r"[的了吗呢吧啊是我你您他她有在和与就都也不会要能可以什么怎么请问患者医生这那个一]"
)


def generic_answer(question: str) -> str:
    """The same careful advice for every question, in the question's language."""
    return _GENERIC[language_of(None, question)]


def evidence_answer(question: str, passages: Sequence[str]) -> str:
    """The passages' sentences nearest to the question, verbatim; the generic answer where none is near."""
    wanted = _terms(question)
    places: dict[str, int] = {}
    shares: dict[str, float] = {}
    for rank, passage in enumerate(passages):
        for sentence in sentences(passage):
            text = " ".join(sentence.split())
            terms = _terms(text)
            shared = len(terms & wanted)
            is_said = len(text) <= 500 and text[-1] not in "?？"
            if shared >= 2 and is_said and text not in places:
                places[text] = len(places)
                shares[text] = shared / (len(terms) + 8) - 0.01 * rank
    if not places:
        return generic_answer(question)
    best = sorted(places, key=shares.__getitem__, reverse=True)[:_LONGEST]
    preface = _PREFACE[language_of(None, question)]
    return preface + "\n".join(sorted(best, key=places.__getitem__))


def _terms(text: str) -> set[str]:
    text = text[:20_000]
    return (set(map(stem, words(text))) - _EVERYDAY) | bigrams(text, _STOP_ZH)
