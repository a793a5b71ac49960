// Starts the real application for a test, on a free loopback port and in its own directory, and fills it with accounts
// of every kind and standing, and with one record of every kind for an owner.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startApp } from '../../src/app.ts';
import { readSettings, type Settings } from '../../src/config.ts';
import { type AccountKind, type Scope, scopes } from '../../src/domain/access.ts';
import type { EngineNode } from '../../src/domain/node.ts';
import { createResultTable, setResult } from '../../src/domain/result/comparison.ts';
import type { TestCounts } from '../../src/domain/result/test-result.ts';
import { newSecret } from '../../src/domain/secret.ts';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { defaultOptions } from '../../src/domain/trigger/trigger.ts';
import { newSigningSecret } from '../../src/domain/webhook/signature.ts';
import { createLog } from '../../src/log.ts';
import { type Account, createAccount, updateAccount } from '../../src/store/accounts.ts';
import { createApplication, createToken } from '../../src/store/applications.ts';
import { type Build, createBuildRequest, enqueueBuilds, recordCommit } from '../../src/store/builds.ts';
import { purgeSomeRows } from '../../src/store/cleanup/purge.ts';
import { findWaitingCompile } from '../../src/store/compile-queue.ts';
import { buildLogPath, dependencyLogPath } from '../../src/store/data/paths.ts';
import { type Db, insertInto } from '../../src/store/database/db.ts';
import { buildReports, tests } from '../../src/store/database/result-schema.ts';
import { createDependency } from '../../src/store/dependencies.ts';
import { createDeploy, createStrategy } from '../../src/store/deploys.ts';
import { createNotification, pingNotification } from '../../src/store/notifications.ts';
import { createCollaborator, createProject } from '../../src/store/projects.ts';
import { packResults } from '../../src/store/result/packed-results.ts';
import { createSnapshot } from '../../src/store/snapshots.ts';
import { attachDependency, createRule, createSuite, createVariable } from '../../src/store/suites.ts';
import { moveBuild, moveRequest } from '../../src/store/transition.ts';
import { recordFiring } from '../../src/store/trigger/firings.ts';
import { createTrigger, findAnyTrigger, secretsOf } from '../../src/store/trigger/triggers.ts';
import { plantArtifact } from './artifacts.ts';
import { listBuildsOfRequest } from './builds.ts';
import { basic, bearer, type Client, createClient } from './client.ts';
import { finish } from './steps.ts';

export type Person = { account: Account; key: string; as: string };
export type People = Record<
  'owner' | 'collaborator' | 'stranger' | 'guest' | 'suspended' | 'unpaid' | 'admin',
  Person
>;

/** The accounts and the database, whichever process serves it. */
export type Fixture = {
  db: Db;
  data: string;
  people: People;
  /** Creates one record of every kind, owned by that person. All others except for the stranger collaborate on it. */
  plant(owner?: Person): Planted;
  /** Bearer credentials with exactly these scopes. */
  token(person: Person, ...granted: Scope[]): string;
  writeLog(buildId: bigint, bytes: string | Buffer): Promise<void>;
  writeCompileLog(dependencyId: bigint, bytes: string | Buffer): Promise<void>;
};

export type TestApp = Fixture & {
  url: string;
  client: Client;
  /** What the program logged. */
  logged: string[];
  /** Sets whether there is enough free disk space for new work. */
  hasFreeSpace: boolean;
  /** The nodes of a swarm that the server reports; undefined for a single host. */
  nodes: EngineNode[] | undefined;
  /** The number of row changes so far. A refused request must not change it. */
  changes(): number;
  close(): Promise<void>;
};

/** IDs by their names in paths. */
export type Planted = Record<
  | 'project_id'
  | 'collaborator_id'
  | 'suite_id'
  | 'rule_id'
  | 'variable_id'
  | 'used_dependency_id'
  | 'free_dependency_id'
  | 'commit_id'
  | 'build_request_id'
  | 'build_id'
  | 'artifact_id'
  | 'deploy_strategy_id'
  | 'deploy_id'
  | 'notification_id'
  | 'delivery_id'
  | 'trigger_id'
  | 'schedule_id'
  | 'test_id'
  | 'snapshot_id',
  bigint
>;

export const allScopes = scopes;

/** The secret of the planted push trigger. */
export function hookSecretOf(db: Db, { trigger_id }: Planted): string {
  const trigger = findAnyTrigger(db, trigger_id);
  return (trigger && secretsOf(db, trigger)[0]) ?? '';
}

