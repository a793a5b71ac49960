// Bundles the sources into CommonJS files, the client into one module, and the scripts and style sheets of the pages, and
// lists the files that src/asset.ts serves.
import { globSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { basename, join, relative } from 'node:path';
import { brotliCompressSync, constants, gzipSync, zstdCompressSync } from 'node:zlib';
import { type BuildOptions, build, type Plugin } from 'esbuild';
import type { Machine } from './strip.ts';

export const root = join(import.meta.dirname, '..');

const unsupportedPackages = ['@grpc/grpc-js', '@grpc/proto-loader', 'protobufjs'];
const unsupported = { path: join(root, 'build/unsupported.cjs') };
const missing = { path: join(root, 'build/missing.cjs') };

/**
 * Packages that are not bundled. All of them are excluded by this plugin and none by an alias: a file that is resolved
 * in both ways is compiled with the options of whichever came first, so the output would differ at random.
 */
const excludedPackages: Plugin = {
  name: 'excluded packages',
  setup({ onResolve }) {
    onResolve({ filter: new RegExp(`^(${unsupportedPackages.join('|')})$`) }, () => unsupported);
    // The demo's Git host needs ssh2, without its native add-ons. docker-modem's ssh transport does not.
    onResolve({ filter: /^ssh2$/ }, ({ importer }) =>
      importer.includes('/node_modules/docker-modem/') ? unsupported : undefined,
    );
    // Searching for supports-color takes a millisecond of each start. Assay has no colored debug log.
    onResolve({ filter: /^cpu-features$|sshcrypto\.node$|^supports-color$/ }, () => missing);
  },
};

/** Without this, a bundle would load modules of Node that only code outside of it uses. */
const pureModules: Plugin = {
  name: 'modules of Node without side effects',
  setup({ onResolve }) {
    onResolve({ filter: /^node:/ }, ({ path }) => ({ path, external: true, sideEffects: false }));
  },
};

/** Packages that few commands need. They are files of their own, because the server keeps the text of its file in memory. */
const separatePackages = ['@peculiar/x509', 'ssh2'];

/** Files that are not compressed, because decompressing would make a start several milliseconds longer. */
const quickFiles = ['client', 'server'];

const separate: Plugin = {
  name: 'separate packages',
  setup({ onResolve }) {
    onResolve({ filter: new RegExp(`^(${separatePackages.join('|')})$`) }, ({ path, importer }) =>
      importer.startsWith(join(root, 'src')) ? { path, external: true } : undefined,
    );
  },
};

/**
 * The program, and the files that src/load-commands.ts loads: the commands of the client, `assay serve`, all commands, and
 * separate packages. `sources` are the files that all of them were made from.
 */
export async function bundle(): Promise<{
  program: Uint8Array;
  files: Map<string, Uint8Array>;
  sources: string[];
}> {
  const program = await bundleFile(join(root, 'src/main.ts'), {
    external: ['./cli.ts', './cli/serve.ts', './client/command-line.ts'],
  });
  const entries = [
    ['client', join(root, 'src/client/command-line.ts')],
    ['server', join(root, 'src/cli/serve.ts')],
    ['commands', join(root, 'src/cli.ts')],
    ...separatePackages.map(name => [name, name]),
  ];
  const sources = new Set(program.sources);
  const params = { [constants.ZSTD_c_compressionLevel]: 19 };
  const files = new Map<string, Uint8Array>();
  for (const [name, entry] of entries as [string, string][]) {
    const file = await bundleFile(entry, {
      banner: { js: '(function(exports,require,module,__filename,__dirname){' },
      footer: { js: '})' },
      plugins: [separate, excludedPackages, pureModules],
      // A package is loaded by `require`, which src/load-commands.ts defines.
      supported: { 'dynamic-import': false },
    });
    for (const source of file.sources) sources.add(source);
    if (quickFiles.includes(name)) files.set(`${name}.cjs`, file.code);
    else files.set(`${name}.cjs.zst`, zstdCompressSync(file.code, { params }));
  }
  return { program: program.code, files, sources: [...sources] };
}

async function bundleFile(
  entry: string,
  options: BuildOptions,
): Promise<{ code: Uint8Array; sources: string[] }> {
  const result = await build({
    entryPoints: [entry],
    absWorkingDir: root,
    bundle: true,
    write: false,
    metafile: true,
    platform: 'node',
    format: 'cjs',
    target: 'node26',
    minifySyntax: true,
    // The source text stays in memory. Short lines, since an uncaught error prints the line that it came from.
    minifyWhitespace: true,
    lineLimit: 160,
    legalComments: 'eof',
    logLevel: 'silent',
    // CommonJS has no import.meta. Code that needs a file beside its source uses src/asset.ts.
    define: { 'import.meta.dirname': '__dirname' },
    plugins: [excludedPackages, pureModules],
    ...options,
  });
  if (result.warnings.length > 0) {
    const texts = result.warnings.map(w => `${w.location?.file}:${w.location?.line}: ${w.text}`);
    throw new Error(`the bundle would behave differently from the sources:\n${texts.join('\n')}`);
  }
  const sources = Object.values(result.metafile!.outputs).flatMap(({ inputs }) =>
    Object.keys(inputs).filter(path => inputs[path]!.bytesInOutput > 0),
  );
  return { code: Buffer.from(toAscii(result.outputFiles![0]!.text)), sources };
}

/** The version is all that the client takes from package.json. */
const versionOnly: Plugin = {
  name: 'version only',
  setup({ onLoad }) {
    onLoad({ filter: /\/package\.json$/ }, async ({ path }) => {
      const { version } = JSON.parse(await readFile(path, 'utf8')) as { version: string };
      return { contents: JSON.stringify({ version }), loader: 'json' };
    });
  },
};

/** assay.mjs: the client for any system that has Node 20. It contains no packages. */
export async function bundleClient(): Promise<Uint8Array> {
  const result = await build({
    entryPoints: [join(root, 'src/client/main.ts')],
    absWorkingDir: root,
    bundle: true,
    write: false,
    metafile: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    minify: true,
    lineLimit: 160,
    banner: {
      js: '#!/usr/bin/env node\n// Assay on the command line. Apache-2.0. Needs Node.js 20 or newer.',
    },
    logLevel: 'silent',
    plugins: [versionOnly],
  });
  const packages = Object.keys(result.metafile.inputs).filter(path => path.includes('node_modules/'));
  if (packages.length > 0) throw new Error(`the client contains packages: ${packages.join(', ')}`);
  return result.outputFiles[0]!.contents;
}

/**
 * The scripts and style sheets of the pages, minified, by name: every file of src/web/client that no other one imports,
 * with all that it imports. A module that two scripts of a page import is there twice and must not keep state.
 */
export async function bundlePageFiles(): Promise<Map<string, Uint8Array>> {
  const directory = 'src/web/client';
  const { outputFiles, metafile } = await build({
    entryPoints: globSync(`${directory}/*.{css,js}`, { cwd: root }).sort(),
    absWorkingDir: root,
    outdir: directory,
    bundle: true,
    write: false,
    metafile: true,
    format: 'esm',
    minify: true,
    charset: 'utf8',
    logLevel: 'silent',
  });
  const imported = new Set(
    Object.values(metafile.inputs).flatMap(({ imports }) => imports.map(({ path }) => path)),
  );
  return new Map(
    outputFiles
      .map(({ path, contents }): [string, Uint8Array] => [basename(path), contents])
      .filter(([name]) => !imported.has(`${directory}/${name}`)),
  );
}

/** The same as assets of the executable, each also compressed as far as possible. */
export async function makePageAssets(): Promise<Map<string, Uint8Array>> {
  const assets = new Map<string, Uint8Array>();
  for (const [name, content] of await bundlePageFiles()) {
    assets.set(`pages/${name}`, content);
    assets.set(`pages/${name}.br`, brotliCompressSync(content));
    assets.set(`pages/${name}.gz`, gzipSync(content, { level: 9 }));
  }
  return assets;
}

/**
 * One other character would double the memory of the whole source text, which the running program keeps. esbuild escapes
 * them everywhere but in tagged templates, where an escape changes only `strings.raw`.
 */
function toAscii(code: string): string {
  return code.replace(
    /[\u0080-\uffff]/g,
    character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Maps names inside the executable to paths: all files in src/ that are not compiled or bundled, and SQLite. */
export function listAssets(machine: Machine): Record<string, string> {
  const assets: Record<string, string> = {
    'sqlite.node': join(root, `node_modules/better-sqlite3/prebuilds/linux-${machine}.node`),
  };
  const source = join(root, 'src');
  for (const path of globSync('**/*', { cwd: source }).sort()) {
    if (/\.ts$|^web\/client\//.test(path) || !statSync(join(source, path)).isFile()) continue;
    assets[relative(source, join(source, path))] = join(source, path);
  }
  return assets;
}
