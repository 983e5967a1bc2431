"""MEDIC's pairwise comparison: two models' answers to the same case, in both orders, as ratings with intervals.

A model wins a match only where it is preferred in both orders; everything else that was compared is a draw, and a
comparison without a usable reply is no match (seed 004 §3, appendix A.3.10, A.7.10; docs/method.md §5). An answer
that is first called equal is a draw already, so its second order is not asked.

Every pair of models meets on every case that both answered, or on as many as `matches` allows, drawn by lot.
"""

import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, combinations
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from medlive.errors import UsageError
from medlive.evaluation.grading.questions import JudgeReplies, Question
from medlive.evaluation.model import Answer, EvaluationCase
from medlive.evaluation.protocols.model import (
    Cell,
    Material,
    Protocol,
    Results,
    Table,
    has_reference,
)
from medlive.evaluation.protocols.pairwise.bradley_terry import (
    Match,
    points,
    rank_agreement,
    ratings,
)
from medlive.grader.reply import Reasoning
from medlive.statistics.bootstrap import Floats
from medlive.statistics.correlation import kendall, spearman

TASK: Final = "protocol.pairwise"
_COEFFICIENTS: Final = {"Kendall": kendall, "Spearman": spearman}
CRITERIA: Final = ("relevance", "completeness", "safety", "ethics", "clarity")
Side = Literal["first", "second", "equal"]


class PairReply(BaseModel):
    """`protocol.pairwise`: which of two answers is better, by criterion and all in all.

    Inputs: language, question, first, second.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    reasoning: Reasoning
    relevance: Side
    completeness: Side
    safety: Side
    ethics: Side
    clarity: Side
    better: Side


def check_pair(reply: PairReply) -> str | None:
    """What is wrong with a reply: a preference that no criterion shares, while one speaks for the other side."""
    sides = {getattr(reply, name) for name in CRITERIA}
    if reply.better != "equal" and reply.better not in sides and sides != {"equal"}:
        return f"better is {reply.better!r}, and no criterion is"
    return None


class Pair(NamedTuple):
    """A match that can be asked for: places of two models, and of a case."""

    first: int
    second: int
    case: int


class Pairwise(Protocol):
    """See the module."""

    name: ClassVar[str] = "pairwise"
    about: ClassVar[str] = "two models' answers side by side: Elo ratings (MEDIC)"
    figure: ClassVar[str] = "Elo, mean 1000"

    matches: Annotated[
        int | None,
        Field(ge=1, description="matches at most; none: every pair on every case"),
    ] = None
    draws: Annotated[int, Field(ge=1, description="draws of the bootstrap")] = 1000
    seed: Annotated[
        int, Field(ge=0, description="where draws, orders and cases begin")
    ] = 0
    _last: "tuple[Material, _Hall] | None" = PrivateAttr(default=None)

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Two runs or more, on cases with a reference."""
        return len(material) > 1 and has_reference(material)

    def questions(self, material: Material, found: JudgeReplies) -> Iterator[Question]:
        """The questions of all matches, as far as they can be asked."""
        hall = self._hall(material)
        for pair in hall.pairs[: self.matches]:
            yield from hall.questions(pair, found)

    def _hall(self, material: Material) -> "_Hall":
        """Who can meet whom, made once for the material: every stage looks at it."""
        if self._last is None or self._last[0] is not material:
            self._last = (material, _Hall(material, self.seed))
        return self._last[1]

    def results(self, material: Material, found: JudgeReplies) -> Results:
        """Ratings over all judges on record, what each model took from each, criteria, and what the order did."""
        hall = self._hall(material)
        judges = _by_name([found, *found.others], hall)
        played = {name: hall.matches(judge) for name, judge in judges.items()}
        pooled = list(chain.from_iterable(played.values()))
        rated = ratings(pooled, hall.models, draws=self.draws, seed=self.seed)
        won = points(pooled, hall.models)
        figures: dict[str, float | None] = {}
        rows: list[list[Cell]] = []
        for place, (name, rating) in enumerate(zip(hall.names, rated, strict=True)):
            figures[name] = rating.elo if rating else None
            elo: list[Cell] = [None, None, None]
            if rating:
                elo = [rating.elo, rating.low, rating.high]
            rows.append([name, *elo, _met(won, place), _share(won, place)])
        rows.sort(key=lambda row: -(figures[str(row[0])] or -np.inf))
        titles = (
            "model",
            "Elo",
            "low",
            "high",
            "matches",
            "share of points",
        )
        note = "Bradley-Terry on wins in both orders, all else draws; 95 % intervals over cases; NA: no match."
        several = len(judges) > 1
        if several:
            note += f" Pooled over {', '.join(judges)}."
        tables = [
            Table("Ratings", titles, rows, note),
            _between(hall.names, won),
            _criteria(hall, judges.values()),
        ]
        if several:
            tables.append(self._agreement(hall, played))
        notes = []
        for name, judge in judges.items():
            for judge_note in hall.order_notes(judge):
                notes.append(f"{name}: {judge_note}" if several else judge_note)
        return Results(tables, figures, notes)

    def _agreement(self, hall: "_Hall", played: Mapping[str, list[Match]]) -> Table:
        rows: list[list[Cell]] = []
        for first, other in combinations(played, 2):
            for coefficient, statistic in _COEFFICIENTS.items():
                models, *figures = rank_agreement(
                    statistic,
                    played[first],
                    played[other],
                    hall.models,
                    draws=self.draws,
                    seed=self.seed,
                )
                rows.append([first, other, coefficient, *figures, models])
        note = "Of the models' ratings; 95 % intervals over cases, drawn alike for both; NA: fewer than three models."
        titles = (
            "judge",
            "other judge",
            "coefficient",
            "value",
            "low",
            "high",
            "models",
        )
        return Table("How alike judges rank models", titles, rows, note)


