import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { updateAccount } from '../../../src/store/accounts.ts';
import { deleteCollaborator, listCollaborators, type Project } from '../../../src/store/projects.ts';
import type { Suite } from '../../../src/store/suites.ts';
import { createWallLink, findWallLink, listWallLinks } from '../../../src/store/wall-links.ts';
import type { Person } from '../../support/browser.ts';
import { openProjectFixture, type ProjectFixture } from '../project/fixture.ts';

const squeezed = (text: string) => text.replace(/\s+/g, ' ').trim();

describe('The wall screen', () => {
  let fixture: ProjectFixture;
  let broken: Project;
  let fine: Project;
  let suites: Suite[];
  let address: string;
  before(async () => {
    fixture = await openProjectFixture();
    fine = fixture.makeProject('Fine');
    broken = fixture.makeProject('Broken');
    suites = fixture.makeSuites(broken, 'Unit tests');
    fixture.end(fixture.makeCommit(fine, 'Paint the door', suites), 'pass');
    for (const end of ['pass', 'fail', 'fail'] as const)
      fixture.end(fixture.makeCommit(broken, `This will ${end}`, suites), end);
    const running = fixture.makeProject('Running');
    fixture.end(fixture.makeCommit(running, 'Polish the floor', suites), 'start');
  });
  after(() => fixture.close());

  const tilesOf = async ({ page }: Person) => (await page.locator('.tile').allInnerTexts()).map(squeezed);

  it('shows failing projects first, who broke them and since when, and follows changes', async () => {
    const person = await fixture.arrive();
    const { page } = person;
    await person.go('/ui/wall');
    const [first = '', second = '', ...others] = await tilesOf(person);
    assert.match(first, /^Failed Broken main Broken by Ada, just now$/);
    assert.match(second, /^Building Running main( about .+ left)?$/);
    assert.deepEqual(others, ['Passed Fine']);
    assert.match((await page.locator('[data-clock]').textContent()) ?? '', /^\d\d?:\d\d/);
    await person.inspect('wall');
    fixture.end(fixture.makeCommit(broken, 'Fix it', suites), 'pass');
    await page.locator('.wall-small .tile', { hasText: 'Broken' }).waitFor();
    fixture.end(fixture.makeCommit(fine, 'Scratch the door', suites), 'fail');
    await page.locator('.wall-large .tile', { hasText: 'Fine' }).waitFor();
    assert.equal(await page.locator('h1').textContent(), '1 failing, 1 building');
    await page.getByRole('link', { name: 'Fine' }).click();
    await page.waitForURL(`**/ui/projects/${fine.id}`);
    await person.close();
  });

  it('opens with a link without signing in, and nothing else does', async () => {
    const owner = await fixture.arrive();
    await owner.go('/ui/wall/links');
    owner.expectRefusals();
    await owner.page.getByLabel('Name').fill('  ');
    await owner.page.getByRole('button', { name: 'Create link' }).click();
    await owner.page
      .getByText('Name is required')
      .or(owner.page.locator('[aria-invalid=true]'))
      .first()
      .waitFor();
    await owner.page.getByLabel('Name').fill('Kitchen');
    await owner.page.getByRole('button', { name: 'Create link' }).click();
    address = (await owner.page.locator('.copy-text').textContent()) ?? '';
    const token = address.split('/').at(-1) as string;
    assert.match(token, /^wall_[\w-]{43}$/);
    await owner.inspect('wall-link-created');
    await owner.follow(owner.page.getByRole('link', { name: 'Done' }));
    assert.match(squeezed((await owner.page.locator('tbody').textContent()) ?? ''), /^Kitchen.*never/);
    assert.ok(!(await owner.page.content()).includes(token), 'it is shown once');
    await owner.inspect('wall-links');
    await owner.close();

    const guest = await fixture.arriveUnknown();
    await guest.go(`/ui/wall/${token}`);
    assert.equal((await tilesOf(guest)).length, 3);
    assert.equal(await guest.page.locator('a').count(), 0, 'it leads nowhere');
    assert.deepEqual(await guest.context.cookies(), []);
    const answer = await guest.context.request.get(`/ui/wall/${token}`);
    assert.equal(answer.headers()['referrer-policy'], 'no-referrer');
    for (const path of ['/ui/wall', '/ui/wall/links', '/ui/activity', `/ui/projects/${fine.id}`]) {
      const other = await guest.context.request.get(path, { maxRedirects: 0 });
      assert.equal(other.status(), 303, path);
      assert.match(other.headers().location ?? '', /^\/ui\/sign-in/);
    }
    for (const path of [`/ui/wall/${token}x`, `/ui/wall/${token}/links`])
      assert.equal((await guest.context.request.get(path)).status(), 404, path);
    assert.ok(findWallLink(fixture.db, token)?.link.usedAt, 'its last use is recorded');
    assert.ok(!fixture.logged.join('\n').includes(token));
    const stored = JSON.stringify(
      fixture.db.sqlite.prepare('SELECT hex(token_digest), name FROM wall_links').all(),
    );
    assert.ok(!stored.includes(token));
    await guest.close();
  });

  it('says that the connection is lost, recovers, and reloads itself after an upgrade', async () => {
    const guest = await fixture.arriveUnknown();
    const { page } = guest;
    const path = new URL(address).pathname;
    await guest.go(path);
    const isWall = (url: URL) => url.pathname === path;
    await page.route(isWall, route => route.abort());
    fixture.makeCommit(broken, 'Nobody sees this', suites);
    await page.getByText(/^Connection lost since \d\d?:\d\d/).waitFor();
    await page.unroute(isWall);
    await page.locator('.wall-large .tile', { hasText: 'Broken' }).waitFor();
    await page.getByText('Connection lost').waitFor({ state: 'hidden' });

    await page.route(isWall, async route => {
      const response = await route.fetch();
      const body = (await response.text()).replace(/data-build="[^ "]+/, 'data-build="9.9.9');
      await route.fulfill({ response, body });
    });
    const reloaded = page.waitForEvent('load');
    fixture.makeCommit(fine, 'Upgrade', suites);
    await reloaded;
    // Refused requests are logged to the console.
    await guest.context.close();
  });

  it('shows exactly the projects of its account, and stops with the link and with the account', async () => {
    const { db, people } = fixture;
    const { collaborator, suspended, stranger } = people;
    const token = createWallLink(db, collaborator.account.id, 'Office');
    const guest = await fixture.arriveUnknown();
    const look = async (one: string) => {
      const answer = await guest.context.request.get(`/ui/wall/${one}`);
      const names = [...(await answer.text()).matchAll(/<h2>([^<]*)<\/h2>/g)].map(([, name]) => name);
      return { status: answer.status(), names: names.sort() };
    };
    assert.deepEqual(await look(token), { status: 200, names: ['Broken', 'Fine', 'Running'] });
    assert.deepEqual(await look(createWallLink(db, stranger.account.id, 'Elsewhere')), {
      status: 200,
      names: [],
    });
    const [member] = listCollaborators(db, fine.id, { limit: 10, before: undefined });
    assert.ok(member);
    deleteCollaborator(db, member);
    assert.deepEqual((await look(token)).names, ['Broken', 'Running']);
    assert.equal((await look(createWallLink(db, suspended.account.id, 'Gone'))).status, 404);

    await guest.go(`/ui/wall/${token}`);
    const person = await fixture.arrive('collaborator');
    await person.go('/ui/wall/links');
    guest.expectRefusals(2);
    await person.page.getByRole('button', { name: 'Revoke' }).click();
    await person.page.getByRole('button', { name: 'Revoke link' }).click();
    await person.page.getByText('Link Office revoked.').waitFor();
    await guest.page.getByText('Page not found').waitFor();
    assert.deepEqual(listWallLinks(db, collaborator.account.id), []);
    await person.close();
    const id = listWallLinks(db, people.owner.account.id)[0]?.id as bigint;
    const alien = await fixture.arrive('stranger');
    await alien.go('/ui/wall/links');
    const csrf = await alien.page.locator('form[action$="/revoke"] input[name=csrf]').inputValue();
    const refused = await alien.context.request.post(`/ui/wall/links/${id}/revoke`, { form: { csrf } });
    assert.equal(refused.status(), 404);
    assert.equal(listWallLinks(db, people.owner.account.id).length, 1, 'a link of another account stays');

    updateAccount(db, people.owner.account.id, { standing: 'suspended' });
    assert.equal((await look(address.split('/').at(-1) as string)).status, 404);
    await alien.context.close();
    await guest.context.close();
  });
});