export async function bootApp(overrides: Partial<Settings> = {}): Promise<TestApp> {
  const data = overrides.data ?? (await mkdtemp(join(tmpdir(), 'assay-test-')));
  const { settings } = readSettings(
    new Map([
      ['--data', data],
      ['--listen', '127.0.0.1:0'],
    ]),
    {},
  );
  const logged: string[] = [];
  const disk = { hasFreeSpace: true };
  const swarm: { nodes: EngineNode[] | undefined } = { nodes: undefined };
  const app = await startApp(
    { ...settings, ...overrides },
    createLog(line => logged.push(line), {}),
    // No worker runs: queued work waits until a test changes its state.
    async ({ db }) => ({
      waiting: () => undefined,
      waitingCompile(dependency) {
        const waiting = findWaitingCompile(db, dependency);
        return waiting && { reason: 'It starts in a moment.', ...waiting };
      },
      slots: () => settings.concurrency,
      slotsUsed: () => 0,
      compileSlots: () => 1,
      compilesRunning: () => 0,
      dockerUnavailable: () => undefined,
      hasFreeSpace: () => disk.hasFreeSpace,
      freeDiskBytes: () => 0,
      cacheTotalBytes: () => 0,
      nodes: () => swarm.nodes,
      stop: async () => {},
    }),
  );
  const ca = await readFile(join(data, 'tls', 'ca.pem'), 'utf8');
  const client = createClient(app.url, ca);
  return {
    ...createFixture(app.db, data),
    url: app.url,
    client,
    logged,
    get hasFreeSpace() {
      return disk.hasFreeSpace;
    },
    set hasFreeSpace(value) {
      disk.hasFreeSpace = value;
    },
    get nodes() {
      return swarm.nodes;
    },
    set nodes(value) {
      swarm.nodes = value;
    },
    changes: () => {
      // Deleted records are purged in batches, which is not a change by the code under test.
      while (purgeSomeRows(app.db));
      return Number(app.db.sqlite.prepare('SELECT total_changes()').pluck().get());
    },
    close: async () => {
      client.close();
      await app.close();
      await rm(data, { recursive: true, force: true });
    },
  };
}

/** Creates accounts of every kind in an empty database, and returns functions to add more. */
export function createFixture(db: Db, data: string): Fixture {
  const people = createPeople(db);
  const { application } = createApplication(db, {
    ownerId: people.admin.account.id,
    name: 'Tests',
    redirectUri: 'urn:ietf:wg:oauth:2.0:oob',
    isPublic: false,
  });
  const writeTo = (path: string, topic: string) => async (bytes: string | Buffer) => {
    await writeFile(path, bytes, { flag: 'a' });
    db.write(() => db.touch(topic));
  };
  return {
    db,
    data,
    people,
    plant: (owner = people.owner) => plant(db, data, people, owner),
    token: (person, ...granted) =>
      bearer(
        createToken(db, {
          accountId: person.account.id,
          applicationId: application.id,
          scopes: granted,
        }).token,
      ),
    writeLog: (id, bytes) => writeTo(buildLogPath(data, id), `log:build:${id}`)(bytes),
    writeCompileLog: (id, bytes) => writeTo(dependencyLogPath(data, id), `log:dependency:${id}`)(bytes),
  };
}

function createPerson(db: Db, name: string, kind: AccountKind = 'user', admin = false): Person {
  const key = newSecret('assay');
  const email = `${name}@example.org`;
  const account = createAccount(db, { email, kind, admin, passwordHash: null, apiKey: key });
  return { account, key, as: basic(email, key) };
}

function createPeople(db: Db): People {
  return db.write(() => {
    const people: People = {
      owner: createPerson(db, 'owner'),
      collaborator: createPerson(db, 'collaborator'),
      stranger: createPerson(db, 'stranger'),
      guest: createPerson(db, 'guest', 'collaborator'),
      suspended: createPerson(db, 'suspended'),
      unpaid: createPerson(db, 'unpaid'),
      admin: createPerson(db, 'admin', 'user', true),
    };
    updateAccount(db, people.suspended.account.id, { standing: 'suspended' });
    updateAccount(db, people.unpaid.account.id, { standing: 'payment_required' });
    return people;
  });
}

let planted = 0;
const keyPair = generateKeyPair('assay');

