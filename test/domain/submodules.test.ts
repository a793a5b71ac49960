// Which submodules may be fetched, and under which names.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkSubmodule, namesCollide, resolveSubmoduleUrl } from '../../src/domain/submodules.ts';

test('a submodule is fetched over SSH, or from an address relative to its parent', () => {
  const parent = 'git@git.example.org:team/site.git';
  const resolved: [url: string, from: string, to: string | undefined][] = [
    ['git@other.example.org:lib.git', parent, 'git@other.example.org:lib.git'],
    ['git@other.example.org:lib', parent, 'git@other.example.org:lib'],
    [
      'ssh://git@other.example.org:2222/team/lib.git',
      parent,
      'ssh://git@other.example.org:2222/team/lib.git',
    ],
    ['../lib.git', parent, 'git@git.example.org:team/lib.git'],
    ['../lib.git/', parent, 'git@git.example.org:team/lib.git'],
    ['../../shared/lib.git', parent, 'git@git.example.org:shared/lib.git'],
    ['./lib.git', parent, 'git@git.example.org:team/site.git/lib.git'],
    ['../lib.git', 'git@h:site.git', 'git@h:lib.git'],
    ['../lib.git', 'git@h:/srv/site.git', 'git@h:/srv/lib.git'],
    ['../lib.git', 'ssh://git@h:22/a/site.git', 'ssh://git@h:22/a/lib.git'],
    ['../../../lib.git', parent, undefined],
    ['../../lib.git', 'ssh://git@h/site.git', undefined],
    ...[
      'https://github.com/x/y.git',
      'http://h/x',
      'git://h/x',
      'file:///etc',
      '/etc/x.git',
      'x.git',
      'ext::sh -c touch% /tmp/x',
      '-oProxyCommand=x@h:x.git',
      'git@-oProxyCommand=x:x.git',
      'git@h:-x.git',
      'git@h:../x.git',
      'ssh://-oProxyCommand=x/y',
      'ssh://git@-oProxyCommand=x/y',
      'ssh://h/x.git',
      'ssh://git@h:22x/y',
      'git@h:x.git\n',
      'git@h:x y.git',
      '../a b',
      '../x.git/..',
      '',
    ].map((url): [string, string, undefined] => [url, parent, undefined]),
  ];
  for (const [url, from, to] of resolved) assert.equal(resolveSubmoduleUrl(url, from), to, url);
});

test('names and paths that lead outside are refused', () => {
  const plain = { name: 'lib', path: 'lib' };
  for (const text of ['lib', 'vendor/a b', 'ünï', '-x', "it's", 'a.git'])
    assert.equal(checkSubmodule({ ...plain, name: text, path: text }), undefined, text);
  for (const text of [
    '',
    '.',
    '..',
    '../x',
    'a/../b',
    'a/..',
    '/x',
    'a//b',
    'a/.git',
    '.GIT/hooks',
    'a\\..\\b',
    'a\nb',
    'x'.repeat(2_000),
  ]) {
    assert.ok(checkSubmodule({ ...plain, name: text }), text);
    assert.ok(checkSubmodule({ ...plain, path: text }), text);
  }
});

test('nested or duplicate names collide', () => {
  assert.ok(namesCollide(['a', 'a/b']));
  assert.ok(namesCollide(['a/b/c', 'a']));
  assert.ok(namesCollide(['a', 'a']));
  assert.ok(!namesCollide(['a', 'ab', 'b/a', 'b/c']));
});
