// Makes the executable: packs the bundle and the assets into a stripped copy of the project's Node, for this machine's
// processor or another one. Used by scripts/build.
import { createHash } from 'node:crypto';
import { globSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import pkgSea from '@yao-pkg/pkg/lib-es5/sea.js';
import { bundle, bundleClient, listAssets, makePageAssets, root } from './bundle.ts';
import { findRuntime } from './runtime.ts';
import { type Machine, machineOf, strip } from './strip.ts';

const sizeLimitBytes = 125_000_000;

export type Packing = { output: string; machine: Machine; force: boolean };
type PackInput = { work: string; runtime: string; assets: Record<string, string>; machine: Machine };

/** Makes the executable, unless the existing one was made from the same inputs. */
export async function pack({ output, machine, force }: Packing): Promise<'made' | 'up to date'> {
  const { program, files } = await bundle();
  const made = new Map([...files, ['assay.mjs', await bundleClient()] as const, ...(await makePageAssets())]);
  const assets = listAssets(machine);
  const runtime = await findRuntime(machine);
  const packers = globSync('*', { cwd: import.meta.dirname }).map(name => join(import.meta.dirname, name));
  const inputs = [
    Buffer.from(program),
    ...[...made].flatMap(([name, content]) => [name, Buffer.from(content)]),
    JSON.stringify(Object.keys(assets)),
    machine,
    await digestOf(...Object.values(assets)),
  ];
  const digest = createHash('sha256').update(JSON.stringify(inputs.map(String)));
  digest.update(await digestOf(runtime, join(root, 'package-lock.json'), ...packers.sort()));
  const stamp = digest.digest('hex');
  const stampPath = join(dirname(output), `.${basename(output)}.inputs`);
  if (!force && (await readStamp(stampPath)) === `${stamp} ${await digestOf(output)}`) return 'up to date';

  await mkdir(dirname(output), { recursive: true });
  // Next to the output, so that it can be renamed into place: a running executable cannot be overwritten.
  const work = await mkdtemp(join(dirname(output), '.work-'));
  try {
    await writeFile(join(work, 'assay.cjs'), program);
    for (const [name, content] of made) {
      assets[name] = join(work, name);
      await mkdir(dirname(assets[name]), { recursive: true });
      await writeFile(assets[name], content);
    }
    await rename(await build({ work, runtime, assets, machine }), output);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  await writeFile(stampPath, `${stamp} ${await digestOf(output)}`);
  return 'made';
}

async function build({ work, runtime, assets, machine }: PackInput): Promise<string> {
  const nodePath = join(work, 'node');
  const made = join(work, 'assay');
  await writeFile(nodePath, strip(await readFile(runtime)), { mode: 0o755 });
  // The builder works in its own directory under TMPDIR. A path relative to that keeps the path of this clone out of
  // the executable, so that its bytes are the same wherever it is built.
  const seaConfig = {
    main: '../assay.cjs',
    assets,
    execArgvExtension: 'none',
    disableExperimentalSEAWarning: true,
    useSnapshot: false,
    // V8's code cache differs each time, and the executable must be reproducible.
    useCodeCache: false,
  };
  const { TMPDIR } = process.env;
  process.env.TMPDIR = work;
  try {
    await pkgSea.default(join(work, 'assay.cjs'), {
      targets: [{ nodeRange: 'node26', platform: 'linux', arch: machine, output: made }],
      nodePath,
      // Makes the builder use the running Node, which has the same version, to write the blob for the other
      // processor, instead of downloading one.
      useLocalNode: true,
      seaConfig,
    });
  } finally {
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
  }
  const bytes = await readFile(made);
  if (machineOf(bytes) !== machine)
    throw new Error(`the executable is for ${machineOf(bytes)}, not ${machine}`);
  if (bytes.length >= sizeLimitBytes)
    throw new Error(`the executable has ${bytes.length} bytes, more than ${sizeLimitBytes}`);
  return made;
}

async function readStamp(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch(() => undefined);
}

/** The digest of the contents of all files, in order. A missing file counts as empty. */
async function digestOf(...paths: string[]): Promise<string> {
  const hash = createHash('sha256');
  for (const path of paths) {
    const content = await readFile(path).catch(() => Buffer.alloc(0));
    hash.update(`${content.length}:`).update(content);
  }
  return hash.digest('hex');
}
