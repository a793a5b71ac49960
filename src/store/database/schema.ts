// All tables but those of dependencies (dependency-schema.ts) and results (result-schema.ts). The migrations must produce
// exactly these schemas (test/store/drift.test.ts).

import { sql } from 'drizzle-orm';
import {
  type AnySQLiteColumn,
  index,
  primaryKey,
  sqliteTable,
  text,
  uniqueIndex,
} from 'drizzle-orm/sqlite-core';
import type { AccountKind, Standing } from '../../domain/access.ts';
import type { BuildRequestState, BuildState, CommitState, ProjectState } from '../../domain/build.ts';
import type { StatusOptions, StatusReport } from '../../domain/commit-status.ts';
import type { DeployState } from '../../domain/deploy.ts';
import type { BuildSteps } from '../../domain/result/history.ts';
import type { TestCounts } from '../../domain/result/test-result.ts';
import type { SubmoduleSetting } from '../../domain/submodules.ts';
import type { Theme } from '../../domain/theme.ts';
import type {
  FiringOutcome,
  RequestTrigger,
  TriggerState,
  TriggerType,
} from '../../domain/trigger/trigger.ts';
import { bool, createdAt, digest, id, instant, int, int64, nameKey, packed, sealed } from './columns.ts';
import { finishedRequest, unfinished } from './unfinished.ts';

/** Named values of this data directory, such as the last assigned id, the instance and the default image. */
export const facts = sqliteTable('facts', {
  name: text('name').primaryKey(),
  value: text('value').notNull(),
});

export const accounts = sqliteTable(
  'accounts',
  {
    id: id(),
    email: text('email').notNull().unique(),
    kind: text('kind').$type<AccountKind>().notNull(),
    admin: bool('admin').notNull(),
    standing: text('standing').$type<Standing>().notNull(),
    trialEndsAt: instant('trial_ends_at'),
    passwordHash: text('password_hash'),
    apiKeyDigest: digest('api_key_digest'),
    createdAt: createdAt(),
    /** The account that may create sign-in links for it. Null once it has a password or was promoted. */
    invitedById: int64('invited_by_id').references((): AnySQLiteColumn => accounts.id, {
      onDelete: 'set null',
    }),
    theme: text('theme').$type<Theme>().notNull().default('system'),
    /** An IANA name. Empty for the one of the browser. */
    timeZone: text('time_zone').notNull().default(''),
  },
  table => [index('accounts_invited_by').on(table.invitedById)],
);

export const signInLinks = sqliteTable('sign_in_links', {
  tokenDigest: digest('token_digest').primaryKey(),
  accountId: int64('account_id')
    .notNull()
    .references(() => accounts.id, { onDelete: 'cascade' }),
  expiresAt: instant('expires_at').notNull(),
});

export const sessions = sqliteTable(
  'sessions',
  {
    tokenDigest: digest('token_digest').primaryKey(),
    accountId: int64('account_id')
      .notNull()
      .references(() => accounts.id, { onDelete: 'cascade' }),
    createdAt: createdAt(),
    expiresAt: instant('expires_at').notNull(),
    usedAt: instant('used_at').notNull().default(0),
    userAgent: text('user_agent').notNull().default(''),
    address: text('address').notNull().default(''),
  },
  table => [index('sessions_account').on(table.accountId)],
);

/** Links that show the wall screen of an account without a sign-in. */
export const wallLinks = sqliteTable(
  'wall_links',
  {
    id: id(),
    accountId: int64('account_id')
      .notNull()
      .references(() => accounts.id, { onDelete: 'cascade' }),
    name: text('name').notNull(),
    tokenDigest: digest('token_digest').notNull().unique(),
    createdAt: createdAt(),
    usedAt: instant('used_at'),
  },
  table => [index('wall_links_account').on(table.accountId, table.id)],
);

