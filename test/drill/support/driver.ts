// A steady mixture of work through the public API: requests and builds, uploads and compiles, deploys, settings,
// backups. It continues while the program is killed and restarted, and records every answered change in the ledger.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Answer, Fields, Wire } from '../../support/client.ts';
import { openFirehose } from '../../support/firehose.ts';
import { isFinished } from '../../support/journey.ts';
import { Defect, type DrillEnvironment } from './environment.ts';
import { createLedger, type Ledger } from './ledger.ts';
import type { Random } from './random.ts';
import { archiveOf, COMPILE_COMMAND, PREFIX, type Workload } from './workload.ts';

export type Driver = {
  ledger: Ledger;
  /** Responses and other results that must not occur. */
  defects: string[];
  /** IDs that were returned; each must be unique. */
  ids: Map<string, number>;
  /** The uploads of each dependency: those that were answered, and those that were not. */
  uploads: Map<string, { answered: number | undefined; open: number[] }>;
  /** The builds to cancel, with the state in the response; undefined without a response. */
  cancels: Map<string, string | undefined>;
  /** What a reader of firehoses received of builds, over all crashes. */
  streamed: Map<string, string>;
  counts: Record<'requests' | 'uploads' | 'deploys' | 'settings' | 'backups' | 'cancels', number>;
  /** No requests are sent while the gate is closed. */
  shut(): void;
  open(): void;
  backupDone(): Promise<void>;
  stop(): Promise<void>;
};

const MOST_UNFINISHED = 5;
const MOST_DEPENDENCIES = 4;

