// Owns turning the sources into what goes inside the executable: one CommonJS file, and the files that
// src/asset.ts hands out, by name. Packing them is pack.ts.
import { globSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { build, type Plugin } from 'esbuild';
import type { Machine } from './strip.ts';

export const root = join(import.meta.dirname, '..');

const refusedPackages = ['@grpc/grpc-js', '@grpc/proto-loader', 'protobufjs'];
const refused = { path: join(root, 'build/refused.cjs') };
const absent = { path: join(root, 'build/absent.cjs') };

/**
 * Packages that stay out. All by this one way: a file that is found by an alias for one importer and by a
 * plugin for the next is compiled under the options of whichever came first, and the bytes differ by chance.
 */
const leftOut: Plugin = {
  name: 'left out',
  setup({ onResolve }) {
    onResolve({ filter: new RegExp(`^(${refusedPackages.join('|')})$`) }, () => refused);
    // The demo's Git host needs ssh2, without its native parts; docker-modem's ssh transport is refused it.
    onResolve({ filter: /^ssh2$/ }, ({ importer }) =>
      importer.includes('/node_modules/docker-modem/') ? refused : undefined,
    );
    onResolve({ filter: /^cpu-features$|sshcrypto\.node$/ }, () => absent);
  },
};

export async function bundle(entry: string): Promise<Uint8Array> {
  const result = await build({
    entryPoints: [entry],
    absWorkingDir: root,
    bundle: true,
    write: false,
    platform: 'node',
    format: 'cjs',
    target: 'node26',
    minifySyntax: true,
    // The source text stays in memory. Short lines, since an uncaught error prints the line that it came from.
    minifyWhitespace: true,
    lineLimit: 160,
    legalComments: 'eof',
    logLevel: 'silent',
    // CommonJS has no import.meta; what needs the place of a source file asks src/asset.ts instead.
    define: { 'import.meta.dirname': '__dirname' },
    plugins: [leftOut],
  });
  if (result.warnings.length > 0) {
    const texts = result.warnings.map(w => `${w.location?.file}:${w.location?.line}: ${w.text}`);
    throw new Error(`the bundle would not work as the sources do:\n${texts.join('\n')}`);
  }
  return result.outputFiles[0]!.contents;
}

/** Name inside the executable → path: whatever lies in src/ and is not compiled, and SQLite. */
export function listAssets(machine: Machine): Record<string, string> {
  const assets: Record<string, string> = {
    'sqlite.node': join(root, `node_modules/better-sqlite3/prebuilds/linux-${machine}.node`),
  };
  const source = join(root, 'src');
  for (const path of globSync('**/*', { cwd: source }).sort()) {
    if (/\.ts$|tsconfig\.json$/.test(path) || !statSync(join(source, path)).isFile()) continue;
    assets[relative(source, join(source, path))] = join(source, path);
  }
  return assets;
}
