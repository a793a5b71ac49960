// Webhooks that try to reach internal addresses: forbidden addresses in every notation, names that resolve to them or
// change, and redirects. A server on loopback must never be reached.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before } from 'node:test';
import { setTimeout } from 'node:timers/promises';

import { errors, type Wire } from '../support/client.ts';
import { type ServedAppliance, serveAppliance } from '../support/served-appliance.ts';
import { openZone, type Zone } from './names.ts';
import { attacks } from './table.ts';

const INSIDE = '127.0.0.1';
const OUTSIDE = '127.0.0.2';
const isRoot = process.getuid?.() === 0;
const skip = isRoot ? undefined : 'a private name server needs root';

let appliance: ServedAppliance;
let zone: Zone | undefined;
let project: string;
let inside: Server;
let outside: Server;
let port: number;
let reachedInside = 0;
let reachedOutside = 0;
/** What the receiver answers, by path. */
const redirects = new Map<string, { status: number; headers: Record<string, string> }>();

before(async () => {
  if (isRoot) zone = await openZone();
  appliance = await serveAppliance(
    { DOCKER_HOST: 'unix:///nonexistent/docker.sock', ASSAY_WEBHOOK_ALLOW: `${OUTSIDE}/32` },
    zone?.through,
  );
  project = (await appliance.project()).path;
  inside = createServer((request, response) => {
    request.resume();
    response.end('the inside');
  });
  inside.on('connection', () => {
    reachedInside += 1;
  });
  await once(inside.listen(0, INSIDE), 'listening');
  port = (inside.address() as AddressInfo).port;
  outside = createServer((request, response) => {
    request.resume();
    reachedOutside += 1;
    const { status, headers } = redirects.get(request.url ?? '') ?? { status: 204, headers: {} };
    response.writeHead(status, headers).end();
  });
  await once(outside.listen(port, OUTSIDE), 'listening');
});
after(async () => {
  await appliance?.close();
  zone?.close();
  inside?.close();
  outside?.close();
});

const create = (url: string) =>
  appliance.client.call('POST', `${project}/notifications`, {
    as: appliance.as,
    form: { notifiable_type: 'build', name: 'webhook', 'options[url]': url },
  });

const spelled = [
  // Loopback in all notations of IPv4.
  'http://127.0.0.1/',
  'http://127.1/',
  'http://127.0.1/',
  'http://2130706433/',
  'http://0x7f000001/',
  'http://0x7f.0.0.1/',
  'http://0177.0.0.1/',
  'http://017700000001/',
  'http://0x7f.1/',
  'http://127.0.0.1./',
  'http://127.255.255.254/',
  'http://127。0。0。1/',
  'http://①②⑦.0.0.1/',
  'http://１２７.0.0.1/',
  'http://%31%32%37.0.0.1/',
  'http://127.0.0.1:443/',
  'http://127.000.000.001/',
  'http://0x7F.0X0.0x0.0x1/',
  'http://00000177.0.0.1/',
  // IPv4 addresses inside IPv6.
  'http://[::1]/',
  'http://[0:0:0:0:0:0:0:1]/',
  'http://[::0001]/',
  'http://[::ffff:127.0.0.1]/',
  'http://[::ffff:7f00:1]/',
  'http://[::127.0.0.1]/',
  'http://[::7f00:1]/',
  'http://[64:ff9b::127.0.0.1]/',
  'http://[64:ff9b:1::7f00:1]/',
  'http://[2002:7f00:1::]/',
  'http://[::ffff:0:127.0.0.1]/',
  'http://[2001:0:0:0:0:0:80ff:fffe]/',
  'http://[0:0:0:0:0:ffff:7f00:0001]/',
  // Other forbidden addresses.
  'http://0.0.0.0/',
  'http://0/',
  'http://00/',
  'http://0x0/',
  'http://0.1.2.3/',
  'http://[::]/',
  'http://169.254.169.254/latest/meta-data/',
  'http://169.254.0.1/',
  'http://2852039166/',
  'http://0xa9fea9fe/',
  'http://0251.0376.0251.0376/',
  'http://[::ffff:169.254.169.254]/',
  'http://[::ffff:a9fe:a9fe]/',
  'http://[fe80::1]/',
  'http://[fe80::1%25eth0]/',
  'http://[febf::1]/',
  'http://224.0.0.1/',
  'http://239.255.255.255/',
  'http://[ff02::1]/',
  'http://255.255.255.255/',
  'http://4294967295/',
  'http://[64:ff9b::a9fe:a9fe]/',
  'http://[2002:a9fe:a9fe::1]/',
  // Not a URL of a receiver.
  'file:///etc/passwd',
  'gopher://127.0.0.1:70/_x',
  'ftp://example.org/',
  'unix:///var/run/docker.sock',
  'http+unix://%2Fvar%2Frun%2Fdocker.sock/',
  'javascript:alert(1)',
  'data:text/plain,x',
  'dict://example.org:11211/',
  'ldap://example.org/',
  'ws://example.org/',
  '//example.org/',
  'http:example.org',
  'http:/example.org',
  'http:///example.org',
  'http:\\\\example.org',
  'http://example.org\\@127.0.0.1/',
  'http://user@example.org/',
  'http://user:secret@example.org/',
  'http://127.0.0.1@example.org/',
  'http://example.org@127.0.0.1/',
  'http://@127.0.0.1/',
  'http://example.org:0/',
  'http://example.org:65536/',
  'http://example.org:-1/',
  'http://exa mple.org/',
  'http://example.org/\r\nX: y',
  'http://example.org/\nHost: y',
  'http://example.org/\u0000',
  '\thttp://example.org/',
  'http://\texample.org/',
  'http://',
  'http://#',
  'http://?',
  'http://[::1',
  'http://[',
  `http://example.org/${'a'.repeat(2_100)}`,
  'http://%00/',
  'http://a%2fb/',
  'http://999.1.1.1/',
  'http://1.2.3.4.5/',
];
attacks('a forbidden address in any notation is refused at once', spelled, async url => {
  const answer = await create(url);
  assert.deepEqual([answer.status, answer.json], [403, errors('options[url]', 'invalid_format')]);
});

