// The migration steps from an empty file to the current schema, and their runner. Never edit a released step.

import type Database from 'better-sqlite3';
import { nameKey } from '../../domain/names.ts';
import type { RuleResult } from '../../domain/rules.ts';
import { packDecisions } from './packed-decisions.ts';

/** Thrown if a newer Assay wrote the file: using it could lose data. */
export class NewerSchemaError extends Error {}

/** Called before and after the steps of an upgrade, which may take long for a large database. */
export type OnUpgrade = (upgrade: { from: number; to: number; tookMs?: number }) => void;

export function migrate(
  sqlite: Database.Database,
  target = steps.length,
  onUpgrade: OnUpgrade = () => {},
): void {
  const from = versionOf(sqlite);
  if (from >= target) return;
  const startedAt = performance.now();
  if (from > 0) onUpgrade({ from, to: target });
  // Foreign keys would empty child tables when a step rebuilds their parent. The pragma is ignored inside a transaction.
  sqlite.pragma('foreign_keys = OFF');
  // Overwrite removed values in the file, such as keys that were not encrypted.
  sqlite.pragma('secure_delete = ON');
  sqlite.function('key_of_name', { deterministic: true }, name => nameKey(String(name)));
  sqlite
    .transaction(() => {
      // Read again under the write lock: another process may have migrated meanwhile.
      const version = versionOf(sqlite);
      if (version >= target) return;
      for (const step of steps.slice(version, target))
        if (typeof step === 'string') sqlite.exec(step);
        else step(sqlite);
      const broken = sqlite.pragma('foreign_key_check') as unknown[];
      if (broken.length > 0)
        throw new Error(`the migration would leave ${broken.length} rows without their parents`);
      sqlite.pragma(`user_version = ${target}`);
    })
    .immediate();
  sqlite.pragma('secure_delete = OFF');
  if (from > 0) onUpgrade({ from, to: target, tookMs: Math.round(performance.now() - startedAt) });
}

function versionOf(sqlite: Database.Database): number {
  const version = Number(sqlite.pragma('user_version', { simple: true }));
  if (version > steps.length)
    throw new NewerSchemaError(
      `the database was written by a newer Assay (schema ${version}, this one knows ${steps.length}): install that version again, or restore a backup`,
    );
  return version;
}

