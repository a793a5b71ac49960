// The records of the API: the schema of each, for OpenAPI and tests, and the function that creates it from a row.

import {
  type BuildRequestState,
  type BuildState,
  buildMachine,
  buildRequestMachine,
  type CommitState,
  type ProjectState,
} from '../domain/build.ts';
import {
  contextChoices,
  forges,
  type StatusOptions,
  type StatusReport,
  statusStates,
} from '../domain/commit-status.ts';
import {
  type CompileState,
  compileMachine,
  type MarketplaceState,
  marketplaceState,
} from '../domain/dependency.ts';
import { type DeployState, deployMachine } from '../domain/deploy.ts';
import { type SubmoduleSetting, submoduleSettings } from '../domain/submodules.ts';
import {
  type FiringOutcome,
  firingOutcomes,
  type TriggerState,
  type TriggerType,
  triggerStates,
  triggerTypes,
} from '../domain/trigger/trigger.ts';
import { idPair, type JsonSchema, record, shape, wireId, wireTime, wireTimeOrNull } from './wire.ts';

/** The types of notifications. */
export const notificationNames = ['webhook', 'commit_status'] as const;

const commitStates = ['waiting_for_builds', 'building', 'passed', 'failed', 'errored', 'canceled', 'skipped'];
const id = { id: shape.id(), id_str: shape.idString };
const idPairShape = (name: string, description: string): Record<string, JsonSchema> => ({
  [name]: shape.id(description),
  [`${name}_str`]: shape.idString,
});

export const identityShape = record('Identity', { email: shape.email('Email of the authenticated user.') });
export const destroyedShape = record('Destroyed', { destroyed: shape.boolean('Always true.') });

export const projectShape = record(
  'Project',
  {
    ...id,
    name: shape.string('Display name.'),
    description: shape.string('Arbitrary text.'),
    repository_url: shape.string('Where code is fetched from: `<user>@<host>:<path>.git`.'),
    build_state: shape.oneOf(['new', ...commitStates.slice(1)], 'Current state of the project.'),
    owned: shape.boolean('Whether the caller owns the project. False for a collaborator.'),
    ssh_public_key: shape.string('The public key to install in the repository.'),
    badge: shape.boolean('Present when true: the badge is visible without credentials.'),
    cancel_superseded: shape.boolean(
      'Present when true: a new build request for a branch cancels older ones for the same branch.',
    ),
    submodules: shape.oneOf(
      submoduleSettings.filter(setting => setting !== 'off'),
      'Present unless off: submodules are fetched, and with `recursive` also theirs.',
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
  email: shape.email('Email of the collaborator.'),
});
export const invitedCollaboratorShape = record(
  'InvitedCollaborator',
  {
    ...id,
    email: shape.email('Email of the collaborator.'),
    sign_in_url: shape.string(
      'Present once, while the account that the caller invited has no password. The link signs in and sets a password.',
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
    commit_ref: shape.string('The requested branch, tag or commit hash.'),
    commit_id: shape.nullable(shape.id('Null while the commit is being fetched.')),
    commit_id_str: shape.string('The id as a decimal string; empty while commit_id is null.'),
    created_by: shape.email('Who requested it.'),
    created_at: shape.time('When it was requested.'),
    error: shape.string('Present when the request errored or was skipped for a reason: the reason.'),
    trigger: shape.oneOf(triggerTypes, 'Present when a trigger started it: its type.'),
    ...idPairShape('trigger_id', 'Present when a trigger started it.'),
    pushed_by: shape.string('Present when the forge said who pushed. Not verified.'),
    pull_request: shape.integer('Present for a pull request from a fork: its number.'),
  },
  ['error', 'trigger', 'trigger_id', 'trigger_id_str', 'pushed_by', 'pull_request'],
);

type BuildRequestRow = {
  id: bigint;
  buildState: BuildRequestState;
  commitRef: string;
  commitId: bigint | null;
  createdBy: string;
  createdAt: number;
  error: string | null;
  trigger: TriggerType | null;
  triggerId: bigint | null;
  pushedBy: string | null;
  pullRequest: number | null;
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
    ...(request.trigger !== null && {
      trigger: request.trigger,
      ...idPair('trigger_id', request.triggerId),
    }),
    ...(request.pushedBy !== null && { pushed_by: request.pushedBy }),
    ...(request.pullRequest !== null && { pull_request: request.pullRequest }),
  };
}

const commitItem = {
  ...id,
  version: shape.integer('Increases by one when a force push overwrites the commit.'),
  ref: shape.string('The full hash.'),
  build_state: shape.oneOf(commitStates, 'State of its newest build request.'),
};
export const commitItemShape = record('CommitItem', commitItem);
export const commitShape = record('Commit', {
  ...commitItem,
  message: shape.string('Commit message.'),
  scm_author_name: shape.string('Author.'),
  scm_author_email: shape.email('Author.'),
  scm_authored_date: shape.time('With the UTC offset that git recorded.'),
  scm_committer_name: shape.string('Committer.'),
  scm_committer_email: shape.email('Committer.'),
  scm_committed_date: shape.time('With the UTC offset that git recorded.'),
});

type CommitItemRow = { id: bigint; version: number; ref: string; buildState: CommitState };

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
  subject: shape.string('The attribute that was compared.'),
  operator: shape.string('How it was compared.'),
  value: shape.string('What it was compared with.'),
  holds: shape.boolean('Whether the rule holds.'),
  saw: { type: ['string', 'array'], items: { type: 'string' }, description: 'The value of the attribute.' },
});
export const suiteDecisionShape = record('SuiteDecision', {
  ...idPairShape('suite_id', 'The suite.'),
  suite: shape.string('Its name.'),
  ...idPairShape('build_request_id', 'The build request.'),
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
    ...idPairShape('suite_id', 'The suite.'),
    ...idPairShape('commit_id', 'The commit.'),
    ...idPairShape('build_request_id', 'The build request.'),
    build_state: shape.oneOf(Object.keys(buildMachine), 'State of the build.'),
    exit_code: shape.nullable(
      shape.integer("The command's exit status; null unless the command exited by itself."),
    ),
    created_at: shape.time('When it was queued.'),
    started_at: shape.nullable(shape.time('When it started.')),
    finished_at: shape.nullable(shape.time('When it ended.')),
    error: shape.string('Present when the build errored: the reason.'),
    waiting: record('Waiting', {
      position: shape.integer('Position in the queue, starting at 1.'),
      reason: shape.string('Why the build waits.'),
    }),
  },
  ['error', 'waiting'],
);

