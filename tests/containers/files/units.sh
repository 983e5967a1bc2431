#!/usr/bin/env bash
# In a container with systemd: the lines of deploy/README.md, and what the units promise. $1 is a step's name.
set -euo pipefail
cd /srv/medlive

fail() { echo "$*" >&2; exit 1; }
soon() { # soon SECONDS COMMAND...: until it succeeds
  local limit=$((SECONDS + $1))
  shift
  until "$@" > /dev/null 2>&1; do
    [ "$SECONDS" -lt "$limit" ] || fail "not in time: $*"
    sleep 1
  done
}
ask() { curl --silent --fail "http://127.0.0.1:$1/$2"; }
is_ok() { ask "$1" healthz | grep -q '"ok"'; }
restarts() { systemctl show --property=NRestarts --value "$1"; }
mapfile -t units < <(systemctl list-units --all --no-legend --plain 'medlive*.service' | cut -d' ' -f1)

case $1 in
installed)
  bash /srv/lines.sh
  echo "$(/opt/medlive/bin/medlive --version), PostgreSQL $(runuser -u postgres -- psql -Atc 'SHOW server_version')"
  ;;
running)
  # As deploy/README.md says of weekly backups.
  install -d -m 700 -o medlive -g medlive /backups
  install -d /etc/systemd/system/medlive@backup.service.d
  printf '[Service]\nReadWritePaths=/backups\n' > /etc/systemd/system/medlive@backup.service.d/override.conf
  systemctl daemon-reload
  systemctl enable --quiet --now medlive@backup
  for port in 8090 8091 8092; do soon 120 is_ok "$port"; done
  for port in 8080 8081 9464; do soon 120 ask "$port" readyz; done
  for unit in "${units[@]}" medlive@backup; do
    [ "$(restarts "$unit")" = 0 ] || fail "$unit was restarted"
  done
  echo "${units[*]} medlive@backup"
  ;;
sandboxed)
  most=0
  for unit in "${units[@]}"; do
    exposure=$(systemd-analyze security --no-pager "$unit" | sed -n 's/.*xposure level[^0-9]*\([0-9.]*\).*/\1/p')
    awk "BEGIN { exit !($exposure > $most) }" && most=$exposure
  done
  awk "BEGIN { exit !($most > 0 && $most < 3) }" || fail "systemd-analyze security: an exposure of $most, expected below 3"
  cat > /srv/probe.sh <<'END'
beyond=
for place in /etc/medlive /opt/medlive /usr /srv /var/log /root /home /backups; do
  if touch "$place/probe" 2> /dev/null; then beyond="$beyond $place"; fi
done
touch /var/lib/medlive/probe || beyond="$beyond not-its-own-folder"
[ "$(stat -c %a /var/lib/medlive/probe)" = 600 ] || beyond="$beyond umask"
[ ! -e /dev/kmsg ] || beyond="$beyond devices"
if mount -t tmpfs none /tmp 2> /dev/null; then beyond="$beyond mount"; fi
if [ -e /proc/1/cmdline ]; then beyond="$beyond processes"; fi
grep -q '^CapBnd:.0*$' /proc/self/status || beyond="$beyond capabilities"
grep -q '^NoNewPrivs:.1$' /proc/self/status || beyond="$beyond privileges"
echo "beyond its bounds:$beyond."
END
  # The unit itself with another command.
  echo 'COMMAND=' > /etc/medlive/probe.env
  install -d /etc/systemd/system/medlive@probe.service.d
  printf '[Service]\nType=oneshot\nRestart=no\nExecStart=\nExecStart=/bin/bash /srv/probe.sh\n' \
    > /etc/systemd/system/medlive@probe.service.d/probe.conf
  systemctl daemon-reload
  systemctl start medlive@probe || true
  soon 20 sh -c "journalctl --unit=medlive@probe --output=cat --no-pager | grep -q 'beyond its'"
  found=$(journalctl --unit=medlive@probe --output=cat --no-pager | grep 'beyond its' | tail -1)
  rm -r /etc/systemd/system/medlive@probe.service.d /etc/medlive/probe.env
  systemctl daemon-reload
  [ "$found" = "beyond its bounds:." ] || fail "$found"
  echo "an exposure of $most of 10; no write outside its folder, no devices, mounts, processes, capabilities"
  ;;