const contract = `
CREATE TABLE accounts (
  id INTEGER PRIMARY KEY NOT NULL,
  email TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  admin INTEGER NOT NULL,
  standing TEXT NOT NULL,
  trial_ends_at INTEGER,
  password_hash TEXT,
  api_key_digest BLOB,
  created_at INTEGER NOT NULL
) STRICT;
CREATE TABLE applications (
  id INTEGER PRIMARY KEY NOT NULL,
  owner_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  client_id TEXT NOT NULL UNIQUE,
  client_secret_digest BLOB,
  redirect_uri TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX applications_owner ON applications (owner_id);
CREATE TABLE artifacts (
  hash TEXT PRIMARY KEY NOT NULL,
  prefix TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  volume TEXT,
  created_at INTEGER NOT NULL
) STRICT;
CREATE TABLE authorization_codes (
  code_digest BLOB PRIMARY KEY NOT NULL,
  application_id INTEGER NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  redirect_uri TEXT NOT NULL,
  scopes TEXT NOT NULL,
  code_challenge TEXT,
  expires_at INTEGER NOT NULL,
  token_id INTEGER REFERENCES tokens (id) ON DELETE SET NULL,
  used_at INTEGER
) STRICT;
CREATE INDEX authorization_codes_application ON authorization_codes (application_id);
CREATE INDEX authorization_codes_account ON authorization_codes (account_id);
CREATE INDEX authorization_codes_token ON authorization_codes (token_id);
CREATE TABLE build_requests (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  commit_ref TEXT NOT NULL,
  branch TEXT NOT NULL,
  commit_id INTEGER REFERENCES commits (id),
  build_state TEXT NOT NULL,
  error TEXT,
  created_by TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  finished_at INTEGER
) STRICT;
CREATE INDEX build_requests_project ON build_requests (project_id, id);
CREATE INDEX build_requests_commit ON build_requests (commit_id, id);
CREATE INDEX build_requests_waiting ON build_requests (project_id, id) WHERE build_state = 'enqueued';
CREATE INDEX build_requests_fetching ON build_requests (id) WHERE build_state = 'fetching';
CREATE INDEX build_requests_unfinished ON build_requests (project_id, id) WHERE build_state IN ('enqueued', 'fetching', 'building');
CREATE TABLE builds (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  build_request_id INTEGER NOT NULL REFERENCES build_requests (id) ON DELETE CASCADE,
  commit_id INTEGER NOT NULL REFERENCES commits (id),
  commit_ref TEXT NOT NULL,
  suite_id INTEGER NOT NULL,
  suite_name TEXT NOT NULL,
  build_state TEXT NOT NULL,
  exit_code INTEGER,
  error TEXT,
  attempts INTEGER NOT NULL,
  nonce TEXT,
  cancel_because TEXT,
  created_at INTEGER NOT NULL,
  started_at INTEGER,
  finished_at INTEGER
) STRICT;
CREATE INDEX builds_project ON builds (project_id, id);
CREATE INDEX builds_commit ON builds (commit_id, id);
CREATE INDEX builds_request ON builds (build_request_id, id);
CREATE INDEX builds_suite ON builds (suite_id, id);
CREATE INDEX builds_waiting ON builds (project_id, id) WHERE build_state = 'enqueued';
CREATE INDEX builds_running ON builds (id) WHERE build_state = 'running';
CREATE INDEX builds_unfinished ON builds (project_id, id) WHERE build_state IN ('enqueued', 'running');
CREATE INDEX builds_finished ON builds (finished_at) WHERE finished_at IS NOT NULL;
CREATE TABLE collaborators (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE
) STRICT;
CREATE UNIQUE INDEX collaborators_pair ON collaborators (project_id, account_id);
CREATE INDEX collaborators_account ON collaborators (account_id, project_id);
CREATE TABLE commits (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  version INTEGER NOT NULL,
  ref TEXT NOT NULL,
  build_state TEXT NOT NULL,
  message TEXT NOT NULL,
  author_name TEXT NOT NULL,
  author_email TEXT NOT NULL,
  authored_date TEXT NOT NULL,
  committer_name TEXT NOT NULL,
  committer_email TEXT NOT NULL,
  committed_date TEXT NOT NULL,
  branches TEXT NOT NULL,
  tags TEXT NOT NULL,
  files TEXT NOT NULL,
  files_omitted INTEGER
) STRICT;
CREATE UNIQUE INDEX commits_ref ON commits (project_id, ref);
CREATE INDEX commits_project ON commits (project_id, id);
CREATE TABLE deliveries (
  id INTEGER PRIMARY KEY NOT NULL,
  notification_id INTEGER NOT NULL REFERENCES notifications (id) ON DELETE CASCADE,
  event_id INTEGER NOT NULL,
  event_type TEXT NOT NULL,
  resource_id INTEGER NOT NULL,
  body TEXT NOT NULL,
  state TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  response_status INTEGER,
  response_ms INTEGER,
  response_excerpt TEXT,
  last_error TEXT,
  next_attempt_at INTEGER,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX deliveries_notification ON deliveries (notification_id, id);
CREATE INDEX deliveries_pending ON deliveries (notification_id, resource_id, id) WHERE state = 'pending';
CREATE INDEX deliveries_due ON deliveries (notification_id, next_attempt_at) WHERE state = 'pending';
CREATE TABLE dependencies (
  id INTEGER PRIMARY KEY NOT NULL,
  owner_id INTEGER NOT NULL REFERENCES accounts (id),
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  command TEXT NOT NULL,
  prefix TEXT NOT NULL,
  source TEXT NOT NULL,
  launch_command TEXT NOT NULL,
  image TEXT,
  compile_state TEXT NOT NULL,
  shared INTEGER NOT NULL,
  archive_hash TEXT,
  archive_content_type TEXT,
  archive_file_size INTEGER,
  artifact_hash TEXT REFERENCES artifacts (hash),
  recipe_hash TEXT,
  error TEXT,
  attempts INTEGER NOT NULL,
  nonce TEXT,
  cancel_requested INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  enqueued_at INTEGER,
  started_at INTEGER,
  finished_at INTEGER
) STRICT;
CREATE UNIQUE INDEX dependencies_name ON dependencies (owner_id, name);
CREATE INDEX dependencies_owner ON dependencies (owner_id, id);
CREATE INDEX dependencies_shared ON dependencies (id) WHERE shared = 1;
CREATE INDEX dependencies_unfinished ON dependencies (id) WHERE compile_state IN ('enqueued_for_compile', 'compiling');
CREATE INDEX dependencies_artifact ON dependencies (artifact_hash);
CREATE INDEX dependencies_recipe ON dependencies (recipe_hash);
CREATE INDEX dependencies_archive ON dependencies (archive_hash);
CREATE TABLE deploy_strategies (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  strategy_type TEXT NOT NULL,
  repository_url TEXT NOT NULL,
  local_branch TEXT NOT NULL,
  remote_branch TEXT NOT NULL,
  automatic INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX deploy_strategies_name ON deploy_strategies (project_id, name);
CREATE INDEX deploy_strategies_project ON deploy_strategies (project_id, id);
CREATE TABLE deploys (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  deploy_strategy_id INTEGER NOT NULL,
  strategy_name TEXT NOT NULL,
  repository_url TEXT NOT NULL,
  local_branch TEXT NOT NULL,
  remote_branch TEXT NOT NULL,
  commit_id INTEGER NOT NULL REFERENCES commits (id),
  commit_ref TEXT NOT NULL,
  state TEXT NOT NULL,
  error TEXT,
  created_by TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  deploy_started_at INTEGER,
  deploy_finished_at INTEGER
) STRICT;
CREATE INDEX deploys_project ON deploys (project_id, id);
CREATE INDEX deploys_strategy ON deploys (deploy_strategy_id, commit_ref);
CREATE INDEX deploys_commit ON deploys (commit_id);
CREATE INDEX deploys_unfinished ON deploys (project_id, id) WHERE state IN ('enqueued', 'deploying');
CREATE TABLE environment_variables (
  id INTEGER PRIMARY KEY NOT NULL,
  suite_id INTEGER NOT NULL REFERENCES suites (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  content BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX environment_variables_name ON environment_variables (suite_id, name);
CREATE INDEX environment_variables_suite ON environment_variables (suite_id, id);
CREATE TABLE events (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  type TEXT NOT NULL,
  resource_id INTEGER NOT NULL,
  body TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX events_project ON events (project_id, id);
CREATE TABLE facts (
  name TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;
CREATE TABLE images (
  name TEXT PRIMARY KEY NOT NULL,
  image_id TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE TABLE notifications (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  notifiable_type TEXT NOT NULL,
  url TEXT NOT NULL,
  signing_secret BLOB NOT NULL,
  enabled INTEGER NOT NULL
) STRICT;
CREATE INDEX notifications_project ON notifications (project_id, id);
CREATE TABLE projects (
  id INTEGER PRIMARY KEY NOT NULL,
  owner_id INTEGER NOT NULL REFERENCES accounts (id),
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  repository_url TEXT NOT NULL,
  build_state TEXT NOT NULL,
  ssh_public_key BLOB NOT NULL,
  ssh_private_key BLOB NOT NULL,
  badge INTEGER NOT NULL,
  cancel_superseded INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX projects_name ON projects (owner_id, name);
CREATE INDEX projects_owner ON projects (owner_id, id);
CREATE TABLE related_dependencies (
  dependency_id INTEGER NOT NULL REFERENCES dependencies (id) ON DELETE CASCADE,
  related_id INTEGER NOT NULL REFERENCES dependencies (id),
  position INTEGER NOT NULL,
  PRIMARY KEY (dependency_id, related_id)
) STRICT;
CREATE INDEX related_dependencies_related ON related_dependencies (related_id);
CREATE TABLE sessions (
  token_digest BLOB PRIMARY KEY NOT NULL,
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT;
CREATE TABLE sign_in_links (
  token_digest BLOB PRIMARY KEY NOT NULL,
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  expires_at INTEGER NOT NULL
) STRICT;
CREATE TABLE suite_decisions (
  build_request_id INTEGER NOT NULL REFERENCES build_requests (id) ON DELETE CASCADE,
  suite_id INTEGER NOT NULL,
  suite_name TEXT NOT NULL,
  runs INTEGER NOT NULL,
  rules TEXT NOT NULL,
  PRIMARY KEY (build_request_id, suite_id)
) STRICT;
CREATE TABLE suite_dependencies (
  id INTEGER PRIMARY KEY NOT NULL,
  suite_id INTEGER NOT NULL REFERENCES suites (id) ON DELETE CASCADE,
  dependency_id INTEGER NOT NULL REFERENCES dependencies (id)
) STRICT;
CREATE UNIQUE INDEX suite_dependencies_pair ON suite_dependencies (suite_id, dependency_id);
CREATE INDEX suite_dependencies_dependency ON suite_dependencies (dependency_id);
CREATE TABLE suite_rules (
  id INTEGER PRIMARY KEY NOT NULL,
  suite_id INTEGER NOT NULL REFERENCES suites (id) ON DELETE CASCADE,
  subject TEXT NOT NULL,
  operator TEXT NOT NULL,
  value TEXT NOT NULL
) STRICT;
CREATE INDEX suite_rules_suite ON suite_rules (suite_id, id);
CREATE TABLE suites (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  command TEXT NOT NULL,
  image TEXT
) STRICT;
CREATE UNIQUE INDEX suites_name ON suites (project_id, name);
CREATE INDEX suites_project ON suites (project_id, id);
CREATE TABLE tokens (
  id INTEGER PRIMARY KEY NOT NULL,
  token_digest BLOB NOT NULL UNIQUE,
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  application_id INTEGER NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
  scopes TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  last_used_at INTEGER
) STRICT;
CREATE INDEX tokens_account ON tokens (account_id);
CREATE INDEX tokens_application ON tokens (application_id);
INSERT INTO facts (name, value) VALUES ('last_id', '0'), ('instance', lower(hex(randomblob(8))));
`;

