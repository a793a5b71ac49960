// The script that runs first in every container: it relays output into a file, runs the steps in order and records the
// exit status in that file. src/engine/output.ts reads the file.

import { shellQuote } from '../text/shell.ts';
import {
  ARTIFACTS_DIRECTORY,
  ENVIRONMENT_FILE,
  OUTPUT_FILE,
  PIPE_FILE,
  SCRIPT_FILE,
} from './container-plan.ts';

export type EntryStep = {
  /** `[a-z0-9-]`, shown in records. The exit status of the last step is the result of the run. */
  name: string;
  script: string;
  /** 0 or absent means no limit other than the container's. */
  limitSeconds?: number;
  /** `service`: a step of Assay itself, without the suite's variables and search paths. */
  environment: 'suite' | 'service';
  /** The run continues if the step fails or takes too long. */
  mayFail?: boolean;
};

/** The step that runs the user's command. */
export const COMMAND_STEP = 'command';

type Entry = {
  /** A random value of this attempt. It marks the records in the output, so that a suite cannot forge one. */
  nonce: string;
  steps: EntryStep[];
  /** Runs after the last step, whatever its result is, when no other process runs. */
  finish?: string;
};

// RS is not printed by accident. The script below writes it as an escape, so that a suite that lists its processes
// prints no record.
const RECORD_EDGE = '\x1e';

export function recordPrefix(nonce: string): string {
  return `${RECORD_EDGE}assay:${nonce}:`;
}
export const RECORD_END = RECORD_EDGE;
/** The longest payload of a record. */
export const RECORD_PAYLOAD_BYTES = 160;

export type EntryRecord =
  | { kind: 'step'; name: string; phase: 'begin' }
  | { kind: 'step'; name: string; phase: 'end'; status: number; durationMs: number | undefined }
  | {
      kind: 'exit';
      name: string;
      status: number;
      outOfMemory: boolean;
      /** The step was killed because it took longer than its limit. */
      overran: boolean;
      /** Whether the directory of artifacts is certainly empty. */
      hasNoArtifacts: boolean;
    };

/** Undefined if the payload is not a valid record. */
export function parseRecord(payload: string): EntryRecord | undefined {
  const [kind, name, status, ...more] = payload.split(' ');
  if (more.length > 3 || !name || !/^[a-z0-9-]+$/.test(name)) return undefined;
  if (kind === 'begin') return status === undefined ? { kind: 'step', name, phase: 'begin' } : undefined;
  if (!status || !/^\d{1,3}$/.test(status) || Number(status) > 255) return undefined;
  if (kind === 'end' && more.length > 2) return undefined;
  if (kind === 'end')
    return { kind: 'step', name, phase: 'end', status: Number(status), durationMs: durationMs(more) };
  if (kind !== 'exit') return undefined;
  return {
    kind: 'exit',
    name,
    status: Number(status),
    outOfMemory: more.includes('oom'),
    overran: more.includes('overran'),
    hasNoArtifacts: more.includes('empty'),
  };
}

/** Between two values of /proc/uptime. */
function durationMs([began, ended]: readonly string[]): number | undefined {
  const ms = Math.round((Number(ended) - Number(began)) * 1000);
  return ms >= 0 ? ms : undefined;
}

// Every variable is named ASSAY_…: these names are reserved, so no variable of the suite is overwritten.
//
// Output goes through a pipe and a `cat` that appends. If stdout were the file itself, `echo x >/dev/stderr` would
// truncate it. The suite runs as the same user and may signal these processes, by accident or on purpose:
//
// - The relay is process 1, which the kernel protects from every signal sent inside the container. It never waits for a
//   child, so it ignores SIGCHLD and the kernel reaps orphans. A shell that is killed at once starts the supervisor; if
//   it were started in the background, every command would ignore SIGINT and SIGQUIT.
// - Opening the pipe waits for the relay, so no command runs while process 1 is still a shell, which SIGINT would end.
// - The supervisor traps all signals it can (if it ignored them, commands would ignore them too) and runs under another
//   name, so that `pkill sh` does not find it. Only SIGKILL ends it: then the relay exits with 0 and without an exit
//   record once the command has closed its output.
// - In an image whose `env` cannot ignore SIGCHLD (BusyBox), the supervisor is process 1 and the relay ignores signals.
//
// Every build runs this, and starting a program is most of its cost. So shells fork where they can, instead of starting
// another shell, and read /proc. `$$` is 1 in all of them. The script and the pipe are files of the image: the pipe need not
// be made, and the script is not an argument, because Docker copies the arguments of a container many times. All of it but
// its last line is in functions, so that the shell has read the whole file before it forks.
//
// At the end everything but the relay is stopped and then killed, so that a daemon that holds the pipe open delays nothing
// and the relay sees the end of file after the last byte. (kill -1 spares the caller and process 1; a stopped process
// cannot fork.) The shells print `Killed` to stderr, so it is /dev/null. Each step runs in a separate shell, which is
// what `kill -9 $PPID` ends; setsid protects both from `kill 0`, which no step of Assay itself runs. The command is
// split into words before the suite's variables are set, because one of them may be IFS. If a value is too long for the
// environment, the step's shell reads the variables itself.
//
// A step with a limit is killed by a background process, because not every image has `timeout`. It is killed with its
// `sleep` when the step ends. What the step itself left running ends with the container.
//
// Most builds leave no artifacts. The supervisor looks, because asking Docker takes as long as starting a container. It
// looks in a subshell: the names of a million files may be too much for the memory limit.
const SIGNALS = 'HUP INT QUIT ABRT USR1 USR2 ALRM TERM';

