// Validation of names, repository URLs, refs, variables, prefixes, redirect URIs, email addresses and images.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import {
  checkBranch,
  checkCommand,
  checkCommitRef,
  checkEmail,
  checkImageName,
  checkPrefix,
  checkRedirectUri,
  checkRepositoryUrl,
  checkSource,
  checkVariableName,
  nameKey,
} from '../../src/domain/names.ts';
import { processorMs } from '../support/processor.ts';

const words = (text: string): string[] => text.split(' ');

type Check = (value: string) => string | undefined;

function checkAll(
  check: Check,
  table: { good: string[]; invalid_format: string[]; is_reserved?: string[] },
): void {
  for (const value of table.good) assert.equal(check(value), undefined, JSON.stringify(value));
  for (const value of table.invalid_format)
    assert.equal(check(value), 'invalid_format', JSON.stringify(value));
  for (const value of table.is_reserved ?? [])
    assert.equal(check(value), 'is_reserved', JSON.stringify(value));
}

test('names that differ only in case, white space, form or invisible characters have one key', () => {
  const equal = [
    ['Unit tests', 'unit tests', ' UNIT  TESTS ', 'Unit\u00a0tests', 'Unit\u3000tests\n', 'Unittests'],
    ['Grüße', 'GRÜSSE', 'gru\u0308ße', 'Grüsse'],
    ['ΟΔΟΣ', 'οδος', 'οδοσ'],
    ['ﬁle', 'FILE', 'ｆｉｌｅ', 'fi\u200ble', 'fi\u00adle'],
    ['Ж', 'ж'],
    ['Å', '\u212b', 'A\u030a', 'å'],
  ];
  for (const names of equal)
    assert.deepEqual([...new Set(names.map(nameKey))], [nameKey(names[0] as string)], names.join());
  assert.equal(new Set(equal.map(([name]) => nameKey(name as string))).size, equal.length);
  for (const [one, other] of [
    ['a', 'ä'],
    ['v1', 'v2'],
    ['a-b', 'a_b'],
    ['a.b', 'ab'],
    ['i', 'j'],
  ] as const)
    assert.notEqual(nameKey(one), nameKey(other), `${one} ${other}`);
  for (const nothing of ['', ' \t\n', '\u00a0', '\u200b\u2060', '\ufeff']) assert.equal(nameKey(nothing), '');
});

test('a repository URL is user@host:path.git and nothing else', () => {
  checkAll(checkRepositoryUrl, {
    good: [
      ...words('git@example.org:team/app.git git@git-host:app.git deploy.user_1@10.0.0.1:/srv/git/app.git'),
      ...words('git@host:~ada/app.git git@host:a/b/c++/d-e_f.git git@host:app/.git git@host:22/app.git'),
      `git@host:${'a'.repeat(1_024 - 13)}.git`,
    ],
    invalid_format: [
      '',
      ' ',
      ...words('git@example.org:team/app git@example.org/team/app.git example.org:team/app.git'),
      ...words('@example.org:app.git git@:app.git git@host: git@host:.git ssh://git@host/app.git'),
      ...words('https://host/app.git https://user@host:app.git file:///srv/app.git /srv/app.git'),
      'ext::sh -c id@host:x.git',
      ...words('-oProxyCommand=id@host:x.git -x@host:x.git git@-oProxyCommand=id:x.git git@-host:x.git'),
      ...words('git@host:-x.git git@host:--upload-pack=id.git git@host:a/../b.git git@host:../b.git'),
      ...words('git@host..org:b.git'),
      'git@host:a b.git',
      'git@host:a\nb.git',
      'git@host:app.git\n',
      '\ngit@host:app.git',
      'git@host:a\u0000b.git',
      'git@host:$(id).git',
      'git@host:`id`.git',
      "git@host:'a'.git",
      'git@host:a;b.git',
      'git@host:a\\b.git',
      ...words('git@host@other:a.git git@host:a@b.git git@[::1]:app.git git@host:äpp.git git@host:app.git?x'),
      `git@host:${'a'.repeat(1_024 - 12)}.git`,
    ],
  });
});

/** Accepted by git but not by Assay: each could be read as something other than a name. */
const refusedThoughGitTakes = ['@', '+main', 'refs/heads/main', 'refs/x', 'a'.repeat(201)];