/**
 * Adds who invited an account. Old rows lack this, but an invitation created the account and its collaborator in one
 * transaction. Ids count milliseconds in steps of 2^22, so both ids are of the same second. Also removes the links of
 * accounts that have a password or were promoted.
 */
const invitations = `
ALTER TABLE accounts ADD COLUMN invited_by_id INTEGER REFERENCES accounts (id) ON DELETE SET NULL;
CREATE INDEX accounts_invited_by ON accounts (invited_by_id);
UPDATE accounts SET invited_by_id = (
  SELECT projects.owner_id FROM collaborators JOIN projects ON projects.id = collaborators.project_id
  WHERE collaborators.account_id = accounts.id AND collaborators.id - accounts.id < 1000 << 22
  ORDER BY collaborators.id LIMIT 1
) WHERE password_hash IS NULL AND kind = 'collaborator' AND admin = 0;
DELETE FROM sign_in_links WHERE account_id IN (
  SELECT id FROM accounts WHERE password_hash IS NOT NULL OR kind <> 'collaborator' OR admin <> 0
);
`;

/** Indexes to find an unfinished build of a request, and the newest build of each suite, without reading all builds. */
const buildsOfRequest = `
DROP INDEX builds_request;
CREATE INDEX builds_request ON builds (build_request_id, suite_id, id);
CREATE INDEX builds_request_unfinished ON builds (build_request_id, id) WHERE build_state IN ('enqueued', 'running');
`;