def _by_name(judges: Iterable[JudgeReplies], hall: "_Hall") -> dict[str, JudgeReplies]:
    """The judges with a match, by their models' names, made unique."""
    named: dict[str, JudgeReplies] = {}
    for judge in judges:
        if hall.matches(judge):
            name = judge.identity.model
            named[name if name not in named else f"{name} ({len(named) + 1})"] = judge
    return named


class _Hall:
    """The answers that can meet, and what was found of their meetings."""

    def __init__(self, material: Material, seed: int) -> None:
        self.names = [run.label for run in material]
        self.models = len(self.names)
        if self.models < 2:
            raise UsageError("a comparison takes the runs of two models or more")
        # By the question too: a case that was revised between two runs is another one.
        self._answers: list[dict[_CaseKey, _Answered]] = []
        for run in material:
            answered = {}
            for case, answer in run.answered():
                key = _CaseKey(case.case_id, case.question)
                answered[key] = _Answered(case, answer)
            self._answers.append(answered)
        self._cases = list(dict.fromkeys(chain.from_iterable(self._answers)))
        possible: list[Pair] = []
        for first, second in combinations(range(self.models), 2):
            common = self._answers[first].keys() & self._answers[second].keys()
            for place, case_key in enumerate(self._cases):
                if case_key in common:
                    possible.append(Pair(first, second, place))
        rng = random.Random(seed)
        # By lot: which case a pair of models meets on first, and which of the two stands first.
        lots = {pair: (rng.random(), rng.random()) for pair in possible}
        self.pairs = sorted(possible, key=lambda pair: lots[pair][0])
        self._order = {pair: lot[1] for pair, lot in lots.items()}
        self._made: dict[Pair, tuple[Question, Question]] = {}

    def _asked(self, pair: Pair) -> tuple[Question, Question]:
        """A match's questions in both orders, the one drawn by lot first."""
        if pair not in self._made:
            key = self._cases[pair.case]
            case, first = self._answers[pair.first][key]
            second = self._answers[pair.second][key].answer
            both = _question(case, first, second), _question(case, second, first)
            self._made[pair] = both if self._straight(pair) else both[::-1]
        return self._made[pair]

    def _straight(self, pair: Pair) -> bool:
        """Whether the order in which the pair's first model stands first is asked first."""
        return self._order[pair] < 0.5

    def questions(self, pair: Pair, found: JudgeReplies) -> Iterator[Question]:
        """The first order, and the second where the first named a winner."""
        question, other = self._asked(pair)
        yield question
        reply = found.get(question, PairReply)
        if reply is not None and reply.better != "equal":
            yield other

    def replies(self, pair: Pair, found: JudgeReplies) -> list["_Placed"]:
        """The usable replies, each with which answer stood first."""
        straight = self._straight(pair)
        replies = []
        orders = straight, not straight
        for question, stood in zip(self._asked(pair), orders, strict=True):
            reply = found.get(question, PairReply)
            if reply is not None:
                replies.append(_Placed(reply, stood))
        return replies

    def score(
        self, pair: Pair, found: JudgeReplies, criterion: str = "better"
    ) -> float | None:
        """1: the pair's first model won, 0: its second, 0.5: a draw; None: not compared."""
        replies = self.replies(pair, found)
        if not replies:
            return None
        if len(replies) == 1:
            return 0.5 if replies[0].reply.better == "equal" else None
        preferred = {placed.preferred(criterion) for placed in replies}
        return 0.5 if len(preferred) > 1 else preferred.pop()

    def matches(self, found: JudgeReplies, criterion: str = "better") -> list[Match]:
        """Every match that was compared."""
        matches = []
        for pair in self.pairs:
            score = self.score(pair, found, criterion)
            if score is not None:
                matches.append(Match(pair.first, pair.second, score, pair.case))
        return matches

    def order_notes(self, found: JudgeReplies) -> list[str]:
        """How often place decided instead of content."""
        asked = by_place = 0
        for pair in self.pairs:
            replies = self.replies(pair, found)
            if len(replies) == 2:
                first, second = (placed.reply.better for placed in replies)
                asked += 1
                by_place += first == second != "equal"
        if not asked:
            return []
        return [
            f"in {by_place} of {asked} matches asked in both orders, place decided: one side won twice"
        ]


