// What dependencies add to the environment of suites and compiles: search paths, variables, directories for daemons.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type MountedDependency,
  runDirectories,
  searchPathsOf,
  variablesOfDependencies,
} from '../../../src/domain/container/dependency-environment.ts';

let count = 0n;
const used = (fields: Partial<MountedDependency> = {}): MountedDependency => {
  count += 1n;
  return { id: count, name: `d${count}`, prefix: '/opt/a', environment: '', libraryPath: true, ...fields };
};
const pathsOf = (...dependencies: MountedDependency[]) =>
  Object.fromEntries(
    searchPathsOf(dependencies).map(({ name, directories }) => [name, directories.join(':')]),
  );

test('each prefix is on the search paths once, in order', () => {
  assert.deepEqual(pathsOf(), {});
  assert.deepEqual(pathsOf(used(), used({ prefix: '/opt/b' }), used()), {
    PATH: '/opt/a/bin:/opt/a/sbin:/opt/b/bin:/opt/b/sbin',
    LD_LIBRARY_PATH: '/opt/a/lib:/opt/a/lib64:/opt/b/lib:/opt/b/lib64',
    PKG_CONFIG_PATH: ['/opt/a', '/opt/b']
      .flatMap(prefix => ['lib', 'lib64', 'share'].map(directory => `${prefix}/${directory}/pkgconfig`))
      .join(':'),
    CPATH: '/opt/a/include:/opt/b/include',
    LIBRARY_PATH: '/opt/a/lib:/opt/a/lib64:/opt/b/lib:/opt/b/lib64',
    CMAKE_PREFIX_PATH: '/opt/a:/opt/b',
    ACLOCAL_PATH: '/opt/a/share/aclocal:/opt/b/share/aclocal',
    MANPATH: '/opt/a/share/man:/opt/b/share/man',
  });
});

test('a prefix is off LD_LIBRARY_PATH if none of its dependencies wants it on', () => {
  const off = { libraryPath: false };
  assert.equal(pathsOf(used(off)).LD_LIBRARY_PATH, undefined);
  assert.equal(pathsOf(used(off)).LIBRARY_PATH, '/opt/a/lib:/opt/a/lib64', 'linkers still find it');
  assert.equal(
    pathsOf(used({ ...off, prefix: '/opt/b' }), used()).LD_LIBRARY_PATH,
    '/opt/a/lib:/opt/a/lib64',
  );
  assert.equal(pathsOf(used(off), used()).LD_LIBRARY_PATH, '/opt/a/lib:/opt/a/lib64');
});

test('variables of dependencies have the prefix and the directory of the daemon replaced, and nothing else', () => {
  const environment = [
    `DATA=$PREFIX/share:\${PREFIX}/data:$PREFIXES:$PREFIX_X:$prefix:\${PREFIX`,
    `SOCKET=\${ASSAY_RUN}/socket $ASSAY_RUNS $constructor $(id) \`id\` $HOME \\ '"`,
    'EMPTY=',
  ].join('\r\n');
  assert.deepEqual(variablesOfDependencies([used({ environment, name: 'My DB', prefix: "/opt/$&'x" })]), [
    { name: 'DATA', content: "/opt/$&'x/share:/opt/$&'x/data:$PREFIXES:$PREFIX_X:$prefix:${PREFIX" },
    { name: 'SOCKET', content: '/srv/run/My-DB/socket $ASSAY_RUNS $constructor $(id) `id` $HOME \\ \'"' },
    { name: 'EMPTY', content: '' },
  ]);
});

test('of two variables with the same name, that of the earlier dependency is used', () => {
  const list = variablesOfDependencies([used({ environment: 'A=1' }), used({ environment: 'A=2\nB=2' })]);
  assert.deepEqual(
    list.map(({ name, content }) => `${name}=${content}`),
    ['A=1', 'B=2'],
  );
});

test('each dependency has a directory of its own, with a plain name', () => {
  const names = [
    'PostgreSQL 16',
    '../../etc',
    'a/b',
    'a b',
    'a-b',
    'a-b-2',
    '数据库',
    '..',
    "x'; id #",
    'é'.repeat(99),
  ];
  const directories = [...runDirectories(names.map((name, index) => ({ id: BigInt(index), name }))).values()];
  assert.deepEqual(
    directories.map(path => path.replace('/srv/run/', '')),
    [
      'PostgreSQL-16',
      'etc',
      'a-b',
      'a-b-2',
      'a-b-3',
      'a-b-2-2',
      'dependency',
      'dependency-2',
      'x-id',
      'dependency-3',
    ],
  );
  const [long] = runDirectories([{ id: 1n, name: 'x'.repeat(255) }]).values();
  assert.equal(long, `/srv/run/${'x'.repeat(50)}`);
});
