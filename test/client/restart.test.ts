// Commands that follow a build while its server is killed and started again.
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { runAssay, type Serving, serve } from '../cli/program.ts';
import { clearDocker, containersUntil, docker, makeData } from '../support/appliance.ts';
import { basic, createClient } from '../support/client.ts';
import { createJourney } from '../support/journey.ts';
import { startSshd } from '../support/sshd.ts';
import { startClient } from './fixture.ts';

/** Prints lines with characters of several bytes, until a file appears. */
const COMMAND =
  'i=0; until [ -e /tmp/go ]; do echo "zeile $i: äöü€"; i=$((i+1)); sleep 0.02; done; echo the end; exit 7';

test('logs -f and watch go on when the server is killed and started again: at the byte, with the result', async () => {
  const env = { ASSAY_NETWORK: 'none', ASSAY_MIN_FREE_DISK: '1MiB' };
  const sshd = await startSshd();
  const data = makeData(sshd);
  let server: Serving | undefined;
  let instance = '';
  try {
    const added = await runAssay(['user', 'add', 'owner@example.org', '--json', '--data', data]);
    const { email, api_key: key } = JSON.parse(added.stdout);
    server = await serve(data, { env });
    const { port } = server;
    const caFile = join(data, 'tls', 'ca.pem');
    const client = createClient(`https://127.0.0.1:${port}`, await readFile(caFile, 'utf8'));
    const journey = createJourney({ client, as: basic(email, key), sshd });
    const project = await journey.project();
    await project.suite({ name: 'unit', command: COMMAND });
    const requestId = await project.request();
    const buildId = (await project.buildOf(requestId)).id_str as string;
    const signedIn = {
      ASSAY_URL: client.origin,
      ASSAY_TOKEN: `${email}:${key}`,
      ASSAY_CA_FILE: caFile,
    };
    const start = (...args: string[]) => startClient([...args, '--project', project.id], { env: signedIn });
    const [logs, timed, watch] = await Promise.all([
      start('logs', '-f', buildId),
      start('logs', '-f', '--times', buildId),
      start('watch', requestId),
    ]);
    await Promise.all([logs.until('zeile 20:'), timed.until('zeile 20:'), watch.until('unit: running')]);
    const [name = ''] = (await docker('ps', '--format', '{{.Names}}'))
      .split('\n')
      .filter(one => one.includes(buildId));
    instance = /^assay-([0-9a-f]+)-build-/.exec(name)?.[1] ?? '';
    client.close();
    await server.end('SIGKILL');
    await Promise.all([logs, timed].map(one => one.until('connection lost, trying again')));
    server = await serve(data, { env, port });
    await Promise.all([logs, timed].map(one => one.until('connected again')));
    await docker('exec', '--detach', name, 'touch', '/tmp/go');
    const [ended, timedEnd, watched] = await Promise.all([logs.ended, timed.ended, watch.ended]);
    assert.deepEqual(
      [ended.status, timedEnd.status, watched.status],
      [1, 1, 1],
      ended.stderr + watched.stderr,
    );
    const again = createClient(`https://127.0.0.1:${port}`, await readFile(caFile, 'utf8'));
    const log = await createJourney({ client: again, as: basic(email, key), sshd })
      .knownProject(project.id)
      .log(buildId);
    again.close();
    assert.match(log, /^the end\n\[assay\] the command exited with 7\n$/m);
    assert.equal(ended.stdout, log, 'every byte once');
    assert.equal(timedEnd.stdout.replaceAll(/^\d\d:\d\d:\d\d {2}/gm, ''), log);
  } finally {
    await server?.end('SIGKILL');
    await sshd.close();
    if (instance !== '') {
      await clearDocker(instance);
      await containersUntil(instance, names => names.length === 0);
    }
    rmSync(data, { recursive: true, force: true });
  }
});
