// What is read from hooks of the forges and of plain git, also from damaged ones.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type HookContent, isSameRepository, readHook } from '../../../src/domain/trigger/hook-payload.ts';
import {
  asForm,
  bitbucketPush,
  type Change,
  type Envelope,
  type ForgeName,
  forgeNames,
  forges,
  hashOf,
  postReceive,
  ZEROS,
} from '../../support/forge-hooks.ts';

const read = (hook: Envelope) => readHook(new Headers(hook.headers), Buffer.from(hook.body));
const kindOf = (forge: ForgeName) =>
  ({ forgejo: 'gitea', gogs: 'gitea', 'gitlab-signed': 'gitlab' })[forge as string] ?? forge;

const repository = 'team/app';
const named = (forge: ForgeName) => (forge === 'bitbucket' ? 'TEAM/app' : repository);

const changes: {
  name: string;
  sent: Change;
  read: { ref: string; before: string | null; after: string | null };
}[] = [
  {
    name: 'a push to a branch',
    sent: { ref: 'refs/heads/main', before: hashOf(1), after: hashOf(2) },
    read: { ref: 'refs/heads/main', before: hashOf(1), after: hashOf(2) },
  },
  {
    name: 'a new branch with slashes and letters of other alphabets',
    sent: { ref: 'refs/heads/feature/größe-日本', before: ZEROS, after: hashOf(3) },
    read: { ref: 'refs/heads/feature/größe-日本', before: null, after: hashOf(3) },
  },
  {
    name: 'a deleted branch',
    sent: { ref: 'refs/heads/old', before: hashOf(4), after: ZEROS },
    read: { ref: 'refs/heads/old', before: hashOf(4), after: null },
  },
  {
    name: 'a new tag',
    sent: { ref: 'refs/tags/v1.0', before: ZEROS, after: hashOf(5) },
    read: { ref: 'refs/tags/v1.0', before: null, after: hashOf(5) },
  },
  {
    name: 'a deleted tag',
    sent: { ref: 'refs/tags/v1.0', before: hashOf(5), after: ZEROS },
    read: { ref: 'refs/tags/v1.0', before: hashOf(5), after: null },
  },
  {
    name: 'a push to a repository with SHA-256',
    sent: { ref: 'refs/heads/main', before: 'a'.repeat(64), after: 'b'.repeat(64) },
    read: { ref: 'refs/heads/main', before: 'a'.repeat(64), after: 'b'.repeat(64) },
  },
];

for (const forge of forgeNames) {
  for (const change of changes) {
    test(`${forge}: ${change.name} is read, as JSON, as a form and when it comes twice`, () => {
      const hook = forges[forge].push(repository, change.sent, 'ada');
      const expected = {
        type: 'push',
        repository: named(forge),
        pushedBy: 'ada',
        changes: [change.read],
      } satisfies HookContent;
      const first = read(hook);
      assert.equal(first.kind, kindOf(forge));
      assert.match(first.delivery ?? '', /^[0-9a-f-]{36}$/);
      assert.deepEqual(first.content, expected);
      assert.deepEqual(read(hook), first);
      assert.deepEqual(read(asForm(hook)), first);
    });
  }

  test(`${forge}: a body that is cut anywhere is never read as a push`, () => {
    const hook = forges[forge].push(repository, changes[0]?.sent as Change, 'ada');
    for (const whole of [hook, asForm(hook)])
      for (let length = 0; length < whole.body.length; length += 7) {
        const { content } = read({ headers: whole.headers, body: whole.body.slice(0, length) });
        assert.equal(content.type, length === 0 ? 'unclear' : 'malformed', `${length} bytes`);
      }
  });

  test(`${forge}: an event that changes no ref is ignored`, () => {
    assert.deepEqual(read(forges[forge].other(repository)).content, { type: 'ignored' });
  });

  for (const action of ['opened', 'reopened', 'updated'] as const)
    for (const fork of [true, false])
      test(`${forge}: a pull request ${fork ? 'of a fork' : 'of the same repository'} that was ${action} is read`, () => {
        const hook = forges[forge].pull?.(repository, { number: 12, hash: hashOf(6), fork, action }, 'eve');
        assert.ok(hook);
        const ref = { gitlab: 'refs/merge-requests/12/head', bitbucket: 'refs/pull-requests/12/from' };
        assert.deepEqual(read(hook).content, {
          type: 'pull_request',
          repository: named(forge),
          pushedBy: 'eve',
          number: 12,
          ref: (ref as Record<string, string>)[kindOf(forge)] ?? 'refs/pull/12/head',
          hash: hashOf(6),
          fromFork: fork,
        } satisfies HookContent);
      });

  test(`${forge}: a pull request without new commits is ignored`, () => {
    const pull = { number: 12, hash: hashOf(6), fork: true, action: 'edited' as const };
    assert.deepEqual(read(forges[forge].pull?.(repository, pull, 'eve') as Envelope).content, {
      type: 'ignored',
    });
  });
}

