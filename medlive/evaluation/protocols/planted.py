"""Make cases with one error planted in their advice, for a model to find (`plant`), and read them (`edit_of`).

MEDEC's task (seed 004 appendix A.3.17) on medlive's own cases. An edit is made in code, so that it is known and has a
kind (dose, drug, side, negation, omission); the case's tags record it, and `advice` holds the sentence as it was. About
half of the cases have no error: a model that always cries error gains nothing.
"""

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from medlive.errors import UsageError
from medlive.evaluation.model import EvaluationCase, Turn
from medlive.evidence.corpora.model import sentences

KINDS = ("dose", "drug", "side", "negation", "omission")
"""What is wrong with the edited sentence."""


@dataclass(frozen=True)
class Edit:
    """One planted error."""

    kind: str
    sentence: int
    """Which sentence, from 1; 0: one is missing."""
    before: str
    """The words that were replaced; for an omission the sentence that was there."""
    after: str


_DOSE = re.compile(
    r"(?<![\d.,])(\d+(?:\.\d+)?)(?=\s*(?:mg|mcg|µg|g|ml|IU|units?|毫克|微克|克|毫升|国际单位)(?![a-z]))",
    re.IGNORECASE,
)
_SIDE = re.compile(
    r"\b(?:left|right)\b(?=\s+(?:\w+\s+)?(?:arm|leg|knee|hip|foot|ankle|hand|wrist|elbow|shoulder|eye|ear|side|breast"
    r"|kidney|lung|ovary|testicle|lower|upper|flank|groin|thigh|calf)\b)"
    r"|[左右](?=侧|边|手|脚|腿|膝|眼|耳|肾|肺|乳|肩|髋|踝|下|上)",
    re.IGNORECASE,
)
_OTHER_SIDE = {
    "left": "right",
    "right": "left",
    "左": "右",
    "右": "左",
}
_ACTS_EN = (
    r"(?=\s+(?:be (?:used|taken|given|stopped|combined)|take|use|stop|give|eat|drink|apply|exceed|drive|smoke"
    r"|ignore|start|increase|inject|mix|combine|discontinue|repeat|lift)\b)"
)
_ACTS_ZH = "(?=[^，。；！？]{0,2}(?:[吃用喝服停饮驾]|接触|剧烈|吸烟|抽烟|进食|注射|怀孕|同房|熬夜))"
_NEGATIONS = {
    r"\b[Dd]o not\b": "do",
    r"\b[Dd]on't\b": "do",
    r"\bshould not\b": "should",
    r"\bshouldn't\b": "should",
    r"\bmust not\b": "must",
    "不要": "要",
    "不能": "能",
    "不宜": "宜",
    "不建议": "建议",
    "避免": "建议",
    "切勿": "可以",
}
"""Before an act that a patient is told not to do: without the negation the advice is another."""
_DRUGS = (
    ("warfarin", "ibuprofen"),
    ("metformin", "prednisone"),
    ("amoxicillin", "aciclovir"),
    ("insulin", "glucagon"),
    ("paracetamol", "prednisolone"),
    ("acetaminophen", "prednisone"),
    ("aspirin", "vitamin K"),
    ("omeprazole", "diclofenac"),
    ("levothyroxine", "carbimazole"),
    ("lisinopril", "salbutamol"),
    ("cetirizine", "codeine"),
    ("azithromycin", "fluconazole"),
    ("prednisone", "metformin"),
    ("ibuprofen", "warfarin"),
    ("二甲双胍", "泼尼松"),
    ("阿莫西林", "阿昔洛韦"),
    ("阿司匹林", "维生素K"),
    ("布洛芬", "华法林"),
    ("对乙酰氨基酚", "泼尼松"),
    ("奥美拉唑", "双氯芬酸"),
    ("左甲状腺素", "甲巯咪唑"),
    ("头孢", "利巴韦林"),
    ("胰岛素", "胰高血糖素"),
)
"""A drug, and one whose use in its place no physician would call the same."""
_NEGATED = re.compile(
    r"\b(?:not|no|never|avoid|stop|without|instead)\b|n't\b|[不勿无停]|避免|没有|代替",
    re.IGNORECASE,
)
"""Of a drug that is not to be taken, or does not help, the same may be true of another one."""
_ALARM = re.compile(
    r"\b(?:emergency|immediately|at once|urgent(?:ly)?|right away|call an? ambulance|911|112|without delay)\b"
    r"|立即|立刻|马上|急诊|尽快就[医诊]|及时就[医诊]|120",
    re.IGNORECASE,
)
"""Words of a sentence that says when to seek help at once, which may be left out."""
_INSTRUCTIONS = {
    "en": (
        "A physician's advice to this patient follows, a sentence a line. One sentence may have been changed so "
        "that it holds a medical error, or the sentence may have been taken out that says when to seek help at "
        "once; or nothing was changed. Other shortcomings do not count. Reply with one JSON object and nothing "
        'else: {"error": true or false, "sentence": the number of the changed sentence, 0 for the one taken out, '
        'null for neither, "correction": "the sentence as it should read, or the one taken out; "" for neither"}'
    ),
    "zh": (
        "下面是医生给这位患者的建议，每行一句。其中一句可能被改动而含有医学错误，"
        "或者说明何时须立即就医的那一句可能被删去；也可能没有任何改动。其他不足不算。只回复一个JSON对象："
        '{"error": true或false, "sentence": 被改动句子的编号，删去为0，没有改动为null, '
        '"correction": "改正后的句子，或被删去的那一句；没有改动则为空"}'
    ),
}


