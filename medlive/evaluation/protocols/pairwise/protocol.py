"""MEDIC's pairwise comparison: two models' answers to the same case, in both orders, as ratings with intervals.

A model wins a match only where it is preferred in both orders; everything else that was compared is a draw, and a
comparison without a usable reply is no match (seed 004 §3, appendix A.3.10, A.7.10; docs/method.md §5). An answer
that is first called equal is a draw already, so its second order is not asked.

Every pair of models meets on every case that both answered, or on as many as `matches` allows, drawn by lot.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from medlive.errors import UsageError
from medlive.evaluation.grading.questions import JudgeReplies, Question
from medlive.evaluation.protocols.model import (
    Cell,
    DrawsOption,
    Material,
    Protocol,
    Results,
    Table,
    has_reference,
)
from medlive.evaluation.protocols.pairwise.bradley_terry import (
    Match,
    points,
    ratings,
)
from medlive.grader.reply import Words
from medlive.statistics.bootstrap import Floats
from medlive.statistics.correlation import spearman

TASK: Final = "protocol.pairwise"
CRITERIA: Final = ("relevance", "completeness", "safety", "ethics", "clarity")
Side = Literal["first", "second", "equal"]


class PairReply(BaseModel):
    """`protocol.pairwise`: which of two answers is better, by criterion and all in all.

    Inputs: language, question, first, second.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
    )

    reasoning: Words
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
        Field(
            ge=1,
            description="matches at most; none: every pair on every case",
        ),
    ] = None
    draws: DrawsOption = 1000
    seed: Annotated[
        int,
        Field(
            ge=0,
            description="where draws, orders and cases begin",
        ),
    ] = 0
    _last: "tuple[Material, _Hall] | None" = PrivateAttr(default=None)

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Two runs or more, on cases with a reference."""
        return len(material) > 1 and has_reference(material)

    def questions(
        self,
        material: Material,
        found: JudgeReplies,
    ) -> Iterator[Question]:
        """The questions of all matches, as far as they can be asked."""
        hall = self._hall(material)
        for pair in hall.pairs[: self.matches]:
            yield from hall.questions(pair, found)

    def _hall(self, material: Material) -> "_Hall":
        """Who can meet whom, made once for the material: every stage looks at it."""
        if self._last is None or self._last[0] is not material:
            self._last = (material, _Hall(material, self.seed))
        return self._last[1]

    def results(
        self,
        material: Material,
        found: JudgeReplies,
    ) -> Results:
        """Ratings over all judges on record, what each model took from each, criteria, and what the order did."""
        hall = self._hall(material)
        judges: dict[str, JudgeReplies] = {}
        for judge in (found, *found.others):
            if hall.matches([judge]):
                name = judge.identity.model
                again = f"{name} ({len(judges) + 1})"
                judges[again if name in judges else name] = judge
        pooled = hall.matches(judges.values())
        rated = ratings(
            pooled,
            hall.models,
            draws=self.draws,
            seed=self.seed,
        )
        won = points(pooled, hall.models)
        figures: dict[str, float | None] = {}
        rows: list[list[Cell]] = []
        for place, (name, rating) in enumerate(zip(hall.names, rated, strict=True)):
            figures[name] = rating.elo if rating else None
            elo: list[Cell] = [None, None, None]
            if rating:
                elo = [rating.elo, rating.low, rating.high]
            met = int(won[place].sum() + won[:, place].sum())
            rows.append([name, *elo, met, _share(won, place)])
        rows.sort(key=lambda row: -(figures[str(row[0])] or -np.inf))
        titles = ("model", "Elo", "low", "high", "matches", "share of points")
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
            tables.append(_agreement(hall, judges))
        notes = []
        for name, judge in judges.items():
            for judge_note in hall.order_notes(judge):
                notes.append(f"{name}: {judge_note}" if several else judge_note)
        return Results(tables, figures, notes)


class _Hall:
    """The answers that can meet, and what was found of their meetings."""

    def __init__(
        self,
        material: Material,
        seed: int,
    ) -> None:
        self.names = [run.label for run in material]
        self.models = len(self.names)
        if self.models < 2:
            raise UsageError("a comparison takes the runs of two models or more")
        # By the question too: a case that was revised between two runs is another one.
        self._answers: list[dict[tuple[str, str], str]] = []
        self._language: dict[tuple[str, str], str] = {}
        for run in material:
            answered = {}
            for case, answer in run.answered():
                key = case.case_id, case.question
                answered[key] = answer.response
                self._language[key] = case.language
            self._answers.append(answered)
        self._cases = list(self._language)
        possible: list[Pair] = []
        for first, second in combinations(range(self.models), 2):
            common = self._answers[first].keys() & self._answers[second].keys()
            for place, key in enumerate(self._cases):
                if key in common:
                    possible.append(Pair(first, second, place))
        rng = random.Random(seed)
        # By lot: which case a pair of models meets on first, and which of the two stands first.
        lots = {pair: (rng.random(), rng.random()) for pair in possible}
        self.pairs = sorted(possible, key=lambda pair: lots[pair][0])
        self._straight = {pair: lot[1] < 0.5 for pair, lot in lots.items()}
        self._made: dict[Pair, dict[bool, Question]] = {}

    def _asked(self, pair: Pair) -> dict[bool, Question]:
        """A match's questions in both orders, by whether the pair's first model stands first, in the lot's order."""
        if pair not in self._made:
            key = self._cases[pair.case]
            both = self._answers[pair.first][key], self._answers[pair.second][key]
            straight = self._straight[pair]
            questions = {}
            for order in (straight, not straight):
                first, second = both if order else both[::-1]
                questions[order] = Question(
                    case_id=key[0],
                    part="comparison",
                    task=TASK,
                    inputs={
                        "language": self._language[key],
                        "question": key[1],
                        "first": first,
                        "second": second,
                    },
                    reply=PairReply,
                    check=check_pair,
                )
            self._made[pair] = questions
        return self._made[pair]

    def questions(
        self,
        pair: Pair,
        found: JudgeReplies,
    ) -> Iterator[Question]:
        """The first order, and the second where the first named a winner."""
        question, other = self._asked(pair).values()
        yield question
        reply = found.get(question, PairReply)
        if reply is not None and reply.better != "equal":
            yield other

    def replies(
        self,
        pair: Pair,
        found: JudgeReplies,
    ) -> dict[bool, PairReply]:
        """The usable replies, by whether the pair's first model stood first."""
        replies = {}
        for straight, question in self._asked(pair).items():
            reply = found.get(question, PairReply)
            if reply is not None:
                replies[straight] = reply
        return replies

    def matches(
        self,
        judges: Iterable[JudgeReplies],
        criterion: str = "better",
    ) -> list[Match]:
        """Every match that was compared: 1 where the pair's first model is preferred in both orders, 0 where its
        second, 0.5 for a draw."""
        matches = []
        for judge in judges:
            for pair in self.pairs:
                replies = self.replies(pair, judge)
                one = [reply.better for reply in replies.values()]
                if not one or (len(one) == 1 and one[0] != "equal"):
                    continue
                preferred = set()
                for straight, reply in replies.items():
                    side = getattr(reply, criterion)
                    first = "first" if straight else "second"
                    preferred.add(0.5 if side == "equal" else float(side == first))
                draw = len(one) == 1 or len(preferred) > 1
                score = 0.5 if draw else preferred.pop()
                matches.append(Match(pair.first, pair.second, score, pair.case))
        return matches

    def order_notes(self, found: JudgeReplies) -> list[str]:
        """How often place decided instead of content."""
        asked = by_place = 0
        for pair in self.pairs:
            sides = [reply.better for reply in self.replies(pair, found).values()]
            if len(sides) == 2:
                asked += 1
                by_place += sides[0] == sides[1] != "equal"
        if not asked:
            return []
        return [
            f"in {by_place} of {asked} matches asked in both orders, place decided: one side won twice"
        ]


