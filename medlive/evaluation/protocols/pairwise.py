"""MEDIC's pairwise comparison: two models' answers to the same case, in both orders, as ratings with intervals.

A model wins a match only where it is preferred in both orders; everything else that was compared is a draw, and a
comparison without a usable reply is no match (seed 004 §3, appendix A.3.10, A.7.10; docs/method.md §5). An answer
that is first called equal is a draw already, so its second order is not asked.

Every pair of models meets on every case that both answered, or on as many as `matches` allows, drawn by lot.

Ratings are Bradley and Terry's: P(a beats b) = s_a / (s_a + s_b); a draw is half a win for each. An Elo of
1000 + 400 log10(s / geometric mean) is the same strength: 400 points are odds of 10 to 1 (Elo 1978).
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Literal

import numpy as np
from pydantic import Field

from medlive.errors import UsageError
from medlive.evaluation.grading.questions import JudgeReplies, Question
from medlive.grader.reply import Words
from medlive.llm.ask import ReplyModel
from medlive.statistics.bootstrap import over_draws
from medlive.statistics.correlation import spearman
from medlive.statistics.estimate import Estimate, percentile_interval
from medlive.statistics.intervals import Floats
from medlive.statistics.scale import connected

from .model import (
    Figures,
    Material,
    Records,
    Results,
    Rows,
    SampledProtocol,
    Table,
    has_reference,
)

CENTRE = 1000.0
"""The mean rating."""
A_DECADE = 400.0
"""Points of Elo that are odds of 10 to 1."""
PRIOR = 0.1
"""Drawn matches added to every pair, so that a model that won or lost every match has a finite rating."""
_STEPS = 10_000
"""The most steps of Newton's method."""
_CLOSE = 1e-10
"""A step below this is the last."""


@dataclass(frozen=True)
class Match:
    """One match; places of models count from 0."""

    first: int
    second: int
    score: float
    """1: the first won, 0: the second, 0.5: a draw."""
    cluster: int
    """The number of the question (case): matches of one cluster are drawn together."""


def points(matches: Sequence[Match], models: int) -> Floats:
    """(models x models): the points that each row's model took from each column's."""
    won = np.zeros((models, models))
    for match in matches:
        won[match.first, match.second] += match.score
        won[match.second, match.first] += 1 - match.score
    return won


def elo(won: Floats, prior: float = PRIOR) -> Floats:
    """Elo ratings of models by their points against one another, with a mean of 1000.

    `won` is (models x models), or (draws x models x models); the result lacks the last dimension. By Newton's
    method on the logarithms of the strengths.
    """
    won = np.asarray(won, dtype=np.float64)
    models = won.shape[-1]
    won = won + prior / 2 * (1 - np.eye(models))
    played = won + np.swapaxes(won, -1, -2)
    taken = won.sum(axis=-1)
    theta = np.zeros(won.shape[:-1])
    for _ in range(_STEPS):
        expected = played / (1 + np.exp(theta[..., None, :] - theta[..., :, None]))
        gap = taken - expected.sum(axis=-1)
        share = expected / np.where(played > 0, played, 1)
        information = played * share * (1 - share)
        hessian = -information
        hessian[..., range(models), range(models)] = information.sum(axis=-1)
        # Only differences of `theta` count: the sum of a step is pinned at 0.
        step = np.linalg.solve(hessian + 1.0 / models, gap[..., None])[..., 0]
        theta = theta + np.clip(step, -2, 2)
        if np.abs(step).max(initial=0.0) < _CLOSE:
            break
    theta = theta - theta.mean(axis=-1, keepdims=True)
    return np.asarray(CENTRE + A_DECADE / np.log(10) * theta)


