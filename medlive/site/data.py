"""What the browser scores: a board's cases as JSON, and its verdicts at two bits a criterion."""

from typing import Any, Final

import numpy as np

from medlive.evaluation.cases.selection import day_of
from medlive.evaluation.model import ADVICE
from medlive.harm.model import Severity
from medlive.integrity.digest import canonical_json
from medlive.site.model import BoardEntry

CODES: Final = {
    False: 0,
    True: 1,
    None: 2,
}
"""Verdict → its two bits; None is ungraded."""
UNANSWERED: Final = 3
NOT_READ: Final = "3"
_HARM: Final = {
    None: "0",
    Severity.MODERATE: "1",
    Severity.SEVERE: "2",
}
"""The digit of the gravest confirmed harm."""
FILTERS: Final = ("language", "specialty", "theme", "difficulty")


def board_json(board: BoardEntry) -> bytes:
    """The board's description: models, cases and the generator's start, without the verdicts."""
    days = []
    clusters: dict[tuple[bool, str], int] = {}
    numbers = []
    counts = []
    points = []
    advice = []
    for case in board.cases:
        days.append(day_of(case))
        cluster = case.cluster is None, case.cluster or case.case_id
        numbers.append(clusters.setdefault(cluster, len(clusters)))
        counts.append(len(case.criteria))
        for criterion in case.criteria:
            points.append(criterion.points)
            advice.append(int(criterion.origin == ADVICE))
    each_is_its_own = len(clusters) == len(board.cases)
    cases: dict[str, object] = {
        "days": days,
        "clusters": None if each_is_its_own else numbers,
    }
    values = {}
    for kind in FILTERS:
        of_cases = [getattr(case, kind) for case in board.cases]
        values[kind] = sorted(set(of_cases) - {None, ""})
        places = {value: place for place, value in enumerate(values[kind])}
        cases[kind] = [places.get(value, -1) for value in of_cases]
    models = []
    harm = []
    for model in board.entered:
        models.append({"name": model.name, "cutoff": model.cutoff})
        digits = ""
        for case in board.cases:
            row = model.score.run.harm_of(case.case_id)
            is_read = row is not None and row.reading.is_read
            digits += _HARM[row.reading.worst] if row and is_read else NOT_READ
        harm.append(digits)
    description = {
        "title": board.title,
        "verdicts": f"{board.slug}.bin",
        "draws": board.table.draws,
        "start": generator_start(board.table.seed),
        "metric": board.table.metric.value,
        "models": models,
        "harm": harm,
        "cases": cases,
        "values": values,
        "criteria": {
            "counts": counts,
            "points": points,
            "advice": advice,
        },
    }
    return canonical_json(description).encode("utf-8")


def generator_start(seed: int) -> dict[str, str]:
    """The state and increment, in hexadecimal, with which NumPy's generator of this seed starts."""
    state: Any = np.random.PCG64(seed).state["state"]
    return {"state": f"{state['state']:x}", "increment": f"{state['inc']:x}"}


def verdict_bytes(board: BoardEntry) -> bytes:
    """Each model's verdicts, in the order of `entered`, four to a byte, the first in the lowest bits."""
    packed = b""
    for model in board.entered:
        codes = []
        for case in board.cases:
            met = model.score.run.answered_verdicts(case.case_id)
            for criterion in case.criteria:
                verdict = UNANSWERED if met is None else CODES[met.get(criterion.id)]
                codes.append(verdict)
        codes += [0] * (-len(codes) % 4)
        fours = np.array(codes, dtype=np.uint8).reshape(-1, 4)
        packed += (fours << [0, 2, 4, 6]).sum(axis=1).astype(np.uint8).tobytes()
    return packed
