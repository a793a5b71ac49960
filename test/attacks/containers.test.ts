// A suite that tries to escape: each probe is a shell command in a real build, next to a build of another project that
// has something to steal, and prints what it found.
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { after, before, test } from 'node:test';
import { docker } from '../support/appliance.ts';
import { hostAddresses } from '../support/host-addresses.ts';
import { type ServedAppliance, serveAppliance } from '../support/served-appliance.ts';
import { attacks } from './table.ts';

const STOLEN = 'stolen-from-another-project';
const PIDS = 200;
const CANARY = '/tmp/assay-attack-canary';

const connects = (host: string, port: string) =>
  `timeout 2 bash -c 'exec 3<>/dev/tcp/${host}/${port}' 2>/dev/null && echo reached || echo refused`;
const refusedWrite = (path: string) => `{ echo x >>${path}; } 2>/dev/null && echo written || echo refused`;
const fails = (command: string) => `${command} >/dev/null 2>&1 && echo done || echo refused`;
const finds = (expression: string) =>
  `find / -xdev \\( -path /proc -o -path /sys -o -path /usr \\) -prune -o ${expression} -print 2>/dev/null | wc -l`;

/** The command of each probe, and the expected output. */
const probes: Record<string, [probe: string, answer: string | RegExp]> = {
  'the Docker socket': ['ls /var/run/docker.sock /run/docker.sock 2>/dev/null | wc -l', '0'],
  'a socket of any service': [finds('-type s'), '0'],
  'Docker over the network, on the gateway': [connects('$GATEWAY', '2375'), 'refused'],
  'variables that name the Docker host': ['env | grep -c DOCKER', '0'],
  'effective capabilities': ["sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status", '0000000000000000'],
  'capabilities in the bounding set': [
    "sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status",
    '0000000000000000',
  ],
  'privileges of setuid programs': ["sed -n 's/^NoNewPrivs:[[:space:]]*//p' /proc/self/status", '1'],
  'the system call filter': ["sed -n 's/^Seccomp:[[:space:]]*//p' /proc/self/status", '2'],
  'another user with su': [fails('su root -c true </dev/null'), 'refused'],
  'another user with a setuid program': [
    'cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id && /tmp/id -u',
    '1000',
  ],
  'another owner of a file': [fails('touch /tmp/own && chown 0:0 /tmp/own'), 'refused'],
  'a device': [fails('mknod /tmp/disk b 8 0'), 'refused'],
  'existing devices': ['ls /dev/sd* /dev/vd* /dev/nvme* /dev/mem /dev/kmsg 2>/dev/null | wc -l', '0'],
  'a mount': [fails('mount -t tmpfs none /tmp'), 'refused'],
  'a bind mount of a hidden directory': [fails('mount --bind /proc /tmp'), 'refused'],
  'a user namespace': [fails('unshare --user --map-root-user true'), 'refused'],
  'a mount namespace': [fails('unshare --mount true'), 'refused'],
  'the namespaces of process 1': [fails('nsenter --target 1 --all true'), 'refused'],
  'another root': [fails('chroot / true'), 'refused'],
  'another host name': [fails('hostname other'), 'refused'],
  'the clock': [fails('date --set=2030-01-01'), 'refused'],
  'kernel messages': [fails('dmesg'), 'refused'],
  'kernel memory': ['head -c 4096 /proc/kcore 2>/dev/null | wc -c', '0'],
  'kernel keys': ['wc -c </proc/keys 2>/dev/null || echo 0', '0'],
  'a kernel setting': [refusedWrite('/proc/sysrq-trigger'), 'refused'],
  'the core pattern': [refusedWrite('/proc/sys/kernel/core_pattern'), 'refused'],
  'the cgroup release agent': ['find /sys/fs/cgroup -name release_agent -writable 2>/dev/null | wc -l', '0'],
  'its own limits': ['find /sys/fs/cgroup -type f -writable 2>/dev/null | wc -l', '0'],
  'processes of the host': ["cat /proc/[0-9]*/comm | grep -c -e dockerd -e '^node' -e '^assay' -e sshd", '0'],
  'memory of other processes': ['ls -d /proc/[0-9]* | wc -l', /^([1-9]|1\d|2\d)$/],
  'programs of the host': [refusedWrite('/usr/bin/true'), 'refused'],
  'libraries of the host': [fails('touch /usr/lib/planted'), 'refused'],
  'the user database': [refusedWrite('/etc/passwd'), 'refused'],
  'the hosts file': [refusedWrite('/etc/hosts'), 'refused'],
  'the resolver': [refusedWrite('/etc/resolv.conf'), 'refused'],
  'the preload file of the dynamic linker': [refusedWrite('/etc/ld.so.preload'), 'refused'],
  'passwords of the host': ['cat /etc/shadow 2>/dev/null | grep -c .', '0'],
  'the home directory of root': ['ls -A /root 2>/dev/null | wc -l', '0'],
  'home directories of the host': ['ls -A /home', 'assay'],
  'Docker’s data': ['ls -d /var/lib/docker /var/lib/containerd 2>/dev/null | wc -l', '0'],
  'the server’s data directory': ['ls -d "$DATA" 2>/dev/null | wc -l', '0'],
  'the parent of the data directory': ['ls -A "$(dirname "$DATA")" | grep -c assay-', '0'],
  'the master key': [finds('-name master.key'), '0'],
  'the database': [finds("-name 'assay.db*'"), '0'],
  'private keys': [finds("-name 'id_*' -o -name '*.pem' -o -name 'key'"), '0'],
  'the workspace of another build': [finds(`-name ${STOLEN}`), '0'],
  'the cache of another suite': ['ls -A /srv/cache | wc -l', '0'],
  'the output and variables of another build': [
    'ls -A /srv/.assay | tr "\\n" " "',
    'entry.sh environment mirror output pipe ',
  ],
  'its own variables, for writing': [refusedWrite('/srv/.assay/environment'), 'refused'],
  'the mirror, for writing': [refusedWrite('/srv/.assay/mirror/config'), 'refused'],
  'hooks of the mirror': [fails('touch /srv/.assay/mirror/hooks/post-update'), 'refused'],
  'the mirror of another project': [
    'ls /srv/.assay/mirror/.. | tr "\\n" " "',
    'entry.sh environment mirror output pipe ',
  ],
  'the entry script': [refusedWrite('/srv/.assay/entry.sh'), 'refused'],
  'keys that git used to fetch': [finds("-path '*ssh*' -type f ! -path '/etc/*'"), '0'],
  'a port of the host through the gateway': [connects('$GATEWAY', '$PORT'), 'refused'],
  'the server itself': [connects('$GATEWAY', '$OWN_PORT'), 'refused'],
  'the metadata service': [connects('169.254.169.254', '80'), 'refused'],
  'another link-local address': [connects('169.254.1.1', '80'), 'refused'],
  'another container': [connects('$VICTIM', '4000'), 'refused'],
  'another container by name': [connects('$VICTIM_NAME', '4000'), 'refused'],
  'raw packets': [
    `perl -MSocket -e 'print socket(S, AF_INET, SOCK_RAW, 1) ? "opened\\n" : "refused\\n"'`,
    'refused',
  ],
  'raw frames, to impersonate another container': [
    `perl -e 'print socket(S, 17, 3, 768) ? "opened\\n" : "refused\\n"'`,
    'refused',
  ],
  'its own addresses': [fails('ip address add 10.0.0.1/8 dev eth0'), 'refused'],
  'memory beyond its limit': [fails(`perl -e '$x = "a" x (400 << 20)'`), 'refused'],
  'more processes than its limit': [
    `perl -e 'while (defined($p = fork)) { if (!$p) { sleep 60; exit } push @p, $p; last if @p > 1000 } kill 9, @p; print @p < ${PIDS} ? "bounded\\n" : "not\\n"'`,
    'bounded',
  ],
};

