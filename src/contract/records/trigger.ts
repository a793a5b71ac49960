// The records of triggers and firings: their schemas, and functions that create them from rows.

import {
  type FiringOutcome,
  firingOutcomes,
  type TriggerState,
  type TriggerType,
  triggerStates,
  triggerTypes,
} from '../../domain/trigger/trigger.ts';
import { idPair, idPairShape, ids, record, shape, wireTime, wireTimeOrNull } from '../wire.ts';

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
      reconcile: shape.integer('Seconds between checks that find pushes without a hook; 0 for none.'),
    }),
    record('PollOptions', {
      ...filters,
      interval: shape.integer('Seconds between two checks of the repository.'),
      build_first: shape.boolean('Whether the first check builds the default branch.'),
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
  ...ids,
  name: shape.string('Name.'),
  trigger_type: shape.oneOf(
    triggerTypes,
    'What starts builds: a hook, a check of the repository, or the time.',
  ),
  enabled: shape.boolean('Whether it starts builds.'),
  state: shape.oneOf(triggerStates, 'Whether it works. A new one has not been used.'),
  error: shape.nullable(shape.string('Why the last check of the repository failed.')),
  options: triggerOptions,
  next_at: shape.nullable(shape.time('When the next check or build is due.')),
  late: shape.boolean('Present when true: the next check is overdue, because many repositories are polled.'),
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
  ...ids,
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
