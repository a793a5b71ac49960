// The records of the API: the shape of each, for OpenAPI and tests, and the function that makes it from a row.

import {
  type BuildRequestState,
  type BuildState,
  buildMachine,
  buildRequestMachine,
  type CommitState,
  type ProjectState,
} from '../domain/build.ts';
import {
  type CompileState,
  compileMachine,
  type MarketplaceState,
  marketplaceState,
} from '../domain/dependency.ts';
import { type DeployState, deployMachine } from '../domain/deploy.ts';
import { type SubmoduleSetting, submoduleSettings } from '../domain/submodules.ts';
import { idPair, type JsonSchema, record, shape, wireId, wireTime, wireTimeOrNull } from './wire.ts';

const commitStates = ['waiting_for_builds', 'building', 'passed', 'failed', 'errored', 'canceled', 'skipped'];
const id = { id: shape.id(), id_str: shape.idString };
const idPairShape = (name: string, of: string): Record<string, JsonSchema> => ({
  [name]: shape.id(of),
  [`${name}_str`]: shape.idString,
});

export const identityShape = record('Identity', { email: shape.email('Of the authenticated user.') });
export const destroyedShape = record('Destroyed', { destroyed: shape.boolean('True.') });

export const projectShape = record(
  'Project',
  {
    ...id,
    name: shape.string('Human-friendly.'),
    description: shape.string('Arbitrary text.'),
    repository_url: shape.string('Where code is fetched from: `<user>@<host>:<path>.git`.'),
    build_state: shape.oneOf(['new', ...commitStates.slice(1)], 'Current state of the project.'),
    owned: shape.boolean('True when the requester owns the project, false when only collaborating.'),
    ssh_public_key: shape.string('To be installed in the repository.'),
    badge: shape.boolean('Shown when on: the badge can be seen without credentials.'),
    cancel_superseded: shape.boolean(
      'Shown when on: a new build request of a branch cancels older ones of it.',
    ),
    submodules: shape.oneOf(
      submoduleSettings.filter(setting => setting !== 'off'),
      'Shown when not off: whether submodules are fetched, and with `recursive` theirs, too.',
    ),
  },
  ['badge', 'cancel_superseded', 'submodules'],
);

export function presentProject(
  project: {
    id: bigint;
    name: string;
    description: string;
    repositoryUrl: string;
    buildState: ProjectState;
    badge: boolean;
    cancelSuperseded: boolean;
    submodules: SubmoduleSetting;
  },
  seen: { owned: boolean; sshPublicKey: string },
) {
  return {
    ...idPair('id', project.id),
    name: project.name,
    description: project.description,
    repository_url: project.repositoryUrl,
    build_state: project.buildState,
    owned: seen.owned,
    ssh_public_key: seen.sshPublicKey,
    ...(project.badge && { badge: true }),
    ...(project.cancelSuperseded && { cancel_superseded: true }),
    ...(project.submodules !== 'off' && { submodules: project.submodules }),
  };
}

export const collaboratorShape = record('Collaborator', {
  ...id,
  email: shape.email('Of the collaborator.'),
});
export const invitedCollaboratorShape = record(
  'InvitedCollaborator',
  {
    ...id,
    email: shape.email('Of the collaborator.'),
    sign_in_url: shape.string(
      'Shown once, while the account that the caller invited has no password: opens it and sets one.',
    ),
  },
  ['sign_in_url'],
);

export function presentCollaborator(collaborator: { id: bigint; email: string }) {
  return { ...idPair('id', collaborator.id), email: collaborator.email };
}

export const buildRequestShape = record(
  'BuildRequest',
  {
    ...id,
    build_state: shape.oneOf(Object.keys(buildRequestMachine), 'State of the request.'),
    commit_ref: shape.string('Reference of the commit in the SCM, as it was asked for.'),
    commit_id: shape.nullable(shape.id('Null while the commit is being fetched.')),
    commit_id_str: shape.string('The id as a decimal string; empty while commit_id is null.'),
    created_by: shape.email('Who asked for it.'),
    created_at: shape.time('When it was asked for.'),
    error: shape.string('Shown when the service could not do it: why, in words.'),
  },
  ['error'],
);

export type BuildRequestRow = {
  id: bigint;
  buildState: BuildRequestState;
  commitRef: string;
  commitId: bigint | null;
  createdBy: string;
  createdAt: number;
  error: string | null;
};

