// The node script against programs that stand for Docker, iptables, mount and systemctl: what it writes, that it can run
// again, and what it refuses. test/cli/node.test.ts runs it on a machine of a real swarm.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { type NodeScriptOptions, nodeScript } from '../../src/cli/node-script.ts';
import { temporaryDirectory } from './program.ts';

const AUTHORITY = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----';

// Answers as the Docker command line does, from files in $STATE.
const DOCKER = `#!/bin/sh
echo "docker $*" >>"$STATE/calls"
value() { cat "$STATE/$1" 2>/dev/null || echo "$2"; }
case "$1 $2 $3" in
  'version '*) value version 20.10.24 ;;
  *SecurityOptions*) value security '["name=seccomp,profile=default"]' ;;
  *LiveRestore*) value live false ;;
  *GenericResources*) value resources '' ;;
  *Labels*) value labels '' ;;
  *LocalNodeState*) value swarm inactive ;;
  *NodeID*) value node '' ;;
  *RemoteManagers*) value managers '' ;;
  'swarm join '*) echo active >"$STATE/swarm"; echo own >"$STATE/node"; echo "192.0.2.1:2377 " >"$STATE/managers" ;;
  'network ls '*) value networks '' ;;
  *DockerRootDir*) value root /var/lib/docker ;;
  'network inspect '*) for last; do :; done; cat "$STATE/network-$last" ;;
  'network create '*) for last; do :; done
    case $last in assay-open-node) echo 'true assay-open false' ;; *) echo 'true assay-closed false' ;; esac >"$STATE/network-$last" ;;
esac
`;
// The restart makes the settings effective.
const SYSTEMCTL = `#!/bin/sh
echo "systemctl $*" >>"$STATE/calls"
if [ "$1 $2" = 'restart docker' ]; then echo 'assay-slot=4 ' >"$STATE/resources"; echo 'assay=yes ' >"$STATE/labels"; fi
`;
const MOUNT = `#!/bin/sh
echo "mount $*" >>"$STATE/calls"
mkdir -p "$1/nodes"
`;

/** Empty if this machine does not have it. */
const pathOf = (name: string): string => {
  const find = name === 'python3' ? `python3 -c 'import sys; print(sys.executable)'` : `command -v ${name}`;
  return spawnSync('sh', ['-c', find], { encoding: 'utf8' }).stdout.trim();
};
/** The programs that can change daemon.json. */
const editors = ['jq', 'python3'];
const isOnlyEditor = (name: string) =>
  !pathOf(editors.find(one => one !== name) ?? '') && 'it is the only one here';

type Place = ReturnType<typeof prepare>;

/** A machine with systemd, and with only the programs that are listed. */
function prepare(
  directory: string,
  changes: Partial<NodeScriptOptions> = {},
  without: readonly string[] = [],
) {
  const [root, state, bin] = ['root', 'state', 'bin'].map(name => join(directory, name)) as [
    string,
    string,
    string,
  ];
  for (const path of [state, bin, 'etc/systemd/system', 'etc/docker', 'run/systemd/system'])
    mkdirSync(join(path.startsWith('/') ? path : join(root, path)), { recursive: true });
  writeFileSync(join(root, 'etc/fstab'), '# empty\n');
  const stubs = {
    docker: DOCKER,
    systemctl: SYSTEMCTL,
    mount: MOUNT,
    iptables: '#!/bin/sh\n',
    'mount.nfs': '#!/bin/sh\n',
  };
  for (const [name, text] of Object.entries(stubs)) {
    writeFileSync(join(bin, name), text);
    chmodSync(join(bin, name), 0o755);
  }
  writeFileSync(join(bin, 'id'), '#!/bin/sh\necho 0\n');
  chmodSync(join(bin, 'id'), 0o755);
  const used = [
    'awk',
    'cat',
    'chmod',
    'cmp',
    'cp',
    'dirname',
    'getconf',
    'jq',
    'ls',
    'mkdir',
    'mv',
    'rm',
    'sh',
    'stat',
  ];
  for (const name of [...used, 'python3'].filter(one => !without.includes(one)))
    if (pathOf(name)) symlinkSync(pathOf(name), join(bin, name));
  for (const name of without.filter(one => existsSync(join(bin, one)))) chmodSync(join(bin, name), 0o644);
  const shared = join(directory, 'srv/builds/shared');
  const file = join(directory, 'node.sh');
  writeFileSync(
    file,
    nodeScript({
      baseUrl: 'https://ci.example.org',
      registry: 'ci.example.org:443',
      authority: AUTHORITY,
      manager: '192.0.2.1:2377',
      managerId: 'the-manager',
      token: 'SWMTKN-1-secret',
      shared,
      fileServer: '192.0.2.1',
      slots: 4,
      cpus: 0.5,
      memoryBytes: 6 * 1024 ** 2,
      runAs: { uid: 1000 },
      ...changes,
    }),
  );
  const run = (environment: Record<string, string> = {}) => {
    // The programs of this machine must not be found. /usr/sbin and /sbin are added by the script.
    const { status, stdout, stderr } = spawnSync(
      'unshare',
      [
        '--mount',
        'sh',
        '-c',
        `
      mount -t tmpfs tmpfs /usr/sbin; [ -L /sbin ] || mount -t tmpfs tmpfs /sbin
      PATH=${bin}; export PATH; exec sh ${file}`,
      ],
      {
        env: { PATH: process.env.PATH, STATE: state, ROOT: root, ...environment },
        encoding: 'utf8',
      },
    );
    return { status, stdout, stderr };
  };
  return {
    root,
    state,
    shared,
    file,
    run,
    set: (name: string, value: string) => writeFileSync(join(state, name), `${value}\n`),
    calls: () => (existsSync(join(state, 'calls')) ? readFileSync(join(state, 'calls'), 'utf8') : ''),
    read: (path: string) => readFileSync(join(root, path), 'utf8'),
    daemon: () => JSON.parse(readFileSync(join(root, 'etc/docker/daemon.json'), 'utf8')),
  };
}

