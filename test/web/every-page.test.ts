// Opens every page of `routes` in Chromium with data on it, in both themes, wide and narrow, and checks what every page
// must have. A new page needs no line here unless its path has a new parameter or it needs a query; a route that is not
// a page is named in `notPages`.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { createAccount, createSignInLink, updateAccount } from '../../src/store/accounts.ts';
import { createApplication } from '../../src/store/applications.ts';
import { findVisibleProject, type Project } from '../../src/store/projects.ts';
import { listAllSuites, type Suite } from '../../src/store/suites.ts';
import { createWallLink } from '../../src/store/wall-links.ts';
import { routes } from '../../src/web/pages.ts';
import type { Person } from '../support/browser.ts';
import { storeArtifact } from '../support/dependency-artifact.ts';
import { exampleNodes } from './account/nodes-fixture.ts';
import { openProjectFixture, type ProjectFixture } from './project/fixture.ts';

/** Routes that return files, streams or redirects. */
const notPages: readonly RegExp[] = [
  /\/stream$/,
  /\/(log|times|artifacts\.zip|artifact|content|open)$/,
  /^\/ui\/assets\//,
  /favicon/,
  /^\/ui\/watched$/,
];

/** Redirects to another page of this list. */
const redirects = ['/ui'];

/** Pages that are opened without a session. */
const forGuests = ['/ui/wall/:wall_token', '/ui/sign-in', '/ui/welcome', '/ui/setup'];

/** Needs a database without accounts, so it comes last. */
const SETUP = '/ui/setup';

describe('every page', { timeout: 600_000 }, () => {
  let fixture: ProjectFixture;
  let owner: Person;
  let guest: Person;
  /** Values of the parameters of paths. */
  let parameters: Record<string, string>;
  /** The query of pages that show little without one. */
  let queries: Record<string, string>;

  before(async () => {
    fixture = await openProjectFixture();
    ({ parameters, queries } = await fill(fixture));
    owner = await fixture.arrive();
    guest = await fixture.arriveUnknown();
  });
  after(async () => {
    await fixture?.close();
  });

  const addressOf = (path: string) => {
    const filled = path.replace(/:([a-z_]+)/g, (_, name: string) => {
      assert.ok(parameters[name], `${path}: give :${name} a value in fill()`);
      return parameters[name];
    });
    return filled + (queries[path] ?? '');
  };

  const pages = routes
    .filter(({ method, path }) => method === 'GET' && !redirects.includes(path))
    .map(({ path }) => path)
    .filter(path => !notPages.some(pattern => pattern.test(path)))
    .sort((a, b) => Number(a === SETUP) - Number(b === SETUP));

  for (const path of pages)
    it(`${path} is accessible in both themes, wide and narrow, and has one heading and a title`, async () => {
      if (path === SETUP) fixture.db.sqlite.exec('PRAGMA foreign_keys = OFF; DELETE FROM accounts');
      const person = forGuests.includes(path) ? guest : owner;
      const address = addressOf(path);
      await person.go(address);
      const { page } = person;
      const shown = new URL(page.url());
      assert.equal(shown.pathname + shown.search, address, 'it is no redirect');
      assert.equal(await page.locator('h1').count(), 1);
      assert.match(await page.title(), /^\S.* · Assay$/);
      const nested = page.locator(':is(a, button, summary) time[tabindex]');
      assert.equal(await nested.count(), 0, 'a time inside a link is a linkedTime');
      await person.inspectThemes(path.slice(1).replaceAll(/[^a-z0-9]+/g, '-'));
    });
});

/** Records of every kind that belong to the owner, an administrator, who may see every page. Builds have every state. */
async function fill(fixture: ProjectFixture) {
  const { db, people } = fixture;
  updateAccount(db, people.owner.account.id, { admin: true });
  const planted = fixture.plant();
  fixture.plant(people.stranger);
  const project = findVisibleProject(db, people.owner.account.id, planted.project_id) as Project;
  const suites = [
    ...listAllSuites(db, project.id),
    ...fixture.makeSuites(project, 'Browser tests', 'Lint', 'Packages', 'Documentation', 'Integration tests'),
  ];
  const [unit, , lint] = suites as [Suite, Suite, Suite];
  fixture.end(
    fixture.makeCommit(project, 'Turn the page', suites),
    'fail',
    'pass',
    'error',
    'start',
    'cancel',
    '',
  );
  fixture.end(fixture.makeCommit(project, 'Add a window', [unit], [lint]), 'fail');
  fixture.nodes = exampleNodes(db, planted);
  await fixture.writeLog(planted.build_id, 'compiling\n\u001b[32mall is well\u001b[0m\n');
  await fixture.writeCompileLog(planted.used_dependency_id, 'checking for gcc\n');
  await storeArtifact(fixture, planted.used_dependency_id, [
    { path: 'bin', type: 'directory', mode: 0o755 },
    { path: 'bin/tool', type: 'file', mode: 0o755, content: '#!/bin/sh\n' },
  ]);
  const { application } = createApplication(db, {
    ownerId: people.owner.account.id,
    name: 'Dashboard',
    redirectUri: 'https://dashboard.invalid/callback',
    isPublic: false,
  });
  const invited = createAccount(db, {
    email: 'invited@example.org',
    kind: 'collaborator',
    admin: false,
    passwordHash: null,
    apiKey: null,
  });
  const { used_dependency_id, ...ids } = planted;
  return {
    parameters: {
      ...Object.fromEntries(Object.entries(ids).map(([name, id]) => [name, String(id)])),
      dependency_id: String(used_dependency_id),
      account: String(people.collaborator.account.id),
      topic: 'webhooks',
      wall_token: createWallLink(db, people.owner.account.id, 'Screen in the kitchen'),
    } as Record<string, string>,
    queries: {
      '/oauth2/authorize': `?${new URLSearchParams({ client_id: application.clientId, redirect_uri: application.redirectUri, scope: 'user,commits' })}`,
      '/ui/welcome': `?link=${createSignInLink(db, invited.id)}`,
      '/ui/search': '?q=compiling',
      '/ui/manual': '?q=key',
      // All of it takes axe a minute.
      '/ui/api': '?q=deploy',
    } as Record<string, string>,
  };
}
