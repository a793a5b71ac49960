// Images that a suite or a dependency can name: `host`, imported ones and the default; others only with ANY_IMAGE.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Settings } from '../../src/config.ts';
import { recordImage, setDefaultImage } from '../../src/store/images.ts';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { errors, type Fields } from '../support/client.ts';
import { dependencyForm, suiteForm } from './contract.ts';

let app: TestApp;
let planted: Planted;

const open = (overrides: Partial<Settings>) => {
  before(async () => {
    app = await bootApp(overrides);
    planted = app.plant();
    recordImage(app.db, 'debian:12', 'sha256:1');
    recordImage(app.db, 'team/tools', 'sha256:2');
  });
  after(() => app.close());
};

/** The ways to name an image. */
const ways: [string, () => [method: string, path: string, form: Fields]][] = [
  ['a new suite', () => ['POST', `/projects/${planted.project_id}/suites`, suiteForm()]],
  ['a suite', () => ['PUT', `/projects/${planted.project_id}/suites/${planted.suite_id}`, {}]],
  ['a new dependency', () => ['POST', '/dependencies', dependencyForm()]],
  ['a dependency', () => ['PUT', `/dependencies/${planted.used_dependency_id}`, {}]],
];

async function name(way: (typeof ways)[number][1], image: string) {
  const [method, path, form] = way();
  return app.client.call(method, path, { as: app.people.owner.as, form: { ...form, image } });
}

const others = ['debian', 'debian:11', 'debian:12.1', 'other/app:1', `debian@sha256:${'a'.repeat(64)}`];

describe('without ANY_IMAGE', () => {
  open({});
  for (const [what, way] of ways) {
    test(`${what} can name host and imported images`, async () => {
      for (const image of ['host', 'debian:12', 'team/tools', 'team/tools:latest']) {
        const { status, record, text } = await name(way, image);
        assert.ok(status < 300, text);
        assert.equal(record.image, image);
      }
      const { record } = await name(way, '');
      assert.equal(record.image, undefined, 'the default one');
    });

    test(`${what} can name no other image of Docker, nor Assay's own`, async () => {
      const before = app.changes();
      for (const image of [...others, 'assay/host:1', 'assay/prepared:1', 'team/tools:2']) {
        const { status, json } = await name(way, image);
        assert.deepEqual([status, json], [404, errors('image', 'not_found')], image);
      }
      const { status, json } = await name(way, '-v');
      assert.deepEqual([status, json], [403, errors('image', 'invalid_format')]);
      assert.equal(app.changes(), before);
    });
  }
});

describe('with another default image', () => {
  open({ image: 'team/base:1' });
  test('it can be named, whether a setting or the command line chose it', async () => {
    const [, way] = ways[0] as (typeof ways)[number];
    assert.equal((await name(way, 'team/base:1')).status, 201);
    assert.equal((await name(way, 'team/chosen:1')).status, 404);
    setDefaultImage(app.db, 'team/chosen:1');
    assert.equal((await name(way, 'team/chosen:1')).status, 201);
    assert.equal((await name(way, 'team/base:1')).status, 404, 'it is no longer the default');
  });
});

describe('with ANY_IMAGE', () => {
  open({ anyImage: true });
  for (const [what, way] of ways)
    test(`${what} can name any image`, async () => {
      for (const image of others) assert.ok((await name(way, image)).status < 300, image);
    });
});