/** Every file with its content. */
const snapshot = ({ root }: Place) =>
  readdirSync(root, { recursive: true, withFileTypes: true })
    .filter(one => one.isFile())
    .map(({ parentPath, name }) => [join(parentPath, name), readFileSync(join(parentPath, name), 'utf8')])
    .sort();

function assertFails({ status, stdout, stderr }: ReturnType<Place['run']>, message: RegExp): void {
  assert.equal(status, 1, stdout + stderr);
  assert.match(stderr, message);
  assert.equal(stderr.match(/^error /gm)?.length, 1, stderr);
}

describe('The node script', { skip: process.getuid?.() !== 0 && 'it is for root' }, () => {
  test('is a script that every POSIX shell can read', () => {
    using directory = temporaryDirectory();
    const { file } = prepare(directory.path);
    for (const shell of ['sh', 'bash']) execFileSync(shell, ['-n', file]);
  });

  test('prepares a new machine, and changes nothing when it runs again', () => {
    using directory = temporaryDirectory();
    const place = prepare(directory.path);
    const first = place.run();
    assert.equal(first.status, 0, first.stdout + first.stderr);
    assert.deepEqual(place.daemon(), {
      labels: ['assay=yes'],
      'node-generic-resources': ['assay-slot=4'],
      'no-new-privileges': true,
    });
    assert.equal(place.read('etc/docker/certs.d/ci.example.org:443/ca.crt'), `${AUTHORITY}\n`);
    assert.match(
      place.read('etc/fstab'),
      new RegExp(`^192\\.0\\.2\\.1:${place.shared} ${place.shared} nfs4 rw,sync,hard,`, 'm'),
    );
    assert.equal(statSync(dirname(place.shared)).mode & 0o777, 0o700);
    assert.match(place.read('etc/systemd/system/assay-node-images.timer'), /^OnCalendar=Sun /m);
    assert.match(
      place.read('etc/systemd/system/assay-node-images.service'),
      /^ExecStart=.*reference=ci\.example\.org:443\/\*\/\*.*docker image rm "\$\$image"/m,
    );
    const calls = place.calls();
    for (const call of [
      'docker swarm join --token SWMTKN-1-secret 192.0.2.1:2377',
      'systemctl restart docker',
      'systemctl enable --quiet --now assay-node-images.timer',
      'docker network create --config-only --opt com.docker.network.bridge.name=assay-open --opt com.docker.network.bridge.enable_icc=false assay-open-node',
      'docker network create --config-only --opt com.docker.network.bridge.name=assay-closed --opt com.docker.network.bridge.enable_icc=false assay-closed-node',
    ])
      assert.ok(calls.includes(`${call}\n`), `${call}\n\n${calls}`);

    const before = snapshot(place);
    const second = place.run();
    assert.equal(second.status, 0, second.stderr);
    assert.doesNotMatch(second.stdout, /^changed/m);
    assert.deepEqual(snapshot(place), before);
    const again = place.calls().slice(calls.length);
    assert.doesNotMatch(again, /join|restart|network create|daemon-reload|^mount/m);
  });

  test('restarts Docker when only the number of slots changed, and keeps the former settings beside the new ones', () => {
    using directory = temporaryDirectory();
    const place = prepare(directory.path);
    assert.equal(place.run().status, 0);
    const calls = place.calls();
    const { status, stderr } = place.run({ SLOTS: '7' });
    assert.equal(status, 0, stderr);
    assert.deepEqual(place.daemon()['node-generic-resources'], ['assay-slot=7']);
    assert.deepEqual(place.daemon().labels, ['assay=yes']);
    assert.match(place.calls().slice(calls.length), /systemctl restart docker/);
    assert.match(place.read('etc/docker/daemon.json.before-assay'), /assay-slot=4/);
  });

  for (const without of editors)
    test(`keeps other settings of Docker, also without ${without}`, { skip: isOnlyEditor(without) }, () => {
      using directory = temporaryDirectory();
      const place = prepare(directory.path, {}, [without]);
      const others = {
        'log-driver': 'journald',
        labels: ['rack=3', 'assay=no', 'assay-rack=1'],
        'node-generic-resources': ['gpu=1', 'assay-slot=9'],
        'default-address-pools': [{ base: '10.200.0.0/16', size: 24 }],
      };
      writeFileSync(join(place.root, 'etc/docker/daemon.json'), JSON.stringify(others));
      const { status, stdout, stderr } = place.run();
      assert.equal(status, 0, stdout + stderr);
      assert.deepEqual(place.daemon(), {
        ...others,
        labels: ['rack=3', 'assay-rack=1', 'assay=yes'],
        'node-generic-resources': ['gpu=1', 'assay-slot=4'],
        'no-new-privileges': true,
      });
      assert.doesNotMatch(place.run().stdout, /^changed/m);
      // Another order and other spaces are no reason to restart Docker.
      const { labels, ...rest } = place.daemon();
      const reordered = JSON.stringify({ labels: labels.toReversed(), ...rest });
      writeFileSync(join(place.root, 'etc/docker/daemon.json'), reordered);
      assert.doesNotMatch(place.run().stdout, /^changed/m);
      assert.equal(place.read('etc/docker/daemon.json'), reordered);
    });

  test('says what to add to the settings of Docker if nothing can change them', () => {
    using directory = temporaryDirectory();
    const place = prepare(directory.path, {}, ['jq', 'python3']);
    writeFileSync(join(place.root, 'etc/docker/daemon.json'), '{"ipv6": true}');
    assertFails(place.run(), /install python3 or jq, or add .*"node-generic-resources": \["assay-slot=4"\]/);
    assert.deepEqual(place.daemon(), { ipv6: true });
  });

  for (const without of editors)
    test(`refuses live-restore in the settings of Docker and settings that cannot be read, also without ${without}`, {
      skip: isOnlyEditor(without),
    }, () => {
      using directory = temporaryDirectory();
      const place = prepare(directory.path, {}, [without]);
      const file = join(place.root, 'etc/docker/daemon.json');
      writeFileSync(file, '{"live-restore": true}');
      assertFails(place.run(), /has live-restore, which excludes a swarm: remove it$/m);
      writeFileSync(file, '{"labels": ');
      assertFails(place.run(), /daemon\.json could not be changed$/m);
      assert.equal(readFileSync(file, 'utf8'), '{"labels": ');
      assert.doesNotMatch(place.calls(), /join|restart/);
    });

  const refused: [name: string, answers: Record<string, string>, message: RegExp][] = [
    ['Docker that is too old', { version: '19.03.15' }, /Docker Engine 19\.03\.15 is too old: 20\.10/],
    ['Docker with live-restore', { live: 'true' }, /live-restore, which excludes a swarm/],
    ['Docker with userns-remap', { security: '["name=userns"]' }, /userns-remap/],
    ['rootless Docker', { security: '["name=rootless"]' }, /rootless/],
    [
      'a node of another swarm',
      { swarm: 'active', node: 'own', managers: '198.51.100.1:2377 ' },
      /belongs to another swarm/,
    ],
    [
      'the manager of another swarm',
      { swarm: 'active', node: 'own', managers: '192.0.2.10:2377 ' },
      /belongs to another swarm/,
    ],
    [
      'a network of that name that is not ours',
      { 'network-assay-open-node': 'false  ' },
      /another network called assay-open-node/,
    ],
  ];
  for (const [name, answers, message] of refused)
    test(`refuses ${name}`, () => {
      using directory = temporaryDirectory();
      const place = prepare(directory.path);
      for (const [file, value] of Object.entries(answers)) place.set(file, value);
      assertFails(place.run(), message);
    });

  test('refuses machines that are too small, and slots that are no number', () => {
    using directory = temporaryDirectory();
    assertFails(
      prepare(join(directory.path, 'a'), { cpus: 9999 }).run(),
      /but containers get 9999 \(setting CPUS\)/,
    );
    assertFails(
      prepare(join(directory.path, 'b'), { memoryBytes: 2 ** 50 }).run(),
      /less memory than one container/,
    );
    for (const slots of ['x', '-1', '1.5', '01'])
      assertFails(prepare(join(directory.path, `c${slots}`)).run({ SLOTS: slots }), /SLOTS must be a number/);
  });

  for (const [program, message] of [
    ['iptables', /iptables is missing/],
    ['mount.nfs', /NFS client is missing: install the package nfs-common/],
    ['docker', /Docker is missing/],
  ] as const)
    test(`refuses a machine without ${program}`, () => {
      using directory = temporaryDirectory();
      assertFails(prepare(directory.path, {}, [program]).run(), message);
    });

  test('skips the mount where the shared directory is, as on the server, and does not join there', () => {
    using directory = temporaryDirectory();
    const place = prepare(directory.path, {}, ['mount.nfs']);
    mkdirSync(join(place.shared, 'nodes'), { recursive: true });
    for (const [file, value] of Object.entries({ swarm: 'active', node: 'the-manager' }))
      place.set(file, value);
    const { status, stdout, stderr } = place.run();
    assert.equal(status, 0, stdout + stderr);
    assert.equal(place.read('etc/fstab'), '# empty\n');
    assert.match(place.calls(), /docker swarm update --snapshot-interval 500/);
    assert.doesNotMatch(place.calls(), /swarm join|^mount/m);
    assert.match(stdout, /^ok +this machine is the manager of the swarm$/m);
  });

  test('warns of a directory above the share that others can enter, and leaves it as it is', () => {
    using directory = temporaryDirectory();
    const place = prepare(directory.path);
    const parent = dirname(place.shared);
    mkdirSync(parent, { recursive: true });
    chmodSync(parent, 0o755);
    cpSync(place.file, join(parent, 'other'));
    const { status, stderr } = place.run();
    assert.equal(status, 0, stderr);
    assert.match(stderr, /warning other accounts of this machine can enter/);
    assert.equal(statSync(parent).mode & 0o777, 0o755);
  });

  test('installs no authority if the server has none of its own, and no timer if none is wanted', () => {
    using directory = temporaryDirectory();
    const place = prepare(directory.path, { authority: undefined });
    const { status, stderr } = place.run({ PRUNE: '' });
    assert.equal(status, 0, stderr);
    assert.deepEqual(readdirSync(join(place.root, 'etc/docker')), ['daemon.json']);
    assert.deepEqual(readdirSync(join(place.root, 'etc/systemd/system')), ['docker.service.d']);
  });

  test('makes Docker forget its networks at each start, and warns of those of others', () => {
    using directory = temporaryDirectory();
    const place = prepare(directory.path);
    writeFileSync(join(place.state, 'networks'), 'assay-open-node\ndocker_gwbridge\ningress\nshop_default\n');
    const { status, stderr } = place.run();
    assert.equal(status, 0, stderr);
    assert.match(stderr, /^warning a restart of Docker removes .*: shop_default$/m);
    const unit = place.read('etc/systemd/system/docker.service.d/assay-node.conf');
    assert.match(unit, /^ExecStartPre=\/bin\/rm -f \/var\/lib\/docker\/network\/files\/local-kv\.db$/m);
    assert.match(
      unit,
      /^ExecStartPost=-\/bin\/sh -c 'docker network create .* assay-open-node; .* assay-closed-node'$/m,
    );
  });

  test('quotes what it contains', () => {
    const text = nodeScript({
      baseUrl: 'https://ci.example.org',
      registry: 'x:1',
      authority: undefined,
      manager: "192.0.2.1:2377'; touch /tmp/owned; '",
      managerId: 'x',
      token: '$(reboot)',
      shared: '/srv/x',
      fileServer: 'x',
      slots: 1,
      cpus: 1,
      memoryBytes: 1,
      runAs: { uid: 1000 },
    });
    assert.ok(text.includes(`MANAGER='192.0.2.1:2377'\\''; touch /tmp/owned; '\\'''\n`));
    assert.ok(text.includes(`TOKEN='$(reboot)'\n`));
  });
});