const branches = [
  ...words('main feature/x a.b release-1.2 1 0123abc ä/ö a@b a{b a} HEAD/x head refs'),
  ...[...words('a+b x=y a,b a;b'), 'a$b', "a'b", ...words('a"b a|b a&b a#b #1 % ! a- a/-b a/+b @x')],
  ...[
    'lock',
    'a.lockx',
    'FETCH_HEAD',
    'a'.repeat(200),
    '😀',
    'a\u00a0b',
    ']x',
    '(x)',
    '`x`',
    '<x>',
    '_',
    'a/@',
  ],
  ...['', ' ', ...words('- -x --all --upload-pack=x HEAD @ @{-1} @{u} a@{1} a:b :a a:'), 'a b'],
  ...[...words('a~1 a^ ^a a? a* * a[b'), 'a\\b', ...words('a..b .. . .a a. a/.b /a a/ a//b /')],
  ...[
    'a.lock',
    'a.lock/b',
    'a\tb',
    'a\nb',
    'a\u007fb',
    'a\u0001',
    'main ',
    ' main',
    ...words('./a ../a a/.. .lock'),
  ],
  ...refusedThoughGitTakes,
];

test('a branch is what git check-ref-format --branch accepts, except for the listed ones', () => {
  for (const name of branches) {
    const { status } = spawnSync('git', ['check-ref-format', '--branch', name], {
      cwd: '/',
      timeout: 10_000,
    });
    const taken = status === 0 && !refusedThoughGitTakes.includes(name);
    assert.equal(checkBranch(name), taken ? undefined : 'invalid_format', JSON.stringify(name));
    if (refusedThoughGitTakes.includes(name)) assert.equal(status, 0, `git takes ${name}`);
  }
});

test('a branch with NUL, broken UTF-16 or too many bytes is refused', () => {
  checkAll(checkBranch, {
    good: ['ä'.repeat(100)],
    invalid_format: ['a\u0000b', 'a\ud800', `${'ä'.repeat(100)}a`],
  });
});

test('a commit ref is a branch, a tag or a hash, never an expression', () => {
  checkAll(checkCommitRef, {
    good: ['main', 'v1.0.0', 'a1b2c3d', 'A1B2C3D', '0123456789abcdef0123456789abcdef01234567', 'release/2'],
    invalid_format: ['', ...words('-x +main a:b HEAD HEAD~1 main^ main@{1} a..b a//b refs/tags/v1 @')],
  });
});

test('variable names', () => {
  checkAll(checkVariableName, {
    good: words('A _ a1 DATABASE_URL path CI_TOKEN ASSAYER assay_x LD_PRELOAD HOME_DIR'),
    invalid_format: ['', '1A', 'A-B', 'A B', 'A=B', 'Ä', 'A\n', '\nA', 'A\u0000', 'A.B', '$A', 'ASSAY-X'],
    is_reserved: words('CI HOME PATH ASSAY ASSAY_ ASSAY_X LD_LIBRARY_PATH PKG_CONFIG_PATH'),
  });
});

test('prefixes', () => {
  const system = [...words('bin dev etc home lib lib64 lib32 libx32 proc root run sbin sys')];
  checkAll(checkPrefix, {
    good: [
      ...words(
        '/srv/dependency /opt /opt/ruby-2.0 /srv/projects /srv/cached/x /srv/running /binary /data/ä /a.b /...',
      ),
    ],
    invalid_format: [
      ...['', ' ', ...words('opt opt/x ./opt ../opt ~/opt /opt/ //opt /opt//x /opt/./x /opt/../x /..')],
      ...[
        '/opt/a:b',
        '/opt/a,b',
        '/opt/a b',
        '/opt/$HOME',
        '/opt/a\n',
        '/opt/a\tb',
        '/opt/\u0000',
        '/usr/../x',
        '/tmp/',
      ],
      ...['//', '/.', `/${'a'.repeat(256)}`, `/${'abcdefg/'.repeat(150)}x`, '/opt/\ud800'],
    ],
    is_reserved: [
      ...words(
        '/ /srv /srv/project /srv/project/x /srv/cache /srv/cache/a/b /srv/run /srv/run/x /srv/.assay /srv/.assay/output /usr/local /var/lib/x',
      ),
      ...[...system, 'tmp', 'usr', 'var'].flatMap(name => [`/${name}`, `/${name}/x`]),
    ],
  });
});