type Attempt = { status: unknown; error: string };

/** Sends a test event and waits for the result of its first attempt. */
async function attempt(url: string): Promise<Attempt> {
  const made = await create(url);
  assert.equal(made.status, 201, made.text);
  const path = `${project}/notifications/${made.record.id_str}`;
  await appliance.ask('POST', `${path}/test`);
  // There is no event for an attempt, so it is polled.
  const deadlineAt = Date.now() + 30_000;
  let tried: Wire | undefined;
  while (tried === undefined && Date.now() < deadlineAt) {
    const [first] = (await appliance.client.get(`${path}/deliveries`, appliance.as)).list as [Wire];
    if ((first.attempts as number) > 0) tried = first;
    else await setTimeout(20);
  }
  assert.ok(tried, 'no attempt was made');
  await appliance.ask('DELETE', path);
  return { status: tried.response_status, error: String(tried.last_error ?? '') };
}

const names: Record<string, string[]> = {
  loopback: [INSIDE],
  'the whole loopback range': ['127.9.9.9'],
  'IPv6 loopback': ['::1'],
  'loopback as an IPv4-mapped address': ['::ffff:127.0.0.1'],
  'loopback through NAT64': ['64:ff9b::7f00:1'],
  'loopback through 6to4': ['2002:7f00:1::1'],
  'the metadata service': ['169.254.169.254'],
  'the metadata service as an IPv4-mapped address': ['::ffff:169.254.169.254'],
  'a link-local neighbour': ['fe80::1'],
  'the unspecified address': ['0.0.0.0'],
  'the unspecified IPv6 address': ['::'],
  'a group': ['224.0.0.1'],
  everyone: ['255.255.255.255'],
  'only forbidden addresses': [INSIDE, '::1', '169.254.169.254'],
};
let counter = 0;
attacks(
  'a name that resolves to a forbidden address is refused when connecting',
  names,
  async to => {
    const name = `leads-${++counter}.test`;
    zone?.lead(name, () => to);
    const [insideBefore, outsideBefore] = [reachedInside, reachedOutside];
    const { status, error } = await attempt(`http://${name}:${port}/`);
    assert.equal(status, null);
    assert.match(error, /address; an administrator may allow it with ASSAY_WEBHOOK_ALLOW$/);
    assert.deepEqual([reachedInside, reachedOutside], [insideBefore, outsideBefore]);
  },
  { skip },
);

const rebinding: Record<string, (lookup: number) => string[]> = {
  'allowed first, forbidden from then on': lookup => [lookup === 0 ? OUTSIDE : INSIDE],
  'forbidden first, allowed from then on': lookup => [lookup === 0 ? INSIDE : OUTSIDE],
  'allowed and forbidden alternately': lookup => [lookup % 2 === 0 ? OUTSIDE : INSIDE],
  'both at once, forbidden first': () => [INSIDE, OUTSIDE],
  'both at once, allowed first': () => [OUTSIDE, INSIDE],
  'both at once, over IPv6 too': () => ['::1', INSIDE, OUTSIDE],
};
attacks(
  'a name that changes its address never reaches a forbidden one',
  rebinding,
  async to => {
    const name = `changes-${++counter}.test`;
    zone?.lead(name, to);
    const before = reachedInside;
    // Three notifications, for both new and kept connections.
    for (let turn = 0; turn < 3; turn += 1) {
      const { status, error } = await attempt(`http://${name}:${port}/`);
      assert.ok(status === 204 || /may allow it with ASSAY_WEBHOOK_ALLOW/.test(error), `${status} ${error}`);
    }
    assert.equal(reachedInside, before, 'the internal server was reached');
  },
  { skip },
);

const locations = (): Record<string, string> => ({
  loopback: 'http://127.0.0.1:PORT/inside',
  'loopback by name': 'http://localhost:PORT/inside',
  'loopback in decimal': 'http://2130706433:PORT/inside',
  'the metadata service': 'http://169.254.169.254/latest/meta-data/',
  'a file': 'file:///etc/passwd',
  itself: '/again',
  'a host without a scheme': '//127.0.0.1:PORT/inside',
});
const redirecting = Object.fromEntries(
  [301, 302, 303, 307, 308].flatMap(status =>
    Object.entries(locations()).map(([to, location]) => [`${status} to ${to}`, { status, location }]),
  ),
);
attacks('a redirect is a response, and is never followed', redirecting, async ({ status, location }) => {
  const path = `/redirect-${++counter}`;
  redirects.set(path, {
    status,
    headers: { location: location.replace('PORT', String(port)), refresh: '0' },
  });
  const [insideBefore, outsideBefore] = [reachedInside, reachedOutside];
  const answered = await attempt(`http://${OUTSIDE}:${port}${path}`);
  assert.equal(answered.status, status);
  assert.deepEqual([reachedInside, reachedOutside], [insideBefore, outsideBefore + 1]);
});
