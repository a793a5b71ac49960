// Starting, finding and removing containers, and distinguishing a dead engine from a missing image.
import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { inspectDocker } from '../../../src/engine/docker/report.ts';
import {
  type ContainerStorage,
  EngineRefused,
  EngineUnavailable,
  ImageMissing,
  NetworkMissing,
} from '../../../src/engine/engine.ts';
import { DOCKER_HOST, type Fixture, follow, openFixture } from './fixture.ts';

describe('the engine', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture();
  });
  after(() => fixture.close());

  it('reports its version', async () => {
    const { engine, api } = await inspectDocker(DOCKER_HOST);
    assert.match(engine, /^\d+\./);
    assert.match(api, /^1\.\d+$/);
  });

  it('starts a plan once, however often it is called', async () => {
    const { file, nonce, plan } = await fixture.begin('echo once; sleep 1000');
    const containerId = await fixture.engine.startContainer(plan);
    for await (const record of follow(file, nonce)) if (record.kind === 'bytes') break;
    assert.equal(await fixture.engine.startContainer(plan), containerId);
    const state = await fixture.engine.inspectContainer(containerId);
    assert.equal(state?.running, true);
    assert.equal(state.exitCode, undefined);
    assert.ok(state.startedAt);
    await fixture.engine.stopContainer(containerId);
    await fixture.engine.stopContainer(containerId);
    assert.equal((await fixture.engine.waitForExit(containerId))?.exitCode, 137);
  });

  it('gives each container of an image an output of its own, also while others write', async () => {
    const words = ['one', 'two', 'three', 'four'];
    const results = await Promise.all(
      words.map(word => fixture.run(`for i in $(seq 2000); do echo ${word}; done`)),
    );
    assert.deepEqual(
      results.map(({ text }) => text),
      words.map(word => `${word}\n`.repeat(2_000)),
    );
  });

  it('ends although a daemon of the command holds the pipe of the output open', async () => {
    const { exit, text } = await fixture.run(
      'setsid sleep 1000 >/srv/.assay/pipe & echo done; ls -l /srv/.assay/pipe | cut -c1; exit 3',
    );
    assert.equal(exit?.status, 3);
    assert.equal(text, 'done\np\n');
  });

  it('starts a container that a crashed server created and did not start', async () => {
    const { file, nonce, plan } = await fixture.begin('echo late');
    const other = fixture.openEngine({ dockerHost: await engineThatDiesAtStart() });
    await assert.rejects(other.startContainer(plan), EngineUnavailable);
    const [left] = (await fixture.engine.listContainers()).filter(({ name }) => name === plan.name);
    assert.equal(left?.running, false);
    assert.equal((await fixture.engine.inspectContainer(left.containerId))?.exitCode, undefined);
    assert.equal(await fixture.engine.startContainer(plan), left.containerId);
    for await (const record of follow(file, nonce)) {
      if (record.kind === 'bytes') assert.equal(record.bytes.toString(), 'late\n');
    }
  });

  it('does not touch a foreign container of the same name', async () => {
    const { plan } = await fixture.begin('true');
    await fixture.engine.startContainer(plan);
    await assert.rejects(
      fixture.engine.startContainer({ ...plan, owner: { ...plan.owner, id: 'another' } }),
      /does not belong to this server/,
    );
  });

  it('lists only containers of its own instance, and measures what they wrote', async () => {
    const { plan, file, nonce } = await fixture.begin(
      'head -c 3000000 /dev/urandom >blob; sync blob; echo written; sleep 1000',
    );
    const containerId = await fixture.engine.startContainer(plan);
    for await (const record of follow(file, nonce)) if (record.kind === 'bytes') break;
    const ours = (listed: ContainerStorage[]) => listed.find(({ owner }) => owner.id === plan.owner.id);
    const size = ours(await fixture.engine.listStorage({ layers: true }))?.layerBytes;
    assert.ok(size && size >= 3_000_000 && size < 4_000_000, String(size));
    assert.equal(ours(await fixture.engine.listStorage({ layers: false }))?.layerBytes, 0);
    const other = fixture.openEngine({ instance: `${fixture.instance}-other` });
    assert.deepEqual(await other.listStorage({ layers: true }), []);
    assert.deepEqual(await other.listContainers(), []);
    const mine = (await fixture.engine.listContainers()).find(item => item.containerId === containerId);
    assert.deepEqual(mine?.owner, plan.owner);
    await fixture.engine.removeContainer(containerId);
    await fixture.engine.removeContainer(containerId);
    assert.equal(await fixture.engine.inspectContainer(containerId), undefined);
    assert.equal(await fixture.engine.waitForExit(containerId), undefined);
    assert.equal(ours(await fixture.engine.listStorage({ layers: true })), undefined);
  });

  it('stops waiting when it is aborted', async () => {
    const { plan } = await fixture.begin('sleep 1000');
    const containerId = await fixture.engine.startContainer(plan);
    const stop = new AbortController();
    const waiting = fixture.engine.waitForExit(containerId, stop.signal);
    stop.abort(new Error('enough'));
    await assert.rejects(waiting, /enough/);
  });

  it('reports a missing image and a plan that Docker refuses, and leaves nothing of either behind', async () => {
    const { plan } = await fixture.begin('true');
    await assert.rejects(fixture.engine.startContainer({ ...plan, image: 'assay/none:such' }), ImageMissing);
    await assert.rejects(
      fixture.engine.startContainer({
        ...plan,
        mounts: [{ type: 'bind', source: '/no/such/place', target: '/x', readOnly: true }],
      }),
      EngineRefused,
    );
    await assert.rejects(
      fixture.engine.startContainer({ ...plan, network: 'no-such-network' }),
      NetworkMissing,
    );
    const left = (await fixture.engine.listContainers()).filter(({ name }) => name === plan.name);
    assert.deepEqual(left, []);
  });

  it('reports clearly that nothing answers', async () => {
    const away = fixture.openEngine({ dockerHost: `unix://${join(fixture.directory, 'no.sock')}` });
    await assert.rejects(away.ping(), (error: Error) => {
      assert.ok(error instanceof EngineUnavailable);
      assert.match(error.message, /is Docker running/);
      return true;
    });
    const closed = fixture.openEngine({ dockerHost: 'tcp://127.0.0.1:1' });
    await assert.rejects(closed.ping(), EngineUnavailable);
  });

  it('gives up on an engine that does not answer', async () => {
    const dockerHost = await fakeEngine(() => {});
    await assert.rejects(
      fixture.openEngine({ dockerHost, deadlineMs: 50 }).ping(),
      /did not respond in time/,
    );
  });

  it('notices that the engine died, or that a request hung, while it waited', async () => {
    let inspected = 0;
    let died = false;
    const dockerHost = await fakeEngine((path, answer, hangUp) => {
      if (path.endsWith('/wait')) return died ? hangUp() : undefined;
      inspected += 1;
      if (inspected === 3) died = true;
      if (inspected > 3) return hangUp();
      answer({ State: { Running: true, Status: 'running', StartedAt: new Date().toISOString() } });
    });
    const waiting = fixture.openEngine({ dockerHost, watchIntervalMs: 50 }).waitForExit('x');
    await assert.rejects(waiting, EngineUnavailable);
    assert.equal(inspected, 4);
  });

  it('removes a container that ended by itself just before Docker killed it', async () => {
    const statuses = [500, 204];
    const dockerHost = await fakeEngine((_, answer) =>
      answer(
        { message: 'Could not kill running container x, cannot remove - Container x is not running' },
        statuses.shift(),
      ),
    );
    await fixture.openEngine({ dockerHost }).removeContainer('x');
    assert.deepEqual(statuses, []);
  });

  const servers: Server[] = [];
  after(() => {
    for (const server of servers) {
      server.closeAllConnections();
      server.close();
    }
  });

  type Answer = (body: object, status?: number) => void;
  async function fakeEngine(
    handle: (path: string, answer: Answer, hangUp: () => void) => void,
  ): Promise<string> {
    const server = createServer((request, response) => {
      const { pathname } = new URL(request.url ?? '/', 'http://engine');
      const answer: Answer = (body, status = 200) => {
        response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
      };
      handle(pathname, answer, () => request.socket.destroy());
    });
    const path = join(fixture.directory, `fake-${servers.push(server)}.sock`);
    await new Promise<void>(resolve => server.listen(path, resolve));
    return `unix://${path}`;
  }

  /**
   * Forwards to the real engine until a container is created; then cuts the connection, as if the server or the engine
   * were killed.
   */
  async function engineThatDiesAtStart(): Promise<string> {
    const server = createServer(async (request, response) => {
      if (request.url?.includes('/start')) {
        request.socket.destroy();
        return;
      }
      if (request.url?.includes('/info')) {
        response.end(JSON.stringify(await fixture.docker.info()));
        return;
      }
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const created = await fixture.docker.createContainer({
        ...JSON.parse(Buffer.concat(chunks).toString()),
        name: new URL(request.url ?? '', 'http://engine').searchParams.get('name') ?? '',
      });
      response.writeHead(201, { 'content-type': 'application/json' }).end(JSON.stringify({ Id: created.id }));
    });
    const path = join(fixture.directory, `dying-${servers.push(server)}.sock`);
    await new Promise<void>(resolve => server.listen(path, resolve));
    return `unix://${path}`;
  }
});
