// Looks for secrets where they do not belong: starts a server with one secret of each kind, runs a suite, and searches
// every place for each secret in its common encodings.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { clearDocker, docker, makeData } from '../support/appliance.ts';
import { basic, type Client, createClient } from '../support/client.ts';
import { runExecutable, type Served, serveExecutable } from '../support/executable.ts';
import { createJourney, type Journey } from '../support/journey.ts';
import { startSshd, type TestSshd } from '../support/sshd.ts';
import { attacks } from './table.ts';
import { openWire, type Wire } from './wire.ts';

const VARIABLE = "kept-secret 'quoted'\nsecond-line-of-it";
const LINES = VARIABLE.split('\n');

let sshd: TestSshd;
let data: string;
let server: Served;
let wire: Wire;
let client: Client;
let journey: Journey;
let instance = '';
/** The secrets by kind. */
const secrets = new Map<string, string>();
/** Everything that was searched, by place: read during the suite or after it. */
const places = new Map<string, Buffer>();

before(async () => {
  sshd = await startSshd();
  data = makeData(sshd);
  const added = JSON.parse(await runExecutable('user', 'add', 'owner@example.org', '--json', '--data', data));
  secrets.set('the API key', added.api_key);
  secrets.set('the password', added.password);
  const registered = JSON.parse(
    await runExecutable(
      ...['app', 'add', 'App', '--owner', 'owner@example.org', '--json', '--data', data],
      ...['--redirect-uri', 'urn:ietf:wg:oauth:2.0:oob'],
    ),
  );
  secrets.set('a client secret', registered.client_secret);
  const environment = {
    ASSAY_NETWORK: 'none',
    ASSAY_MIN_FREE_DISK: '1MiB',
    ASSAY_DEBUG: 'true',
    ASSAY_WEBHOOK_ALLOW: '127.0.0.2/32',
  };
  server = await serveExecutable(data, { environment });
  client = createClient(server.url, readFileSync(join(data, 'tls', 'ca.pem'), 'utf8'));
  wire = openWire({ url: server.url, client });
  const as = basic('owner@example.org', added.api_key);
  journey = createJourney({ client, as, sshd });
  const key = readFileSync(join(data, 'master.key'));
  secrets.set('the master key', key.toString('latin1'));
  secrets.set('the master key in hex', key.toString('hex'));
  secrets.set('the master key in base64', key.toString('base64'));
  secrets.set('a variable', VARIABLE);
  for (const [at, line] of LINES.entries()) secrets.set(`line ${at + 1} of a variable`, line);

  const project = await journey.project();
  const hook = await project.ask('POST', '/notifications', {
    notifiable_type: 'build',
    name: 'webhook',
    // Nothing listens there, so deliveries are retried.
    'options[url]': 'https://127.0.0.2:9/ci',
  });
  secrets.set('a signing secret', hook.signing_secret as string);
  secrets.set('the token of a forge', 'token-of-the-forge-0123456789');
  const statuses = await project.ask('POST', '/notifications', {
    notifiable_type: 'build',
    name: 'commit_status',
    'options[forge]': 'gitea',
    'options[repository]': 'team/website',
    'options[token]': secrets.get('the token of a forge') as string,
    'options[url]': 'https://127.0.0.2:9/api/v1',
  });
  const invited = await project.ask('POST', '/collaborators', { email: 'new@example.org' });
  secrets.set('a sign-in link', new URL(invited.sign_in_url as string).searchParams.get('link') as string);

  // A token in the URL, which the API allows: a known one, an unknown one, and one that causes an error.
  const token = 'token-in-the-address-of-a-request';
  secrets.set('a token in an address', token);
  for (const path of [
    '/ping',
    '/whoami',
    '/nothing',
    `/projects/${project.id}`,
    '/projects/1/firehose',
    '/ui/projects',
  ])
    await wire.ask('GET', `${path}?oauth_token=${token}&callback=${token}`);
  await wire.ask('GET', `/ui/welcome?link=${secrets.get('a sign-in link')}`);
  await wire.ask('POST', `/oauth2/access_token?client_secret=${secrets.get('a client secret')}`, {
    form: {},
  });

  const suite = await project.suite({
    // The command itself contains one line.
    command: `: ${LINES[1]}; printf '%s\\n' "$SECRET"; env | grep -c SECRET; echo begun; until [ -e /tmp/go ]; do sleep 0.05; done; exit 1`,
    variables: { SECRET: VARIABLE },
  });
  const request = await project.request();
  const { id_str: buildId } = await project.buildOf(request, suite);
  await project.logHas(buildId as string, 'begun');
  instance =
    /assay-([0-9a-f]+)-build/.exec(
      await docker('ps', '--format', '{{.Names}}', '--filter', `name=build-${buildId}`),
    )?.[1] ?? '';
  const container = `assay-${instance}-build-${buildId}`;

  places.set('the container as Docker shows it', Buffer.from(await docker('inspect', container)));
  places.set(
    'its image',
    Buffer.from(await docker('inspect', await docker('inspect', '-f', '{{.Image}}', container))),
  );
  places.set('its volumes', Buffer.from(await docker('volume', 'ls', '--format', '{{json .}}')));
  places.set(
    'what Docker keeps as its log',
    Buffer.from(await docker('logs', container).catch(error => String(error))),
  );
  lookAtProcesses();
  const backup = join(data, '..', `${instance}.backup`);
  await runExecutable('backup', backup, '--data', data);
  places.set('a backup without the key', execFileSync('zstd', ['-dcq', backup], { maxBuffer: 1 << 30 }));
  rmSync(backup);

  // Detached: the container may end before touch does.
  await docker('exec', '--detach', container, 'touch', '/tmp/go');
  await project.finishedRequest(request);
  places.set('the log of the build', await project.logBytes(buildId as string));
  places.set(
    'the record of the build',
    Buffer.from(JSON.stringify(await project.buildRecord(buildId as string), text)),
  );
  places.set('the events of the project', (await client.get(`${project.path}/events`, as)).bytes);
  places.set('the project', (await client.get(project.path, as)).bytes);
  places.set('the figures', (await client.get('/metrics', as)).bytes);
  places.set('the description of the API', (await client.get('/openapi.json')).bytes);
  places.set('the notifications', (await client.get(`${project.path}/notifications`, as)).bytes);
  const deliveries = await client.get(`${project.path}/notifications/${statuses.id_str}/deliveries`, as);
  assert.match(deliveries.bytes.toString(), /refused the connection/, 'commit statuses were tried');
  places.set('the deliveries of a notification', deliveries.bytes);
  places.set(
    'a damaged request',
    Buffer.from(
      (
        await wire.ask('GET', `/projects/${project.id}`, {
          headers: { authorization: basic('x', added.api_key) },
        })
      ).text,
    ),
  );
  client.close();
  wire.close();
  assert.equal(await server.stop(), 0);
  places.set('what the program printed', Buffer.from(server.printed()));
  lookAtData();
});
after(async () => {
  await server?.stop('SIGKILL');
  await sshd?.close();
  if (instance) await clearDocker(instance);
  rmSync(data, { recursive: true, force: true });
});