type BuildRow = {
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
    name: shape.string('Display name.'),
    description: shape.string('Arbitrary text.'),
    command: shape.string('Runs the tests.'),
    image: shape.string('Present when set: the image that the suite runs in instead of the default one.'),
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
  subject: shape.string('What is compared: `commit.<attribute>`.'),
  operator: shape.string('How it is compared.'),
  value: shape.string('What it is compared with.'),
});

export function presentRule(rule: { id: bigint; subject: string; operator: string; value: string }) {
  return { ...idPair('id', rule.id), subject: rule.subject, operator: rule.operator, value: rule.value };
}

export const variableShape = record('EnvironmentVariable', {
  ...id,
  name: shape.string('Variable name.'),
  content: shape.string('The value, decrypted. Stored encrypted.'),
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
  name: shape.string('Name of the dependency.'),
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
  command: shape.string('Compile command; contains the prefix.'),
  prefix: shape.string('Where compiled artifacts are looked up.'),
  source: shape.string('Directory inside the archive to enter before the command runs.'),
};
const launch = { launch_command: shape.string('Starts the dependency before the suite; empty for none.') };
const image = { image: shape.string('Present when set: the image that it is compiled in.') };
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
  name: shape.string('Name of the related dependency.'),
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
    error: shape.string('Present when the last compile did not succeed: the reason.'),
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
const presentImage = ({ image }: { image: string | null }) => image !== null && { image };

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
      repository_url: shape.string('Where to push: `<user>@<host>:<path>.git`.'),
      local_branch: shape.string('Branch to push.'),
      remote_branch: shape.string('Branch to push to.'),
      automatic: shape.boolean('Present when true: each commit of local_branch that passes is deployed.'),
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
  state: shape.oneOf(Object.keys(deployMachine), 'State of the deploy.'),
  created_by: shape.email('Who requested it.'),
};
export const deployItemShape = record('DeployItem', deployItem);
export const deployShape = record(
  'Deploy',
  {
    ...deployItem,
    ...idPairShape('deploy_strategy_id', 'The strategy used.'),
    ...idPairShape('commit_id', 'The commit that is pushed.'),
    deploy_started_at: shape.nullable(shape.time('Null before it starts.')),
    deploy_finished_at: shape.nullable(shape.time('Null before it ends.')),
    error: shape.string('Present when it failed: the reason.'),
  },
  ['error'],
);

