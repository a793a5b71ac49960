// Runs the program as a user would: one command, or a server until it is stopped.
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { rename, symlink } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { bundle, bundleClient, listAssets, makePageAssets, root } from '../../build/bundle.ts';
import type { Machine } from '../../build/strip.ts';

export const mainPath = join(root, 'src/main.ts');
const DEADLINE_MS = 60_000;

/** A private directory that is removed at the end of the scope. */
export function temporaryDirectory(): { path: string } & Disposable {
  const path = mkdtempSync(join(tmpdir(), 'assay-test-'));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

let bundled: Promise<string> | undefined;

/** The sources bundled as in the executable: it starts five times faster. Test files share it while nothing changes. */
export function programPath(): Promise<string> {
  bundled ??= (async () => {
    const directory = join(root, 'node_modules/.cache/assay-program');
    const program = join(directory, digestOfSources());
    const path = join(program, 'assay.cjs');
    if (existsSync(path)) return path;
    mkdirSync(directory, { recursive: true });
    removeOld(directory);
    const work = mkdtempSync(join(directory, 'work-'));
    const { 'sqlite.node': native = '', ...assets } = listAssets(process.arch as Machine);
    for (const [name, target] of Object.entries(assets)) {
      mkdirSync(dirname(join(work, name)), { recursive: true });
      symlinkSync(target, join(work, name));
    }
    for (const name of addOnPaths(basename(native))) {
      const addOn = join(directory, name);
      mkdirSync(dirname(addOn), { recursive: true });
      if (!existsSync(addOn)) await symlink(native, addOn).catch(ignoreExisting);
    }
    const { program: code, files } = await bundle();
    writeFileSync(join(work, 'assay.cjs'), code);
    writeFileSync(join(work, 'assay.mjs'), await bundleClient());
    for (const [name, content] of [...files, ...(await makePageAssets())]) {
      mkdirSync(dirname(join(work, name)), { recursive: true });
      writeFileSync(join(work, name), content);
    }
    // Another test file may have made the same.
    await rename(work, program).catch(() => rmSync(work, { recursive: true }));
    return path;
  })();
  return bundled;
}

/** Where better-sqlite3 and src/asset.ts look for the native add-on, beside the program. */
const addOnPaths = (name: string) => [
  'build/Release/better_sqlite3.node',
  `node_modules/better-sqlite3/prebuilds/${name}`,
];

/** A test that still uses an old one is not as slow as this. */
function removeOld(directory: string): void {
  for (const { name, parentPath } of readdirSync(directory, { withFileTypes: true })) {
    const path = join(parentPath, name);
    const madeAt = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
    if (!['build', 'node_modules'].includes(name) && Date.now() - madeAt > 3_600_000)
      rmSync(path, { recursive: true, force: true });
  }
}

function ignoreExisting(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error;
}

function digestOfSources(): string {
  const digest = createHash('sha256');
  for (const path of [
    'package.json',
    'package-lock.json',
    'build/bundle.ts',
    ...globSync('src/**', { cwd: root }),
  ].sort()) {
    const { mtimeMs, size } = statSync(join(root, path));
    digest.update(`${path} ${mtimeMs} ${size}\n`);
  }
  return digest.digest('hex').slice(0, 16);
}

export function environmentWith(extra: Record<string, string> = {}): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(
    ([name]) =>
      !name.startsWith('ASSAY_') &&
      !['NODE_TEST_CONTEXT', 'STATE_DIRECTORY', 'JOURNAL_STREAM'].includes(name),
  );
  return { ...Object.fromEntries(inherited), ...extra };
}

export type Finished = { status: number | null; stdout: string; stderr: string };

export async function runAssay(
  args: readonly string[],
  extra: Record<string, string> = {},
): Promise<Finished> {
  const child = spawn(process.execPath, [await programPath(), ...args], {
    env: environmentWith(extra),
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: DEADLINE_MS,
  });
  const finished = { status: null as number | null, stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', text => {
    finished.stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', text => {
    finished.stderr += text;
  });
  [finished.status] = await once(child, 'close');
  return finished;
}

export type Answer = { status: number; text: string };

export type Serving = {
  child: ChildProcess;
  port: number;
  readyMs: number;
  stdout(): string;
  stderr(): string;
  ask(
    method: string,
    path: string,
    options?: { auth?: string; form?: Record<string, string> },
  ): Promise<Answer>;
  /** Sends the signal and resolves with exit status and signal. */
  end(signal: NodeJS.Signals): Promise<[number | null, NodeJS.Signals | null]>;
};

/** Starts `assay serve` and waits until it is ready. `through` is a program to run it under, such as strace. */
export async function serve(
  data: string,
  options: { port?: number; env?: Record<string, string>; through?: readonly string[] } = {},
): Promise<Serving> {
  const command = [...(options.through ?? []), process.execPath, await programPath(), 'serve'];
  const startedAt = performance.now();
  const child = spawn(command[0] as string, command.slice(1), {
    env: environmentWith({
      ASSAY_DATA: data,
      ASSAY_LISTEN: `127.0.0.1:${options.port ?? 0}`,
      ...options.env,
    }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', text => {
    stderr += text;
  });
  const closed = once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>;
  const port = await new Promise<number>((resolve, reject) => {
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      reject(new Error(`not ready in ${DEADLINE_MS} ms: ${stderr}`));
    }, DEADLINE_MS);
    child.stdout?.setEncoding('utf8').on('data', text => {
      stdout += text;
      const [, listening] = /^assay is serving https:\S+:(\d+)$/m.exec(stdout) ?? [];
      if (listening === undefined) return;
      clearTimeout(timer);
      resolve(Number(listening));
    });
    closed.then(([status, signal]) => {
      clearTimeout(timer);
      reject(new EndedEarly(`ended before it was ready (${status ?? signal}): ${stderr}`));
    });
  });
  const readyMs = performance.now() - startedAt;
  const ca = readFileSync(join(data, 'tls/ca.pem'), 'utf8');
  return {
    child,
    port,
    readyMs,
    stdout: () => stdout,
    stderr: () => stderr,
    ask: (method, path, { auth, form } = {}) =>
      new Promise((resolve, reject) => {
        const outgoing = request(
          {
            host: '127.0.0.1',
            port,
            method,
            path,
            ca,
            agent: false,
            timeout: DEADLINE_MS,
            ...(auth !== undefined && { auth }),
            headers: form ? { 'content-type': 'application/x-www-form-urlencoded' } : {},
          },
          answer => {
            let text = '';
            answer.setEncoding('utf8').on('data', part => {
              text += part;
            });
            answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
            answer.on('error', reject);
          },
        );
        outgoing.on('error', reject);
        outgoing.on('timeout', () => outgoing.destroy(new Error('no answer')));
        outgoing.end(form ? new URLSearchParams(form).toString() : undefined);
      }),
    end: signal => {
      child.kill(signal);
      return closed;
    },
  };
}

export class EndedEarly extends Error {}
