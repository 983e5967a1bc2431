"""Settings from files and the environment, each value with its origin."""

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args
from urllib.parse import quote

from pydantic import BaseModel, SecretStr, ValidationError

from medlive.config import Settings
from medlive.errors import ConfigError, first_fault
from medlive.guard.redaction import HIDDEN, hide_secrets
from medlive.guard.trust import use_authority
from medlive.home import (
    config_folder,
    default_home,
    origin_of,
    own_folder,
    read_tables,
    report_unnamed,
)
from medlive.plugins import use_plugins

DATABASE_PARTS = (
    "MEDLIVE_DATABASE_HOST",
    "MEDLIVE_DATABASE_PORT",
    "MEDLIVE_DATABASE_NAME",
    "MEDLIVE_DATABASE_USER",
    "MEDLIVE_DATABASE_PASSWORD",
    "MEDLIVE_DATABASE_PASSWORD_FILE",
    "MEDLIVE_DATABASE_SSLMODE",
)
"""Variables that may be set instead of MEDLIVE_DATABASE_URL; their values are not escaped."""
_VARIABLES = (
    *DATABASE_PARTS,
    "MEDLIVE_HOME",
    "MEDLIVE_CONFIG",
    "MEDLIVE_PLUGINS",
    "MEDLIVE_SIGNING_KEY",
    "MEDLIVE_SIGNING_KEY_FILE",
    "MEDLIVE_DATABASE_URL",
    "MEDLIVE_WEB_PASSWORD",
    "MEDLIVE_WORKER_PASSWORD",
    "MEDLIVE_LOG_LEVEL",
    "MEDLIVE_LOG_FORMAT",
    "MEDLIVE_EXTRAS",
)
"""The variables whose names are not made from a section and a setting."""
_PREFIX = "MEDLIVE_"
Section = TypeVar("Section", bound=BaseModel)


def load_settings(
    environment: Mapping[str, str] | None = None,
) -> tuple[Settings, Mapping[str, str]]:
    """Load the effective settings; from now on the authority and the plugins that they name are used.

    Also returns the origins: dotted key → the name of a file or environment variable, for each value that is not a
    default. Raises ConfigError with the file or variable, the key and the fault.
    """
    env = os.environ if environment is None else environment
    folder = config_folder(env)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    # Shipped files, read in place of missing ones, come first: the folder's own files override them.
    tables = sorted(read_tables(folder), key=lambda read: read[0].parent == folder)
    for path, table in tables:
        if "home" in table:
            raise ConfigError(
                f"{origin_of(path)}: home cannot be set in a file",
                hint="MEDLIVE_HOME names the folder of the state",
            )
        _merge(values, _anchor(table, path.parent), origin_of(path), origins)
    report_unnamed(env, folder, Settings.model_fields)
    _merge_environment(values, env, origins)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        parts = list(map(str, first["loc"]))
        where = ".".join(part for part in parts if part != "[key]")
        below = (o for name, o in origins.items() if name.startswith(where))
        origin = origins.get(where) or next(below, str(own_folder(env)))
        problem = first["msg"]
        hint = None
        if first["type"] == "extra_forbidden":
            problem = "unknown setting"
            known = getattr(_kind_of(parts[:-1]), "model_fields", ())
            near = get_close_matches(parts[-1], known, n=1)
            meant = f"is {near[0]} meant? " if near else ""
            hint = f"{meant}`medlive config show` lists the settings"
        raise ConfigError(f"{origin}: {where}: {problem}", hint=hint) from exc
    use_authority(settings.tls.authority)
    use_plugins(settings.plugins)
    home = settings.home.expanduser().absolute()
    return settings.model_copy(update={"home": home}), origins


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The effective settings. Raises as `load_settings` does."""
    return load_settings(environment)[0]


def _kind_of(path: Sequence[str]) -> Any:
    """The type of a setting or section; None for an unknown one, and where any value is allowed."""
    kind: Any = Settings
    for part in path:
        if fields := getattr(kind, "model_fields", None):
            kind = fields[part].annotation if part in fields else None
        else:
            # A table of names: dict[str, model]
            kind = next(iter(get_args(kind)[1:]), None)
        if NoneType in get_args(kind):
            kind = get_args(kind)[0]
    return kind


def validate_section(
    model: type[Section], name: str, values: Mapping[str, Any]
) -> Section:
    """Check a section's values with `model`, which belongs to the package that uses them. Raises ConfigError."""
    try:
        return model.model_validate(values)
    except ValidationError as exc:
        raise ConfigError(f"{name}.{first_fault(exc)}") from exc


def dotted(
    value: object,
    name: str = "",
) -> Iterator[tuple[str, object]]:
    """Yield the values of nested tables, each under its dotted name; an empty table is a value.

    A table in a list has its place, from 1, as its name.
    """
    tables = value
    if isinstance(value, list) and value and isinstance(value[0], dict):
        tables = dict(enumerate(value, start=1))
    if not isinstance(tables, dict) or not tables:
        yield name, value
        return
    for key, part in tables.items():
        yield from dotted(part, f"{name}.{key}" if name else str(key))


def describe(
    settings: Settings, origins: Mapping[str, str]
) -> list[tuple[str, object, str]]:
    """(dotted key, value, origin) of every setting, secrets masked."""
    values = settings.model_dump(mode="json")
    url = settings.database_url
    values["database_url"] = f"embedded, under {settings.home}"
    if url is not None:
        values["database_url"] = mask_url(url.get_secret_value())
    rows = []
    for name, value in sorted(dotted(values), key=lambda row: row[0]):
        if isinstance(value, str):
            # A header's name may say that its value is a secret.
            value = hide_secrets(f"{name}={value}").removeprefix(f"{name}=")
        rows.append((name, value, origins.get(name, "default")))
    return rows


