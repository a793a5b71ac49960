#!/bin/sh
# Takes Assay away again. Data, settings and backups stay; with --purge they go too. Run as root.
set -eu

ROOT=${ROOT:-}
say() { printf 'uninstall.sh: %s\n' "$*"; }

case ${1-} in
  '') purge= ;;
  --purge) purge=yes ;;
  *)
    printf 'usage: uninstall.sh [--purge]\n' >&2
    exit 2
    ;;
esac
[ -n "$ROOT" ] || [ "$(id -u)" = 0 ] || { say 'run this as root' >&2; exit 1; }

usual=$ROOT/var/lib/assay
data=$usual
if [ -f "$ROOT/etc/assay/assay.env" ]; then
  while read -r line || [ -n "$line" ]; do
    case $line in ASSAY_DATA=?*) data=$ROOT$(printf %s "${line#*=}" | tr -d "\"'") ;; esac
  done <"$ROOT/etc/assay/assay.env"
fi

if [ -d "$ROOT/run/systemd/system" ]; then
  systemctl disable --quiet --now assay || say 'the service was not there, or could not be stopped'
else
  say 'systemd is not running here: nothing was stopped'
fi
rm -f "$ROOT/usr/local/bin/assay" "$ROOT/etc/systemd/system/assay.service" \
  "$ROOT/usr/local/share/man/man1/assay.1" "$ROOT/usr/local/share/bash-completion/completions/assay"
rm -rf "$ROOT/usr/local/share/doc/assay" "$ROOT/usr/local/lib/assay"
[ ! -d "$ROOT/run/systemd/system" ] || systemctl daemon-reload

if [ -n "$purge" ]; then
  rm -rf "$usual" "$ROOT/var/backups/assay" "$ROOT/etc/assay"
  [ -n "$ROOT" ] || ! getent passwd assay >/dev/null || userdel assay
  # There may be other things in a place that somebody chose.
  if [ "$data" = "$usual" ]; then
    say 'gone, with data, settings and backups'
  else
    say "gone, with settings and backups; the data stay in $data: remove them yourself"
  fi
else
  say "gone; data, settings and backups stay in $data, $ROOT/etc/assay and $ROOT/var/backups/assay"
fi
say 'containers and volumes that are left: docker ps -a --filter label=assay.instance, docker volume ls --filter label=assay.instance'
