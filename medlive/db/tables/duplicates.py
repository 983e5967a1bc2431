"""Tables of near-duplicates: the MinHash bands of accepted threads, and how far they are filled in."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Integer
from sqlalchemy.orm import Mapped, mapped_column

from medlive.db.tables.base import Base, now_column


class BandSchemeRow(Base):
    """A way of making bands from texts, and whether every accepted thread has them."""

    __tablename__ = "band_schemes"
    __table_args__ = (
        CheckConstraint("char_length(scheme) BETWEEN 1 AND 200", name="scheme_length"),
        CheckConstraint("filled_to >= 0", name="filled_to_not_negative"),
        {"comment": "The way in which the bands here were made; another one has them made anew"},
    )

    scheme: Mapped[str] = mapped_column(
        primary_key=True, comment="What bands are made of, and a check of what the library gives"
    )
    filled_to: Mapped[int] = mapped_column(
        server_default="0", comment="The last revision whose bands were filled in afterwards; 0: none yet"
    )
    started_at: Mapped[datetime] = now_column("When its bands were begun")
    finished_at: Mapped[datetime | None] = mapped_column(
        comment="Since when every accepted thread has its bands; NULL while they are filled in"
    )


class BandRow(Base):
    """One band of one accepted text of a thread."""

    __tablename__ = "bands"
    __table_args__ = ({"comment": "MinHash bands: threads that share one may be near-duplicates"},)

    key: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, autoincrement=False, comment="A hash of the band's place and its minima"
    )
    thread_id: Mapped[int] = mapped_column(
        Integer,
        ForeignKey("threads.id"),
        primary_key=True,
        autoincrement=False,
        comment="A thread of which some accepted revision has this band",
    )
