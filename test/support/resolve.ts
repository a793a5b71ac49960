// For `node --import`, in the process of each test file. Resolves imports faster than Node does: a test file loads the whole
// program in half a second of processor time instead of more than one. Keeps the thread pool going, as the program does.
import { type ResolveFnOutput, registerHooks } from 'node:module';
import { keepThreadPoolGoing } from '../../src/thread-pool.ts';

keepThreadPoolGoing();

const found = new Map<string, ResolveFnOutput>();
const formatOf = (specifier: string, importer: string) =>
  specifier.endsWith('.ts')
    ? 'module-typescript'
    : importer.includes('/node_modules/drizzle-orm/')
      ? 'module'
      : undefined;

registerHooks({
  resolve(specifier, context, resolveAsNode) {
    const importer = context.parentURL ?? '';
    const format = specifier.startsWith('.') && formatOf(specifier, importer);
    if (format) return { url: new URL(specifier, importer).href, format, shortCircuit: true };
    // For each import of drizzle-orm and for each of its modules, Node parses its package.json of 180 KB again.
    if (!specifier.startsWith('drizzle-orm')) return resolveAsNode(specifier, context);
    const known = found.get(specifier) ?? { ...resolveAsNode(specifier, context), shortCircuit: true };
    found.set(specifier, known);
    return known;
  },
});