def _agreement(hall: _Hall, judges: Mapping[str, JudgeReplies]) -> Table:
    """How alike judges rate the models that both compared."""
    elos = {}
    for name, judge in judges.items():
        rated = ratings(hall.matches([judge]), hall.models, draws=0)
        # Equal ratings differ by rounding.
        values = [round(rating.elo, 6) if rating else np.nan for rating in rated]
        elos[name] = np.array(values)
    rows: list[list[Cell]] = []
    for first, other in combinations(elos, 2):
        both = int((~np.isnan(elos[first]) & ~np.isnan(elos[other])).sum())
        rows.append([first, other, spearman(elos[first], elos[other]), both])
    note = "Of the models' ratings; NA: fewer than three models."
    titles = ("judge", "other judge", "Spearman", "models")
    return Table("How alike judges rank models", titles, rows, note)


def _between(names: Sequence[str], won: Floats) -> Table:
    games = won + won.T
    shares = np.divide(
        won,
        games,
        out=np.full_like(won, np.nan),
        where=games > 0,
    )
    rows: list[list[Cell]] = []
    for name, row in zip(names, shares.tolist(), strict=True):
        rows.append([name, *(None if np.isnan(share) else share for share in row)])
    note = "The share of the points that the row's model took from the column's; NA: they did not meet."
    return Table("Against one another", ["model", *names], rows, note)


def _criteria(hall: _Hall, judges: Iterable[JudgeReplies]) -> Table:
    """Each model's share of the points by criterion."""
    listed = list(judges)
    taken = [points(hall.matches(listed, name), hall.models) for name in CRITERIA]
    rows: list[list[Cell]] = []
    for place, name in enumerate(hall.names):
        rows.append([name, *(_share(won, place) for won in taken)])
    note = "The share of the points in all matches of a model; a criterion is won where both orders agree."
    return Table("By criterion", ["model", *CRITERIA], rows, note)


def _share(won: Floats, place: int) -> float | None:
    """A model's share of the points in all its matches."""
    games = float(won[place].sum() + won[:, place].sum())
    return float(won[place].sum()) / games if games else None
