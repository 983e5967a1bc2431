# Stands in for PostgreSQL's official image where no registry is within reach: the distribution's server.
ARG BASE
FROM ${BASE}
COPY postgres-entrypoint.sh /usr/local/bin/
ENV PGDATA=/var/lib/postgresql/data
VOLUME ["/var/lib/postgresql"]
STOPSIGNAL SIGINT
ENTRYPOINT ["/usr/local/bin/postgres-entrypoint.sh"]
