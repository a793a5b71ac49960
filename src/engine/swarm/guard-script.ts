// What the guard of each node runs: it keeps the firewall rules of the node's bridges in place, and reports that to the shared
// directory, where the containers on the node look before they run a command.
import { NODES_DIRECTORY } from '../../domain/container/remote-script.ts';
import { CLOSED_NETWORK, OPEN_NETWORK } from '../../domain/swarm.ts';
import { RULE_FUNCTIONS } from '../docker/rule-functions.ts';

/** The addresses that Assay knows, one on each line. Without this file the guard reports nothing. */
export const ADDRESSES_FILE = 'addresses';
/** While it exists, guards delete their rules and report that instead. */
export const REMOVING_FILE = 'removing';
/**
 * The time of the last check in seconds, by the clock of the node, and a fingerprint of its /usr. Only written if all rules
 * hold.
 */
export const markerFile = (nodeId: string) => nodeId;
/** Why the rules do not hold. */
export const errorFile = (nodeId: string) => `${nodeId}.error`;
/** How many rules the guard deleted. */
export const removedFile = (nodeId: string) => `${nodeId}.removed`;

const INTERVAL_SECONDS = 2;
/** What changes seldom is looked up each time so many rounds have passed. */
const SLOW_ROUNDS = 15;

// $1 and $2 are the user and group that own the directory. Files are written as that user: NFS lets root of another machine
// write only what everybody may write. Rules that are the same as in an earlier check that found them intact are not
// compared again.
const SCRIPT = `${RULE_FUNCTIONS}
user=$1 group=$2
cd ${NODES_DIRECTORY} || exit
as_owner() {
  if command -v setpriv >/dev/null; then
    setpriv --reuid="$user" --regid="$group" --clear-groups "$@"
  else
    "$@"
  fi
}
write() {
  as_owner sh -c 'printf "%s\\n" "$2" >"$1.new" && mv -f "$1.new" "$1"' sh "$1" "$2"
}
# The addresses of this machine, which may have others than the one that the manager knows, without those of bridges that Docker made.
own_addresses() {
  ip -o -4 address show scope global 2>/dev/null | while read -r _ interface _ address _; do
    case $interface in
      docker* | br-???????????? | veth* | assay-*) ;;
      *) echo "\${address%/*}" ;;
    esac
  done
}
# The addresses that all nodes list.
read_addresses() {
  found=$(cat ${ADDRESSES_FILE} && cat *.addresses 2>/dev/null)
  [ "$found" = "$listed" ] && return
  listed=$found rejected=$(echo $(printf '%s\n' "$found" | grep -x '[0-9][0-9.]*' | sort -u))
}
# Names and sizes of programs and libraries, so that nodes with other versions are found. It is done again only when one of
# the directories has changed.
identify() {
  set -- /usr/bin /usr/sbin /usr/lib /usr/lib/*-linux-gnu* /usr/local/bin
  changed=$(stat -c %Y "$@" 2>/dev/null)
  [ "$changed" = "$identified" ] && return
  usr=$(for place; do cd "$place" 2>/dev/null && stat -c '%F %n %s' *; done | grep -v ^directory | sha256sum)
  usr=\${usr%% *} identified=$changed
}
# Deletes the rules of the bridge $1 for addresses that are no longer listed.
forget() {
  iptables -w 10 -S |
    sed -n "s/^-A \\([^ ]* -d \\([0-9.]*\\)\\/32 -i $1 .*--comment $1 .*\\)/\\2 \\1/p" |
    while read -r address rule; do
      case " $rejected " in *" $address "*) ;; *) iptables -w 10 -D $rule ;; esac
    done
}
check() {
  if ! command -v iptables >/dev/null; then
    echo 'the node has no iptables'
    return
  fi
  for bridge in ${OPEN_NETWORK.name} ${CLOSED_NETWORK.name}; do
    result=$(protect 2>&1)
    case $result in
      intact) ;;
      restored) restored=yes ;;
      *)
        echo "\${result:-iptables failed}"
        return
        ;;
    esac
    forget $bridge
  done
  echo \${restored:+restored}
}
remove() {
  [ -e "$ASSAY_NODE.removed" ] ||
    write "$ASSAY_NODE.removed" $({ delete ${OPEN_NETWORK.name}; delete ${CLOSED_NETWORK.name}; } 2>/dev/null | wc -l)
  intact=
}
renew() {
  if [ $((round % ${SLOW_ROUNDS})) = 0 ]; then
    identify
    addresses=$(own_addresses)
    [ "$addresses" = "$(cat "$ASSAY_NODE.addresses" 2>/dev/null)" ] || write "$ASSAY_NODE.addresses" "$addresses"
  fi
  round=$((round + 1))
  if [ ! -r ${ADDRESSES_FILE} ]; then
    write "$ASSAY_NODE.error" 'the list of addresses in the shared directory cannot be read'
    return
  fi
  read_addresses
  before=$(list)
  if [ -z "$before" ] || [ "$rejected $before" != "$intact" ]; then
    result=$(check)
    case $result in
      '' | restored) ;;
      *)
        write "$ASSAY_NODE.error" "$result"
        return
        ;;
    esac
    [ -z "$result" ] && [ "$(list)" = "$before" ] && intact="$rejected $before"
  fi
  [ -e "$ASSAY_NODE.error" ] && as_owner rm -f "$ASSAY_NODE.error"
  write "$ASSAY_NODE" "$(date +%s) $usr"
}
round=0
while :; do
  if [ -e ${REMOVING_FILE} ]; then
    remove
  elif [ -e ${ADDRESSES_FILE} ]; then
    renew
  fi
  sleep ${INTERVAL_SECONDS}
done
`;

export const NOBODY = 65_534;

export type FileOwner = { uid: number; gid: number };

/** The command of the guard. */
export const guardCommand = ({ uid, gid }: FileOwner) => [
  ...['/bin/sh', '-c', SCRIPT, 'assay-guard'],
  ...[String(uid), String(gid)],
];
