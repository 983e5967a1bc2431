"""How the complete score goes with the paper's, and each score with the length of the answers."""

from typing import Final

from medlive.report.html import Section, soft
from medlive.report.model import Report

_CAPTION: Final = (
    "Characters of an answer against its score. Partial: Pearson's r given the model and the case, so that neither "
    "long-winded models nor questions that need much count (ClinConsensus, Table 11). A score that pays for length "
    "has a high one; the core score is there to be compared."
)


def length(report: Report) -> Section:
    """The section."""
    parts = [soft(_CAPTION), report.render("length.html")]
    return Section("length", "Length of answers", parts)