/**
 * Removes SSH keys from the bodies of events, because keys are stored encrypted; the comment of the key stays. A delivery
 * now sends the body of its event, so its copy is deleted.
 */
const keyField = '"ssh_public_key":"';
const keyStart = `instr(body, '${keyField}ssh-ed25519 ')`;
const afterKeyStart = `${keyStart} + ${`${keyField}ssh-ed25519 `.length}`;
const bodiesOnce = `
UPDATE events SET body =
  substr(body, 1, ${keyStart} + ${keyField.length - 1}) ||
  substr(body, ${afterKeyStart} + instr(substr(body, ${afterKeyStart}), ' ') - 1)
WHERE ${keyStart} > 0;
ALTER TABLE deliveries DROP COLUMN body;
CREATE INDEX deliveries_event ON deliveries (event_id);
`;

/** Makes names unique by their key. If several rows have the same key, the oldest keeps it and the others get none. */
const uniqueKeys = [
  ['projects', 'owner_id'],
  ['suites', 'project_id'],
  ['dependencies', 'owner_id'],
  ['deploy_strategies', 'project_id'],
]
  .map(
    ([table, scope]) => `
ALTER TABLE ${table} ADD COLUMN name_key TEXT;
UPDATE ${table} SET name_key = key_of_name(name);
UPDATE ${table} SET name_key = NULL WHERE id NOT IN (SELECT min(id) FROM ${table} GROUP BY ${scope}, name_key);
DROP INDEX ${table}_name;
CREATE UNIQUE INDEX ${table}_name ON ${table} (${scope}, name_key);
`,
  )
  .join('');

/** Replaces decisions stored in one row per suite by one packed row per request. */
function packOldDecisions(sqlite: Database.Database): void {
  sqlite.exec(`
    CREATE TABLE request_decisions (
      build_request_id INTEGER PRIMARY KEY NOT NULL REFERENCES build_requests (id) ON DELETE CASCADE,
      decisions BLOB NOT NULL,
      begun INTEGER
    ) STRICT;
    CREATE INDEX request_decisions_begun ON request_decisions (build_request_id) WHERE begun IS NOT NULL;
    CREATE TABLE request_cancels (
      build_request_id INTEGER PRIMARY KEY NOT NULL REFERENCES build_requests (id) ON DELETE CASCADE,
      because TEXT NOT NULL,
      up_to_build_id INTEGER NOT NULL
    ) STRICT;`);
  const insert = sqlite.prepare('INSERT INTO request_decisions VALUES (?, ?, NULL)');
  const next = sqlite
    .prepare('SELECT min(build_request_id) FROM suite_decisions WHERE build_request_id > ?')
    .safeIntegers()
    .pluck();
  const rowsOf = sqlite
    .prepare<[bigint], { suiteId: bigint; suiteName: string; runs: bigint; rules: string }>(
      `SELECT suite_id AS suiteId, suite_name AS suiteName, runs, rules FROM suite_decisions
       WHERE build_request_id = ? ORDER BY suite_id`,
    )
    .safeIntegers();
  for (let id = next.get(-1n) as bigint | null; id !== null; id = next.get(id) as bigint | null) {
    // Equal texts share one list of rules, so that it is packed once.
    const parsed = new Map<string, RuleResult[]>();
    const decisions = rowsOf.all(id).map(({ suiteId, suiteName, runs, rules: text }) => {
      const rules = parsed.get(text) ?? (JSON.parse(text) as RuleResult[]);
      parsed.set(text, rules);
      return { suiteId, suiteName, runs: runs !== 0n, rules };
    });
    insert.run(id, packDecisions(decisions));
  }
  sqlite.exec('DROP TABLE suite_decisions');
}

