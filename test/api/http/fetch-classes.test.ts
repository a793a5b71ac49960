// The classes of the Fetch API that the server uses instead of Node's.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import '../../../src/api/http/fetch-classes.ts';
import { serve, temporaryDirectory } from '../../cli/program.ts';

test('a start and the first responses do not load the Fetch API of Node', async () => {
  using directory = temporaryDirectory();
  const preload = join(directory.path, 'preload.cjs');
  writeFileSync(
    preload,
    `const isLoaded = () => process.moduleLoadList.some(name => name.includes('undici'));
     process.once('SIGTERM', () => {
       const before = isLoaded();
       new FormData();
       // The second one shows that the list would name it.
       console.log('loaded:', before, isLoaded());
     });`,
  );
  const server = await serve(join(directory.path, 'data'), { env: { NODE_OPTIONS: `--require ${preload}` } });
  assert.equal((await server.ask('GET', '/ping')).status, 200);
  assert.equal((await server.ask('POST', '/projects', { form: { name: 'x' } })).status, 401);
  await server.end('SIGTERM');
  assert.match(server.stdout(), /^loaded: false true$/m);
});

test('a request and a response pass their bodies on', async () => {
  const body = () => new Blob(['hello']).stream();
  const request = new Request('https://localhost/', { method: 'POST', body: body(), duplex: 'half' });
  assert.equal(await request.text(), 'hello');
  assert.equal(await new Response(body(), { headers: new Headers({ 'x-name': 'value' }) }).text(), 'hello');
});
