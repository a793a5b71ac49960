// Plans the container of a compile and classifies how it ended. work/compile-job runs it.

import { createHash } from 'node:crypto';
import { COMPILE_CANCELED, type CompileEvent } from '../dependency.ts';
import type { ArchiveFormat } from '../text/archive-format.ts';
import { shellQuote } from '../text/shell.ts';
import {
  ARCHIVE_FILE,
  type ContainerPlan,
  environmentMount,
  HOME_DIRECTORY,
  type Limits,
  type Mount,
  outputMount,
  PROJECT_DIRECTORY,
  type RemotePlan,
  type RunAs,
  resourceName,
} from './container-plan.ts';
import { COMMAND_STEP, type EntryStep, entryCommand } from './entry-script.ts';
import { keepScript, NODE_STEP } from './remote-script.ts';
import {
  describeNodeRefusal,
  describeStatus,
  isPassingRefusal,
  KILLED,
  LOST,
  MAX_ATTEMPTS,
  memoryLines,
  NOT_RETRIED,
  type Outcome,
} from './verdict.ts';

export const UNPACK_STEP = 'unpack';
/** Warns of libraries that programs of the image would load. It counts as part of the command. */
export const LIBRARIES_STEP = 'libraries';
/** Not a step of the container: Assay keeps what the command left. */
export const KEEP_STEP = 'keep';

/** 2000-01-01: a constant, so that the same source always gives the same artifact. */
const SOURCE_DATE_EPOCH = '946684800';

type CompileOptions = {
  instance: string;
  dependency: { id: bigint; command: string; prefix: string; source: string; libraryPath: boolean };
  nonce: string;
  format: ArchiveFormat;
  archiveFile: string;
  outputFile: string;
  image: { reference: string; mounts: readonly Mount[] };
  network: string;
  limits: Limits;
  /** The output of `renderEnvironment`. Absent if there are no related dependencies. */
  environmentFile?: string;
  /** The dependency's own prefix, which is writable, and those of the related dependencies. */
  artifactMounts: readonly Mount[];
  /** Set if the container may run on another machine. */
  remote?: Omit<RemotePlan, 'nonce'>;
};

export function planCompile(options: CompileOptions): ContainerPlan {
  const { dependency, limits, nonce, remote } = options;
  const owner = { instance: options.instance, kind: 'dependency', id: dependency.id.toString() };
  return {
    name: resourceName(owner),
    owner,
    image: options.image.reference,
    command: entryCommand({
      nonce,
      ...(remote && { finish: keepScript(remote.kept) }),
      steps: [
        unpackStep(options.format, dependency.source),
        commandStep(dependency),
        ...(dependency.libraryPath ? [librariesStep(dependency.prefix)] : []),
      ],
    }),
    environment: {
      CI: 'true',
      ASSAY: 'true',
      HOME: HOME_DIRECTORY,
      LC_ALL: 'C.UTF-8',
      TZ: 'UTC',
      SOURCE_DATE_EPOCH,
      MAKEFLAGS: `-j${Math.max(1, Math.ceil(limits.cpus))}`,
    },
    workingDirectory: PROJECT_DIRECTORY,
    mounts: [
      ...options.image.mounts,
      outputMount(options.outputFile),
      { type: 'bind', source: options.archiveFile, target: ARCHIVE_FILE, readOnly: true },
      ...(options.environmentFile === undefined ? [] : [environmentMount(options.environmentFile)]),
      ...options.artifactMounts,
    ],
    limits,
    network: options.network,
    ...(remote && { remote: { ...remote, nonce } }),
  };
}

/** Two compiles with the same recipe share one artifact. */
export function hashRecipe(recipe: {
  archiveHash: string;
  dependency: { command: string; prefix: string; source: string };
  /** Changes when the content of the image does. */
  imageIdentity: string;
  runAs: RunAs;
  related: readonly { prefix: string; hash: string; environment: string; libraryPath: boolean }[];
}): string {
  const { dependency, runAs } = recipe;
  const text = JSON.stringify([
    'recipe 2',
    recipe.archiveHash,
    dependency.command,
    dependency.prefix,
    dependency.source,
    recipe.imageIdentity,
    `${runAs.uid}:${runAs.gid}`,
    recipe.related.map(one => [one.prefix, one.hash, one.environment, one.libraryPath]),
  ]);
  return createHash('sha256').update(text).digest('hex');
}

