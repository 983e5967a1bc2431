"""The contexts of the downloads' templates."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from medlive.db.tables.release import EvaluationRunRow
from medlive.snapshot.errata import Erratum
from medlive.text.html import Page
from medlive.web.downloads.catalog import ShownSnapshot


@dataclass(frozen=True)
class IndexPage(Page):
    """Every snapshot, newest first."""

    template = "downloads/index.html"
    snapshots: Sequence[ShownSnapshot]
    latest: ShownSnapshot | None
    address: str  # Of the site, for `medlive snapshot fetch --from`
    key: bool  # Whether the newest snapshot names a key


@dataclass(frozen=True)
class SnapshotPage(Page):
    """One snapshot: its files with digests, its card, and what is known of it since."""

    template = "downloads/snapshot.html"
    shown: ShownSnapshot
    address: str
    parent: str | None  # The parent, where the site shows it
    errata: Sequence[Erratum]
    evaluations: Sequence[EvaluationRunRow]
    has_report: bool
    # While people check a grader's verdicts on its cases without seeing them
    report_withheld: bool
    card: Markup


@dataclass(frozen=True)
class ErrataPage(Page):
    """What was withdrawn after it was frozen, newest first."""

    template = "downloads/errata.html"
    errata: Sequence[Erratum]