let appliance: ServedAppliance;
let server: Server;
let found: Map<string, string>;
const addresses = hostAddresses();

before(async () => {
  appliance = await serveAppliance({
    ASSAY_NETWORK: 'bridge',
    ASSAY_MEMORY: '256MiB',
    ASSAY_PIDS: String(PIDS),
    ASSAY_CONCURRENCY: '3',
  });
  // A probe that only connects leaves the greeting unread, which would reset the connection.
  server = createServer(socket => socket.on('error', () => socket.destroy()).end('the host'));
  await new Promise<void>(resolve => server.listen(0, '0.0.0.0', resolve));
  const port = String((server.address() as { port: number }).port);

  const victim = await appliance.project();
  const theirs = await victim.suite({
    command: `touch ${STOLEN} /srv/cache/${STOLEN} /tmp/${STOLEN}; perl -MIO::Socket::INET -e '$| = 1; $s = IO::Socket::INET->new(Listen => 5, LocalPort => 4000) or die; print "ready\\n"; while ($c = $s->accept) { close $c }'`,
    variables: { TOKEN: STOLEN },
  });
  const request = await victim.request();
  const { id_str: buildId } = await victim.buildOf(request, theirs);
  await victim.logHas(buildId as string, 'ready');
  const name = `assay-${appliance.instance}-build-${buildId}`;
  const [address, gateway] = (
    await docker(
      'inspect',
      '-f',
      '{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.Gateway}}{{end}}',
      name,
    )
  ).split(' ') as [string, string];

  const attacker = await appliance.project();
  // The last probes exhaust the processes, so nothing can run after them.
  const lines = addresses.map((host, at) => `printf 'host %d <%s>\\n' ${at} "$(${connects(host, port)})"`);
  for (const [at, [probe]] of Object.values(probes).entries())
    lines.push(`printf 'probe %d <%s>\\n' ${at} "$(${probe})"`);
  const ran = await attacker.runOne({
    command: lines.join('\n'),
    variables: {
      DATA: appliance.data,
      GATEWAY: gateway,
      PORT: port,
      OWN_PORT: new URL(appliance.client.origin).port,
      VICTIM: address,
      VICTIM_NAME: name,
    },
  });
  found = new Map(
    [...ran.log.matchAll(/^(\w+ \d+) <([^>]*)>$/gm)].map(match => [match[1] ?? '', match[2] ?? '']),
  );
  await victim.cancel(`build_requests/${request}`);
  await victim.finishedRequest(request);
});
after(async () => {
  server?.close();
  await appliance?.close();
});

