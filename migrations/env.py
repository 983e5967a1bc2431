"""Runs migrations on the connection that `medlive.db.schema.migrate` hands over, holding its advisory lock."""

from alembic import context
from sqlalchemy import text

from medlive.db.schema.migrate import LOCK_TIMEOUT
from medlive.db.tables import Base


def run() -> None:
    """Each migration in a transaction of its own, none waiting long for a lock nor working without end."""
    connection = context.config.attributes["connection"]
    connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.execute(text("SET statement_timeout = '15min'"))
    connection.commit()
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