test('a source is relative and stays inside the archive', () => {
  checkAll(checkSource, {
    good: ['', 'src', 'ruby-2.0.0/ext', './src', 'a..b', '...', 'a b', 'src/', '-x'],
    invalid_format: [...words('/ /src .. ../x a/../b a/.. ./..'), 'a\u0000b', 'a\nb', 'x'.repeat(256)],
  });
});

test('a command must contain its prefix', () => {
  assert.equal(
    checkCommand('./configure --prefix=/srv/dependency && make install', '/srv/dependency'),
    undefined,
  );
  assert.equal(checkCommand('./configure --prefix=/opt/x', '/opt/y'), 'invalid_format');
  assert.equal(checkCommand('make install', '/srv/dependency'), 'invalid_format');
});

test('redirect URIs', () => {
  checkAll(checkRedirectUri, {
    good: [
      ...words('https://app.example.org/callback https://app.example.org/callback?x=1&y=%20'),
      ...words('http://localhost:3000/cb http://127.0.0.1/cb http://[::1]:8080/cb com.example.app:/oauth2'),
      ...words('myapp://callback urn:ietf:wg:oauth:2.0:oob'),
    ],
    invalid_format: [
      ...['', ' ', ...words('/callback callback //host/x host.example/x ?x #x https: https:// https:/x')],
      ...words('https:host/x https:///x https://a.example/# https://a.example/#x myapp://cb#x myapp:'),
      ...[
        'javascript:alert(1)',
        'JavaScript:alert(1)',
        'java\nscript:alert(1)',
        ' javascript:alert(1)',
        'data:text/html,x',
      ],
      ...[
        ...words('DATA:,x vbscript:x blob:https://a/x file:///etc/passwd about:blank'),
        ...words('urn:ietf:wg:oauth:2.0:other'),
      ],
      ...[
        'https://a.example/a b',
        'https://a.example/\u0000',
        'https://a.example\\@b/',
        'https://a.example:99999/',
      ],
      `https://a.example/${'x'.repeat(2_048)}`,
    ],
  });
});

test('email addresses', () => {
  checkAll(checkEmail, {
    good: [
      'ada@example.org',
      'a.b+c@sub.example.co',
      'root@localhost',
      "o'neil@x.io",
      'jürgen@müller.de',
      'a@1.2.3.4',
    ],
    invalid_format: [
      ...[
        '',
        ...words('ada @x.org ada@ a@b@c'),
        'a b@x.org',
        'a@x org',
        ...words('a:b@x.org a@x..org a@.org a@org.'),
      ],
      ...[
        ...words('a@-x.org .a@x.org a.@x.org a..b@x.org'),
        'a@x.org\n',
        '<a@x.org>',
        'a@x.org,b@x.org',
        'a\u0000@x.org',
      ],
      ...[`${'a'.repeat(65)}@x.org`, `a@${'a'.repeat(64)}.org`, `a@${'a.'.repeat(130)}org`],
    ],
  });
});

test('image names', () => {
  const digest = `sha256:${'0'.repeat(64)}`;
  checkAll(checkImageName, {
    good: [
      ...words('host debian debian:12 team/app:v1.2-rc registry.local:5000/team/app'),
      `debian@${digest}`,
      digest,
    ],
    invalid_format: [
      ...['', ' ', 'Debian', '-x', 'a b', ...words('a: :a a/ /a a//b a:b:c a..b ../a a@b http://a/b')],
      ...['a\n', 'a;b', '$(a)', 'a:-x', `a:${'x'.repeat(129)}`, 'a'.repeat(256)],
    ],
  });
});

test('no check is slow for a long hostile value', () => {
  const checks = [checkRepositoryUrl, checkBranch, checkVariableName, checkPrefix, checkSource, checkEmail];
  const workedMs = processorMs(() => {
    for (const check of checks)
      for (const unit of ['a', 'a.', 'a-', '-', '/', 'a/', '.', 'a@', 'git@h:', '\n'])
        check(unit.repeat(100_000));
    for (const unit of ['a', 'a-', 'a__', 'a.', '-', 'a/']) checkImageName(`${unit.repeat(80)}!`);
    checkRedirectUri('a'.repeat(1_000_000));
  });
  assert.ok(workedMs < 1_000, `${workedMs} ms`);
});
