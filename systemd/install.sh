#!/bin/sh
# Installs Assay from this directory, or upgrades an older version in place: makes a backup first, and rolls back if the
# new version does not answer. Run it as root. It uses no network.
# ROOT=/directory installs below that directory, without creating a user: for images and tests.
# PATIENCE=SECONDS is how long to wait until the new version answers (60).
set -eu

ROOT=${ROOT:-}
here=$(cd "$(dirname "$0")" && pwd)
program=$ROOT/usr/local/bin/assay
unit=$ROOT/etc/systemd/system/assay.service
settings=$ROOT/etc/assay/assay.env
share=$ROOT/usr/local/share
backups=$ROOT/var/backups/assay
previous=$backups/previous
patience=${PATIENCE:-60}

say() { printf 'install.sh: %s\n' "$*"; }
give_up() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

[ -n "$ROOT" ] || [ "$(id -u)" = 0 ] || give_up 'run this as root'
(cd "$here" && sha256sum --quiet --check SHA256SUMS) ||
  give_up 'these files differ from the release: unpack the archive again'
new=$("$here/assay" --version) ||
  give_up 'the executable does not run here: it needs glibc 2.34 or newer, libstdc++ and libatomic'

has_systemd() { [ -d "$ROOT/run/systemd/system" ]; }
is_running() { has_systemd && systemctl is-active --quiet assay; }
# Runs a command as the user of the service, so that root owns nothing in its directory.
as_service() {
  if [ -n "$ROOT" ]; then "$@"; else runuser -u assay -- "$@"; fi
}
owned() {
  if [ -n "$ROOT" ]; then install "$@"; else install -o assay -g assay "$@"; fi
}
# Writes to another name first: a running program cannot be overwritten, and no partial file is ever visible.
put() {
  mkdir -p "$(dirname "$3")" && install -m "$1" "$2" "$3.new" && mv -f "$3.new" "$3"
}

# Reads the settings of the service as systemd does. The file is not run as a script.
read_settings() {
  [ -f "$settings" ] || return 0
  while read -r line || [ -n "$line" ]; do
    name=${line%%=*}
    value=${line#*=}
    case $name in
      *[!A-Z_]*) continue ;;
      ASSAY_* | DOCKER_HOST) ;;
      *) continue ;;
    esac
    case $value in
      \"*\") value=${value#\"} value=${value%\"} ;;
      \'*\') value=${value#\'} value=${value%\'} ;;
    esac
    export "$name=$value"
  done <"$settings"
}

make_user() {
  if [ -n "$ROOT" ]; then
    say "no user is created below $ROOT"
    return
  fi
  getent group docker >/dev/null || give_up 'there is no group docker: install Docker Engine first'
  getent passwd assay >/dev/null ||
    useradd --system --user-group --home-dir /var/lib/assay --no-create-home --shell /usr/sbin/nologin assay
  usermod --append --groups docker assay
}

put_files() {
  put 755 "$1/assay" "$program" && put 644 "$1/assay.service" "$unit"
}

start_and_wait() {
  systemctl daemon-reload || return 1
  # After repeated failures systemd would refuse another start.
  systemctl reset-failed assay 2>/dev/null || true
  systemctl start assay && "$program" doctor --await "$patience"
}

# Restores the database too: the new version may have migrated it already.
roll_back() {
  say "$new does not answer: rolling back to $old"
  systemctl stop assay || true
  put_files "$previous" || give_up "$old could not be restored: its files are in $previous"
  if [ -f "$previous/assay.db" ]; then
    rm -f "$data/assay.db" "$data/assay.db-wal" "$data/assay.db-shm"
    cp -p "$previous"/assay.db* "$data/" || give_up "the database could not be restored: it is in $previous"
  fi
  start_and_wait || give_up "$old does not answer either: see journalctl -u assay; the old files are in $previous"
  give_up "$new did not answer, and $old runs again: see journalctl -u assay"
}

keep_previous() {
  rm -rf "$previous" && owned -d -m 700 "$previous" || return 1
  cp -p "$program" "$previous/assay" && cp -p "$unit" "$previous/assay.service" || return 1
  for file in "$data/assay.db" "$data/assay.db-wal"; do
    [ ! -f "$file" ] || cp -p "$file" "$previous/" || return 1
  done
}

upgrade() {
  old=$("$program" --version 2>/dev/null || echo 'the previous version')
  say "upgrading from $old to $new"
  if [ -f "$data/assay.db" ]; then
    file=$backups/before-${new#assay }-$(date -u +%Y%m%dT%H%M%SZ).tar.zst
    as_service "$program" backup "$file" --data "$data" || give_up 'the backup failed: nothing was changed'
    # Keep the three newest.
    ls -1t "$backups"/before-*.tar.zst | tail -n +4 | while IFS= read -r stale; do rm -f "$stale"; done
  fi
  if ! is_running; then
    put_files "$here"
    if has_systemd; then
      systemctl daemon-reload
      say 'the service was not running and is not started: systemctl start assay'
    else
      say 'systemd is not running here: a running server keeps the old version until you restart it'
    fi
    return
  fi
  # From here on, the upgrade either succeeds or rolls back.
  trap '' HUP INT TERM
  systemctl stop assay
  keep_previous || { systemctl start assay; give_up 'not enough disk space to keep the old version: nothing was changed'; }
  { put_files "$here" && start_and_wait; } || roll_back
  trap - HUP INT TERM
  say "$new is running; the backup of the previous version is in $backups"
}

first_start() {
  put_files "$here"
  if ! has_systemd; then
    say "systemd is not running here: start it with $program serve --data $data"
    return
  fi
  systemctl daemon-reload
  systemctl enable --quiet assay
  start_and_wait || give_up 'the server does not answer: see journalctl -u assay and assay doctor'
  say "$new is running; get the set-up code for the first visit with: journalctl -u assay | grep set-up"
}

make_user
read_settings
data=$ROOT${ASSAY_DATA:-/var/lib/assay}
export ASSAY_DATA="$data"
owned -d -m 700 "$data"
owned -d -m 700 "$backups"
mkdir -p "$(dirname "$settings")"
[ -f "$settings" ] || put 640 "$here/assay.env" "$settings"
put 644 "$here/assay.env" "$share/doc/assay/assay.env"
for file in LICENSE LICENSES.txt CHANGELOG.md README.md sbom.cdx.json; do
  put 644 "$here/$file" "$share/doc/assay/$file"
done
put 755 "$here/uninstall.sh" "$ROOT/usr/local/lib/assay/uninstall.sh"
for file in "$here"/man/*.1; do
  put 644 "$file" "$share/man/man1/${file##*/}"
done
put 644 "$here/assay.bash" "$share/bash-completion/completions/assay"
put 644 "$here/assay.zsh" "$share/zsh/site-functions/_assay"
put 644 "$here/assay.fish" "$share/fish/vendor_completions.d/assay.fish"

if [ -x "$program" ]; then upgrade; else first_start; fi