/** Allows a running deploy to be canceled. */
const deployCancel = `
ALTER TABLE deploys ADD COLUMN cancel_because TEXT;
`;

/** The caches of suites. The server adds the volumes that exist. */
const cachesOfSuites = `
CREATE TABLE caches (
  suite_id INTEGER PRIMARY KEY NOT NULL REFERENCES suites (id) ON DELETE CASCADE,
  generation INTEGER NOT NULL,
  size_bytes INTEGER,
  measured_at INTEGER,
  used_at INTEGER NOT NULL,
  emptied_at INTEGER,
  emptied_because TEXT
) STRICT;
`;

/** Deleted projects and notifications are marked, then purged in batches. */
const deletedMarks = ['projects', 'notifications']
  .map(
    table => `
ALTER TABLE ${table} ADD COLUMN deleted_at INTEGER;
CREATE INDEX ${table}_deleted ON ${table} (id) WHERE deleted_at IS NOT NULL;
`,
  )
  .join('');

/** The submodule setting of projects. */
const submodulesOfProject = `
ALTER TABLE projects ADD COLUMN submodules TEXT NOT NULL DEFAULT 'off';
`;

/** The time of earlier attempts, because TIMEOUT covers all of them. */
const timeOfAttempts = ['builds', 'dependencies']
  .map(table => `ALTER TABLE ${table} ADD COLUMN spent_ms INTEGER NOT NULL DEFAULT 0;\n`)
  .join('');

/** Triggers with their firings, and what starts a build request. */
const triggersOfProject = `
CREATE TABLE triggers (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  name_key TEXT,
  trigger_type TEXT NOT NULL,
  enabled INTEGER NOT NULL,
  state TEXT NOT NULL,
  error TEXT,
  options TEXT NOT NULL,
  secret BLOB,
  old_secret BLOB,
  old_secret_expires_at INTEGER,
  next_at INTEGER,
  failures INTEGER NOT NULL,
  fired_at INTEGER,
  refused_count INTEGER NOT NULL,
  refused_at INTEGER,
  created_by TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  deleted_at INTEGER
) STRICT;
CREATE INDEX triggers_deleted ON triggers (id) WHERE deleted_at IS NOT NULL;
CREATE UNIQUE INDEX triggers_name ON triggers (project_id, name_key);
CREATE INDEX triggers_project ON triggers (project_id, id);
CREATE INDEX triggers_due ON triggers (next_at) WHERE enabled = 1 AND next_at IS NOT NULL;

CREATE TABLE firings (
  id INTEGER PRIMARY KEY NOT NULL,
  trigger_id INTEGER NOT NULL REFERENCES triggers (id) ON DELETE CASCADE,
  event TEXT NOT NULL,
  delivery TEXT,
  ref TEXT,
  before TEXT,
  after TEXT,
  pushed_by TEXT,
  outcome TEXT NOT NULL,
  reason TEXT,
  build_request_id INTEGER,
  planned_at INTEGER,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX firings_trigger ON firings (trigger_id, id);
CREATE INDEX firings_looking ON firings (trigger_id, id) WHERE outcome = 'looking';

CREATE TABLE seen_refs (
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  ref TEXT NOT NULL,
  hash TEXT NOT NULL,
  PRIMARY KEY (project_id, ref)
) STRICT;

CREATE TABLE repository_looks (
  project_id INTEGER PRIMARY KEY NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  repository_url TEXT NOT NULL,
  refs_digest TEXT NOT NULL,
  default_branch TEXT,
  looked_at INTEGER NOT NULL
) STRICT;

ALTER TABLE build_requests ADD COLUMN tag TEXT NOT NULL DEFAULT '';
ALTER TABLE build_requests ADD COLUMN pinned TEXT;
ALTER TABLE build_requests ADD COLUMN pinned_ref TEXT;
ALTER TABLE build_requests ADD COLUMN trigger TEXT;
ALTER TABLE build_requests ADD COLUMN trigger_id INTEGER;
ALTER TABLE build_requests ADD COLUMN trigger_name TEXT;
ALTER TABLE build_requests ADD COLUMN pushed_by TEXT;
ALTER TABLE build_requests ADD COLUMN pull_request INTEGER;
ALTER TABLE build_requests ADD COLUMN without_variables INTEGER NOT NULL DEFAULT 0;
`;

