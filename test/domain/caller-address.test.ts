// The address of a caller, with and without proxies.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  callerAddress,
  callerNetwork,
  connectionNetwork,
  isForwardedPlain,
  isLoopback,
  UNKNOWN_ADDRESS,
} from '../../src/domain/caller-address.ts';
import { parseCidrs } from '../../src/domain/webhook/address.ts';

const trusted = parseCidrs('127.0.0.1, ::1, 10.0.0.0/8');
const PROXY = '127.0.0.1';

const cases: [title: string, connectedFrom: string, header: string | undefined, address: string][] = [
  ['a caller without a proxy', '192.0.2.1', undefined, '192.0.2.1'],
  ['a caller who is no proxy and says otherwise', '192.0.2.1', '127.0.0.1', '192.0.2.1'],
  ['a caller behind a proxy', PROXY, '192.0.2.1', '192.0.2.1'],
  ['a caller behind a proxy on a socket of both families', '::ffff:127.0.0.1', '192.0.2.1', '192.0.2.1'],
  [
    'a caller behind a proxy who wrote more to the left',
    PROXY,
    '127.0.0.1, 10.0.0.1, 192.0.2.1',
    '192.0.2.1',
  ],
  ['a caller behind two proxies', PROXY, '192.0.2.1, 10.1.2.3', '192.0.2.1'],
  ['a proxy itself', PROXY, undefined, '127.0.0.1'],
  ['a proxy that calls through another', PROXY, '10.0.0.1', '10.0.0.1'],
  ['a caller with a port', PROXY, '192.0.2.1:4711', '192.0.2.1'],
  ['an IPv6 caller with a port', '::1', '[2001:DB8::1]:4711', '2001:db8:0:0:0:0:0:1'],
  ['an IPv6 caller in another spelling', '::1', '2001:0db8::0001', '2001:db8:0:0:0:0:0:1'],
  ['a caller whom the proxy does not name', PROXY, 'unknown', UNKNOWN_ADDRESS],
  ['a caller whom the proxy names in no readable way', PROXY, '192.0.2.1, _hidden', UNKNOWN_ADDRESS],
  ['an empty header', PROXY, '', UNKNOWN_ADDRESS],
  ['a connection that is gone', '', '192.0.2.1', UNKNOWN_ADDRESS],
];
for (const [title, connectedFrom, header, address] of cases)
  test(`${title} has the address ${address === '' ? 'unknown' : address}`, () => {
    assert.equal(callerAddress(connectedFrom, header, trusted), address);
  });

test('without trusted proxies only the connection counts', () => {
  assert.equal(callerAddress('127.0.0.1', '192.0.2.1', []), '127.0.0.1');
  assert.equal(isForwardedPlain('127.0.0.1', 'http', []), false);
});

test('plain HTTP is recognized only from a trusted proxy', () => {
  assert.equal(isForwardedPlain(PROXY, 'http', trusted), true);
  assert.equal(isForwardedPlain(PROXY, 'HTTP, https', trusted), true);
  for (const scheme of ['https', 'https, http', undefined, '', 'ws'])
    assert.equal(isForwardedPlain(PROXY, scheme, trusted), false);
  assert.equal(isForwardedPlain('192.0.2.1', 'http', trusted), false);
});

test('loopback is recognized in both families, and an unknown address is not loopback', () => {
  for (const near of ['127.0.0.1', '127.255.255.255', '0:0:0:0:0:0:0:1'])
    assert.equal(isLoopback(near), true);
  for (const far of ['128.0.0.1', '::2', '::', UNKNOWN_ADDRESS]) assert.equal(isLoopback(far), false);
});

test('one caller is an IPv4 address or an IPv6 network of 64 bits', () => {
  assert.equal(callerNetwork('192.0.2.1'), '192.0.2.1');
  assert.equal(callerNetwork('2001:db8:1:2:3:4:5:6'), '2001:db8:1:2:0:0:0:0/64');
  assert.equal(callerNetwork('2001:db8:1:2::ffff'), callerNetwork('2001:db8:1:2:3:4:5:6'));
  assert.notEqual(callerNetwork('2001:db8:1:3::1'), callerNetwork('2001:db8:1:2::1'));
  assert.equal(callerNetwork(UNKNOWN_ADDRESS), UNKNOWN_ADDRESS);
});

test('connections are counted by address or network, except for those of proxies and loopback', () => {
  for (const [address, network] of [
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['2001:db8::1', '2001:db8:0:0:0:0:0:0/64'],
    ['2001:db8::ffff:2', '2001:db8:0:0:0:0:0:0/64'],
    ['10.1.2.3', undefined],
    ['127.0.0.2', undefined],
    ['::ffff:127.0.0.2', undefined],
    ['::1', undefined],
  ] as const)
    assert.equal(connectionNetwork(address, trusted), network, address);
  assert.equal(connectionNetwork('10.1.2.3', []), '10.1.2.3');
});
