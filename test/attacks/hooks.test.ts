// Forged push hooks: no signature but the right one is accepted, and nothing that a hook says can start a wrong build.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before } from 'node:test';
import { sign } from '../../src/domain/webhook/signature.ts';
import { bootApp, hookSecretOf, type TestApp } from '../support/app.ts';
import { errors } from '../support/client.ts';
import {
  asForm,
  bitbucketPush,
  type Envelope,
  type ForgeName,
  forgeNames,
  forges,
  hashOf,
  postReceive,
  signed,
  ZEROS,
} from '../support/forge-hooks.ts';
import { attacks } from './table.ts';

const REPOSITORY = 'team/website';
const change = { ref: 'refs/heads/main', before: ZEROS, after: hashOf(1) };

let app: TestApp;
let path: string;
let secret: string;
/** The secret of a trigger of another project. */
let foreign: string;
before(async () => {
  app = await bootApp();
  const planted = app.plant();
  path = `/hooks/${planted.trigger_id}`;
  secret = hookSecretOf(app.db, planted);
  foreign = hookSecretOf(app.db, app.plant());
});
after(() => app.close());

const send = ({ headers, body }: Envelope) => app.client.call('POST', path, { headers, body });
const rows = () =>
  app.db.sqlite
    .prepare(
      `SELECT (SELECT count(*) FROM firings), (SELECT count(*) FROM seen_refs),
              (SELECT count(*) FROM build_requests WHERE trigger IS NOT NULL)`,
    )
    .raw()
    .get();

const isSignature = (name: string) => /signature|token$/.test(name);
const withSignatures = (hook: Envelope, alter: (value: string, name: string) => string): Envelope => ({
  ...hook,
  headers: Object.fromEntries(
    Object.entries(hook.headers).map(([name, value]) => [
      name,
      isSignature(name) ? alter(value, name) : value,
    ]),
  ),
});
const without = (hook: Envelope, isDropped: (name: string) => boolean): Envelope => ({
  ...hook,
  headers: Object.fromEntries(Object.entries(hook.headers).filter(([name]) => !isDropped(name))),
});

/** Ways to forge the hook of a forge, given one with the right signature. */
const forgeries: Record<string, (forge: ForgeName, hook: Envelope) => Envelope> = {
  'no signature': (_, hook) => without(hook, isSignature),
  'an empty signature': (_, hook) => withSignatures(hook, () => ''),
  'only the prefix of a signature': (_, hook) =>
    withSignatures(hook, value => /^(sha\d+=|v1,|whsec_)?/.exec(value)?.[0] ?? ''),
  'a signature of zeros': (_, hook) =>
    withSignatures(hook, value =>
      value.replace(/[0-9a-f]{40,}$/, '0'.repeat(64)).replace(/(v1,|whsec_).*/, `$1${'A'.repeat(43)}=`),
    ),
  'a signature that is cut': (_, hook) => withSignatures(hook, value => value.slice(0, -1)),
  'a signature with more after it': (_, hook) => withSignatures(hook, value => `${value}0`),
  'a signature given twice': (_, hook) => withSignatures(hook, value => `${value},${value}`),
  'the secret of another project': (forge, hook) => ({
    ...hook,
    headers: { ...hook.headers, ...forges[forge].sign(hook.body, hook.body, foreign) },
  }),
  'an empty secret': (forge, hook) => ({
    ...hook,
    headers: { ...hook.headers, ...forges[forge].sign(hook.body, hook.body, '') },
  }),
  'the secret without its prefix': (forge, hook) => ({
    ...hook,
    headers: { ...hook.headers, ...forges[forge].sign(hook.body, hook.body, secret.slice(6)) },
  }),
  'a wrong signature with a right token beside it': (_, hook) => ({
    ...hook,
    headers: {
      ...hook.headers,
      'webhook-signature': `v1,${'A'.repeat(43)}=`,
      'webhook-id': '1',
      'webhook-timestamp': String(Math.floor(Date.now() / 1_000)),
      'x-assay-token': secret,
    },
  }),
  'SHA-1 only': (_, hook) => ({
    ...without(hook, isSignature),
    headers: {
      ...without(hook, isSignature).headers,
      'x-hub-signature': `sha1=${createHmac('sha1', secret).update(hook.body).digest('hex')}`,
    },
  }),
  'credentials of the owner instead': (_, hook) => ({
    ...hook,
    headers: { ...without(hook, isSignature).headers, authorization: app.people.owner.as },
  }),
};
/** Ways to change what was signed. A token signs nothing. */
const alterations: Record<string, (hook: Envelope) => Envelope> = {
  'another branch': hook => ({ ...hook, body: hook.body.replace('refs/heads/main', 'refs/heads/evil') }),
  'another hash': hook => ({ ...hook, body: hook.body.replaceAll(hashOf(1), hashOf(2)) }),
  'a space at the end': hook => ({ ...hook, body: `${hook.body} ` }),
  'a second payload after it': hook => ({ ...hook, body: `${hook.body}&payload={}` }),
  'a form with another payload first': hook => ({ ...hook, body: `payload=%7B%7D&x=${hook.body}` }),
  'nothing left': hook => ({ ...hook, body: '' }),
};

const forged = Object.fromEntries(
  forgeNames.flatMap(forge => [
    ...Object.entries(forgeries).map(([name, forgery]): [string, () => Envelope] => [
      `${forge}: ${name}`,
      () => forgery(forge, signed(forge, forges[forge].push(REPOSITORY, change, 'eve'), secret)),
    ]),
    ...(forge === 'gitlab'
      ? []
      : Object.entries(alterations).map(([name, alter]): [string, () => Envelope] => [
          `${forge}: ${name}`,
          () => alter(signed(forge, forges[forge].push(REPOSITORY, change, 'eve'), secret)),
        ])),
  ]),
);
attacks('a forged hook is refused and leaves no row', forged, async make => {
  const before = rows();
  const answer = await send(make());
  assert.deepEqual([answer.status, answer.json], [401, errors('generic', 'unauthorized')]);
  assert.deepEqual(rows(), before);
});