def _question(case: EvaluationCase, first: Answer, second: Answer) -> Question:
    inputs = {
        "language": case.language,
        "question": case.question,
        "first": first.response,
        "second": second.response,
    }
    return Question(
        case_id=case.case_id,
        part="comparison",
        task=TASK,
        inputs=inputs,
        reply=PairReply,
        check=check_pair,
    )


class _CaseKey(NamedTuple):
    case_id: str
    question: str


class _Answered(NamedTuple):
    case: EvaluationCase
    answer: Answer


class _Placed(NamedTuple):
    """A reply, and whether the pair's first model stood first."""

    reply: PairReply
    straight: bool

    def preferred(self, criterion: str) -> float:
        """1: the pair's first model, 0: its second, 0.5: neither."""
        side = getattr(self.reply, criterion)
        if side == "equal":
            return 0.5
        return float((side == "first") is self.straight)


def _between(names: list[str], won: Floats) -> Table:
    games = won + won.T
    shares = np.divide(won, games, out=np.full_like(won, np.nan), where=games > 0)
    rows: list[list[Cell]] = []
    for name, row in zip(names, shares.tolist(), strict=True):
        rows.append([name, *(None if np.isnan(share) else share for share in row)])
    note = "The share of the points that the row's model took from the column's; NA: they did not meet."
    return Table("Against one another", ["model", *names], rows, note)


def _criteria(hall: _Hall, judges: Collection[JudgeReplies]) -> Table:
    """Each model's share of the points by criterion."""
    taken = []
    for criterion in CRITERIA:
        matches: list[Match] = []
        for judge in judges:
            matches += hall.matches(judge, criterion)
        taken.append(points(matches, hall.models))
    rows: list[list[Cell]] = []
    for place, name in enumerate(hall.names):
        rows.append([name, *(_share(won, place) for won in taken)])
    note = "The share of the points in all matches of a model; a criterion is won where both orders agree."
    return Table("By criterion", ["model", *CRITERIA], rows, note)


def _met(won: Floats, place: int) -> int:
    """A model's matches."""
    return int(won[place].sum() + won[:, place].sum())


def _share(won: Floats, place: int) -> float | None:
    """A model's share of the points in all its matches."""
    games = float(won[place].sum() + won[:, place].sum())
    return float(won[place].sum()) / games if games else None
