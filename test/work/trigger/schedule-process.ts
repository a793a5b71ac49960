// Child process of fire-schedules.test.ts: fires what is due in the given database, and ends.
import { createLive } from '../../../src/live.ts';
import { createLog } from '../../../src/log.ts';
import { openDb } from '../../../src/store/database/db.ts';
import { createVault } from '../../../src/store/database/vault.ts';
import { startSchedules } from '../../../src/work/trigger/fire-schedules.ts';

const [path = '', clockMs = ''] = process.argv.slice(2);
const db = openDb(path, createVault(Buffer.alloc(32, 7)), () => Number(clockMs));
const live = createLive();
db.onCommit = topics => live.publish(topics);
const { promise: isFired, resolve } = Promise.withResolvers<void>();
const log = createLog(() => {}, {});
const schedules = startSchedules({ db, live, log, dataDirectory: '', onFiring: () => resolve() });
await isFired;
await schedules.stop();
db.close();
process.exit();
