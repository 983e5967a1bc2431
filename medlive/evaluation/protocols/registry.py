"""The protocols there are."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from medlive.errors import UsageError
from medlive.evaluation.protocols.checklist import Checklist
from medlive.evaluation.protocols.coverage import Coverage
from medlive.evaluation.protocols.cross_examination import CrossExamine
from medlive.evaluation.protocols.model import Protocol
from medlive.evaluation.protocols.pairwise import Pairwise
from medlive.llm.ask import first_fault

PROTOCOLS: Final[Mapping[str, type[Protocol]]] = {
    kind.name: kind for kind in (Coverage, Checklist, CrossExamine, Pairwise)
}


def make_protocol(name: str, options: Mapping[str, Any]) -> Protocol:
    """The protocol of that name with these options, texts as a command line gives them. Raises UsageError."""
    if (kind := PROTOCOLS.get(name)) is None:
        raise UsageError(f"there is no protocol {name!r}", hint=f"there are {', '.join(PROTOCOLS)}")
    try:
        return kind.model_validate_strings(dict(options))
    except ValidationError as exc:
        known = ", ".join(kind.model_fields) or "none"
        raise UsageError(f"--set {first_fault(exc)}", hint=f"{name} has the options {known}") from exc
