"""The database's rights as `docs/builders/database-rights.md` has them, compared with the catalogue both ways."""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from medlive.db.schema.rights import WEB, WORKER
from tests.support.server import plain

DOCUMENT = Path(__file__).parents[2] / "docs" / "builders" / "database-rights.md"
Rights = Mapping[str, set[str]]
"""`role right` → the objects, with their columns where the right is on some columns alone."""

TABLES = """
    SELECT grantee, privilege_type, table_name FROM information_schema.table_privileges
    WHERE table_schema = 'public' AND grantee <> current_user
"""
COLUMNS = f"""
    SELECT grantee, privilege_type, table_name || '(' || string_agg(column_name, ', ' ORDER BY column_name) || ')'
    FROM information_schema.column_privileges
    WHERE table_schema = 'public' AND grantee <> current_user
        AND (grantee, privilege_type, table_name) NOT IN ({TABLES})
    GROUP BY grantee, privilege_type, table_name
"""
SEQUENCES = """
    SELECT grantee, privilege_type, object_name FROM information_schema.usage_privileges
    WHERE object_schema = 'public' AND object_type = 'SEQUENCE' AND grantee <> current_user
"""
FUNCTIONS = """
    SELECT grantee, privilege_type, routine_name FROM information_schema.routine_privileges
    WHERE routine_schema = 'public' AND grantee <> current_user
"""
OPEN = {
    "functions that run as their owner": "SELECT proname FROM pg_proc WHERE prosecdef"
    " AND pronamespace = 'public'::regnamespace",
    "functions that read a caller's temporary tables": "SELECT proname FROM pg_proc"
    r" WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'medlive\_%'"
    " AND proconfig IS DISTINCT FROM ARRAY['search_path=public, pg_temp']",
    "default privileges": "SELECT defaclobjtype FROM pg_default_acl",
    "who may make something in the schema": "SELECT grantee::regrole FROM pg_namespace, aclexplode(nspacl) AS acl"
    " WHERE nspname = 'public' AND privilege_type = 'CREATE' AND grantee <> nspowner",
    "what belongs to somebody else": "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    " AND relowner <> current_user::regrole",
    "attributes and memberships of the roles": "SELECT rolname FROM pg_roles WHERE rolname LIKE 'medlive\\_%' AND"
    " (rolsuper OR rolcreaterole OR rolcreatedb OR rolcanlogin OR rolreplication OR rolbypassrls"
    " OR EXISTS (SELECT FROM pg_auth_members WHERE member = pg_roles.oid))",
}
"""What nobody may have → a query for what there is of it."""


def documented() -> Rights:
    """The rights that the document lists, a line each: role, right, objects."""
    rows = re.findall(
        r"^\| `(medlive_\w+)` \| ([A-Z]+) \| (.+) \|$",
        DOCUMENT.read_text("utf-8"),
        re.MULTILINE,
    )
    return {
        f"{role} {right}": set(re.findall(r"`([^`]+)`", objects))
        for role, right, objects in rows
    }


def granted(connection: psycopg.Connection[Any]) -> Rights:
    """The rights that the catalogue has, of everybody but the owner."""
    found: dict[str, set[str]] = defaultdict(set)
    for query in (TABLES, COLUMNS, SEQUENCES, FUNCTIONS):
        for role, right, name in connection.execute(query):
            found[f"{role} {right}"].add(name)
    return found


def test_the_documented_rights_are_those_of_the_catalogue(database_url: str) -> None:
    with psycopg.connect(plain(database_url)) as owner:
        found = granted(owner)
        lines = [
            f"| `{key.replace(' ', '` | ')} | {', '.join(f'`{n}`' for n in sorted(found[key]))} |"
            for key in sorted(found)
        ]
        assert documented() == found, "\n".join(["the catalogue says:", *lines])
        assert {key.split()[0] for key in found} == {WEB, WORKER}
        existing = {
            what: owner.execute(query).fetchall() for what, query in OPEN.items()
        }
    assert not any(existing.values()), existing
