#!/bin/bash
# boot_steps.sh - tests pump's units under systemd, in a machine that has just booted. packaging/release/boot
# starts it there as root and reads its output from the serial line. At the end it powers the machine off.
set -euo pipefail
cd /here
exec >/dev/ttyS0 2>&1 </dev/null
trap 'systemctl poweroff --force' EXIT

say() { echo "boot_steps: $*"; }
die() { say "FAILED: $*"; journalctl -b --no-pager -n 40; exit 1; }
soon() { # COMMAND...: the emulated CPU is slow, and the host may be busy
  local until=$((SECONDS + 600))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || die "not within 600 s: $*"
    sleep 0.2
  done
}
main_pid() { systemctl show -P MainPID pumpd.service; }
replaced() { [ "$(main_pid)" != 0 ] && [ "$(main_pid)" != "$1" ]; }
listed() { # COUNT: that many jobs have leases
  [ "$(pump jobs --json | grep -c '"name": "load-')" = "$1" ]
}

dpkg -i old.deb >dpkg.log || die "$(cat dpkg.log)"
useradd -m anna
loginctl enable-linger anna
id=$(id -u anna)
anna() {
  runuser -u anna -- env -C /home/anna "XDG_RUNTIME_DIR=/run/user/$id" \
    "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$id/bus" "$@"
}
gpu="--virtual a100-pcie4 --virtual-set memory=128MiB"

systemctl is-active pumpd.socket >/dev/null || die "the socket is not open"
! systemctl is-active pumpd.service >/dev/null || die "the service runs already"
soon systemctl is-active "user@$id.service"
[ "$(stat -c '%u %a' "/dev/shm/pump/$id")" = "$id 755" ] || die "the user has no folder of claims"
say "the socket is open, the service is not started, and the user has a folder of claims"

# shellcheck disable=SC2086
for i in 1 2 3; do
  anna pump-run --name "load-$i" $gpu sh -euc 'until [ -e /here/done ]; do /here/pages; done' \
    >"/here/load-$i.log" 2>&1 &
done
soon systemctl is-active pumpd.service
soon listed 3
say "the first job has started the service, and it knows three"

before=$(main_pid)
systemctl restart pumpd.service
replaced "$before" || die "not restarted"
soon listed 3
say "restarted under load: the new one knows all three"

before=$(main_pid)
kill -KILL "$before"
soon replaced "$before"
soon listed 3
say "killed: systemd has started another one, which knows all three"

before=$(main_pid)
kill -STOP "$before"
soon replaced "$before"
soon listed 3
journalctl -b -u pumpd.service --no-pager | grep -q 'Watchdog timeout' || die "not by the watchdog"
say "stopped: the watchdog has ended it, and another one knows all three"

before=$(main_pid)
dpkg -i new.deb >dpkg.log || die "$(cat dpkg.log)"
replaced "$before" || die "the upgrade has not replaced the service"
soon listed 3
say "upgraded under load: the new release knows all three"

touch done
for i in 1 2 3; do
  wait -n || die "a job failed: $(tail -n 5 load-*.log)"
done
soon listed 0
say "the three jobs ended well, with what they wrote"

exposure=$(systemd-analyze security --no-pager pumpd.service | sed -n 's/.*pumpd.service: \([0-9.]*\).*/\1/p')
say "systemd-analyze security: $exposure"

# The user's own manager: programs without pump-run.
anna mkdir -p .config/pump/jobs.d .config/environment.d
printf '[match]\nexecutable = "/here/pages"\n' | anna tee .config/pump/jobs.d/pages.toml >/dev/null
# shellcheck disable=SC2086
printf '%s\n' "LD_LIBRARY_PATH=$(dirname "$(find /usr/lib/pump -path '*/virtual/libcuda.so.1')")" \
  "PUMP_VIRTUAL_PROFILE=$(anna pump-run $gpu printenv PUMP_VIRTUAL_PROFILE)" |
  anna tee .config/environment.d/gpu.conf >/dev/null
alone() { anna systemd-run --user --quiet --wait --pipe /here/pages; }
anna systemctl --user daemon-reload
! alone >pages.log 2>&1 || die "it fits without pump"
anna pump enable >enable.log || die "$(cat enable.log)"
anna systemctl --user daemon-reload
anna systemctl --user enable --now pump-jobs.socket
! anna systemctl --user is-active pump-jobs.service >/dev/null || die "the user's service runs already"
alone >pages.log 2>&1 || die "not served: $(cat pages.log)"
anna systemctl --user is-active pump-jobs.service >/dev/null || die "the socket has started nothing"
anna systemd-run --user --quiet --unit held sh -c 'until [ -e /here/end ]; do /here/pages; done'
group=/sys/fs/cgroup/user.slice/user-$id.slice/user@$id.service
held() { [ "$(find "$group" -path '*/pump-jobs.service/cgroup.procs' -exec cat {} + | wc -l)" -ge 2 ]; }
soon held
say "a program without pump-run is served by a pumpd in the cgroup of the user's service"
anna systemctl --user stop held
anna systemctl --user disable --now pump-jobs.socket
anna pump disable >disable.log || die "$(cat disable.log)"
anna systemctl --user daemon-reload
anna systemctl --user unset-environment LD_PRELOAD PUMP_JOBS
! alone >pages.log 2>&1 || die "served after disable"
say "disabled: the program is as it was"

anna pump service install --user >install.log || die "$(cat install.log)"
anna systemctl --user daemon-reload
anna systemctl --user enable --now pumpd.socket
# shellcheck disable=SC2086
anna env "PUMP_SERVICE=/run/user/$id/pump/service" pump-run $gpu /here/pages >pages.log 2>&1 ||
  die "$(cat pages.log)"
soon anna systemctl --user is-active pumpd.service
say "the user's own service is started by a job"

loginctl disable-linger anna
loginctl terminate-user anna 2>/dev/null || true
left() { [ -z "$(pgrep -u anna)" ]; }
soon left
dpkg --purge pump-cuda >dpkg.log || die "$(cat dpkg.log)"
! systemctl is-active pumpd.socket pumpd.service >/dev/null || die "active after purge"
say "logged out and purged: no process is left"
say "all of it holds"
