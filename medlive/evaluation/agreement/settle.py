"""A third grading of two judges and people: both judges where they agree, people where not.

People's word is the adjudicator's, else what two raters or more agree on (`agreed_codes`). What nobody has
settled is ungraded, with that reason. Rows go to the run's `grades.jsonl` under a judge of their own, which
scoring reads as any other; quote and reasoning are those of the judge who decided likewise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from medlive.errors import UsageError
from medlive.evaluation.agreement.humans import HumanRatings, items_of
from medlive.evaluation.agreement.judges import gradings
from medlive.evaluation.agreement.meta import read_people
from medlive.evaluation.cases.benchmarks import Place
from medlive.evaluation.model import Grade, grade_keys
from medlive.evaluation.runs.folder import GRADES, SETTLED, read_grades
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.grader.judge import Mode
from medlive.grader.rated import CheckedVerdict, GraderSheet
from medlive.integrity.digest import digest_json
from medlive.integrity.log import open_log
from medlive.statistics.raters import ABSENT, MET

UNSETTLED = "the judges do not agree, and people have not settled it"


@dataclass(frozen=True, slots=True)
class SettledRun:
    """What came of settling a run."""

    name: str
    """The grading's, for --judge."""
    judge: str
    """Its digest."""
    judges: tuple[str, str]
    criteria: int
    """Of the answers that can be graded."""
    agreed: int
    """Decided alike by both judges."""
    people: int
    """Settled by people."""
    overruled: int
    """Of `agreed`, those that people decided otherwise; the judges' verdict stands."""
    open: tuple[Place, ...]
    """What is left to settle: ungraded."""
    new: int
    """Rows written this time."""
    notes: tuple[str, ...]


def settle(
    run_dir: Path,
    judges: Sequence[str] = (),
    *,
    human: Sequence[Path] = (),
    adjudicator: str | None = None,
) -> SettledRun:
    """Settle a run's criteria, and write what is new; the same files again add nothing.

    `judges` are two, named as in `load_graded`; () where the run has just two. `human` are files of people's
    ratings, such as a study's export (`humans.read_humans`), and `adjudicator` decides where raters differ.

    Raises:
        UsageError: If there are not two judges, or the adjudicator has no ratings.
        BadInput: If a file cannot be read.
    """
    first, second = two_judges(run_dir, judges)
    graders = first.known_grader, second.known_grader
    names = graders[0].model, graders[1].model
    name = f"{SETTLED}: {' / '.join(names)}"
    judge = digest_json([SETTLED, *(grader.judge for grader in graders)])
    ratings = read_people(human, adjudicator, first)
    by_people = _settled_by(ratings) if ratings else {}
    rows: list[Grade] = []
    unsettled: list[Place] = []
    agreed = overruled = 0
    for case, answer in first.answered():
        keys = grade_keys(case, answer, judge)
        own = [run.grades.get(case.case_id, {}) for run in (first, second)]
        for criterion in case.criteria:
            place = case.case_id, criterion.id
            grades = [by_criterion.get(criterion.id) for by_criterion in own]
            people = by_people.get(place)
            verdicts = [grade.met if grade else None for grade in grades]
            met = people
            if verdicts[0] is not None and verdicts[0] is verdicts[1]:
                met = verdicts[0]
                agreed += 1
                overruled += people is (not met)
            if met is None:
                unsettled.append(place)
            key = keys[criterion.id]
            rows.append(
                _row(
                    place,
                    key,
                    met,
                    grades,
                    name=name,
                    judge=judge,
                )
            )
    notes: tuple[str, ...] = ()
    if ratings is not None:
        notes = tuple(f"{ratings.name}: {note}" for note in ratings.notes)
    return SettledRun(
        name=name,
        judge=judge,
        judges=names,
        criteria=len(rows),
        agreed=agreed,
        people=len(rows) - agreed - len(unsettled),
        overruled=overruled,
        open=tuple(unsettled),
        new=_add(run_dir, judge, rows),
        notes=notes,
    )


def _row(
    place: Place,
    key: str,
    met: bool | None,
    grades: Sequence[Grade | None],
    name: str,
    judge: str,
) -> Grade:
    """What is settled of a criterion, with the words of a judge who says the same, as a row of the run's grades."""
    alike = [
        grade for grade in grades if grade and met is not None and grade.met is met
    ]
    like = alike[0] if alike else None
    return Grade(
        *place,
        key=key,
        met=met,
        quote=like.quote if like else "",
        reasoning=like.reasoning if like else "",
        reason=UNSETTLED if met is None else "",
        raw="",
        grader="" if met is None else name,
        engine=SETTLED,
        model=name,
        mode=Mode.CRITERION,
        prompt="unknown",
        judge=judge,
        whole=like is not None and like.whole,
    )


def two_judges(
    run_dir: Path,
    judges: Sequence[str],
) -> tuple[GradedRun, GradedRun]:
    """A run under its two judges, in the order of the log. Raises UsageError for more or fewer."""
    runs: dict[str, GradedRun] = {}
    for by_judge in gradings([run_dir], judges).values():
        runs |= by_judge
    if len(runs) != 2:
        raise UsageError(
            f"expected two judges of {run_dir}, found {', '.join(runs) or 'none'}",
            hint="medlive eval grade --grader asks another; --judge A --judge B chooses two",
        )
    first, second = runs.values()
    return first, second


def read_sheet(
    run_dir: Path,
    judges: Sequence[str] = (),
) -> GraderSheet:
    """A run's verdicts for people to check; of two judges, what they decided differently, by the first.

    Raises UsageError if nothing is graded, or there are not two such judges.
    """
    other = against = None
    if judges:
        run, other = two_judges(run_dir, judges)
        against = other.known_grader.model
    else:
        run = load_graded(run_dir)
    cases = {case.case_id: case for case, _ in run.answered()}
    verdicts = []
    for item, (case_id, criterion_id) in items_of(run.cases, run.answers).items():
        met = run.verdicts(case_id).get(criterion_id)
        if met is None:
            continue
        if other and other.verdicts(case_id).get(criterion_id) is not (not met):
            continue
        verdict = CheckedVerdict(
            id=item,
            case_id=case_id,
            question=cases[case_id].question,
            criterion_id=criterion_id,
            answer=run.answers[case_id].response,
            met=met,
        )
        verdicts.append(verdict)
    return GraderSheet(run.known_grader.model, against, tuple(verdicts))


def _settled_by(ratings: HumanRatings) -> dict[Place, bool]:
    """The criteria that people settled: by the adjudicator, else by two raters or more who agree."""
    places = list(ratings.verdicts)
    settled = {}
    for place, code in zip(places, ratings.agreed(places).tolist(), strict=True):
        if code != ABSENT:
            settled[place] = bool(code == MET)
    return settled


def _add(
    run_dir: Path,
    judge: str,
    rows: Sequence[Grade],
) -> int:
    """Write the rows that say something new; how many."""
    with open_log(run_dir / GRADES) as log:
        known: dict[tuple[str, str], Grade] = {}
        for grade in read_grades(run_dir / GRADES)[0]:
            if grade.judge == judge:
                known[grade.case_id, grade.criterion_id] = grade
        new = 0
        for row in rows:
            if row != known.get((row.case_id, row.criterion_id)):
                log.add(row.row())
                new += 1
    return new
