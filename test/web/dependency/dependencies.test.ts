// The pages of dependencies: create, upload, the live compile log, usage, share, change, delete.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import { readUpload } from '../../../src/api/http/multipart.ts';
import { dependencyLogPath } from '../../../src/store/data/paths.ts';
import {
  beginCompileStep,
  createDependency,
  type Dependency,
  findDependency,
  setShared,
  updateDependency,
} from '../../../src/store/dependencies.ts';
import { findProject } from '../../../src/store/projects.ts';
import { attachDependency, listSuiteDependencies } from '../../../src/store/suites.ts';
import { moveDependency } from '../../../src/store/transition.ts';
import { bootApp, type TestApp } from '../../support/app.ts';
import { launchSignedIn, type SignedIn } from '../signed-in.ts';

describe('the pages of dependencies', { timeout: 600_000 }, () => {
  let app: TestApp;
  let signedIn: SignedIn;
  let directory: string;
  let archive: string;

  before(async () => {
    app = await bootApp();
    directory = await mkdtemp(join(tmpdir(), 'assay-upload-'));
    archive = join(directory, 'zlib.tar.gz');
    await writeFile(archive, gzipSync(Buffer.alloc(10_240)));
    signedIn = await launchSignedIn(app);
  });
  after(async () => {
    await signedIn?.close();
    await app?.close();
    await rm(directory, { recursive: true, force: true });
  });

  const arrive: SignedIn['arrive'] = (...given) => signedIn.arrive(...given);
  const plant = (name: string, owner = app.people.owner): Dependency =>
    createDependency(
      app.db,
      owner.account.id,
      {
        name,
        description: '',
        command: 'make install PREFIX=/srv/dependency',
        prefix: '/srv/dependency',
        source: '',
        launchCommand: '',
        image: null,
      },
      [],
    );
  /** Ends a compile like the real compiler. The artifact itself does not matter on these pages. */
  const compiled = ({ id }: Dependency, shared = false) => {
    const hash = randomBytes(32).toString('hex');
    moveDependency(app.db, id, 'upload', {
      archiveHash: hash,
      archiveContentType: 'application/gzip',
      archiveFileSize: 123_456,
    });
    moveDependency(app.db, id, 'start', { nonce: 'n' });
    moveDependency(app.db, id, 'compile', {});
    app.db.write(() => {
      app.db.sqlite
        .prepare('INSERT INTO artifacts (hash, prefix, size_bytes, created_at) VALUES (?, ?, 1, 1)')
        .run(hash, '/srv/dependency');
      app.db.sqlite
        .prepare('UPDATE dependencies SET artifact_hash = ?, shared = ? WHERE id = ?')
        .run(hash, shared ? 1n : 0n, id);
    });
  };
  const hrefOf = ({ id }: Pick<Dependency, 'id'>) => `/ui/dependencies/${id}`;

  it('explains what a dependency is when there is none, and creates one', async () => {
    const person = await arrive();
    const { page } = person;
    await person.go('/');
    await page.getByRole('link', { name: 'Dependencies' }).click();
    await page.getByText('No dependencies yet').waitFor();
    await page.getByText('No other account shares a dependency.').waitFor();
    await person.inspect('dependencies-empty');
    await page.getByRole('link', { name: 'New dependency' }).click();
    person.expectRefusals();
    await page.getByLabel('Name').fill('zlib');
    await page.getByLabel('Command', { exact: true }).fill('make');
    await page.getByRole('button', { name: 'Create dependency' }).click();
    await page.getByText('The command must contain the prefix').waitFor();
    await person.inspect('new-dependency-refused');
    await page.getByLabel('Command', { exact: true }).fill('./configure --prefix=/opt/zlib &&\nmake install');
    await page.getByLabel('Prefix').fill('/opt/zlib');
    await page.getByText('More settings').click();
    await page.getByLabel('Launch command').fill('zlibd --detach');
    await page.getByLabel('Launch timeout').fill('3');
    await page.getByLabel('Environment').fill('ZLIB=$PREFIX/bin');
    person.expectRefusals();
    await page.getByRole('button', { name: 'Create dependency' }).click();
    // The settings are open, because one of them is wrong.
    await page.getByText('Enter whole seconds, from 5 to 600.').waitFor();
    await person.inspect('new-dependency-more-settings');
    await page.getByLabel('Launch timeout').fill('300');
    await page.getByLabel('Libraries on LD_LIBRARY_PATH').uncheck();
    await page.getByRole('button', { name: 'Create dependency' }).click();
    await page.getByText('Next, upload the archive of its source code.').waitFor();
    assert.match(await page.title(), /^Waiting for an archive · zlib/);
    const configuration = page.locator('section', { hasText: 'Configuration' });
    for (const text of ['300 s', 'ZLIB=$PREFIX/bin', 'does not include its libraries'])
      await configuration.getByText(text, { exact: true }).waitFor();
    await person.inspect('dependency-new');
    await person.close();
  });

  it('shows the progress of an upload, the growing compile log, and the result', async () => {
    const dependency = plant('redis');
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(dependency));
    await page.evaluate("document.body.dataset.loaded = 'once'");
    await page.getByLabel('Archive of the source code').setInputFiles(archive);
    await page.getByRole('button', { name: 'Upload archive' }).click();
    await page.getByText('Waiting to compile', { exact: true }).waitFor();
    const uploaded = findDependency(app.db, dependency.id);
    assert.equal(uploaded?.archiveContentType, 'application/gzip');

    moveDependency(app.db, dependency.id, 'start', { nonce: 'n' });
    await page.getByText('Compiling').first().waitFor();
    await app.writeCompileLog(
      dependency.id,
      '[assay] unpacking the archive, 42 bytes\n[assay] compiling redis: make\ncc -c \x1b[32mdict.c\x1b[0m\n',
    );
    await page.getByText('dict.c').waitFor();
    await page.getByText('You can upload another archive when this compile has finished.').waitFor();
    await person.inspect('dependency-compiling');
    await app.writeCompileLog(dependency.id, 'dict.c:1: error\n[assay] the command exited with 2\n');
    moveDependency(app.db, dependency.id, 'fail', { error: 'The command exited with 2.' });
    await page.getByText('The command exited with 2.', { exact: true }).waitFor();
    assert.match(await page.title(), /^Compile failed/);
    await page.getByText('Upload another archive').click();
    await page.getByRole('button', { name: 'Upload archive' }).waitFor();
    assert.equal(await page.evaluate('document.body.dataset.loaded'), 'once');
    await person.inspect('dependency-failed');
    await person.close();
  });

  it('shows the steps of a compile with their times so far and those of the last compile', async () => {
    const dependency = plant('steps');
    compiled(dependency);
    await app.writeCompileLog(dependency.id, '[assay] compiling steps: make\nthe first compile\n');
    const lastTimes = [
      { name: 'unpack', ms: 1_200 },
      { name: 'command', ms: 93_000 },
      { name: 'keep', ms: 800 },
    ];
    app.db.write(() =>
      app.db.sqlite
        .prepare('UPDATE dependencies SET compile_steps = ? WHERE id = ?')
        .run(JSON.stringify(lastTimes), dependency.id),
    );
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(dependency));
    await page.locator('[data-log][data-whole]').waitFor();
    await page.evaluate("document.body.dataset.loaded = 'once'");
    const step = (name: string) => page.getByRole('row', { name });

    await page.getByRole('button', { name: 'Compile again' }).click();
    await page.getByText('Waiting to compile', { exact: true }).waitFor();
    await step('Run command').getByText('1 min 33 s').waitFor();
    await person.inspect('dependency-enqueued');
    await page.evaluate("document.body.dataset.loaded = 'once'");
    moveDependency(app.db, dependency.id, 'start', { nonce: 'n' });
    beginCompileStep(app.db, dependency.id, 'unpack');
    await step('Unpack archive').getByText('Running').waitFor();
    await step('Run command').getByText('Pending').waitFor();
    beginCompileStep(app.db, dependency.id, 'command');
    await step('Unpack archive').getByText('Done').waitFor();
    await step('Run command').getByText('Running').waitFor();
    await page.getByText('of about 1 min 35 s').waitFor();
    await page.getByRole('status').filter({ hasText: 'Step 2 of 3: Run command' }).waitFor();
    // The bar moves on by itself, from where the first step ended.
    const bar = page.getByRole('progressbar', { name: 'Compile' });
    const barValue = () => page.evaluate("document.querySelector('.compile-bar progress').value");
    while (Number(await barValue()) < 2_000) await page.waitForTimeout(100);
    assert.equal(await bar.getAttribute('max'), '95000');
    await person.inspect('dependency-steps');
    beginCompileStep(app.db, dependency.id, 'keep');
    await step('Keep files').getByText('Running').waitFor();
    moveDependency(app.db, dependency.id, 'fail', { error: 'The command left nothing under its prefix.' });
    await step('Keep files').getByText('Failed').waitFor();
    await page.getByText('Suites still use the last successful compile.').waitFor();
    assert.equal(await page.evaluate('document.body.dataset.loaded'), 'once');
    await person.inspect('dependency-steps-failed');
    await person.close();
  });

  it('compiles again without an upload, from scratch if asked to', async () => {
    const dependency = plant('again');
    compiled(dependency);
    const person = await arrive({ scripts: false });
    const { page } = person;
    const isForced = () => findDependency(app.db, dependency.id)?.forced;
    await person.go(hrefOf(dependency));
    await page.getByRole('button', { name: 'Compile again' }).click();
    await page.getByText('Waiting to compile', { exact: true }).waitFor();
    assert.equal(isForced(), false);
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('The compile was canceled.').waitFor();
    await page.getByRole('button', { name: 'Compile again' }).waitFor();
    compiled(dependency);
    await person.go(hrefOf(dependency));
    await page.getByRole('button', { name: 'Compile from scratch' }).click();
    await page.getByText('Waiting to compile', { exact: true }).waitFor();
    assert.equal(isForced(), true);
    await person.close();
  });

  it('marks a dependency as outdated when what it relates to has changed, and compiles dependents again', async () => {
    const library = plant('base library');
    const user = plant('user of it');
    compiled(library);
    const related = findDependency(app.db, library.id)?.artifactHash;
    updateDependency(app.db, user, {}, [library.id]);
    compiled(user);
    app.db.sqlite
      .prepare('UPDATE dependencies SET related_artifacts = ? WHERE id = ?')
      .run(JSON.stringify([related]), user.id);
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(user));
    assert.equal(await page.getByText('Outdated.').count(), 0);
    compiled(library);
    await person.go(hrefOf(user));
    await page.getByText('Outdated. base library has changed since it was compiled.').waitFor();
    await person.inspect('dependency-outdated');
    await person.go('/ui/dependencies');
    await page
      .getByRole('row', { name: /user of it/ })
      .getByText('outdated')
      .waitFor();
    await person.inspect('dependencies-outdated');
    await person.go(hrefOf(library));
    await page.getByText('user of it is not compiled with its current version.').waitFor();
    await person.inspect('dependency-outdated-dependents');
    await page.getByRole('button', { name: 'Compile dependents' }).click();
    await page.getByText('Queued to be compiled again, in this order: user of it.').waitFor();
    assert.equal(findDependency(app.db, user.id)?.compileState, 'enqueued_for_compile');
    await person.close();
  });

  it('updates the list during a compile, and shows a compile that was started elsewhere', async () => {
    const dependency = plant('lua');
    compiled(dependency);
    await app.writeCompileLog(dependency.id, '[assay] compiling lua: make\nthe first compile\n');
    const [list, one] = await Promise.all([arrive(), arrive()]);
    await list.go('/ui/dependencies');
    await list.page.getByRole('row', { name: /lua/ }).getByText('Compiled').waitFor();
    await one.go(hrefOf(dependency));
    await one.page.getByText('the first compile').waitFor();
    await one.page.locator('[data-log][data-whole]').waitFor();

    await rm(dependencyLogPath(app.data, dependency.id));
    moveDependency(app.db, dependency.id, 'upload', { archiveHash: 'b'.repeat(64) });
    await one.page.getByText('Waiting to compile', { exact: true }).waitFor();
    await one.page.getByText('The log appears here as soon as the compile prints something').waitFor();
    moveDependency(app.db, dependency.id, 'start', { nonce: 'n' });
    await list.page
      .getByRole('row', { name: /lua/ })
      .getByText(/^Compiling/)
      .waitFor();
    await app.writeCompileLog(dependency.id, '[assay] compiling lua: make\nthe second compile\n');
    await one.page.getByText('the second compile').waitFor();
    assert.equal(await one.page.getByText('the first compile').count(), 0);
    await one.page.getByRole('button', { name: 'Follow' }).waitFor();
    moveDependency(app.db, dependency.id, 'fail', { error: 'The command exited with 2.' });
    await one.page.locator('[data-log][data-whole]').waitFor();
    await one.page.getByText('The command exited with 2.').first().waitFor();
    await list.page.getByRole('row', { name: /lua/ }).getByText('Compile failed').waitFor();
    await Promise.all([list.close(), one.close()]);
  });

  it('shows the first compile of a dependency whose source is uploaded elsewhere', async () => {
    const dependency = plant('uploaded elsewhere');
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(dependency));
    await page.getByText('The log appears here as soon as the compile prints something').waitFor();
    await person.inspect('dependency-waiting');
    moveDependency(app.db, dependency.id, 'upload', {
      archiveHash: 'e'.repeat(64),
      archiveContentType: 'application/gzip',
      archiveFileSize: 3,
    });
    await page.getByText('Waiting to compile', { exact: true }).waitFor();
    moveDependency(app.db, dependency.id, 'start', { nonce: 'n' });
    await app.writeCompileLog(dependency.id, 'cc zlib.c\n');
    await page.getByText('cc zlib.c').waitFor();
    moveDependency(app.db, dependency.id, 'fail', { error: 'It was enough.' });
    await page.locator('[data-log][data-whole]').waitFor();
    await person.close();
  });

  it('shows the configuration above the log, and keeps a chosen file when the state changes', async () => {
    const dependency = plant('long log');
    compiled(dependency);
    await app.writeCompileLog(dependency.id, 'one more line\n'.repeat(2_000));
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(dependency));
    await page.locator('[data-log][data-whole]').waitFor();
    const topOf = async (text: string) =>
      (await page.getByRole('heading', { name: text, exact: true }).boundingBox())?.y ?? Number.NaN;
    assert.ok((await topOf('Configuration')) < (await topOf('Log')));
    assert.ok((await topOf('Used by')) < (await topOf('Log')));
    await page.getByText('Upload another archive').click();
    await page.getByLabel('New archive').setInputFiles(archive);
    setShared(app.db, findDependency(app.db, dependency.id) as Dependency, true);
    await page.getByText('Shared', { exact: true }).waitFor();
    assert.equal(await page.evaluate("document.getElementById('archive').files.length"), 1);
    await person.close();
  });

  it('shows what is wrong with an upload next to the file', async () => {
    const dependency = plant('no archive');
    const wrong = join(directory, 'notes.txt');
    // Larger than the buffers: it is refused at its beginning, while the rest is still being sent.
    await writeFile(wrong, 'these are notes\n'.repeat(1_000_000));
    for (const scripts of [true, false]) {
      const person = await arrive({ scripts });
      const { page } = person;
      await person.go(hrefOf(dependency));
      person.expectRefusals();
      await page.getByLabel('Archive of the source code').setInputFiles(wrong);
      await page.getByRole('button', { name: 'Upload archive' }).click();
      await page.getByText('This archive cannot be read').waitFor();
      await person.inspect(`dependency-upload-refused-${scripts}`);
      await person.close();
    }
    assert.equal(findDependency(app.db, dependency.id)?.compileState, 'waiting_archive_upload');
  });

  it('uploads and cancels as plain HTML without scripts', async () => {
    const dependency = plant('plain');
    const person = await arrive({ scripts: false });
    const { page } = person;
    await person.go(hrefOf(dependency));
    await page.getByLabel('Archive of the source code').setInputFiles(archive);
    await page.getByRole('button', { name: 'Upload archive' }).click();
    await page.getByText('Archive uploaded. It is waiting to be compiled.').waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('The compile was canceled.').waitFor();
    assert.equal(findDependency(app.db, dependency.id)?.compileState, 'compile_failed');
    await person.close();
  });

  it('refuses an upload without the session’s token or from another origin', async () => {
    const dependency = plant('guarded');
    const person = await arrive();
    await person.go(hrefOf(dependency));
    const csrf = await person.page.locator('form[data-upload] input[name=csrf]').inputValue();
    const post = (fields: Record<string, string>, origin: string) =>
      person.context.request.post(`${hrefOf(dependency)}/archive`, {
        multipart: {
          ...fields,
          archive: { name: 'a.tgz', mimeType: 'application/gzip', buffer: gzipSync(Buffer.alloc(512)) },
        },
        headers: { origin, accept: 'application/json' },
      });
    assert.equal((await post({}, app.url)).status(), 403);
    assert.equal((await post({ csrf: `${csrf}x` }, app.url)).status(), 403);
    assert.equal((await post({ csrf }, 'https://evil.example')).status(), 403);
    assert.equal(findDependency(app.db, dependency.id)?.compileState, 'waiting_archive_upload');
    assert.equal((await post({ csrf }, app.url)).status(), 200);
    assert.equal(findDependency(app.db, dependency.id)?.compileState, 'enqueued_for_compile');
    await person.close();
  });

  it('shares, shows where it is used, and cannot be deleted while it is in use', async () => {
    const dependency = plant('shared one');
    compiled(dependency);
    const own = app.plant();
    const others = app.plant(app.people.stranger);
    const person = await arrive();
    const { page } = person;
    await person.go(hrefOf(dependency));
    const project = findProject(app.db, own.project_id)?.name;
    await page.getByLabel('Attach to a suite').selectOption({ label: `Unit tests of ${project}` });
    await page.getByRole('button', { name: 'Attach' }).click();
    await page.getByText('Dependency attached. The next build of the suite uses it.').waitFor();
    assert.ok(listSuiteDependencies(app.db, own.suite_id).some(({ id }) => id === dependency.id));
    await page.getByRole('button', { name: 'Share' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Share' }).click();
    await page.getByText('Every account can now use it.').waitFor();
    assert.equal(findDependency(app.db, dependency.id)?.shared, true);
    attachDependency(app.db, others.suite_id, dependency.id);
    await person.go(hrefOf(dependency));
    await page.getByText('1 suite of other accounts').waitFor();
    await page.getByRole('link', { name: 'Unit tests' }).waitFor();
    await page.getByRole('link', { name: 'Edit' }).click();
    await page.getByText('This dependency is in use.').waitFor();
    await person.go(hrefOf(dependency));
    assert.deepEqual(
      await page.locator('#dependency-details h2, [data-log] h2').allTextContents(),
      ['Configuration', 'Used by', 'Log'],
      'a long log comes last',
    );
    await person.inspect('dependency-shared');

    const collaborator = await arrive({}, 'guest');
    await collaborator.go('/ui/dependencies');
    assert.equal(await collaborator.page.getByText('No other account shares').count(), 0);
    await collaborator.page.getByRole('link', { name: 'shared one' }).click();
    await collaborator.page.getByText('shared by others').waitFor();
    await collaborator.close();

    const stranger = await arrive({ dark: true }, 'stranger');
    await stranger.go('/ui/dependencies');
    await stranger.inspect('dependencies-shared');
    await stranger.page.getByRole('link', { name: 'shared one' }).click();
    await stranger.page.getByText('shared by others').waitFor();
    await stranger.inspect('dependency-of-others');
    for (const name of ['Edit', 'Upload archive', 'Delete', 'Stop sharing'])
      assert.equal(await stranger.page.getByRole('button', { name }).count(), 0, name);
    for (const rest of ['/log', '/stream', '/times', '/edit'])
      assert.equal((await stranger.context.request.get(hrefOf(dependency) + rest)).status(), 404, rest);

    await page.getByRole('button', { name: 'Stop sharing' }).click();
    await page.getByRole('dialog').getByText('1 suite of other accounts').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Stop sharing' }).click();
    await page.getByText('Sharing stopped.').waitFor();
    await stranger.go(`/ui/projects/${others.project_id}/suites/${others.suite_id}/settings`);
    await stranger.page.getByText('the suite keeps the version that it had').waitFor();
    assert.equal(await stranger.page.getByRole('link', { name: 'shared one' }).count(), 0);
    await stranger.inspect('suite-with-kept-version');
    assert.equal((await stranger.context.request.get(hrefOf(dependency))).status(), 404);
    await stranger.close();
    await person.close();
  });

  it('changes and deletes a dependency, and allows only its owner to', async () => {
    const dependency = plant('old name');
    compiled(dependency, true);
    const person = await arrive({ dark: true });
    const { page } = person;
    await person.go(hrefOf(dependency));
    await page.getByRole('button', { name: 'Stop sharing' }).click();
    await page.getByText('Sharing stopped. Only you can attach the dependency now.').waitFor();
    await page.getByRole('link', { name: 'Edit' }).click();
    await person.inspect('dependency-edit');
    await page.getByLabel('Name').fill('new name');
    await page.getByText('More settings').click();
    await page.getByLabel('redis').check();
    await page.getByLabel('Launch command').fill('redis-server --daemonize yes');
    await page.getByRole('button', { name: 'Save' }).click();
    await page
      .getByText(
        'Saved. The new related dependencies take effect with the next compile. The new launch command takes effect with the next build.',
      )
      .waitFor();
    await page.getByRole('link', { name: 'redis' }).waitFor();
    await person.go('/ui/dependencies');
    await person.inspect('dependencies');
    await page.getByLabel('Filter dependencies').fill('new na');
    assert.equal(await page.getByRole('rowheader').filter({ visible: true }).count(), 1);
    await page.getByRole('link', { name: 'new name' }).click();
    await page.getByRole('link', { name: 'Edit' }).click();
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('Dependency new name deleted.').waitFor();
    assert.equal(findDependency(app.db, dependency.id), undefined);
    await person.close();
  });

  it('says in the queue of administrators what a compile waits for', async () => {
    const [base, waiting] = [plant('chain base'), plant('chain waiting')];
    updateDependency(app.db, waiting, {}, [base.id]);
    moveDependency(app.db, waiting.id, 'upload', { archiveHash: 'a'.repeat(64), archiveFileSize: 1 });
    const { page, go, close } = await arrive({}, 'admin');
    await go('/ui/admin');
    await page
      .getByRole('row')
      .filter({ hasText: 'Compile of chain waiting' })
      .getByText(/^Number \d+ in the queue: Waiting for the archive of chain base\.$/)
      .waitFor();
    await close();
  });

  it('explains to collaborators and unpaid accounts why they have none', async () => {
    const guest = await arrive({}, 'guest');
    await guest.go('/ui/dependencies');
    await guest.page.getByText('Your account works on other people’s projects').waitFor();
    await guest.close();
    const unpaid = await arrive({}, 'unpaid');
    await unpaid.go('/ui/dependencies');
    await unpaid.page.getByText('Your account requires payment before you can use them.').waitFor();
    await unpaid.close();
  });
});