/** The content of SCRIPT_FILE. */
export const ENTRY_SCRIPT = `say() {
  printf '\\036assay:%s:%s\\036' "$ASSAY_NONCE" "$1"
}
clock() {
  ASSAY_NOW=0
  read -r ASSAY_NOW ASSAY_REST </proc/uptime
}
watch() {
  $ASSAY_SETSID /bin/sh -c 'sleep "$0" && kill -s KILL "$(cat /tmp/.assay-step)"' "$1" >/dev/null &
  ASSAY_WATCH=$!
}
unwatch() {
  [ -n "$ASSAY_WATCH" ] || return 0
  kill -s KILL -- "-$ASSAY_WATCH" || kill -s KILL "$ASSAY_WATCH"
  wait "$ASSAY_WATCH"
  rm -f /tmp/.assay-step
}
run() (
  if [ "$1" -gt 0 ]; then /bin/sh -c 'echo $PPID' >/tmp/.assay-step; fi
  exec 2>&1
  if [ "$2" = service ]; then
    exec env -i PATH="$PATH" HOME=/tmp /bin/sh -c -- "$3"
  fi
  ASSAY_SCRIPT=$3
  set -- $ASSAY_SETSID
  ASSAY_LONG=
  if [ -f ${ENVIRONMENT_FILE} ]; then . ${ENVIRONMENT_FILE} 2>/dev/null; fi
  if [ -n "$ASSAY_LONG" ]; then ASSAY_SCRIPT="ASSAY_LONG=1; . ${ENVIRONMENT_FILE} 2>/dev/null; $ASSAY_SCRIPT"; fi
  exec "$@" /bin/sh -c -- "$ASSAY_SCRIPT"
)
has_artifacts() (
  [ -r "$1" ] && [ -x "$1" ] || exit 0
  for ASSAY_FILE in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    [ -e "$ASSAY_FILE" ] || [ -L "$ASSAY_FILE" ] || continue
    exit 0
  done
  exit 1
)
finish() {
  ASSAY_MEMORY=within
  for ASSAY_FILE in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
    [ -r "$ASSAY_FILE" ] || continue
    while read -r ASSAY_KEY ASSAY_VALUE; do
      [ "$ASSAY_KEY" = oom_kill ] && [ "$ASSAY_VALUE" -gt 0 ] && ASSAY_MEMORY=oom
    done <"$ASSAY_FILE"
  done
  kill -s STOP -- -1
  [ -n "$ASSAY_RELAY" ] && kill -s CONT "$ASSAY_RELAY"
  has_artifacts ${ARTIFACTS_DIRECTORY}
  case $? in 1) ASSAY_KEEP=empty ;; *) ASSAY_KEEP=filled ;; esac
  [ -z "$ASSAY_FINISH" ] || (eval "$ASSAY_FINISH") </dev/null >/dev/null
  say "exit $1 $2 $ASSAY_MEMORY $3 $ASSAY_KEEP"
  for ASSAY_FILE in /proc/[0-9]*; do
    case \${ASSAY_FILE#/proc/} in
      1 | "$ASSAY_SUPERVISOR" | "$ASSAY_RELAY") ;;
      *) kill -s KILL "\${ASSAY_FILE#/proc/}" ;;
    esac
  done
  exec >/dev/null
  [ -n "$ASSAY_RELAY" ] || exit 0
  wait "$ASSAY_RELAY"
  case $? in 0 | 137) exit 0 ;; *) exit 125 ;; esac
}
supervise() {
  ASSAY_NONCE=$1 ASSAY_FINISH=$2
  shift 2
  trap : ${SIGNALS}
  exec >${PIPE_FILE} 2>/dev/null
  ASSAY_SETSID=$(command -v setsid)
  while [ $# -gt 0 ]; do
    ASSAY_STEP=$1 ASSAY_WATCH=
    clock
    ASSAY_BEGAN=$ASSAY_NOW
    [ "$2" -gt 0 ] && watch "$2"
    say "begin $1"
    (trap : ${SIGNALS}; run "$2" "$3" "$5"; exit $?)
    ASSAY_STATUS=$? ASSAY_PACE=within
    unwatch
    clock
    if [ "$ASSAY_STATUS" -eq 137 ] && [ "$2" -gt 0 ]; then
      [ $((\${ASSAY_NOW%.*} - \${ASSAY_BEGAN%.*})) -ge "$2" ] && ASSAY_PACE=overran
    fi
    say "end $1 $ASSAY_STATUS $ASSAY_BEGAN $ASSAY_NOW"
    [ "$ASSAY_STATUS" -eq 0 ] || [ "$4" = optional ] || finish "$1" "$ASSAY_STATUS" "$ASSAY_PACE"
    shift 5
  done
  finish "$ASSAY_STEP" 0 within
}
own_process() {
  read -r ASSAY_PROCESS ASSAY_REST </proc/self/stat
}
main() {
  ASSAY_RELAY=
  : >>${OUTPUT_FILE} || exit 125
  if env --ignore-signal=CHLD >/dev/null 2>&1; then
    (
      own_process
      (
        kill -s KILL "$ASSAY_PROCESS"
        own_process
        ASSAY_SUPERVISOR=$ASSAY_PROCESS
        echo .assay-entry >/proc/self/comm
        supervise "$@"
      )
      :
    )
    exec env --ignore-signal=CHLD cat <${PIPE_FILE} >>${OUTPUT_FILE}
  fi
  (trap '' ${SIGNALS}; exec cat <${PIPE_FILE} >>${OUTPUT_FILE}) &
  ASSAY_RELAY=$! ASSAY_SUPERVISOR=1
  supervise "$@"
}
main "$@"
`;

