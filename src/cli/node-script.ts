// The script that an administrator runs on each node of a Docker Swarm. It is made for one server: the address of its
// manager, the token, the shared directory and the certificate authority are in it.

import {
  CLOSED_NETWORK,
  NODE_LABEL,
  OPEN_NETWORK,
  SLOT_RESOURCE,
  type SwarmNetwork,
  TASK_LABEL,
} from '../domain/swarm.ts';
import { shellQuote } from '../domain/text/shell.ts';

export type NodeScriptOptions = {
  baseUrl: string;
  /** Where nodes pull images: the host and port of BASE_URL. */
  registry: string;
  /** PEM; undefined if the nodes trust the certificate of the server anyway. */
  authority: string | undefined;
  /** Host and port of the manager, its node ID, and the token of workers. */
  manager: string;
  managerId: string;
  token: string;
  shared: string;
  /** The host that exports `shared`. */
  fileServer: string;
  slots: number;
  /** The limits of a container. */
  cpus: number;
  memoryBytes: number;
  runAs: { uid: number };
};

/** Docker's default of 10,000 lets the manager's log of changes grow to hundreds of megabytes. */
export const SNAPSHOT_INTERVAL = 500;

const createLine = ({ name, config }: SwarmNetwork) =>
  `docker network create --config-only --opt com.docker.network.bridge.name=${name} --opt com.docker.network.bridge.enable_icc=false ${config}`;

const networkLine = ({ name, config }: SwarmNetwork) => `make_network ${config} ${name}`;

// After a restart, Docker's bridge driver remembers the networks of a swarm, but the rest of Docker does not. It then rejects
// every container on them ("network ... exists", moby/moby#37087), so what it remembers is removed before it starts.
const RESTARTS = `
units=$ROOT/etc/systemd/system
data_root=$(info '{{.DockerRootDir}}')
others=$(docker network ls --filter type=custom --format '{{.Name}}' 2>/dev/null | awk '!/^(assay-.*|docker_gwbridge|ingress)$/')
[ -z "$others" ] ||
  warn "a restart of Docker removes the other networks of this machine:" $others
if [ -d "$ROOT/run/systemd/system" ]; then
  mkdir -p "$units/docker.service.d"
  cat >"$units/docker.service.d/assay-node.conf.new" <<UNIT
# Docker would reject builds after each restart (moby/moby issue 37087): it must forget its networks. Containers of builds
# that the swarm gave up meanwhile are removed.
[Service]
ExecStartPre=/bin/rm -f \${data_root:-/var/lib/docker}/network/files/local-kv.db
ExecStartPost=-/bin/sh -c '${[OPEN_NETWORK, CLOSED_NETWORK].map(createLine).join('; ')}'
ExecStartPost=-/usr/bin/docker container prune --force --filter label=${TASK_LABEL}
UNIT
  if cmp -s "$units/docker.service.d/assay-node.conf" "$units/docker.service.d/assay-node.conf.new"; then
    rm "$units/docker.service.d/assay-node.conf.new"
    ok "restarts of Docker"
  else
    mv "$units/docker.service.d/assay-node.conf.new" "$units/docker.service.d/assay-node.conf"
    systemctl daemon-reload
    changed "restarts of Docker"
  fi
else
  warn "this machine has no systemd: before each start of Docker, remove \${data_root:-/var/lib/docker}/network/files/local-kv.db, then run this script again"
fi
`;

