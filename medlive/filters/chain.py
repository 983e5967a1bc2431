"""The filter chain: every rule on every thread, the first failure in order decides."""

from collections.abc import Sequence
from datetime import datetime

from medlive.filters.codebooks import Codebook
from medlive.filters.model import FilterSettings, FilterVerdict
from medlive.filters.rules import RULES, Subject
from medlive.integrity.digest import digest_json
from medlive.threads.model import Thread
from medlive.threads.near_duplicates import Match

_RULES_VERSION = 2
"""The version of the rules, raised when one changes, so that stored verdicts can be distinguished."""


def first_failure(verdicts: Sequence[FilterVerdict]) -> FilterVerdict | None:
    """The first verdict that did not pass; None if the thread passed."""
    return next((verdict for verdict in verdicts if not verdict.passed), None)


class FilterChain:
    """The rules under one set of settings and one code book."""

    def __init__(self, settings: FilterSettings, codebook: Codebook) -> None:
        self.settings = settings
        self.codebook = codebook
        self.digest = digest_json(
            {
                "rules": [rule.__name__ for rule in RULES],
                "version": _RULES_VERSION,
                "settings": settings.model_dump(mode="json"),
                "codebook": codebook.digest,
            }
        )
        """What a stored verdict names: rules, settings and code book."""

    def judge(
        self,
        thread: Thread,
        *,
        duplicate_of: Match | None,
        now: datetime,
    ) -> tuple[FilterVerdict, ...]:
        """Return each rule's verdict, in the chain's order.

        `now` is aware; `duplicate_of` comes from the index of earlier texts.
        """
        subject = Subject(thread, self.settings, self.codebook, duplicate_of, now)
        verdicts = []
        for rule in RULES:
            reason, evidence = rule(subject)
            verdict = FilterVerdict(rule.__name__, reason is None, reason, evidence)
            verdicts.append(verdict)
        return tuple(verdicts)
