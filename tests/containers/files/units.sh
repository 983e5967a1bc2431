#!/usr/bin/env bash
# In a container of the distribution with systemd: the lines of deploy/README.md, then what the units promise.
# $1 is a step's name. The clone lies in /srv/medlive, the wheel's name is the README's.
set -euo pipefail
cd /srv/medlive

say() { echo "$*"; }
fail() { echo "$*" >&2; exit 1; }
soon() {  # soon SECONDS COMMAND...: until it succeeds
  local limit=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $limit ] || fail "not within its time: $*"
    sleep 1
  done
}
health() { curl --silent --fail "http://127.0.0.1:$1/healthz"; }
INSTANCES=$(cd deploy/systemd && ls ./*.env | sed 's#^./##; s#\.env$##' | grep -v '^medlive$')
SERVING="scheduler worker web metrics backup embed"

case $1 in
installed)
  bash -euo pipefail -c "$(cat lines.sh)"
  say "$(/opt/medlive/bin/medlive --version), PostgreSQL $(runuser -u postgres -- psql -Atc 'SHOW server_version')"
  ;;
started)
  . run_as.sh
  systemctl enable --quiet --now medlive@{scheduler,worker,web,metrics,rooms,embed}
  systemctl edit --stdin medlive@backup 2>/dev/null <<< $'[Service]\nReadWritePaths=/backups' || {
    install -d /etc/systemd/system/medlive@backup.service.d
    printf '[Service]\nReadWritePaths=/backups\n' > /etc/systemd/system/medlive@backup.service.d/override.conf
    systemctl daemon-reload
  }
  install -d -m 700 -o medlive -g medlive /backups
  systemctl enable --quiet --now medlive@backup
  for port in 8080 8090 8091 8092 8093 9464; do soon 60 health "$port"; done
  health 8091 | grep -q evidence || fail "the worker does not say that evidence is missing: $(health 8091)"
  health 8081 | grep -q account || fail "the rooms do not say that an account is missing: $(health 8081)"
  for one in $SERVING rooms; do
    [ "$(systemctl show --property=NRestarts --value "medlive@$one")" = 0 ] || fail "medlive@$one was restarted"
  done
  run_as rooms user invite ada --role admin | grep -q invitation || fail "no invitation"
  run_as worker evidence build /srv/corpora/* >/dev/null
  soon 60 curl --silent --fail http://127.0.0.1:8081/readyz
  soon 60 sh -c "curl --silent --fail http://127.0.0.1:8091/healthz | grep -q '\"ok\"'"
  say "$(systemctl list-units --no-legend 'medlive@*' | wc -l) units; run_as made tables, an account and evidence"
  ;;
sandboxed)
  for one in $SERVING rooms; do
    exposure=$(systemd-analyze security --no-pager "medlive@$one" | sed -n 's/.*exposure level[^0-9]*\([0-9.]*\).*/\1/p')
    awk "BEGIN { exit !($exposure < 3) }" || fail "systemd-analyze gives medlive@$one an exposure of $exposure"
  done
  # The same unit, with another command.
  install -d /etc/systemd/system/medlive@probe.service.d
  printf 'COMMAND="--version"\n' > /etc/medlive/probe.env
  cat > /etc/systemd/system/medlive@probe.service.d/probe.conf <<'END'
[Service]
Type=oneshot
Restart=no
ExecStart=
ExecStart=/bin/bash /srv/probe.sh
END
  cat > /srv/probe.sh <<'END'
written=
for place in /etc/medlive /opt/medlive /usr /srv /var/log /root /home /backups; do
  if touch "$place/probe" 2>/dev/null; then written="$written $place"; fi
done
touch /var/lib/medlive/probe || written="$written not-its-own"
[ ! -e /dev/sda ] && [ ! -e /dev/kmsg ] || written="$written devices"
mount -t tmpfs none /tmp 2>/dev/null && written="$written mount"
ls /proc/1/cmdline >/dev/null 2>&1 && written="$written processes"
[ "$(grep CapBnd /proc/self/status | tr -d '\t' | cut -d: -f2)" = 0000000000000000 ] || written="$written capabilities"
[ "$(stat -c %a /var/lib/medlive/probe)" = 600 ] || written="$written umask"
echo "beyond its bounds:$written."
END
  systemctl daemon-reload
  systemctl start medlive@probe || true
  found=$(journalctl --unit=medlive@probe --output=cat --no-pager | grep 'beyond its bounds' | tail -1)
  rm -rf /etc/systemd/system/medlive@probe.service.d /etc/medlive/probe.env
  systemctl daemon-reload
  [ "$found" = "beyond its bounds:." ] || fail "${found:-the probe did not run: $(journalctl -u medlive@probe --no-pager | tail -5)}"
  say "exposure $exposure of 10; nothing written outside its folder, no devices, mounts, processes or capabilities"
  ;;
secrets)
  for file in owner.password worker.password web.password medlive.env; do
    [ "$(stat -c '%a %U %G' /etc/medlive/$file)" = "640 root medlive" ] || fail "$file: $(stat -c '%a %U %G' /etc/medlive/$file)"
  done
  [ "$(stat -c '%a %U' /etc/medlive/medlive.key)" = "600 medlive" ] || fail "medlive.key: $(stat -c '%a %U' /etc/medlive/medlive.key)"
  ! runuser -u nobody -- cat /etc/medlive/web.password 2>/dev/null || fail "anybody reads web.password"
  for file in owner worker web; do
    secret=$(cat /etc/medlive/$file.password)
    ! systemctl show 'medlive@*' | grep -q "$secret" || fail "systemctl shows the password of $file"
    ! grep -qa "$secret" /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null || fail "a process shows the password of $file"
    ! journalctl --no-pager | grep -q "$secret" || fail "the journal holds the password of $file"
  done
  say "passwords in files of root:medlive, in no process' environment and no log"
  ;;
restarted)
  pid=$(systemctl show --property=MainPID --value medlive@worker)
  kill -9 "$pid"
  soon 60 sh -c "[ \"\$(systemctl show --property=NRestarts --value medlive@worker)\" = 1 ]"
  soon 60 health 8091
  systemctl restart postgresql@*-main || systemctl restart postgresql
  sleep 5
  for port in 8080 8081 9464; do soon 60 curl --silent --fail "http://127.0.0.1:$port/readyz"; done
  soon 90 sh -c "curl --silent --fail http://127.0.0.1:8090/healthz | grep -q '\"ok\"'"
  [ "$(systemctl show --property=NRestarts --value medlive@scheduler)" = 0 ] || fail "the scheduler was restarted with PostgreSQL"
  began=$SECONDS
  systemctl stop 'medlive@*'
  say "the worker once after kill -9, nobody with PostgreSQL; all stopped in $((SECONDS - began)) s"
  ;;
esac
