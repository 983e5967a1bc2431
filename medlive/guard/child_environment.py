"""The environment of child processes: the variables that are named here, and nothing else of this process's.

What is not passed on cannot leak: a child that runs as another user, outlives its parent (the embedded PostgreSQL)
or reads what a stranger wrote (a dump) knows no signing key, no password of a service and no key of an endpoint.
"""

import os
from collections.abc import Mapping

SYSTEM = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What any program needs to be found, to load its libraries and to write temporary files."""

LIBPQ = (
    "HOME",
    "PGAPPNAME",
    "PGCHANNELBINDING",
    "PGCONNECT_TIMEOUT",
    "PGDATABASE",
    "PGGSSDELEGATION",
    "PGGSSENCMODE",
    "PGGSSLIB",
    "PGHOST",
    "PGHOSTADDR",
    "PGKRBSRVNAME",
    "PGLOADBALANCEHOSTS",
    "PGOPTIONS",
    "PGPASSFILE",
    "PGPASSWORD",
    "PGPORT",
    "PGREQUIREAUTH",
    "PGREQUIREPEER",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSSLCERT",
    "PGSSLCERTMODE",
    "PGSSLCRL",
    "PGSSLCRLDIR",
    "PGSSLKEY",
    "PGSSLMAXPROTOCOLVERSION",
    "PGSSLMINPROTOCOLVERSION",
    "PGSSLMODE",
    "PGSSLNEGOTIATION",
    "PGSSLROOTCERT",
    "PGSSLSNI",
    "PGTARGETSESSIONATTRS",
    "PGUSER",
    "KRB5CCNAME",
    "KRB5_CONFIG",
)
"""What PostgreSQL's clients read to connect, as this process's own driver does."""


def child_environment(
    *names: str, values: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the whole environment of a child process.

    Args:
        names: Variables that it gets from this process besides SYSTEM, where they are set.
        values: Variables that are given to it alone.
    """
    environment: dict[str, str] = {}
    for name in (*SYSTEM, *names):
        if name in os.environ:
            environment[name] = os.environ[name]
    # Messages that are read here are English, and no locale has to be installed.
    return environment | {"LC_ALL": "C"} | dict(values or {})
