// The scheduler: rows are the queue. Poked without data it reads them again, claims what slots allow, and hands each to its
// worker; everything that is `running` when it starts was running when the last server stopped.

import { nextInTurn, type Waiting } from '../domain/fair-queue.ts';
import { hideHostPaths } from '../domain/host-paths.ts';
import type { Live } from '../live.ts';
import type { Log } from '../log.ts';
import { type Build, claimBuild } from '../store/builds.ts';
import type { Db } from '../store/database/db.ts';
import {
  listCompiling,
  listFetching,
  listFirstDeploys,
  listFirstWaitingBuilds,
  listFirstWaitingCompiles,
  listProjectsToFetch,
  listRunningBuilds,
  listWaitingRequests,
  positionOf,
} from '../store/queue.ts';
import { type Deploy, moveRequest } from '../store/transition.ts';
import { type CompileJobOptions, claimCompile, createCompileJob } from './compile-job.ts';
import { fetchCommits } from './fetch-commit.ts';
import type { FetchParts } from './fetch-mirror.ts';
import { createHostSlots, type HostSlots, hostIn } from './host-slots.ts';
import { runJob } from './job.ts';
import { fetchSource } from './source.ts';
import { createSuiteJob, type SuiteJobOptions } from './suite-job.ts';

export type Queue = {
  poke(): void;
  slotsUsed(): number;
  /** Why what waits for a container does not start yet. */
  heldUpBy(): string;
  waiting(build: Build): { position: number; reason: string } | undefined;
  /** Claims nothing more and lets go of what runs; resolves when every worker has let go. */
  stop(): Promise<void>;
};

export type QueueParts = {
  db: Db;
  live: Live;
  log: Log;
  concurrency: number;
  run: Omit<SuiteJobOptions, 'fetchSource'> & CompileJobOptions;
  fetch: FetchParts;
  hasFreeSpace(): boolean;
  deploy(deploy: Deploy): Promise<void>;
};

/** Something to be fetched; undefined where it is not wanted any more. */
type GitJob = { repositoryUrl: string; begin(): Promise<void> | undefined };

const REQUESTS_PER_FETCH = 50;
/** A net under the pokes: the command line writes to the database from outside. */
const LOOK_AGAIN_MS = 5_000;

