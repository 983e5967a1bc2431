"""MEDIC's pairwise comparison: two models' answers to the same case, in both orders, as ratings with intervals.

A model wins a match only where it is preferred in both orders; everything else that was compared is a draw, and a
comparison without a usable reply is no match (seed 004 §3, appendix A.3.10, A.7.10; docs/method.md §5). An answer
that is first called equal is a draw already, so its second order is not asked.

Matches are drawn in rounds. `adaptive` asks in each round for the pairs of models whose difference is known worst,
on cases where the two have met others least; `round-robin` asks for every pair on every case.
"""

import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import combinations
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from medlive.errors import UsageError
from medlive.evaluation.grading.questions import Findings, Question
from medlive.evaluation.grading.verdict import Reasoning
from medlive.evaluation.model import Answer, EvaluationCase
from medlive.evaluation.protocols.model import (
    Cell,
    Material,
    Protocol,
    Results,
    Table,
    has_reference,
)
from medlive.statistics.bradley_terry import (
    Match,
    Rating,
    elo,
    points,
    rank_agreement,
    ratings,
    uncertainty,
)
from medlive.statistics.correlation import kendall, spearman

TASK: Final = "protocol.pairwise"
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


class Schedule(StrEnum):
    """Which matches are asked for."""

    ADAPTIVE = "adaptive"
    ROUND_ROBIN = "round-robin"


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

    schedule: Annotated[
        Schedule,
        Field(description="adaptive, or round-robin: every pair on every case"),
    ] = Schedule.ADAPTIVE
    matches: Annotated[
        int | None,
        Field(ge=1, description="matches at most; none: half of a round-robin"),
    ] = None
    draws: Annotated[int, Field(ge=1, description="draws of the bootstrap")] = 1000
    seed: Annotated[
        int, Field(ge=0, description="where draws, orders and cases begin")
    ] = 0
    _last: "tuple[Material, _Hall] | None" = PrivateAttr(default=None)
    _season: "_Season | None" = PrivateAttr(default=None)

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Two runs or more, on cases with a reference."""
        return len(material) > 1 and has_reference(material)

    def questions(self, material: Material, found: Findings) -> Iterator[Question]:
        """The questions of all matches that are scheduled so far."""
        hall = self._hall(material)
        for pair in self._scheduled(hall, found):
            yield from hall.questions(pair, found)

    def _hall(self, material: Material) -> "_Hall":
        """Who can meet whom, made once for the material: every round looks at it."""
        if self._last is None or self._last[0] is not material:
            self._last = (material, _Hall(material, self.seed))
        return self._last[1]

    def _scheduled(self, hall: "_Hall", found: Findings) -> Iterable[Pair]:
        """The matches of every round that is played, and of the next."""
        if self.schedule is Schedule.ROUND_ROBIN:
            return hall.pairs[: self.matches]
        if (
            self._season is None
            or self._season.hall is not hall
            or self._season.found is not found
        ):
            self._season = _Season(
                hall,
                found,
                min(len(hall.pairs), self.matches or max(1, len(hall.pairs) // 2)),
            )
        return self._season.advance()

    def results(self, material: Material, found: Findings) -> Results:
        """Ratings over all judges on record and by each, what each model took from each, criteria, and what the
        order did."""
        hall = self._hall(material)
        judges = _by_name(of for of in (found, *found.others) if hall.matches(of))
        played = {name: hall.matches(of) for name, of in judges.items()}
        pooled = [match for name in judges for match in played[name]]
        rated = ratings(pooled, hall.models, draws=self.draws, seed=self.seed)
        won = points(pooled, hall.models)
        games = won + won.T
        order = sorted(
            range(hall.models),
            key=lambda place: -(one.elo if (one := rated[place]) else -np.inf),
        )
        rows: list[list[Cell]] = [
            [
                hall.names[place],
                *_figures(rated[place]),
                int(games[place].sum()),
                float(won[place].sum() / games[place].sum()) if rated[place] else None,
            ]
            for place in order
        ]
        titles = ("model", "Elo", "low", "high", "matches", "share of points")
        note = "Bradley-Terry on wins in both orders, all else draws; 95 % intervals over cases; NA: no match."
        if len(judges) > 1:
            note += f" Pooled over {', '.join(judges)}."
        tables = [
            Table("Ratings", titles, rows, note),
            _between(hall.names, won),
            _criteria(hall, judges.values()),
        ]
        if len(judges) > 1:
            tables += [
                self._by_judge(hall, played, judges, order),
                self._agreement(hall, played, judges),
            ]
        figures = {
            name: rating.elo if rating else None
            for name, rating in zip(hall.names, rated, strict=True)
        }
        notes = [
            f"{name}: {note}" if len(judges) > 1 else note
            for name, of in judges.items()
            for note in hall.order_notes(of)
        ]
        return Results(tables, figures, notes)

    def _by_judge(
        self,
        hall: "_Hall",
        played: Mapping[str, list[Match]],
        judges: Iterable[str],
        order: Iterable[int],
    ) -> Table:
        of = {
            name: ratings(played[name], hall.models, draws=self.draws, seed=self.seed)
            for name in judges
        }
        met = {name: points(played[name], hall.models) for name in judges}
        rows: list[list[Cell]] = [
            [
                hall.names[place],
                name,
                *_figures(of[name][place]),
                int(met[name][place].sum() + met[name][:, place].sum()),
            ]
            for place in order
            for name in judges
        ]
        note = "Each judge's matches by themselves."
        return Table(
            "Ratings by judge",
            ("model", "judge", "Elo", "low", "high", "matches"),
            rows,
            note,
        )

    def _agreement(
        self, hall: "_Hall", played: Mapping[str, list[Match]], judges: Iterable[str]
    ) -> Table:
        rows: list[list[Cell]] = []
        for one, other in combinations(judges, 2):
            for coefficient, of in (("Kendall", kendall), ("Spearman", spearman)):
                models, *found = rank_agreement(
                    of,
                    played[one],
                    played[other],
                    hall.models,
                    draws=self.draws,
                    seed=self.seed,
                )
                rows.append([one, other, coefficient, *found, models])
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


def _by_name(judges: Iterable[Findings]) -> dict[str, Findings]:
    """Judges by their models' names, made unique."""
    named: dict[str, Findings] = {}
    for of in judges:
        name = of.identity.model
        named[name if name not in named else f"{name} ({len(named) + 1})"] = of
    return named


