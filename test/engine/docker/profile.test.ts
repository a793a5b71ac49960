// The environment of a suite, seen from inside the container.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type Fixture, openFixture } from './fixture.ts';

describe('a container of the image host', () => {
  let fixture: Fixture;
  let seen: Map<string, string>;

  before(async () => {
    fixture = await openFixture();
    const { text, exit } = await fixture.run(`
      say() { echo "$1=$2"; }
      say user "$(id -u):$(id -g):$(id -un)"
      say groups "$(id -G)"
      while read -r key value; do case $key in Cap*|NoNewPrivs:|Seccomp:) say "$key" "$value";; esac; done </proc/self/status
      say init "$(cat /proc/1/comm)"
      say sockets "$(find / -xdev -name 'docker.sock' 2>/dev/null | wc -l)"
      say usr "$(touch /usr/bin/x 2>&1 | grep -c 'Read-only')"
      say interfaces "$(ls /sys/class/net | tr '\\n' ' ')"
      say memory "$(cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null)"
      say pids "$(cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null)"
      say cpu "$(cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null)"
      say writable "$(find / -xdev -type d -writable ! -path '/proc/*' 2>/dev/null | sort | tr '\\n' ' ')"
      say binds "$(while read -r _ path _ options _; do case $options in rw,*) case $path in /etc/*|/usr*|/srv*) echo "$path";; esac;; esac; done </proc/mounts | sort | tr '\\n' ' ')"
      say here "$PWD"
      say home "$HOME $(touch "$HOME/x" && echo writable)"
      say shadow "$(cat /etc/shadow 2>&1 | wc -c)"
      say stdin "$(readlink /proc/self/fd/0)"
      say noncevisible "$(env | grep -c ASSAY_)"
      printf 'int main(void){return 0;}' >a.c && cc a.c -o a && ./a && say compiler works
      echo 1 | awk '{print "awk=" $1}'
      mkdir -p /tmp/sub && say tmp works
    `);
    assert.equal(exit?.status, 0, text);
    seen = new Map(
      text.split('\n').map(line => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
    );
  });
  after(() => fixture.close());

  it('runs as the configured user, with a name and no other group', () => {
    assert.equal(seen.get('user'), '1000:1000:assay');
    assert.equal(seen.get('groups'), '1000');
  });

  it('has no capability, cannot gain one, and is filtered by seccomp', () => {
    for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']) {
      assert.equal(seen.get(`${set}:`), '0000000000000000', set);
    }
    assert.equal(seen.get('NoNewPrivs:'), '1');
    assert.equal(seen.get('Seccomp:'), '2');
  });

  it('has the limits of its plan, and the relay of its output as its first process', () => {
    assert.equal(seen.get('memory'), String(256 * 1024 * 1024));
    assert.equal(seen.get('pids'), '256');
    assert.match(seen.get('cpu') ?? '', /^200000\b/);
    assert.equal(seen.get('init'), 'cat');
  });

  it('has all processors if its plan names more than there are', async () => {
    const { plan } = await fixture.begin('sleep 1000');
    const { docker } = fixture;
    const containerId = await fixture.engine.startContainer({
      ...plan,
      limits: { ...plan.limits, cpus: 1_000 },
    });
    const { NanoCpus } = (await docker.getContainer(containerId).inspect()).HostConfig;
    assert.equal(NanoCpus, (await docker.info()).NCPU * 1e9);
    await fixture.engine.removeContainer(containerId);
  });

  it('finds no Docker socket, no network, and nothing of the host that it can write except for its output', () => {
    assert.equal(seen.get('sockets'), '0');
    assert.equal(seen.get('usr'), '1');
    assert.equal(seen.get('interfaces'), 'lo ');
    // Docker's own three files belong to root and are created for this container.
    assert.equal(seen.get('binds'), '/etc/hostname /etc/hosts /etc/resolv.conf /srv/.assay/output ');
    assert.notEqual(seen.get('shadow'), '0');
    assert.match(seen.get('stdin') ?? '', /^\/dev\/null$|^pipe:/);
  });

  it('can write its workspace, cache, artifacts, home and temporary directories, and nothing else', () => {
    assert.equal(
      seen.get('writable'),
      '/home/assay /srv/artifacts /srv/cache /srv/project /srv/run /tmp /var/tmp ',
    );
    assert.equal(seen.get('here'), '/srv/project');
    assert.equal(seen.get('home'), '/home/assay writable');
  });

  it("has the host's compiler and tools, and none of the entry script's variables", () => {
    assert.equal(seen.get('compiler'), 'works');
    assert.equal(seen.get('awk'), '1');
    assert.equal(seen.get('noncevisible'), '0');
  });

  it('can write an empty volume mounted at the cache', async () => {
    const name = `${fixture.instance}-cache`;
    await fixture.engine.createVolume({
      name,
      owner: { instance: fixture.instance, kind: 'cache', id: '1' },
    });
    const mounts = [{ type: 'volume' as const, source: name, target: '/srv/cache', readOnly: false }];
    assert.equal((await fixture.run('echo kept >/srv/cache/a', { mounts })).exit?.status, 0);
    assert.equal((await fixture.run('cat /srv/cache/a', { mounts })).text, 'kept\n');
    assert.deepEqual(
      (await fixture.engine.listVolumes()).map(volume => volume.name),
      [name],
    );
    assert.equal(await fixture.engine.removeVolume(name), false, 'its containers still exist');
  });
});
