// Callers that each send requests at a steady pace, at a time of their own. Each message says how many callers and at what
// pace; the reply is when each request was sent and answered. It is a separate process, so that the benchmark does not delay
// the callers, and does little for each request, because it shares the processors with the server.
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';
import { askOnce, openSocket, requestBytes } from './support.ts';
import { monotonicMs } from './support-clock.ts';

export type Load = { callers: number; paceMs: number; seconds: number };
export type Answered = { fromMs: number; toMs: number };
type Caller = { socket: TLSSocket; at: number; askedAt: number; missingBytes: number };

const [port = '', caFile = '', path = '', auth = ''] = process.argv.slice(2);
const ca = readFileSync(caFile, 'utf8');
const request = requestBytes(path, auth);
const callers: Caller[] = [];
let responseBytes = 0;
let answers: Answered[] = [];

process.on('message', (load: Load) => void measure(load).then(() => process.send?.(answers)));
process.on('disconnect', () => process.exit());
console.log('ready');

async function openCaller(): Promise<Caller> {
  const socket = await openSocket(Number(port), ca);
  // Only a request with credentials exempts a connection from the limits for unknown callers.
  responseBytes = (await askOnce(socket, request)).length;
  const caller: Caller = { socket, at: 0, askedAt: 0, missingBytes: 0 };
  socket.on('data', part => {
    caller.missingBytes -= part.length;
    if (caller.missingBytes === 0) answers.push({ fromMs: caller.askedAt, toMs: monotonicMs() });
  });
  return caller;
}

async function measure({ callers: count, paceMs, seconds }: Load): Promise<void> {
  while (callers.length < count) callers.push(await openCaller());
  answers = [];
  const startedAt = monotonicMs();
  const endsAt = startedAt + seconds * 1_000;
  const active = callers.slice(0, count);
  for (const caller of active) caller.at = startedAt + Math.random() * paceMs;
  // Their order is the same in every period.
  active.sort((one, other) => one.at - other.at);
  let asked = 0;
  for (; ; asked += 1) {
    const caller = active[asked % count] as Caller;
    if (caller.at > endsAt) break;
    // A timer may fire up to a millisecond early.
    while (monotonicMs() < caller.at) await delay(Math.max(0, caller.at - monotonicMs()));
    while (caller.missingBytes > 0) await delay(1);
    if (caller.missingBytes < 0) throw new Error('responses differ in length');
    caller.missingBytes = responseBytes;
    caller.askedAt = monotonicMs();
    caller.socket.write(request);
    caller.at += paceMs;
  }
  while (answers.length < asked) await delay(1);
}