type DeployItemRow = { id: bigint; state: DeployState; createdBy: string };

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
  name: shape.oneOf(notificationNames, 'The type of notification.'),
  options: record(
    'NotificationOptions',
    {
      url: shape.string("Where the POST is sent; for commit statuses the base of the forge's API."),
      forge: shape.oneOf(forges, 'Only for commit statuses.'),
      repository: shape.string('Only for commit statuses: the repository, as the forge names it.'),
      contexts: shape.oneOf(contextChoices, 'Only for commit statuses: which contexts are reported.'),
      token_set: shape.boolean('Only for commit statuses, always true: the token is never shown.'),
    },
    ['forge', 'repository', 'contexts', 'token_set'],
  ),
  notifiable_type: shape.oneOf(['build', 'dependency'], 'What it reports.'),
};
export const notificationShape = record(
  'Notification',
  {
    ...notification,
    ...idPairShape('project_id', 'The project.'),
    enabled: shape.boolean('Present when false: a response disabled it, and nothing is sent.'),
    error: shape.string('Present when it is disabled: the reason.'),
  },
  ['enabled', 'error'],
);
export const createdNotificationShape = record(
  'CreatedNotification',
  {
    ...notification,
    signing_secret: shape.string(
      'Only for a webhook, present once: verifies signatures as defined by Standard Webhooks.',
    ),
  },
  ['signing_secret'],
);

type NotificationRow = {
  id: bigint;
  name: string;
  url: string;
  notifiableType: string;
  statusOptions: StatusOptions | null;
};

const presentPlainNotification = (row: NotificationRow) => ({
  ...idPair('id', row.id),
  name: row.name,
  options: { url: row.url, ...(row.statusOptions && { ...row.statusOptions, token_set: true }) },
  notifiable_type: row.notifiableType,
});

export function presentNotification(
  row: NotificationRow & { projectId: bigint; enabled: boolean; disabledBecause: string | null },
) {
  return {
    ...presentPlainNotification(row),
    ...idPair('project_id', row.projectId),
    ...(!row.enabled && { enabled: false, error: row.disabledBecause ?? 'the receiver responded with 410' }),
  };
}

export function presentCreatedNotification(row: NotificationRow, signingSecret: string) {
  return {
    ...presentPlainNotification(row),
    ...(!row.statusOptions && { signing_secret: signingSecret }),
  };
}

export const deliveryShape = record(
  'Delivery',
  {
    ...id,
    event: shape.string('Type of the event.'),
    ...idPairShape('event_id', 'The event; its id is the `webhook-id` of every attempt.'),
    state: shape.oneOf(
      ['pending', 'delivered', 'failed', 'superseded'],
      'State of the delivery. A commit status is superseded if a newer one of its context replaced it before it was sent.',
    ),
    attempts: shape.integer('Number of attempts.'),
    response_status: shape.nullable(shape.integer('Status of the last response.')),
    response_ms: shape.nullable(shape.integer('Duration of the last response, in milliseconds.')),
    response_excerpt: shape.nullable(
      shape.string("First 1 KiB of the last response; null unless the caller is the project's owner."),
    ),
    last_error: shape.nullable(shape.string('Why the last attempt failed.')),
    next_attempt_at: shape.nullable(shape.time('When the next attempt is due; null if there is none.')),
    created_at: shape.time('When the event happened.'),
    commit_status: record('CommitStatus', {
      context: shape.string('The context: `assay` for the whole request, `assay/<suite>` for a suite.'),
      commit_ref: shape.string('The full hash.'),
      state: shape.oneOf(statusStates, 'The reported state; forges have their own names for it.'),
    }),
  },
  ['commit_status'],
);

type DeliveryRow = {
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
  status: StatusReport | null;
};

/** Only the owner sees the response: a collaborator could use it to read pages in the server's network. */
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
    ...(delivery.status && {
      commit_status: {
        context: delivery.status.context,
        commit_ref: delivery.status.commit,
        state: delivery.status.state,
      },
    }),
  };
}