export function startQueue(parts: QueueParts): Queue {
  const { db, log, run } = parts;
  const working = new Map<string, Promise<void>>();
  /** Whose container may still run: while one writes its verdict, the next one's starts. */
  const holding = new Set<string>();
  const servedAt = new Map<string, number>();
  /** Whose worker failed, on a full disk most likely: begun again at once it would only fail again. */
  const failed = new Set<string>();
  let served = 0;
  let stopped = false;
  let scheduled = false;

  const work = (key: string, job: (release: () => void) => Promise<void>) => {
    holding.add(key);
    const release = () => {
      if (holding.delete(key)) poke();
    };
    const done = job(release)
      .catch(cause => {
        failed.add(key);
        log.error('worker failed', { job: key, cause });
      })
      .finally(() => {
        working.delete(key);
        holding.delete(key);
        poke();
      });
    working.set(key, done);
    return done;
  };
  const slotsUsed = () => [...holding].filter(key => /^(?:build|dependency) /.test(key)).length;

  const fetchSlots = createHostSlots(poke);
  const deploySlots = createHostSlots(poke);

  /** Begins what waits for a Git host: the hosts in turn, and of each host the projects in turn. */
  const beginInTurn = <J>(
    slots: HostSlots,
    waiting: () => Waiting<J>[],
    hostsOf: (job: J) => [string, ...string[]],
    begin: (job: J) => Promise<void> | undefined,
  ) => {
    if (slots.isFull()) return;
    let left = waiting()
      .filter(({ owner }) => !working.has(owner) && !failed.has(owner))
      .map(one => ({ ...one, hosts: hostsOf(one.job) }));
    while (!slots.isFull()) {
      const open = left.filter(({ hosts }) => slots.mayBegin(hosts));
      const byHost = open.map(one => ({ ...one, owner: `host ${one.hosts[0]}`, job: one.hosts[0] }));
      const host = nextInTurn(byHost, servedAt)?.job;
      const next = nextInTurn(
        open.filter(({ hosts }) => hosts[0] === host),
        servedAt,
      );
      if (!next) return;
      left = left.filter(one => one !== next);
      servedAt.set(`host ${host}`, ++served);
      servedAt.set(next.owner, served);
      const begun = begin(next.job);
      if (begun) begun.finally(slots.begin(next.hosts));
    }
  };

  /** Builds whose commit is not in the mirror any more: the rest of their project waits with them. */
  const sourceFetches = new Set<Waiting<GitJob> & { project: string; isBegun: boolean }>();
  const fetchSourceInTurn: SuiteJobOptions['fetchSource'] = (project, hash, signal) => {
    const done = Promise.withResolvers<void>();
    const leave = () => done.reject(signal.reason);
    signal.addEventListener('abort', leave);
    const one = {
      project: `project ${project.id}`,
      isBegun: false,
      owner: `source ${project.id}`,
      enqueuedAt: project.id,
      job: {
        repositoryUrl: project.repositoryUrl,
        begin: () => {
          one.isBegun = true;
          const fetched = fetchSource(parts.fetch, project, hash, signal);
          fetched.then(done.resolve, done.reject);
          return fetched.catch(() => {});
        },
      },
    };
    sourceFetches.add(one);
    if (signal.aborted) leave();
    poke();
    return done.promise.finally(() => {
      signal.removeEventListener('abort', leave);
      sourceFetches.delete(one);
      poke();
    });
  };

  const startFetches = () =>
    beginInTurn(
      fetchSlots,
      () => [...requestFetches(), ...[...sourceFetches].filter(({ isBegun }) => !isBegun)],
      ({ repositoryUrl }) => [hostIn(repositoryUrl)],
      ({ begin }) => begin(),
    );

  const requestFetches = (): Waiting<GitJob>[] =>
    listProjectsToFetch(db).map(({ job: { projectId, repositoryUrl }, ...waiting }) => ({
      ...waiting,
      job: { repositoryUrl, begin: () => fetchRequests(projectId) },
    }));

  const fetchRequests = (projectId: bigint) => {
    const claimed = listWaitingRequests(db, projectId, REQUESTS_PER_FETCH).flatMap(
      request => moveRequest(db, request.id, 'fetch') ?? [],
    );
    if (claimed.length === 0) return undefined;
    return work(`fetch ${projectId}`, () => fetchCommits(parts.fetch, projectId, claimed));
  };

  const startContainers = () => {
    while (slotsUsed() < parts.concurrency) {
      const incomplete = new Set([...sourceFetches].map(({ project }) => project));
      const complete = listFirstWaitingBuilds(db).filter(({ owner }) => !incomplete.has(owner));
      const next = nextInTurn([...complete, ...listFirstWaitingCompiles(db)], servedAt);
      if (!next) return;
      servedAt.set(next.owner, ++served);
      const { kind, id } = next.job;
      if (kind === 'build') {
        const build = claimBuild(db, id);
        if (build)
          work(`build ${id}`, release =>
            runJob(run, createSuiteJob({ ...run, fetchSource: fetchSourceInTurn }, build), false, release),
          );
        // There may be very many that are to be canceled: others are served before the next.
        else return poke();
      } else {
        const dependency = claimCompile(run, id);
        if (dependency)
          work(`dependency ${id}`, release => runJob(run, createCompileJob(run, dependency), false, release));
      }
    }
  };

  /** One that was under way when the last server ended is brought to its end in any case. */
  const startDeploys = (hasFreeSpace: boolean) => {
    const first = () =>
      listFirstDeploys(db).filter(({ job }) => hasFreeSpace || job.deploy.state === 'deploying');
    beginInTurn(
      deploySlots,
      first,
      ({ deploy, repositoryUrl }) => [hostIn(deploy.repositoryUrl), hostIn(repositoryUrl)],
      ({ deploy }) => work(`deploy ${deploy.projectId}`, () => parts.deploy(deploy)),
    );
  };

  const look = () => {
    scheduled = false;
    if (stopped) return;
    try {
      const hasFreeSpace = parts.hasFreeSpace();
      startDeploys(hasFreeSpace);
      if (!hasFreeSpace) return;
      startFetches();
      if (run.host.unavailable() === undefined) startContainers();
    } catch (cause) {
      // A full disk, most likely: the next look tries again.
      log.error('queue could not look', { cause });
    }
  };

  /** Many pokes in one turn are one look. */
  function poke(): void {
    if (scheduled || stopped) return;
    scheduled = true;
    setImmediate(look);
  }

  /** What runs and has nobody who sees to it: left by the last server, or by a worker that failed on a full disk. */
  const adopt = () => {
    for (const build of listRunningBuilds(db))
      if (!working.has(`build ${build.id}`))
        work(`build ${build.id}`, release =>
          runJob(run, createSuiteJob({ ...run, fetchSource: fetchSourceInTurn }, build), true, release),
        );
    for (const dependency of listCompiling(db))
      if (!working.has(`dependency ${dependency.id}`))
        work(`dependency ${dependency.id}`, release =>
          runJob(run, createCompileJob(run, dependency), true, release),
        );
    for (const request of listFetching(db))
      if (!working.has(`fetch ${request.projectId}`)) moveRequest(db, request.id, 'requeue');
  };

  adopt();
  const unwatch = parts.live.watch('queue', poke);
  const again = setInterval(() => {
    failed.clear();
    try {
      adopt();
    } catch (cause) {
      log.error('queue could not look', { cause });
    }
    poke();
  }, LOOK_AGAIN_MS);
  poke();

  const heldUpBy = () => {
    const away = run.host.unavailable();
    if (away !== undefined) return `Docker is away: ${hideHostPaths(away, parts.fetch.dataDirectory)}`;
    if (!parts.hasFreeSpace()) return 'The disk of the appliance is nearly full.';
    return slotsUsed() >= parts.concurrency
      ? `All ${parts.concurrency} slots are taken.`
      : 'It starts in a moment.';
  };

  return {
    poke,
    slotsUsed,
    heldUpBy,
    waiting: build =>
      build.buildState === 'enqueued' ? { position: positionOf(db, build), reason: heldUpBy() } : undefined,
    async stop() {
      stopped = true;
      unwatch();
      clearInterval(again);
      await Promise.all(working.values());
    },
  };
}
