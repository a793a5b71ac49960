// The administrator's page of the nodes of a swarm, and what /metrics says of them.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { updateAccount } from '../../../src/store/accounts.ts';
import { bootApp, type Planted, type TestApp } from '../../support/app.ts';
import type { Person } from '../../support/browser.ts';
import { launchSignedIn } from '../signed-in.ts';
import { exampleNodes } from './nodes-fixture.ts';

describe('The page of nodes', () => {
  let app: TestApp;
  let signedIn: Awaited<ReturnType<typeof launchSignedIn>>;
  let planted: Planted;
  let person: Person;
  before(async () => {
    app = await bootApp();
    updateAccount(app.db, app.people.owner.account.id, { admin: true });
    planted = app.plant();
    signedIn = await launchSignedIn(app);
    person = await signedIn.arrive();
  });
  after(async () => {
    await signedIn?.close();
    await app?.close();
  });

  it('does not exist on a single host, and nothing links to it', async () => {
    app.nodes = undefined;
    await person.go('/ui/admin');
    assert.equal(await person.page.getByRole('link', { name: /node/ }).count(), 0);
    person.expectRefusals();
    const response = await person.page.goto(`${app.url}/ui/admin/nodes`);
    assert.equal(response?.status(), 404);
  });

  it('shows what runs where, free slots, and why a node gets nothing', async () => {
    app.nodes = exampleNodes(app.db, planted);
    await person.go('/ui/admin');
    await person.page.getByRole('link', { name: '0 of', exact: false }).click();
    await person.page.getByRole('heading', { name: 'Nodes', exact: true }).waitFor();
    const card = (name: string) => person.page.getByRole('region', { name });
    await person.page.getByText('4 jobs run. 2 nodes with 44 slots take new ones; 3 nodes do not.').waitFor();
    await card('builder-1').getByText('3 of 4 slots in use').waitFor();
    assert.equal(await card('builder-1').locator('.slot-squares .used').count(), 3);
    assert.equal(await card('builder-1').locator('.slot-squares .free').count(), 1);
    await card('builder-1').getByText('A build that was deleted').waitFor();
    await card('builder-1')
      .getByRole('link', { name: /^Compile of/ })
      .waitFor();
    await card('builder-3').getByText('Paused').waitFor();
    await card('builder-4').getByText('It does not respond (down: heartbeat failure').waitFor();
    await card('server').getByText('It was not set up with the node script.').waitFor();
    await person.inspect('nodes');
    await card('builder-1')
      .getByRole('link', { name: /^Unit tests/ })
      .click();
    await person.page.getByRole('heading', { name: 'Unit tests' }).waitFor();
  });

  it('keeps itself current', async () => {
    app.nodes = exampleNodes(app.db, planted).slice(0, 1);
    await person.go('/ui/admin/nodes');
    await person.page.getByText('3 jobs run. 1 node with 4 slots takes new ones.').waitFor();
    app.nodes = exampleNodes(app.db, planted).slice(0, 2);
    app.db.write(() => app.db.touch('queue'));
    await person.page.getByRole('region', { name: 'builder-2' }).waitFor();
  });

  it('is for administrators only', async () => {
    app.nodes = exampleNodes(app.db, planted);
    const other = await signedIn.arrive({}, 'collaborator');
    other.expectRefusals();
    const response = await other.page.goto(`${app.url}/ui/admin/nodes`);
    assert.equal(response?.status(), 404);
  });

  it('has its counts in /metrics, with each name once', async () => {
    app.nodes = [
      ...exampleNodes(app.db, planted),
      ...exampleNodes(app.db, planted).slice(3, 4),
      { ...(exampleNodes(app.db, planted)[1] as never as object), name: 'a"b\\c' } as never,
    ];
    const { text } = await app.client.get('/metrics', app.people.owner.as);
    const lines = text.split('\n').filter(line => /^assay_node/.test(line));
    assert.deepEqual(lines, [
      'assay_nodes{state="ready",availability="active"} 4',
      'assay_nodes{state="ready",availability="pause"} 1',
      'assay_nodes{state="down",availability="active"} 2',
      'assay_node_slots{node="builder-1"} 4',
      'assay_node_slots{node="builder-2"} 40',
      'assay_node_slots{node="builder-3"} 0',
      'assay_node_slots{node="builder-4"} 0',
      'assay_node_slots{node="server"} 0',
      'assay_node_slots{node="a\\"b\\\\c"} 40',
      'assay_node_slots_used{node="builder-1"} 3',
      'assay_node_slots_used{node="builder-2"} 0',
      'assay_node_slots_used{node="builder-3"} 1',
      'assay_node_slots_used{node="builder-4"} 0',
      'assay_node_slots_used{node="server"} 0',
      'assay_node_slots_used{node="a\\"b\\\\c"} 0',
    ]);
    app.nodes = undefined;
    assert.doesNotMatch((await app.client.get('/metrics', app.people.owner.as)).text, /assay_node/);
  });
});
