// A reporter for Node's test runner that lists only failures. scripts/test prints them last, after all other output.

import type { TestEvent } from 'node:test/reporters';
import { inspect } from 'node:util';

const MAX_CHARACTERS = 4_000;

export default async function* failures(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const event of events) {
    if (event.type !== 'test:fail') continue;
    const { name, file, line, details } = event.data;
    const error: Error & { failureType?: string } = details.error;
    // A suite fails because of its tests, which are listed.
    if (error.failureType === 'subtestsFailed') continue;
    const cause = error.cause ?? error;
    yield `\n${file ?? ''}:${line ?? ''}\n${name}\n${inspect(cause).slice(0, MAX_CHARACTERS)}\n`;
  }
}
