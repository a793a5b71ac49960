// Works with dependencies through the public API: creates one, uploads its archive, waits for its compile.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pack } from 'tar-stream';
import type { Appliance } from '../../support/appliance.ts';
import type { Fields, Wire } from '../../support/client.ts';
import { hasPrinted, type ProjectJourney } from '../../support/journey.ts';

export const PREFIX = '/srv/dependency';
const WAIT_MS = 240_000;

export type DependencyFixture = ReturnType<typeof openDependencies>;

export function openDependencies(
  appliance: Pick<Appliance, 'ask' | 'open' | 'client' | 'as'>,
  waitMs = WAIT_MS,
) {
  const { ask, open, client, as } = appliance;
  let counter = 0;

  const create = async (fields: Fields = {}): Promise<string> =>
    String(
      (
        await ask('POST', '/dependencies', {
          name: `dependency ${++counter}`,
          command: `cp -R . ${PREFIX}`,
          ...fields,
        })
      ).id,
    );
  const fetched = (id: string) => ask('GET', `/dependencies/${id}`);
  const upload = async (id: string, archive: Buffer): Promise<Wire> => {
    const response = await client.call('POST', `/dependencies/${id}/archive`, { as, body: archive });
    assert.equal(response.status, 202, response.text);
    return response.record;
  };
  const log = async (id: string) => (await client.get(`/dependencies/${id}/log`, as)).text;

  /** Follows the firehose to its end: the record, its log, and its events. */
  const finished = async (id: string) => {
    const firehose = await open(`/dependencies/${id}/firehose`);
    const timer = setTimeout(() => firehose.close(), waitMs);
    const events: { event: string; data: Wire }[] = [];
    try {
      for await (const event of firehose) events.push(event);
    } finally {
      clearTimeout(timer);
    }
    assert.equal(events.at(-1)?.event, 'end', `the compile never ended: ${await log(id)}`);
    const record = events.at(-1)?.data as Wire;
    return { record, state: record.marketplace_state as string, log: await log(id), events };
  };
  /** Resolves when the log contains the text. */
  const logHas = async (id: string, text: string): Promise<void> => {
    const firehose = await open(`/dependencies/${id}/firehose`);
    const timer = setTimeout(() => firehose.close(), waitMs);
    let seen = '';
    try {
      for await (const { event, data } of firehose) {
        if (event === 'log') seen += data.text;
        if (hasPrinted(seen, text)) return;
      }
      throw new Error(`the log never said ${text}: ${seen}`);
    } finally {
      clearTimeout(timer);
    }
  };

  return {
    create,
    fetched,
    upload,
    log,
    logHas,
    finished,
    /** Creates a dependency from the archive, and returns the result of its compile. */
    compile: async (archive: Buffer, fields: Fields = {}) => {
      const id = await create(fields);
      await upload(id, archive);
      return { id, ...(await finished(id)) };
    },
    /** The same, which must succeed. */
    compiled: async (archive: Buffer, fields: Fields = {}): Promise<string> => {
      const id = await create(fields);
      await upload(id, archive);
      const { state, log: text } = await finished(id);
      assert.equal(state, 'compiled', text);
      return id;
    },
  };
}

/** Runs a suite that uses the dependencies, once. */
export async function useIn(project: ProjectJourney, dependencies: readonly string[], command: string) {
  const suiteId = await project.suite({ command });
  for (const id of dependencies)
    await project.ask('POST', `/suites/${suiteId}/dependencies`, { dependency_id: id });
  const ran = await project.run();
  await project.ask('DELETE', `/suites/${suiteId}`);
  return ran.of(suiteId);
}

export type Tree = Record<string, string | { link: string }>;

/** An archive of the tree, made with standard programs. */
export function packTree(tree: Tree, program: string): Buffer {
  const directory = mkdtempSync(join(tmpdir(), 'assay-tree-'));
  const root = join(directory, 'root');
  try {
    for (const [path, content] of Object.entries(tree)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      if (typeof content === 'string') writeFileSync(join(root, path), content, { mode: 0o755 });
      else symlinkSync(content.link, join(root, path));
    }
    mkdirSync(root, { recursive: true });
    return execFileSync('sh', ['-c', program], { cwd: root, maxBuffer: 1 << 30 });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

export const tarOf = (tree: Tree) => packTree(tree, 'tar -cf - *');

/** Uses a file, because some versions of zip cannot write a file or a link to a pipe. */
export const zipProgram = (flags = '', what = '*') =>
  `zip -qry ${flags} ../made.zip ${what} && cat ../made.zip`;

/** A tar with entries that no careful program would write. */
export async function rawTar(
  entries: (Parameters<ReturnType<typeof pack>['entry']>[0] & { content?: string })[],
) {
  const tar = pack();
  for (const { content, ...header } of entries)
    if (content === undefined) tar.entry(header);
    else tar.entry(header, content);
  tar.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of tar) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