export function startDriver(environment: DrillEnvironment, workload: Workload, random: Random): Driver {
  const ledger = createLedger();
  const defects: string[] = [];
  const ids = new Map<string, number>();
  const uploads: Driver['uploads'] = new Map();
  const cancels: Driver['cancels'] = new Map();
  const streamed = new Map<string, string>();
  const counts = { requests: 0, uploads: 0, deploys: 0, settings: 0, backups: 0, cancels: 0 };
  const { path } = workload;
  let stopped = false;
  let gate = Promise.withResolvers<void>();
  let backup: Promise<void> = Promise.resolve();
  gate.resolve();

  const ask = async (method: string, at: string, form?: Fields): Promise<Answer> => {
    await gate.promise;
    return environment.ask(method, at, form);
  };
  const made = (answer: Answer): string => {
    // A dependency's string ID has another name in the response to its creation.
    const id = (answer.record.id_str ?? answer.record.id_ref) as string;
    ids.set(id, (ids.get(id) ?? 0) + 1);
    return id;
  };
  const fields =
    (at: string, ...names: string[]) =>
    async () => {
      const answer = await environment.ask('GET', at);
      if (answer.status !== 200) return answer.status;
      return Object.fromEntries(names.map(name => [name, answer.record[name]]));
    };
  /** Must succeed if it is answered at all. */
  const must = async (answer: Promise<Answer>): Promise<Answer> => {
    const got = await answer;
    if (got.status >= 300) throw new Defect(`${got.status} ${got.text}`);
    return got;
  };

  const listOf = async (at: string) => (await must(ask('GET', at))).list;

  const requestBuilds = async (own: Random) => {
    if (own.happens(0.6)) workload.commit();
    const unfinished = (await listOf(`${path}/build_requests?limit=20`)).filter(
      one => !isFinished(one.build_state),
    );
    if (unfinished.length < MOST_UNFINISHED) {
      const answer = await must(ask('POST', `${path}/build_requests`, { commit_ref: 'main' }));
      counts.requests += 1;
      const id = made(answer);
      const at = `${path}/build_requests/${id}`;
      const { commit_ref, created_at, created_by } = answer.record;
      ledger.keep(at, fields(at, 'commit_ref', 'created_at', 'created_by'), {
        commit_ref,
        created_at,
        created_by,
      });
    } else if (own.happens(0.15)) await cancelOne(own, unfinished);
    await delay(own.between(150, 700));
  };

  const cancelOne = async (own: Random, unfinished: Wire[]) => {
    const commitId = own.pick(unfinished).commit_id_str as string;
    if (!commitId) return;
    const builds = (await listOf(`${path}/commits/${commitId}/builds`)).filter(
      build => !isFinished(build.build_state),
    );
    if (builds.length === 0) return;
    const id = own.pick(builds).id_str as string;
    // Recorded before the request: an unanswered request may have taken effect.
    if (!cancels.has(id)) cancels.set(id, undefined);
    const at = `${path}/builds/${id}`;
    const reported = (await must(ask('POST', `${at}/cancel`))).record.build_state as string;
    counts.cancels += 1;
    cancels.set(id, reported);
    ledger.keep(
      `cancel of ${id}, which was ${reported}`,
      async () =>
        endsAfterCancel(reported).includes((await environment.ask('GET', at)).record.build_state as string),
      true,
    );
  };

  const dependencies = [workload.dependencyId];
  let number = 0;
  const uploadArchives = async (own: Random) => {
    number += 1;
    if (dependencies.length < MOST_DEPENDENCIES && own.happens(0.2)) {
      const name = `dependency ${number}`;
      const answer = await must(
        ask('POST', '/dependencies', { name, command: COMPILE_COMMAND, prefix: PREFIX }),
      );
      const id = made(answer);
      dependencies.push(id);
      ledger.keep(`/dependencies/${id}`, fields(`/dependencies/${id}`, 'name'), { name });
    }
    await uploadTo(own.pick(dependencies), number, own);
    await delay(own.between(500, 2_500));
  };
  const uploadTo = async (id: string, mine: number, own: Random) => {
    const of = uploads.get(id) ?? { answered: undefined, open: [] };
    uploads.set(id, of);
    const archive = archiveOf(mine, own.pick([0, 0, 3_000_000]));
    const size = { archive_file_size: archive.length };
    await gate.promise;
    of.open.push(mine);
    const isTaken = await ledger.change(
      `archive of ${id}`,
      fields(`/dependencies/${id}`, 'archive_file_size'),
      size,
      async () => {
        const body = slowly(archive, own);
        const answer = await environment
          .client()
          .call('POST', `/dependencies/${id}/archive`, { as: environment.as, body });
        // A new archive has to wait while the old one is being compiled.
        if (answer.status !== 202 && answer.status !== 403)
          throw new Defect(`${answer.status} ${answer.text}`);
        return answer.status === 202;
      },
    );
    if (isTaken) {
      counts.uploads += 1;
      Object.assign(of, { answered: mine, open: [] });
    } else of.open = of.open.filter(one => one !== mine);
  };

  const deployNewest = async (own: Random) => {
    const [newest] = await listOf(`${path}/commits?limit=1`);
    if (newest && !deployed.has(newest.ref as string)) {
      deployed.add(newest.ref as string);
      const answer = await must(
        ask('POST', `${path}/deploys`, {
          deploy_strategy_id: workload.strategyId,
          commit_id: newest.id_str as string,
        }),
      );
      counts.deploys += 1;
      const at = `${path}/deploys/${made(answer)}`;
      ledger.keep(at, fields(at, 'commit_id_str'), { commit_id_str: newest.id_str });
    }
    await delay(own.between(300, 1_500));
  };
  const deployed = new Set<string>();

  const changeSettings = async (own: Random) => {
    const value = String(++counts.settings);
    const suite = `${path}/suites/${own.pick(workload.suites).id}`;
    const at = own.pick([path, suite]);
    await ledger.change(
      `description of ${at}`,
      fields(at, 'description'),
      { description: value },
      async () => (await must(ask('PUT', at, { description: value }))).status === 200,
    );
    await delay(own.between(20, 300));
  };

  const makeBackup = async (own: Random) => {
    const file = join(environment.directory, 'drill.backup');
    await gate.promise;
    const under = environment.program.run('backup', file, '--with-key');
    backup = under.then(
      () => {},
      () => {},
    );
    await under;
    await environment.program.run('backup', '--verify', file);
    rmSync(file);
    counts.backups += 1;
    await delay(own.between(2_000, 6_000));
  };

  /** Follows one build at a time to its end, and resumes after each crash. */
  const followBuilds = async (own: Random) => {
    const [request] = await listOf(`${path}/build_requests?limit=1`);
    const commitId = request?.commit_id_str as string | undefined;
    const builds = commitId ? await listOf(`${path}/commits/${commitId}/builds`) : [];
    const build = builds.find(one => !isFinished(one.build_state) && !streamed.has(one.id_str as string));
    if (!build) return delay(300);
    await followOne(build.id_str as string);
    return delay(own.between(50, 200));
  };
  const followOne = async (id: string) => {
    let text = '';
    let last: string | undefined;
    while (!stopped) {
      await gate.promise;
      const url = `${environment.client().origin}${path}/builds/${id}/firehose`;
      try {
        const firehose = await openFirehose(url, {
          ca: environment.client().ca,
          as: environment.as,
          lastEventId: last,
        });
        for await (const event of firehose) {
          if (event.event === 'log') {
            text += event.data.text;
            last = event.id;
          }
          if (event.event === 'end') {
            streamed.set(id, text);
            return;
          }
        }
      } catch (error) {
        if (!isAway(error)) throw error;
        await delay(100);
      }
    }
  };

  /** Repeats `work`; waits while the program is down. */
  const loop = async (name: string, work: (own: Random) => Promise<void>) => {
    const own = random.apart(name);
    while (!stopped) {
      try {
        await work(own);
      } catch (error) {
        if (!isAway(error)) defects.push(`${name}: ${(error as Error).message}`);
        await delay(50);
      }
    }
  };
  const loops = [
    loop('requests', requestBuilds),
    loop('uploads', uploadArchives),
    loop('deploys', deployNewest),
    loop('settings', changeSettings),
    loop('backups', makeBackup),
    loop('streams', followBuilds),
  ];

  return {
    ledger,
    defects,
    ids,
    uploads,
    cancels,
    streamed,
    counts,
    shut() {
      gate = Promise.withResolvers();
    },
    open: () => gate.resolve(),
    backupDone: () => backup,
    async stop() {
      stopped = true;
      gate.resolve();
      await Promise.all(loops);
    },
  };
}

/**
 * The states that a build may have after its cancel was answered. A running build may still end on its own, but must
 * never be retried.
 */
export const endsAfterCancel = (reported: string): string[] =>
  reported === 'running' ? ['running', 'canceled', 'passed'] : [reported].filter(isFinished);

/** In several steps, so that a crash can happen between them. */
async function* slowly(bytes: Buffer, random: Random): AsyncGenerator<Buffer> {
  const part = Math.ceil(bytes.length / random.between(1, 6));
  for (let at = 0; at < bytes.length; at += part) {
    if (at > 0) await delay(random.between(5, 120));
    yield bytes.subarray(at, at + part);
  }
}

const AWAY = ['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_DESTROYED'];

/** Whether the program was down or went down during the request. */
export const isAway = (error: unknown): boolean =>
  AWAY.includes((error as NodeJS.ErrnoException).code ?? '') ||
  /socket hang up|before secure TLS connection|aborted/.test((error as Error).message);