/** One transaction, so that no worker starts any of it. */
function plant(db: Db, data: string, people: People, owner: Person): Planted {
  planted += 1;
  const name = `Planted ${planted}`;
  return db.write(() => {
    const project = createProject(db, {
      ownerId: owner.account.id,
      name,
      description: '',
      repositoryUrl: 'git@git.invalid:team/website.git',
      badge: false,
      cancelSuperseded: false,
      keyPair,
    });
    const collaborators = (['collaborator', 'guest', 'suspended', 'unpaid'] as const)
      .map(role => people[role].account)
      .filter(account => account.id !== owner.account.id)
      .map(account => createCollaborator(db, project.id, account.id));
    const suite = createSuite(db, {
      projectId: project.id,
      name: 'Unit tests',
      description: '',
      command: 'make check',
      image: null,
    });
    const rule = createRule(db, {
      suiteId: suite.id,
      subject: 'commit.message',
      operator: 'contains',
      value: 'fix',
    });
    const variable = createVariable(db, suite.id, 'API_URL', 'https://api.example.org');
    const dependency = (which: string) =>
      createDependency(
        db,
        owner.account.id,
        {
          name: `${name} ${which}`,
          description: '',
          command: './configure --prefix=/srv/dependency && make install',
          prefix: '/srv/dependency',
          source: '',
          launchCommand: '',
          image: null,
        },
        [],
      );
    const used = dependency('used');
    const free = dependency('free');
    attachDependency(db, suite.id, used.id);
    const request = createBuildRequest(db, project, 'main', owner.account.email);
    const commit = recordCommit(db, project.id, commitFields(`${planted}`.padStart(40, 'a')));
    moveRequest(db, request.id, 'fetch');
    enqueueBuilds(db, request.id, commit, 'main', [
      { suiteId: suite.id, suiteName: suite.name, runs: true, rules: [] },
    ]);
    const [build] = listBuildsOfRequest(db, request.id);
    if (!build) throw new Error('no build started');
    moveBuild(db, build.id, 'start');
    const testId = plantTest(db, build);
    moveBuild(db, build.id, 'pass', { exitCode: 0, tests: onePassed });
    const artifactId = plantArtifact(db, data, build.id);
    const strategy = createStrategy(db, {
      projectId: project.id,
      name: 'Production',
      strategyType: 'git',
      repositoryUrl: 'git@git.invalid:team/live.git',
      localBranch: 'main',
      remoteBranch: 'live',
      automatic: false,
    });
    const deploy = createDeploy(db, strategy, commit, owner.account.email);
    const notification = createNotification(db, {
      projectId: project.id,
      name: 'webhook',
      notifiableType: 'build',
      url: 'https://hooks.invalid/ci',
      signingSecret: newSigningSecret(),
    });
    const delivery = pingNotification(db, notification);
    const trigger = createTrigger(db, {
      projectId: project.id,
      name: 'Forge',
      triggerType: 'push',
      options: defaultOptions.push,
      nextAt: null,
      secret: newSigningSecret(),
      createdBy: owner.account.email,
    });
    recordFiring(db, trigger, { event: 'ping', outcome: 'ignored', reason: 'ping' });
    const schedule = createTrigger(db, {
      projectId: project.id,
      name: 'Nightly',
      triggerType: 'schedule',
      options: { ...defaultOptions.schedule, cron: '0 3 * * *', branch: 'main' },
      nextAt: null,
      createdBy: owner.account.email,
    });
    const snapshot = createSnapshot(
      db,
      {
        projectId: project.id,
        accountId: owner.account.id,
        ref: `${planted}`.padStart(40, 'b'),
        sizeBytes: 236,
      },
      () => {},
    );
    return {
      project_id: project.id,
      collaborator_id: collaborators[0] as bigint,
      suite_id: suite.id,
      rule_id: rule.id,
      variable_id: variable.id,
      used_dependency_id: used.id,
      free_dependency_id: free.id,
      commit_id: commit.id,
      build_request_id: request.id,
      build_id: build.id,
      artifact_id: artifactId,
      deploy_strategy_id: strategy.id,
      deploy_id: deploy.id,
      notification_id: notification.id,
      delivery_id: delivery.id,
      trigger_id: trigger.id,
      schedule_id: schedule.id,
      test_id: testId,
      snapshot_id: snapshot.id,
    };
  });
}

const insertTest = insertInto(tests);
const insertReport = insertInto(buildReports);

const onePassed: TestCounts = {
  passed: 1,
  failed: 0,
  errored: 0,
  skipped: 0,
  newFailures: 0,
  fixed: 0,
  flaky: 0,
};

/** The only test of the build's report. It passed. */
function plantTest(db: Db, build: Build): bigint {
  const id = db.newId();
  insertTest(db, {
    id,
    projectId: build.projectId,
    suiteId: build.suiteId,
    number: 1,
    key: Buffer.alloc(16),
    classname: 'Roof',
    name: 'keeps the rain out',
    file: null,
    firstBuildId: build.id,
    seenAt: db.now(),
    flakyAt: null,
    flakyFailedBuildId: null,
    flakyPassedBuildId: null,
    flakyRuns: 0,
  });
  const table = createResultTable(1);
  setResult(table, 0, { number: 1, result: 'passed', change: undefined, durationMs: 12 });
  insertReport(db, {
    buildId: build.id,
    suiteId: build.suiteId,
    branch: 'main',
    baseBuildId: null,
    durationMs: 12,
    malformed: null,
    results: finish(packResults(table)),
    local: false,
  });
  return id;
}

export function commitFields(ref: string) {
  return {
    ref,
    message: 'Fix the roof\n\nIt rained in.',
    authorName: 'Ada',
    authorEmail: 'ada@example.org',
    authoredDate: '2026-01-02T03:04:05+02:00',
    committerName: 'Bob',
    committerEmail: 'bob@example.org',
    committedDate: '2026-01-02T04:05:06-05:00',
    branches: '["main"]',
    tags: '[]',
    files: '["README.md"]',
  };
}
