// A second process that gives out ids in the database it is told of, and prints them: started by ids.test.ts.
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
