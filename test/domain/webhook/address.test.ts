// Which addresses webhooks may call.
import assert from 'node:assert/strict';
import { isIP } from 'node:net';
import { test } from 'node:test';
import { checkWebhookUrl, isForbiddenAddress, parseCidrs } from '../../../src/domain/webhook/address.ts';

const none = parseCidrs('');

test('loopback, link-local, unspecified, multicast and broadcast addresses are forbidden', () => {
  const addresses = [
    ...[
      '127.0.0.1',
      '127.255.255.255',
      '0.0.0.0',
      '0.1.2.3',
      '169.254.169.254',
      '224.0.0.1',
      '239.255.255.255',
    ],
    ...[
      '255.255.255.255',
      '::',
      '::1',
      '0:0:0:0:0:0:0:1',
      'fe80::1',
      'febf::1',
      'fe80::1%eth0',
      'FE80::1%25eth0',
    ],
    ...[
      'ff02::1',
      'ff0e::1',
      '::ffff:127.0.0.1',
      '::ffff:7f00:1',
      '::FFFF:169.254.169.254',
      '::ffff:0.0.0.0',
    ],
    ...['::127.0.0.1', '::7f00:1', '::ffff:0:127.0.0.1', '64:ff9b::127.0.0.1', '64:ff9b::a9fe:a9fe'],
    ...[
      '64:ff9b:1::7f00:1',
      '2002:7f00:1::',
      '2002:a9fe:a9fe::1',
      '2001:0:1:2:3:4:80ff:fffe',
      '::ffff:224.0.0.1',
    ],
    ...[
      '',
      'localhost',
      '127.1',
      '1.2.3',
      '1.2.3.4.5',
      '256.1.1.1',
      '01.2.3.4',
      ':::',
      '1:2:3',
      '1::2::3',
      '12345::',
      'g::',
    ],
    ...['::1.2.3', '1:2:3:4:5:6:7:8:9', '1:2:3:4:5:6:7:1.2.3.4'],
  ];
  for (const address of addresses) assert.equal(isForbiddenAddress(address, none), true, address);
});

test('public and private addresses are allowed', () => {
  const addresses = [
    ...[
      '1.1.1.1',
      '10.0.0.1',
      '172.16.0.1',
      '192.168.1.1',
      '100.64.0.1',
      '126.255.255.255',
      '128.0.0.1',
      '169.253.0.1',
    ],
    ...[
      '223.255.255.255',
      '255.255.255.254',
      '2001:db8::1',
      'fd00::1',
      'fc00::1',
      '2606:4700::1111',
      'fec0::1',
      '::2:0:0',
    ],
    ...[
      '::ffff:10.0.0.1',
      '64:ff9b::8.8.8.8',
      '2002:808:808::1',
      '2001:0:1:2:3:4:f7f7:f7f7',
      'fe00::1',
      '1:2:3:4:5:6:7:8',
    ],
  ];
  for (const address of addresses) {
    assert.notEqual(isIP(address), 0, address);
    assert.equal(isForbiddenAddress(address, none), false, address);
  }
});

test('an allowed network allows exactly its own addresses', () => {
  const allow = parseCidrs('127.0.0.0/8, ::1 fe80::/64\t169.254.1.1/32');
  for (const address of ['127.0.0.1', '::ffff:127.0.0.1', '::1', 'fe80::1%eth0', '169.254.1.1']) {
    assert.equal(isForbiddenAddress(address, allow), false, address);
  }
  for (const address of ['169.254.1.2', 'fe80:0:0:1::1', '0.0.0.0', '::', '224.0.0.1', 'ff02::1']) {
    assert.equal(isForbiddenAddress(address, allow), true, address);
  }
  assert.equal(isForbiddenAddress('127.9.9.9', parseCidrs('0.0.0.0/0')), false);
  assert.equal(isForbiddenAddress('::1', parseCidrs('0.0.0.0/0')), true);
  assert.equal(isForbiddenAddress('127.1.2.3', parseCidrs('127.0.0.1/8')), false);
});

