// A server that sends names to control the terminal, and names of files that lead out of a directory, and one that sends a
// part of a log again.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { isSafePath } from '../../src/client/download.ts';
import { runClient } from './fixture.ts';

const ATTACK = '\x1b]0;owned\x07\x1b[2J\u009b2K\rpassed';
const NAMES = [
  '../outside',
  'a/../../outside',
  '/etc/outside',
  'C:outside',
  'a\\..\\outside',
  'a//b',
  './a',
  'aux',
  'a/NUL.txt',
  'com1.log',
  'a\nb',
  '',
];

/** Every text of every record is an attack. */
const build = {
  id: 2,
  id_str: '2',
  suite_id_str: '3',
  suite: ATTACK,
  commit_id_str: '5',
  build_request_id_str: '4',
  build_state: 'failed',
  exit_code: 1,
  created_at: '2026-01-01T00:00:00+00:00',
  started_at: '2026-01-01T00:00:00+00:00',
  finished_at: '2026-01-01T00:00:01+00:00',
  error: ATTACK,
  artifacts: 1,
  artifacts_bytes: 3,
  tests: { passed: 0, failed: 1, errored: 0, skipped: 0, new_failures: 1, fixed: 0, flaky: 0 },
};
const request = {
  id: 4,
  id_str: '4',
  build_state: 'failed',
  commit_ref: ATTACK,
  commit_id_str: '5',
  created_by: ATTACK,
  created_at: '2026-01-01T00:00:00+00:00',
  finished_at: null,
  branch: ATTACK,
  error: ATTACK,
  commit: { ref: '0123456789', subject: ATTACK, scm_author_name: ATTACK },
  suites: {
    enqueued: 0,
    running: 0,
    passed: 0,
    failed: 1,
    errored: 0,
    timed_out: 0,
    canceled: 0,
    not_passed: [ATTACK],
  },
};
const test = {
  id_str: '6',
  classname: ATTACK,
  name: ATTACK,
  file: null,
  result: 'failed',
  change: 'new',
  duration_ms: 1,
  flaky: true,
  message: ATTACK,
  details: `${ATTACK}\n${ATTACK}`,
};
const line = {
  build_id_str: '2',
  suite: ATTACK,
  branch: ATTACK,
  build_state: 'failed',
  created_at: build.created_at,
  line: 1,
  text: ATTACK,
};
const change = { before: ATTACK, after: ATTACK, changed: true };
const dependency = { id_str: '8', name: 'zlib', marketplace_state: 'compiled', artifact: null };
/** What the server sends before the connection breaks, and afterwards. */
const logEvents = [
  [['log', { offset: 0, text: 'one\ntwo\n' }]],
  [
    ['log', { offset: 4, text: 'two\nthree\n' }],
    ['end', dependency],
  ],
];
const difference = {
  against: build,
  chosen: 'branch',
  causes: [{ kind: 'commits', text: ATTACK }],
  duration_ms: { before: 1, after: 2, changed: true },
  exit_code: { before: 0, after: 1, changed: true },
  command: change,
  image: { ...change, before_id: null, after_id: null },
  limits: [{ name: ATTACK, ...change }],
  variables: { added: [ATTACK], removed: [ATTACK], changed: [ATTACK] },
  dependencies: [{ name: ATTACK, change: 'compiled' }],
  commits: {
    list: [{ ref: ATTACK, subject: ATTACK, scm_author_name: ATTACK }],
    total: 1,
    missing: 0,
    files: [{ path: ATTACK, change: 'added' }],
    files_total: 1,
  },
  tests: { new_failures: [test], new_failures_total: 1, fixed: [test], fixed_total: 1 },
  log: { lines: [{ line: 1, text: ATTACK }], cut_because: null },
};

