#!/usr/bin/env bash
# As PostgreSQL's official image begins: a new cluster with POSTGRES_USER, POSTGRES_DB and POSTGRES_PASSWORD, the
# scripts of /docker-entrypoint-initdb.d once, then the server.
set -euo pipefail
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
if [ "$(id -u)" = 0 ]; then
  install -d -o postgres -g postgres -m 700 "$PGDATA"
  install -d -o postgres -g postgres -m 755 /var/run/postgresql
  exec setpriv --reuid postgres --regid postgres --clear-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --username="$POSTGRES_USER" --pwfile=<(echo "$POSTGRES_PASSWORD") \
    --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 --pgdata="$PGDATA"
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  pg_ctl --wait --options="-c listen_addresses=''" start
  createdb --username="$POSTGRES_USER" "$POSTGRES_DB" 2>/dev/null || true
  for script in /docker-entrypoint-initdb.d/*.sh; do
    [ ! -e "$script" ] || bash "$script"
  done
  pg_ctl --wait --mode=fast stop
fi
exec postgres -c listen_addresses='*' "$@"
