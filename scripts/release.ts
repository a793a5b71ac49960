// The command line of scripts/release: collects the files of a release and packs them into an archive.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { copyFile, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { root } from '../build/bundle.ts';
import { pack } from '../build/pack.ts';
import type { Machine } from '../build/strip.ts';
import { manualPages } from '../src/cli/manual-page.ts';
import { line } from '../src/cli.ts';
import { completions } from '../src/command/completion.ts';
import { billOfMaterials, licenceFile, listComponents } from './components.ts';

const usage = `usage: scripts/release [--arch x64|arm64] [--output DIRECTORY]
  --arch    the processor to build for (default: this machine's)
  --output  the directory to write to (default: dist)`;
const DEADLINE_MS = 300_000;

type Manifest = { name: string; version: string; license: string };

/** Makes the archive, which contains one directory of the same name. Returns its path. */
async function release(machine: Machine, output: string): Promise<string> {
  const manifest: Manifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  const executable = join(root, 'dist', machine === process.arch ? 'assay' : `assay-${machine}`);
  await pack({ output: executable, machine, force: false });

  await mkdir(output, { recursive: true });
  const work = await mkdtemp(join(output, '.release-'));
  try {
    const name = `assay-${manifest.version}-linux-${machine}`;
    const directory = join(work, name);
    await mkdir(directory);
    await copyFile(executable, join(directory, 'assay'));
    for (const file of ['assay.service', 'assay.env', 'install.sh', 'uninstall.sh'])
      await copyFile(join(root, 'systemd', file), join(directory, file));
    for (const file of ['LICENSE', 'CHANGELOG.md', 'README.md'])
      await copyFile(join(root, file), join(directory, file));
    const components = await listComponents(machine);
    const product = { name: manifest.name, version: manifest.version, licence: manifest.license };
    const texts: Record<string, string> = {
      'assay.bash': completions.bash(line),
      'assay.zsh': completions.zsh(line),
      'assay.fish': completions.fish(line),
      'sbom.cdx.json': `${JSON.stringify(billOfMaterials(product, components), null, 2)}\n`,
      'LICENSES.txt': licenceFile(components),
    };
    for (const [file, text] of Object.entries(manualPages(line, manifest.version)))
      texts[join('man', file)] = text;
    await mkdir(join(directory, 'man'));
    for (const [file, text] of Object.entries(texts)) await writeFile(join(directory, file), text);
    await writeFile(join(directory, 'SHA256SUMS'), await sums(directory));
    const archive = join(work, `${name}.tar.gz`);
    makeArchive(work, name, archive);
    const final = join(output, `${name}.tar.gz`);
    await rename(archive, final);
    return final;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function sums(directory: string): Promise<string> {
  const lines: string[] = [];
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries
    .filter(entry => entry.isFile())
    .map(entry => relative(directory, join(entry.parentPath, entry.name)));
  for (const file of files.sort()) {
    const sum = createHash('sha256');
    for await (const chunk of createReadStream(join(directory, file))) sum.update(chunk);
    lines.push(`${sum.digest('hex')}  ${file}\n`);
  }
  return lines.join('');
}

/** Owners, order, times and modes are fixed: the same files give the same bytes. */
function makeArchive(work: string, name: string, archive: string): void {
  execFileSync('chmod', ['-R', 'u=rwX,go=rX', name], { cwd: work });
  execFileSync('chmod', ['755', `${name}/assay`, `${name}/install.sh`, `${name}/uninstall.sh`], {
    cwd: work,
  });
  const plain = ['--sort=name', '--mtime=@0', '--owner=0', '--group=0', '--numeric-owner', '--format=ustar'];
  execFileSync('tar', [...plain, '--use-compress-program=gzip -n', '-cf', archive, name], {
    cwd: work,
    timeout: DEADLINE_MS,
  });
}

function refuse(reason: string): never {
  console.error(`scripts/release: ${reason}\n${usage}`);
  process.exit(2);
}

function readArguments() {
  try {
    return parseArgs({
      options: {
        arch: { type: 'string', default: process.arch },
        output: { type: 'string', default: join(root, 'dist') },
        help: { type: 'boolean', short: 'h', default: false },
      },
    }).values;
  } catch (error) {
    return refuse((error as Error).message);
  }
}

const { arch, output, help } = readArguments();
if (help) {
  console.log(usage);
  process.exit(0);
}
if (arch !== 'x64' && arch !== 'arm64') refuse(`--arch ${arch}: x64 or arm64`);
const path = await release(arch, resolve(output)).catch(error => {
  console.error(`scripts/release: ${error.message}`);
  process.exit(1);
});
console.log(path);