def _figures(rating: Rating | None) -> tuple[Cell, Cell, Cell]:
    return (rating.elo, rating.low, rating.high) if rating else (None, None, None)


class _Season:
    """The rounds of adaptive matching over what is found, gone on with as more is."""

    def __init__(self, hall: "_Hall", found: Findings, most: int) -> None:
        self.hall, self.found, self._most = hall, found, most
        self._chosen: dict[Pair, None] = dict.fromkeys(hall.opening()[:most])
        self._played = 0
        self._won = np.zeros((hall.models, hall.models))

    def advance(self) -> Iterable[Pair]:
        """The matches of every round that is played, and of the next."""
        while True:
            fresh = list(self._chosen)[self._played :]
            if not fresh or not all(
                self.hall.tried(pair, self.found) for pair in fresh
            ):
                return self._chosen
            for pair in fresh:
                if (score := self.hall.score(pair, self.found)) is not None:
                    self._won[pair.first, pair.second] += score
                    self._won[pair.second, pair.first] += 1 - score
            self._played = len(self._chosen)
            following = self.hall.following(self._won, self._chosen)[
                : self._most - self._played
            ]
            self._chosen |= dict.fromkeys(following)


class _Hall:
    """The answers that can meet, and what was found of their meetings."""

    def __init__(self, material: Material, seed: int) -> None:
        self.names = [run.label for run in material]
        self.models = len(self.names)
        if self.models < 2:
            raise UsageError("a comparison takes the runs of two models or more")
        # By the question too: a case that was revised between two runs is another one.
        answered = [
            {(c.case_id, c.question): (c, a) for c, a in run.answered()}
            for run in material
        ]
        cases = list(dict.fromkeys(case for one in answered for case in one))
        self._answers = answered
        self._cases = cases
        places = combinations(range(self.models), 2)
        open_ = [
            Pair(*ab, c)
            for ab in places
            for c, case in enumerate(cases)
            if all(case in answered[x] for x in ab)
        ]
        rng = random.Random(seed)
        # By lot: which case a pair of models meets on first, and which of the two stands first.
        lots = {pair: (rng.random(), rng.random()) for pair in open_}
        self.pairs = sorted(open_, key=lambda pair: lots[pair][0])
        self._order = {pair: lot[1] for pair, lot in lots.items()}
        self._made: dict[Pair, tuple[Question, Question]] = {}

    def opening(self) -> list[Pair]:
        """Two matches for each pair of models."""
        found: dict[tuple[int, int], list[Pair]] = {}
        for pair in self.pairs:
            found.setdefault(pair[:2], []).append(pair)
        return [pair for pairs in found.values() for pair in pairs[:2]]

    def following(
        self,
        won: "np.ndarray[tuple[int, int], np.dtype[np.float64]]",
        chosen: Mapping[Pair, None],
    ) -> list[Pair]:
        """The next round: for a third of the pairs of models about which a match would tell most, the case
        where these two have met others least."""
        theta = (elo(won) - 1000) * np.log(10) / 400
        share = 1 / (1 + np.exp(theta[None, :] - theta[:, None]))
        telling = uncertainty(won) ** 2 * share * (1 - share)
        used = np.zeros((self.models, len(self._cases)))
        for pair in chosen:
            used[[pair.first, pair.second], pair.case] += 1
        open_: dict[tuple[int, int], list[Pair]] = {}
        for pair in self.pairs:
            if pair not in chosen:
                open_.setdefault(pair[:2], []).append(pair)
        ranked = sorted(open_, key=lambda ab: -telling[ab])
        return [
            min(open_[ab], key=lambda p: used[p.first, p.case] + used[p.second, p.case])
            for ab in ranked[: max(1, len(ranked) // 3)]
        ]

    def _asked(self, pair: Pair) -> tuple[Question, Question]:
        """A match's questions in both orders, the one drawn by lot first."""
        if pair not in self._made:
            case, first = self._answers[pair.first][self._cases[pair.case]]
            second = self._answers[pair.second][self._cases[pair.case]][1]
            both = _question(case, first, second), _question(case, second, first)
            self._made[pair] = both if self._straight(pair) else both[::-1]
        return self._made[pair]

    def _straight(self, pair: Pair) -> bool:
        """Whether the order in which the pair's first model stands first is asked first."""
        return self._order[pair] < 0.5

    def questions(self, pair: Pair, found: Findings) -> Iterator[Question]:
        """The first order, and the second where the first named a winner."""
        one, other = self._asked(pair)
        yield one
        reply = found.get(one, PairReply)
        if reply is not None and reply.better != "equal":
            yield other

    def tried(self, pair: Pair, found: Findings) -> bool:
        """Whether every question of a match was asked, usable or not."""
        return all(
            found.find(question) is not None for question in self.questions(pair, found)
        )

    def replies(self, pair: Pair, found: Findings) -> list[tuple[PairReply, bool]]:
        """The usable replies, and whether the pair's first model stood first."""
        straight = self._straight(pair)
        both = zip(self._asked(pair), (straight, not straight), strict=True)
        return [
            (reply, stood)
            for q, stood in both
            if (reply := found.get(q, PairReply)) is not None
        ]

    def score(
        self, pair: Pair, found: Findings, criterion: str = "better"
    ) -> float | None:
        """1: the pair's first model won, 0: its second, 0.5: a draw; None: not compared."""
        replies = self.replies(pair, found)
        if not replies or (len(replies) == 1 and replies[0][0].better != "equal"):
            return None
        sides = [(getattr(reply, criterion), stood) for reply, stood in replies]
        preferred = {
            side if side == "equal" else (side == "first") is stood
            for side, stood in sides
        }
        if len(replies) < 2 or len(preferred) > 1:
            return 0.5
        return {True: 1.0, False: 0.0}.get(preferred.pop(), 0.5)

    def matches(self, found: Findings, criterion: str = "better") -> list[Match]:
        """Every match that was compared."""
        scores = ((pair, self.score(pair, found, criterion)) for pair in self.pairs)
        return [
            Match(p.first, p.second, score, p.case)
            for p, score in scores
            if score is not None
        ]

    def order_notes(self, found: Findings) -> list[str]:
        """How often place decided instead of content."""
        both = [self.replies(pair, found) for pair in self.pairs]
        turned = [replies for replies in both if len(replies) == 2]
        by_place = sum(a.better == b.better != "equal" for (a, _), (b, _) in turned)
        if not turned:
            return []
        return [
            f"in {by_place} of {len(turned)} matches asked in both orders, place decided: one side won twice"
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


def _between(
    names: list[str], won: "np.ndarray[tuple[int, int], np.dtype[np.float64]]"
) -> Table:
    games = won + won.T
    rows: list[list[Cell]] = [
        [
            name,
            *(
                float(won[a, b] / games[a, b]) if games[a, b] else None
                for b in range(len(names))
            ),
        ]
        for a, name in enumerate(names)
    ]
    note = "The share of the points that the row's model took from the column's; NA: they did not meet."
    return Table("Against one another", ["model", *names], rows, note)


def _criteria(hall: _Hall, judges: Collection[Findings]) -> Table:
    """Each model's share of the points by criterion."""
    taken = [
        points(
            [match for of in judges for match in hall.matches(of, criterion)],
            hall.models,
        )
        for criterion in CRITERIA
    ]
    rows: list[list[Cell]] = [
        [name, *(_share(won, place) for won in taken)]
        for place, name in enumerate(hall.names)
    ]
    note = "The share of the points in all matches of a model; a criterion is won where both orders agree."
    return Table("By criterion", ["model", *CRITERIA], rows, note)


def _share(
    won: "np.ndarray[tuple[int, int], np.dtype[np.float64]]", place: int
) -> float | None:
    games = float(won[place].sum() + won[:, place].sum())
    return float(won[place].sum()) / games if games else None
