#!/usr/bin/env bash
# The users of workers and web in a new database server; `medlive db roles` gives their roles rights.
# PostgreSQL's image runs this once, before the first start.
set -euo pipefail
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\getenv worker_password MEDLIVE_WORKER_PASSWORD
\getenv web_password MEDLIVE_WEB_PASSWORD
CREATE ROLE medlive_worker NOLOGIN;
CREATE ROLE medlive_web NOLOGIN;
CREATE ROLE worker LOGIN PASSWORD :'worker_password' IN ROLE medlive_worker;
CREATE ROLE web LOGIN PASSWORD :'web_password' IN ROLE medlive_web;
SQL