def edits(text: str) -> Iterator[tuple[Edit, list[str]]]:
    """Every error that can be planted in a text, with the sentences as they then read."""
    lines = _lines(text)
    for place, line in enumerate(lines):
        rest = lines[place + 1 :]
        for kind, words, other in _changes(line):
            # A small letter would give the error away.
            after = other[0].upper() + other[1:] if words[0][0].isupper() else other
            changed = line[: words.start()] + after + line[words.end() :]
            edit = Edit(kind, place + 1, words[0], after)
            yield edit, [*lines[:place], changed, *rest]
        if _ALARM.search(line) and len(lines) > 1:
            yield Edit("omission", 0, line, ""), [*lines[:place], *rest]


def _lines(text: str) -> list[str]:
    """The sentences of a text, without empty ones."""
    return list(filter(None, map(str.strip, sentences(text))))


def _changes(line: str) -> Iterator[tuple[str, re.Match[str], str]]:
    """What can be changed in a sentence: kind, the words, and what they become."""
    for match in _DOSE.finditer(line):
        value = float(match[1])
        yield "dose", match, f"{value / 10 if value >= 1000 else value * 10:g}"
    for match in _SIDE.finditer(line):
        yield "side", match, _OTHER_SIDE[match[0].lower()]
    for pattern, other in _NEGATIONS.items():
        acts = _ACTS_EN if pattern.startswith("\\b") else _ACTS_ZH
        for match in re.finditer(pattern + acts, line):
            yield "negation", match, other
    if _NEGATED.search(line):
        return
    for drug, other in _DRUGS:
        pattern = rf"\b{drug}\b" if drug.isascii() else drug
        for match in re.finditer(pattern, line, re.IGNORECASE):
            yield "drug", match, other


def plant(
    cases: Iterable[EvaluationCase],
    *,
    seed: int = 0,
) -> tuple[list[EvaluationCase], str]:
    """Cases that ask a model to find an error in advice, and a note on them: about half with one error.

    Kinds are drawn with the same weight where a case allows several, so that doses do not crowd out the rest. The
    others are the correct ones, up to as many as have an error: first advice that says when to seek help at once,
    since nobody can tell a sentence that was taken out from one that was never there.
    """
    made: list[EvaluationCase] = []
    whole: list[tuple[bool, float, EvaluationCase]] = []
    for case in cases:
        rng = random.Random(f"{seed} {case.case_id}")
        by_kind: dict[str, list[tuple[Edit, list[str]]]] = {}
        for edit, lines in edits(case.advice):
            by_kind.setdefault(edit.kind, []).append((edit, lines))
        if by_kind and rng.random() < 2 / 3:
            edit, lines = rng.choice(by_kind[rng.choice(list(by_kind))])
            made.append(_task(case, lines, edit))
        elif case.advice.strip():
            task = _task(case, _lines(case.advice), None)
            whole.append((not _ALARM.search(case.advice), rng.random(), task))
    whole.sort(key=lambda item: item[:2])
    kept = [case for *_, case in whole[: len(made)]]
    note = f"{len(made)} cases with an error, {len(kept)} without"
    return sorted([*made, *kept], key=lambda case: case.case_id), note


def _task(
    case: EvaluationCase,
    lines: list[str],
    edit: Edit | None,
) -> EvaluationCase:
    """The case that asks for the error in these sentences; its tags and advice record the edit, if any."""
    language = "zh" if case.language == "zh" else "en"
    numbered = "\n".join(f"{n}. {line}" for n, line in enumerate(lines, start=1))
    tags, original = ["error:none"], ""
    if edit is not None:
        original = edit.before
        if edit.sentence:
            original = _lines(case.advice)[edit.sentence - 1]
        tags = [
            f"error:{edit.kind}",
            f"sentence:{edit.sentence}",
            f"before:{edit.before}",
            f"after:{edit.after}",
        ]
    text = f"{case.question}\n\n{_INSTRUCTIONS[language]}\n\n{numbered}"
    return replace(
        case,
        narrative="",
        query=text,
        advice=original,
        criteria=(),
        turns=(Turn("user", text),),
        after=None,
        tags=tuple(tags),
    )


def edit_of(case: EvaluationCase) -> Edit | None:
    """The error that was planted in a case; None: none was. Raises UsageError for a case not made by `plant`."""
    tags = dict(tag.split(":", 1) for tag in case.tags if ":" in tag)
    if "error" not in tags:
        raise UsageError(
            f"case {case.case_id} was not made by `medlive eval protocol errors`"
        )
    if tags["error"] == "none":
        return None
    return Edit(
        tags["error"],
        int(tags["sentence"]),
        tags["before"],
        tags["after"],
    )