test('an invalid network is named in the error', () => {
  for (const part of [
    '10.0.0.0/33',
    '10.0.0/8',
    'fd00::/129',
    'local',
    '10.0.0.0/',
    '10.0.0.0/8/8',
    '1.1.1.1/-1',
    '1.1.1.1/ 8x',
  ]) {
    assert.throws(() => parseCidrs(`192.168.0.0/16,${part}`), /is not a network/, part);
  }
  assert.deepEqual(parseCidrs(' , '), []);
});

test('webhook URLs are http or https, without credentials, and not a forbidden address in any notation', () => {
  const good = [
    ...[
      'https://example.org/hook',
      'http://example.org',
      'HTTPS://Example.org:8443/a?b=c',
      'http://10.0.0.1:8080/x',
    ],
    ...[
      'http://[2001:db8::1]/x',
      'http://[fd00::1]:81/',
      'http://localhost/x',
      'http://hook.internal/',
      'https://a/@b',
    ],
    ...['https://example.org/?x=a@b', `https://example.org/${'x'.repeat(2_048 - 20)}`, 'http://134744072/'],
  ];
  const bad = [
    ...[
      '',
      ' ',
      'example.org',
      '/hook',
      '//example.org/',
      'ftp://example.org/',
      'file:///etc/passwd',
      'javascript:alert(1)',
    ],
    ...[
      'http:example.org',
      'http:/example.org',
      'http:///example.org',
      'http://',
      'https://:443/',
      'http://example.org:0/',
    ],
    ...[
      'http://example.org:99999/',
      'http://user:pw@example.org/',
      'http://user@example.org/',
      'http://@example.org/',
    ],
    ...[
      'http://example.org\\@127.0.0.1/',
      'http://exa mple.org/',
      ' http://example.org/',
      'http://example.org/\n',
      'http://a\tb/',
    ],
    ...[
      'http://127.0.0.1/',
      'http://127.1/',
      'http://2130706433/',
      'http://0x7f000001/',
      'http://0x7f.1/',
      'http://0177.0.0.1/',
    ],
    ...[
      'http://017700000001/',
      'http://127.0.0.1./',
      'http://0/',
      'http://0.0.0.0:80/',
      'http://[::1]/',
      'http://[::]/',
    ],
    ...[
      'http://[0:0:0:0:0:0:0:1]/',
      'http://[::ffff:127.0.0.1]/',
      'http://[::ffff:7f00:1]/',
      'http://[fe80::1]/',
    ],
    ...[
      'http://[fe80::1%25eth0]/',
      'http://[fe80::1%eth0]/',
      'http://169.254.169.254/latest',
      'http://2852039166/',
    ],
    ...[
      'http://0xa9fea9fe/',
      'http://0251.0376.0251.0376/',
      'http://[64:ff9b::7f00:1]/',
      'http://[2002:7f00:1::]/',
    ],
    ...[
      'http://224.0.0.1/',
      'http://255.255.255.255/',
      'http://4294967295/',
      'http://[ff02::1]/',
      'http://①②⑦.⓪.⓪.①/',
    ],
    ...[
      'http://%31%32%37.0.0.1/',
      'http://127。0。0。1/',
      'http://256.1.1.1/',
      `https://example.org/${'x'.repeat(2_048)}`,
    ],
  ];
  for (const url of good) assert.equal(checkWebhookUrl(url, none), undefined, url);
  for (const url of bad) assert.equal(checkWebhookUrl(url, none), 'invalid_format', url);
  assert.equal(checkWebhookUrl('http://0x7f.1:9000/', parseCidrs('127.0.0.0/8')), undefined);
  assert.equal(checkWebhookUrl('http://[::1]/', parseCidrs('127.0.0.0/8')), 'invalid_format');
});
