// What work costs in processor time of this process: other tests share the machine and its disk, and the clock with them.

export function processorMs(work: () => void): number {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}
