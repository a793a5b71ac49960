// What a compile left becomes an artifact: read out of its volume, safe in DATA, and in a volume of its own for suites.

import { stat, statfs, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { classifyLost, failedCompile } from '../domain/container/compile-plan.ts';
import { isDiskFull } from '../domain/disk-full.ts';
import { type Captured, captureTar, GivenUp } from '../engine/archive/artifact-tar.ts';
import { HOST_IMAGE } from '../engine/docker/image.ts';
import { findMountpoint, readVolume } from '../engine/docker/volume.ts';
import { createArtifact, findCompiledRecipe } from '../store/artifacts.ts';
import { keepArchive } from '../store/data/archive.ts';
import { artifactPath } from '../store/data/paths.ts';
import { instanceOf } from '../store/database/settings.ts';
import {
  type Begun,
  type Compile,
  type Finished,
  judge,
  mayGoOn,
  outcomeFile,
  whyNot,
} from './compile-job.ts';
import type { JobOutcome } from './run-job.ts';

/** What follows the container's end; undefined where the server stops. */
export async function finish(
  compile: Compile,
  outcome: JobOutcome,
  begun: Begun,
): Promise<Finished | undefined> {
  const { parts, job, log } = compile;
  if (outcome.kind === 'left') return undefined;
  const verdict = judge(compile, outcome);
  if (verdict.event !== 'compile') return { verdict };
  // The output is read to its end by now: a server that takes over would find no verdict in it.
  await writeFile(outcomeFile(job), JSON.stringify(outcome), { flush: true });
  const file = join(dirname(job.outputFile), 'artifact');
  const captured = await capture(compile, begun, file);
  if ('verdict' in captured) return captured;
  if (captured.files === 0)
    return { verdict: failedCompile(`The command left nothing under its prefix ${begun.prefix}.`) };
  compile.hold(captured.hash);
  await keepArchive(file, artifactPath(parts.dataDirectory, captured.hash));
  createArtifact(parts.db, { hash: captured.hash, prefix: begun.prefix, sizeBytes: captured.sizeBytes });
  await log.line(`kept ${captured.files} files, ${captured.sizeBytes} bytes, of ${begun.prefix}`);
  await makeReady(compile, captured.hash);
  return { verdict, artifact: { hash: captured.hash, recipeHash: begun.recipeHash } };
}

/** Suites start at once when the volume is there; when it is not, the first of them has it made. */
async function makeReady({ parts, dependency }: Compile, hash: string): Promise<void> {
  try {
    await parts.artifacts.ready(hash);
  } catch (cause) {
    parts.log.warn('artifact is not in Docker yet', { dependency: dependency.id, cause });
  }
}

async function capture(compile: Compile, begun: Begun, file: string): Promise<Captured | Finished> {
  const { parts, dependency, job } = compile;
  // Docker would make a volume that it has lost anew, and its emptiness would be blamed on the command.
  if ((await findMountpoint(parts.host.engine.door, begun.volume)) === undefined)
    return { verdict: classifyLost(dependency.attempts) };
  const { runAs } = parts.limits;
  const image = await parts.host.images.prepareImage(HOST_IMAGE, runAs);
  const owner = { instance: instanceOf(parts.db), kind: 'dependency', id: dependency.id.toString() };
  const carrier = { volume: begun.volume, image: image.reference, owner };
  // It is unpacked for suites, holes filled: what cannot fit is not kept.
  const { bavail, bsize } = await statfs(parts.dataDirectory);
  let grownBytes = 0;
  const fits = (sizeBytes: number) => {
    grownBytes = sizeBytes;
    return sizeBytes <= Math.min(job.diskBytes || Number.POSITIVE_INFINITY, bavail * bsize);
  };
  try {
    return await readVolume(parts.host.engine.door, carrier, begun.inside, tar =>
      captureTar(tar, {
        file,
        prefix: begun.prefix,
        owner: runAs,
        goOn: sizeBytes => fits(sizeBytes) && mayGoOn(compile),
      }),
    );
  } catch (cause) {
    const isTooBig = job.diskBytes > 0 && grownBytes > job.diskBytes;
    if (cause instanceof GivenUp && !parts.stopping.aborted)
      return { verdict: judge(compile, isTooBig ? { kind: 'too_big' } : whyNot(job)) };
    if (isDiskFull(cause)) return { verdict: judge(compile, { kind: 'disk_full' }) };
    throw cause;
  }
}

/** The artifact of a compile of the very same, where there is one. */
export async function reuse(compile: Compile, recipeHash: string): Promise<Finished | undefined> {
  const { parts, log } = compile;
  const artifact = findCompiledRecipe(parts.db, recipeHash);
  if (!artifact) return undefined;
  compile.hold(artifact.hash);
  const isKept = await stat(artifactPath(parts.dataDirectory, artifact.hash)).then(
    () => true,
    () => false,
  );
  if (!isKept) return undefined;
  await log.line('the same archive was compiled in the same way before: its artifact is used');
  await makeReady(compile, artifact.hash);
  return {
    verdict: { event: 'compile', error: null, lines: [] },
    artifact: { hash: artifact.hash, recipeHash },
  };
}
