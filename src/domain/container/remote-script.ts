// The scripts of a container that runs on another machine: one that makes sure that the container runs once and is as
// restricted as on the server's own machine, and one that packs what the server reads after the end.

import { shellQuote } from '../text/shell.ts';
import { type KeptPath, OUTPUT_FILE } from './container-plan.ts';

/** The directory of this attempt on the shared file system. */
export const ATTEMPT_DIRECTORY = '/srv/.assay/attempt';
/** Has a file for each node, which its firewall guard writes. */
export const NODES_DIRECTORY = '/srv/.assay/nodes';
/** Checks the node, sets the environment of the plan and runs its command. */
export const ENTRY_FILE = '/srv/.assay/entry';
/** The id of the node. Docker replaces the template. */
export const NODE_VARIABLE = 'ASSAY_NODE={{.Node.ID}}';

/** The step that checks the node. */
export const NODE_STEP = 'node';

/** Why a node refused to run the command, by the exit status of the step. */
export const NODE_REFUSALS: Record<number, string> = {
  91: 'would let processes keep capabilities',
  92: 'would let processes gain privileges: set "no-new-privileges" in its daemon.json, or use an image with setpriv',
  93: 'filters no system calls (seccomp)',
  94: 'has no active firewall rules for containers: check that iptables works there and that its clock is right',
  95: 'has other programs in /usr than the server: use an imported image, or install the same packages everywhere',
};

/** A node that has just returned sets its rules in a moment. */
export const RULES_MISSING = 94;

/** How old the last check of the firewall rules may be. */
export const RULES_SECONDS = 15;

// Runs as process 1, before the command. Nothing is printed before the lock is taken: the output may belong to another
// run of the same attempt. A node that is cut off cannot be told to stop, so the job ends itself at its deadline.
// $1 nonce, $2 seconds, $3 expected fingerprint of /usr or empty.
const GUARD_SCRIPT = `
ASSAY_CAP= ASSAY_PRIVS= ASSAY_CALLS=
while read -r ASSAY_KEY ASSAY_VALUE ASSAY_REST; do
  case $ASSAY_KEY in
    CapEff:) ASSAY_CAP=$ASSAY_VALUE ;;
    NoNewPrivs:) ASSAY_PRIVS=$ASSAY_VALUE ;;
    Seccomp:) ASSAY_CALLS=$ASSAY_VALUE ;;
  esac
done </proc/self/status
if [ "$ASSAY_PRIVS" != 1 ] && [ -z "$ASSAY_AGAIN" ] && command -v setpriv >/dev/null; then
  ASSAY_AGAIN=1
  export ASSAY_AGAIN
  exec setpriv --no-new-privs /bin/sh "$0" "$@"
fi
mkdir ${ATTEMPT_DIRECTORY}/lock || exit 125
refuse() {
  printf '\\036assay:%s:begin ${NODE_STEP}\\036\\036assay:%s:exit ${NODE_STEP} %s within within empty\\036' \\
    "$ASSAY_NONCE" "$ASSAY_NONCE" "$1" >>${OUTPUT_FILE}
  exit 0
}
ASSAY_NONCE=$1
case $ASSAY_CAP in *[!0]*) refuse 91 ;; esac
[ "$ASSAY_PRIVS" = 1 ] || refuse 92
[ "$ASSAY_CALLS" = 2 ] || refuse 93
ASSAY_AT=0 ASSAY_USR=
read -r ASSAY_AT ASSAY_USR <"${NODES_DIRECTORY}/$ASSAY_NODE"
case $ASSAY_AT in '' | *[!0-9]*) ASSAY_AT=0 ;; esac
[ $(($(date +%s) - ASSAY_AT)) -le ${RULES_SECONDS} ] || refuse 94
[ -z "$3" ] || [ "$3" = "$ASSAY_USR" ] || refuse 95
(sleep "$2"; kill -s KILL -- -1) >/dev/null 2>&1 </dev/null &
unset ASSAY_AGAIN ASSAY_NODE ASSAY_NONCE ASSAY_CAP ASSAY_PRIVS ASSAY_CALLS ASSAY_KEY ASSAY_VALUE ASSAY_REST ASSAY_AT ASSAY_USR
`;

/** The content of ENTRY_FILE. It is a file because Swarm copies the command of a service with each change of its state. */
export const guardedEntry = (entry: string) => `${GUARD_SCRIPT}${entry}`;

export const guardedCommand = (options: { nonce: string; seconds: number; usr: string }) => [
  '/bin/sh',
  ENTRY_FILE,
  options.nonce,
  String(Math.max(1, Math.ceil(options.seconds))),
  options.usr,
];

export const keptFile = (index: number) => `kept-${index}.tar`;

/** Packs the paths into the directory of the attempt. The names in each tar begin with the last segment of the path. */
export const keepScript = (paths: readonly KeptPath[]) =>
  paths
    .map(({ directory, inside }, index) => {
      const path = inside === '' ? directory : `${directory}/${inside}`;
      const at = path.lastIndexOf('/');
      const [parent, name] = [path.slice(0, at) || '/', path.slice(at + 1)];
      const file = `${ATTEMPT_DIRECTORY}/${keptFile(index)}`;
      return `[ -e ${shellQuote(path)} ] && tar -c -f ${file}.part -C ${shellQuote(parent)} -- ${shellQuote(name)}; mv ${file}.part ${file}\n`;
    })
    .join('');
