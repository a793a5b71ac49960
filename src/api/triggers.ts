// Trigger endpoints: triggers, their secrets and their firings. hooks.ts receives the hooks of forges.

import {
  firingShape,
  presentFiring,
  presentTrigger,
  triggerShape,
  triggerWithSecretShape,
} from '../contract/records/trigger.ts';
import { destroyedShape } from '../contract/wire.ts';
import { checkBranch } from '../domain/names.ts';
import { type Errors, refusal } from '../domain/refusal.ts';
import { checkCron, checkTimeZone, nextTime, upcoming } from '../domain/trigger/cron.ts';
import { newHookSecret } from '../domain/trigger/hook-signature.ts';
import {
  defaultOptions,
  globsOf,
  type TriggerOptions,
  type TriggerType,
  triggerTypes,
} from '../domain/trigger/trigger.ts';
import { deleteTrigger } from '../store/cleanup/purge.ts';
import type { Db } from '../store/database/db.ts';
import { lookFor } from '../store/trigger/firings.ts';
import { LATE_MS } from '../store/trigger/looks.ts';
import { fireScheduleNow } from '../store/trigger/schedules.ts';
import {
  createTrigger,
  findFiring,
  isTriggerNameTaken,
  listFirings,
  listTriggers,
  optionsOf,
  replaceSecret,
  type Trigger,
  updateTrigger,
} from '../store/trigger/triggers.ts';
import { endpoint, listing, type Services } from './endpoint.ts';
import { flag, optional, required, requiredName, type Values, wholeNumber } from './fields.ts';

const FILTER_BYTES = 4096;
const MAX_GLOBS = 100;
/** How long a caller waits for the repository. A look may take 30 s, and may have to wait for others. */
const FIRE_MS = 60_000;
const UPCOMING = 5;

const filter = (doc: string, example: string) =>
  optional({
    doc,
    example,
    maxBytes: FILTER_BYTES,
    check: value => (globsOf(value).length > MAX_GLOBS ? 'invalid_format' : undefined),
  });

const name = requiredName({ doc: "Unique among the project's triggers.", example: 'Push' });
const options = {
  'options[branches]': filter(
    'For push and poll: globs of branches, separated by spaces. Default: `*`.',
    'main release/*',
  ),
  'options[tags]': filter('For push and poll: globs of tags, separated by spaces. Default: none.', 'v*'),
  'options[pull_requests]': flag('For push: whether pull requests from forks are built. Default: false.'),
  'options[pull_request_variables]': flag(
    "For push: whether builds of forks get the suite's variables. Anyone who can open a pull request can then read them. Default: false.",
  ),
  'options[reconcile]': wholeNumber(
    'For push: seconds between checks that find pushes without a hook; 0 for none. Default: 21600.',
    0,
    2_592_000,
  ),
  'options[interval]': wholeNumber(
    'For poll: seconds between two checks of the repository. Default: 120.',
    30,
    86_400,
  ),
  'options[build_first]': flag(
    'For poll: whether the first check builds the default branch. Default: false.',
  ),
  'options[cron]': optional({
    doc: 'For schedule, required: five fields of cron, or @hourly, @daily, @weekly, @monthly, @yearly.',
  }),
  'options[time_zone]': optional({
    doc: 'For schedule: an IANA time zone. Default: UTC.',
    check: checkTimeZone,
  }),
  'options[branch]': optional({ doc: 'For schedule, required: the branch to build.', check: checkBranch }),
  'options[only_new]': flag(
    'For schedule: whether to build only a commit that it has not built. Default: false.',
  ),
  'options[late]': wholeNumber(
    'For schedule: up to how many minutes late a missed time is made up for. Default: 60.',
    0,
    525_600,
  ),
};

/** The options that determine when a trigger is due. */
const timing = ['cron', 'time_zone', 'interval', 'reconcile'];

type OptionValues = Partial<Values<typeof options>>;

/** The options that were sent, by their names inside the brackets. */
const sentOptions = (values: OptionValues): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(values).flatMap(([key, value]) => {
      const option = /^options\[(\w+)\]$/.exec(key)?.[1];
      return option === undefined || value === undefined ? [] : [[option, value]];
    }),
  );

