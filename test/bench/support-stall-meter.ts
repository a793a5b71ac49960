// Loaded into a server before its own code (`node --import`): measures how long its event loop stands still, and answers
// the benchmark over the IPC channel with the longest time since it was asked last.

let longest = { ms: 0, cpuMs: 0 };
const cpuMsNow = () => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
};
let last = { at: performance.now(), cpuMs: cpuMsNow() };

const TICK_MS = 1;
setInterval(() => {
  const now = { at: performance.now(), cpuMs: cpuMsNow() };
  const ms = now.at - last.at - TICK_MS;
  if (ms > longest.ms) longest = { ms, cpuMs: now.cpuMs - last.cpuMs };
  last = now;
}, TICK_MS).unref();

process.on('message', () => {
  process.send?.({ ...longest, rssBytes: process.memoryUsage.rss() });
  longest = { ms: 0, cpuMs: 0 };
});
process.channel?.unref();
