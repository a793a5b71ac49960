// Child process of backup.test.ts: keeps writing pairs of rows and replacing archives in a data directory until it gets
// a message. Reports how often it wrote and how long the slowest write took.
import { createHash, randomBytes } from 'node:crypto';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { openData } from '../../src/store/data/data.ts';
import { archivePath, uploadDirectory } from '../../src/store/data/paths.ts';

const [data = '', dependencyId = ''] = process.argv.slice(2);
const db = openData(data, {});
const set = db.sqlite.prepare('INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)');
const point = db.sqlite.prepare(
  'UPDATE dependencies SET archive_hash = ?, archive_file_size = ? WHERE id = ?',
);
let hash: string | undefined;
let writes = 0;
let slowestMs = 0;

function writeOnce() {
  const bytes = randomBytes(2_000);
  const next = createHash('sha256').update(bytes).digest('hex');
  // As in an upload, an archive is complete before it gets its name.
  const part = join(uploadDirectory(data), next);
  writeFileSync(part, bytes);
  renameSync(part, archivePath(data, next));
  const startedAt = performance.now();
  db.write(() => {
    writes++;
    set.run(`left ${writes}`, String(writes));
    point.run(next, BigInt(bytes.length), BigInt(dependencyId));
    set.run(`right ${writes}`, String(writes));
  });
  slowestMs = Math.max(slowestMs, performance.now() - startedAt);
  if (hash) rmSync(archivePath(data, hash));
  hash = next;
}

let isStopped = false;
process.on('message', () => {
  isStopped = true;
});
writeOnce();
process.send?.('ready');
while (!isStopped) {
  for (let round = 0; round < 5; round++) writeOnce();
  // SQLite's lock is not fair: the pause lets the backup acquire it.
  await setTimeout(1);
}
db.close();
process.send?.({ writes, slowestMs });
process.disconnect?.();
