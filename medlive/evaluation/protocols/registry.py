"""All protocols, plugins included (`known_protocols`): made by name, or those that fit some runs (`fitting`)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from medlive.errors import ConfigError, UsageError, first_fault
from medlive.evaluation.scoring.graded import GradedRun
from medlive.plugins import load_plugins

from .checklist import Checklist
from .coverage import Coverage
from .cross_examination import CrossExamine
from .exact import Number, Query
from .model import Material, Protocol
from .pairwise import Pairwise
from .safety import ActiveSafety, PassiveSafety

_KINDS = (
    Coverage,
    Checklist,
    CrossExamine,
    Pairwise,
    PassiveSafety,
    ActiveSafety,
    Number,
    Query,
)
PROTOCOLS: Mapping[str, type[Protocol]] = {kind.name: kind for kind in _KINDS}
"""medlive's own, by name."""


def known_protocols() -> Mapping[str, type[Protocol]]:
    """Every protocol by its name. Raises ConfigError for a plugin that is not a protocol, or takes a known name."""
    protocols = dict(PROTOCOLS)
    for kind in load_plugins("protocols"):
        if not (isinstance(kind, type) and issubclass(kind, Protocol)):
            raise ConfigError(f"expected a class of Protocol, not {kind!r}")
        if kind.name in protocols:
            raise ConfigError(f"there are two protocols named {kind.name!r}")
        protocols[kind.name] = kind
    return protocols


def make_protocol(name: str, options: Mapping[str, Any]) -> Protocol:
    """The protocol of that name with these options; a number may be given as a text. Raises UsageError."""
    protocols = known_protocols()
    if (kind := protocols.get(name)) is None:
        raise UsageError(
            f"there is no protocol {name!r}", hint=f"there are {', '.join(protocols)}"
        )
    try:
        return kind.model_validate(dict(options))
    except ValidationError as exc:
        raise UsageError(
            f"--set {first_fault(exc)}",
            hint="medlive eval protocol list shows the options",
        ) from exc


def fitting(runs: Material) -> Iterator[tuple[str, Protocol, Material]]:
    """Yield tasks, (name, protocol with default options, runs): every protocol on each set of cases that it fits.

    A task is named after its protocol, with a number where several sets of cases fit it. Raises
    UsageError for two runs of one model on the same cases.
    """
    sets: dict[tuple[tuple[str, str], ...], list[GradedRun]] = {}
    for run in runs:
        # Cases with a planted error have the ids of the cases that they were made from.
        asked = tuple((case.case_id, case.question) for case in run.cases)
        sets.setdefault(asked, []).append(run)
    for material in sets.values():
        (label, n), *_ = Counter(run.label for run in material).most_common(1)
        if n > 1:
            raise UsageError(
                f"several runs of {label} are on the same cases",
                hint="name one run of each model",
            )
    for name, kind in known_protocols().items():
        fitted = [material for material in sets.values() if kind.fits(material)]
        for place, material in enumerate(fitted, start=1):
            yield name if len(fitted) == 1 else f"{name}:{place}", kind(), material
