// The upstream archives of Debian's source packages, for tests that compile real software.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export type DebianSources = Awaited<ReturnType<typeof fetchSources>>;

const run = promisify(execFile);

/** The upstream archives of source packages, from the host's Debian mirror, downloaded once. */
export async function fetchSources(...packages: string[]) {
  const directory = join(homedir(), '.cache', 'assay-test', 'sources');
  await mkdir(directory, { recursive: true });
  const find = async () => {
    const names = await readdir(directory);
    return new Map(
      packages.flatMap(name => {
        const file = names.find(one => one.startsWith(`${name}_`) && /\.orig\.tar\.\w+$/.test(one));
        return file ? [[name, file] as const] : [];
      }),
    );
  };
  let found = await find();
  const missing = packages.filter(name => !found.has(name));
  if (missing.length > 0) {
    await download(directory, missing);
    found = await find();
  }
  const read = new Map<string, { file: string; archive: Buffer; root: string }>();
  for (const [name, file] of found) {
    const path = join(directory, file);
    const { stdout } = await run('tar', ['-tf', path], { maxBuffer: 1 << 26 });
    read.set(name, { file, archive: await readFile(path), root: stdout.split('/')[0] as string });
  }
  return (name: string) => {
    const source = read.get(name);
    assert.ok(source, `the source package ${name} could not be downloaded`);
    return source;
  };
}

/** Uses a separate directory for apt, so that the host's configuration and downloads stay unchanged. */
async function download(directory: string, packages: readonly string[]): Promise<void> {
  const state = join(directory, '.apt');
  for (const name of ['lists/partial', 'cache/archives/partial', 'part'])
    await mkdir(join(state, name), { recursive: true });
  try {
    const { stdout } = await run('apt-get', [
      'indextargets',
      '--format',
      '$(CREATED_BY) $(REPO_URI) $(CODENAME) $(COMPONENT)',
    ]);
    const lines = stdout.split('\n').flatMap(line => {
      const [kind, uri, codename, component] = line.split(' ');
      return kind === 'Packages' ? [`deb-src ${uri} ${codename} ${component}`] : [];
    });
    await writeFile(join(state, 'sources.list'), [...new Set(lines), ''].join('\n'));
    const options = [
      `Dir::Etc::sourcelist=${state}/sources.list`,
      'Dir::Etc::sourceparts=-',
      `Dir::State::lists=${state}/lists`,
      `Dir::Cache=${state}/cache`,
      'APT::Sandbox::User=root',
      'Acquire::Retries=3',
    ].flatMap(option => ['-o', option]);
    const work = { cwd: join(state, 'part'), timeout: 300_000, maxBuffer: 1 << 24 };
    await run('apt-get', [...options, '-q', 'update'], work);
    await run('apt-get', [...options, '-q', 'source', '--download-only', ...packages], work);
    for (const name of await readdir(work.cwd)) await rename(join(work.cwd, name), join(directory, name));
  } catch (error) {
    throw new Error(
      `the Debian source packages ${packages.join(', ')} could not be downloaded: this test needs apt-get and a mirror that it reaches`,
      { cause: error },
    );
  }
}