describe('A hostile server', () => {
  let server: Server;
  let directory: string;
  let env: Record<string, string>;
  let artifactName = ATTACK;
  let firehoses = 0;
  before(async () => {
    directory = mkdtempSync(join(tmpdir(), 'assay-hostile-'));
    const [key, certificate] = [join(directory, 'key.pem'), join(directory, 'certificate.pem')];
    execFileSync(
      'openssl',
      ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2']
        .concat(['-subj', '/CN=hostile', '-addext', 'subjectAltName=IP:127.0.0.1'])
        .concat(['-keyout', key, '-out', certificate]),
      { stdio: 'ignore' },
    );
    const responses: [RegExp, () => unknown][] = [
      [/^\/projects\?/, () => [{ id_str: '1', name: ATTACK, repository_url: 'git@example.org:a.git' }]],
      [/^\/projects\/1\/suites\?/, () => [{ id_str: '3', name: ATTACK }]],
      [/\/build_requests\?/, () => [request]],
      [/\/build_requests\/4\?/, () => request],
      [/\/build_requests\/4\/builds/, () => [build]],
      [/\/builds\/2$/, () => build],
      [/\/builds\/2\/tests/, () => [test]],
      [
        /\/suites\/3\/tests/,
        () => [{ ...test, runs: 2, failures: 1, median_duration_ms: 3, flaky_failed_build_id_str: ATTACK }],
      ],
      [/\/builds\/2\/diff/, () => difference],
      [/\/search\?/, () => [line]],
      [/^\/dependencies\?/, () => [dependency]],
      [/\/builds\/2\/artifacts\?/, () => [{ id_str: '7', path: artifactName, size: 3, sha256: '00' }]],
    ];
    server = createServer(
      { key: readFileSync(key), cert: readFileSync(certificate) },
      (incoming, outgoing) => {
        if (incoming.url?.endsWith('/artifacts/7')) return void outgoing.end('abc');
        if (incoming.url?.endsWith('/log')) {
          outgoing.writeHead(200, { 'content-length': '100' });
          return void outgoing.write('partial\n', () => incoming.socket.destroy());
        }
        if (incoming.url?.endsWith('/firehose')) {
          outgoing.writeHead(200, { 'content-type': 'text/event-stream' });
          for (const [event, data] of logEvents[firehoses++] ?? [])
            outgoing.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
          return void outgoing.end();
        }
        const [, respond] = responses.find(([pattern]) => pattern.test(incoming.url ?? '')) ?? [];
        outgoing.writeHead(respond ? 200 : 404, { 'content-type': 'application/json' });
        outgoing.end(
          JSON.stringify(respond ? { response: respond() } : { error: { generic: ['not_found'] } }),
        );
      },
    );
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    env = {
      ASSAY_URL: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
      ASSAY_TOKEN: 'token',
      ASSAY_CA_FILE: certificate,
    };
  });
  after(() => {
    server.close();
    server.closeAllConnections();
    rmSync(directory, { recursive: true, force: true });
  });

  it('does not control the terminal with its names', async () => {
    for (const args of [
      ['builds'],
      ['builds', '4'],
      ['logs', '--suite', 'nothing'],
      ['tests', '2'],
      ['tests', '--slow'],
      ['tests', '--flaky'],
      ['diff', '2'],
      ['search', 'text'],
      ['artifacts', 'list', '2'],
      ['artifacts', 'get', '2'],
      ['rerun', '2'],
    ]) {
      const { stdout } = await runClient([...args, '--project', '1'], { env, columns: 100 });
      assert.match(stdout, /owned/, `${args.join(' ')} prints the name: ${stdout}`);
      const rest = stdout.replaceAll(/\x1b\[\d+m|\r\n/g, '');
      assert.doesNotMatch(
        rest,
        /[\x00-\x09\x0b-\x1f\x7f-\x9f]/,
        `${args.join(' ')}: ${JSON.stringify(stdout)}`,
      );
    }
  });

  it('repeats no line of a log when it lost the end and sends it again', async () => {
    const { status, stdout } = await runClient(['dependencies', 'log', 'zlib', '--follow'], { env });
    assert.equal(status, 0);
    assert.equal(stdout, 'one\ntwo\nthree\n');
  });

  it('cannot write outside of the directory', async () => {
    for (const name of NAMES) assert.equal(isSafePath(name), false, name);
    for (const name of ['a', 'a/b.c', '..a/b..', 'auxiliary', 'report 12:30.html', 'ä/ö'])
      assert.equal(isSafePath(name), true, name);
    const output = join(directory, 'output');
    artifactName = '../outside';
    const { status, stderr } = await runClient(
      ['artifacts', 'get', '2', '--project', '1', '--output', output],
      { env },
    );
    assert.equal(status, 5);
    assert.match(stderr, /"\.\.\/outside", which is not safe: nothing was written/);
    assert.deepEqual(readdirSync(directory).sort(), ['certificate.pem', 'key.pem']);
  });

  it('is not believed when a log or a file is cut off or another one', async () => {
    const cut = await runClient(['logs', '2', '--project', '1'], { env });
    assert.equal(cut.status, 6);
    assert.match(cut.stderr, /^assay: the connection was lost/);
    artifactName = 'a/b';
    const output = join(directory, 'output');
    const other = await runClient(['artifacts', 'get', '2', '--project', '1', '--output', output], { env });
    assert.equal(other.status, 6);
    assert.match(other.stderr, /^assay: a\/b did not arrive as the server has it/);
    assert.deepEqual(readdirSync(directory).sort(), ['certificate.pem', 'key.pem']);
  });
});
