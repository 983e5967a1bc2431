"""Storage of studies, in which people rate a sample of cases: candidates, items, ratings, and what must stay hidden."""

from collections.abc import Collection, Sequence

from medlive.curation.model import CaseText
from medlive.errors import UsageError

from .mapping import Record, read
from .session import Session
from .tables.people import (
    StudyItemRow,
    StudyRatingRow,
    StudyRow,
)

Study = StudyRow
StudyItem = StudyItemRow
Rating = StudyRatingRow


# Items of open grader checks whose raters must not see the grader's verdicts
_BLIND = """FROM study_items WHERE study IN (
    SELECT name FROM studies WHERE kind = 'grader_check' AND closed_at IS NULL AND blinding <> 'open'
)"""
_BLIND_VERSIONS = f"SELECT DISTINCT version FROM snapshot_members WHERE case_id IN (SELECT case_id {_BLIND})"


# What `list_candidates` chooses from: ready cases at their latest revision, or what a snapshot shows
_READY = """
    JOIN cases ON cases.id = case_id WHERE status = 'ready' AND NOT EXISTS (
        SELECT FROM case_revisions AS later WHERE later.case_id = r.case_id AND later.revision > r.revision
    )
"""
_SHOWN = """
    JOIN snapshot_members USING (case_id, revision) WHERE version = :version AND first_release IS NOT NULL
"""


async def list_candidates(session: Session, version: str | None) -> Sequence[Record]:
    """The cases that the snapshot `version` shows, or (None) the ready cases, by id: case_id, revision, language,
    specialty, theme."""
    return await session.records(
        f"""
        SELECT case_id, revision, language, specialty, theme
        FROM case_revisions AS r {_READY if version is None else _SHOWN} ORDER BY case_id
        """,
        version=version,
    )


async def add_study(session: Session, study: Study, items: Sequence[StudyItem]) -> None:
    """Store a study with its items in their order. Raises UsageError for a name that is taken."""
    if await session.get(StudyRow, study.name) is not None:
        raise UsageError(f"there is a study {study.name} already")
    await session.insert(study)
    for position, item in enumerate(items, start=1):
        item.study, item.position = study.name, position
    session.add_all(items)


async def find_study(
    session: Session,
    name: str,
    *,
    lock: bool = False,
) -> Study:
    """A study by its name; with `lock` nobody can close it until the transaction ends. Raises UsageError."""
    locked = {"read": True} if lock else None
    row = await session.get(StudyRow, name, with_for_update=locked)
    if row is None:
        raise UsageError(f"unknown study {name[:80]!r}")
    return row


async def list_studies(session: Session) -> list[Study]:
    """Every study, the latest first."""
    return await session.rows(StudyRow, "ORDER BY created_at DESC")


async def has_open_study(session: Session, account: str) -> bool:
    """Whether an account is a rater or the adjudicator of a study that is not closed."""
    own = "WHERE closed_at IS NULL AND (:account = ANY (raters) OR adjudicator = :account)"
    return await session.first(StudyRow, own, account=account) is not None


async def blind_versions(session: Session) -> frozenset[str]:
    """The snapshots with a case whose verdicts people check blind now: no report on such a snapshot may be shown."""
    return frozenset(await session.column(_BLIND_VERSIONS))


async def blind_items(session: Session) -> frozenset[str]:
    """The study items whose verdicts people check blind now: no page may show these verdicts."""
    return frozenset(await session.column(f"SELECT item {_BLIND}"))


async def is_checked_blind(session: Session, case_id: str) -> bool:
    """Whether people check the verdicts on a case blind now."""
    query = f"SELECT EXISTS (SELECT {_BLIND} AND case_id = :case_id)"
    return bool(await session.value(query, case_id=case_id))


async def versions_of(session: Session, case_ids: Collection[str]) -> frozenset[str]:
    """The snapshots that hold one of these cases."""
    query = "SELECT version FROM snapshot_members WHERE case_id = ANY (:case_ids)"
    return frozenset(await session.column(query, case_ids=list(case_ids)))


async def close_study(session: Session, name: str) -> bool:
    """Close a study: nobody rates in it any more. False if it was closed already."""
    closed = "UPDATE studies SET closed_at = now() WHERE name = :name AND closed_at IS NULL RETURNING name"
    return await session.value(closed, name=name) is not None


async def items_of(session: Session, study: str) -> list[StudyItem]:
    """A study's items in their order, without those erased with a thread that was taken down."""
    return await session.rows(
        StudyItemRow, "WHERE study = :study ORDER BY position", study=study
    )


async def ratings_of(session: Session, study: str) -> list[Rating]:
    """The ratings in a study: each rater's latest rating of each item."""
    return await session.rows(
        StudyRatingRow,
        """
        WHERE id IN (SELECT max(id) FROM study_ratings WHERE study = :study GROUP BY item, rater) ORDER BY item, rater
        """,
        study=study,
    )


async def save_rating(session: Session, study: str, rating: Rating) -> None:
    """Store a rating; of an account's ratings of an item the latest counts."""
    rating.study = study
    session.add(rating)


async def read_revisions(
    session: Session, wanted: Collection[tuple[str, int]]
) -> dict[tuple[str, int], Record]:
    """(case id, revision) → the case as raters read it: language, text, and criteria (id within the case → text)."""
    rows = await session.records(
        """
        SELECT case_id, revision, language, narrative, query, advice, (
            SELECT json_object_agg(criterion_id, criterion ORDER BY position) FROM criteria
            WHERE case_id = r.case_id AND revision = r.revision
        ) AS criteria
        FROM case_revisions AS r
        WHERE (case_id, revision) IN (SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:revisions AS int[])))
        """,
        ids=[key[0] for key in wanted],
        revisions=[key[1] for key in wanted],
    )
    rated = {}
    for row in rows:
        row.text, row.criteria = read(CaseText, row), row.criteria or {}
        rated[row.case_id, row.revision] = row
    return rated