export function presentBuildRequest(request: BuildRequestRow) {
  return {
    ...idPair('id', request.id),
    build_state: request.buildState,
    commit_ref: request.commitRef,
    ...idPair('commit_id', request.commitId),
    created_by: request.createdBy,
    created_at: wireTime(request.createdAt),
    ...(request.error !== null && { error: request.error }),
  };
}

const commitItem = {
  ...id,
  version: shape.integer('Goes up by one when the commit is forcefully overwritten in the repository.'),
  ref: shape.string('The full hash.'),
  build_state: shape.oneOf(commitStates, 'State of its newest build request.'),
};
export const commitItemShape = record('CommitItem', commitItem);
export const commitShape = record('Commit', {
  ...commitItem,
  message: shape.string('Commit message.'),
  scm_author_name: shape.string('Author.'),
  scm_author_email: shape.email('Author.'),
  scm_authored_date: shape.time("With git's own offset."),
  scm_committer_name: shape.string('Committer.'),
  scm_committer_email: shape.email('Committer.'),
  scm_committed_date: shape.time("With git's own offset."),
});

export type CommitItemRow = { id: bigint; version: number; ref: string; buildState: CommitState };

export function presentCommitItem(commit: CommitItemRow) {
  return {
    ...idPair('id', commit.id),
    version: commit.version,
    ref: commit.ref,
    build_state: commit.buildState,
  };
}

export function presentCommit(
  commit: CommitItemRow & {
    message: string;
    authorName: string;
    authorEmail: string;
    authoredDate: string;
    committerName: string;
    committerEmail: string;
    committedDate: string;
  },
) {
  return {
    ...presentCommitItem(commit),
    message: commit.message,
    scm_author_name: commit.authorName,
    scm_author_email: commit.authorEmail,
    scm_authored_date: commit.authoredDate,
    scm_committer_name: commit.committerName,
    scm_committer_email: commit.committerEmail,
    scm_committed_date: commit.committedDate,
  };
}

const evaluatedRule = record('EvaluatedRule', {
  subject: shape.string('What was looked at.'),
  operator: shape.string('How it was compared.'),
  value: shape.string('What it was compared against.'),
  holds: shape.boolean('Whether the rule holds.'),
  saw: { type: ['string', 'array'], items: { type: 'string' }, description: 'What the rule saw.' },
});
export const suiteDecisionShape = record('SuiteDecision', {
  ...idPairShape('suite_id', 'The suite.'),
  suite: shape.string('Its name.'),
  ...idPairShape('build_request_id', 'The request for which it was decided.'),
  runs: shape.boolean('Whether the suite runs for this commit.'),
  rules: shape.list(evaluatedRule),
});

export function presentSuiteDecision(decision: {
  suiteId: bigint;
  suiteName: string;
  buildRequestId: bigint;
  runs: boolean;
  rules: readonly unknown[];
}) {
  return {
    ...idPair('suite_id', decision.suiteId),
    suite: decision.suiteName,
    ...idPair('build_request_id', decision.buildRequestId),
    runs: decision.runs,
    rules: decision.rules,
  };
}

export const buildShape = record(
  'Build',
  {
    ...id,
    ...idPairShape('suite_id', 'The suite that is run.'),
    ...idPairShape('commit_id', 'The commit that is tested.'),
    ...idPairShape('build_request_id', 'The request it belongs to.'),
    build_state: shape.oneOf(Object.keys(buildMachine), 'State of the build.'),
    exit_code: shape.nullable(
      shape.integer("The command's exit status; null unless the command ended by itself."),
    ),
    created_at: shape.time('When it was enqueued.'),
    started_at: shape.nullable(shape.time('When it began to run.')),
    finished_at: shape.nullable(shape.time('When it ended.')),
    error: shape.string('Shown when the service could not run it: why, in words.'),
    waiting: record('Waiting', {
      position: shape.integer('Its place in the queue, beginning with 1.'),
      reason: shape.string('Why it waits, in words.'),
    }),
  },
  ['error', 'waiting'],
);

export type BuildRow = {
  id: bigint;
  suiteId: bigint;
  commitId: bigint;
  buildRequestId: bigint;
  buildState: BuildState;
  exitCode: number | null;
  createdAt: number;
  startedAt: number | null;
  finishedAt: number | null;
  error: string | null;
};