def ratings(
    matches: Sequence[Match],
    models: int,
    *,
    draws: int = 1000,
    seed: int = 0,
) -> list[Estimate]:
    """Each model's rating, in order; a model without a match has none, and moves no other's.

    Intervals are of draws of whole clusters, with replacement; fewer than two give none.
    """
    places: set[int] = set()
    by_cluster: dict[int, list[Match]] = {}
    for match in matches:
        places.update((match.first, match.second))
        by_cluster.setdefault(match.cluster, []).append(match)
    played = sorted(places)
    won = np.stack([points(own, models) for own in by_cluster.values() or ([],)])
    won = won[:, played][:, :, played]
    values = elo(won.sum(axis=0))
    drawn = np.full((0, len(played)), np.nan)
    if len(by_cluster) > 1 and draws:
        flat = won.reshape(len(won), -1)
        sums = over_draws(
            lambda own: own @ flat,
            len(won),
            draws=draws,
            seed=seed,
        )
        drawn = elo(sums.reshape(-1, len(played), len(played)))
    by_model = [Estimate(None)] * models
    for place, model in enumerate(played):
        low, high = percentile_interval(drawn[:, place])
        by_model[model] = Estimate(float(values[place]), low, high)
    return by_model


CRITERIA = ("relevance", "completeness", "safety", "ethics", "clarity")
Side = Literal["first", "second", "equal"]
"""Which answer is preferred, by its place."""


class PairReply(ReplyModel):
    """`protocol.pairwise`: which of two answers is better, by criterion and all in all.

    Inputs: language, question, first, second.
    """

    task = "protocol.pairwise"
    reasoning: Words
    relevance: Side
    completeness: Side
    safety: Side
    ethics: Side
    clarity: Side
    better: Side


def check_pair(reply: PairReply) -> str | None:
    """A fault if `better` is an answer that no criterion prefers while some prefer the other; else None."""
    sides = {getattr(reply, name) for name in CRITERIA}
    if reply.better != "equal" and reply.better not in sides and sides != {"equal"}:
        return f"better is {reply.better!r}, and no criterion is"
    return None


Meeting = tuple[Match, dict[bool, Question]]
"""A match that can be asked for, a draw so far, and its two questions in the order in which they are asked: True has
the first model's answer first."""


Comparison = tuple[Match, dict[bool, PairReply]]
"""A match that was compared, and its usable replies: True had the first model's answer first."""


