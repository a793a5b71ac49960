// Child process of ids.test.ts: creates IDs in the given database and prints them.
import { openDb } from '../../src/store/database/db.ts';
import { createVault } from '../../src/store/database/vault.ts';

const [path = '', count = '0', clockMs = ''] = process.argv.slice(2);
const db = openDb(path, createVault(Buffer.alloc(32, 7)), () => Number(clockMs));
process.stdout.write('ready\n');
process.stdin.once('data', () => {
  const given: bigint[] = [];
  while (given.length < Number(count)) db.write(() => given.push(db.newId(), db.newId()));
  process.stdout.write(`${given.join(' ')}\n`);
  db.close();
  process.stdin.destroy();
});
