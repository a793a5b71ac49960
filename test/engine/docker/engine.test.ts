// Starting, finding again and cleaning up, and telling a dead engine from a missing image.
import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { type ContainerStorage, createEngine } from '../../../src/engine/docker/container.ts';
import { EngineRefused, EngineUnavailable, ImageMissing } from '../../../src/engine/docker/docker.ts';
import { follow, openRoom, type Room } from './room.ts';

describe('the engine', () => {
  let room: Room;
  before(async () => {
    room = await openRoom();
  });
  after(() => room.close());

  it('tells its version', async () => {
    const { engine, api } = await room.engine.version();
    assert.match(engine, /^\d+\./);
    assert.match(api, /^1\.\d+$/);
  });

  it('starts a plan once, however often it is asked to', async () => {
    const { file, nonce, plan } = await room.begin('echo once; sleep 1000');
    const containerId = await room.engine.startContainer(plan);
    for await (const record of follow(file, nonce)) if (record.kind === 'bytes') break;
    assert.equal(await room.engine.startContainer(plan), containerId);
    const state = await room.engine.inspectContainer(containerId);
    assert.equal(state?.running, true);
    assert.equal(state.exitCode, undefined);
    assert.ok(state.startedAt);
    await room.engine.stopContainer(containerId);
    await room.engine.stopContainer(containerId);
    assert.equal((await room.engine.waitForExit(containerId))?.exitCode, 137);
  });

  it('starts a container that was created before a crash and never started', async () => {
    const { file, nonce, plan } = await room.begin('echo late');
    const other = createEngine({ dockerHost: await engineThatDiesAtStart() });
    await assert.rejects(other.startContainer(plan), EngineUnavailable);
    const [left] = (await room.engine.listContainers(room.instance)).filter(({ name }) => name === plan.name);
    assert.equal(left?.running, false);
    assert.equal((await room.engine.inspectContainer(left.containerId))?.exitCode, undefined);
    assert.equal(await room.engine.startContainer(plan), left.containerId);
    for await (const record of follow(file, nonce)) {
      if (record.kind === 'bytes') assert.equal(record.bytes.toString(), 'late\n');
    }
  });

  it('leaves a container of the same name alone that is not its own', async () => {
    const { plan } = await room.begin('true');
    await room.engine.startContainer(plan);
    await assert.rejects(
      room.engine.startContainer({ ...plan, labels: { ...plan.labels, id: 'another' } }),
      /not ours/,
    );
  });

  it("lists only its own instance's, and measures what they wrote", async () => {
    const { plan, file, nonce } = await room.begin(
      'head -c 3000000 /dev/urandom >blob; sync blob; echo written; sleep 1000',
    );
    const containerId = await room.engine.startContainer(plan);
    for await (const record of follow(file, nonce)) if (record.kind === 'bytes') break;
    const ours = (listed: ContainerStorage[]) => listed.find(({ owner }) => owner.id === plan.labels.id);
    const size = ours(await room.engine.listStorage(room.instance, { layers: true }))?.layerBytes;
    assert.ok(size && size >= 3_000_000 && size < 4_000_000, String(size));
    assert.equal(ours(await room.engine.listStorage(room.instance, { layers: false }))?.layerBytes, 0);
    assert.deepEqual(await room.engine.listStorage(`${room.instance}-other`, { layers: true }), []);
    assert.deepEqual(await room.engine.listContainers(`${room.instance}-other`), []);
    const mine = (await room.engine.listContainers(room.instance)).find(
      item => item.containerId === containerId,
    );
    assert.deepEqual(mine?.owner, plan.labels);
    await room.engine.removeContainer(containerId);
    await room.engine.removeContainer(containerId);
    assert.equal(await room.engine.inspectContainer(containerId), undefined);
    assert.equal(await room.engine.waitForExit(containerId), undefined);
    assert.equal(ours(await room.engine.listStorage(room.instance, { layers: true })), undefined);
  });

  it('stops waiting when told to', async () => {
    const { plan } = await room.begin('sleep 1000');
    const containerId = await room.engine.startContainer(plan);
    const stop = new AbortController();
    const waiting = room.engine.waitForExit(containerId, stop.signal);
    stop.abort(new Error('enough'));
    await assert.rejects(waiting, /enough/);
  });

  it('tells a missing image, a plan that Docker refuses, and leaves nothing of either', async () => {
    const { plan } = await room.begin('true');
    await assert.rejects(room.engine.startContainer({ ...plan, image: 'assay/none:such' }), ImageMissing);
    await assert.rejects(
      room.engine.startContainer({
        ...plan,
        mounts: [{ type: 'bind', source: '/no/such/place', target: '/x', readOnly: true }],
      }),
      EngineRefused,
    );
    await assert.rejects(room.engine.startContainer({ ...plan, network: 'no-such-network' }), EngineRefused);
    const left = (await room.engine.listContainers(room.instance)).filter(({ name }) => name === plan.name);
    assert.deepEqual(left, []);
  });

  it('tells in words that nothing answers', async () => {
    const away = createEngine({ dockerHost: `unix://${join(room.directory, 'no.sock')}` });
    await assert.rejects(away.version(), (error: Error) => {
      assert.ok(error instanceof EngineUnavailable);
      assert.match(error.message, /is Docker running/);
      return true;
    });
    const closed = createEngine({ dockerHost: 'tcp://127.0.0.1:1' });
    await assert.rejects(closed.version(), EngineUnavailable);
    assert.throws(() => createEngine({ dockerHost: 'ssh://somewhere' }), /DOCKER_HOST must be/);
  });

  it('gives up on an engine that does not answer', async () => {
    const dockerHost = await fakeEngine(() => {});
    await assert.rejects(createEngine({ dockerHost, deadlineMs: 50 }).version(), /did not answer in time/);
  });

  it('notices that the engine died while it waited, and that a wait hung', async () => {
    let inspected = 0;
    let died = false;
    const dockerHost = await fakeEngine((path, answer, hangUp) => {
      if (path.endsWith('/wait')) return died ? hangUp() : undefined;
      inspected += 1;
      if (inspected === 3) died = true;
      if (inspected > 3) return hangUp();
      answer({ State: { Running: true, Status: 'running', StartedAt: new Date().toISOString() } });
    });
    const waiting = createEngine({ dockerHost, watchIntervalMs: 50 }).waitForExit('x');
    await assert.rejects(waiting, EngineUnavailable);
    assert.equal(inspected, 4);
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
    const path = join(room.directory, `fake-${servers.push(server)}.sock`);
    await new Promise<void>(resolve => server.listen(path, resolve));
    return `unix://${path}`;
  }

  /** The real one up to the creation; then the line is cut, as when the server or the engine is killed. */
  async function engineThatDiesAtStart(): Promise<string> {
    const server = createServer(async (request, response) => {
      if (request.url?.includes('/start')) {
        request.socket.destroy();
        return;
      }
      if (request.url?.includes('/info')) {
        response.end(JSON.stringify(await room.engine.door.docker.info()));
        return;
      }
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const created = await room.engine.door.docker.createContainer({
        ...JSON.parse(Buffer.concat(chunks).toString()),
        name: new URL(request.url ?? '', 'http://engine').searchParams.get('name') ?? '',
      });
      response.writeHead(201, { 'content-type': 'application/json' }).end(JSON.stringify({ Id: created.id }));
    });
    const path = join(room.directory, `dying-${servers.push(server)}.sock`);
    await new Promise<void>(resolve => server.listen(path, resolve));
    return `unix://${path}`;
  }
});