export function presentBuild(build: BuildRow, waiting?: { position: number; reason: string }) {
  return {
    ...idPair('id', build.id),
    ...idPair('suite_id', build.suiteId),
    ...idPair('commit_id', build.commitId),
    ...idPair('build_request_id', build.buildRequestId),
    build_state: build.buildState,
    exit_code: build.exitCode,
    created_at: wireTime(build.createdAt),
    started_at: wireTimeOrNull(build.startedAt),
    finished_at: wireTimeOrNull(build.finishedAt),
    ...(build.error !== null && { error: build.error }),
    ...(waiting && { waiting }),
  };
}

export const suiteShape = record(
  'Suite',
  {
    ...id,
    name: shape.string('Human-friendly.'),
    description: shape.string('Arbitrary text.'),
    command: shape.string('Executed to start the tests.'),
    image: shape.string('Shown when set: the image it runs in instead of the default one.'),
  },
  ['image'],
);

export function presentSuite(suite: {
  id: bigint;
  name: string;
  description: string;
  command: string;
  image: string | null;
}) {
  return {
    ...idPair('id', suite.id),
    name: suite.name,
    description: suite.description,
    command: suite.command,
    ...(suite.image !== null && { image: suite.image }),
  };
}

export const ruleShape = record('SuiteRule', {
  ...id,
  subject: shape.string('What is tested: `commit.<attribute>`.'),
  operator: shape.string('Comparison.'),
  value: shape.string('Compared against.'),
});

export function presentRule(rule: { id: bigint; subject: string; operator: string; value: string }) {
  return { ...idPair('id', rule.id), subject: rule.subject, operator: rule.operator, value: rule.value };
}

export const variableShape = record('EnvironmentVariable', {
  ...id,
  name: shape.string('Variable name.'),
  content: shape.string('In clear form; stored encrypted.'),
});

export function presentVariable(variable: { id: bigint; name: string; content: string }) {
  return { ...idPair('id', variable.id), name: variable.name, content: variable.content };
}

// The API calls the string form of a dependency's id `id_ref` in some records and `id_str` in others.
const idRef = { id: shape.id(), id_ref: shape.idString };
const withRef = (dependency: { id: bigint }) => ({
  id: wireId(dependency.id),
  id_ref: dependency.id.toString(),
});

export const suiteDependencyShape = record('SuiteDependency', {
  ...idRef,
  name: shape.string('Of the dependency.'),
  prefix: shape.string('Where its compiled artifacts are.'),
  launch_command: shape.string('Starts it before the suite.'),
});

export function presentSuiteDependency(dependency: {
  id: bigint;
  name: string;
  prefix: string;
  launchCommand: string;
}) {
  return {
    ...withRef(dependency),
    name: dependency.name,
    prefix: dependency.prefix,
    launch_command: dependency.launchCommand,
  };
}

const instructions = {
  name: shape.string('Name.'),
  description: shape.string('Arbitrary text.'),
  command: shape.string('Compile command; uses the prefix.'),
  prefix: shape.string('Where compiled artifacts are looked up.'),
  source: shape.string('Directory inside the archive to enter before the command runs.'),
};
const launch = { launch_command: shape.string('Starts the dependency before the suite; empty for none.') };
const image = { image: shape.string('Shown when set: the image it is compiled in.') };
const marketplace = (states: readonly MarketplaceState[]) => ({
  marketplace_state: shape.oneOf(states, 'State of the dependency.'),
});
const shownStates: MarketplaceState[] = [...(Object.keys(compileMachine) as CompileState[]), 'shared'];

export const createdDependencyShape = record(
  'CreatedDependency',
  { ...idRef, ...instructions, ...launch, ...marketplace(['private']), ...image },
  ['image'],
);
export const uploadedDependencyShape = record(
  'UploadedDependency',
  {
    ...id,
    ...instructions,
    archive_file_size: shape.integer('Bytes of the archive.'),
    ...launch,
    ...marketplace(['enqueued_for_compile']),
    ...image,
  },
  ['image'],
);
const relatedDependency = record('RelatedDependency', {
  ...idRef,
  name: shape.string('Of the related dependency.'),
  prefix: shape.string('Where its compiled artifacts are.'),
});
export const dependencyShape = record(
  'Dependency',
  {
    ...id,
    ...instructions,
    archive_content_type: shape.nullable(shape.string('As detected; null before upload.')),
    archive_file_size: shape.nullable(shape.integer('Bytes of the archive; null before upload.')),
    ...launch,
    related_dependencies: shape.list(relatedDependency),
    ...marketplace(shownStates),
    ...image,
    error: shape.string('Shown when the last compile did not succeed: why, in words.'),
  },
  ['image', 'error'],
);