const seconds = () => Math.floor(Date.now() / 1_000);
const body = '{}';
const replays: Record<string, () => Record<string, string>> = {
  'a signature of 6 minutes ago': () => standard(seconds() - 360),
  'a signature of yesterday': () => standard(seconds() - 86_400),
  'a signature 6 minutes ahead': () => standard(seconds() + 360),
  'an old signature with a new timestamp': () => ({
    ...standard(seconds() - 360),
    'webhook-timestamp': String(seconds()),
  }),
  'a new id for an old signature': () => ({ ...standard(seconds()), 'webhook-id': 'msg_2' }),
  'a timestamp in milliseconds': () => standard(Date.now()),
  'a negative timestamp': () => standard(-1),
  'a timestamp that is no number': () => ({ ...standard(seconds()), 'webhook-timestamp': 'NaN' }),
  'a timestamp with an exponent': () => ({ ...standard(seconds()), 'webhook-timestamp': '1e9' }),
};
function standard(timestamp: number): Record<string, string> {
  return {
    'x-gitlab-event': 'Push Hook',
    'webhook-id': 'msg_1',
    'webhook-timestamp': String(timestamp),
    'webhook-signature': sign({ id: 'msg_1', timestamp, body, secret }),
  };
}
attacks('a replayed hook of Standard Webhooks is refused', replays, async headersOf => {
  const answer = await send({ headers: headersOf(), body });
  assert.equal(answer.status, 401);
});

const badRefs = [
  'main',
  'HEAD',
  'refs/heads/',
  'refs/heads/--upload-pack=touch /tmp/x',
  'refs/heads/-x',
  'refs/heads/+main',
  'refs/heads/main:refs/heads/other',
  'refs/heads/main refs/heads/other',
  'refs/heads/main\nrefs/heads/other',
  'refs/heads/main\u0000',
  'refs/heads/../../../etc/passwd',
  'refs/heads/a..b',
  'refs/heads/a.lock',
  'refs/heads/.hidden',
  'refs/heads/@{-1}',
  'refs/heads/main^{commit}',
  'refs/heads/main~1',
  'refs/heads/*',
  'refs/heads/[a]',
  'refs/heads/a\\b',
  'refs/heads//a',
  'refs/heads/refs/heads/main',
  `refs/heads/${'a'.repeat(300)}`,
  'refs/tags/v1^{}',
  'refs/headsmain',
  '../refs/heads/main',
];
const badHashes = [
  '',
  'main',
  'abc123',
  `${hashOf(1)}x`,
  hashOf(1).toUpperCase(),
  `${hashOf(1)}\n`,
  '--all',
  `$(touch /tmp/x)${'a'.repeat(25)}`,
  '0'.repeat(39),
];
const lies: Record<string, () => Envelope> = Object.fromEntries([
  ...badRefs.flatMap((ref): [string, () => Envelope][] => [
    [
      `GitHub: the ref ${JSON.stringify(ref).slice(0, 60)}`,
      () => signed('github', forges.github.push(REPOSITORY, { ...change, ref }, 'eve'), secret),
    ],
    [
      `Bitbucket: the ref ${JSON.stringify(ref).slice(0, 60)}`,
      () => signed('bitbucket', bitbucketPush(REPOSITORY, [{ ...change, ref }], 'eve'), secret),
    ],
    [
      `git: the ref ${JSON.stringify(ref).slice(0, 60)}`,
      // A line break inside a name makes a second line, which is no change.
      () => postReceive([{ ...change, ref }], secret),
    ],
  ]),
  ...badHashes.map((hash): [string, () => Envelope] => [
    `the hash ${JSON.stringify(hash)}`,
    () => signed('gitlab', forges.gitlab.push(REPOSITORY, { ...change, after: hash }, 'eve'), secret),
  ]),
  ...['other/website', '', 'website', 'team/website2', '../team/website', 'TEAM', 'team/website/../x'].map(
    (name): [string, () => Envelope] => [
      `the repository ${JSON.stringify(name)}`,
      () => signed('gitea', forges.gitea.push(name, change, 'eve'), secret),
    ],
  ),
  [
    'a deep nest of arrays',
    () =>
      signed(
        'github',
        { ...forges.github.push(REPOSITORY, change, 'eve'), body: '['.repeat(100_000) },
        secret,
      ),
  ],
  [
    'a prototype instead of fields',
    () =>
      signed(
        'github',
        {
          ...forges.github.push(REPOSITORY, change, 'eve'),
          body: `{"__proto__":${forges.github.push(REPOSITORY, change, 'eve').body}}`,
        },
        secret,
      ),
  ],
  [
    'a form inside a form',
    () =>
      signed('github', asForm(asForm(forges.github.push(REPOSITORY, change, 'eve'))), secret, {
        form: false,
      }),
  ],
]);
attacks('a signed hook that lies starts nothing: at most the repository is looked at', lies, async make => {
  const [, seenBefore, requestsBefore] = rows() as number[];
  const answer = await send(make());
  assert.ok([200, 403].includes(answer.status), `${answer.status} ${answer.text}`);
  if (answer.status === 200)
    assert.ok(
      answer.list.every(({ outcome, ref }) => ['looking', 'ignored'].includes(String(outcome)) && !ref),
      answer.text,
    );
  const [, seen, requests] = rows() as number[];
  assert.deepEqual([seen, requests], [seenBefore, requestsBefore]);
});
