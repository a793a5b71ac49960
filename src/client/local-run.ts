// `assay run --local`: sends the working tree to the server, so that a build request can run suites on it.

import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import { CommandError, UsageError } from '../command/command.ts';
import { createProgress, sizeText } from '../command/progress.ts';
import { type Fields, ServerError } from './connection.ts';
import { EXIT, refused } from './exit-status.ts';
import { plain } from './output.ts';
import type { Suite } from './records.ts';
import type { ProjectSession } from './session.ts';
import { type Bundle, type Snapshot, withSnapshot } from './snapshot.ts';

const READ_BYTES = 256 << 10;
/** Smaller ones are sent before progress can be read. */
const PROGRESS_MIN_BYTES = 1 << 20;
const SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** Sends the working tree, and returns the fields of the build request. */
export async function sendWorkingTree(session: ProjectSession, suites: readonly string[]): Promise<Fields> {
  const chosen = suites.length === 0 ? [] : await findSuites(session, suites);
  return interruptible(signal =>
    withSnapshot(
      async snapshot => {
        for (const text of snapshot.remarks) remark(text);
        const { id, sizeBytes } = await send(session, snapshot, signal);
        remark(`sent the ${plain(snapshot.title)} (${sizeText(sizeBytes)})`);
        return {
          snapshot_id: id,
          commit_ref: snapshot.branch,
          'suites[]': chosen.map(({ id_str }) => id_str),
        };
      },
      { signal },
    ),
  );
}

const remark = (text: string) => void process.stderr.write(`assay: ${text}\n`);

async function findSuites({ connection, path }: ProjectSession, names: readonly string[]): Promise<Suite[]> {
  const all: Suite[] = [];
  for await (const suite of connection.list<Suite>(`${path}/suites`, { query: { limit: '100' } }))
    all.push(suite);
  return names.map(given => {
    const found = all.find(
      ({ name, id_str: id }) => id === given || name.toLowerCase() === given.trim().toLowerCase(),
    );
    if (found) return found;
    const known =
      all.length === 0
        ? 'the project has no suites'
        : `its suites are:\n${all.map(({ name }) => `  ${plain(name)}`).join('\n')}`;
    throw new UsageError(`the project has no suite ${JSON.stringify(given)}; ${known}`);
  });
}

/** Tries one base after the other until the server has it. */
async function send(
  session: ProjectSession,
  snapshot: Snapshot,
  signal: AbortSignal,
): Promise<{ id: string; sizeBytes: number }> {
  for await (const base of snapshot.bases()) {
    const bundle = await snapshot.bundle(base);
    if (!bundle) continue;
    try {
      return { id: await upload(session, bundle, base, signal), sizeBytes: bundle.sizeBytes };
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (error.errors.bundle)
        throw refused(
          'the server refused the working tree: a file is larger than 256 MiB, or git considers one dangerous, such as a .gitmodules with an unsafe address',
        );
      if (!error.errors.base) throw error;
    }
  }
  throw refused(
    'the server has none of the commits of this shallow clone: "git fetch --unshallow" completes it, and "assay run" makes the server fetch what is pushed',
  );
}

async function upload(
  { connection, path }: ProjectSession,
  { path: file, sizeBytes }: Bundle,
  base: string | undefined,
  signal: AbortSignal,
): Promise<string> {
  const progress = createProgress('Sending the working tree');
  async function* read() {
    let sentBytes = 0;
    for await (const chunk of createReadStream(file, { highWaterMark: READ_BYTES })) {
      yield chunk;
      sentBytes += chunk.length;
      if (sizeBytes >= PROGRESS_MIN_BYTES) progress.update(sentBytes, sizeBytes);
    }
  }
  try {
    const { id_str: id } = await connection.call<{ id_str: string }>('POST', `${path}/snapshots`, {
      query: { base },
      body: { content: Readable.from(read()), sizeBytes, type: 'application/octet-stream' },
      signal,
    });
    return id;
  } finally {
    progress.end();
  }
}

/** Aborts the work when the user interrupts it, so that it can remove its files. */
async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const interrupt = new AbortController();
  const { signal } = interrupt;
  const onSignal = () =>
    interrupt.abort(new CommandError('interrupted: nothing was started', EXIT.interrupted));
  for (const name of SIGNALS) process.on(name, onSignal);
  try {
    return await work(signal);
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  } finally {
    for (const name of SIGNALS) process.off(name, onSignal);
  }
}