/** Commit statuses: a second kind of notification, whose deliveries say what they report. */
const commitStatuses = `
ALTER TABLE notifications ADD COLUMN status_options TEXT;
ALTER TABLE notifications ADD COLUMN disabled_because TEXT;
ALTER TABLE deliveries ADD COLUMN status TEXT;
CREATE INDEX deliveries_status ON deliveries (notification_id, resource_id, id) WHERE status IS NOT NULL;
`;

/** What builds were made of and produced: inputs, artifacts, test reports and error lines. */
const resultsOfBuilds = `
ALTER TABLE builds ADD COLUMN keep INTEGER NOT NULL DEFAULT 0;
ALTER TABLE builds ADD COLUMN artifacts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE builds ADD COLUMN artifacts_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE builds ADD COLUMN artifacts_truncated INTEGER NOT NULL DEFAULT 0;
ALTER TABLE builds ADD COLUMN tests TEXT;
ALTER TABLE suites ADD COLUMN artifacts TEXT NOT NULL DEFAULT '';
ALTER TABLE suites ADD COLUMN reports TEXT NOT NULL DEFAULT '';
CREATE INDEX builds_artifacts ON builds (id, artifacts_bytes) WHERE artifacts > 0;
CREATE INDEX build_requests_branch ON build_requests (project_id, branch, id);

CREATE TABLE build_inputs (
  build_id INTEGER PRIMARY KEY NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
  digest TEXT NOT NULL,
  inputs TEXT NOT NULL
) STRICT;

CREATE TABLE build_artifacts (
  id INTEGER PRIMARY KEY NOT NULL,
  build_id INTEGER NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
  path TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  stored_bytes INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  method INTEGER NOT NULL,
  crc32 INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  report INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX build_artifacts_path ON build_artifacts (build_id, path);

CREATE TABLE tests (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  suite_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  key BLOB NOT NULL,
  classname TEXT NOT NULL,
  name TEXT NOT NULL,
  file TEXT,
  first_build_id INTEGER NOT NULL,
  seen_at INTEGER NOT NULL,
  flaky_at INTEGER,
  flaky_failed_build_id INTEGER,
  flaky_passed_build_id INTEGER,
  flaky_runs INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX tests_key ON tests (suite_id, key);
CREATE UNIQUE INDEX tests_number ON tests (suite_id, number);
CREATE INDEX tests_project ON tests (project_id, id);
CREATE INDEX tests_flaky ON tests (suite_id, flaky_at) WHERE flaky_at IS NOT NULL;
CREATE INDEX tests_flaky_project ON tests (project_id, flaky_at) WHERE flaky_at IS NOT NULL;

CREATE TABLE build_reports (
  build_id INTEGER PRIMARY KEY NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
  suite_id INTEGER NOT NULL,
  branch TEXT NOT NULL,
  base_build_id INTEGER,
  duration_ms INTEGER NOT NULL,
  malformed TEXT,
  results BLOB NOT NULL
) STRICT;
CREATE INDEX build_reports_suite ON build_reports (suite_id, build_id);
CREATE INDEX build_reports_branch ON build_reports (suite_id, branch, build_id);

CREATE TABLE test_failures (
  build_id INTEGER NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
  test_id INTEGER NOT NULL REFERENCES tests (id) ON DELETE CASCADE,
  result TEXT NOT NULL,
  change TEXT NOT NULL,
  duration_ms INTEGER,
  retries INTEGER NOT NULL,
  message TEXT NOT NULL,
  details TEXT NOT NULL,
  PRIMARY KEY (build_id, test_id)
) STRICT;
CREATE INDEX test_failures_test ON test_failures (test_id, build_id);

CREATE TABLE failure_lines (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  build_id INTEGER NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
  hash BLOB NOT NULL,
  line INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;
CREATE INDEX failure_lines_hash ON failure_lines (project_id, hash, build_id);
CREATE INDEX failure_lines_build ON failure_lines (build_id);
`;

