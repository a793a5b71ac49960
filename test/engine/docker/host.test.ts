// What the server's tools find in a container of the image `host`: their settings, users, memory and addresses.
import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it, test } from 'node:test';
import { hostSettings } from '../../../src/engine/docker/skeleton.ts';
import { type Fixture, openFixture } from './fixture.ts';

describe('the image host', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture();
  });
  after(() => fixture.close());

  it('has the user nobody, the IPv6 loopback address, and a /dev/shm of its size', async () => {
    const { text, exit } = await fixture.run(
      `id -un nobody; id -gn nobody; df -k --output=size /dev/shm | tail -n 1 | tr -d ' '
       python3 - <<'end'
import socket
server = socket.create_server(('localhost', 0), family=socket.AF_INET6)
socket.create_connection(('::1', server.getsockname()[1]), 5)
print('connected')
end`,
      { shmBytes: 32 * 1024 * 1024 },
    );
    assert.equal(exit?.status, 0, text);
    assert.equal(text, 'nobody\nnogroup\n32768\nconnected\n');
  });

  it('has the files of /etc that installed tools need, read-only, and neither passwords nor keys', async () => {
    const { text } = await fixture.run(
      `for path in alternatives ssl/certs ca-certificates shells mime.types fonts perl; do
         [ -e "/etc/$path" ] || echo "no $path"
       done
       touch /etc/alternatives/x /etc/shells /etc/x 2>/dev/null && echo writable
       ls -d /etc/shadow /etc/ssl/private /etc/ssh /etc/sudoers /etc/chromium.d/apikeys /etc/docker 2>/dev/null
       echo end`,
    );
    assert.equal(text, 'end\n');
  });

  it('has the directories and files that others are mounted at, so that no container has to create them', async () => {
    const { containerId } = await fixture.run('true');
    const changes: { Path: string }[] = await fixture.docker.getContainer(containerId).changes();
    const changed = changes.map(({ Path }) => Path).filter(path => !/^\/(dev|proc|run|sys)(\/|$)/.test(path));
    // The variables of a suite, which not every suite has.
    assert.deepEqual(changed.sort(), ['/srv', '/srv/.assay', '/srv/.assay/environment']);
  });

  it("runs Debian's chromium --headless", async () => {
    const { text, exit } = await fixture.run(
      `echo '<p>six times seven: <script>document.write(6 * 7)</script></p>' >page.html
       chromium --headless --dump-dom "file://$PWD/page.html" 2>messages || { cat messages; exit 1; }`,
      { memoryBytes: 1024 ** 3 },
    );
    assert.equal(exit?.status, 0, text);
    assert.match(text, /<\/script>42<\/p>/);
  });
});

test('settings of the server that may hold credentials, or that are not readable for all, are left out', t => {
  const etc = mkdtempSync(join(tmpdir(), 'assay-etc-'));
  t.after(() => rmSync(etc, { recursive: true }));
  mkdirSync(join(etc, 'chromium.d'));
  const put = (name: string, content: string) => writeFileSync(join(etc, name), content, { mode: 0o644 });
  put('shells', '/bin/sh\n');
  put('gitconfig', '[url "ssh://git@example.org/"]\n\tinsteadOf = https://example.org/\n');
  put('chromium.d/default-flags', 'export CHROMIUM_FLAGS="$CHROMIUM_FLAGS --disable-pings"\n');
  put('chromium.d/apikeys', 'export GOOGLE_API_KEY=x\n');
  put('fstab', 'not asked for\n');
  const { files, leftOut } = hostSettings(etc);
  assert.deepEqual(
    files.map(({ name }) => name),
    ['chromium.d/default-flags', 'gitconfig', 'shells'],
  );
  assert.equal(files.at(-1)?.content, '/bin/sh\n');
  assert.deepEqual(leftOut, []);
  for (const [name, content] of [
    ['npmrc', '//example.org/:_authToken=abc\n'],
    ['npmrc', '_auth = abc\n'],
    ['pip.conf', '[global]\nindex-url = https://someone:abc@example.org/simple\n'],
    ['pip.conf', '[global]\nindex-url = https://abc@example.org/simple\n'],
    ['gitconfig', '[http]\n\textraHeader = Authorization: Basic abc\n'],
  ] as const) {
    put(name, content);
    const { files, leftOut } = hostSettings(etc);
    assert.deepEqual(leftOut, [name], content);
    assert.ok(!files.some(one => one.name === name));
    put(name, '# nothing\n');
  }
  chmodSync(join(etc, 'npmrc'), 0o640);
  assert.deepEqual(hostSettings(etc).leftOut, ['npmrc']);
});
