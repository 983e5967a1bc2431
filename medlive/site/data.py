"""What the browser scores: a board's cases as JSON, and its verdicts at two bits a criterion."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np

from medlive.evaluation.cases.selection import day_of
from medlive.evaluation.model import ADVICE, EvaluationCase
from medlive.harm.model import Severity
from medlive.integrity.digest import canonical_json
from medlive.site.model import BoardEntry, ModelEntry
from medlive.statistics.scale import Ability

NOT_MET, MET, UNGRADED, UNANSWERED = range(4)
NOT_READ: Final = "3"
_HARM: Final = {None: "0", Severity.MODERATE: "1", Severity.SEVERE: "2"}
"""The digit of the gravest confirmed harm."""
FILTERS: Final = ("language", "specialty", "theme", "difficulty")


def board_json(board: BoardEntry, abilities: Mapping[str, Ability]) -> bytes:
    """The board's description: models with their abilities, cases and the generator's start, without the verdicts."""
    cases: dict[str, object] = {"days": list(map(day_of, board.cases))}
    values = {}
    for kind in FILTERS:
        of_cases = list(map(attrgetter(kind), board.cases))
        values[kind] = sorted(filter(None, set(of_cases)))
        places = {value: place for place, value in enumerate(values[kind])}
        cases[kind] = [places.get(value, -1) for value in of_cases]
    cases["clusters"] = _clusters(board.cases)
    return canonical_json(
        {
            "title": board.title,
            "verdicts": f"{board.slug}.bin",
            "draws": board.table.draws,
            "seed": board.table.seed,
            "start": generator_start(board.table.seed),
            "metric": board.table.metric.value,
            "models": _models(board, abilities),
            "harm": [_harm(board.cases, model) for model in board.entered],
            "cases": cases,
            "values": values,
            "criteria": _criteria(board.cases),
        }
    ).encode("utf-8")


def _models(
    board: BoardEntry, abilities: Mapping[str, Ability]
) -> list[dict[str, object]]:
    """The models in the order in which they were entered."""
    models: list[dict[str, object]] = []
    for model in board.entered:
        page = f"models/{board.slug}-{model.slug}.html"
        entry = {"name": model.name, "cutoff": model.cutoff, "page": page}
        models.append(entry | {"ability": abilities[model.name].value})
    return models


def _criteria(cases: Sequence[EvaluationCase]) -> dict[str, object]:
    """All criteria in the order of the cases, and how many each case has."""
    counts, points, advice = [], [], []
    for case in cases:
        counts.append(len(case.criteria))
        for criterion in case.criteria:
            points.append(criterion.points)
            advice.append(int(criterion.origin == ADVICE))
    return {"counts": counts, "points": points, "advice": advice}


def _harm(cases: Sequence[EvaluationCase], model: ModelEntry) -> str:
    """What reading each case's answer for harm came to, a digit a case."""
    codes = []
    for case in cases:
        row = model.score.run.harm_of(case.case_id)
        if row is None or not row.reading.is_read:
            codes.append(NOT_READ)
        else:
            codes.append(_HARM[row.reading.worst])
    return "".join(codes)


def _clusters(cases: Sequence[EvaluationCase]) -> list[int] | None:
    """Each case's cluster as a number; None where every case is its own."""
    places: dict[tuple[bool, str], int] = {}
    numbers = []
    for case in cases:
        name = (case.cluster is None, case.cluster or case.case_id)
        numbers.append(places.setdefault(name, len(places)))
    return None if len(places) == len(cases) else numbers


def generator_start(seed: int) -> dict[str, str]:
    """The state and increment, in hexadecimal, with which NumPy's generator of this seed starts."""
    state: Any = np.random.PCG64(seed).state["state"]
    return {"state": f"{state['state']:x}", "increment": f"{state['inc']:x}"}


def verdict_bytes(board: BoardEntry) -> bytes:
    """Each model's verdicts, in the order of `entered`, four to a byte, the first in the lowest bits."""
    return b"".join(_packed(board.cases, model) for model in board.entered)


def _packed(cases: Sequence[EvaluationCase], model: ModelEntry) -> bytes:
    codes: list[int] = []
    for case in cases:
        met = model.verdicts.get(case.case_id, {})
        for criterion in case.criteria:
            codes.append(_code(met.get(criterion.id), case.case_id in model.answered))
    codes += [0] * (-len(codes) % 4)
    fours = np.array(codes, dtype=np.uint8).reshape(-1, 4)
    shifted = fours << np.array([0, 2, 4, 6], dtype=np.uint8)
    packed: bytes = np.bitwise_or.reduce(shifted, axis=1).astype(np.uint8).tobytes()
    return packed


def _code(met: bool | None, answered: bool) -> int:
    if not answered:
        return UNANSWERED
    if met is None:
        return UNGRADED
    return MET if met else NOT_MET