describe('a form with a file, as a stream', () => {
  const boundary = '----boundary';
  const form = (file: Buffer) =>
    Buffer.concat([
      Buffer.from(
        `--${boundary}\r\nContent-Disposition: form-data; name="csrf"\r\n\r\nsecret\r\n--${boundary}\r\nContent-Disposition: form-data; name="archive"; filename="a.tar"\r\nContent-Type: application/x-tar\r\n\r\n`,
      ),
      file,
      Buffer.from(`\r\n--${boundary}--\r\n`),
    ]);
  const request = (body: Buffer, pieceBytes: number) =>
    new Request('https://assay.invalid/', {
      method: 'POST',
      headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
      body: ReadableStream.from(
        Array.from(
          { length: Math.ceil(body.length / pieceBytes) },
          (_, at) => new Uint8Array(body.subarray(at * pieceBytes, (at + 1) * pieceBytes)),
        ),
      ),
      duplex: 'half',
    } as RequestInit);
  const contents = [
    Buffer.alloc(0),
    Buffer.from('x'),
    Buffer.from(`\r\n--${boundary.slice(0, -1)} almost the end\r\n--`),
    randomBytes(3_000),
  ];
  for (const content of contents)
    for (const pieceBytes of [1, 7, 65_536])
      it(`returns a file of ${content.length} bytes that arrives in chunks of ${pieceBytes} completely`, async () => {
        const { fields, file } = await readUpload(request(form(content), pieceBytes));
        assert.equal(fields.get('csrf'), 'secret');
        assert.equal(file?.fieldName, 'archive');
        const pieces: Uint8Array[] = [];
        for await (const piece of file?.bytes ?? []) pieces.push(Buffer.from(piece));
        assert.deepEqual(Buffer.concat(pieces), content);
      });

  it('fails if the body ends inside the file', async () => {
    const whole = form(Buffer.alloc(1000));
    const { file } = await readUpload(request(whole.subarray(0, whole.length - 40), 100));
    await assert.rejects(async () => {
      for await (const _ of file?.bytes ?? []);
    }, /invalid_format/);
  });
});
