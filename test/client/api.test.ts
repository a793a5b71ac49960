// `assay api`, and with it the choice of the server, the certificate, the credentials and the exit statuses.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type ClientWorld, startClientWorld } from './fixture.ts';

describe('assay api', () => {
  let world: ClientWorld;
  before(async () => {
    world = await startClientWorld();
  });
  after(() => world.close());

  it('prints the response with its envelope', async () => {
    const { status, stdout } = await world.run(['api', 'GET', '/whoami']);
    assert.equal(status, 0);
    assert.equal(JSON.parse(stdout).response.email, 'owner@example.org');
  });

  it('sends fields as a query or as a form', async () => {
    const made = await world.run([
      'api',
      'post',
      '/projects',
      'name=From a terminal',
      'repository_url=git@git.example.org:team/terminal.git',
    ]);
    assert.equal(made.status, 0, made.stdout);
    const listed = await world.run(['api', 'GET', '/projects', 'limit=1']);
    assert.deepEqual(
      JSON.parse(listed.stdout).response.map(({ name }: { name: string }) => name),
      ['From a terminal'],
    );
  });

  it('exits with the status that the manual lists', async () => {
    for (const [args, env, expected] of [
      [['api', 'GET', '/projects/1'], {}, 5],
      [['api', 'GET', '/nowhere'], {}, 5],
      [['api', 'POST', '/projects'], {}, 2],
      [['api', 'GET', 'projects'], {}, 2],
      [['api', 'BREW', '/projects'], {}, 2],
      [['api', 'GET', '/projects', 'name'], {}, 2],
      [['api', 'GET', '/projects'], { ASSAY_TOKEN: 'token_wrong' }, 5],
      [['api', 'GET', '/projects'], { ASSAY_TOKEN: '' }, 5],
      [['api', 'GET', '/projects'], { ASSAY_CA_FILE: '' }, 6],
      [['api', 'GET', '/projects'], { ASSAY_URL: 'https://127.0.0.1:1' }, 6],
      [['api', 'GET', '/projects'], { ASSAY_URL: 'http://127.0.0.1:1' }, 2],
    ] as const) {
      const { status, stderr, stdout } = await world.run(args, { env });
      assert.equal(status, expected, `${args.join(' ')} ${JSON.stringify(env)}: ${stdout}${stderr}`);
    }
  });
});