export function nodeScript(options: NodeScriptOptions): string {
  const { authority } = options;
  const q = (value: string | number) => shellQuote(String(value));
  return `#!/bin/sh
# Prepares a machine to run builds of the Assay server at ${options.baseUrl}.
# Run it as root on every node of the swarm, and on the server itself. It can run again at any time: it changes only what
# differs, and restarts Docker only if the settings of Docker have changed.
#
# This file has the token with which machines join the swarm. Keep it secret, and delete it when the node is set up.
# "docker swarm join-token --rotate worker" on the server makes the token useless; nodes that have joined stay.
set -eu

# What may differ from node to node. To change one: SLOTS=8 sh node.sh

# How many builds and compiles run at once on this machine. 0: none, for a server that leaves them to the other nodes.
: "\${SLOTS:=${options.slots}}"
# The address of this machine for the other nodes, if it has several. Empty: Docker chooses.
: "\${ADDRESS:=}"
# The machine that exports the shared directory over NFS, and how it is mounted. Without \`sync\`, logs arrive late.
: "\${FILE_SERVER:=${options.fileServer}}"
: "\${MOUNT_OPTIONS:=rw,sync,hard,nosuid,nodev,noatime,_netdev}"
# Images of the server that no container uses are removed on these days (see systemd.time). Empty: never.
: "\${PRUNE=Sun *-*-* 04:00}"
# A directory that stands for / when this script is tested.
: "\${ROOT:=}"

# What is the same on all nodes.
MANAGER=${q(options.manager)}
MANAGER_ID=${q(options.managerId)}
TOKEN=${q(options.token)}
SHARED=${q(options.shared)}
REGISTRY=${q(options.registry)}
CPUS=${q(options.cpus)}
MEMORY_KIB=${Math.ceil(options.memoryBytes / 1024)}
RUN_AS=${q(options.runAs.uid)}
LABEL=${q(`${NODE_LABEL}=yes`)}
RESOURCE=${q(SLOT_RESOURCE)}

PATH=$PATH:/usr/sbin:/sbin
DAEMON_JSON=$ROOT/etc/docker/daemon.json

ok() { echo "ok      $*"; }
changed() { echo "changed $*"; }
warn() { echo "warning $*" >&2; }
fail() {
  echo "error   $*" >&2
  exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }
info() { docker info --format "$1" 2>/dev/null; }

# 1. The machine

[ "$(id -u)" = 0 ] || fail "run this as root"
case $SLOTS in '' | *[!0-9]* | 0?*) fail "SLOTS must be a number, not $SLOTS" ;; esac
has docker || fail "Docker is missing: install Docker Engine 20.10 or newer"
version=$(docker version --format '{{.Server.Version}}' 2>/dev/null) || fail "the Docker Engine does not answer: is it running?"
major=\${version%%.*}
minor=\${version#*.}
minor=\${minor%%.*}
[ "$major" -gt 20 ] || { [ "$major" = 20 ] && [ "$minor" -ge 10 ]; } ||
  fail "Docker Engine $version is too old: 20.10 or newer is needed"
ok "Docker Engine $version"
case $(info '{{json .SecurityOptions}}') in
  *name=userns*) fail "Docker uses userns-remap, with which containers cannot write to the shared directory" ;;
  *name=rootless*) fail "Docker runs rootless, where no firewall rule protects this machine from builds" ;;
esac
[ "$(info '{{.LiveRestoreEnabled}}')" != true ] ||
  fail "Docker has live-restore, which excludes a swarm: remove it from $DAEMON_JSON and restart Docker"

# The rules that keep builds away from this machine's ports are set with its own iptables.
has iptables || fail "iptables is missing: install the package iptables"
iptables -n -L INPUT >/dev/null || fail "iptables does not work"
ok "iptables"

cores=$(getconf _NPROCESSORS_ONLN)
awk "BEGIN { exit !($CPUS <= $cores) }" ||
  fail "this machine has $cores cores, but containers get $CPUS (setting CPUS): builds would never start here"
memory=$(awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo)
[ "$memory" -ge "$MEMORY_KIB" ] ||
  fail "this machine has less memory than one container may use (setting MEMORY)"
[ "$memory" -ge $((MEMORY_KIB * SLOTS)) ] ||
  warn "$SLOTS containers together may use more memory than this machine has: lower SLOTS or MEMORY"
swap=$(awk '$1 == "SwapTotal:" { print $2 }' /proc/meminfo)
[ "$swap" = 0 ] || [ "$major" -ge 29 ] ||
  warn "this machine has swap, which Docker before 29 does not limit in a swarm: switch it off (swapoff -a, /etc/fstab)"
person=$(awk -F: -v id="$RUN_AS" '$3 == id && $7 !~ /(nologin|false)$/ { print $1 }' /etc/passwd)
[ -z "$person" ] ||
  warn "builds run as user $RUN_AS, which is $person on this machine: that account can see and end their processes"

# 2. The shared directory. Builds write their output there; the server reads it.

if [ -d "$SHARED/nodes" ]; then
  ok "the shared directory is at $SHARED"
else
  has mount.nfs || fail "the NFS client is missing: install the package nfs-common (Debian) or nfs-utils"
  # Only root may enter it: the directory has the code of all projects.
  parent=$(dirname "$SHARED")
  if [ ! -d "$parent" ] || [ -z "$(ls -A "$parent")" ]; then
    mkdir -p "$parent"
    chmod 0700 "$parent"
  elif [ "$(stat -c %a "$parent")" != 700 ]; then
    warn "other accounts of this machine can enter $parent, and read what is shared if they know its path"
  fi
  mkdir -p "$SHARED"
  if [ -z "$(awk -v at="$SHARED" '$2 == at' "$ROOT/etc/fstab")" ]; then
    printf '%s:%s %s nfs4 %s 0 0\\n' "$FILE_SERVER" "$SHARED" "$SHARED" "$MOUNT_OPTIONS" >>"$ROOT/etc/fstab"
    changed "/etc/fstab: $SHARED from $FILE_SERVER"
  fi
  mount "$SHARED" || fail "$SHARED cannot be mounted: does $FILE_SERVER export it to this machine?"
  [ -d "$SHARED/nodes" ] || fail "$SHARED was mounted, but is not the shared directory of an Assay server that has started"
  changed "the shared directory is mounted at $SHARED"
fi
mounted=$(awk -v at="$SHARED" '$2 == at { found = $3 " ," $4 "," } END { print found }' /proc/self/mounts)
case $mounted in
  nfs*,sync,*) ok "it is mounted with sync" ;;
  nfs*) fail "$SHARED is mounted without sync: add it in /etc/fstab, then run: umount $SHARED; mount $SHARED" ;;
esac

# 3. The certificate of the server, from which this machine pulls images. Docker reads it at each pull.
${
  authority === undefined
    ? `
# The server has a certificate of its own (TLS_CERT). If an authority signed it that this machine does not trust, set CA_CERTS
# to the authority and print this script again, or put the authority into /etc/docker/certs.d/$REGISTRY/ca.crt.
ok "images are pulled from $REGISTRY"
`
    : `
authority=$ROOT/etc/docker/certs.d/$REGISTRY/ca.crt
mkdir -p "$(dirname "$authority")"
cat >"$authority.new" <<'CERTIFICATE'
${authority.trim()}
CERTIFICATE
if [ -f "$authority" ] && cmp -s "$authority" "$authority.new"; then
  rm "$authority.new"
  ok "the certificate authority of $REGISTRY"
else
  mv "$authority.new" "$authority"
  changed "$authority"
fi
`
}
# 4. Settings of Docker: a label that allows builds here, the number of slots, and no new privileges in any container.

# Prints daemon.json with these settings, and keeps all others. Status 42 if they exclude a swarm, 43 if all is set already.
merge() {
  if [ ! -s "$DAEMON_JSON" ]; then
    printf '{\\n  "labels": ["%s"],\\n  "node-generic-resources": ["%s=%s"],\\n  "no-new-privileges": true\\n}\\n' "$LABEL" "$RESOURCE" "$SLOTS"
  elif has python3; then
    python3 - "$DAEMON_JSON" "$LABEL" "$RESOURCE" "$SLOTS" <<'PYTHON'
import json, sys
path, label, resource, slots = sys.argv[1:]
with open(path) as file:
    settings = json.load(file)
before = json.dumps(settings)
if settings.get("live-restore"):
    sys.exit(42)
def replace(key, name, value):
    old = settings.get(key, [])
    if [one for one in old if one.split("=")[0] == name] != [value]:
        settings[key] = [one for one in old if one.split("=")[0] != name] + [value]
replace("labels", label.split("=")[0], label)
replace("node-generic-resources", resource, resource + "=" + slots)
settings["no-new-privileges"] = True
if json.dumps(settings) == before:
    sys.exit(43)
print(json.dumps(settings, indent=2, ensure_ascii=False))
PYTHON
  elif has jq; then
    ! jq -e '.["live-restore"] == true' "$DAEMON_JSON" >/dev/null 2>&1 || return 42
    set -- --arg mark "$LABEL" --arg resource "$RESOURCE" --arg slots "$SLOTS"
    filter='def replace(name; value):
        if map(select(split("=")[0] == name)) == [value] then . else map(select(split("=")[0] != name)) + [value] end;
      .labels |= ((. // []) | replace($mark | split("=")[0]; $mark))
      | .["node-generic-resources"] |= ((. // []) | replace($resource; $resource + "=" + $slots))
      | .["no-new-privileges"] = true'
    ! jq -e "$@" ". == ($filter)" "$DAEMON_JSON" >/dev/null 2>&1 || return 43
    jq "$@" "$filter" "$DAEMON_JSON"
  else
    fail "install python3 or jq, or add to $DAEMON_JSON yourself: \\"labels\\": [\\"$LABEL\\"], \\"node-generic-resources\\": [\\"$RESOURCE=$SLOTS\\"], \\"no-new-privileges\\": true"
  fi
}

restart_docker() {
  if [ -d "$ROOT/run/systemd/system" ]; then
    systemctl restart docker
  elif has service; then
    service docker restart
  else
    return 1
  fi
}

mkdir -p "$(dirname "$DAEMON_JSON")"
status=0
merge >"$DAEMON_JSON.new" || status=$?
[ "$status" != 42 ] || fail "$DAEMON_JSON has live-restore, which excludes a swarm: remove it"
[ "$status" = 0 ] || [ "$status" = 43 ] || fail "$DAEMON_JSON could not be changed"
resources=$(info '{{range .GenericResources}}{{with .DiscreteResourceSpec}}{{.Kind}}={{.Value}} {{end}}{{end}}')
labels=$(info '{{range .Labels}}{{.}} {{end}}')
if [ "$status" = 43 ]; then
  rm "$DAEMON_JSON.new"
  ok "settings of Docker"
else
  [ ! -f "$DAEMON_JSON" ] || cp -p "$DAEMON_JSON" "$DAEMON_JSON.before-assay"
  mv "$DAEMON_JSON.new" "$DAEMON_JSON"
  changed "$DAEMON_JSON"
  resources=
fi
case " $resources$labels" in
  *" $RESOURCE=$SLOTS "*" $LABEL "* | *" $RESOURCE=$SLOTS $LABEL "*) ;;
  *)
    # Builds that run here now are lost, and run again elsewhere.
    if ! restart_docker; then
      fail "restart Docker, then run this script again. If Docker does not start: $DAEMON_JSON.before-assay is the former file"
    fi
    changed "Docker was restarted"
    ;;
esac

# 5. The swarm

state=$(info '{{.Swarm.LocalNodeState}}')
node=$(info '{{.Swarm.NodeID}}')
if [ "$state" = active ] && [ "$node" = "$MANAGER_ID" ]; then
  # Without it, the manager's log of changes grows to hundreds of megabytes.
  docker swarm update --snapshot-interval ${SNAPSHOT_INTERVAL} >/dev/null
  ok "this machine is the manager of the swarm"
elif [ "$state" = active ]; then
  case " $(info '{{range .Swarm.RemoteManagers}}{{.Addr}} {{end}}')" in
    *" $MANAGER "*) ok "this machine is a node of the swarm of $MANAGER" ;;
    *) fail "this machine belongs to another swarm: run \\"docker swarm leave\\" first" ;;
  esac
else
  docker swarm join --token "$TOKEN" \${ADDRESS:+--advertise-addr "$ADDRESS"} "$MANAGER" >/dev/null ||
    fail "this machine cannot join: it must reach port \${MANAGER##*:} of \${MANAGER%:*}, and nodes each other on 7946 (TCP and UDP)"
  changed "this machine joined the swarm of $MANAGER"
fi

# 6. The networks of builds, which the swarm makes of these on each node. Containers cannot reach each other there.

make_network() {
  if found=$(docker network inspect --format '{{.ConfigOnly}} {{index .Options "com.docker.network.bridge.name"}} {{index .Options "com.docker.network.bridge.enable_icc"}}' "$1" 2>/dev/null); then
    [ "$found" = "true $2 false" ] || fail "this machine has another network called $1: remove it (docker network rm $1)"
    ok "network $1"
  else
    docker network create --config-only --opt com.docker.network.bridge.name="$2" \\
      --opt com.docker.network.bridge.enable_icc=false "$1" >/dev/null
    changed "network $1"
  fi
}
${networkLine(OPEN_NETWORK)}
${networkLine(CLOSED_NETWORK)}

# 7. What Docker does when it starts.
${RESTARTS}
# 8. A timer that removes images of the server that no container uses. A build that needs one pulls it again.

if [ -n "$PRUNE" ] && [ -d "$ROOT/run/systemd/system" ]; then
  cat >"$units/assay-node-images.service.new" <<UNIT
[Unit]
Description=Remove unused images of $REGISTRY
After=docker.service
Requires=docker.service

[Service]
Type=oneshot
ExecStart=-/usr/bin/docker container prune --force --filter label=${TASK_LABEL}
ExecStart=/bin/sh -c 'docker image ls --quiet --no-trunc --filter "reference=$REGISTRY/*/*" | sort -u | while read -r image; do docker image rm "\\$\\$image" >/dev/null 2>&1 || true; done'
UNIT
  cat >"$units/assay-node-images.timer.new" <<UNIT
[Unit]
Description=Remove unused images of $REGISTRY

[Timer]
OnCalendar=$PRUNE
RandomizedDelaySec=1h
Persistent=true

[Install]
WantedBy=timers.target
UNIT
  if cmp -s "$units/assay-node-images.service" "$units/assay-node-images.service.new" &&
    cmp -s "$units/assay-node-images.timer" "$units/assay-node-images.timer.new"; then
    rm "$units/assay-node-images.service.new" "$units/assay-node-images.timer.new"
    ok "timer for unused images"
  else
    mv "$units/assay-node-images.service.new" "$units/assay-node-images.service"
    mv "$units/assay-node-images.timer.new" "$units/assay-node-images.timer"
    systemctl daemon-reload
    systemctl enable --quiet --now assay-node-images.timer
    changed "timer for unused images"
  fi
elif [ -n "$PRUNE" ]; then
  warn "this machine has no systemd: remove unused images from time to time (docker image prune --all)"
fi

ok "this machine runs up to $SLOTS builds at once. Check it on the server: assay node list; assay doctor"
`;
}