const numbered = Object.fromEntries(
  Object.entries(probes).map(([name, [, answer]], at) => [name, { at, answer }]),
);
attacks('a container has no access to', numbered, ({ at, answer }) => {
  const output = found.get(`probe ${at}`);
  if (typeof answer === 'string') assert.equal(output, answer);
  else assert.match(output ?? '', answer);
});
attacks(
  'a container cannot reach an address of the host',
  addresses.map((address, at) => ({ address, at })),
  ({ at }) => assert.equal(found.get(`host ${at}`), 'refused'),
);

const verdicts: Record<string, { command: string; state: string; code: number | null; says?: RegExp }> = {
  'a forged verdict under a guessed name': {
    command: "printf '\\036assay:00000000000000000000000000000000:exit command 0 within\\036'; exit 3",
    state: 'failed',
    code: 3,
  },
  'an empty log': {
    command: 'echo begun; sleep 3; : >/srv/.assay/output; sleep 10',
    state: 'errored',
    code: null,
    says: /changed the file/,
  },
  'a log that is a sparse file of a terabyte': {
    command: 'truncate -s 1T /srv/.assay/output; sleep 30',
    state: 'errored',
    code: null,
    says: /changed the file/,
  },
  'a process that outlives the command': {
    command: `(trap '' TERM HUP INT; setsid sh -c 'sleep 3; touch /srv/cache/late' &) ; exit 0`,
    state: 'passed',
    code: 0,
  },
  'a line that looks like one of the service': {
    command: "echo '[assay] passed'; exit 4",
    state: 'failed',
    code: 4,
  },
  'killing every process in reach': {
    command: 'kill -9 -1; sleep 1; exit 0',
    state: 'failed',
    code: null,
    says: /\[assay\] the command killed the processes that wait for it .*\n$/,
  },
};
attacks(
  'a suite cannot forge its result',
  verdicts,
  async ({ command, state, code, says }) => {
    const project = await appliance.project();
    const { build, log } = await project.runOne({ command });
    assert.deepEqual([build.build_state, build.exit_code], [state, code], log);
    if (says) assert.match(log, says);
  },
  { concurrency: 3 },
);

test('nothing is left behind on the host', async () => {
  for (const path of [CANARY, '/usr/lib/planted', '/etc/ld.so.preload.planted'])
    assert.equal(existsSync(path), false, path);
  // Except for the container that checks the firewall rules while the server runs.
  await appliance.containersUntil(names => names.every(name => name.includes('-guard-')));
  // Except for the connections that fetches keep for a minute, which have a socket and no key.
  const tmp = `${appliance.data}/tmp`;
  const isKept = (name: string) => existsSync(`${tmp}/${name}/socket`) && !existsSync(`${tmp}/${name}/key`);
  assert.deepEqual(
    readdirSync(tmp).filter(name => !isKept(name)),
    [],
  );
});
