"""Withdrawals of cases and criteria: recorded, undone, kept out of later snapshots, and listed as the errata of frozen
snapshots that hold them."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from medlive.db.audit_log import record
from medlive.db.session import Session
from medlive.db.tables.people import Act
from medlive.db.tables.release import (
    ReinstatementRow,
    WithdrawalRow,
)
from medlive.integrity.digest import digest_text
from medlive.rubric.lint import MIN_CRITERIA
from medlive.rubric.model import Criterion, Origin, Rubric
from medlive.snapshot.errata import Errata, Erratum, WithdrawalKind
from medlive.text.normalise import fold

_LOCK = 0x6D656572  # "meer": one number for every writer of this database's errata


def text_digest(criterion: str) -> str:
    """The digest of a criterion's folded text, by which the criterion is known in every revision of its case."""
    return digest_text(fold(criterion))


def without_criteria(rubric: Rubric, withdrawn: Collection[str]) -> Rubric:
    """The rubric without the criteria whose `text_digest` is in `withdrawn`, then unproved; positions move up."""
    if not withdrawn:
        return rubric
    kept = [c for c in rubric.criteria if text_digest(c.criterion) not in withdrawn]
    if len(kept) == len(rubric.criteria):
        return rubric
    criteria = tuple(replace(c, position=p) for p, c in enumerate(kept, start=1))
    return replace(rubric.unproved(), criteria=criteria)


def too_thin(rubric: Rubric) -> str | None:
    """Why a rubric is too thin ("1 criterion", "no criterion", "no positive criterion"); None if it is not."""
    if (n := len(rubric.criteria)) < MIN_CRITERIA:
        return "1 criterion" if n else "no criterion"
    return (
        None if any(c.points > 0 for c in rubric.criteria) else "no positive criterion"
    )


# In this SQL `w` is the withdrawal. Whether it was not undone, and the last revision that has its criterion's text:
_IN_FORCE = "NOT EXISTS (SELECT FROM reinstatements WHERE withdrawal_id = w.id)"
_LAST_WITH = """(
    SELECT max(own.revision) FROM criteria AS was JOIN criteria AS own USING (case_id, criterion)
    WHERE was.case_id = w.case_id AND was.revision = w.revision AND was.criterion_id = w.criterion_id
)"""
# A looser folding than that of `text_digest`, so that no equal text is missed
_FOLDED = r"lower(regexp_replace(normalize({0}.criterion, NFKC), '\s', '', 'g'))"
# Whether a revision has the text of the withdrawn criterion, or that text is gone
_HAS_TEXT = f"""(NOT EXISTS (
    SELECT FROM criteria AS was
    WHERE was.case_id = w.case_id AND was.revision = w.revision AND was.criterion_id = w.criterion_id
) OR EXISTS (
    SELECT FROM criteria AS was JOIN criteria AS own USING (case_id)
    WHERE was.case_id = w.case_id AND was.revision = w.revision AND was.criterion_id = w.criterion_id
        AND own.revision = {{0}} AND {_FOLDED.format("own")} = {_FOLDED.format("was")}
))"""
# Whether the withdrawn criterion may be in a revision. `new_revision` is NULL if the latest revision no longer had the
# criterion: then the last revision that had it is the bound.
_IN_REVISION = (
    f"({{0}} < w.new_revision OR w.new_revision IS NULL AND {{0}} <= {_LAST_WITH})"
    f" AND {_HAS_TEXT}"
)


def lost_since(case_id: str, revision: str) -> str:
    """SQL: whether a criterion whose withdrawal was not undone is in a case's revision; both arguments are SQL too."""
    return f"""EXISTS (
        SELECT FROM withdrawals AS w WHERE w.case_id = {case_id} AND w.criterion_id IS NOT NULL
            AND {_IN_FORCE} AND {_IN_REVISION.format(revision)}
    )"""


def redacted_since(case_id: str, revision: str) -> str:
    """SQL: whether identifiers were removed from a case after a revision, by a person or a scan."""
    return f"""(EXISTS (
        SELECT FROM audit_log AS act WHERE act.subject = 'case:' || {case_id} AND act.action = 'redact'
            AND CAST(act.details ->> 'revision' AS int) > {revision}
    ) OR EXISTS (
        SELECT FROM identifier_scans AS scan
        WHERE scan.case_id = {case_id} AND scan.revision > {revision} AND scan.found > 0
    ))"""


