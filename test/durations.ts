// A reporter for Node's test runner that prints how long the tests of each file took, in seconds. scripts/test lists the
// slowest ones last.

import { relative } from 'node:path';
import type { TestEvent } from 'node:test/reporters';

export default async function* durations(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const milliseconds = new Map<string, number>();
  for await (const event of events) {
    if (event.type !== 'test:pass' && event.type !== 'test:fail') continue;
    const { file, nesting, details } = event.data;
    if (file !== undefined && nesting === 0)
      milliseconds.set(file, (milliseconds.get(file) ?? 0) + details.duration_ms);
  }
  for (const [file, ms] of milliseconds)
    yield `${(ms / 1000).toFixed(1).padStart(7)} s  ${relative(process.cwd(), file)}\n`;
}
