// Starts containers of suites while their commit is being fetched. Such a container waits and runs nothing. The build that
// it was started for lets it run, if its plan is still the same. Otherwise it is removed. The fetch is usually faster than
// Docker: then the container finds what to run as soon as it has started.

import { chmodSync, existsSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { ContainerPlan } from '../domain/container/container-plan.ts';
import { planSuite } from '../domain/container/suite-plan.ts';
import { renderEntry, waitingPlan } from '../domain/container/waiting-plan.ts';
import {
  beginDirectory,
  createBegin,
  createPipe,
  hasBegin,
  removeBegin,
  signalBegin,
  writeEntry,
} from '../engine/begin.ts';
import { type BuildRequest, findBuild, type ReservedIds } from '../store/builds.ts';
import { jobDirectory, mirrorPath, submoduleMirrors } from '../store/data/paths.ts';
import { listSuitesOfNewestRequest } from '../store/decisions.ts';
import type { Project } from '../store/projects.ts';
import { findSuite, listAllRules, listAllSuites, type Suite } from '../store/suites.ts';
import { type JobOptions, outputFileIn } from './job.ts';
import { type PrepareOptions, prepareSuite } from './prepare-suite.ts';
import { environmentFileIn } from './suite-variables.ts';

type EarlyOptions = PrepareOptions &
  Pick<JobOptions, 'dataDirectory' | 'log'> & {
    /** How many containers could be started now. */
    freeSlots(): number;
  };

type EarlyContainer = {
  /** Whether the engine would create the same container for the plan. */
  fits(plan: ContainerPlan): boolean;
  /** Lets it run what the plan says as soon as it has started. Keep the result until it has ended. */
  begin(plan: ContainerPlan): Promise<Disposable>;
  /** Resolves when it has started. */
  started: Promise<unknown>;
  /** Resolves when it has started or could not be. Once it has begun, resolves at once: its build waits for `started`. */
  settle(): Promise<void>;
  /** Removes it, so that another container can be started for the build. */
  remove(): Promise<void>;
};

export type EarlyStarts = {
  /** Reserves ids for builds of suites that the request probably runs. Called in the transaction that claims it. */
  reserve(request: BuildRequest): ReservedIds;
  /** Starts their containers. */
  start(project: Project, request: BuildRequest, reserved: ReservedIds): void;
  /** Removes the containers whose builds were not created. */
  removeUnused(projectId: bigint, reserved: ReservedIds): void;
  /** Removes the newest containers if there are more than free slots. */
  yieldSlots(): void;
  /** Keeps the container of a build that was claimed, until `take`. */
  claim(buildId: bigint): void;
  /** The container of a build that was claimed. Undefined if there is none, and its name is free. */
  take(buildId: bigint): Promise<EarlyContainer | undefined>;
  /** Whether the container or the directory of the build is in use. */
  holds(buildId: string): boolean;
  stop(): Promise<void>;
};

/** A container is not kept longer for a slow fetch. */
const WAIT_MS = 10_000;
/** The container looks for its pipe when it has started, which takes much longer. */
const PIPE_AFTER_MS = 10;
const UNKNOWN_COMMIT = '0'.repeat(40);

type Early = {
  /** Until its build is claimed or it is given up. */
  isWaiting: boolean;
  timer: NodeJS.Timeout;
  container: Promise<EarlyContainer | undefined>;
};

export function createEarlyStarts(options: EarlyOptions): EarlyStarts {
  const { db, dataDirectory, log } = options;
  const starts = new Map<string, Early>();
  const listWaiting = () => [...starts.keys()].filter(id => starts.get(id)?.isWaiting);

  const giveUp = (id: string) => {
    const early = starts.get(id);
    if (!early?.isWaiting) return;
    endWaiting(early);
    early.container = early.container
      .then(container => container?.remove())
      .then(() => rm(jobDirectory(dataDirectory, 'build', BigInt(id)), { recursive: true, force: true }))
      .catch(error => log.debug('left for the sweep', { build: id, cause: error }))
      .then(() => {
        starts.delete(id);
        return undefined;
      });
  };
  const endWaiting = (early: Early) => {
    early.isWaiting = false;
    clearTimeout(early.timer);
  };

  return {
    reserve(request) {
      const free = options.freeSlots() - listWaiting().length;
      // Code of others gets nothing before it is known which suites run.
      const isTrusted = request.pullRequest === null && !request.local;
      if (
        options.host.engine.isRemote ||
        free <= 0 ||
        !isTrusted ||
        !existsSync(mirrorPath(dataDirectory, request.projectId))
      )
        return new Map();
      const suites = listLikelySuites(options, request).take(free);
      return new Map(suites.map(({ id }) => [id, db.newId()]));
    },
    start(project, request, reserved) {
      for (const [suiteId, buildId] of reserved) {
        const id = buildId.toString();
        const container = startWaiting(options, project, suiteId, request, buildId);
        starts.set(id, {
          isWaiting: true,
          timer: setTimeout(giveUp, WAIT_MS, id),
          container: container.catch(error => {
            log.debug('container could not be started early', { build: id, cause: error });
            return undefined;
          }),
        });
      }
    },
    removeUnused(projectId, reserved) {
      for (const buildId of reserved.values())
        if (!findBuild(db, projectId, buildId)) giveUp(buildId.toString());
    },
    yieldSlots() {
      for (const id of listWaiting().slice(options.freeSlots())) giveUp(id);
    },
    claim(buildId) {
      const early = starts.get(buildId.toString());
      if (early?.isWaiting) endWaiting(early);
    },
    async take(buildId) {
      const id = buildId.toString();
      const container = await starts.get(id)?.container;
      starts.delete(id);
      // A worker that failed has removed its directory.
      return hasBegin(jobDirectory(dataDirectory, 'build', buildId)) ? container : undefined;
    },
    holds: buildId => starts.has(buildId),
    async stop() {
      for (const id of listWaiting()) giveUp(id);
      await Promise.all([...starts.values()].map(({ container }) => container));
    },
  };
}

/** In the order of their builds: those that the request names; otherwise those that ran last time or have no rules. */
function* listLikelySuites(
  { db }: EarlyOptions,
  { projectId, suites }: BuildRequest,
): Generator<Suite, void, void> {
  const named = suites === null ? undefined : new Set(JSON.parse(suites) as string[]);
  const ran = listSuitesOfNewestRequest(db, projectId);
  for (const suite of listAllSuites(db, projectId))
    if (named ? named.has(suite.id.toString()) : ran.has(suite.id) || listAllRules(db, suite.id).length === 0)
      yield suite;
}

async function startWaiting(
  options: EarlyOptions,
  project: Project,
  suiteId: bigint,
  request: BuildRequest,
  buildId: bigint,
): Promise<EarlyContainer | undefined> {
  const { db, host, dataDirectory, log } = options;
  const suite = findSuite(db, project.id, suiteId);
  if (!suite) return undefined;
  const mirror = mirrorPath(dataDirectory, project.id);
  const submodules = submoduleMirrors(dataDirectory, project.id);
  const directory = jobDirectory(dataDirectory, 'build', buildId);
  const outputFile = outputFileIn(directory);
  createFiles(directory);
  const prepared = await prepareSuite(options, suite, request, buildId);
  // Its checkout needs a container of its own.
  if (!prepared.image.hasGit) return undefined;
  const mirrorInode = inodeOf(mirror);
  const plan = planSuite({
    ...prepared.plan,
    build: { id: buildId, commitRef: UNKNOWN_COMMIT, nonce: UNKNOWN_COMMIT, startedAt: 0 },
    project,
    branch: '',
    tag: '',
    mirror,
    ...(project.submodules !== 'off' && existsSync(submodules) && { submoduleMirrors: submodules }),
    outputFile,
    environmentFile: environmentFileIn(directory),
  });
  const waiting = waitingPlan(plan, beginDirectory(directory));
  const starting = host.startContainer(waiting);
  // Later, because the server does nothing else while a process starts: first the request to Docker is sent.
  const pipe = pause(PIPE_AFTER_MS).then(() => createPipe(directory));
  const started = Promise.all([starting, pipe]);
  let hasFailed = false;
  let hasBegun = false;
  const settled = started.then(
    () => {},
    error => {
      hasFailed = true;
      log.debug('container could not be started early', { build: buildId, cause: error });
    },
  );
  return {
    // If it could not be started, the build starts another one, and reports the error if there is one again. A damaged
    // mirror is replaced by another directory.
    fits: other =>
      !hasFailed &&
      isDeepStrictEqual(waitingPlan(other, beginDirectory(directory)), waiting) &&
      inodeOf(mirror) === mirrorInode,
    async begin(planned) {
      hasBegun = true;
      // The rules were checked when it was started, which may be a while ago.
      await Promise.all([pipe, writeEntry(directory, renderEntry(planned)), host.engine.protectNetwork()]);
      return signalBegin(directory);
    },
    started,
    settle: async () => {
      if (!hasBegun) await settled;
    },
    async remove() {
      await settled;
      await host.engine.removeContainer(plan.name);
      await removeBegin(directory);
    },
  };
}

/**
 * The directory of a job, as its container needs it. Synchronous, because the thread pool is busy with the fetch, and the
 * container would start 10 ms later.
 */
function createFiles(directory: string): void {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  createBegin(directory);
  for (const [file, mode] of [
    [outputFileIn(directory), 0o666],
    [environmentFileIn(directory), 0o644],
  ] as const) {
    writeFileSync(file, '');
    chmodSync(file, mode);
  }
}

const inodeOf = (path: string) => statSync(path, { throwIfNoEntry: false })?.ino;