type Instructions = {
  id: bigint;
  name: string;
  description: string;
  command: string;
  prefix: string;
  source: string;
  launchCommand: string;
  image: string | null;
};

const presentInstructions = (dependency: Instructions) => ({
  name: dependency.name,
  description: dependency.description,
  command: dependency.command,
  prefix: dependency.prefix,
  source: dependency.source,
});
const presentImage = (of: { image: string | null }) => of.image !== null && { image: of.image };

export function presentCreatedDependency(dependency: Instructions) {
  return {
    ...withRef(dependency),
    ...presentInstructions(dependency),
    launch_command: dependency.launchCommand,
    marketplace_state: 'private',
    ...presentImage(dependency),
  };
}

export function presentUploadedDependency(dependency: Instructions & { archiveFileSize: number | null }) {
  return {
    ...idPair('id', dependency.id),
    ...presentInstructions(dependency),
    archive_file_size: dependency.archiveFileSize,
    launch_command: dependency.launchCommand,
    marketplace_state: 'enqueued_for_compile',
    ...presentImage(dependency),
  };
}

export function presentDependency(
  dependency: Instructions & {
    archiveContentType: string | null;
    archiveFileSize: number | null;
    compileState: CompileState;
    shared: boolean;
    error: string | null;
  },
  related: readonly { id: bigint; name: string; prefix: string }[],
) {
  return {
    ...idPair('id', dependency.id),
    ...presentInstructions(dependency),
    archive_content_type: dependency.archiveContentType,
    archive_file_size: dependency.archiveFileSize,
    launch_command: dependency.launchCommand,
    related_dependencies: related.map(one => ({ ...withRef(one), name: one.name, prefix: one.prefix })),
    marketplace_state: marketplaceState(dependency),
    ...presentImage(dependency),
    ...(dependency.error !== null && { error: dependency.error }),
  };
}

const strategyItem = {
  ...id,
  name: shape.string('Name.'),
  strategy_type: shape.oneOf(['git'], 'The only type.'),
};
export const strategyItemShape = record('DeployStrategyItem', strategyItem);
export const strategyShape = record('DeployStrategy', {
  ...strategyItem,
  options: record(
    'GitOptions',
    {
      repository_url: shape.string('Pushed to: `<user>@<host>:<path>.git`.'),
      local_branch: shape.string('Branch that is pushed.'),
      remote_branch: shape.string('Branch that is pushed to.'),
      automatic: shape.boolean('Shown when on: each commit of local_branch that passes is deployed.'),
    },
    ['automatic'],
  ),
});

export function presentStrategyItem(strategy: { id: bigint; name: string; strategyType: string }) {
  return { ...idPair('id', strategy.id), name: strategy.name, strategy_type: strategy.strategyType };
}

export function presentStrategy(strategy: {
  id: bigint;
  name: string;
  strategyType: string;
  repositoryUrl: string;
  localBranch: string;
  remoteBranch: string;
  automatic: boolean;
}) {
  return {
    ...presentStrategyItem(strategy),
    options: {
      repository_url: strategy.repositoryUrl,
      local_branch: strategy.localBranch,
      remote_branch: strategy.remoteBranch,
      ...(strategy.automatic && { automatic: true }),
    },
  };
}

const deployItem = {
  ...id,
  state: shape.oneOf(Object.keys(deployMachine), 'The deploy status.'),
  created_by: shape.email('Who asked for it.'),
};
export const deployItemShape = record('DeployItem', deployItem);
export const deployShape = record(
  'Deploy',
  {
    ...deployItem,
    ...idPairShape('deploy_strategy_id', 'The strategy used.'),
    ...idPairShape('commit_id', 'The commit to push.'),
    deploy_started_at: shape.nullable(shape.time('Null before start.')),
    deploy_finished_at: shape.nullable(shape.time('Null before finish.')),
    error: shape.string('Shown when it failed: why, in words.'),
  },
  ['error'],
);