def mask_url(url: str) -> str:
    """A database URL without its password; a text that is not a URL is hidden whole."""
    return hide_secrets(url) if "://" in url else HIDDEN


def _anchor(value: object, folder: Path, *path: str) -> Any:
    """Put the relative paths in a file's settings below the file's folder, wherever the command is started.

    Paths are settings of type Path, and texts in `[evidence]` that begin with `./`, `../` or `~/`, as of an encoder.
    `path` names the setting.
    """
    if isinstance(value, dict):
        return {
            name: _anchor(part, folder, *path, name) for name, part in value.items()
        }
    if isinstance(value, list):
        return [_anchor(part, folder, *path) for part in value]
    if not isinstance(value, str):
        return value
    is_path = _kind_of(path) in (Path, tuple[Path, ...])
    if path[0] == "evidence" and value.startswith(("./", "../", "~/")):
        is_path = True
    if value and is_path:
        return str(folder / Path(value).expanduser())
    return value


def _merge(
    into: dict[str, Any],
    table: Mapping[str, Any],
    origin: str,
    origins: dict[str, str],
    above: str = "",
) -> None:
    """Merge a table into `into`, and note each value's origin by its dotted key; `above` is the key's beginning."""
    for key, value in table.items():
        below = into.setdefault(key, {}) if isinstance(value, dict) else None
        if isinstance(below, dict):
            _merge(below, value, origin, origins, f"{above}{key}.")
        else:
            into[key] = value
            origins[f"{above}{key}"] = origin


def _database_by_parts(env: Mapping[str, str]) -> str | None:
    """The database URL from the variables DATABASE_PARTS, escaped; None without a host."""
    host, port, name, user, password, file, mode = map(env.get, DATABASE_PARTS)
    if not host:
        return None
    if env.get("MEDLIVE_DATABASE_URL"):
        raise ConfigError("set MEDLIVE_DATABASE_URL or MEDLIVE_DATABASE_HOST, not both")
    if file:
        if password:
            raise ConfigError(
                "set MEDLIVE_DATABASE_PASSWORD or MEDLIVE_DATABASE_PASSWORD_FILE, not both"
            )
        try:
            if os.stat(file).st_mode & 0o007:
                raise ConfigError(
                    f"{file} can be read by every user", hint=f"chmod o= {file}"
                )
            password = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(
                f"MEDLIVE_DATABASE_PASSWORD_FILE: {file} cannot be read: {exc}"
            ) from exc
    caller = quote(user or "medlive", safe="")
    if password:
        caller += f":{quote(password, safe='')}"
    query = f"?sslmode={quote(mode, safe='')}" if mode else ""
    host = f"[{host}]" if ":" in host else host
    return f"postgresql://{caller}@{host}:{port or 5432}/{name or 'medlive'}{query}"


def _check_names(env: Mapping[str, str]) -> None:
    """Refuse a variable that is spelt nearly like one of `_VARIABLES`; one that holds a key may have any other name."""
    for variable in env:
        if not variable.startswith(_PREFIX) or "__" in variable:
            continue
        near = get_close_matches(variable, _VARIABLES, n=1, cutoff=0.87)
        if near and variable not in _VARIABLES:
            raise ConfigError(
                f"{variable}: unknown variable", hint=f"is {near[0]} meant?"
            )


def _merge_environment(
    values: dict[str, Any], env: Mapping[str, str], origins: dict[str, str]
) -> None:
    """Merge into `values` what the environment sets: home, plugins, the database, and MEDLIVE_SECTION__SETTING."""
    values["home"] = env.get("MEDLIVE_HOME") or str(default_home())
    if env.get("MEDLIVE_HOME"):
        origins["home"] = "MEDLIVE_HOME"
    _check_names(env)
    if folder := env.get("MEDLIVE_PLUGINS"):
        values["plugins"] = str(Path(folder).expanduser().absolute())
        origins["plugins"] = "MEDLIVE_PLUGINS"
    by_parts = _database_by_parts(env)
    if url := by_parts or env.get("MEDLIVE_DATABASE_URL"):
        values["database_url"] = url
        origins["database_url"] = f"MEDLIVE_DATABASE_{'HOST' if by_parts else 'URL'}"
    for variable, text in env.items():
        # Compose sets variables to "" that the user left out.
        if text and variable.startswith(_PREFIX) and "__" in variable:
            *path, leaf = variable.removeprefix(_PREFIX).lower().split("__")
            table = values
            for part in path:
                table = table.setdefault(part, {})
                if not isinstance(table, dict):
                    raise ConfigError(
                        f"{variable}: {part} is a single value, not a table"
                    )
            table.pop(leaf, None)
            above = ".".join([*path, ""])
            origins[above + leaf] = variable
            # The value is TOML or plain text. For a text setting it stays text, as a password of digits.
            value: Any = text
            with suppress(tomllib.TOMLDecodeError):
                value = tomllib.loads(f"value = {text}")["value"]
            is_text = _kind_of([*path, leaf]) in (str, SecretStr)
            if is_text and not isinstance(value, str):
                value = text
            _merge(table, {leaf: value}, variable, origins, above)