const UNPACKERS: Partial<Record<ArchiveFormat, string>> = { gzip: 'gzip', bzip2: 'bzip2', xz: 'xz' };

/** Messages for the exit statuses of the unpack step. */
const UNPACK_ERRORS: Record<number, string> = {
  81: 'The image lacks a program to unpack this kind of archive: the log names it.',
  82: 'The archive is cut off or damaged.',
  83: 'The archive could not be unpacked: the log says why.',
  84: 'The directory that `source` names is not in the archive. The log shows what is.',
  85: 'The directory that `source` names leads out of the archive.',
};

/**
 * GNU tar exits with 0 for an archive that ends inside a header or before its end marker; with -R it reports which end it
 * found. For other tars the script checks that the last bytes are the end marker.
 */
function unpackStep(format: ArchiveFormat, source: string): EntryStep {
  const program = UNPACKERS[format];
  const read = program === undefined ? 'cat' : `${program} -dc`;
  const lines = [
    'umask 022',
    `cd ${PROJECT_DIRECTORY} || exit 1`,
    `fail() { printf '%s\\n' "$2"; exit "$1"; }`,
    `for program in tar ${program ?? ''}; do`,
    '  command -v "$program" >/dev/null || fail 81 "the image has no $program"',
    'done',
    'left=$(mktemp -d) || exit 1',
    'case $(tar --version 2>/dev/null) in *"GNU tar"*) gnu=yes ;; *) gnu= ;; esac',
    `{ ${read} <${ARCHIVE_FILE}; echo $? >"$left/read"; } | {`,
    '  if [ -n "$gnu" ]; then tar -x -R --no-same-owner -f - >"$left/ends"; else tar -x -o -f -; fi',
    '  echo $? >"$left/tar"',
    '  cat >/dev/null',
    '}',
    'read -r read <"$left/read"',
    'read -r tar <"$left/tar"',
    // gzip exits with 2 to warn that it ignored trailing bytes.
    `[ "$read" -eq 0 ] ${format === 'gzip' ? '|| [ "$read" -eq 2 ] ' : ''}|| fail 82 "the archive is cut off or damaged"`,
    'if [ -n "$gnu" ]; then',
    '  grep -q "Block of NULs" "$left/ends" || fail 82 "the archive is cut off: it has no end"',
    'elif [ "$tar" -eq 0 ]; then',
    `  [ "$(${read} <${ARCHIVE_FILE} | tail -c 1024 | tr -d '\\000' | wc -c)" -eq 0 ] || fail 82 "the archive is cut off: it has no end"`,
    'fi',
    '[ "$tar" -eq 0 ] || fail 83 "the archive could not be unpacked: tar exited with $tar"',
    'rm -rf "$left"',
    ...(source === ''
      ? []
      : [
          `source=${shellQuote(source)}`,
          '[ -d "./$source" ] || { echo "the archive has no directory $source. It begins with:"; ls -Ap | head -n 20; exit 84; }',
          `cd -P "./$source" || fail 84 "the directory $source cannot be entered"`,
          `case $(pwd -P)/ in ${PROJECT_DIRECTORY}/*) ;; *) fail 85 "the directory $source leads out of the archive" ;; esac`,
        ]),
  ];
  return { name: UNPACK_STEP, script: lines.join('\n'), environment: 'service' };
}

function commandStep({ source, command }: { source: string; command: string }): EntryStep {
  const script =
    source === ''
      ? command
      : `cd ${shellQuote(`./${source}`)} || exit 1\nexec /bin/sh -c -- ${shellQuote(command)}`;
  return { name: COMMAND_STEP, script, environment: 'suite' };
}

