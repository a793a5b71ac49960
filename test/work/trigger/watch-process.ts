// Looks at a repository once, in a process of its own, and may kill itself at a transaction.
// Arguments: the database, a file with the refs, the number of the transaction (0: none), `before` or `after` its commit, and
// how far ahead of the real time its clock is.
import { readFileSync } from 'node:fs';
import { createLive } from '../../../src/live.ts';
import { createLog } from '../../../src/log.ts';
import { openDb } from '../../../src/store/database/db.ts';
import { createVault } from '../../../src/store/database/vault.ts';
import { watchRepositories } from '../../../src/work/trigger/watch-repositories.ts';
import { answerOf } from '../../support/watch-fixture.ts';

const [path = '', refsFile = '', killAt, when, aheadMs] = process.argv.slice(2);
const db = openDb(path, createVault(Buffer.alloc(32, 7)), () => Date.now() + Number(aheadMs));
const live = createLive();
db.onCommit = topics => live.publish(topics);

const { write } = db;
let transactions = 0;
db.write = change => {
  if (db.sqlite.inTransaction) return change();
  transactions += 1;
  const isLast = transactions === Number(killAt);
  const result = write(() => {
    const changed = change();
    if (isLast && when === 'before') process.kill(process.pid, 'SIGKILL');
    return changed;
  });
  if (isLast) process.kill(process.pid, 'SIGKILL');
  return result;
};

const watch = watchRepositories({
  db,
  live,
  log: createLog(),
  dataDirectory: '/nowhere',
  rate: 1000,
  ask: async () =>
    answerOf({ refs: new Map(JSON.parse(readFileSync(refsFile, 'utf8'))), defaultBranch: 'refs/heads/main' }),
  onFiring() {},
  async onLook() {
    await watch.stop();
    db.close();
  },
});
