// What a container can reach on Assay's own bridge: neither the host, nor its neighbours, nor link-local addresses.
import assert from 'node:assert/strict';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { after, before, describe, it, test } from 'node:test';
import { EngineRefused } from '../../../src/engine/engine.ts';
import { createPrivateEngine } from '../../drill/support/engine.ts';
import { containersUntil } from '../../support/appliance.ts';
import { hostAddresses } from '../../support/host-addresses.ts';
import { type Fixture, follow, openFixture } from './fixture.ts';

const RULES = 4;
const attempt = (host: string, port: number, seconds = 3) =>
  `timeout ${seconds} bash -c 'exec 3<>/dev/tcp/${host}/${port}' 2>/dev/null && echo "${host} reached" || echo "${host} refused"`;

describe("Assay's own bridge", () => {
  let fixture: Fixture;
  let network: string;
  let server: Server;
  let port: number;
  before(async () => {
    fixture = await openFixture();
    network = await fixture.engine.ensureNetwork();
    await fixture.engine.protectNetwork();
    // A client that only connects closes with the greeting unread, which resets the connection.
    server = createServer(socket => socket.on('error', () => socket.destroy()).end('hello'));
    await new Promise<void>(resolve => server.listen(0, '0.0.0.0', resolve));
    const address = server.address();
    assert.ok(address && typeof address === 'object');
    port = address.port;
  });
  after(async () => {
    server.close();
    await fixture.close();
    const removing = fixture.openEngine();
    const { names, rules } = await removing.removeNetworks();
    assert.deepEqual(names, [network]);
    // Including the rule of ip6tables, where that works.
    assert.ok(rules === RULES || rules === RULES + 1, String(rules));
    assert.equal(await countRules(fixture, network), 0);
    await containersUntil(fixture.instance, names => names.length === 0);
    assert.deepEqual(await removing.listContainers(), []);
    removing.close();
  });

  it('lets no container reach a port of the host, on any of its addresses', async () => {
    const found = await fixture.docker.getNetwork(network).inspect();
    const addresses = [...hostAddresses(), found.IPAM?.Config?.[0]?.Gateway as string];
    assert.ok(addresses.length > 1);
    const tries = addresses.map(address => attempt(address, port)).join('\n');
    const { text } = await fixture.run(tries, { network });
    assert.equal(text, addresses.map(address => `${address} refused\n`).join(''));
    // On Docker's own bridge the same attempt succeeds: the rules block it here.
    const control = await fixture.run(attempt(addresses[0]!, port, 30), { network: 'bridge' });
    assert.equal(control.text, `${addresses[0]} reached\n`);
  });

  it('refuses link-local addresses at once', async () => {
    const { text } = await fixture.run(
      `timeout 20 perl -MIO::Socket::INET -e 'IO::Socket::INET->new(PeerAddr => "169.254.169.254:80") or print "$!\\n"'`,
      { network },
    );
    assert.equal(text, 'Connection refused\n');
  });

  it('lets no container reach another', async () => {
    const listener = await fixture.begin(
      `perl -MIO::Socket::INET -MSocket -e '$| = 1; $s = IO::Socket::INET->new(Listen => 5, LocalPort => 4000) or die; print "ready\\n"; while ($c = $s->accept) { close $c }'`,
      { network },
    );
    const containerId = await fixture.engine.startContainer(listener.plan);
    for await (const record of follow(listener.file, listener.nonce)) if (record.kind === 'bytes') break;
    await assert.rejects(
      fixture.engine.removeNetworks(),
      /does not remove the network .* a container is connected to it/,
    );
    const found = await fixture.docker.getContainer(containerId).inspect();
    const address = found.NetworkSettings.Networks[network]?.IPAddress;
    assert.ok(address);
    const { text } = await fixture.run(attempt(address, 4000), { network });
    assert.equal(text, `${address} refused\n`);
    await fixture.engine.removeContainer(containerId);
  });

  it('is created once, however often it is requested', async () => {
    assert.equal(await fixture.engine.ensureNetwork(), network);
    assert.equal(await fixture.engine.protectNetwork(), 'intact');
    const found = await fixture.docker.listNetworks({
      filters: { label: [`assay.instance=${fixture.instance}`] },
    });
    assert.equal(found.length, 1);
    assert.equal(await countRules(fixture, network), RULES);
  });

  it("is not needed with the setting none; a missing network and the host's network are refused", async () => {
    const ensure = (network: string) => fixture.openEngine({ network }).ensureNetwork();
    assert.equal(await ensure('none'), 'none');
    await assert.rejects(ensure('no-such-net'), /no network no-such-net/);
    await assert.rejects(ensure('host'), /NETWORK must not be host/);
  });

  it('is refused on rootless Docker, where no rule applies', async () => {
    const requests: string[] = [];
    const rootless = createHttpServer((request, response) => {
      requests.push(`${request.method} ${request.url}`);
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ SecurityOptions: ['name=seccomp,profile=default', 'name=rootless'] }));
    });
    await new Promise<void>(resolve => rootless.listen(0, '127.0.0.1', resolve));
    try {
      const { port: itsPort } = rootless.address() as AddressInfo;
      const ensure = (network: string) =>
        fixture
          .openEngine({ dockerHost: `tcp://127.0.0.1:${itsPort}`, environment: {}, network })
          .ensureNetwork();
      await assert.rejects(ensure('bridge'), /rootless.*NETWORK to none/);
      assert.equal(await ensure('none'), 'none');
      assert.deepEqual(requests, ['GET /info']);
    } finally {
      rootless.close();
    }
  });
});

test('Without free addresses for a network, the error says what to do', {
  skip: process.getuid?.() !== 0 && 'an engine of its own takes root',
}, async t => {
  const engine = await createPrivateEngine({
    bytes: 300 * 1024 ** 2,
    ownNetwork: true,
    // One range for Docker's own bridge, and one for a network.
    flags: ['--default-address-pool', 'base=10.214.0.0/23,size=24'],
  });
  let fixture: Fixture | undefined;
  t.after(async () => {
    await fixture?.close();
    await engine.close();
  });
  fixture = await openFixture(engine.dockerHost);
  await engine.docker('network', 'create', 'taken');
  const { engine: assay } = fixture;
  await assert.rejects(assay.ensureNetwork(), (error: unknown) => {
    assert.ok(error instanceof EngineRefused);
    assert.match(error.message, /docker network prune.*assay cleanup.*default-address-pools/);
    return true;
  });
  await engine.docker('network', 'rm', 'taken');
  const name = await assay.ensureNetwork();
  assert.match(name, /^assay-/);
  assert.equal(await assay.ensureNetwork(), name, 'one is enough');
});

/** Reads the rules through a container like the one that sets them, so that the tests need no root. */
async function countRules(fixture: Fixture, bridge: string): Promise<number> {
  const { docker } = fixture;
  const container = await docker.createContainer({
    Image: fixture.host.reference,
    User: '0:0',
    Entrypoint: ['/bin/sh', '-c', `exit $(/usr/sbin/iptables -S | grep -c -- '-i ${bridge} .*--comment')`],
    Labels: { 'assay.instance': fixture.instance },
    HostConfig: {
      NetworkMode: 'host',
      UsernsMode: 'host',
      CapAdd: ['NET_ADMIN'],
      Mounts: fixture.host.mounts.map(({ source, target }) => ({
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
