// A suite that looks for a way out: each probe is a line of shell in a real build, beside another project's build that
// has something to steal, and tells what it found.
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

/** What is asked, and what must be the answer. */
const probes: Record<string, [probe: string, answer: string | RegExp]> = {
  'the Docker socket': ['ls /var/run/docker.sock /run/docker.sock 2>/dev/null | wc -l', '0'],
  'any socket of a service': [finds('-type s'), '0'],
  'Docker over the network, on the gateway': [connects('$GATEWAY', '2375'), 'refused'],
  'the variables that would name it': ['env | grep -c DOCKER', '0'],
  'effective capabilities': ["sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status", '0000000000000000'],
  'capabilities that could be had': [
    "sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status",
    '0000000000000000',
  ],
  'privileges of programs that have them': ["sed -n 's/^NoNewPrivs:[[:space:]]*//p' /proc/self/status", '1'],
  'a filter of system calls': ["sed -n 's/^Seccomp:[[:space:]]*//p' /proc/self/status", '2'],
  'another user by su': [fails('su root -c true </dev/null'), 'refused'],
  'another user by a program of its own': [
    'cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id && /tmp/id -u',
    '1000',
  ],
  'another owner of a file': [fails('touch /tmp/own && chown 0:0 /tmp/own'), 'refused'],
  'a device': [fails('mknod /tmp/disk b 8 0'), 'refused'],
  'a device that is there': ['ls /dev/sd* /dev/vd* /dev/nvme* /dev/mem /dev/kmsg 2>/dev/null | wc -l', '0'],
  'a mount': [fails('mount -t tmpfs none /tmp'), 'refused'],
  'a mount of what is hidden': [fails('mount --bind /proc /tmp'), 'refused'],
  'a namespace of users': [fails('unshare --user --map-root-user true'), 'refused'],
  'a namespace of mounts': [fails('unshare --mount true'), 'refused'],
  'the namespaces of the first process': [fails('nsenter --target 1 --all true'), 'refused'],
  'another root': [fails('chroot / true'), 'refused'],
  'another name of the host': [fails('hostname other'), 'refused'],
  'the clock': [fails('date --set=2030-01-01'), 'refused'],
  'messages of the kernel': [fails('dmesg'), 'refused'],
  'the memory of the kernel': ['head -c 4096 /proc/kcore 2>/dev/null | wc -c', '0'],
  'keys of the kernel': ['wc -c </proc/keys 2>/dev/null || echo 0', '0'],
  'a switch of the kernel': [refusedWrite('/proc/sysrq-trigger'), 'refused'],
  'where cores go': [refusedWrite('/proc/sys/kernel/core_pattern'), 'refused'],
  'what is run when a group is empty': [
    'find /sys/fs/cgroup -name release_agent -writable 2>/dev/null | wc -l',
    '0',
  ],
  'its own limits': ['find /sys/fs/cgroup -type f -writable 2>/dev/null | wc -l', '0'],
  'processes of the host': ["cat /proc/[0-9]*/comm | grep -c -e dockerd -e '^node' -e '^assay' -e sshd", '0'],
  'the memory of processes': ['ls -d /proc/[0-9]* | wc -l', /^([1-9]|1\d|2\d)$/],
  'programs of the host': [refusedWrite('/usr/bin/true'), 'refused'],
  'libraries of the host': [fails('touch /usr/lib/planted'), 'refused'],
  'the users of the system': [refusedWrite('/etc/passwd'), 'refused'],
  'the names of hosts': [refusedWrite('/etc/hosts'), 'refused'],
  'the resolver': [refusedWrite('/etc/resolv.conf'), 'refused'],
  'what is loaded before every program': [refusedWrite('/etc/ld.so.preload'), 'refused'],
  'passwords of the host': ['cat /etc/shadow 2>/dev/null | grep -c .', '0'],
  'the home of root': ['ls -A /root 2>/dev/null | wc -l', '0'],
  'homes of the host': ['ls -A /home', 'assay'],
  'what Docker keeps': ['ls -d /var/lib/docker /var/lib/containerd 2>/dev/null | wc -l', '0'],
  'the appliance’s data': ['ls -d "$DATA" 2>/dev/null | wc -l', '0'],
  'a directory above it, by name': ['ls -A "$(dirname "$DATA")" | grep -c assay-', '0'],
  'the master key': [finds('-name master.key'), '0'],
  'the database': [finds("-name 'assay.db*'"), '0'],
  'private keys': [finds("-name 'id_*' -o -name '*.pem' -o -name 'key'"), '0'],
  'the workspace of another build': [finds(`-name ${STOLEN}`), '0'],
  'the cache of another suite': ['ls -A /srv/cache | wc -l', '0'],
  'the output and variables of another build': [
    'ls -A /srv/.assay | tr "\\n" " "',
    'environment mirror output ',
  ],
  'its own variables, to change them': [refusedWrite('/srv/.assay/environment'), 'refused'],
  'the mirror, to change it': [refusedWrite('/srv/.assay/mirror/config'), 'refused'],
  'hooks of the mirror': [fails('touch /srv/.assay/mirror/hooks/post-update'), 'refused'],
  'the mirror of another project': ['ls /srv/.assay/mirror/.. | tr "\\n" " "', 'environment mirror output '],
  'keys that git fetched with': [finds("-path '*ssh*' -type f ! -path '/etc/*'"), '0'],
  'a port of the host, by its gateway': [connects('$GATEWAY', '$PORT'), 'refused'],
  'the appliance itself': [connects('$GATEWAY', '$OWN_PORT'), 'refused'],
  'the service of metadata': [connects('169.254.169.254', '80'), 'refused'],
  'another link-local address': [connects('169.254.1.1', '80'), 'refused'],
  'another container': [connects('$VICTIM', '4000'), 'refused'],
  'another container, by its name': [connects('$VICTIM_NAME', '4000'), 'refused'],
  'raw packets': [
    `perl -MSocket -e 'print socket(S, AF_INET, SOCK_RAW, 1) ? "opened\\n" : "refused\\n"'`,
    'refused',
  ],
  'frames, to pose as another': [
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
  // Who only tries to connect hangs up with the greeting unread, and that resets the connection.
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
  // The last probes use up what processes there may be: nothing comes after them.
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
attacks('from inside a container nothing is had of', numbered, ({ at, answer }) => {
  const said = found.get(`probe ${at}`);
  if (typeof answer === 'string') assert.equal(said, answer);
  else assert.match(said ?? '', answer);
});
attacks(
  'from inside a container no address of the host is reached',
  addresses.map((address, at) => ({ address, at })),
  ({ at }) => assert.equal(found.get(`host ${at}`), 'refused'),
);

const verdicts: Record<string, { command: string; state: string; code: number | null; says?: RegExp }> = {
  'a verdict of its own, under a name that was guessed': {
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
  'a log that is a hole of a terabyte': {
    command: 'truncate -s 1T /srv/.assay/output; sleep 30',
    state: 'errored',
    code: null,
    says: /changed the file/,
  },
  'a process that goes on after the end': {
    command: `(trap '' TERM HUP INT; setsid sh -c 'sleep 3; touch /srv/cache/late' &) ; exit 0`,
    state: 'passed',
    code: 0,
  },
  'a line that looks like the service’s': {
    command: "echo '[assay] passed'; exit 4",
    state: 'failed',
    code: 4,
  },
  'the end of everything in reach': {
    command: 'kill -9 -1; sleep 1; exit 0',
    state: 'failed',
    code: null,
    says: /\[assay\] the command killed the processes that wait for it .*\n$/,
  },
};
attacks(
  'a suite cannot lie about its end',
  verdicts,
  async ({ command, state, code, says }) => {
    const project = await appliance.project();
    const { build, log } = await project.runOne({ command });
    assert.deepEqual([build.build_state, build.exit_code], [state, code], log);
    if (says) assert.match(log, says);
  },
  { concurrency: 3 },
);

test('nothing of it is left on the host', async () => {
  for (const path of [CANARY, '/usr/lib/planted', '/etc/ld.so.preload.planted'])
    assert.equal(existsSync(path), false, path);
  // But for the one that checks the firewall rules while the server runs.
  await appliance.containersUntil(names => names.every(name => name.includes('-guard-')));
  assert.deepEqual(readdirSync(`${appliance.data}/tmp`), []);
});