secret)
  for file in owner.password worker.password web.password medlive.env; do
    found=$(stat -c '%a %U %G' "/etc/medlive/$file")
    [ "$found" = "640 root medlive" ] || fail "$file: $found"
  done
  found=$(stat -c '%a %U' /etc/medlive/medlive.key)
  [ "$found" = "600 medlive" ] || fail "medlive.key: $found"
  if runuser -u nobody -- cat /etc/medlive/web.password 2> /dev/null; then fail "anybody reads web.password"; fi
  for file in owner worker web; do
    # By the file: what searches must not show the password itself.
    held="/etc/medlive/$file.password"
    if systemctl show "${units[@]}" | grep -qFf "$held"; then fail "systemctl shows $held"; fi
    if cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2> /dev/null | grep -qaFf "$held"; then fail "a process shows $held"; fi
    if journalctl --no-pager | grep -qFf "$held"; then fail "the journal holds $held"; fi
  done
  web=$(systemctl show --property=MainPID --value medlive@web)
  tr '\0' '\n' < "/proc/$web/environ" | grep -q '^MEDLIVE_DATABASE_USER=web$' || fail "the web is not the user web"
  echo "passwords and keys only in files, of root:medlive and mode 640; the web is the database's user web"
  ;;
restarted)
  kill -9 "$(systemctl show --property=MainPID --value medlive@worker)"
  soon 60 sh -c '[ "$(systemctl show --property=NRestarts --value medlive@worker)" = 1 ]'
  soon 120 is_ok 8091
  systemctl restart 'postgresql@*'
  sleep 5  # until everybody has noticed; who is stopped while it waits ends with 3
  for port in 8080 8081 9464; do soon 120 ask "$port" readyz; done
  for port in 8090 8091 8092; do soon 120 is_ok "$port"; done
  [ "$(restarts medlive@scheduler)" = 0 ] || fail "the scheduler was restarted with PostgreSQL"
  began=$SECONDS
  systemctl stop 'medlive@*'
  if systemctl list-units --failed --no-legend 'medlive@*' | grep -q .; then fail "a unit failed as it was stopped"; fi
  echo "the worker after kill -9; nobody with PostgreSQL; all stopped in $((SECONDS - began)) s"
  ;;
embedded)
  # As deploy/README.md says of machines without a server of their own.
  systemctl stop 'medlive@*' 'postgresql*'
  sed -i '/^MEDLIVE_DATABASE_/d' /etc/medlive/*.env
  cp /srv/medlive/deploy/systemd/medlive-postgres.service /etc/systemd/system/
  systemctl enable --quiet --now medlive-postgres
  runuser -u medlive -- env MEDLIVE_HOME=/var/lib/medlive MEDLIVE_CONFIG=/etc/medlive /opt/medlive/bin/medlive db upgrade
  systemctl enable --quiet --now medlive@worker
  soon 120 is_ok 8091
  kill -9 "$(systemctl show --property=MainPID --value medlive-postgres)"
  soon 60 sh -c '[ "$(systemctl show --property=NRestarts --value medlive-postgres)" -gt 0 ]'
  soon 120 systemctl is-active --quiet medlive-postgres
  soon 120 is_ok 8091
  systemctl stop medlive-postgres
  if systemctl list-units --failed --no-legend 'medlive*' | grep -q .; then fail "a unit failed as it was stopped"; fi
  echo "the embedded PostgreSQL is there again after kill -9, and its worker with it"
  ;;
*) fail "unknown step: $1" ;;
esac
