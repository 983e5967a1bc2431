"""Why a case is held, parked or rejected, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .model import (
    Alignment,
    ClaimVerdict,
    Curation,
    Hold,
    Outcome,
    Reason,
)


def hold_on(reason: Reason, details: Mapping[str, str]) -> list[Hold]:
    """A list of the hold on elements (id, "" for the case as a whole → why); empty without `details`."""
    elements = tuple(filter(None, details))
    return [Hold(reason, join_details(details), elements)] if details else []


def join_details(details: Mapping[str, str]) -> str:
    """The details of `hold_on` in one line."""
    lines = [f"{name}: {why}" if name else why for name, why in details.items()]
    return "; ".join(lines)


def with_holds(curation: Curation, holds: tuple[Hold, ...]) -> Curation:
    """Add holds to a curation, which is held then; unchanged if it has none."""
    holds = curation.holds + holds
    if not holds:
        return curation
    details = "; ".join(f"{h.reason.value}: {h.detail}" for h in holds)
    return replace(
        curation,
        outcome=Outcome.HELD,
        reason=holds[0].reason,
        detail=details[:2000],
        holds=holds,
    )


def reject_parked(parked: Curation, weeks: int) -> Curation:
    """Return the rejection that the paper would give, for a case parked too long.

    Args:
        parked: The decision that parked it.
        weeks: How long it has been parked.
    """
    detail = f"{describe_alignment(parked)}; parked for {weeks} weeks"
    return replace(
        parked,
        outcome=Outcome.REJECTED,
        reason=Reason.NOT_ALIGNED,
        detail=detail,
        calls=(),
    )


def describe_alignment(curation: Curation) -> str:
    """Return why S_align is too low, in words."""
    claims = curation.claims
    supported = len(claims_with(claims, Alignment.SUPPORTED))
    limit = curation.thresholds.alignment
    return (
        f"S_align = {curation.s_align:.3f}, not above {limit}: "
        f"{supported} of {len(claims)} supported"
    )


def claims_with(
    claims: Sequence[ClaimVerdict], verdict: Alignment
) -> list[ClaimVerdict]:
    """The claims with this verdict."""
    return [claim for claim in claims if claim.verdict is verdict]
