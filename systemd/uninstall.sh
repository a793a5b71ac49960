#!/bin/sh
# Removes Assay and everything it has in Docker and in the firewall. Data, settings and backups stay, unless --purge is
# given. Run it as root.
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

program=$ROOT/usr/local/bin/assay
default_data=$ROOT/var/lib/assay
data=$default_data
if [ -f "$ROOT/etc/assay/assay.env" ]; then
  while read -r line || [ -n "$line" ]; do
    value=$(printf %s "${line#*=}" | tr -d "\"'")
    case $line in
      ASSAY_DATA=?*) data=$ROOT$value ;;
      DOCKER_HOST=?*) export DOCKER_HOST="$value" ;;
    esac
  done <"$ROOT/etc/assay/assay.env"
fi

# Runs a command as the user of the service, so that root owns nothing in its directory.
as_service() {
  if [ -z "$ROOT" ] && getent passwd assay >/dev/null; then runuser -u assay -- "$@"; else "$@"; fi
}

if [ -d "$ROOT/run/systemd/system" ]; then
  systemctl disable --quiet --now assay || say 'the service does not exist or could not be stopped'
else
  say 'systemd is not running here: nothing was stopped'
fi
if [ -x "$program" ] && [ -f "$data/assay.db" ]; then
  as_service "$program" cleanup --yes --data "$data" || {
    say 'some containers, volumes, networks or firewall rules could not be removed. To list them:'
    say '  docker ps -a --filter label=assay.instance; docker volume ls --filter label=assay.instance'
    say '  docker network ls --filter label=assay.instance; iptables -S | grep assay-'
  }
fi
rm -f "$program" "$ROOT/etc/systemd/system/assay.service" \
  "$ROOT/usr/local/share/man/man1/assay.1" "$ROOT"/usr/local/share/man/man1/assay-*.1 \
  "$ROOT/usr/local/share/bash-completion/completions/assay" \
  "$ROOT/usr/local/share/zsh/site-functions/_assay" \
  "$ROOT/usr/local/share/fish/vendor_completions.d/assay.fish"
rm -rf "$ROOT/usr/local/share/doc/assay" "$ROOT/usr/local/lib/assay"
[ ! -d "$ROOT/run/systemd/system" ] || systemctl daemon-reload

if [ -n "$purge" ]; then
  rm -rf "$default_data" "$ROOT/var/backups/assay" "$ROOT/etc/assay"
  [ -n "$ROOT" ] || ! getent passwd assay >/dev/null || userdel assay
  # A directory that the user chose may contain other files.
  if [ "$data" = "$default_data" ]; then
    say 'removed, with data, settings and backups'
  else
    say "removed, with settings and backups; the data stay in $data: remove them yourself"
  fi
else
  say "removed; data, settings and backups stay in $data, $ROOT/etc/assay and $ROOT/var/backups/assay"
fi