const filters = {
  branches: shape.string('Globs, separated by spaces: the branches that are built.'),
  tags: shape.string('Globs, separated by spaces: the tags that are built. Empty for none.'),
};
const triggerOptions = {
  anyOf: [
    record('PushOptions', {
      ...filters,
      pull_requests: shape.boolean('Whether pull requests from forks are built.'),
      pull_request_variables: shape.boolean("Whether builds of forks get the suite's variables."),
      reconcile: shape.integer('Seconds between looks that find pushes without a hook; 0 for none.'),
    }),
    record('PollOptions', {
      ...filters,
      interval: shape.integer('Seconds between two looks at the repository.'),
      build_first: shape.boolean('Whether the first look builds the default branch.'),
    }),
    record('ScheduleOptions', {
      cron: shape.string('Five fields of cron, or a word such as @daily.'),
      time_zone: shape.string('An IANA time zone.'),
      branch: shape.string('The branch that is built.'),
      only_new: shape.boolean('Whether it builds only a commit that it has not built.'),
      late: shape.integer('Up to how many minutes late a missed time is made up for.'),
    }),
  ],
};
const trigger = {
  ...id,
  name: shape.string('Name.'),
  trigger_type: shape.oneOf(
    triggerTypes,
    'What starts builds: a hook, a look at the repository, or the time.',
  ),
  enabled: shape.boolean('Whether it starts builds.'),
  state: shape.oneOf(triggerStates, 'Whether it works. A new one has not been used.'),
  error: shape.nullable(shape.string('Why the last look at the repository failed.')),
  options: triggerOptions,
  next_at: shape.nullable(shape.time('When the next look or build is due.')),
  late: shape.boolean('Present when true: the next look is overdue, because many repositories are polled.'),
  upcoming: shape.list(shape.time('The next five times. Present for a schedule.')),
  fired_at: shape.nullable(shape.time('When it last fired.')),
  refused_count: shape.integer('How many hooks had no valid signature.'),
  refused_at: shape.nullable(shape.time('When the last of them arrived.')),
  created_by: shape.email('Who created it. Builds are requested in this name.'),
  created_at: shape.time('When it was created.'),
};
const whenKnown = ['late', 'upcoming'];
export const triggerShape = record('Trigger', trigger, whenKnown);
export const triggerWithSecretShape = record(
  'TriggerWithSecret',
  {
    ...trigger,
    url: shape.string('Present for a push trigger: where the forge sends its hooks.'),
    secret: shape.string('Present once, for a push trigger: the secret or token to enter in the forge.'),
  },
  [...whenKnown, 'url', 'secret'],
);

type TriggerRow = {
  id: bigint;
  name: string;
  triggerType: TriggerType;
  enabled: boolean;
  state: TriggerState;
  error: string | null;
  options: string;
  nextAt: number | null;
  firedAt: number | null;
  refusedCount: number;
  refusedAt: number | null;
  createdBy: string;
  createdAt: number;
};

export function presentTrigger(row: TriggerRow, seen: { upcoming?: readonly number[]; isLate: boolean }) {
  return {
    ...idPair('id', row.id),
    name: row.name,
    trigger_type: row.triggerType,
    enabled: row.enabled,
    state: row.state,
    error: row.error,
    options: JSON.parse(row.options),
    next_at: wireTimeOrNull(row.enabled ? row.nextAt : null),
    ...(seen.isLate && { late: true }),
    ...(seen.upcoming && { upcoming: seen.upcoming.map(wireTime) }),
    fired_at: wireTimeOrNull(row.firedAt),
    refused_count: row.refusedCount,
    refused_at: wireTimeOrNull(row.refusedAt),
    created_by: row.createdBy,
    created_at: wireTime(row.createdAt),
  };
}

export const firingShape = record('Firing', {
  ...id,
  ...idPairShape('trigger_id', 'The trigger.'),
  event: shape.string('What happened: the event of the forge, `look`, `schedule` or `fire`.'),
  delivery: shape.nullable(shape.string('The id that the forge gave to the hook.')),
  ref: shape.nullable(shape.string('The full name of the branch or tag, such as refs/heads/main.')),
  before: shape.nullable(shape.string('Its hash before.')),
  after: shape.nullable(shape.string('Its hash after; null if it was deleted.')),
  pushed_by: shape.nullable(shape.string('Who pushed, as the forge said. Not verified.')),
  outcome: shape.oneOf(
    firingOutcomes,
    'A build was requested, nothing had changed, it was ignored for a reason, the repository is being asked, it was asked, or it failed.',
  ),
  reason: shape.nullable(
    shape.string(
      'Why it was ignored (`event`, `ping`, `deleted`, `filtered`, `first_look`, `too_many`, `still_running`, `too_late`, `owner_inactive`), or why it failed.',
    ),
  ),
  build_request_id: shape.nullable(shape.id('The build request, if one was made.')),
  build_request_id_str: shape.string('The id as a decimal string; empty while build_request_id is null.'),
  planned_at: shape.nullable(shape.time('The planned time of a schedule.')),
  created_at: shape.time('When it happened.'),
});

type FiringRow = {
  id: bigint;
  triggerId: bigint;
  event: string;
  delivery: string | null;
  ref: string | null;
  before: string | null;
  after: string | null;
  pushedBy: string | null;
  outcome: FiringOutcome;
  reason: string | null;
  buildRequestId: bigint | null;
  plannedAt: number | null;
  createdAt: number;
};

export function presentFiring(firing: FiringRow) {
  return {
    ...idPair('id', firing.id),
    ...idPair('trigger_id', firing.triggerId),
    event: firing.event,
    delivery: firing.delivery,
    ref: firing.ref,
    before: firing.before,
    after: firing.after,
    pushed_by: firing.pushedBy,
    outcome: firing.outcome,
    reason: firing.reason,
    ...idPair('build_request_id', firing.buildRequestId),
    planned_at: wireTimeOrNull(firing.plannedAt),
    created_at: wireTime(firing.createdAt),
  };
}