/** Options of another type are errors, and so are a missing cron expression or branch. */
function checkOptions(db: Db, type: TriggerType, values: OptionValues, isNew: boolean): Errors {
  const errors: Errors = {};
  for (const option of Object.keys(sentOptions(values)))
    if (!(option in defaultOptions[type])) errors[`options[${option}]`] = ['invalid_format'];
  if (type !== 'schedule') return errors;
  const { 'options[cron]': cron, 'options[branch]': branch } = values;
  if (cron === undefined ? isNew : cron === '') errors['options[cron]'] = ['is_blank'];
  else if (cron !== undefined && checkCron(cron, db.now())) errors['options[cron]'] = ['invalid_format'];
  if (branch === undefined ? isNew : branch === '') errors['options[branch]'] = ['is_blank'];
  return errors;
}

/** When a trigger with new options is next due. A repository is looked at right away. */
function firstTime(db: Db, type: TriggerType, merged: object): number | null {
  if (type === 'schedule') {
    const { cron, time_zone } = merged as TriggerOptions['schedule'];
    return nextTime(cron, time_zone, db.now()) ?? null;
  }
  return type === 'push' && (merged as TriggerOptions['push']).reconcile === 0 ? null : db.now();
}

export function present(db: Db, trigger: Trigger) {
  const { triggerType, enabled, nextAt } = trigger;
  const schedule = triggerType === 'schedule' ? optionsOf(trigger, 'schedule') : undefined;
  return presentTrigger(trigger, {
    isLate: enabled && !schedule && nextAt !== null && nextAt + LATE_MS < db.now(),
    ...(schedule && {
      upcoming: enabled ? upcoming(schedule.cron, schedule.time_zone, db.now(), UPCOMING) : [],
    }),
  });
}

export const hookUrl = ({ baseUrl }: Services, { id }: Trigger) => `${baseUrl}/hooks/${id}`;