_HOLDS = f"""
    SELECT EXISTS (
        SELECT FROM snapshot_members AS m JOIN withdrawals AS w ON w.case_id = m.case_id
        WHERE m.version = :version AND {_IN_FORCE} AND (w.criterion_id IS NULL OR EXISTS (
            SELECT FROM criteria AS withdrawn JOIN criteria AS held USING (case_id, criterion)
            WHERE withdrawn.case_id = w.case_id AND withdrawn.revision = w.revision
                AND withdrawn.criterion_id = w.criterion_id AND held.revision = m.revision
        ))
    ) OR EXISTS (
        SELECT FROM snapshot_members AS m JOIN disputes AS d ON d.case_id = m.case_id
        WHERE m.version = :version AND closed_at IS NULL
    ) OR EXISTS (
        SELECT FROM snapshot_members AS m JOIN cases ON cases.id = m.case_id
        WHERE m.version = :version AND (status <> 'ready' OR {redacted_since("m.case_id", "m.revision")})
    )
"""
_CRITERIA = f"""
    SELECT criterion_digest, criterion FROM withdrawals AS w LEFT JOIN criteria AS c
        ON c.case_id = w.case_id AND c.revision = w.revision AND c.criterion_id = w.criterion_id
    WHERE w.case_id = :case_id AND criterion_digest IS NOT NULL AND {_IN_FORCE}
"""
_NOT_GIVEN_OUT = f"""
    SELECT DISTINCT version FROM snapshot_members AS m JOIN withdrawals AS w ON w.case_id = m.case_id
    WHERE kind IN ('takedown', 'privacy') AND first_release IS NOT NULL AND {_IN_FORCE}
        AND (criterion_id IS NULL OR ({_IN_REVISION.format("m.revision")}))
"""
_REASONS = f"""
    WITH stated AS (
        SELECT w.case_id, kind || ': ' || reason AS reason, criterion_id IS NULL AS is_whole, min(w.id) AS place
        FROM withdrawals AS w JOIN snapshot_members AS m ON m.case_id = w.case_id AND m.version = :version
        WHERE (criterion_id IS NULL OR m.revision < new_revision AND {_HAS_TEXT.format("m.revision")})
            AND {_IN_FORCE} GROUP BY 1, 2, 3
    )
    SELECT case_id, string_agg(reason, '; ' ORDER BY place) FROM stated
    WHERE is_whole OR NOT EXISTS (SELECT FROM stated AS whole WHERE whole.case_id = stated.case_id AND whole.is_whole)
    GROUP BY case_id
"""
_PLACES = """
    SELECT w.id AS number, w.case_id, w.kind, w.reason, w.criterion_digest, withdrawn_at, reinstated_at, version,
        was.criterion AS old_text, own.criterion_id, own.criterion, own.revision, own.origin
    FROM withdrawals AS w JOIN snapshot_members AS m ON m.case_id = w.case_id
    LEFT JOIN reinstatements ON withdrawal_id = w.id
    LEFT JOIN criteria AS was
        ON was.case_id = w.case_id AND was.revision = w.revision AND was.criterion_id = w.criterion_id
    LEFT JOIN criteria AS own
        ON w.criterion_id IS NOT NULL AND own.case_id = m.case_id AND own.revision = m.revision
    WHERE version = ANY (:frozen) AND first_release IS NOT NULL ORDER BY version
"""


async def holds_withdrawn(session: Session, version: str) -> bool:
    """Whether a snapshot has anything withdrawn, redacted, rejected, held or disputed, which can only have happened
    after its members were chosen."""
    return bool(await session.value(_HOLDS, version=version))


async def was_redacted(session: Session, case_id: str, since: int) -> bool:
    """Whether identifiers were removed from a case after a revision."""
    return bool(
        await session.value(
            f"SELECT {redacted_since(':case_id', ':since')}",
            case_id=case_id,
            since=since,
        )
    )


async def withdrawn_criteria(session: Session, case_id: str) -> set[str]:
    """The text digests of the criteria that were withdrawn from a case.

    They are made again from the texts that are still stored, as this version of the program may fold a text otherwise
    than the version that withdrew it.
    """
    digests = set()
    for row in await session.records(_CRITERIA, case_id=case_id):
        digest = row.criterion_digest
        digests.add(digest if row.criterion is None else text_digest(row.criterion))
    return digests


async def withdrawn_from(
    session: Session, case_id: str, criterion_id: str
) -> list[int]:
    """The revisions of a case from which a criterion of this id (`c3`) was withdrawn, in the order of withdrawals."""
    return await session.column(
        "SELECT revision FROM withdrawals WHERE case_id = :case_id AND criterion_id = :criterion_id ORDER BY id",
        case_id=case_id,
        criterion_id=criterion_id,
    )


