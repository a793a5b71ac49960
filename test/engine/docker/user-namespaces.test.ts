// An engine with `userns-remap`, where containers have their own user IDs: everything works, and an artifact from one
// kind of engine can be used on the other.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { extract, pack } from 'tar-stream';
import type { Check } from '../../../src/cli/check.ts';
import { captureTar, openArtifact } from '../../../src/engine/archive/artifact-tar.ts';
import { createDockerEngine } from '../../../src/engine/docker/docker-engine.ts';
import { type Engine, VOLUME_DIRECTORY } from '../../../src/engine/engine.ts';
import { runAssay } from '../../cli/program.ts';
import { createPrivateEngine, type PrivateEngine } from '../../drill/support/engine.ts';
import { type Appliance, clearDocker, startAppliance } from '../../support/appliance.ts';
import { openDependencies, PREFIX, tarOf, useIn } from '../../work/dependencies/fixture.ts';
import { DOCKER_HOST, RUN_AS } from './fixture.ts';

/** The first user ID of containers, and how many there are. */
const FIRST = 200_000;
const COUNT = 65_536;

let directory: string;
let remapped: PrivateEngine;

before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'assay-remapped-'));
  // Docker accesses its data as the user that root in a container is mapped to.
  chmodSync(directory, 0o711);
  const ranges = join(directory, 'ranges');
  writeFileSync(ranges, `daemon:${FIRST}:${COUNT}\n`);
  // The range exists only for this engine, in a private mount namespace: the host's files stay unchanged.
  const mounts = ['/etc/subuid', '/etc/subgid'].map(file => `mount --bind '${ranges}' ${file}`).join(' && ');
  const path = process.env.PATH;
  const program = join(directory, 'bin', 'dockerd');
  mkdirSync(join(directory, 'bin'));
  writeFileSync(
    program,
    `#!/bin/sh\nPATH='${path}' exec unshare --mount sh -c "${mounts} && exec dockerd --userns-remap=daemon \\"\\$@\\"" dockerd "$@"\n`,
    { mode: 0o755 },
  );
  process.env.PATH = `${join(directory, 'bin')}:${path}`;
  try {
    remapped = await createPrivateEngine({ root: join(directory, 'root') });
  } finally {
    process.env.PATH = path;
  }
});
after(async () => {
  await remapped.close();
  // Docker creates a second directory that root in a container can enter.
  const twin = `${dirname(remapped.dockerHost.slice('unix://'.length))}.${FIRST}.${FIRST}`;
  for (const left of [twin, directory]) rmSync(left, { recursive: true, force: true });
});

const rulesFor = (bridge: string) =>
  execFileSync('iptables', ['-w', '10', '-S'], { encoding: 'utf8', timeout: 20_000 })
    .split('\n')
    .filter(rule => rule.includes(`-i ${bridge} `)).length;

test("dependencies compile and are used, and suites pass, on Assay's own network", async t => {
  const appliance: Appliance = await startAppliance({
    dockerHost: remapped.dockerHost,
    network: 'bridge',
    minFreeDiskBytes: 0,
  });
  let isClosed = false;
  const close = async () => {
    if (isClosed) return;
    isClosed = true;
    await appliance.close();
    await clearDocker(appliance.instance, remapped.dockerHost);
  };
  t.after(close);
  const dependencies = openDependencies(appliance);
  const archive = tarOf({ 'tool.c': 'int main(void) { return 0; }\n' });
  const tool = await dependencies.compiled(archive, {
    command: `mkdir ${PREFIX}/bin && cc -o ${PREFIX}/bin/tool tool.c`,
  });
  const other = await dependencies.compiled(archive, {
    command: `tool && echo built upon >${PREFIX}/other`,
    'related_dependencies[]': [tool],
  });

  const project = await appliance.project(
    appliance.repository({ message: 'First\n', files: { 'README.md': 'Hello\n' } }),
  );
  const { build, log } = await useIn(
    project,
    [tool, other],
    `tool && cat ${PREFIX}/other README.md && git log --format=%s && touch new && mkdir -p "$HOME/x" && stat -c 'made by %u:%g' ${PREFIX}/bin/tool ${PREFIX}/other && cat /proc/self/uid_map && id -u`,
  );
  assert.equal(build.build_state, 'passed', log);
  assert.match(log, /built upon\nHello\nFirst\nmade by 1000:1000\nmade by 1000:1000\n/);
  assert.match(log, new RegExp(`\\n *0 +${FIRST} +${COUNT}\\n1000\\n`));

  const bridge = await remapped.docker(
    'network',
    'ls',
    '--filter',
    `label=assay.instance=${appliance.instance}`,
    '--format',
    '{{.Name}}',
  );
  assert.match(bridge, /^assay-[0-9a-f]{8}$/);
  assert.equal(rulesFor(bridge), 4);
  await close();
  assert.equal(rulesFor(bridge), 0);
});