export const triggers = {
  list: endpoint({
    method: 'GET',
    path: '/projects/:project_id/triggers',
    summary: "Lists the project's triggers",
    access: 'sees',
    scope: 'build_requests',
    response: { list: triggerShape },
    handle: ({ db, project, page }) =>
      listing(page, listTriggers(db, project.id, page), trigger => present(db, trigger)),
  }),
  create: endpoint({
    method: 'POST',
    path: '/projects/:project_id/triggers',
    summary: 'Creates a trigger, which starts builds by itself',
    access: 'sees',
    scope: 'build_requests_create',
    fields: {
      name,
      trigger_type: required({
        doc: 'When it starts builds: `push`, when a forge calls its URL; `poll`, when a check of the repository finds a change; `schedule`, at planned times.',
        oneOf: triggerTypes,
      }),
      ...options,
    },
    checkTogether: (values, { db, project }) => ({
      ...(values.name !== undefined &&
        isTriggerNameTaken(db, project.id, values.name) && { name: ['already_exists'] as const }),
      ...(values.trigger_type && checkOptions(db, values.trigger_type, values, true)),
    }),
    response: { record: triggerWithSecretShape, status: 201 },
    handle: call => {
      const { db, project, caller, values } = call;
      const { trigger_type: type } = values;
      const merged = { ...defaultOptions[type], ...sentOptions(values) };
      const secret = type === 'push' ? newHookSecret() : undefined;
      const trigger = createTrigger(db, {
        projectId: project.id,
        name: values.name,
        triggerType: type,
        options: merged,
        nextAt: firstTime(db, type, merged),
        ...(secret && { secret }),
        createdBy: caller.email,
      });
      return { ...present(db, trigger), ...(secret && { url: hookUrl(call, trigger), secret }) };
    },
  }),
  get: endpoint({
    method: 'GET',
    path: '/projects/:project_id/triggers/:trigger_id',
    summary: 'Returns a trigger',
    access: 'sees',
    scope: 'build_requests',
    response: { record: triggerShape },
    handle: ({ db, trigger }) => present(db, trigger),
  }),
  update: endpoint({
    method: 'PUT',
    path: '/projects/:project_id/triggers/:trigger_id',
    summary: 'Updates the fields that are sent. The type cannot be changed',
    access: 'sees',
    scope: 'build_requests_create',
    fields: { name, ...options, enabled: flag('Whether it starts builds.') },
    checkTogether: (values, { db, trigger }) => ({
      ...(values.name !== undefined &&
        isTriggerNameTaken(db, trigger.projectId, values.name, trigger) && {
          name: ['already_exists'] as const,
        }),
      ...checkOptions(db, trigger.triggerType, values, false),
    }),
    response: { record: triggerShape },
    handle: ({ db, trigger, values }) => {
      const sent = sentOptions(values);
      const merged = { ...JSON.parse(trigger.options), ...sent };
      const isRescheduled =
        Object.keys(sent).some(option => timing.includes(option)) ||
        (values.enabled === true && !trigger.enabled);
      return present(
        db,
        updateTrigger(db, trigger, {
          ...(values.name !== undefined && { name: values.name }),
          ...(values.enabled !== undefined && { enabled: values.enabled }),
          options: merged,
          ...(isRescheduled && { nextAt: firstTime(db, trigger.triggerType, merged) }),
        }),
      );
    },
  }),
  delete: endpoint({
    method: 'DELETE',
    path: '/projects/:project_id/triggers/:trigger_id',
    summary: 'Deletes a trigger and its firings; its build requests stay',
    access: 'users',
    scope: 'build_requests_create',
    response: { record: destroyedShape },
    handle: ({ db, trigger }) => {
      deleteTrigger(db, trigger);
      return { destroyed: true };
    },
  }),
  replaceSecret: endpoint({
    method: 'POST',
    path: '/projects/:project_id/triggers/:trigger_id/secret',
    summary: 'Creates a new secret for a push trigger. The old one is accepted for 24 hours more',
    access: 'sees',
    scope: 'build_requests_create',
    response: { record: triggerWithSecretShape },
    handle: call => {
      const { db, trigger } = call;
      if (trigger.triggerType !== 'push') throw refusal('not_found');
      const secret = newHookSecret();
      return { ...present(db, replaceSecret(db, trigger, secret)), url: hookUrl(call, trigger), secret };
    },
  }),
  fire: endpoint({
    method: 'POST',
    path: '/projects/:project_id/triggers/:trigger_id/fire',
    summary:
      'Checks the repository now, or requests the build of a schedule now. Returns the firings once they are known',
    access: 'sees',
    scope: 'build_requests_create',
    fields: {
      wait: flag('Whether to wait for the repository. Without it, the firing is `looking`. Default: true.'),
    },
    response: { list: firingShape, paged: false },
    handle: async ({ db, live, project, trigger, request, values }) => {
      if (trigger.triggerType === 'schedule') return [presentFiring(fireScheduleNow(db, project, trigger))];
      const first = lookFor(db, trigger, undefined, { event: 'fire' });
      if (values.wait === false) return [presentFiring(first)];
      await untilLooked(live, request.signal, trigger, () => findFiring(db, first.id)?.outcome !== 'looking');
      const page = { limit: 100, before: undefined };
      return listFirings(db, trigger.id, page)
        .filter(({ id }) => id >= first.id)
        .map(presentFiring);
    },
  }),
  listFirings: endpoint({
    method: 'GET',
    path: '/projects/:project_id/triggers/:trigger_id/firings',
    summary: 'Lists what the trigger noticed and did: which pushes were built, and why others were not',
    access: 'sees',
    scope: 'build_requests',
    response: { list: firingShape },
    handle: ({ db, trigger, page }) => listing(page, listFirings(db, trigger.id, page), presentFiring),
  }),
};

/** Resolves when `isDone` holds after a change of the trigger, or when it takes too long. */
async function untilLooked(
  live: Services['live'],
  signal: AbortSignal,
  trigger: Trigger,
  isDone: () => boolean,
): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const unwatch = live.watch(`trigger:${trigger.id}`, () => isDone() && resolve());
  const timer = setTimeout(resolve, FIRE_MS);
  signal.addEventListener('abort', () => resolve());
  try {
    await promise;
  } finally {
    clearTimeout(timer);
    unwatch();
  }
}