test('the test events of GitHub and Bitbucket are pings', () => {
  for (const forge of ['github', 'bitbucket'] as const)
    assert.deepEqual(read(forges[forge].ping?.() as Envelope).content, { type: 'ping' });
});

test("a system hook of GitLab is read by its body's kind", () => {
  const hook = forges.gitlab.push(repository, changes[0]?.sent as Change, 'ada');
  hook.headers['x-gitlab-event'] = 'System Hook';
  const { event, content } = read(hook);
  assert.equal(event, 'push');
  assert.equal(content.type, 'push');
  const other = { ...hook, body: JSON.stringify({ event_name: 'user_create' }) };
  assert.deepEqual(read(other).content, { type: 'ignored' });
});

test('Bitbucket reports several refs in one call, and all of them are read', () => {
  const sent = changes.slice(0, 5).map(change => change.sent);
  const { content } = read(bitbucketPush(repository, sent, 'ada'));
  assert.equal(content.type, 'push');
  assert.deepEqual(
    content.type === 'push' && content.changes,
    changes.slice(0, 5).map(change => change.read),
  );
});

test('a push of Bitbucket Cloud, which has another form, is a reason to look', () => {
  const hook = { headers: { 'x-event-key': 'repo:push' }, body: '{"push":{"changes":[]},"repository":{}}' };
  assert.deepEqual(read(hook).content, { type: 'unclear' });
});

test('the lines of a post-receive hook are read, and other refs than branches and tags are left out', () => {
  const notes = { ref: 'refs/notes/commits', before: hashOf(8), after: hashOf(9) };
  const hook = postReceive([...changes.map(change => change.sent), notes], 'secret');
  assert.deepEqual(read(hook), {
    kind: 'git',
    event: 'push',
    delivery: null,
    content: {
      type: 'push',
      repository: null,
      pushedBy: null,
      changes: changes.map(change => change.read),
    },
  });
  assert.deepEqual(read(postReceive([notes], 'secret')).content, { type: 'ignored' });
});

test('lines that are cut in the middle are a reason to look', () => {
  const sent = changes.map(change => change.sent);
  const { body } = postReceive(sent, 'secret');
  for (let length = 0; length < body.length; length += 1) {
    const { content } = read({ headers: {}, body: body.slice(0, length) });
    if (body[length - 1] !== '\n') assert.equal(content.type, 'unclear', `${length} bytes`);
    else assert.equal(content.type, 'push');
  }
});

test('a call without a body, from a forge or by hand, is a reason to look', () => {
  assert.deepEqual(read({ headers: {}, body: '' }).content, { type: 'unclear' });
  for (const forge of forgeNames)
    assert.deepEqual(read({ ...forges[forge].other(repository), body: '' }).content, { type: 'unclear' });
});

const damaged: Record<string, unknown> = {
  'no ref': { ref: undefined },
  'a ref that is a number': { ref: 7 },
  'a ref without its directory': { ref: 'main' },
  'a ref that is empty': { ref: 'refs/heads/' },
  'a ref with an option': { ref: 'refs/heads/--upload-pack=x' },
  'a ref with a space': { ref: 'refs/heads/a b' },
  'a ref with a line break': { ref: 'refs/heads/a\nrefs/heads/b' },
  'a ref that leads out': { ref: 'refs/heads/../../config' },
  'a ref with a control character': { ref: 'refs/heads/a\u0000' },
  'a ref of a peeled tag': { ref: 'refs/tags/v1^{}' },
  'a ref with 10,000 characters': { ref: `refs/heads/${'a'.repeat(10_000)}` },
  'a hash that is short': { after: 'abc1234' },
  'a hash in capitals': { after: hashOf(2).toUpperCase() },
  'a hash with a line break': { after: `${hashOf(2)}\n` },
  'a hash that is an object': { after: { toString: 1 } },
  'no hash before': { before: undefined },
  'zeros on both sides': { before: ZEROS, after: ZEROS },
  'no repository': { repository: undefined, project: undefined },
  'a repository without a name': { repository: {}, project: {} },
};

