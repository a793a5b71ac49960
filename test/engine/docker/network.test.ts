// What a container can reach on Assay's own bridge: not the host, not its neighbours, nothing link-local.
import assert from 'node:assert/strict';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { after, before, describe, it, test } from 'node:test';
import { createEngine } from '../../../src/engine/docker/container.ts';
import { EngineRefused } from '../../../src/engine/docker/docker.ts';
import { createNetwork, type Network } from '../../../src/engine/docker/network.ts';
import { createPrivateEngine } from '../../drill/support/engine.ts';
import { containersUntil } from '../../support/appliance.ts';
import { hostAddresses } from '../../support/host-addresses.ts';
import { follow, openRoom, type Room } from './room.ts';

const RULES = 4;
const attempt = (host: string, port: number, seconds = 3) =>
  `timeout ${seconds} bash -c 'exec 3<>/dev/tcp/${host}/${port}' 2>/dev/null && echo "${host} reached" || echo "${host} refused"`;

describe("Assay's own bridge", () => {
  let room: Room;
  let own: Network;
  let network: string;
  let server: Server;
  let port: number;
  before(async () => {
    room = await openRoom();
    own = networkOf(room, 'bridge');
    network = await own.ensure();
    await own.protect(network);
    // Who only tries to connect hangs up with the greeting unread, and that resets the connection.
    server = createServer(socket => socket.on('error', () => socket.destroy()).end('hello'));
    await new Promise<void>(resolve => server.listen(0, '0.0.0.0', resolve));
    const address = server.address();
    assert.ok(address && typeof address === 'object');
    port = address.port;
  });
  after(async () => {
    server.close();
    own.close();
    await room.close();
    const removing = networkOf(room, 'bridge');
    const { names, rules } = await removing.remove();
    assert.deepEqual(names, [network]);
    // With the one of ip6tables, where that works.
    assert.ok(rules === RULES || rules === RULES + 1, String(rules));
    assert.equal(await countRules(room, network), 0);
    removing.close();
    await containersUntil(room.instance, names => names.length === 0);
    const left = await room.engine.listContainers(room.instance);
    assert.deepEqual(left, []);
  });

  it('lets no container reach a port of the host, on any of its addresses', async () => {
    const found = await room.engine.door.docker.getNetwork(network).inspect();
    const addresses = [...hostAddresses(), found.IPAM?.Config?.[0]?.Gateway as string];
    assert.ok(addresses.length > 1);
    const tries = addresses.map(address => attempt(address, port)).join('\n');
    const { text } = await room.run(tries, { network });
    assert.equal(text, addresses.map(address => `${address} refused\n`).join(''));
    // On Docker's own bridge the same attempt succeeds: it is the rules that refuse, not the attempt that is wrong.
    const control = await room.run(attempt(addresses[0]!, port, 30), { network: 'bridge' });
    assert.equal(control.text, `${addresses[0]} reached\n`);
  });

  it('refuses link-local addresses at once', async () => {
    const { text } = await room.run(
      `timeout 20 perl -MIO::Socket::INET -e 'IO::Socket::INET->new(PeerAddr => "169.254.169.254:80") or print "$!\\n"'`,
      { network },
    );
    assert.equal(text, 'Connection refused\n');
  });

  it('lets no container reach another', async () => {
    const listener = await room.begin(
      `perl -MIO::Socket::INET -MSocket -e '$| = 1; $s = IO::Socket::INET->new(Listen => 5, LocalPort => 4000) or die; print "ready\\n"; while ($c = $s->accept) { close $c }'`,
      { network },
    );
    const containerId = await room.engine.startContainer(listener.plan);
    for await (const record of follow(listener.file, listener.nonce)) if (record.kind === 'bytes') break;
    const found = await room.engine.door.docker.getContainer(containerId).inspect();
    const address = found.NetworkSettings.Networks[network]?.IPAddress;
    assert.ok(address);
    const { text } = await room.run(attempt(address, 4000), { network });
    assert.equal(text, `${address} refused\n`);
    await room.engine.removeContainer(containerId);
  });

  it('is made once, however often it is asked for', async () => {
    assert.equal(await own.ensure(), network);
    assert.equal(await own.protect(network), 'intact');
    const found = await room.engine.door.docker.listNetworks({
      filters: { label: [`assay.instance=${room.instance}`] },
    });
    assert.equal(found.length, 1);
    assert.equal(await countRules(room, network), RULES);
  });

  it("needs no bridge when the setting says none, and refuses a network that is not there, and the host's", async () => {
    assert.equal(await networkOf(room, 'none').ensure(), 'none');
    await assert.rejects(networkOf(room, 'no-such-net').ensure(), /no network no-such-net/);
    await assert.rejects(networkOf(room, 'host').ensure(), /refused/);
  });

  it('is refused where Docker runs rootless, since no rule would hold there', async () => {
    const asked: string[] = [];
    const rootless = createHttpServer((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ SecurityOptions: ['name=seccomp,profile=default', 'name=rootless'] }));
    });
    await new Promise<void>(resolve => rootless.listen(0, '127.0.0.1', resolve));
    try {
      const { port: itsPort } = rootless.address() as AddressInfo;
      const { door } = createEngine({ dockerHost: `tcp://127.0.0.1:${itsPort}`, environment: {} });
      await assert.rejects(networkOf(room, 'bridge', door).ensure(), /rootless.*NETWORK to none/);
      assert.equal(await networkOf(room, 'none', door).ensure(), 'none');
      assert.deepEqual(asked, ['GET /info']);
    } finally {
      rootless.close();
    }
  });
});

