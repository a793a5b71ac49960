// The firewall rules of a bridge, as functions of a shell script that a guard runs: firewall.ts for the bridge of one host,
// ../swarm/guard-script.ts for those of every node.

// `protect` checks the rules of the bridge $bridge, restores missing ones, and prints `intact` or `restored`. Containers on
// the bridge reach neither the host's ports, nor each other, nor link-local addresses, nor the addresses in $rejected.
//
// It reads all rules with one call and compares them in the format of `iptables -S`. REJECT makes a connection of a suite fail
// at once instead of hanging; DROP is for kernels without REJECT. Docker adds the jump to its chain DOCKER-USER only when it
// starts, so the script restores it. Rules that are not first in their chain are moved to the top, because an earlier rule
// might accept the traffic.
export const RULE_FUNCTIONS = `
PATH=/usr/sbin:/sbin:/usr/bin:/bin
insert() {
  $1 -w 10 -I $2 1 $3 -m comment --comment $bridge -j REJECT 2>/dev/null ||
    $1 -w 10 -I $2 1 $3 -m comment --comment $bridge -j DROP
}
# Our rules in the chain $1 before the first rule of others.
leading() {
  printf '%s\\n' "$rules" | sed -n "/^-A $1 /{/ --comment assay-/!q;p}"
}
require() {
  for verdict in REJECT DROP; do
    rule="$3 -m comment --comment $bridge -j $verdict"
    case $leading in *"-A $2 $rule"*) return ;; esac
    case $rules in
      *"-A $2 $rule"*) $1 -w 10 -D $2 $rule 2>/dev/null ;;
      *) $1 -w 10 -C $2 $rule 2>/dev/null && return ;;
    esac
  done
  state=restored
  insert "$1" "$2" "$3"
}
protect() {
  state=intact
  forward=FORWARD
  rules=$(iptables -w 10 -S) || return
  case $rules in *'-N DOCKER-USER'*)
    forward=DOCKER-USER
    case \${rules#*-A FORWARD } in
      '-j DOCKER-USER'*) ;;
      *)
        state=restored
        iptables -w 10 -D FORWARD -j DOCKER-USER 2>/dev/null
        iptables -w 10 -I FORWARD 1 -j DOCKER-USER || return
        ;;
    esac
  esac
  leading=$(leading INPUT; leading $forward)
  require iptables INPUT "-i $bridge" &&
    require iptables $forward "-i $bridge -o $bridge" &&
    require iptables $forward "-d 169.254.0.0/16 -i $bridge" &&
    require iptables $forward "-i $bridge -m conntrack --ctstate DNAT" || return
  for address in $rejected; do
    require iptables $forward "-d $address/32 -i $bridge" || return
  done
  # Docker disables IPv6 on the bridge. The rule is for a host that enables it again.
  if rules=$(ip6tables -w 10 -S INPUT 2>/dev/null); then
    leading=$(leading INPUT)
    require ip6tables INPUT "-i $bridge" 2>/dev/null
  fi
  echo $state
}
# Deletes the rules of the bridge $1; without $1, of all bridges of single hosts that are gone.
delete() {
  for tool in iptables ip6tables; do
    $tool -w 10 -S 2>/dev/null |
      sed -n "s/^-A \\(.* -i \\(\${1:-assay-[0-9a-f]*}\\) .*--comment \\2 .*\\)/\\2 \\1/p" |
      while read -r name rule; do
        if [ "$1" ] || [ ! -e "/sys/class/net/$name" ]; then
          $tool -w 10 -D $rule && echo deleted
        fi
      done
  done
}
list() {
  iptables -w 10 -S 2>/dev/null && ip6tables -w 10 -S INPUT 2>/dev/null
}
`;
