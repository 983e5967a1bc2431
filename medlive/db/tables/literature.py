"""Tables of literature services: what they answered, and when each may be asked next."""

from datetime import datetime

from sqlalchemy import Index
from sqlalchemy.orm import Mapped

from medlive.db.tables.base import Base, Digest, column, key_column, now_column


class LiteratureAnswerRow(Base):
    """What literature services answered, by request and by article, so that nothing is asked twice."""

    __tablename__ = "literature_answers"
    __table_args__ = (Index(None, "fetched_at"),)
    key: Mapped[Digest] = key_column("The digest of service, address and form")
    service: Mapped[str] = column("The service: pubmed or europepmc")
    body: Mapped[bytes] = column(
        "What was read from the answer, without the words that were searched"
    )
    fetched_at: Mapped[datetime] = now_column("When it was asked")


class LiteratureTurnRow(Base):
    """When each literature service may be asked next, over all workers."""

    __tablename__ = "literature_turns"
    service: Mapped[str] = key_column("The service")
    next_at: Mapped[datetime] = column("When the next request may be made")
