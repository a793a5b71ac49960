// Networks that are set up ahead: the next container joins one, and nothing of it stays behind.
import assert from 'node:assert/strict';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import type { Engine } from '../../../src/engine/engine.ts';
import { pollUntil } from '../../drill/support/poll.ts';
import { type Fixture, follow, openFixture, textOf } from './fixture.ts';

describe('a network that is set up ahead', () => {
  let fixture: Fixture;
  let engine: Engine;
  let network: string;
  before(async () => {
    fixture = await openFixture();
    engine = fixture.openEngine({ preparesNetworks: true });
    network = await engine.ensureNetwork();
  });
  after(async () => {
    await engine.removePrepared();
    await engine.removeNetworks();
    engine.close();
    await fixture.close();
  });

  const list = (filters: string[]) =>
    fixture.docker.listContainers({
      all: true,
      filters: { label: [`assay.instance=${fixture.instance}`, ...filters] },
    });
  const sandboxes = () => list(['assay.kind=sandbox']);
  const untilReady = async () => {
    const found = await pollUntil(30_000, sandboxes, all => all.some(({ State }) => State === 'running'), 50);
    assert.equal(found.length, 1);
    return found[0]!.Id;
  };
  const start = async (command: string) => {
    const { file, nonce, plan } = await fixture.begin(command, { network });
    const containerId = await engine.startContainer(plan);
    const { HostConfig } = await fixture.docker.getContainer(containerId).inspect();
    const end = async () => {
      await engine.waitForExit(plan.name);
      const records = [];
      for await (const record of follow(file, nonce, { gone: AbortSignal.abort() })) records.push(record);
      return textOf(records);
    };
    return { mode: HostConfig.NetworkMode, name: plan.name, end };
  };
  const run = async (command: string) => {
    const { mode, name, end } = await start(command);
    const text = await end();
    await engine.removeContainer(name);
    return { mode, text };
  };
  const SHOW = 'ls /sys/class/net; cut -d" " -f1 /proc/net/if_inet6; grep -c nameserver /etc/resolv.conf';

  it('is joined by the next container, which finds the same as in one of its own, and is removed with it', async () => {
    const own = await run(SHOW);
    assert.equal(own.mode, network);
    const first = await untilReady();
    const joined = await run(SHOW);
    assert.equal(joined.mode, `container:${first}`);
    assert.equal(joined.text, own.text);
    assert.match(own.text, /^eth0\nlo\n0+1\n1\n$/);
    assert.ok((await list([])).every(({ Id }) => Id !== first));
    // Each one is used once.
    assert.notEqual(await untilReady(), first);
  });

  it('is not made while a container runs', async () => {
    await untilReady();
    const running = await start('until [ -e /tmp/end ]; do sleep 0.1; done');
    const { mode } = await run('true');
    assert.equal(mode, network);
    assert.deepEqual(
      (await sandboxes()).map(({ Id }) => `container:${Id}`),
      [running.mode],
    );
    await engine.removeContainer(running.name);
    await untilReady();
  });

  it('is replaced by one of its own if it has ended', async () => {
    await fixture.docker.getContainer(await untilReady()).kill();
    const { mode, text } = await run('echo hello');
    assert.equal(mode, network);
    assert.equal(text, 'hello\n');
    await untilReady();
  });

  it('is kept by another process while a container uses it, and can be removed otherwise', async () => {
    const sandbox = await untilReady();
    const other = fixture.openEngine();
    const listed = async () => (await other.listContainers()).map(({ containerId }) => containerId);
    assert.ok((await listed()).includes(sandbox));
    const { name } = await start('sleep 100');
    assert.ok(!(await listed()).includes(sandbox));
    await other.removeContainer(name);
    assert.ok((await listed()).includes(sandbox));
    await engine.removeContainer(name);
    other.close();
  });

  it('is removed when the server stops, and no other one is made', async () => {
    await untilReady();
    await engine.removePrepared();
    assert.deepEqual(await sandboxes(), []);
    const now = () => Date.now() / 1000;
    const since = now();
    await run('true');
    // Waits for one that is being made.
    await engine.removePrepared();
    assert.deepEqual(await sandboxes(), []);
    const made = await fixture.docker.getEvents({
      since,
      until: now(),
      filters: {
        event: ['create'],
        label: [`assay.instance=${fixture.instance}`, 'assay.kind=sandbox'],
      },
    });
    assert.equal(await text(made), '');
  });
});
