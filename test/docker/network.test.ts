// What a container can reach on Assay's own bridge: not the host, not its neighbours, nothing link-local.
import assert from 'node:assert/strict';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { after, before, describe, it } from 'node:test';
import { createEngine } from '../../src/engine/container.ts';
import { ensureNetwork, removeNetwork } from '../../src/engine/network.ts';
import { follow, openRoom, type Room } from './room.ts';

const attempt = (host: string, port: number, seconds = 3) =>
  `timeout ${seconds} bash -c 'exec 3<>/dev/tcp/${host}/${port}' 2>/dev/null && echo "${host} reached" || echo "${host} refused"`;

describe("Assay's own bridge", () => {
  let room: Room;
  let network: string;
  let server: Server;
  let port: number;
  before(async () => {
    room = await openRoom();
    network = await ensureNetwork(room.engine.door, {
      instance: room.instance,
      setting: 'bridge',
      hostImage: room.host,
    });
    // Who only tries to connect hangs up with the greeting unread, and that resets the connection.
    server = createServer(socket => socket.on('error', () => socket.destroy()).end('hello'));
    await new Promise<void>(resolve => server.listen(0, '0.0.0.0', resolve));
    const address = server.address();
    assert.ok(address && typeof address === 'object');
    port = address.port;
  });
  after(async () => {
    server.close();
    await room.close();
    await removeNetwork(room.engine.door, { instance: room.instance, hostImage: room.host });
    const left = await room.engine.listContainers(room.instance);
    assert.deepEqual(left, []);
  });

  it('lets no container reach a port of the host, on any of its addresses', async () => {
    const addresses = Object.values(networkInterfaces())
      .flatMap(addresses => addresses ?? [])
      .filter(({ family, internal }) => family === 'IPv4' && !internal)
      .map(({ address }) => address);
    assert.ok(addresses.length > 0);
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
    const again = await ensureNetwork(room.engine.door, {
      instance: room.instance,
      setting: 'bridge',
      hostImage: room.host,
    });
    assert.equal(again, network);
    const found = await room.engine.door.docker.listNetworks({
      filters: { label: [`assay.instance=${room.instance}`] },
    });
    assert.equal(found.length, 1);
    assert.equal(await countRules(room, network), 2);
  });

  it("needs no bridge when the setting says none, and refuses a network that is not there, and the host's", async () => {
    const needs = { instance: room.instance, hostImage: room.host };
    assert.equal(await ensureNetwork(room.engine.door, { ...needs, setting: 'none' }), 'none');
    await assert.rejects(
      ensureNetwork(room.engine.door, { ...needs, setting: 'no-such-net' }),
      /no network no-such-net/,
    );
    await assert.rejects(ensureNetwork(room.engine.door, { ...needs, setting: 'host' }), /refused/);
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
      const needs = { instance: room.instance, hostImage: room.host };
      await assert.rejects(ensureNetwork(door, { ...needs, setting: 'bridge' }), /rootless.*NETWORK to none/);
      assert.equal(await ensureNetwork(door, { ...needs, setting: 'none' }), 'none');
      assert.deepEqual(asked, ['GET /info']);
    } finally {
      rootless.close();
    }
  });
});

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