/** The exit status of a container whose relay has written all output, with or without an exit record. */
export const RELAYED_STATUS = 0;

/** Linux cannot start a program with a longer environment string, counting `NAME=` and the final NUL. */
const MAX_EXPORT_BYTES = 131_072;

/** Directories that come before those that a variable of the suite or the image names. */
export type SearchPath = {
  name: string;
  directories: readonly string[];
  /** Whether an empty element stands for the default directories, and is kept at the end. */
  endsEmpty?: boolean;
};

/**
 * Variables as shell lines for the script to source. Of two with the same name, the later wins. `command` keeps the shell
 * from exiting if a variable is read-only. A variable that is too long to export stays local to the shell of the step: then
 * the script sources the lines only there, with ASSAY_LONG set.
 */
export function renderEnvironment(
  variables: readonly { name: string; content: string }[],
  searchPaths: readonly SearchPath[] = [],
): string {
  const contents = new Map(variables.map(({ name, content }) => [name, content]));
  const inherited: string[] = [];
  for (const { name, directories, endsEmpty = false } of searchPaths) {
    const first = directories.join(':');
    const own = contents.get(name);
    if (own !== undefined) contents.set(name, own === '' && !endsEmpty ? first : `${first}:${own}`);
    else {
      const rest = endsEmpty ? `:$${name}` : `\${${name}:+:$${name}}`;
      inherited.push(`command export ${name}=${shellQuote(first)}"${rest}"\n`);
    }
  }
  let isAnyLong = false;
  const lines = [...contents].map(([name, content]) => {
    const assignment = `${name}=${shellQuote(content)}\n`;
    if (Buffer.byteLength(`${name}=${content}\0`) <= MAX_EXPORT_BYTES) return `command export ${assignment}`;
    isAnyLong = true;
    return `command unset ${name}\n${assignment}`;
  });
  const guard = isAnyLong ? '[ -n "$ASSAY_LONG" ] || { ASSAY_LONG=1; return; }\n' : '';
  return [guard, ...lines, ...inherited].join('');
}

/** The argv of a container of a prepared image. Steps are arguments, so nothing needs quoting. */
export function entryCommand(entry: Entry): string[] {
  if (!/^[0-9a-f]{16,64}$/.test(entry.nonce)) throw new Error('An entry nonce is 16 to 64 hex digits.');
  if (entry.steps.length === 0) throw new Error('An entry has at least one step.');
  const steps = entry.steps.flatMap(step => {
    if (!/^[a-z0-9-]{1,60}$/.test(step.name)) throw new Error(`Invalid step name: ${step.name}`);
    const seconds = String(Math.ceil(step.limitSeconds ?? 0));
    return [step.name, seconds, step.environment, step.mayFail ? 'optional' : 'required', step.script];
  });
  const { nonce, finish = '' } = entry;
  return ['/bin/sh', SCRIPT_FILE, nonce, finish, ...steps];
}