export type DeployItemRow = { id: bigint; state: DeployState; createdBy: string };

export function presentDeployItem(deploy: DeployItemRow) {
  return { ...idPair('id', deploy.id), state: deploy.state, created_by: deploy.createdBy };
}

export function presentDeploy(
  deploy: DeployItemRow & {
    deployStrategyId: bigint;
    commitId: bigint;
    startedAt: number | null;
    finishedAt: number | null;
    error: string | null;
  },
) {
  return {
    ...presentDeployItem(deploy),
    ...idPair('deploy_strategy_id', deploy.deployStrategyId),
    ...idPair('commit_id', deploy.commitId),
    deploy_started_at: wireTimeOrNull(deploy.startedAt),
    deploy_finished_at: wireTimeOrNull(deploy.finishedAt),
    ...(deploy.error !== null && { error: deploy.error }),
  };
}

const notification = {
  ...id,
  name: shape.oneOf(['webhook'], 'Handler.'),
  options: record('WebhookOptions', { url: shape.string('Where the POST is sent.') }),
  notifiable_type: shape.oneOf(['build', 'dependency'], 'What it tells of.'),
};
const enabled = {
  enabled: shape.boolean('Shown when false: the receiver answered 410 and is no longer called.'),
};
export const notificationShape = record(
  'Notification',
  { ...notification, ...idPairShape('project_id', 'The project.'), ...enabled },
  ['enabled'],
);
export const createdNotificationShape = record('CreatedNotification', {
  ...notification,
  signing_secret: shape.string('Shown once: verifies signatures, as Standard Webhooks say.'),
});

type NotificationRow = { id: bigint; name: string; url: string; notifiableType: string };

const presentPlainNotification = (row: NotificationRow) => ({
  ...idPair('id', row.id),
  name: row.name,
  options: { url: row.url },
  notifiable_type: row.notifiableType,
});

export function presentNotification(row: NotificationRow & { projectId: bigint; enabled: boolean }) {
  return {
    ...presentPlainNotification(row),
    ...idPair('project_id', row.projectId),
    ...(!row.enabled && { enabled: false }),
  };
}

export function presentCreatedNotification(row: NotificationRow, signingSecret: string) {
  return { ...presentPlainNotification(row), signing_secret: signingSecret };
}

export const deliveryShape = record('Delivery', {
  ...id,
  event: shape.string('What it tells of.'),
  ...idPairShape('event_id', 'The event: its `webhook-id` at each try.'),
  state: shape.oneOf(['pending', 'delivered', 'failed'], 'State of the delivery.'),
  attempts: shape.integer('How often it was tried.'),
  response_status: shape.nullable(shape.integer('Of the last answer.')),
  response_ms: shape.nullable(shape.integer('How long the last answer took.')),
  response_excerpt: shape.nullable(
    shape.string("First 1 KiB of the last answer; null for everybody but the project's owner."),
  ),
  last_error: shape.nullable(shape.string('Why the last try did not succeed.')),
  next_attempt_at: shape.nullable(shape.time('When it is tried next; null when it is not.')),
  created_at: shape.time('When the event happened.'),
});

export type DeliveryRow = {
  id: bigint;
  eventType: string;
  eventId: bigint;
  state: string;
  attempts: number;
  responseStatus: number | null;
  responseMs: number | null;
  responseExcerpt: string | null;
  lastError: string | null;
  nextAttemptAt: number | null;
  createdAt: number;
};

/** Only the owner sees the response: a collaborator could use it to read pages of the server's network. */
export function presentDelivery(delivery: DeliveryRow, seenBy: 'owner' | 'collaborator') {
  return {
    ...idPair('id', delivery.id),
    event: delivery.eventType,
    ...idPair('event_id', delivery.eventId),
    state: delivery.state,
    attempts: delivery.attempts,
    response_status: delivery.responseStatus,
    response_ms: delivery.responseMs,
    response_excerpt: seenBy === 'owner' ? delivery.responseExcerpt : null,
    last_error: delivery.lastError,
    next_attempt_at: wireTimeOrNull(delivery.nextAttemptAt),
    created_at: wireTime(delivery.createdAt),
  };
}
