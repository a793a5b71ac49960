// The pages of a project with very many suites: they stay small, show suites that did not pass first, and link to the
// rest.
import assert from 'node:assert/strict';
import { get } from 'node:https';
import { after, before, test } from 'node:test';
import { generateKeyPair } from '../../../src/domain/ssh-key.ts';
import { createSession } from '../../../src/store/accounts.ts';
import {
  createBuildRequest,
  enqueueBuilds,
  enqueueSomeBuilds,
  recordCommit,
} from '../../../src/store/builds.ts';
import { createProject, type Project } from '../../../src/store/projects.ts';
import { createRule, createSuite } from '../../../src/store/suites.ts';
import { moveBuild, moveRequest } from '../../../src/store/transition.ts';
import { bootApp, commitFields, type TestApp } from '../../support/app.ts';
import { listBuildsOfRequest } from '../../support/builds.ts';

const SUITES = 250;
const COLUMNS = 16;
const FAILED = 'Suite 217 fails';
const nameOf = (at: number) => (at === 217 ? FAILED : `Suite ${at}`);

let app: TestApp;
let project: Project;
let commitId: bigint;
let cookie: string;

before(async () => {
  app = await bootApp();
  const { db, people } = app;
  cookie = `__Host-assay-session=${createSession(db, people.owner.account.id)}`;
  project = createProject(db, {
    ownerId: people.owner.account.id,
    name: 'Wide',
    description: '',
    repositoryUrl: 'git@git.invalid:team/wide.git',
    badge: false,
    cancelSuperseded: false,
    keyPair: generateKeyPair('wide'),
  });
  db.write(() => {
    const suites = Array.from({ length: SUITES }, (_, at) => {
      const suite = createSuite(db, {
        projectId: project.id,
        name: nameOf(at),
        description: '',
        command: 'make check',
        image: null,
      });
      createRule(db, { suiteId: suite.id, subject: 'commit.branches', operator: 'equals', value: 'main' });
      return suite;
    });
    const request = createBuildRequest(db, project, 'main', 'owner@example.org');
    moveRequest(db, request.id, 'fetch');
    const commit = recordCommit(db, project.id, commitFields('c'.repeat(40)));
    commitId = commit.id;
    const decisions = suites.map(({ id, name }) => ({ suiteId: id, suiteName: name, runs: true, rules: [] }));
    enqueueBuilds(db, request.id, commit, 'main', decisions);
    while (enqueueSomeBuilds(db));
    for (const build of listBuildsOfRequest(db, request.id)) {
      moveBuild(db, build.id, 'start');
      moveBuild(db, build.id, build.suiteName === FAILED ? 'fail' : 'pass', { exitCode: 0 });
    }
  });
});
after(() => app.close());

function look(path: string): Promise<string> {
  const { hostname, port } = new URL(app.url);
  return new Promise((resolve, reject) => {
    get({ hostname, port, path, ca: app.client.ca, headers: { cookie } }, async incoming => {
      const text = (await incoming.toArray()).join('');
      if (incoming.statusCode === 200) resolve(text);
      else reject(new Error(`${path}: ${incoming.statusCode} ${text}`));
    }).on('error', reject);
  });
}

const countOf = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].length;

test('the project page has columns for some suites, including all that did not pass', async () => {
  const text = await look(`/ui/projects/${project.id}`);
  assert.equal(countOf(text, /class="suite-name"/g), COLUMNS);
  assert.match(text, new RegExp(`Showing ${COLUMNS} of ${SUITES} suites`));
  assert.ok(text.includes(FAILED));
  assert.match(text, new RegExp(`>${SUITES - COLUMNS} passed</span>`), 'the others are counted');
});

test('the page of suites is paged, with each suite once', async () => {
  const names: string[] = [];
  let path: string | undefined = `/ui/projects/${project.id}/suites`;
  for (let pages = 0; path !== undefined; pages += 1) {
    assert.ok(pages < 5);
    const text = await look(path);
    names.push(...[...text.matchAll(/class="name" href="[^"]*">([^<]*)</g)].map(match => match[1] as string));
    [, path] = /href="([^"]*)">More suites/.exec(text) ?? [];
  }
  assert.deepEqual(
    names,
    Array.from({ length: SUITES }, (_, at) => nameOf(at)),
  );
});

test('the history is paged, with each suite once, and begins with the one that fails', async () => {
  const names: string[] = [];
  let path: string | undefined = `/ui/projects/${project.id}/history`;
  for (let pages = 0; path !== undefined; pages += 1) {
    assert.ok(pages < 10);
    const text = await look(path);
    names.push(...[...text.matchAll(/class="name" href="[^"]*">([^<]*)</g)].map(match => match[1] as string));
    [, path] = /href="([^"]*)">More suites/.exec(text) ?? [];
  }
  assert.equal(names[0], FAILED);
  assert.deepEqual([names.length, new Set(names).size], [SUITES, SUITES]);
});

test('the page of the commit shows rule decisions in pages', async () => {
  const shown: string[] = [];
  let path: string | undefined = `/ui/projects/${project.id}/commits/${commitId}`;
  for (let pages = 0; path !== undefined; pages += 1) {
    assert.ok(pages < 5);
    const text = await look(path);
    const decisions = text.slice(text.indexOf('id="decisions"'), text.indexOf('id="deploy-head"'));
    shown.push(...[...decisions.matchAll(/>(Suite \d+[^<]*)</g)].map(match => match[1] as string));
    [, path] =
      /href="([^"]*)">\d+ more suites/.exec(decisions)?.map(one => one.replaceAll('&amp;', '&')) ?? [];
  }
  assert.equal(new Set(shown).size, SUITES);
});
