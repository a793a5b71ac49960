// The cost of triggers. Every figure is a ratio of alternating rounds in one run, so that a busy machine affects both
// sides. Each part is in a file of its own.
import { exitStatus } from './support.ts';
import { compareHooks } from './support-hooks.ts';
import { measurePolling } from './support-polling.ts';

await compareHooks();
await measurePolling();
process.exitCode = exitStatus();