const text = (_: string, value: unknown) => (typeof value === 'bigint' ? value.toString() : value);

/** The command lines of all processes, and the environment of the server and its children. */
function lookAtProcesses(): void {
  const commands: Buffer[] = [];
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name) && name !== String(process.pid)))
    try {
      commands.push(readFileSync(`/proc/${pid}/cmdline`));
    } catch {
      // It ended before it could be read.
    }
  places.set('the command lines of all processes', Buffer.concat(commands));
  places.set('the variables of the server and its children', Buffer.concat(environmentsFrom(server.pid)));
}

function environmentsFrom(pid: number): Buffer[] {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
    return [
      readFileSync(`/proc/${pid}/environ`),
      ...children.flatMap(child => environmentsFrom(Number(child))),
    ];
  } catch (error) {
    // It ended between the look and the read. The server itself has not.
    if (pid === server.pid) throw error;
    return [];
  }
}

/** The data directory after the build, file by file. The master key belongs there. */
function lookAtData(): void {
  const files = readdirSync(data, { recursive: true, encoding: 'utf8' }).filter(
    name => statSync(join(data, name)).isFile() && name !== 'master.key',
  );
  const database = files.filter(name => name.startsWith('assay.db'));
  const read = (names: string[]) => Buffer.concat(names.map(name => readFileSync(join(data, name))));
  places.set('the database', read(database));
  places.set('everything else in the data directory', read(files.filter(name => !database.includes(name))));
}

/** Where each secret belongs. The command that contains a line of the variable is its author's choice. */
const atHome: Record<string, RegExp> = {
  'the container as Docker shows it': /^line 2 of a variable$/,
  'the command lines of all processes': /^line 2 of a variable$/,
  'the database': /^line 2 of a variable$/,
  'a backup without the key': /^line 2 of a variable$/,
};
const placeNames = [
  'the container as Docker shows it',
  'its image',
  'its volumes',
  'what Docker keeps as its log',
  'the command lines of all processes',
  'the variables of the server and its children',
  'a backup without the key',
  'the log of the build',
  'the record of the build',
  'the events of the project',
  'the project',
  'the figures',
  'the description of the API',
  'the notifications',
  'the deliveries of a notification',
  'a damaged request',
  'what the program printed',
  'the database',
  'everything else in the data directory',
];
const kinds = [
  'the API key',
  'the password',
  'a client secret',
  'the master key',
  'the master key in hex',
  'the master key in base64',
  'a variable',
  'line 1 of a variable',
  'line 2 of a variable',
  'a signing secret',
  'the token of a forge',
  'a sign-in link',
  'a token in an address',
];
const rows = Object.fromEntries(
  placeNames.flatMap(place =>
    kinds
      .filter(kind => !atHome[place]?.test(kind))
      .map(kind => [`${kind} is not in ${place}`, { kind, place }]),
  ),
);
attacks('secrets are only where they belong', rows, ({ kind, place }) => {
  const secret = secrets.get(kind);
  const found = places.get(place);
  assert.ok(secret && secret.length >= 8, `${kind} is missing`);
  assert.ok(found && found.length > 0, `${place} was not searched`);
  const spellings = [
    Buffer.from(secret),
    Buffer.from(secret, 'latin1'),
    Buffer.from(JSON.stringify(secret).slice(1, -1)),
    Buffer.from(Buffer.from(secret).toString('base64')),
    Buffer.from(Buffer.from(secret).toString('hex')),
    Buffer.from(encodeURIComponent(secret)),
  ];
  assert.equal(
    spellings.findIndex(bytes => found.includes(bytes)),
    -1,
  );
});
