// A compile under way: what it is about, whether it may go on, and the files that a server which takes over finds.

import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type CompileVerdict, classifyCompile, UNPACK_STEP } from '../domain/container/compile-plan.ts';
import { resourceName } from '../domain/container/container-plan.ts';
import type { LogWriter } from '../store/data/log-file.ts';
import { dependencyLogPath, jobDirectory } from '../store/data/paths.ts';
import { instanceOf } from '../store/database/settings.ts';
import { type Dependency, findDependency } from '../store/dependencies.ts';
import type { Artifacts } from './artifacts.ts';
import type { Job, JobOutcome } from './run-job.ts';
import type { RunParts } from './run-suite.ts';

export type CompileParts = RunParts & { artifacts: Artifacts; hasFreeSpace(): boolean };

/** What a compile was begun with: the dependency may be changed while it runs. */
export type Begun = { recipeHash: string; prefix: string; volume: string; inside: string };

export type Compile = {
  parts: CompileParts;
  dependency: Dependency;
  job: Job;
  log: LogWriter;
  /** Keeps the sweep from an artifact until the compile is over, however it ends. */
  hold(hash: string): void;
};

export type Finished = {
  verdict: CompileVerdict;
  artifact?: { hash: string; recipeHash: string };
};

export function describeJob(parts: CompileParts, dependency: Dependency): Job {
  const { id } = dependency;
  const topic = `dependency:${id}`;
  return {
    topic,
    name: resourceName({ instance: instanceOf(parts.db), kind: 'dependency', id: `${id}` }),
    nonce: dependency.nonce as string,
    outputFile: join(jobDirectory(parts.dataDirectory, 'dependency', id), 'output'),
    logPath: dependencyLogPath(parts.dataDirectory, id),
    logLimitBytes: parts.logLimitBytes,
    secrets: [],
    deadlineAt: (dependency.startedAt ?? Date.now()) + parts.timeoutMs - dependency.spentMs,
    diskBytes: parts.diskBytes,
    condemn: () => parts.condemn(dependency.nonce as string),
    stopReason: () => {
      const row = findDependency(parts.db, id);
      if (!row || row.cancelRequested) return 'canceled';
      return parts.mustEnd(dependency.nonce as string);
    },
    describeStep: name =>
      name === UNPACK_STEP
        ? `unpacking the archive, ${dependency.archiveFileSize} bytes`
        : `compiling ${dependency.name}: ${dependency.command.trim().split('\n')[0]}`,
  };
}

/** Asked while the server itself reads or writes for long. */
export const mayGoOn = ({ parts, job }: Compile) =>
  !parts.stopping.aborted &&
  job.stopReason() === undefined &&
  Date.now() < job.deadlineAt &&
  parts.hasFreeSpace();

export const whyNot = (job: Job) => ({
  kind: job.stopReason() ?? (Date.now() >= job.deadlineAt ? ('timed_out' as const) : ('disk_full' as const)),
});

export function judge(
  { parts, dependency }: Compile,
  outcome: Exclude<JobOutcome, { kind: 'left' }>,
): CompileVerdict {
  return classifyCompile(outcome, {
    attempts: dependency.attempts,
    timeoutMs: parts.timeoutMs,
    memoryBytes: parts.limits.memoryBytes,
    diskBytes: parts.diskBytes,
  });
}

export const begunFile = (job: Job) => join(dirname(job.outputFile), 'begun');
export const outcomeFile = (job: Job) => join(dirname(job.outputFile), 'outcome');

/** Undefined where it is not there, or a crash left a part of it. */
export async function readJson<T>(file: string): Promise<T | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as T;
  } catch {
    return undefined;
  }
}
