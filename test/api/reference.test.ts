// The API reference: every curl example is run as the page shows it, in bash and in zsh, against a running server, and its
// answer has the fields of the example answer.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { createApplication, createAuthorizationCode } from '../../src/store/applications.ts';
import { buildLogPath } from '../../src/store/data/paths.ts';
import { recordFailureLines } from '../../src/store/result/failure-lines.ts';
import { bootApp, hookSecretOf, type Planted, type TestApp } from '../support/app.ts';
import { smallBundle } from '../support/bundle.ts';
import { parseExact, type Wire } from '../support/client.ts';
import { contract, idIn, type Row } from './contract.ts';
import { compileAll, failDependent, makeInvited, passAgain } from './states.ts';

const DEADLINE_MS = 60_000;
const REDIRECT_URI = 'urn:ietf:wg:oauth:2.0:oob';

/** Where the answer is no record of the contract. */
const ofOAuth: Pick<Row, 'method' | 'path' | 'status'>[] = [
  { method: 'GET', path: '/oauth2/authorize', status: 303 },
  { method: 'POST', path: '/oauth2/access_token', status: 200 },
  { method: 'POST', path: '/oauth2/revoke', status: 200 },
  { method: 'GET', path: '/.well-known/oauth-authorization-server', status: 200 },
];
const rows: Pick<Row, 'method' | 'path' | 'status' | 'dependency' | 'schedule'>[] = [...contract, ...ofOAuth];

const shells: Record<string, string[]> = {
  bash: ['--norc', '--noprofile', '-e', '-c'],
  zsh: ['-f', '-e', '-c'],
};

type Entry = { command: string; answer: string | undefined };

let app: TestApp;
let place: string;
let setUp: string;
const entries = new Map<string, Entry>();

before(async () => {
  app = await bootApp();
  place = mkdtempSync(join(tmpdir(), 'assay-reference-'));
  writeFileSync(join(place, 'zlib-1.3.1.tar.gz'), Buffer.from('1f8b08', 'hex'));
  writeFileSync(join(place, 'snapshot.bundle'), smallBundle);
  // The status follows the answer on a line of its own.
  writeFileSync(join(place, '.curlrc'), 'silent\nshow-error\nwrite-out = "\\n%{http_code}"\n');
  const page = await fetchPage('/ui/api');
  const [, first = ''] = /<pre class="copy-text"><code>(.*?)<\/code>/s.exec(page) ?? [];
  setUp = decode(first)
    .replace('YOU@EXAMPLE.ORG', app.people.owner.account.email)
    .replace('API_KEY', app.people.owner.key);
  for (const [, method, path = '', body = ''] of page.matchAll(
    /<summary><span class="method \w+">(\w+)<\/span> <code>(.*?)<\/code>.*?<\/summary>(.*?)<\/details>/gs,
  )) {
    const block = (title: string) => {
      const [, found] =
        new RegExp(`>${title}</p><div class="copy"><pre[^>]*><code>(.*?)</code>`, 's').exec(body) ?? [];
      return found === undefined ? undefined : decode(found);
    };
    const name = `${method} ${decode(path).replace(/<(\w+)>/g, ':$1')}`;
    if (path.startsWith('/'))
      entries.set(name, { command: block('Request') ?? '', answer: block('Example response') });
  }
});
after(async () => {
  await app?.close();
  if (place) rmSync(place, { recursive: true, force: true });
});

function fetchPage(path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const outgoing = request(app.url + path, { ca: app.client.ca }, incoming =>
      text(incoming).then(resolve, reject),
    );
    outgoing.on('error', reject).end();
  });
}

