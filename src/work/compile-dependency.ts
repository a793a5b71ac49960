// A dependency's compile from claim to artifact: a plan, a container, one guarded move. Also picks up what ran when the
// server stopped. What the container left is kept by keep-artifact.ts.

import { createHash, randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { chmod, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { PlacedArtifact } from '../domain/container/artifact-mounts.ts';
import {
  canceledCompile,
  classifyLost,
  describeRecipe,
  failedCompile,
  planCompile,
  retryCompile,
} from '../domain/container/compile-plan.ts';
import { isDiskFull } from '../domain/disk-full.ts';
import { hideHostPaths } from '../domain/host-paths.ts';
import type { ArchiveFormat } from '../domain/text/archive-format.ts';
import { BadArchive, formatOf, needsTar, writeTar } from '../engine/archive/archive-reader.ts';
import { GivenUp } from '../engine/archive/artifact-tar.ts';
import { EngineRefused, EngineUnavailable, ImageMissing } from '../engine/docker/docker.ts';
import { archivePath, dependencyLogPath } from '../store/data/paths.ts';
import { instanceOf } from '../store/database/settings.ts';
import { type Dependency, findDependency } from '../store/dependencies.ts';
import { moveDependency } from '../store/transition.ts';
import {
  type Begun,
  begunFile,
  type Compile,
  type CompileParts,
  describeJob,
  type Finished,
  judge,
  mayGoOn,
  outcomeFile,
  readJson,
  whyNot,
} from './compile-job.ts';
import { finish, reuse } from './keep-artifact.ts';
import type { QueueParts } from './queue.ts';
import { beginOutput, hasBegun, type JobOutcome, openJobLog, runJob } from './run-job.ts';
import { CannotRun } from './run-suite.ts';

export function createCompiler(parts: CompileParts): QueueParts['compile'] {
  /** Recipes that are being compiled: whoever wants the same waits for the artifact. */
  const underWay = new Map<string, Promise<void>>();
  return {
    claim: id => claimCompile(parts, id),
    run: (dependency, resumed) => runCompile(parts, underWay, dependency, resumed),
  };
}

function claimCompile({ db, dataDirectory }: CompileParts, id: bigint): Dependency | undefined {
  return db.write(() => {
    const claimed = moveDependency(db, id, 'start', {
      nonce: randomBytes(16).toString('hex'),
      attempts: (findDependency(db, id)?.attempts ?? 0) + 1,
      cancelRequested: false,
      error: null,
    });
    // Before anybody sees it compile: whoever follows it then must not read the last compile's log.
    if (claimed?.attempts === 1) dropLog(dependencyLogPath(dataDirectory, id));
    return claimed;
  });
}

async function runCompile(
  parts: CompileParts,
  underWay: Map<string, Promise<void>>,
  dependency: Dependency,
  resumed: boolean,
): Promise<void> {
  const { db, host } = parts;
  const job = describeJob(parts, dependency);
  const isBegun = resumed && (await hasBegun(parts, job));
  // Each compile has a log of its own; a further attempt, or a server that takes over, goes on with it.
  if (resumed && !isBegun && dependency.attempts <= 1) dropLog(job.logPath);
  const log = await openJobLog(job);
  const held: (() => void)[] = [];
  const hold = (hash: string) => void held.push(parts.artifacts.hold(hash));
  const compile: Compile = { parts, dependency, job, log, hold };
  let recipe: string | undefined;
  const done = Promise.withResolvers<void>();
  const enter = async (recipeHash: string) => {
    while (underWay.has(recipeHash)) {
      await untilStopped(compile, underWay.get(recipeHash) as Promise<void>);
      if (parts.stopping.aborted || job.stopReason() !== undefined) return;
    }
    recipe = recipeHash;
    underWay.set(recipeHash, done.promise);
  };
  try {
    const finished = isBegun ? await resume(compile, enter) : await start(compile, enter);
    if (finished) await end(compile, finished);
  } catch (cause) {
    if (parts.stopping.aborted) return;
    if (cause instanceof EngineUnavailable) {
      host.reportUnavailable(cause);
      if (isCalledOff(compile)) return await end(compile, { verdict: canceledCompile });
      const { attempts, spentMs } = dependency;
      // A call that was begun and not answered counts: it may never be.
      if (cause.reached) {
        const reason = hideHostPaths(cause.message, parts.dataDirectory);
        return await end(compile, { verdict: retryCompile(reason, attempts) });
      }
      // Before it is given back: whoever takes it next writes to the same file.
      await log.close();
      // Docker is not there to compile with: this attempt does not count.
      moveDependency(db, dependency.id, 'requeue', { nonce: null, attempts: attempts - 1, spentMs });
      return;
    }
    if (!isExpected(cause))
      parts.log.error('dependency could not be compiled', { dependency: dependency.id, cause });
    await end(compile, { verdict: failedCompile(hideHostPaths(sentence(cause), parts.dataDirectory)) });
  } finally {
    if (recipe !== undefined) underWay.delete(recipe);
    done.resolve();
    for (const letGo of held) letGo();
    // Also where the disk is too full to end it: nobody else would.
    await log.close();
  }
}

const isCalledOff = ({ parts, dependency }: Compile) =>
  findDependency(parts.db, dependency.id)?.cancelRequested === true;

/** The log is whole and everything in the way of a next compile is gone before anybody is told the verdict. */
async function end(compile: Compile, { verdict, artifact }: Finished): Promise<void> {
  const { parts, dependency, log } = compile;
  const isOver = verdict.event === 'requeue' && isCalledOff(compile);
  const { event, error, lines } = isOver ? canceledCompile : verdict;
  try {
    await log.finish(lines);
  } catch (cause) {
    if (!isDiskFull(cause)) throw cause;
    // The disk may be full of what the container wrote, which nobody needs any more.
    await tidy(compile);
    await log.finish(lines);
  }
  parts.live.publish([`log:${compile.job.topic}`]);
  await tidy(compile);
  moveDependency(parts.db, dependency.id, event, {
    error,
    ...(event === 'requeue' && { nonce: null }),
    ...(artifact && { artifactHash: artifact.hash, recipeHash: artifact.recipeHash }),
  });
}

/** Undefined where the server stops. */
async function start(
  compile: Compile,
  enter: (recipeHash: string) => Promise<void>,
): Promise<Finished | undefined> {
  const { parts, dependency, job, log } = compile;
  const { db, host, artifacts } = parts;
  await log.beginAttempt();
  await tidy(compile);
  const related = artifacts.listRelatedArtifacts(dependency);
  const { image, network } = await host.prepare(parts.imageFor(dependency.image));
  const recipeHash = recipeOf(parts, dependency, image.reference, related);
  await enter(recipeHash);
  if (parts.stopping.aborted) return undefined;
  if (job.stopReason() !== undefined) return { verdict: judge(compile, { kind: 'canceled' }) };
  const reused = await reuse(compile, recipeHash);
  if (reused) return reused;

  await beginOutput(job);
  const archive = await prepareArchive(compile);
  if ('verdict' in archive) return archive;
  const prefix = await artifacts.attachToCompile(dependency, related);
  const begun: Begun = {
    recipeHash,
    prefix: dependency.prefix,
    volume: prefix.volume,
    inside: prefix.inside,
  };
  await writeFile(begunFile(job), JSON.stringify(begun), { flush: true });
  const outcome = await runJob(
    parts,
    job,
    log,
    planCompile({
      instance: instanceOf(db),
      dependency,
      nonce: job.nonce,
      format: archive.format,
      archiveFile: archive.file,
      outputFile: job.outputFile,
      image,
      network,
      limits: parts.limits,
      prefixes: [...new Set(related.map(({ prefix }) => prefix))],
      artifactMounts: prefix.mounts,
    }),
  );
  return finish(compile, outcome, begun);
}

/** Goes on with a container that the last server started. */
async function resume(
  compile: Compile,
  enter: (recipeHash: string) => Promise<void>,
): Promise<Finished | undefined> {
  const { parts, job, log } = compile;
  const begun = await readJson<Begun>(begunFile(job));
  if (!begun) return { verdict: classifyLost(compile.dependency.attempts) };
  await enter(begun.recipeHash);
  const outcome =
    (await readJson<JobOutcome>(outcomeFile(job))) ?? (await runJob(parts, job, log, undefined));
  return finish(compile, outcome, begun);
}

/** The archive as the container can read it. */
async function prepareArchive(compile: Compile): Promise<{ file: string; format: ArchiveFormat } | Finished> {
  const { parts, dependency, job, log } = compile;
  const file = archivePath(parts.dataDirectory, dependency.archiveHash as string);
  try {
    const format = await formatOf(file);
    if (!needsTar(format)) {
      // Another user reads it in the container; on the host the directory around it is closed.
      await chmod(file, 0o644);
      return { file, format };
    }
    const tar = join(dirname(job.outputFile), 'archive.tar');
    await log.line(`reading the ${format} archive`);
    await writeTar({ file, format }, tar, () => mayGoOn(compile));
    await chmod(tar, 0o644);
    return { file: tar, format: 'tar' };
  } catch (cause) {
    if (cause instanceof BadArchive)
      return { verdict: failedCompile(`The archive could not be read: ${cause.message}.`) };
    if (cause instanceof GivenUp && !parts.stopping.aborted) return { verdict: judge(compile, whyNot(job)) };
    if (isDiskFull(cause)) return { verdict: judge(compile, { kind: 'disk_full' }) };
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT')
      return {
        verdict: failedCompile('The archive is not in the data directory any more: upload it again.'),
      };
    throw cause;
  }
}

function recipeOf(
  parts: CompileParts,
  dependency: Dependency,
  image: string,
  related: readonly PlacedArtifact[],
): string {
  const recipe = describeRecipe({
    archiveHash: dependency.archiveHash as string,
    dependency,
    image,
    runAs: parts.limits.runAs,
    related,
  });
  return createHash('sha256').update(recipe).digest('hex');
}

function dropLog(path: string): void {
  // The checkpoints first: without them the rest counts as nothing, should a crash come between.
  rmSync(`${path}.times`, { force: true });
  rmSync(path, { force: true });
}

/** Waits for another compile, but not once this one is to stop, or the server. */
async function untilStopped({ parts, job }: Compile, other: Promise<void>): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const stop = () => resolve();
  const unwatch = parts.live.watch(job.topic, () => {
    if (job.stopReason() !== undefined) stop();
  });
  parts.stopping.addEventListener('abort', stop);
  try {
    await Promise.race([other, promise]);
  } finally {
    unwatch();
    parts.stopping.removeEventListener('abort', stop);
  }
}

async function tidy({ parts, dependency, job }: Compile): Promise<void> {
  try {
    await parts.host.engine.removeContainer(job.name);
    await parts.artifacts.detachFromCompile(dependency.id);
    await rm(dirname(job.outputFile), { recursive: true, force: true });
  } catch (cause) {
    parts.log.debug('left for the sweep', { name: job.name, cause });
  }
}

const isExpected = (cause: unknown): cause is Error =>
  cause instanceof CannotRun || cause instanceof ImageMissing || cause instanceof EngineRefused;

const sentence = (cause: unknown) =>
  isExpected(cause) ? cause.message : `The service could not compile it: ${(cause as Error).message}`;