test('an artifact from an engine with user namespaces fills volumes on one without, and vice versa', async t => {
  const instance = `remap${process.pid}`;
  const file = (name: string) => join(directory, name);

  /** Puts what `open` returns into a volume of that engine, and captures it again. */
  async function pass(engine: Engine, name: string, open: () => ReturnType<typeof openArtifact>) {
    const owner = { instance, kind: 'artifact', id: name };
    const volume = `assay-${instance}-${name}`;
    await engine.createVolume({ name: volume, owner });
    t.after(() => engine.removeVolume(volume));
    await engine.claimVolume(volume);
    await engine.fillVolume(volume, open);
    const raw = await engine.readVolume({ volume, inside: '' }, ownersIn);
    const { hash } = await engine.readVolume({ volume, inside: '' }, tar =>
      captureTar(tar, { file: file(name), prefix: PREFIX, owner: RUN_AS, mayContinue: () => true }),
    );
    return { hash, raw, kept: await ownersIn(openArtifact(file(name))) };
  }

  const made = pack();
  const inside = VOLUME_DIRECTORY.slice(1);
  made.entry({ ...RUN_AS, name: `${inside}/bin`, type: 'directory', mode: 0o755 });
  made.entry({ ...RUN_AS, name: `${inside}/bin/tool`, mode: 0o755 }, 'tool\n');
  made.finalize();
  const options = { instance, runAs: RUN_AS, network: 'none' };
  const namespaced = createDockerEngine({ ...options, dockerHost: remapped.dockerHost });
  const plain = createDockerEngine({ ...options, dockerHost: DOCKER_HOST });
  const first = await pass(namespaced, 'first', () => made as unknown as ReturnType<typeof openArtifact>);
  const there = await pass(plain, 'there', () => openArtifact(file('first')));
  const back = await pass(namespaced, 'back', () => openArtifact(file('there')));

  assert.equal(there.hash, first.hash);
  assert.equal(back.hash, first.hash);
  const all = (uid: number) => [uid, uid, uid];
  for (const { kept } of [first, there, back]) assert.deepEqual(kept, all(RUN_AS.uid));
  assert.deepEqual(there.raw, all(RUN_AS.uid));
  for (const { raw } of [first, back]) assert.deepEqual(raw, all(FIRST + RUN_AS.uid));
});

test('doctor reports that user namespaces are on', async () => {
  const { stdout } = await runAssay(['doctor', '--json', '--data', join(directory, 'none')], {
    DOCKER_HOST: remapped.dockerHost,
  });
  const { checks } = JSON.parse(stdout) as { checks: Check[] };
  assert.deepEqual(
    checks.find(({ name }) => name === 'isolation'),
    { name: 'isolation', status: 'ok', found: 'user namespaces are on' },
  );
});

async function ownersIn(tar: NodeJS.ReadableStream): Promise<(number | undefined)[]> {
  const owners: (number | undefined)[] = [];
  const entries = extract();
  tar.pipe(entries);
  for await (const entry of entries) {
    owners.push(entry.header.uid);
    entry.resume();
  }
  return owners;
}
