# A server of the distribution: what deploy/README.md wants for systemd, nginx for both, and PostgreSQL's programs.
ARG BASE
FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends \
      systemd systemd-sysv dbus postgresql nginx-light python3-venv procps openssl curl && \
    apt-get clean && rm -rf /var/lib/apt/lists/*
STOPSIGNAL SIGRTMIN+3
CMD ["/lib/systemd/systemd"]
