// Sessions and one-time links: they end in time, and leave nothing.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  claimSignInLink,
  createSession,
  createSignInLink,
  findSession,
  findSignInLink,
} from '../../src/store/accounts.ts';
import { addAccount, openRoom } from './room.ts';

const DAY_MS = 24 * 3600_000;

test('a one-time link works for a week, once, and the next one takes those away that ended', () => {
  using room = openRoom();
  const { db, now } = room;
  const { id } = addAccount(db);
  const links = () => db.sqlite.prepare('SELECT count(*) FROM sign_in_links').pluck().get();
  const unused = createSignInLink(db, id);
  const used = createSignInLink(db, id);
  now.ms += 7 * DAY_MS - 1;
  assert.equal(findSignInLink(db, unused)?.id, id);
  assert.equal(claimSignInLink(db, used)?.id, id);
  assert.equal(claimSignInLink(db, used), undefined);
  now.ms += 1;
  assert.equal(findSignInLink(db, unused), undefined);
  assert.equal(links(), 1n);
  createSignInLink(db, id);
  assert.equal(links(), 1n);
});

test('a session lasts for thirty days, and the next one takes those away that ended', () => {
  using room = openRoom();
  const { db, now } = room;
  const { id } = addAccount(db);
  const token = createSession(db, id);
  now.ms += 30 * DAY_MS - 1;
  assert.equal(findSession(db, token)?.id, id);
  now.ms += 1;
  assert.equal(findSession(db, token), undefined);
  createSession(db, id);
  assert.equal(db.sqlite.prepare('SELECT count(*) FROM sessions').pluck().get(), 1n);
});