const entities: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" };
const decode = (html: string) =>
  html.replace(/&(amp|lt|gt|quot|#39);/g, (_, name: string) => entities[name] as string);

/** Runs a command as somebody's terminal would. A stream is ended when its first event is there. */
function run(shell: string, command: string, variables: Record<string, string>): Promise<string> {
  return new Promise((resolve, reject) => {
    const env = {
      PATH: process.env.PATH,
      CURL_HOME: place,
      CURL_CA_BUNDLE: join(app.data, 'tls/ca.pem'),
      ...variables,
    };
    const child = spawn(shell, [...(shells[shell] as string[]), `${setUp}\n${command}`], {
      cwd: place,
      env,
      detached: true,
      timeout: DEADLINE_MS,
    });
    let output = '';
    child.stderr.on('data', chunk => {
      output += chunk;
    });
    child.stdout.on('data', chunk => {
      output += chunk;
      if (/^data: .*\n/m.test(output)) process.kill(-(child.pid as number), 'SIGTERM');
    });
    child.on('error', reject);
    child.on('close', (status, signal) =>
      status === 0 || signal === 'SIGTERM' || /^data: /m.test(output)
        ? resolve(output)
        : reject(new Error(`${command}\nexited with ${status}\n${output}`)),
    );
  });
}

/** The values of the shell variables of an example, and what has to be there before it works. */
async function prepare(row: (typeof rows)[number]): Promise<Record<string, string>> {
  const { owner } = app.people;
  const planted: Planted = app.plant();
  if (/\/(share|compile|files|artifact)$/.test(row.path)) compileAll(app.db, planted.free_dependency_id);
  if (row.path.endsWith('/compile_dependents')) failDependent(app.db, planted);
  if (/\/(search|similar)$/.test(row.path)) {
    await app.writeLog(planted.build_id, 'Error: connection refused\n');
    const build = { id: planted.build_id, projectId: planted.project_id };
    await recordFailureLines(app.db, build, buildLogPath(app.data, build.id));
  }
  if (row.path.endsWith('/invitation')) makeInvited(app.db, planted.collaborator_id, owner.account.id);
  if (row.path.endsWith('badge.svg'))
    await app.client.call('PUT', `/projects/${planted.project_id}`, {
      as: owner.as,
      form: { badge: 'true' },
    });
  if (row.path.endsWith('/diff')) passAgain(app.db, planted);
  const variables = ['dependency_id', ...Object.keys(planted)].map(name => [
    name.toUpperCase(),
    String(idIn(row, name, planted)),
  ]);
  return {
    ...Object.fromEntries(variables),
    SECRET: hookSecretOf(app.db, planted),
    ...(row.path.startsWith('/oauth2/') && prepareOAuth()),
  };
}

function prepareOAuth(): Record<string, string> {
  const { account } = app.people.owner;
  const { application, clientSecret = '' } = createApplication(app.db, {
    ownerId: account.id,
    name: 'Monitor',
    redirectUri: REDIRECT_URI,
    isPublic: false,
  });
  const CODE = createAuthorizationCode(app.db, {
    applicationId: application.id,
    accountId: account.id,
    redirectUri: REDIRECT_URI,
    scopes: ['projects'],
    codeChallenge: null,
    lifetimeMs: DEADLINE_MS,
  });
  return { CLIENT_ID: application.clientId, CLIENT_SECRET: clientSecret, CODE, TOKEN: 'unknown' };
}

/** Names are unique: removes what has the one that the example creates. */
async function freeName(path: string, command: string): Promise<void> {
  const [, name] = /\bname=([^'\n]+?)(?:'| \\|$)/m.exec(command) ?? [];
  const { as } = app.people.owner;
  for (const one of name === undefined ? [] : (await app.client.get(`${path}?limit=1000`, as)).list)
    if (one.name === name) await app.client.call('DELETE', `${path}/${one.id_str ?? one.id_ref}`, { as });
}

const fillPath = (path: string, variables: Record<string, string>) =>
  path.replace(/:(\w+)/g, (_, name: string) => variables[name.toUpperCase()] as string);

const nameOf = ({ method, path }: { method: string; path: string }) => `${method} ${path}`;

test('every endpoint has an entry, and nothing else has one', () => {
  assert.deepEqual([...entries.keys()].toSorted(), rows.map(nameOf).toSorted());
});

for (const shell of Object.keys(shells))
  describe(`the examples run in ${shell}`, () => {
    for (const row of rows)
      test(nameOf(row), async () => {
        const { command, answer } = entries.get(nameOf(row)) as Entry;
        const variables = await prepare(row);
        // The shell does not replace variables in single quotes.
        for (const [, name = ''] of command.replaceAll(/'[^']*'/g, '').matchAll(/\$(\w+)/g))
          assert.ok(['A', 'AUTH'].includes(name) || variables[name], `${name} is not set: ${command}`);
        if (row.method === 'POST') await freeName(fillPath(row.path, variables), command);
        const output = await run(shell, command, variables);
        if (/^event: /m.test(output)) return assert.match(answer ?? '', /^event: state\ndata: /);
        assert.match(output, new RegExp(`\\n${row.status}$`), `${command}\n${output}`);
        if (answer === undefined) return;
        const [shown, got] = [answer, output.replace(/\n\d+$/, '')].map(text =>
          firstRecord(parseExact(text)),
        );
        for (const key of Object.keys(shown as Wire))
          assert.ok(key in (got as Wire), `${key} is not in ${output}`);
      });
  });

/** Of an answer in the envelope its record, or the first one of its list. */
function firstRecord(answer: Wire): Wire {
  const inner = [answer.response ?? answer].flat()[0] ?? {};
  return typeof inner === 'object' ? (inner as Wire) : { inner };
}

describe('the example of a PUT changes one field and leaves the others as they were', () => {
  for (const row of rows.filter(({ method }) => method === 'PUT'))
    test(nameOf(row), async () => {
      const { command } = entries.get(nameOf(row)) as Entry;
      const sent = [...command.matchAll(/(?:-d|--data-urlencode) '?([\w[\]]+)=/g)].map(([, name]) => name);
      assert.equal(sent.length, 1, command);
      const variables = await prepare(row);
      const path = fillPath(row.path, variables);
      const isRead = rows.some(one => one.method === 'GET' && one.path === row.path);
      const read = async () => (isRead ? (await app.client.get(path, app.people.owner.as)).record : {});
      const [field = ''] = (sent[0] as string).split('[');
      const { [field]: before, ...others } = await read();
      await run('bash', command, variables);
      const { [field]: changed, ...stayed } = await read();
      assert.deepEqual(stayed, others);
      if (isRead) assert.notDeepEqual(changed, before);
    });
});
