// The record of what a build was made of: which changes it shows, and that no content of a variable is in it.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { findInputs, recordInputs } from '../../../src/store/result/build-inputs.ts';
import { createVariable } from '../../../src/store/suites.ts';
import { addBuilds, addProject, addSuite, openFixture } from '../fixture.ts';

const SECRET = 'correct horse battery staple';
const dependency = {
  id: 5n,
  name: 'zlib',
  artifactHash: 'aaaa',
  launchCommand: 'start-it',
  environment: '',
  libraryPath: true,
};
const used = {
  command: 'make test',
  image: 'tools',
  imageId: 'sha256:1' as string | null,
  variables: [
    { id: 2n, name: 'TOKEN', content: SECRET },
    { id: 1n, name: 'MODE', content: 'fast' },
  ],
  dependencies: [dependency],
  limits: { MEMORY: 1_000, NETWORK: 'none' },
};

test('the digest of the inputs changes with each input, and with nothing else', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const { builds } = addBuilds(db, project, [addSuite(db, project.id).id]);
  const build = { id: builds[0] as bigint, projectId: project.id };
  const digestOf = (changes: Partial<typeof used>) => {
    recordInputs(db, build, { ...used, ...changes });
    return findInputs(db, build.id)?.digest;
  };
  const digest = digestOf({});
  assert.match(digest as string, /^[0-9a-f]{64}$/);
  const same: [what: string, changes: Partial<typeof used>][] = [
    ['nothing', {}],
    ['the name of the same image', { image: 'tools:latest' }],
    ['the name of a dependency', { dependencies: [{ ...dependency, name: 'z' }] }],
    ['the order of the variables', { variables: used.variables.toReversed() }],
    ['the order of the limits', { limits: { NETWORK: 'none', MEMORY: 1_000 } as typeof used.limits }],
  ];
  for (const [what, changes] of same) assert.equal(digestOf(changes), digest, what);
  const different: [what: string, changes: Partial<typeof used>][] = [
    ['the command', { command: 'make check' }],
    ['the image', { imageId: 'sha256:2' }],
    ['an image that is not known', { imageId: null }],
    [
      'the content of a variable',
      { variables: [{ id: 2n, name: 'TOKEN', content: 'x' }, used.variables[1]!] },
    ],
    [
      'the name of a variable',
      { variables: [{ id: 2n, name: 'TOKENS', content: SECRET }, used.variables[1]!] },
    ],
    ['no variables', { variables: [] }],
    ['the artifact of a dependency', { dependencies: [{ ...dependency, artifactHash: 'bbbb' }] }],
    ['the launch command of a dependency', { dependencies: [{ ...dependency, launchCommand: '' }] }],
    ['the environment of a dependency', { dependencies: [{ ...dependency, environment: 'A=1' }] }],
    ['the library path of a dependency', { dependencies: [{ ...dependency, libraryPath: false }] }],
    ['no dependency', { dependencies: [] }],
    ['a limit', { limits: { ...used.limits, MEMORY: 2_000 } }],
  ];
  const digests = different.map(([what, changes]) => {
    const other = digestOf(changes);
    assert.notEqual(other, digest, what);
    return other;
  });
  assert.equal(new Set(digests).size, different.length, 'each change gives another digest');
});

test('a later attempt replaces the inputs, and a build that did not start has none', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suites = [addSuite(db, project.id).id, addSuite(db, project.id).id];
  const { builds } = addBuilds(db, project, suites);
  const build = { id: builds[0] as bigint, projectId: project.id };
  recordInputs(db, build, used);
  recordInputs(db, build, { ...used, command: 'make again', dependencies: [] });
  const inputs = findInputs(db, build.id)?.inputs;
  assert.equal(inputs?.command, 'make again');
  assert.deepEqual(inputs.dependencies, []);
  assert.deepEqual(
    inputs.variables.map(({ name }) => name),
    ['MODE', 'TOKEN'],
  );
  assert.equal(findInputs(db, builds[1] as bigint), undefined);
});

test('neither the content of a variable nor its plain hash is in the database, and projects do not share fingerprints', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const fingerprints = [addProject(db), addProject(db)].map(project => {
    const suite = addSuite(db, project.id);
    createVariable(db, suite.id, 'TOKEN', SECRET);
    const { builds } = addBuilds(db, project, [suite.id]);
    const build = { id: builds[0] as bigint, projectId: project.id };
    const variables = [...used.variables, { id: 3n, name: 'SAME', content: SECRET }];
    recordInputs(db, build, { ...used, variables });
    return findInputs(db, build.id)?.inputs.variables.map(({ fingerprint }) => fingerprint) ?? [];
  });
  assert.equal(new Set(fingerprints.flat()).size, 6, 'of two projects and of two names');
  db.sqlite.pragma('wal_checkpoint(TRUNCATE)');
  const file = readFileSync(fixture.path);
  assert.ok(file.includes('make test'), 'the inputs are in the file');
  const hash = createHash('sha256').update(SECRET);
  const digest = hash.digest();
  for (const form of [
    SECRET,
    Buffer.from(SECRET).toString('hex'),
    Buffer.from(SECRET).toString('base64'),
    digest,
  ])
    assert.ok(!file.includes(form), String(form));
  assert.ok(!file.includes(digest.toString('hex').slice(0, 32)));
});