export const applications = sqliteTable(
  'applications',
  {
    id: id(),
    /** Null for the application that every appliance has: the client. */
    ownerId: int64('owner_id').references(() => accounts.id, { onDelete: 'cascade' }),
    name: text('name').notNull(),
    clientId: text('client_id').notNull().unique(),
    /** Null for a public application. */
    clientSecretDigest: digest('client_secret_digest'),
    redirectUri: text('redirect_uri').notNull(),
    createdAt: createdAt(),
  },
  table => [index('applications_owner').on(table.ownerId)],
);

export const tokens = sqliteTable(
  'tokens',
  {
    id: id(),
    tokenDigest: digest('token_digest').notNull().unique(),
    accountId: int64('account_id')
      .notNull()
      .references(() => accounts.id, { onDelete: 'cascade' }),
    applicationId: int64('application_id')
      .notNull()
      .references(() => applications.id, { onDelete: 'cascade' }),
    /** Separated by spaces. */
    scopes: text('scopes').notNull(),
    createdAt: createdAt(),
    lastUsedAt: instant('last_used_at'),
  },
  table => [index('tokens_account').on(table.accountId), index('tokens_application').on(table.applicationId)],
);

export const authorizationCodes = sqliteTable(
  'authorization_codes',
  {
    codeDigest: digest('code_digest').primaryKey(),
    applicationId: int64('application_id')
      .notNull()
      .references(() => applications.id, { onDelete: 'cascade' }),
    accountId: int64('account_id')
      .notNull()
      .references(() => accounts.id, { onDelete: 'cascade' }),
    redirectUri: text('redirect_uri').notNull(),
    scopes: text('scopes').notNull(),
    codeChallenge: text('code_challenge'),
    expiresAt: instant('expires_at').notNull(),
    /** The token it was exchanged for. Using the code again revokes that token. */
    tokenId: int64('token_id').references(() => tokens.id, { onDelete: 'set null' }),
    usedAt: instant('used_at'),
  },
  table => [
    index('authorization_codes_application').on(table.applicationId),
    index('authorization_codes_account').on(table.accountId),
    index('authorization_codes_token').on(table.tokenId),
  ],
);

export const projects = sqliteTable(
  'projects',
  {
    id: id(),
    ownerId: int64('owner_id')
      .notNull()
      .references(() => accounts.id),
    name: text('name').notNull(),
    nameKey: nameKey(),
    description: text('description').notNull(),
    repositoryUrl: text('repository_url').notNull(),
    buildState: text('build_state').$type<ProjectState>().notNull(),
    sshPublicKey: sealed('ssh_public_key').notNull(),
    sshPrivateKey: sealed('ssh_private_key').notNull(),
    badge: bool('badge').notNull(),
    cancelSuperseded: bool('cancel_superseded').notNull(),
    createdAt: createdAt(),
    /** Set when the project is deleted. It is invisible from then on, while its rows are purged. */
    deletedAt: instant('deleted_at'),
    submodules: text('submodules').$type<SubmoduleSetting>().notNull().default('off'),
    /** Whether local runs of collaborators get the variables of suites. Those of the owner always do. */
    localVariables: bool('local_variables').notNull().default(false),
  },
  table => [
    index('projects_deleted').on(table.id).where(sql`deleted_at IS NOT NULL`),
    uniqueIndex('projects_name').on(table.ownerId, table.nameKey),
    index('projects_owner').on(table.ownerId, table.id),
  ],
);

