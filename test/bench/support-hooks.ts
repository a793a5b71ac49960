// Push hooks: how many are answered compared with a bare route that verifies the same signature and writes one row, and
// the memory that large bodies need. Each hook is a new push, so that Assay requests a build for each.
import { createHmac } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { type Envelope, forges, hashOf, signed, ZEROS } from '../support/forge-hooks.ts';
import { freePort } from '../support/ports.ts';
import { askOnce, type Child, median, openSocket, report, residentBytesOf, startChild } from './support.ts';

const HOOKS = 1_000;
const ROUNDS = 7;
const CONNECTIONS = 32;
const LARGE_BYTES = 25 * 1024 * 1024;
const LARGE_AT_ONCE = 8;
const MIB = 1024 * 1024;

type Served = Child & { sockets: TLSSocket[]; path: string; secret: string };

async function serve(script: string, ...args: string[]): Promise<Served> {
  let output = '';
  const child = await startChild([process.execPath, join(import.meta.dirname, script), ...args], {
    port: 0,
    ready: /\n/,
    onOutput: text => {
      output += text;
    },
  });
  const { port, ca, path, secret } = JSON.parse(output) as {
    port: number;
    ca: string;
    path: string;
    secret: string;
  };
  const sockets = await Promise.all(Array.from({ length: CONNECTIONS }, () => openSocket(port, ca)));
  return { ...child, port, sockets, path, secret };
}

const requestOf = (path: string, { headers, body }: Envelope) =>
  Buffer.from(
    [
      `POST ${path} HTTP/1.1`,
      'Host: localhost',
      ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
      `Content-Length: ${Buffer.byteLength(body)}`,
      '',
      body,
    ].join('\r\n'),
  );

/** Hooks answered in a second. */
async function measureHooks({ sockets, path, secret }: Served, round: number): Promise<number> {
  const requests = Array.from({ length: HOOKS }, (_, index) => {
    const change = { ref: `refs/heads/push-${round}-${index}`, before: ZEROS, after: hashOf(index) };
    return requestOf(path, signed('github', forges.github.push('team/website', change, 'ada'), secret));
  });
  let next = 0;
  const startedAt = performance.now();
  await Promise.all(
    sockets.map(async socket => {
      for (let at = next++; at < requests.length; at = next++)
        await askOnce(socket, requests[at] as Buffer, 201);
    }),
  );
  return (HOOKS * 1000) / (performance.now() - startedAt);
}

/** The largest growth of the resident memory while large hooks arrive together. */
async function measureMemory({ process: child, sockets, path, secret }: Served): Promise<void> {
  const body = Buffer.alloc(LARGE_BYTES, ' ');
  body.write('{}');
  const signature = createHmac('sha256', secret).update(body).digest('hex');
  const head = Buffer.from(
    `POST ${path} HTTP/1.1\r\nHost: localhost\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=${signature}\r\nContent-Length: ${body.length}\r\n\r\n`,
  );
  const request = Buffer.concat([head, body]);
  const pid = child.pid as number;
  const tookMs: number[] = [];
  const send = async (socket: TLSSocket) => {
    const startedAt = performance.now();
    await askOnce(socket, request, 200);
    tookMs.push(performance.now() - startedAt);
  };
  await send(sockets[0] as TLSSocket);
  const aloneMs = tookMs.splice(0)[0] as number;
  const before = residentBytesOf(pid);
  let most = before;
  const timer = setInterval(() => {
    most = Math.max(most, residentBytesOf(pid));
  }, 20);
  for (let round = 0; round < 3; round += 1) await Promise.all(sockets.slice(0, LARGE_AT_ONCE).map(send));
  clearInterval(timer);
  report('a hook of 25 MiB', aloneMs, '≤', 1_000, ' ms');
  report(`memory for ${LARGE_AT_ONCE} hooks of 25 MiB at once`, (most - before) / MIB, '≤', 96, ' MiB');
}

export async function compareHooks(): Promise<void> {
  const work = mkdtempSync(join(tmpdir(), 'assay-bench-'));
  const assay = await serve('support-hooks-app.ts');
  const bare = await serve('support-baseline-hook.ts', join(work, 'bare.db'), String(await freePort()));
  try {
    const ratios: number[] = [];
    for (let round = 0; round <= ROUNDS; round += 1) {
      const ours = await measureHooks(assay, round);
      const theirs = await measureHooks(bare, round);
      console.log(`  ${ours.toFixed(0)} hooks/s, bare route ${theirs.toFixed(0)}/s`);
      // The first round warms up.
      if (round > 0) ratios.push(ours / theirs);
    }
    report(`${HOOKS} hooks compared with a bare route that writes a row`, median(ratios), '≥', 0.5);
    await measureMemory(assay);
  } finally {
    for (const served of [assay, bare]) {
      for (const socket of served.sockets) socket.destroy();
      await served.end();
    }
    rmSync(work, { recursive: true });
  }
}