// The loader, of glibc or musl, lists what a program would load, and does not run it. A program that the prefix has too is
// left out, because suites find that one first.
const LIBRARIES_SCRIPT = `
has() { for file; do [ -e "$file" ] && return 0; done; return 1; }
list() {
  for program in bash cmake curl gcc git make node openssl perl php psql python3 rsync ruby ssh tar wget xz; do
    has "$prefix/bin/$program" "$prefix/sbin/$program" && continue
    path=$(command -v "$program") || continue
    "$loader" --library-path "$prefix/lib:$prefix/lib64" --list "$path" </dev/null 2>/dev/null |
      while read -r library arrow file rest; do
        case $file in "$prefix"/lib/* | "$prefix"/lib64/*) printf '%s %s\\n' "$file" "$program" ;; esac
      done
  done
}
report() {
  [ -n "$last" ] || return 0
  case $names in *', '*) names="\${names%, *} and \${names##*, }" ;; esac
  printf '[assay] %s of the image would load %s from %s: set library_path to false if this causes errors\\n' \
    "$names" "\${last##*/}" "\${last%/*}"
}
has "$prefix"/lib/*.so* "$prefix"/lib64/*.so* || exit 0
for loader in /lib64/ld-linux*.so.* /lib/ld-linux*.so.* /lib/ld-musl-*.so.*; do [ -x "$loader" ] && break; done
[ -x "$loader" ] || exit 0
list | sort | {
  last=
  while read -r file program; do
    if [ "$file" = "$last" ]; then
      names="$names, $program"
    else
      report
      last=$file names=$program
    fi
  done
  report
} | head -n 20
`;

/** Reports which programs of the image would load a library of the prefix, which suites have on LD_LIBRARY_PATH. */
const librariesStep = (prefix: string): EntryStep => ({
  name: LIBRARIES_STEP,
  script: `prefix=${shellQuote(prefix)}${LIBRARIES_SCRIPT}`,
  limitSeconds: 20,
  environment: 'service',
  mayFail: true,
});

export type CompileVerdict = {
  /** `compile`: the command succeeded. Whether it installed anything is checked when the artifact is kept. */
  event: Extract<CompileEvent, 'compile' | 'fail' | 'cancel' | 'requeue'>;
  error: string | null;
  /** Appended to the log as lines of the service. */
  lines: string[];
};

const failedCompile = (error: string): CompileVerdict => ({ event: 'fail', error, lines: [error] });

export function classifyCompile(
  outcome: Outcome,
  options: {
    attempts: number;
    retryLost: boolean;
    timeoutMs: number;
    memoryBytes: number;
    diskBytes: number;
  },
): CompileVerdict {
  switch (outcome.kind) {
    case 'exit':
      return isPassingRefusal(outcome, options.attempts)
        ? retryCompile(describeNodeRefusal(outcome.status), { ...options, retryLost: true })
        : classifyExit(outcome, options.memoryBytes);
    case 'killed':
      return failedCompile(`The command ${KILLED}.`);
    case 'timed_out':
      return failedCompile(`The compile was stopped: it took longer than ${options.timeoutMs / 1000} s.`);
    case 'canceled':
      return { event: 'cancel', error: COMPILE_CANCELED, lines: ['canceled'] };
    case 'disk_full':
      return failedCompile('The compile was stopped because the disk of the appliance is nearly full.');
    case 'too_big':
    case 'cache_too_big':
      return failedCompile(`The compile was stopped because it grew past ${options.diskBytes} bytes.`);
    case 'tampered':
      return failedCompile(
        'The compile was stopped because it changed the file that its output is written to.',
      );
    case 'lost':
      return retryCompile(outcome.reason ?? LOST, options);
    case 'cannot_run':
      return failedCompile(outcome.reason);
    case 'not_started':
      return { event: 'requeue', error: null, lines: [] };
  }
}

/** Retries after a failure of Docker, at most MAX_ATTEMPTS times in all. */
function retryCompile(
  reason: string,
  { attempts, retryLost }: { attempts: number; retryLost: boolean },
): CompileVerdict {
  if (!retryLost) return failedCompile(`${reason} ${NOT_RETRIED}`);
  if (attempts >= MAX_ATTEMPTS) return failedCompile(`${reason} It was tried ${attempts} times.`);
  return { event: 'requeue', error: null, lines: [`${reason} The dependency is compiled again.`] };
}

function classifyExit(exit: Extract<Outcome, { kind: 'exit' }>, memoryBytes: number): CompileVerdict {
  const memory = memoryLines(exit, memoryBytes);
  if (exit.step === NODE_STEP) return failedCompile(describeNodeRefusal(exit.status));
  if (exit.status === 0) return { event: 'compile', error: null, lines: memory };
  const error =
    exit.step === COMMAND_STEP
      ? `The command exited with ${describeStatus(exit.status)}.`
      : (UNPACK_ERRORS[exit.status] ??
        `The archive could not be unpacked (${exit.status}): the log says why.`);
  return { event: 'fail', error, lines: [...memory, error] };
}