export const collaborators = sqliteTable(
  'collaborators',
  {
    id: id(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    accountId: int64('account_id')
      .notNull()
      .references(() => accounts.id, { onDelete: 'cascade' }),
  },
  table => [
    uniqueIndex('collaborators_pair').on(table.projectId, table.accountId),
    index('collaborators_account').on(table.accountId, table.projectId),
  ],
);

export const commits = sqliteTable(
  'commits',
  {
    id: id(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    version: int('version').notNull(),
    /** The full hash. */
    ref: text('ref').notNull(),
    buildState: text('build_state').$type<CommitState>().notNull(),
    message: text('message').notNull(),
    authorName: text('author_name').notNull(),
    authorEmail: text('author_email').notNull(),
    /** ISO 8601 with the offset of the git commit. */
    authoredDate: text('authored_date').notNull(),
    committerName: text('committer_name').notNull(),
    committerEmail: text('committer_email').notNull(),
    committedDate: text('committed_date').notNull(),
    /** JSON lists from the latest fetch, used by rules and badges. */
    branches: text('branches').notNull(),
    tags: text('tags').notNull(),
    files: text('files').notNull(),
    /** How many changed paths are not stored. Rules are evaluated on all paths when the commit is fetched. */
    filesOmitted: int('files_omitted'),
    /**
     * Whether it is somebody's working tree. Requests, builds and reports of local runs are marked too. A hash that is
     * also on a branch has another row, so that nothing of a local run mixes with the commits of the repository.
     */
    local: bool('local').notNull().default(false),
  },
  table => [
    uniqueIndex('commits_ref').on(table.projectId, table.ref, table.local),
    index('commits_project').on(table.projectId, table.local, table.id),
  ],
);

export const buildRequests = sqliteTable(
  'build_requests',
  {
    id: id(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    commitRef: text('commit_ref').notNull(),
    /** The branch that commit_ref names; empty for a tag or a hash. */
    branch: text('branch').notNull(),
    commitId: int64('commit_id').references(() => commits.id),
    buildState: text('build_state').$type<BuildRequestState>().notNull(),
    error: text('error'),
    createdBy: text('created_by').notNull(),
    createdAt: createdAt(),
    finishedAt: instant('finished_at'),
    /** The tag that commit_ref names; empty for a branch or a hash. */
    tag: text('tag').notNull().default(''),
    /** The hash to build if a trigger knows it. The fetch resolves it instead of commit_ref. */
    pinned: text('pinned'),
    /** What started it; null for the API and the pages. */
    trigger: text('trigger').$type<RequestTrigger>(),
    /** The trigger may have been deleted since. */
    triggerId: int64('trigger_id'),
    triggerName: text('trigger_name'),
    /** Who pushed, as the forge said. Not verified. */
    pushedBy: text('pushed_by'),
    /** The full ref that the pinned hash was seen at, such as refs/heads/main. */
    pinnedRef: text('pinned_ref'),
    /** The number of a pull request from a fork. */
    pullRequest: int('pull_request'),
    /** Whether builds get no variables of their suites, because the code is from a fork. */
    withoutVariables: bool('without_variables').notNull().default(false),
    /** The working tree to build. It may have been deleted since. */
    snapshotId: int64('snapshot_id'),
    /** JSON: the ids of the only suites to run, as strings. Null: those whose rules hold. */
    suites: text('suites'),
    local: bool('local').notNull().default(false),
  },
  table => [
    index('build_requests_project').on(table.projectId, table.id),
    index('build_requests_local').on(table.projectId, table.local, table.id),
    index('build_requests_commit').on(table.commitId, table.id),
    index('build_requests_branch').on(table.projectId, table.branch, table.local, table.id),
    index('build_requests_state').on(table.projectId, table.buildState, table.id),
    index('build_requests_waiting')
      .on(table.local, table.projectId, table.id)
      .where(sql`build_state = 'enqueued'`),
    index('build_requests_fetching').on(table.id).where(sql`build_state = 'fetching'`),
    index('build_requests_unfinished')
      .on(table.projectId, table.local, table.id)
      .where(sql.raw(unfinished.request)),
    index('build_requests_ended').on(table.buildState, table.id).where(sql.raw(finishedRequest)),
  ],
);

/** Working trees that users sent. Their commits are in repositories of their own in the data directory. */
export const snapshots = sqliteTable(
  'snapshots',
  {
    id: id(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    accountId: int64('account_id')
      .notNull()
      .references(() => accounts.id, { onDelete: 'cascade' }),
    /** The full hash of the commit. */
    ref: text('ref').notNull(),
    sizeBytes: int('size_bytes').notNull(),
    createdAt: createdAt(),
  },
  table => [
    index('snapshots_project').on(table.projectId, table.id),
    index('snapshots_account').on(table.accountId),
    index('snapshots_created').on(table.createdAt),
  ],
);

/** Which suites run for a request, and the results of their rules (decisions.ts). */
export const requestDecisions = sqliteTable(
  'request_decisions',
  {
    buildRequestId: int64('build_request_id')
      .primaryKey()
      .references(() => buildRequests.id, { onDelete: 'cascade' }),
    decisions: packed('decisions').notNull(),
    /** How many of the suites that run have a build; null once all have. */
    begun: int('begun'),
  },
  table => [index('request_decisions_begun').on(table.buildRequestId).where(sql`begun IS NOT NULL`)],
);

/** Canceled requests, until each of their builds up to the given one has been canceled or asked to stop. */
export const requestCancels = sqliteTable('request_cancels', {
  buildRequestId: int64('build_request_id')
    .primaryKey()
    .references(() => buildRequests.id, { onDelete: 'cascade' }),
  because: text('because').notNull(),
  upToBuildId: int64('up_to_build_id').notNull(),
});

/** Builds stay readable after their suite is deleted, so there is no foreign key and the suite's name is stored here. */
export const builds = sqliteTable(
  'builds',
  {
    id: id(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    buildRequestId: int64('build_request_id')
      .notNull()
      .references(() => buildRequests.id, { onDelete: 'cascade' }),
    commitId: int64('commit_id')
      .notNull()
      .references(() => commits.id),
    /** The hash that is built. A forced push may change the commit's own. */
    commitRef: text('commit_ref').notNull(),
    suiteId: int64('suite_id').notNull(),
    suiteName: text('suite_name').notNull(),
    buildState: text('build_state').$type<BuildState>().notNull(),
    exitCode: int('exit_code'),
    error: text('error'),
    /** How often it was started. A build that Docker loses is retried until it has had three attempts. */
    attempts: int('attempts').notNull(),
    /** The duration of earlier attempts. TIMEOUT covers all of them. */
    spentMs: int('spent_ms').notNull().default(0),
    /** Authenticates the service's records in the container's output. Set while the build runs. */
    nonce: text('nonce'),
    /** Set when the build is canceled: by whom or why, as the end of a sentence. */
    cancelBecause: text('cancel_because'),
    createdAt: createdAt(),
    startedAt: instant('started_at'),
    finishedAt: instant('finished_at'),
    /** Whether its artifacts stay after ARTIFACT_DAYS. */
    keep: bool('keep').notNull().default(false),
    /** How many artifacts it has, and their size. */
    artifacts: int('artifacts').notNull().default(0),
    artifactsBytes: int('artifacts_bytes').notNull().default(0),
    /** Whether files were left out because of a limit. */
    artifactsTruncated: bool('artifacts_truncated').notNull().default(false),
    /** Null if it has no test report. */
    tests: text('tests', { mode: 'json' }).$type<TestCounts>(),
    local: bool('local').notNull().default(false),
    /** How long its steps took. Null if it has not ended, or if another server started it. */
    steps: text('steps', { mode: 'json' }).$type<BuildSteps>(),
    /** The name of the node that it runs on or ran on last. Null with a single host. */
    node: text('node'),
  },
  table => [
    index('builds_project').on(table.projectId, table.id),
    index('builds_commit').on(table.commitId, table.suiteId, table.id, table.buildState),
    index('builds_request').on(table.buildRequestId, table.suiteId, table.id),
    index('builds_request_unfinished').on(table.buildRequestId, table.id).where(sql.raw(unfinished.build)),
    index('builds_suite').on(
      table.suiteId,
      table.local,
      table.id,
      table.buildState,
      table.startedAt,
      table.finishedAt,
    ),
    index('builds_passed')
      .on(table.suiteId, table.id, table.startedAt, table.finishedAt)
      .where(sql`build_state = 'passed' AND local = 0`),
    index('builds_waiting').on(table.projectId, table.id).where(sql`build_state = 'enqueued'`),
    index('builds_running').on(table.id).where(sql`build_state = 'running'`),
    index('builds_unfinished').on(table.projectId, table.id).where(sql.raw(unfinished.build)),
    index('builds_finished').on(table.finishedAt).where(sql`finished_at IS NOT NULL`),
    index('builds_artifacts').on(table.id, table.artifactsBytes).where(sql`artifacts > 0`),
  ],
);

export const suites = sqliteTable(
  'suites',
  {
    id: id(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    name: text('name').notNull(),
    nameKey: nameKey(),
    description: text('description').notNull(),
    command: text('command').notNull(),
    image: text('image'),
    /** Globs of files to keep, one a line, relative to the checkout. */
    artifacts: text('artifacts').notNull().default(''),
    /** Globs of test reports. */
    reports: text('reports').notNull().default(''),
  },
  table => [
    uniqueIndex('suites_name').on(table.projectId, table.nameKey),
    index('suites_project').on(table.projectId, table.id),
  ],
);

/** The caches that suites keep between builds. */
export const caches = sqliteTable(
  'caches',
  {
    suiteId: int64('suite_id')
      .primaryKey()
      .references(() => suites.id, { onDelete: 'cascade' }),
    /** Increased when the cache is emptied. Each generation has a separate volume. */
    generation: int('generation').notNull(),
    /** Null until it is measured, and if it has too many files to count. */
    sizeBytes: int('size_bytes'),
    measuredAt: instant('measured_at'),
    /** When a build of the suite last started or ended. */
    usedAt: instant('used_at').notNull(),
    emptiedAt: instant('emptied_at'),
    /** By whom or why, as the end of a sentence. */
    emptiedBecause: text('emptied_because'),
  },
  table => [index('caches_size').on(table.sizeBytes, table.suiteId)],
);

export const suiteRules = sqliteTable(
  'suite_rules',
  {
    id: id(),
    suiteId: int64('suite_id')
      .notNull()
      .references(() => suites.id, { onDelete: 'cascade' }),
    subject: text('subject').notNull(),
    operator: text('operator').notNull(),
    value: text('value').notNull(),
  },
  table => [index('suite_rules_suite').on(table.suiteId, table.id)],
);

export const environmentVariables = sqliteTable(
  'environment_variables',
  {
    id: id(),
    suiteId: int64('suite_id')
      .notNull()
      .references(() => suites.id, { onDelete: 'cascade' }),
    name: text('name').notNull(),
    content: sealed('content').notNull(),
  },
  table => [
    uniqueIndex('environment_variables_name').on(table.suiteId, table.name),
    index('environment_variables_suite').on(table.suiteId, table.id),
  ],
);

export const deployStrategies = sqliteTable(
  'deploy_strategies',
  {
    id: id(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    name: text('name').notNull(),
    nameKey: nameKey(),
    strategyType: text('strategy_type').notNull(),
    repositoryUrl: text('repository_url').notNull(),
    localBranch: text('local_branch').notNull(),
    remoteBranch: text('remote_branch').notNull(),
    automatic: bool('automatic').notNull(),
  },
  table => [
    uniqueIndex('deploy_strategies_name').on(table.projectId, table.nameKey),
    index('deploy_strategies_project').on(table.projectId, table.id),
  ],
);

/** A deploy copies its strategy, which may be changed or deleted later. */
export const deploys = sqliteTable(
  'deploys',
  {
    id: id(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    deployStrategyId: int64('deploy_strategy_id').notNull(),
    strategyName: text('strategy_name').notNull(),
    repositoryUrl: text('repository_url').notNull(),
    localBranch: text('local_branch').notNull(),
    remoteBranch: text('remote_branch').notNull(),
    commitId: int64('commit_id')
      .notNull()
      .references(() => commits.id),
    commitRef: text('commit_ref').notNull(),
    state: text('state').$type<DeployState>().notNull(),
    error: text('error'),
    createdBy: text('created_by').notNull(),
    createdAt: createdAt(),
    startedAt: instant('deploy_started_at'),
    finishedAt: instant('deploy_finished_at'),
    cancelBecause: text('cancel_because'),
  },
  table => [
    index('deploys_project').on(table.projectId, table.id),
    index('deploys_strategy').on(table.deployStrategyId, table.commitRef),
    index('deploys_commit').on(table.commitId),
    index('deploys_unfinished').on(table.projectId, table.id).where(sql.raw(unfinished.deploy)),
  ],
);

export const notifications = sqliteTable(
  'notifications',
  {
    id: id(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    name: text('name').notNull(),
    notifiableType: text('notifiable_type').$type<'build' | 'dependency'>().notNull(),
    url: text('url').notNull(),
    /** The signing secret of a webhook; the token of commit statuses. */
    signingSecret: sealed('signing_secret').notNull(),
    enabled: bool('enabled').notNull(),
    /** Set when it is deleted. Nothing is sent from then on, while its deliveries are purged. */
    deletedAt: instant('deleted_at'),
    /** How commit statuses are sent; null for a webhook. `url` is the base of the forge's API. */
    statusOptions: text('status_options', { mode: 'json' }).$type<StatusOptions>(),
    /** Why Assay disabled it. */
    disabledBecause: text('disabled_because'),
  },
  table => [
    index('notifications_project').on(table.projectId, table.id),
    index('notifications_deleted').on(table.id).where(sql`deleted_at IS NOT NULL`),
  ],
);

/**
 * Events in order, one row for each project they concern. `body` is exactly what webhooks and streams send, except that
 * the project's SSH key is added when it is sent.
 */
export const events = sqliteTable(
  'events',
  {
    id: id(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    type: text('type').notNull(),
    resourceId: int64('resource_id').notNull(),
    body: text('body').notNull(),
    createdAt: createdAt(),
  },
  table => [index('events_project').on(table.projectId, table.id)],
);

/**
 * The outbox: one row for each event and receiver. A delivery sends the body of its event. A commit status has one row for
 * each context that the event changes, and `resource_id` is the number of the context.
 */
export const deliveries = sqliteTable(
  'deliveries',
  {
    id: id(),
    notificationId: int64('notification_id')
      .notNull()
      .references(() => notifications.id, { onDelete: 'cascade' }),
    eventId: int64('event_id').notNull(),
    eventType: text('event_type').notNull(),
    resourceId: int64('resource_id').notNull(),
    state: text('state').$type<'pending' | 'delivered' | 'failed' | 'superseded'>().notNull(),
    attempts: int('attempts').notNull(),
    responseStatus: int('response_status'),
    responseMs: int('response_ms'),
    responseExcerpt: text('response_excerpt'),
    lastError: text('last_error'),
    nextAttemptAt: instant('next_attempt_at'),
    createdAt: createdAt(),
    /** Null for a webhook. */
    status: text('status', { mode: 'json' }).$type<StatusReport>(),
    /** When somebody last sent it again by hand. */
    resentAt: instant('resent_at'),
  },
  table => [
    index('deliveries_notification').on(table.notificationId, table.id),
    index('deliveries_event').on(table.eventId),
    index('deliveries_pending')
      .on(table.notificationId, table.resourceId, table.id)
      .where(sql`state = 'pending'`),
    index('deliveries_due').on(table.notificationId, table.nextAttemptAt).where(sql`state = 'pending'`),
    index('deliveries_status')
      .on(table.notificationId, table.resourceId, table.id)
      .where(sql`status IS NOT NULL`),
  ],
);

export const triggers = sqliteTable(
  'triggers',
  {
    id: id(),
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    name: text('name').notNull(),
    nameKey: nameKey(),
    triggerType: text('trigger_type').$type<TriggerType>().notNull(),
    enabled: bool('enabled').notNull(),
    state: text('state').$type<TriggerState>().notNull(),
    /** Why the last look failed. Null after one that succeeded. */
    error: text('error'),
    /** JSON of TriggerOptions, as the API shows it. */
    options: text('options').notNull(),
    /** Verifies hooks of a push trigger. A replaced secret is accepted until it expires. */
    secret: sealed('secret'),
    oldSecret: sealed('old_secret'),
    oldSecretExpiresAt: instant('old_secret_expires_at'),
    /** When the next look or firing is due. Null if there is none. */
    nextAt: instant('next_at'),
    /** How many looks failed in a row. */
    failures: int('failures').notNull(),
    firedAt: instant('fired_at'),
    /** Hooks without a valid signature. */
    refusedCount: int('refused_count').notNull(),
    refusedAt: instant('refused_at'),
    createdBy: text('created_by').notNull(),
    createdAt: createdAt(),
    /** Set when it is deleted. It is invisible from then on, while its firings are purged. */
    deletedAt: instant('deleted_at'),
  },
  table => [
    index('triggers_deleted').on(table.id).where(sql`deleted_at IS NOT NULL`),
    uniqueIndex('triggers_name').on(table.projectId, table.nameKey),
    index('triggers_project').on(table.projectId, table.id),
    index('triggers_due').on(table.nextAt).where(sql`enabled = 1 AND next_at IS NOT NULL`),
  ],
);

/** The history of a trigger: one row for each ref of a hook or a look, and for each planned time. */
export const firings = sqliteTable(
  'firings',
  {
    id: id(),
    triggerId: int64('trigger_id')
      .notNull()
      .references(() => triggers.id, { onDelete: 'cascade' }),
    event: text('event').notNull(),
    /** The id that the forge gave to the delivery. */
    delivery: text('delivery'),
    ref: text('ref'),
    before: text('before'),
    after: text('after'),
    pushedBy: text('pushed_by'),
    outcome: text('outcome').$type<FiringOutcome>().notNull(),
    /** An IgnoredReason, or the error of a failed firing. */
    reason: text('reason'),
    buildRequestId: int64('build_request_id'),
    plannedAt: instant('planned_at'),
    createdAt: createdAt(),
  },
  table => [
    index('firings_trigger').on(table.triggerId, table.id),
    index('firings_looking').on(table.triggerId, table.id).where(sql`outcome = 'looking'`),
  ],
);

/** The last known hash of each branch and tag. Hooks and looks compare with it. */
export const seenRefs = sqliteTable(
  'seen_refs',
  {
    projectId: int64('project_id')
      .notNull()
      .references(() => projects.id, { onDelete: 'cascade' }),
    ref: text('ref').notNull(),
    hash: text('hash').notNull(),
  },
  table => [primaryKey({ columns: [table.projectId, table.ref] })],
);

/** The last complete look at a project's repository. */
export const repositoryLooks = sqliteTable('repository_looks', {
  projectId: int64('project_id')
    .primaryKey()
    .references(() => projects.id, { onDelete: 'cascade' }),
  /** A look at another URL is a first look again. */
  repositoryUrl: text('repository_url').notNull(),
  /** Of all refs. If it is equal, nothing has changed. */
  refsDigest: text('refs_digest').notNull(),
  defaultBranch: text('default_branch'),
  lookedAt: instant('looked_at').notNull(),
});

/** Imported images, by the name that suites and dependencies use. */
export const images = sqliteTable('images', {
  name: text('name').primaryKey(),
  imageId: text('image_id').notNull(),
  createdAt: createdAt(),
});
