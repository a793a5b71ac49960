// "Start from a recipe" on the page of a new dependency, with and without scripts; and every recipe against the API.
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Page } from 'playwright-core';
import { cookbook, findRecipe, type Recipe } from '../../../src/domain/cookbook.ts';
import { bootApp, type TestApp } from '../../support/app.ts';
import { launchSignedIn, type SignedIn } from '../signed-in.ts';

const NEW = '/ui/dependencies/new';

describe('a new dependency from a recipe', { timeout: 600_000 }, () => {
  let app: TestApp;
  let signedIn: SignedIn;
  let directory: string;

  before(async () => {
    app = await bootApp();
    directory = await mkdtemp(join(tmpdir(), 'assay-recipe-'));
    signedIn = await launchSignedIn(app);
  });
  after(async () => {
    await signedIn?.close();
    await app?.close();
    await rm(directory, { recursive: true, force: true });
  });

  const arrive: SignedIn['arrive'] = (...given) => signedIn.arrive(...given);
  /** A file of that name. Its content does not matter, because it is never sent. */
  const archive = async (name: string) => {
    const path = join(directory, name);
    await writeFile(path, 'content');
    return path;
  };
  const valueAt = (page: Page, label: string) => page.getByLabel(label, { exact: true }).inputValue();
  const recipeOf = (id: string) => findRecipe(id) as Recipe;

  it('is filled in as soon as the archive is chosen, and can be created at once', async () => {
    const person = await arrive();
    const { page } = person;
    await person.go(NEW);
    await person.inspect('new-dependency');
    await page.getByLabel('Archive of the source code').setInputFiles(await archive('redis-7.4.1.tar.gz'));
    await page.getByText('The form is filled in from the recipe Redis for redis-7.4.1.tar.gz').waitFor();
    const redis = recipeOf('redis');
    assert.equal(await valueAt(page, 'Name'), 'Redis');
    assert.equal(await valueAt(page, 'Command'), redis.command);
    assert.equal(await valueAt(page, 'Prefix'), '/opt/redis');
    assert.equal(await valueAt(page, 'Source directory'), 'redis-7.4.1');
    assert.equal(await valueAt(page, 'Launch command'), redis.launchCommand);
    assert.equal(await valueAt(page, 'Environment'), redis.environment);
    assert.ok(await page.getByLabel('Libraries on LD_LIBRARY_PATH').isChecked());
    assert.equal(await valueAt(page, 'Or choose a recipe'), 'redis');
    await person.inspect('new-dependency-recipe');
    await page.getByRole('button', { name: 'Create dependency' }).click();
    await page.getByText('Next, upload the archive of its source code.').waitFor();
    const [created] = (await app.client.get('/dependencies', app.people.owner.as)).list;
    assert.equal(created?.command, redis.command);
    assert.equal(created?.launch_command, redis.launchCommand);
    assert.equal(created?.environment, redis.environment);
    await person.close();
  });

  it('is filled in without scripts, from the archive or from a choice, by keyboard', async () => {
    const person = await arrive({ scripts: false }, 'admin');
    const { page } = person;
    await person.go(NEW);
    await page
      .getByLabel('Archive of the source code')
      .setInputFiles(await archive('postgresql-15_15.18.orig.tar.bz2'));
    await page.getByRole('button', { name: 'Fill in the form' }).click();
    await page.getByText('The form is filled in from the recipe PostgreSQL').waitFor();
    assert.equal(await valueAt(page, 'Source directory'), 'postgresql-15.18');
    assert.equal(await valueAt(page, 'Command'), recipeOf('postgresql').command);

    await page.getByLabel('Or choose a recipe').focus();
    await page.keyboard.type('zl');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.getByText('The form is filled in from the recipe zlib').waitFor();
    await page.getByText('The source directory is that of zlib-1.3.1.tar.gz').waitFor();
    assert.equal(await valueAt(page, 'Source directory'), 'zlib-1.3.1');
    await person.close();
  });

  it('has a guess for an archive without a recipe, and says so', async () => {
    const person = await arrive({ dark: true });
    const { page } = person;
    await person.go(`${NEW}?archive=hello-2.12.1.tar.gz`);
    await page.getByText('There is no recipe for hello-2.12.1.tar.gz.').waitFor();
    assert.equal(await valueAt(page, 'Name'), 'hello');
    assert.equal(await valueAt(page, 'Command'), './configure --prefix=/opt/hello && make && make install');
    assert.equal(await valueAt(page, 'Source directory'), 'hello-2.12.1');
    await person.inspect('new-dependency-guess');
    await person.go(`${NEW}?archive=${encodeURIComponent('<b>"x".doc')}&recipe=nonsense`);
    await page.getByText('There is no recipe for <b>"x".doc. Choose one').waitFor();
    assert.equal(await valueAt(page, 'Name'), '');
    await person.close();
  });

  it('relates to the dependencies that the recipe needs, and offers to create those that are missing', async () => {
    const person = await arrive({ dark: true }, 'admin');
    const { page } = person;
    await person.go(`${NEW}?recipe=openssl`);
    assert.ok(!(await page.getByLabel('Libraries on LD_LIBRARY_PATH').isChecked()));
    await person.go(`${NEW}?recipe=memcached`);
    await person.inspect('new-dependency-related');
    await page.getByRole('link', { name: 'create it as a dependency first' }).click();
    await page.getByText('The form is filled in from the recipe libevent').waitFor();
    await page.getByRole('button', { name: 'Create dependency' }).click();
    await page.getByText('Next, upload the archive of its source code.').waitFor();
    await person.go(`${NEW}?archive=memcached-1.6.29.tar.gz`);
    assert.ok(await page.getByRole('checkbox', { name: 'libevent (/opt/libevent)' }).isChecked());
    assert.equal(await page.getByText('create it as a dependency first').count(), 0);
    await person.close();
  });

  it('has the version in its name if the account has a dependency of that name', async () => {
    const person = await arrive({}, 'admin');
    const { page } = person;
    await app.client.call('POST', '/dependencies', {
      as: app.people.admin.as,
      form: { name: 'lua', command: 'make install PREFIX=/opt/lua', prefix: '/opt/lua' },
    });
    await person.go(`${NEW}?archive=lua-5.4.7.tar.gz`);
    assert.equal(await valueAt(page, 'Name'), 'Lua 5.4.7');
    await person.close();
  });

  it('keeps what was typed before an archive is chosen', async () => {
    const person = await arrive();
    const { page } = person;
    await person.go(NEW);
    await page.getByLabel('Name', { exact: true }).fill('my own');
    await page.getByLabel('Archive of the source code').setInputFiles(await archive('jq-1.7.1.tar.gz'));
    await page.getByLabel('Command', { exact: true }).fill('make');
    assert.equal(await valueAt(page, 'Name'), 'my own');
    assert.equal(new URL(page.url()).search, '');
    await person.close();
  });

  for (const recipe of cookbook)
    it(`the API accepts the recipe ${recipe.title}`, async () => {
      const [[, source]] = recipe.archives as [Recipe['archives'][number]];
      const { status, text } = await app.client.call('POST', '/dependencies', {
        as: app.people.stranger.as,
        form: {
          name: recipe.title,
          description: recipe.description,
          command: recipe.command,
          prefix: recipe.prefix,
          source,
          launch_command: recipe.launchCommand,
          environment: recipe.environment,
          library_path: String(recipe.libraryPath),
        },
      });
      assert.equal(status, 201, text);
    });
});