const compilesOfDependencies = `
ALTER TABLE dependencies ADD COLUMN launch_seconds INTEGER NOT NULL DEFAULT 60;
ALTER TABLE dependencies ADD COLUMN environment TEXT NOT NULL DEFAULT '';
ALTER TABLE dependencies ADD COLUMN library_path INTEGER NOT NULL DEFAULT 1;
ALTER TABLE dependencies ADD COLUMN recompile INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dependencies ADD COLUMN related_artifacts TEXT;
ALTER TABLE dependencies ADD COLUMN compile_steps TEXT;
ALTER TABLE dependencies ADD COLUMN steps_begun TEXT;
ALTER TABLE dependencies ADD COLUMN forced INTEGER NOT NULL DEFAULT 0;
ALTER TABLE artifacts ADD COLUMN files INTEGER;

CREATE TABLE kept_versions (
  id INTEGER PRIMARY KEY NOT NULL,
  dependency_id INTEGER NOT NULL REFERENCES dependencies (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  prefix TEXT NOT NULL,
  artifact_hash TEXT NOT NULL REFERENCES artifacts (hash),
  launch_command TEXT NOT NULL,
  launch_seconds INTEGER NOT NULL,
  environment TEXT NOT NULL,
  library_path INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX kept_versions_dependency ON kept_versions (dependency_id);
CREATE INDEX kept_versions_artifact ON kept_versions (artifact_hash);
CREATE TABLE kept_relations (
  version_id INTEGER NOT NULL REFERENCES kept_versions (id) ON DELETE CASCADE,
  related_id INTEGER NOT NULL REFERENCES kept_versions (id) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  PRIMARY KEY (version_id, related_id)
) STRICT;
CREATE INDEX kept_relations_related ON kept_relations (related_id);
ALTER TABLE suite_dependencies ADD COLUMN kept_version_id INTEGER REFERENCES kept_versions (id);
ALTER TABLE related_dependencies ADD COLUMN kept_version_id INTEGER REFERENCES kept_versions (id);
ALTER TABLE related_dependencies ADD COLUMN compiled_position INTEGER;
ALTER TABLE related_dependencies ADD COLUMN removed INTEGER NOT NULL DEFAULT 0;
UPDATE related_dependencies SET compiled_position = position
WHERE dependency_id IN (SELECT id FROM dependencies WHERE artifact_hash IS NOT NULL);
CREATE INDEX suite_dependencies_kept ON suite_dependencies (kept_version_id) WHERE kept_version_id IS NOT NULL;
CREATE INDEX related_dependencies_kept ON related_dependencies (kept_version_id) WHERE kept_version_id IS NOT NULL;

CREATE TABLE trusted_appliances (
  fingerprint TEXT PRIMARY KEY NOT NULL,
  name TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
`;

const clientAndSnapshots = `
CREATE TABLE new_applications (
  id INTEGER PRIMARY KEY NOT NULL,
  owner_id INTEGER REFERENCES accounts (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  client_id TEXT NOT NULL UNIQUE,
  client_secret_digest BLOB,
  redirect_uri TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
INSERT INTO new_applications
SELECT id, owner_id, name, client_id, client_secret_digest, redirect_uri, created_at FROM applications;
DROP TABLE applications;
ALTER TABLE new_applications RENAME TO applications;
CREATE INDEX applications_owner ON applications (owner_id);
INSERT INTO applications (id, owner_id, name, client_id, client_secret_digest, redirect_uri, created_at)
VALUES (1, NULL, 'Assay on the command line', 'assay-cli', NULL, 'http://127.0.0.1/signed-in', 0);

CREATE TABLE snapshots (
  id INTEGER PRIMARY KEY NOT NULL,
  project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  ref TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX snapshots_project ON snapshots (project_id, id);
CREATE INDEX snapshots_account ON snapshots (account_id);
CREATE INDEX snapshots_created ON snapshots (created_at);
ALTER TABLE build_requests ADD COLUMN snapshot_id INTEGER;
ALTER TABLE build_requests ADD COLUMN suites TEXT;
ALTER TABLE commits ADD COLUMN local INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN local_variables INTEGER NOT NULL DEFAULT 0;
ALTER TABLE build_requests ADD COLUMN local INTEGER NOT NULL DEFAULT 0;
ALTER TABLE builds ADD COLUMN local INTEGER NOT NULL DEFAULT 0;
ALTER TABLE build_reports ADD COLUMN local INTEGER NOT NULL DEFAULT 0;
DROP INDEX commits_ref;
DROP INDEX commits_project;
DROP INDEX build_requests_branch;
DROP INDEX build_requests_waiting;
DROP INDEX build_requests_unfinished;
DROP INDEX builds_suite;
DROP INDEX build_reports_suite;
CREATE UNIQUE INDEX commits_ref ON commits (project_id, ref, local);
CREATE INDEX commits_project ON commits (project_id, local, id);
CREATE INDEX build_requests_local ON build_requests (project_id, local, id);
CREATE INDEX build_requests_branch ON build_requests (project_id, branch, local, id);
CREATE INDEX build_requests_waiting ON build_requests (local, project_id, id) WHERE build_state = 'enqueued';
CREATE INDEX build_requests_unfinished ON build_requests (project_id, local, id) WHERE build_state IN ('enqueued', 'fetching', 'building');
CREATE INDEX builds_suite ON builds (suite_id, local, id);
CREATE INDEX builds_passed ON builds (suite_id, id, started_at, finished_at) WHERE build_state = 'passed' AND local = 0;
CREATE INDEX build_reports_suite ON build_reports (suite_id, local, build_id);
`;

