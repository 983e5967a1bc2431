"""The database's roles with the least rights that each process needs.

The owner migrates, takes threads down and grants; `medlive_worker` writes what the week's steps write;
`medlive_web` reads, and writes what people do on pages: accounts, acts on cases and threads, studies. Neither owns a
table, so neither can alter one, switch off the triggers that keep frozen rows, or empty one; where rows are only
added, neither may change a row. `medlive/db/schema/rights.py` lists the rights.
"""

from sqlalchemy import text

from medlive.db.schema.revisions import connect
from medlive.db.schema.rights import WEB, WORKER, close_database, replace_rights


def grant(url: str) -> list[str]:
    """Create both roles, without a login, replace their rights, and return their names.

    Raises DatabaseUnavailable, and DatabaseForbidden for a user who may not do it.
    """
    with connect(url) as connection:
        for role in (WEB, WORKER):
            # Roles belong to the server: another database may make the same one at the same time.
            connection.execute(
                text(f"""
                    DO $$ BEGIN IF to_regrole('{role}') IS NULL THEN CREATE ROLE {role} NOLOGIN; END IF;
                    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$
                """)
            )
            replace_rights(connection, role)
        close_database(connection)
        connection.commit()
    return [WEB, WORKER]
