// Asks a server for /ping again and again, each time on a new connection. Answers each message with the longest wait since the
// previous one. It is a process of its own, as callers are: it must not wait for the benchmark, nor for a processor, which on
// their machine is not the server's.
import { readFileSync } from 'node:fs';
import { constants, setPriority } from 'node:os';
import { askOnce, openSocket, requestBytes } from './support.ts';

const PAUSE_MS = 20;
const [port, caFile] = process.argv.slice(2);
const ca = readFileSync(caFile as string, 'utf8');
const request = requestBytes('/ping', '');
let longestMs = 0;

setPriority(constants.priority.PRIORITY_HIGHEST);
process.on('message', () => {
  process.send?.(longestMs);
  longestMs = 0;
});
process.on('disconnect', () => process.exit());
for (let asked = 0; ; asked += 1) {
  const askedAt = performance.now();
  const socket = await openSocket(Number(port), ca);
  await askOnce(socket, request);
  longestMs = Math.max(longestMs, performance.now() - askedAt);
  socket.destroy();
  if (asked === 0) {
    console.log('ready');
    longestMs = 0;
  }
  await new Promise(resolve => setTimeout(resolve, PAUSE_MS));
}