test('Where Docker has no addresses left for a network, it is told what to do', {
  skip: process.getuid?.() !== 0 && 'an engine of its own takes root',
}, async t => {
  const engine = await createPrivateEngine({
    bytes: 300 * 1024 ** 2,
    ownNetwork: true,
    // One range for Docker's own bridge, and one for a network.
    flags: ['--default-address-pool', 'base=10.214.0.0/23,size=24'],
  });
  let room: Room | undefined;
  t.after(async () => {
    await room?.close();
    await engine.close();
  });
  room = await openRoom(engine.dockerHost);
  await engine.docker('network', 'create', 'taken');
  const network = networkOf(room, 'bridge');
  await assert.rejects(network.ensure(), (error: unknown) => {
    assert.ok(error instanceof EngineRefused);
    assert.match(error.message, /docker network prune.*assay cleanup.*default-address-pools/);
    return true;
  });
  await engine.docker('network', 'rm', 'taken');
  assert.match(await network.ensure(), /^assay-/);
  assert.equal(await network.ensure(), await network.ensure(), 'one is enough');
});

const networkOf = (room: Room, setting: string, door = room.engine.door) =>
  createNetwork(door, { instance: room.instance, setting, hostImage: async () => room.host });

/** Asks the kernel through a container of the same kind that sets them: the tests need not be root either. */
async function countRules(room: Room, bridge: string): Promise<number> {
  const { docker } = room.engine.door;
  const container = await docker.createContainer({
    Image: room.host.reference,
    User: '0:0',
    Entrypoint: ['/bin/sh', '-c', `exit $(/usr/sbin/iptables -S | grep -c -- '-i ${bridge} .*--comment')`],
    Labels: { 'assay.instance': room.instance },
    HostConfig: {
      NetworkMode: 'host',
      UsernsMode: 'host',
      CapAdd: ['NET_ADMIN'],
      Mounts: room.host.mounts.map(({ source, target }) => ({
        Type: 'bind',
        Source: source,
        Target: target,
        ReadOnly: true,
      })),
    },
  });
  await container.start();
  const { StatusCode } = await container.wait();
  await container.remove({ force: true });
  return StatusCode;
}