/** What the pages keep for each account: the theme, the time zone, where it is signed in, and links to the wall screen. When a delivery was sent again. */
const choicesOfAccounts = `
ALTER TABLE accounts ADD COLUMN theme TEXT NOT NULL DEFAULT 'system';
ALTER TABLE accounts ADD COLUMN time_zone TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN used_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN user_agent TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN address TEXT NOT NULL DEFAULT '';
UPDATE sessions SET used_at = created_at;
CREATE INDEX sessions_account ON sessions (account_id);
CREATE TABLE wall_links (
  id INTEGER PRIMARY KEY NOT NULL,
  account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  token_digest BLOB NOT NULL UNIQUE,
  created_at INTEGER NOT NULL,
  used_at INTEGER
) STRICT;
CREATE INDEX wall_links_account ON wall_links (account_id, id);
ALTER TABLE deliveries ADD COLUMN resent_at INTEGER;
ALTER TABLE builds ADD COLUMN steps TEXT;
`;

/** What pages read when there are very many builds: sums that are kept, and indexes that have all columns or the filter. */
const manyBuilds = `
CREATE TABLE artifact_sums (
  id INTEGER PRIMARY KEY NOT NULL,
  builds INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL
) STRICT;
INSERT INTO artifact_sums SELECT 1, count(*), coalesce(sum(artifacts_bytes), 0) FROM builds WHERE artifacts > 0;
CREATE TRIGGER artifacts_changed AFTER UPDATE OF artifacts, artifacts_bytes ON builds
WHEN old.artifacts > 0 OR new.artifacts > 0 BEGIN
  UPDATE artifact_sums SET builds = builds - (old.artifacts > 0) + (new.artifacts > 0),
    size_bytes = size_bytes - iif(old.artifacts > 0, old.artifacts_bytes, 0) + iif(new.artifacts > 0, new.artifacts_bytes, 0);
END;
CREATE TRIGGER artifacts_deleted AFTER DELETE ON builds WHEN old.artifacts > 0 BEGIN
  UPDATE artifact_sums SET builds = builds - 1, size_bytes = size_bytes - old.artifacts_bytes;
END;
DROP INDEX builds_commit;
CREATE INDEX builds_commit ON builds (commit_id, suite_id, id, build_state);
CREATE INDEX build_requests_state ON build_requests (project_id, build_state, id);
`;

/** Which node of a Swarm a build or a compile runs on. */
const nodes = `
ALTER TABLE builds ADD COLUMN node TEXT;
ALTER TABLE dependencies ADD COLUMN node TEXT;
`;

/** The largest caches are read by size. */
const sizesOfCaches = `
CREATE INDEX caches_size ON caches (size_bytes, suite_id);
`;

/** The SHA-256 of a large artifact is computed after the build has ended. */
const unhashedArtifacts = `
CREATE INDEX build_artifacts_unhashed ON build_artifacts (build_id) WHERE sha256 = '';
`;

/** Build requests of all projects that ended in a state, newest first. */
const endedRequests = `
CREATE INDEX build_requests_ended ON build_requests (build_state, id)
  WHERE build_state IN ('passed', 'failed', 'errored', 'canceled', 'skipped');
`;

/** The latest builds of each suite with their states and durations, from the index alone. */
const runsOfSuites = `
DROP INDEX builds_suite;
CREATE INDEX builds_suite ON builds (suite_id, local, id, build_state, started_at, finished_at);
`;

type Step = string | ((sqlite: Database.Database) => void);

export const steps: readonly Step[] = [
  contract,
  invitations,
  buildsOfRequest,
  bodiesOnce,
  uniqueKeys,
  packOldDecisions,
  deployCancel,
  cachesOfSuites,
  deletedMarks,
  submodulesOfProject,
  timeOfAttempts,
  triggersOfProject,
  commitStatuses,
  resultsOfBuilds,
  compilesOfDependencies,
  clientAndSnapshots,
  choicesOfAccounts,
  manyBuilds,
  nodes,
  sizesOfCaches,
  unhashedArtifacts,
  endedRequests,
  runsOfSuites,
];