class Pairwise(SampledProtocol):
    """Two models' answers side by side, rated by Elo; see the module."""

    name = "pairwise"
    about = "two models' answers side by side: Elo ratings (MEDIC)"
    figure = "Elo, mean 1000"

    matches: int | None = Field(
        default=None,
        ge=1,
        description="matches at most; none: every pair on every case",
    )

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Whether there are two runs or more, on cases with a reference."""
        return len(material) > 1 and has_reference(material)

    def questions(
        self,
        material: Material,
        replies: JudgeReplies,
    ) -> Iterator[Question]:
        """The first order of every match, and the second where the first named a winner."""
        for _, questions in meetings(material, self.seed)[: self.matches]:
            question, other = questions.values()
            yield question
            reply = replies.get(question, PairReply)
            if reply is not None and reply.better != "equal":
                yield other

    def results(
        self,
        material: Material,
        replies: JudgeReplies,
    ) -> Results:
        """Ratings over all judges on record, and how often the order of the two answers decided."""
        models = [run.label for run in material]
        possible = meetings(material, self.seed)
        judges: dict[str, list[Comparison]] = {}
        for judge in (replies, *replies.others):
            comparisons = compare(possible, judge)
            if comparisons:
                name = judge.identity.model
                again = f"{name} ({len(judges) + 1})"
                judges[again if name in judges else name] = comparisons
        pooled = list(chain.from_iterable(judges.values()))
        matches = matches_of(pooled)
        rated = ratings(
            matches,
            len(models),
            draws=self.draws,
            seed=self.seed,
        )
        won = points(matches, len(models))
        games = won + won.T
        figures: Figures = {}
        rows: Records = []
        for name, rating, met in zip(models, rated, games.sum(axis=1), strict=True):
            figures[name] = rating.value
            rows.append(
                {
                    "model": name,
                    "Elo": rating.value,
                    "low": rating.low,
                    "high": rating.high,
                    "matches": int(met),
                }
            )
        rows.sort(key=lambda row: -(figures[str(row["model"])] or -np.inf))
        note = "Bradley-Terry on wins in both orders, all else draws; 95 % intervals over cases; NA: no match."
        several = len(judges) > 1
        if several:
            note += f" Pooled over {', '.join(judges)}."
        tables = [Table.of_rows("Ratings", rows, note)]
        if several:
            tables.append(_alike(judges, len(models)))
        notes = list(match_notes(models, games, judges))
        return Results(tables, figures, notes)


def meetings(material: Material, seed: int) -> list[Meeting]:
    """The matches that can be asked for, in random order. Raises UsageError for fewer than two models."""
    if len(material) < 2:
        raise UsageError("a comparison takes the runs of two models or more")
    # By the question too: a case that was revised between two runs is another one.
    answers: list[dict[tuple[str, str], str]] = []
    languages: dict[tuple[str, str], str] = {}
    for run in material:
        answered = {}
        for case, answer in run.answered():
            key = case.case_id, case.question
            answered[key] = answer.response
            languages[key] = case.language
        answers.append(answered)
    rng = random.Random(seed)
    drawn: list[tuple[float, Meeting]] = []
    for first, second in combinations(range(len(material)), 2):
        for place, key in enumerate(languages):
            if key not in answers[first] or key not in answers[second]:
                continue
            # By lot: which case a pair of models meets on first, and which of the two stands first.
            lot = rng.random()
            straight = rng.random() < 0.5
            questions = {}
            for order in (straight, not straight):
                shown = (first, second) if order else (second, first)
                questions[order] = Question(
                    case_id=key[0],
                    part="comparison",
                    inputs={
                        "language": languages[key],
                        "question": key[1],
                        "first": answers[shown[0]][key],
                        "second": answers[shown[1]][key],
                    },
                    reply=PairReply,
                    check=check_pair,
                )
            match = Match(first, second, score=0.5, cluster=place)
            drawn.append((lot, (match, questions)))
    drawn.sort(key=lambda entry: entry[0])
    return [meeting for _, meeting in drawn]


def compare(possible: Sequence[Meeting], judge: JudgeReplies) -> list[Comparison]:
    """The matches that a judge compared: called equal at once, or asked for in both orders."""
    comparisons = []
    for match, questions in possible:
        usable = {}
        for straight, question in questions.items():
            reply = judge.get(question, PairReply)
            if reply is not None:
                usable[straight] = reply
        equal = any(reply.better == "equal" for reply in usable.values())
        if len(usable) == 2 or equal:
            comparisons.append((match, usable))
    return comparisons


def matches_of(comparisons: Sequence[Comparison]) -> list[Match]:
    """Each comparison as a match: won by who is preferred in both orders, else a draw."""
    matches = []
    for match, usable in comparisons:
        scores = set()
        for straight, reply in usable.items():
            won = (reply.better == "first") is straight
            scores.add(0.5 if reply.better == "equal" else float(won))
        score = scores.pop() if len(scores) == 1 else 0.5
        matches.append(replace(match, score=score))
    return matches


def match_notes(
    models: Sequence[str],
    games: Floats,
    judges: Mapping[str, list[Comparison]],
) -> Iterator[str]:
    """Note which models no match links, directly or through others, and how often the same place won in both orders.

    `games` are the matches of each model with each (models x models), over all judges.
    """
    groups = connected(games + np.diag(games.sum(axis=1)) > 0)
    if len(groups) > 1:
        apart = " | ".join(", ".join(models[at] for at in own) for own in groups)
        yield f"no match links these models, whose ratings cannot be compared: {apart}"
    for name, comparisons in judges.items():
        asked = by_place = 0
        for _, usable in comparisons:
            sides = [reply.better for reply in usable.values()]
            if len(sides) == 2:
                asked += 1
                by_place += sides[0] == sides[1] != "equal"
        if asked:
            note = f"in {by_place} of {asked} matches asked in both orders, place decided: one side won twice"
            yield f"{name}: {note}" if len(judges) > 1 else note


def _alike(judges: Mapping[str, list[Comparison]], models: int) -> Table:
    """How alike judges rate the models that both compared."""
    elos = {}
    for name, comparisons in judges.items():
        rated = ratings(matches_of(comparisons), models, draws=0)
        values = [np.nan if elo.value is None else elo.value for elo in rated]
        # Equal ratings differ by rounding.
        elos[name] = np.round(values, 6)
    rows: Rows = []
    for first, other in combinations(elos, 2):
        rows.append([first, other, spearman(elos[first], elos[other])])
    note = "Of the models' ratings; NA: fewer than three models."
    titles = ("judge", "other judge", "Spearman")
    return Table("How alike judges rank models", titles, rows, note)
