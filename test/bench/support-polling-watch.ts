// Polls 1,000 repositories of a Git host at the default rate, and prints every few seconds how many looks there were and how
// much memory is in use. Its argument is a data directory with ssh/config, and with URLs and a key in repositories.json.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { readSettings } from '../../src/config.ts';
import { listRemote } from '../../src/engine/git/ls-remote.ts';
import { createLive } from '../../src/live.ts';
import { createLog } from '../../src/log.ts';
import { openDb } from '../../src/store/database/db.ts';
import { createVault } from '../../src/store/database/vault.ts';
import { createProject } from '../../src/store/projects.ts';
import { recordLook, rememberRefs } from '../../src/store/trigger/firings.ts';
import { watchRepositories } from '../../src/work/trigger/watch-repositories.ts';
import { addAccount } from '../store/fixture.ts';
import { collectGarbage } from '../support/garbage.ts';
import { addTrigger } from '../support/watch-fixture.ts';

const REPORT_MS = 10_000;
const dataDirectory = process.argv[2] as string;
const { urls, privateKey, publicKey } = JSON.parse(
  readFileSync(join(dataDirectory, 'repositories.json'), 'utf8'),
) as { urls: string[]; privateKey: string; publicKey: string };

const db = openDb(join(dataDirectory, 'assay.db'), createVault(Buffer.alloc(32, 7)));
const live = createLive();
db.onCommit = topics => live.publish(topics);
// All repositories have the same refs. They have been looked at before, and nothing has changed.
const { refs, digest } = await listRemote({ url: urls[0] as string, ssh: { dataDirectory, privateKey } });
db.write(() => {
  const ownerId = addAccount(db).id;
  for (const [index, repositoryUrl] of urls.entries()) {
    const project = createProject(db, {
      ownerId,
      name: `Project ${index}`,
      description: '',
      repositoryUrl,
      badge: false,
      cancelSuperseded: false,
      keyPair: { publicKey, privateKey },
    });
    rememberRefs(
      db,
      project.id,
      [...refs].map(([ref, after]) => ({ ref, after })),
    );
    recordLook(db, {
      projectId: project.id,
      repositoryUrl,
      refsDigest: digest,
      defaultBranch: 'refs/heads/main',
      lookedAt: db.now(),
    });
    addTrigger(db, project, 'poll');
  }
});

const looks = { unchanged: 0, changed: 0, failed: 0 };
watchRepositories({
  db,
  live,
  log: createLog(),
  dataDirectory,
  rate: readSettings(new Map(), {}).settings.pollRate,
  onLook(outcome) {
    looks[outcome] += 1;
  },
  onFiring() {},
});
setInterval(() => {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  console.log(JSON.stringify({ ...looks, usedBytes: heapUsed + external }));
}, REPORT_MS);
