// The actions of a user, through the public API: projects, suites, requests, logs. Waits for events of the project's
// firehose, so it works with a server in any process.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import type { Client, Fields, Wire } from './client.ts';
import { type Firehose, openFirehose, type SentEvent } from './firehose.ts';
import { addCommits, type CommitDescription, createRepository, git } from './repository.ts';
import type { TestSshd } from './sshd.ts';

const WAIT_MS = 60_000;
/** Names are unique within the test process. */
let counter = 0;

export type Repository = {
  directory: string;
  url: string;
  hashes: string[];
  add(...commits: CommitDescription[]): string[];
  git(...args: string[]): string;
};

export type Journey = ReturnType<typeof createJourney>;
export type ProjectJourney = Awaited<ReturnType<Journey['project']>>;

export type SuiteFields = {
  name?: string;
  command: string;
  image?: string;
  artifacts?: string;
  reports?: string;
  variables?: Record<string, string>;
  rules?: [subject: string, operator: string, value: string][];
};

export const isFinished = (state: unknown) =>
  !['enqueued', 'fetching', 'building', 'running'].includes(state as string);

export function createJourney(options: {
  client: Client;
  as: string;
  sshd: Pick<TestSshd, 'repositoriesDirectory' | 'urlFor' | 'addKey'>;
  waitMs?: number;
}) {
  const { client, as, sshd, waitMs = WAIT_MS } = options;
  const ask = async (method: string, path: string, form?: Fields): Promise<Wire> => {
    const answer = await client.call(method, path, { as, ...(form && { form }) });
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text}`);
    return answer.record;
  };
  const open = (path: string, lastEventId?: string, http2 = false): Promise<Firehose> =>
    openFirehose(client.origin + path, { ca: client.ca, as, lastEventId, http2 });

  /** Checks at once and after each event of the project. */
  const until = async <T>(projectId: string, find: () => Promise<T | undefined | false>): Promise<T> => {
    const firehose = await open(`/projects/${projectId}/firehose`);
    const timer = setTimeout(() => firehose.close(), waitMs);
    try {
      for await (const _ of firehose) {
        const found = await find();
        if (found) return found;
      }
      throw new Error(`timed out waiting for ${find}`);
    } finally {
      clearTimeout(timer);
    }
  };

  const repository = (...commits: CommitDescription[]): Repository => {
    const name = `journey-${++counter}.git`;
    const directory = join(sshd.repositoriesDirectory, name);
    const described =
      commits.length > 0 ? commits : [{ message: 'First\n', files: { 'README.md': 'Hello\n' } }];
    return {
      directory,
      url: sshd.urlFor(name),
      hashes: createRepository(directory, described),
      add: (...more) => addCommits(directory, more),
      git: (...args) => git(directory, ...args),
    };
  };

  /** Creates a project for the repository, and installs its key. */
  const project = async (of: Repository = repository(), fields: Fields = {}) => {
    const record = await ask('POST', '/projects', {
      name: `Project ${++counter}`,
      repository_url: of.url,
      ...fields,
    });
    const key = record.ssh_public_key as string;
    sshd.addKey(key);
    return { ...knownProject(record.id_str as string), key, repository: of };
  };

  const knownProject = (id: string) => {
    const path = `/projects/${id}`;

    const untilEvent = <T>(find: () => Promise<T | undefined | false>) => until(id, find);

    const suite = async ({
      command,
      name = `suite ${++counter}`,
      variables = {},
      rules = [],
      ...fields
    }: SuiteFields) => {
      const made = await ask('POST', `${path}/suites`, {
        name,
        command,
        ...fields,
      });
      const suiteId = made.id_str as string;
      for (const [variable, content] of Object.entries(variables))
        await ask('POST', `${path}/suites/${suiteId}/environment_variables`, { name: variable, content });
      for (const [subject, operator, value] of rules)
        await ask('POST', `${path}/suites/${suiteId}/rules`, { subject, operator, value });
      return suiteId;
    };

    const request = async (ref = 'main'): Promise<string> =>
      (await ask('POST', `${path}/build_requests`, { commit_ref: ref })).id_str as string;
    const requestRecord = (requestId: string) => ask('GET', `${path}/build_requests/${requestId}`);
    const finishedRequest = (requestId: string) =>
      untilEvent(async () => {
        const found = await requestRecord(requestId);
        return isFinished(found.build_state) && found;
      });

    const buildsOf = async (requestId: string): Promise<Wire[]> => {
      const { commit_id_str: commitId } = await requestRecord(requestId);
      if (!commitId) return [];
      const all = (await ask('GET', `${path}/commits/${commitId}/builds`)) as unknown as Wire[];
      return all.filter(build => build.build_request_id_str === requestId);
    };
    const buildRecord = (buildId: string) => ask('GET', `${path}/builds/${buildId}`);
    /** The build of the request's only suite, or of the given one, once it exists. */
    const buildOf = (requestId: string, suiteId?: string) =>
      untilEvent(async () =>
        (await buildsOf(requestId)).find(build => suiteId === undefined || build.suite_id_str === suiteId),
      );
    const buildWhen = (buildId: string, holds: (build: Wire) => boolean) =>
      untilEvent(async () => {
        const found = await buildRecord(buildId);
        return holds(found) && found;
      });
    const finishedBuild = (buildId: string) => buildWhen(buildId, build => isFinished(build.build_state));
    const logBytes = async (buildId: string) =>
      (await client.call('GET', `${path}/builds/${buildId}/log`, { as })).bytes;
    const log = async (buildId: string) => (await logBytes(buildId)).toString();

    /** Requests `ref` and waits for its end. Returns the request, its builds by suite ID, and their logs. */
    const run = async (ref = 'main') => {
      const finished = await finishedRequest(await request(ref));
      const builds = finished.commit_id ? await buildsOf(finished.id_str as string) : [];
      const logs = await Promise.all(builds.map(build => log(build.id_str as string)));
      return {
        request: finished,
        state: finished.build_state as string,
        builds,
        of: (suiteId: string) => {
          const at = builds.findIndex(build => build.suite_id_str === suiteId);
          assert.notEqual(at, -1, 'the suite has no build');
          return { build: builds[at] as Wire, log: logs[at] as string };
        },
      };
    };

    /** Resolves when the log of the build contains the text, with the log so far. */
    const logHas = async (buildId: string, text: string): Promise<string> => {
      const firehose = await open(`${path}/builds/${buildId}/firehose`);
      const timer = setTimeout(() => firehose.close(), waitMs);
      let seen = '';
      try {
        for await (const { event, data } of firehose) {
          if (event === 'log') seen += data.text;
          if (hasPrinted(seen, text)) return seen;
        }
        throw new Error(`the log does not contain ${text}: ${seen}`);
      } finally {
        clearTimeout(timer);
      }
    };

    return {
      id,
      path,
      until: untilEvent,
      suite,
      request,
      requestRecord,
      finishedRequest,
      buildsOf,
      buildOf,
      buildRecord,
      buildWhen,
      finishedBuild,
      log,
      logBytes,
      logHas,
      run,
      /** Runs one suite on the main branch of the repository. */
      runOne: async (fields: SuiteFields, ref = 'main') => {
        const suiteId = await suite(fields);
        const ran = await run(ref);
        return { ...ran.of(suiteId), suiteId, request: ran.request };
      },
      firehose: (of: string, lastEventId?: string, http2?: boolean) =>
        open(`${path}${of}/firehose`, lastEventId, http2),
      cancel: (what: string) => ask('POST', `${path}/${what}/cancel`),
      rerun: async (buildId: string) =>
        (await ask('POST', `${path}/builds/${buildId}/rerun`)).id_str as string,
      ask: (method: string, below: string, form?: Fields) => ask(method, path + below, form),
    };
  };

  return { as, ask, until, repository, project, knownProject, open };
}

export async function collect(firehose: Firehose): Promise<SentEvent[]> {
  const events: SentEvent[] = [];
  for await (const event of firehose) events.push(event);
  return events;
}

/** Whether the command has printed the text. The log also echoes the command itself, which does not count. */
export const hasPrinted = (log: string, text: string) => log.replaceAll(/^\[assay\].*$/gm, '').includes(text);
