// The bodies of events: what is stored, and what is sent.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { addKey } from '../../src/contract/events.ts';
import { openSqlite } from '../../src/store/database/db.ts';
import { migrate, steps } from '../../src/store/database/migrations.ts';
import { listEvents, recordEvent } from '../../src/store/events.ts';
import { createNotification } from '../../src/store/notifications.ts';
import { findMessage } from '../../src/store/outbox.ts';
import { publicKeyOf, updateProject } from '../../src/store/projects.ts';
import { temporaryDirectory } from '../cli/program.ts';
import { addProject, openFixture } from './fixture.ts';

const KEY = 'ssh-ed25519 AAAA';

test('the key of a project is in the sent body, as in its record, and nowhere in the database', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = updateProject(db, addProject(db), {
    description: 'He said "ssh_public_key":" and \\"ssh_public_key\\":" ä\u2028',
  });
  createNotification(db, {
    projectId: project.id,
    name: 'webhook',
    notifiableType: 'build',
    url: 'https://receiver.invalid',
    signingSecret: 's',
  });
  recordEvent(db, project.id, 'build.finished', 1n);
  const [event] = listEvents(db, project.id, 0n, 10);
  assert.ok(event);
  const sent = JSON.parse(event.body);
  assert.equal(sent.project.ssh_public_key, publicKeyOf(db, project));
  assert.equal(sent.project.description, project.description);
  const deliveryId = db.sqlite.prepare('SELECT id FROM deliveries').pluck().get() as bigint;
  assert.equal(findMessage(db, deliveryId)?.body, event.body);

  updateProject(db, project, { name: 'Renamed since' });
  assert.equal(findMessage(db, deliveryId)?.body, event.body, 'the same bytes at each try');
  db.sqlite.pragma('wal_checkpoint(TRUNCATE)');
  assert.ok(!readFileSync(fixture.path).includes(KEY));
});

test('an event of a project whose key cannot be read is sent without it', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  recordEvent(db, project.id, 'build.finished', 1n);
  db.write(() =>
    db.sqlite
      .prepare('UPDATE projects SET ssh_public_key = ? WHERE id = ?')
      .run(Buffer.alloc(80, 7), project.id),
  );
  const [event] = listEvents(db, project.id, 0n, 10);
  assert.equal(JSON.parse(event?.body ?? '').project.ssh_public_key, '');
});

test('an upgrade removes the key from stored bodies, and what is sent stays the same to the byte', () => {
  using directory = temporaryDirectory();
  const path = `${directory.path}/assay.db`;
  const sqlite = openSqlite(path);
  const step = steps.findIndex(one => String(one).includes('DROP COLUMN body'));
  migrate(sqlite, step);
  const body = (key: string, name: string) =>
    `{"id":9007199254740993,"type":"ping","project":{"name":${JSON.stringify(name)},"owned":true,"ssh_public_key":"${key}","badge":true},"build":{"id":1}}`;
  const sent = [
    body(`${KEY} assay`, 'plain'),
    body(`${KEY} assay-name@host`, 'ä "ssh_public_key":"ssh-ed25519 BBBB x" 🙂'),
    body('', 'one that could not be read'),
  ];
  sqlite.exec(
    "INSERT INTO accounts (id, email, kind, admin, standing, created_at) VALUES (1, 'a', 'user', 0, 'active', 0)",
  );
  sqlite.exec(
    "INSERT INTO projects (id, owner_id, name, description, repository_url, build_state, badge, cancel_superseded, ssh_public_key, ssh_private_key, created_at) VALUES (1, 1, 'p', '', '', 'new', 0, 0, x'', x'', 0)",
  );
  sqlite.exec(
    "INSERT INTO notifications (id, project_id, name, notifiable_type, url, signing_secret, enabled) VALUES (1, 1, 'webhook', 'build', 'https://receiver.invalid', x'', 1)",
  );
  sent.forEach((text, at) => {
    sqlite
      .prepare(
        "INSERT INTO events (id, project_id, type, resource_id, body, created_at) VALUES (?, 1, 'ping', 1, ?, 0)",
      )
      .run(at + 1, text);
    sqlite
      .prepare(
        "INSERT INTO deliveries (id, notification_id, event_id, event_type, resource_id, body, state, attempts, created_at) VALUES (?, 1, ?, 'ping', 1, ?, 'pending', 0, 0)",
      )
      .run(at + 1, at + 1, text);
  });
  migrate(sqlite, step + 1);
  const stored = sqlite.prepare('SELECT body FROM events ORDER BY id').pluck().all() as string[];
  assert.ok(stored.every(text => !text.includes(KEY)));
  assert.deepEqual(
    stored.map(text => addKey(text, KEY)),
    sent,
  );
  assert.equal(sqlite.prepare('SELECT count(*) FROM deliveries').pluck().get(), 3);
  sqlite.close();
  assert.ok(!readFileSync(path).includes(KEY), 'nor is it in what rows left behind');
});
