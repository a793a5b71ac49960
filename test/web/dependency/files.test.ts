// The pages with the files of a dependency's artifact.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { bootApp, type TestApp } from '../../support/app.ts';
import { type ArtifactTree, storeArtifact } from '../../support/dependency-artifact.ts';
import { launchSignedIn, type SignedIn } from '../signed-in.ts';

const HOSTILE = '<img src=x onerror=alert(1)>\u202egpj.html';

function* tree(): Generator<ArtifactTree[number]> {
  yield { path: '', type: 'directory' };
  yield { path: 'bin', type: 'directory' };
  yield { path: 'bin/psql', mode: 0o755, content: Buffer.alloc(740_000, 'p') };
  yield { path: 'lib', type: 'directory' };
  yield { path: 'lib/libpq.so', type: 'symlink', linkname: 'libpq.so.5.15' };
  yield { path: 'lib/libpq.so.5.15', mode: 0o755, content: Buffer.alloc(330_000, 'q') };
  yield { path: 'many', type: 'directory' };
  for (let at = 0; at < 700; at += 1)
    yield { path: `many/file-${String(at).padStart(3, '0')}`, content: 'x' };
  yield { path: 'share', type: 'directory' };
  yield { path: `share/${HOSTILE}`, content: '<script>alert(1)</script>' };
  yield { path: `share/${'a-long-name-'.repeat(18)}`, content: 'long' };
  yield { path: 'share/doc', type: 'directory' };
  yield { path: 'share/doc/manual.txt', content: 'Read me' };
}

describe('the files of a dependency', { timeout: 300_000 }, () => {
  let app: TestApp;
  let signedIn: SignedIn;
  let id: bigint;
  before(async () => {
    app = await bootApp();
    id = app.plant().free_dependency_id;
    await storeArtifact(app, id, tree());
    signedIn = await launchSignedIn(app);
  });
  after(async () => {
    await signedIn?.close();
    await app?.close();
  });
  const arrive: SignedIn['arrive'] = (...given) => signedIn.arrive(...given);

  it('shows directories with their sizes, by keyboard and without scripts, down to a file', async () => {
    const person = await arrive({ scripts: false });
    const { page } = person;
    await person.go(`/ui/dependencies/${id}`);
    await person.follow(page.getByRole('link', { name: 'Files' }));
    assert.deepEqual(await page.locator('.tree-name').allTextContents(), ['bin/', 'lib/', 'many/', 'share/']);
    await page.getByText('1.0 MiB in 706 files').waitFor();
    await page.getByRole('link', { name: 'share/' }).focus();
    await page.keyboard.press('Enter');
    await page.getByText('doc/', { exact: true }).waitFor();
    const text = (await page.locator('.tree').textContent()) ?? '';
    assert.ok(text.includes('<img src=x onerror=alert(1)>\\u202egpj.html'), text);
    await page.getByRole('link', { name: 'doc/' }).click();
    const downloading = page.waitForEvent('download');
    await page.getByRole('link', { name: 'manual.txt' }).click();
    assert.equal((await downloading).suggestedFilename(), 'manual.txt');
    await page.getByRole('link', { name: '/srv/dependency' }).click();
    await person.follow(page.getByRole('link', { name: 'size', exact: true }));
    assert.deepEqual(await page.locator('.tree-name').allTextContents(), ['bin/', 'lib/', 'many/', 'share/']);
    await person.close();
  });

  it('looks right in both themes, wide and narrow', async () => {
    const person = await arrive();
    await person.go(`/ui/dependencies/${id}/files?path=share&sort=size`);
    await person.inspectThemes('dependency-files-share');
    await person.go(`/ui/dependencies/${id}/files?path=lib`);
    await person.inspectThemes('dependency-files-lib');
    await person.close();
  });

  it('pages long directories', async () => {
    const person = await arrive();
    await person.go(`/ui/dependencies/${id}/files?path=many`);
    assert.equal(await person.page.locator('.tree-row').count(), 500);
    await person.follow(person.page.getByRole('link', { name: 'Next 500' }));
    assert.equal(await person.page.locator('.tree-row').count(), 200);
    await person.page.getByText('file-699').waitFor();
    await person.close();
  });

  it('sends files and the tar as attachments that a browser does not show', async () => {
    const person = await arrive();
    const { request } = person.context;
    for (const query of ['', `?path=${encodeURIComponent(`share/${HOSTILE}`)}`]) {
      const response = await request.get(`/ui/dependencies/${id}/artifact${query}`);
      assert.equal(response.status(), 200);
      const headers = response.headers();
      assert.match(headers['content-disposition'] ?? '', /^attachment;/);
      assert.equal(headers['x-content-type-options'], 'nosniff');
      assert.match(headers['content-type'] ?? '', /^application\/(x-tar|octet-stream)$/);
    }
    for (const rest of ['files?path=none', 'files?after=99999', 'artifact?path=none', 'files?path=..'])
      assert.equal((await request.get(`/ui/dependencies/${id}/${rest}`)).status(), 404, rest);
    await person.close();
    const stranger = await arrive({}, 'stranger');
    for (const rest of ['files', 'artifact'])
      assert.equal(
        (await stranger.context.request.get(`/ui/dependencies/${id}/${rest}`)).status(),
        404,
        rest,
      );
    await stranger.close();
  });
});
