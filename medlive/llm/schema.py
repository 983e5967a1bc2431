"""A reply's JSON schema in the subset that endpoints accept as "strict".

pydantic's schema is nearly that: closed objects with every property required. Titles, descriptions and text
lengths are left out (endpoints refuse or ignore them; the prompt describes the reply, and the reply is checked
against the whole model afterwards), and a reference stands alone.
"""

from collections.abc import Mapping
from typing import Any, Final

_LEFT_OUT: Final = frozenset({"title", "description", "default", "examples", "minLength", "maxLength"})
_BY_NAME: Final = frozenset({"properties", "$defs"})


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without what strict mode has no room for; objects are closed and require all they hold."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _LEFT_OUT:
            continue
        if key in _BY_NAME and isinstance(value, Mapping):
            found[key] = {name: strict_schema(part) for name, part in value.items()}
        elif isinstance(value, Mapping):
            found[key] = strict_schema(value)
        elif isinstance(value, list):
            found[key] = [strict_schema(part) if isinstance(part, Mapping) else part for part in value]
        else:
            found[key] = value
    if found.get("type") == "object":
        found["additionalProperties"] = False
        found["required"] = list(found.get("properties", {}))
    return found
