#!/bin/sh
# debian_steps.sh - installs, upgrades, removes and purges pump's package in an empty Debian. first_steps
# starts it there, after the steps of its pages. old.deb and new.deb are in /here.
set -eu
cd /here

die() { echo "debian_steps: $*" >&2; exit 1; }
apt() {
  apt-get -qq -y -o Dpkg::Use-Pty=0 "$@" </dev/null >/here/apt.log 2>&1 ||
    { cat /here/apt.log; die "apt-get $*"; }
}
files() {
  find / -xdev ! -path '/here/*' ! -path '/tmp/*' ! -path '/var/cache/*' ! -path '/var/log/*' | sort
}

# Dependencies first, so that their files are not taken for the package's own.
# shellcheck disable=SC2046
apt install $(dpkg-deb -f new.deb Depends | tr ',' '\n' | sed 's/[(|].*//')
files > /here/before

apt install ./old.deb
[ "$(id -un pump)" = pump ] || die "there is no user pump"
echo '# an administrator wrote this' >> /etc/pump/config.toml
pump-run --version
pump doctor --virtual a100-pcie4 | tail -n 1
! pump service install 2>/here/refused || die "the units of the package would be hidden"
grep -q 'a package has installed the service' /here/refused || die "$(cat /here/refused)"
for page in pump pump-run pumpd; do
  [ -s "/usr/share/man/man1/$page.1.gz" ] || die "no man page of $page"
  [ -s "/usr/share/zsh/vendor-completions/_$page" ] || die "no words of $page for zsh"
  bash -euc ". /usr/share/bash-completion/completions/$page; complete -p $page" >/dev/null
done

# Upgraded while the service runs and a job uses it: both continue.
pumpd serve --run-as pump --config /etc/pump/config.toml 2>/here/service.log &
service=$!
until [ -S /run/pump/socket ]; do
  kill -0 "$service" || die "no service: $(cat /here/service.log)"
  sleep 0.1
done
. pump-env/bin/activate # for the program's own packages
gpu="--virtual a100-pcie4 --virtual-set memory=1GiB --virtual-set kernel.add_one.gbps=40"
# shellcheck disable=SC2086
/usr/bin/pump-run --name upgraded $gpu sh -euc 'until [ -e /here/done ]; do python layers.py; done' \
  >/here/job.log 2>&1 &
job=$!
until /usr/bin/pump jobs | grep -q upgraded; do
  kill -0 "$job" || die "no job: $(cat /here/job.log)"
  sleep 0.2
done
apt install ./new.deb
/usr/bin/pump jobs | grep upgraded || die "the job was lost: $(cat /here/job.log)"
touch /here/done
wait "$job" || die "the job failed: $(cat /here/job.log)"
kill "$service"
wait "$service" || die "the service failed: $(cat /here/service.log)"
tail -n 1 /etc/pump/config.toml | grep -q 'an administrator' || die "the configuration was replaced"

apt remove pump-cuda
[ -e /etc/pump/config.toml ] || die "remove took the configuration, which purge takes"
[ ! -e /usr/lib/pump ] || die "left: $(find /usr/lib/pump | head -n 3)"
apt purge pump-cuda
files > /here/after
diff /here/before /here/after || die "this is left behind, or was taken"
! id pump 2>/dev/null || die "user pump is left"
echo "debian_steps: installed, upgraded under a job, removed, purged: nothing is left"