for (const [name, change] of Object.entries(damaged))
  test(`a push with ${name} is a reason to look, and nothing of it is believed`, () => {
    for (const forge of ['github', 'gitea', 'gitlab'] as const) {
      const hook = forges[forge].push(repository, changes[0]?.sent as Change, 'ada');
      const body = JSON.stringify({ ...JSON.parse(hook.body), ...(change as object) });
      assert.deepEqual(read({ headers: hook.headers, body }).content, { type: 'unclear' }, forge);
    }
  });

test('JSON of every other form is no push, and nothing throws', () => {
  const deep = '['.repeat(100_000);
  for (const body of ['null', '1', '"x"', '[]', '{}', '[{}]', '{"__proto__":{"ref":1}}', `${deep}${deep}`])
    for (const forge of forgeNames)
      for (const headers of [
        forges[forge].push(repository, changes[0]?.sent as Change, 'ada').headers,
        forges[forge].pull?.(repository, { number: 1, hash: hashOf(1), fork: true, action: 'opened' }, 'a')
          .headers as Record<string, string>,
      ])
        assert.notEqual(read({ headers, body }).content.type, 'push');
  for (const event of ['constructor', '__proto__', 'toString', '', ' ', 'x'.repeat(5_000)]) {
    const hook = read({ headers: { 'x-github-event': event }, body: '{}' });
    assert.deepEqual(hook.content, { type: 'ignored' });
    assert.ok(hook.event.length <= 100);
  }
});

test('a pull request whose number or hash is not plain is a reason to look', () => {
  const pull = { number: 12, hash: hashOf(6), fork: true, action: 'opened' as const };
  const hook = forges.github.pull?.(repository, pull, 'eve') as Envelope;
  for (const change of [
    { number: '12' },
    { number: -1 },
    { number: 1.5 },
    { number: 2 ** 40 },
    { head: {} },
  ]) {
    const body = JSON.parse(hook.body) as { pull_request: object };
    body.pull_request = { ...body.pull_request, ...change };
    const { content } = read({ headers: hook.headers, body: JSON.stringify(body) });
    assert.deepEqual(content, { type: 'unclear' }, JSON.stringify(change));
  }
});

test('a pull request of a fork that is gone is still one of a fork', () => {
  const pull = { number: 12, hash: hashOf(6), fork: true, action: 'opened' as const };
  const hook = forges.github.pull?.(repository, pull, 'eve') as Envelope;
  const body = JSON.parse(hook.body) as { pull_request: { head: { repo: unknown } } };
  body.pull_request.head.repo = null;
  const { content } = read({ headers: hook.headers, body: JSON.stringify(body) });
  assert.equal(content.type === 'pull_request' && content.fromFork, true);
});

test('a body that was too large to keep is a reason to look', () => {
  for (const headers of [{}, forges.github.other(repository).headers])
    assert.deepEqual(readHook(new Headers(headers), null).content, { type: 'unclear' });
});

test('more than 100 refs in one call are a reason to look', () => {
  const many = Array.from({ length: 101 }, (_, index) => ({
    ref: `refs/heads/b${index}`,
    before: ZEROS,
    after: hashOf(index),
  }));
  for (const hook of [postReceive(many, 's'), bitbucketPush(repository, many, 'ada')])
    assert.deepEqual(read(hook).content, { type: 'unclear' });
  const fewer = read(postReceive(many.slice(1), 's')).content;
  assert.equal(fewer.type === 'push' && fewer.changes.length, 100);
});

test('the name of who pushed is one short line without control characters', () => {
  const by = (name: string) => {
    const { content } = read(forges.github.push(repository, changes[0]?.sent as Change, name));
    return content.type === 'push' ? content.pushedBy : undefined;
  };
  assert.equal(by('Ada\u202e\r\nLovelace\u0000 '), 'Ada Lovelace');
  assert.equal(by('\u0007'), null);
  assert.equal(by('😀'.repeat(5_000)), '😀'.repeat(100));
  assert.equal(by('\ud800x'), 'x');
});

test('a repository is the same whatever the host, case, ending and leading slash', () => {
  for (const path of ['team/app', 'Team/App', '/team/app', 'team/app.git'])
    for (const url of ['git@forge.example:team/app.git', 'git@other:/TEAM/app.git'])
      assert.ok(isSameRepository(url, path), `${url} ${path}`);
  for (const path of ['team/app2', 'eam/app', 'app', '', 'other/team/app'])
    assert.ok(!isSameRepository('git@forge.example:team/app.git', path), path);
});
