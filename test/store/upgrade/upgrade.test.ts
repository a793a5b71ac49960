// Serves the data directory of each earlier version: everything that was readable is still readable.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { settings } from '../../../src/config.ts';
import { tlsDirectory } from '../../../src/store/data/paths.ts';
import { runAssay, serve, temporaryDirectory } from '../../cli/program.ts';
import { createClient } from '../../support/client.ts';
import { BACKUP, createVisitor, keptVersions, type Recording, unpackVersion } from './kept-version.ts';

/** Retention is off, because the archived data gets old. */
const keepEverything = Object.fromEntries(
  settings.filter(({ name }) => name.endsWith('_DAYS')).map(({ name }) => [`ASSAY_${name}`, '99999']),
);

test('there is an archive of an earlier version', () => {
  assert.ok(keptVersions.length > 0);
});

for (const name of keptVersions)
  describe(`a data directory of ${name}`, { timeout: 300_000 }, () => {
    test('is upgraded at the first start, and everything in it is readable', async () => {
      using place = temporaryDirectory();
      const { data, recording } = unpackVersion(name, place.path);
      await withServer(data, (origin, ca) => checkReadable(origin, ca, recording));
      // And again, when nothing is left to upgrade.
      await withServer(data, (origin, ca) => checkReadable(origin, ca, recording));
    });

    test('can be backed up and restored by this version', async () => {
      using place = temporaryDirectory();
      const { data, recording } = unpackVersion(name, place.path);
      const file = join(place.path, 'new.backup');
      await run('backup', file, '--with-key', '--data', data);
      await run('backup', file, '--verify', '--data', data);
      const restored = join(place.path, 'restored');
      await run('restore', file, '--data', restored);
      await withServer(restored, (origin, ca) => checkReadable(origin, ca, recording));
    });

    test('is restored from a backup that its own version made', async () => {
      using place = temporaryDirectory();
      const { recording } = unpackVersion(name, place.path);
      const restored = join(place.path, 'restored');
      await run('backup', join(place.path, BACKUP), '--verify', '--data', restored);
      await run('restore', join(place.path, BACKUP), '--data', restored);
      await withServer(restored, (origin, ca) => checkReadable(origin, ca, recording));
    });
  });

async function run(...args: string[]): Promise<void> {
  const { status, stderr } = await runAssay(args);
  assert.equal(status, 0, `assay ${args.join(' ')}: ${stderr}`);
}

async function withServer(data: string, use: (origin: string, ca: string) => Promise<void>): Promise<void> {
  const server = await serve(data, {
    env: { ASSAY_NETWORK: 'none', ASSAY_MIN_FREE_DISK: '1MiB', ...keepEverything },
  });
  try {
    await use(`https://127.0.0.1:${server.port}`, readFileSync(join(tlsDirectory(data), 'ca.pem'), 'utf8'));
  } finally {
    assert.deepEqual(await server.end('SIGTERM'), [0, null], server.stderr());
  }
}

async function checkReadable(origin: string, ca: string, recording: Recording): Promise<void> {
  const client = createClient(origin, ca);
  try {
    for (const { path, as, status, body } of recording.answers) {
      const answer = await client.get(path, as);
      assert.equal(answer.status, status, `${path}: ${answer.text}`);
      if (answer.headers['content-type']?.startsWith('application/json'))
        assertHolds(JSON.parse(answer.text), JSON.parse(body), path);
      else assert.equal(answer.text, body, path);
    }
  } finally {
    client.close();
  }
  await checkPages(origin, ca, recording);
}

/** An SSH key without its comment, which contains the names of the project and the server. */
const keyAlone = (value: unknown) => String(value).split(' ').slice(0, 2);

/** Every field is still there; records may have additional fields. */
function assertHolds(found: unknown, recorded: unknown, where: string): void {
  if (typeof recorded !== 'object' || recorded === null) {
    assert.deepEqual(found, recorded, where);
    return;
  }
  assert.ok(typeof found === 'object' && found !== null, `${where} is ${found}`);
  if (Array.isArray(recorded)) assert.equal((found as unknown[]).length, recorded.length, where);
  for (const [key, value] of Object.entries(recorded)) {
    const now: unknown = (found as Record<string, unknown>)[key];
    if (key === 'ssh_public_key') assert.deepEqual(keyAlone(now), keyAlone(value), `${where}.${key}`);
    else assertHolds(now, value, `${where}.${key}`);
  }
}

/** Everybody with a password can sign in, and the page of every project shows its name. */
async function checkPages(origin: string, ca: string, { accounts, answers }: Recording): Promise<void> {
  for (const { email, password } of accounts) {
    if (password === undefined) continue;
    const visitor = createVisitor(origin, ca);
    const { status } = await visitor.post('/ui/sign-in', { email, password });
    assert.equal(status, 303, `${email} cannot sign in`);
    assert.match((await visitor.get('/ui/projects')).text, /Website/);
  }
  const [owner] = accounts;
  const visitor = createVisitor(origin, ca);
  await visitor.post('/ui/sign-in', { email: owner?.email ?? '', password: owner?.password ?? '' });
  const pages = answers
    .map(({ path }) => path)
    .filter(path => /^\/(projects|dependencies)\/\d+(\/(suites|commits|builds)\/\d+)?$/.test(path));
  assert.ok(pages.length > 10);
  for (const path of ['/applications', '/admin', '/dependencies', ...pages]) {
    const { status, text } = await visitor.get(`/ui${path}`);
    assert.equal(status, 200, `/ui${path}: ${text}`);
    const recorded = answers.find(answer => answer.path === path);
    const name = recorded && JSON.parse(recorded.body).response.name;
    if (typeof name === 'string') assert.ok(text.includes(name.trim()), `/ui${path} does not show ${name}`);
  }
}