async def add_withdrawal(
    session: Session, row: WithdrawalRow, criterion: Criterion | None
) -> WithdrawalRow:
    """Record a withdrawal, of a criterion or (None) the case.

    The caller must have locked the case's row and found no such withdrawal with `find_withdrawal`.
    """
    if criterion is not None:
        row.criterion_id = criterion.id
        row.criterion_digest = text_digest(criterion.criterion)
    await session.insert(row)
    await record(
        session,
        Act.WITHDRAW,
        f"case:{row.case_id}",
        row.reason,
        by=row.withdrawn_by,
        withdrawal=row.number,
        kind=row.kind,
        criterion=row.criterion_id,
    )
    return row


async def must_not_be_given_out(session: Session) -> frozenset[str]:
    """The snapshots that show anything withdrawn as a takedown or for privacy."""
    return frozenset(await session.column(_NOT_GIVEN_OUT))


async def find_withdrawal(
    session: Session,
    case_id: str,
    kind: WithdrawalKind,
    criterion_digest: str | None,
) -> WithdrawalRow | None:
    """The withdrawal of a kind of a case (no digest) or of its criterion that was not undone; None: there is none."""
    return await session.first(
        WithdrawalRow,
        f"""
        AS w WHERE case_id = :case_id AND kind = :kind AND criterion_digest IS NOT DISTINCT FROM :digest AND {_IN_FORCE}
        """,
        case_id=case_id,
        kind=kind,
        digest=criterion_digest,
    )


async def reinstate(
    session: Session,
    case_id: str,
    criterion_id: str | None,
    reason: str,
    *,
    by: str | None,
) -> list[WithdrawalRow]:
    """Undo the withdrawals of a case (`criterion_id` None) or of its criterion (`c3`); return those undone now."""
    reinstated = await session.rows(
        WithdrawalRow,
        f"""
        AS w WHERE case_id = :case_id AND criterion_id IS NOT DISTINCT FROM :criterion_id AND {_IN_FORCE} ORDER BY id
        """,
        case_id=case_id,
        criterion_id=criterion_id,
    )
    numbers = [withdrawal.number for withdrawal in reinstated]
    for number in numbers:
        await session.insert(ReinstatementRow(withdrawal_id=number, case_id=case_id))
    if reinstated:
        await record(
            session,
            Act.REINSTATE,
            f"case:{case_id}",
            reason,
            by=by,
            withdrawals=numbers,
            criterion=criterion_id,
        )
    return reinstated


async def reasons_for(session: Session, parent: str | None) -> dict[str, str]:
    """Case id → "kind: public reason" of the withdrawal of the case, or else of its criteria.

    Only for cases in the snapshot `parent`, and criteria that a case still has in it: a case that is revised for
    another cause has another reason.
    """
    return await session.lookup(_REASONS, version=parent)


async def load_errata(session: Session, *, public: bool = False) -> Errata:
    """The errata, from the database: for every withdrawal the frozen snapshots that show what was withdrawn.

    Until the transaction ends nobody else can load them, so that an older state is never written over a newer file. A
    criterion is looked for by its text: a revision in which it has another id is found, and a revision in which another
    criterion has its id is not. With `public`, snapshots that are not publishable are left out.
    """
    await session.run("SELECT pg_advisory_xact_lock(:lock)", lock=_LOCK)
    frozen = await session.column(
        """
        SELECT version FROM snapshots WHERE state = 'frozen' AND (publishable OR NOT :public) ORDER BY version
        """,
        public=public,
    )
    # Withdrawal and criterion's id, "" for the whole case → where a snapshot holds it, the oldest first
    places: dict[tuple[int, str], list[Any]] = defaultdict(list)
    for place in await session.run(_PLACES, frozen=frozen):
        if place.criterion_digest is not None:
            wanted = place.criterion_digest
            if place.old_text is not None:
                wanted = text_digest(place.old_text)
            if place.criterion is None or text_digest(place.criterion) != wanted:
                continue
        places[place.number, place.criterion_id or ""].append(place)
    entries = []
    for key in sorted(places):
        last = places[key][-1]
        part: dict[str, Any] = {"criterion_id": None, "revision": last.revision}
        if last.criterion_id is not None:
            part["criterion_id"] = f"{last.case_id}-{last.criterion_id}"
            if last.origin != Origin.ADVICE:
                part["origin"] = last.origin
        if last.reinstated_at is not None:
            part["reinstated_at"] = last.reinstated_at.replace(microsecond=0)
        erratum = Erratum(
            id=last.number,
            issued_at=last.withdrawn_at.replace(microsecond=0),
            kind=last.kind,
            case_id=last.case_id,
            reason=last.reason,
            snapshots=tuple(place.version for place in places[key]),
            fixed_in=next((week for week in frozen if week > last.version), None),
            **part,
        )
        entries.append(erratum)
    return Errata(entries=tuple(entries))
