"""What names a secret among the parameters of a call: `run.json` holds them, and bundles publish them."""

import re
from collections.abc import Mapping
from typing import Any, Final

from medlive.errors import UsageError

KEYS_BELONG: Final = "keys belong into the variable that --api-key-env names"

_SECRET: Final = re.compile(
    r"(?:^|[^a-z])(?:api[^a-z]?key|authorization|secret|password|passwd|credentials?|cookies?|headers|bearer"
    r"|access[^a-z]?key|(?:access|auth|api|refresh|session)[^a-z]?token)s?(?:$|[^a-z])"
)
"""In the name of a parameter, spelt small."""
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def names_secret(place: str) -> bool:
    """Whether a parameter's name, with those that it lies in, is that of a secret."""
    return _SECRET.search(_HUMP.sub("_", place).lower()) is not None


def leaves(value: Any, place: str = "") -> list[tuple[str, Any]]:
    """(name, value) of all that parameters hold, a name being `outer.inner[0]`."""
    if isinstance(value, Mapping):
        return [one for k, v in value.items() for one in leaves(v, f"{place}.{k}" if place else str(k))]
    if isinstance(value, list | tuple):
        return [one for i, v in enumerate(value) for one in leaves(v, f"{place}[{i}]")]
    return [(place, value)]


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raises UsageError where a parameter looks like a secret: before it is written down."""
    for place, _ in leaves(parameters):
        if names_secret(place):
            raise UsageError(
                f"the parameter {place} looks like a secret, and run.json would hold it", hint=KEYS_BELONG
            )
